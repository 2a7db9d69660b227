//! The program `sandbox-egress`: the process of a session that resolves, checks, dials and carries. `sandbox` starts it from the
//! directory that it lies in itself; but for `--version` it has no arguments, and it reads no variables.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The one of `sandbox`, for the same reason (docs/decisions/0009).
#[global_allocator]
static ALLOCATOR: cofferdam_kernel::memory::Allocator = cofferdam_kernel::memory::Allocator::new();

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "--version") {
        println!("{}", cofferdam_reach::start::version_line());
        return ExitCode::SUCCESS;
    }
    match cofferdam_egress::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // /dev/null where a supervisor started it, which has heard it over the link.
            eprintln!("sandbox-egress: {why}");
            ExitCode::FAILURE
        }
    }
}
