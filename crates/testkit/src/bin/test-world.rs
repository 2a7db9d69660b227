//! `test-world LOG`: the servers of a world, by orders on standard input; `world::serve` does it. Started by `World`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [log] = arguments.as_slice() else { return ExitCode::from(2) };
    match cofferdam_testkit::world::serve(Path::new(log)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("test-world: {error}");
            ExitCode::FAILURE
        }
    }
}
