//! Giving up privilege for good: capabilities in all five sets, securebits, no_new_privs, resource limits.
//! Every failure is an error: a step that silently does nothing is the classic hole. Called by `launcher::apply`.

use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

pub use rustix::process::Resource;

use crate::raw;

/// Empties the ambient, bounding, inheritable, permitted and effective sets, and locks the securebits so that uid 0
/// means nothing.
pub fn drop_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let mut number = 0;
    while raw::privilege::drop_bounding(number)? {
        number += 1;
    }
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked)?;
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
