//! What `sandbox why` says about a system call. Owns the wording; the verdict is `plan`'s.

use cofferdam_host::preparation::PrepareError;
use cofferdam_plan::seccomp::{Verdict, verdict_of};
use cofferdam_policy::{Isolation, Policy, is_always_denied};

pub(super) fn about(name: &str, policy: &Policy) -> Result<Vec<String>, PrepareError> {
    let internet = policy.isolation.value == Isolation::Full;
    let verdict = verdict_of(policy, internet, name)?;
    let denied = policy.syscalls.deny.iter().find(|rule| rule.value == name);
    let allowed = policy.syscalls.allow.iter().find(|rule| rule.value == name);
    let origin =
        denied.or(allowed).map_or("built-in: profiles/seccomp.toml".to_owned(), |rule| rule.origin.to_string());
    let what = match verdict {
        Some(Verdict::Allow) => "is allowed",
        Some(Verdict::Errno(_)) | None => "is refused: it fails as if the kernel had no such call, or with EPERM",
        Some(Verdict::Notify) => "is refused and recorded",
        Some(Verdict::Clone | Verdict::CloneThreadOnly) => "is allowed without new namespaces",
        Some(Verdict::Ioctl) => "is allowed but for putting input into a terminal",
        Some(Verdict::Socket { internet: true }) => "is allowed for local, internet and netlink route sockets",
        Some(Verdict::Socket { internet: false }) => "is allowed for local and netlink route sockets",
        Some(Verdict::SocketPair) => "is allowed for local sockets",
        Some(Verdict::Personality { .. }) => "is allowed for harmless personalities",
        Some(Verdict::Mode(_)) => "is allowed without the set-user-ID bit, and makes no file with the set-group-ID bit",
    };
    let refused = matches!(verdict, Some(Verdict::Errno(_) | Verdict::Notify) | None);
    let change = match (refused, denied) {
        (true, Some(rule)) => format!("to allow it: drop `syscalls.deny = [{name:?}]` ({})", rule.origin),
        (true, None) if is_always_denied(name) => "it is always denied: no flag and no file allows it".to_owned(),
        (true, None) => {
            format!("to allow it, where the table leaves that open: `syscalls.allow = [{name:?}]` in a policy file")
        }
        (false, _) => format!("to forbid it: `syscalls.deny = [{name:?}]` in a policy file"),
    };
    Ok(vec![format!("system call {name} {what} [{origin}]"), change])
}
