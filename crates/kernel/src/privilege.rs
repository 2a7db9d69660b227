//! Giving up privilege for good: capabilities in all five sets, securebits, no_new_privs, resource limits.
//! Every failure is an error: a step that silently does nothing is the classic hole. Called by `launcher::apply`.

use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, SecureComputingMode};

pub use rustix::process::Resource;

use crate::raw;

/// Uid 0 means nothing, for good.
const LOCKED: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// What the kernel says of the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of the kernel to a question of its own")]
pub struct Privilege {
    /// In the effective, permitted or inheritable set.
    pub has_capabilities: bool,
    pub has_bounding: bool,
    /// Uid 0 means nothing, and that cannot be changed.
    pub is_locked: bool,
    pub no_new_privileges: bool,
    pub is_filtered: bool,
}

/// Asks by calls that take no path. What is raised to the ambient set is in the permitted set as well.
pub fn measure() -> Result<Privilege, Errno> {
    let sets = rustix::thread::capabilities(None)?;
    let mut has_bounding = false;
    for capability in CapabilitySet::all().iter() {
        has_bounding |= match rustix::thread::capability_is_in_bounding_set(capability) {
            // This kernel does not know it.
            Err(Errno::INVAL) => false,
            other => other?,
        };
    }
    Ok(Privilege {
        has_capabilities: !(sets.effective | sets.permitted | sets.inheritable).is_empty(),
        has_bounding,
        is_locked: rustix::thread::capabilities_secure_bits()?.contains(LOCKED),
        no_new_privileges: rustix::thread::no_new_privs()?,
        is_filtered: rustix::thread::secure_computing_mode()? == SecureComputingMode::Filter,
    })
}

/// Empties the ambient, bounding, inheritable, permitted and effective sets, and locks the securebits so that uid 0
/// means nothing.
pub fn drop_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let mut number = 0;
    while raw::privilege::drop_bounding(number)? {
        number += 1;
    }
    rustix::thread::set_capabilities_secure_bits(LOCKED)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// The same for a process that may have none: without the right to change the bounding set what it has is all there is to give up.
pub fn drop_own_capabilities() -> Result<(), Errno> {
    if rustix::thread::capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return drop_capabilities();
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

pub fn no_new_privileges() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}

/// Sets the soft and the hard limit, never above the present hard limit.
pub fn limit(resource: Resource, value: u64) -> Result<(), Errno> {
    let hard = rustix::process::getrlimit(resource).maximum;
    let value = Some(hard.map_or(value, |hard| hard.min(value)));
    rustix::process::setrlimit(resource, rustix::process::Rlimit { current: value, maximum: value })
}
