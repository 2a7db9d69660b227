//! System calls that must not reach the kernel.

use cofferdam_kernel::Errno;
use cofferdam_kernel::attempt::Call;

use super::Attempts;
use crate::answer::Answer;

/// What only the filter says: the kernel itself has other answers for these arguments, or the supervisor was not told.
fn is_refusal(name: &str, errno: Errno) -> bool {
    match name {
        "AF_VSOCK" | "AF_ALG" | "packet socket" | "netlink NETFILTER" => errno == Errno::AFNOSUPPORT,
        "io_uring_setup" => errno == Errno::NOSYS || errno == Errno::PERM,
        _ => errno == Errno::PERM,
    }
}

pub(super) fn make(names: &[&str]) -> Answer {
    let mut attempts = Attempts::default();
    for name in names {
        let Some(call) = Call::named(name) else { return Answer::Unclear(format!("no call is named `{name}`")) };
        match call.make() {
            Ok(()) => attempts.reached.push(format!("{name}: done")),
            Err(errno) if is_refusal(name, errno) => attempts.refused.push(format!("{name}: {errno}")),
            Err(errno) => attempts.reached.push(format!("{name}: the kernel said {errno}")),
        }
    }
    attempts.answer()
}

pub(super) fn go_on_after_attempt() -> Answer {
    let said = Call::named("open_by_handle_at").map(Call::make);
    Answer::Reached(format!("the session goes on after open_by_handle_at: {said:?}"))
}
