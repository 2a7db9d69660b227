//! The program `sandbox-verify`: `sandbox verify` executes it from the directory that it lies in itself.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The one of `sandbox`: what is verified is launched as `sandbox run` launches it.
#[global_allocator]
static ALLOCATOR: cofferdam_kernel::memory::Allocator = cofferdam_kernel::memory::Allocator::new();

fn main() -> ExitCode {
    cofferdam_verify::run()
}
