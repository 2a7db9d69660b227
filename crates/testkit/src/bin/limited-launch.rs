//! `limited-launch OUTPUT SECONDS COMMAND...`: one launch with limits on output and time (`-` for none), on the streams it
//! was started with. Ends with the code that `sandbox run` would end with.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use cofferdam_policy::Ruled;
use cofferdam_testkit::Session;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [output, seconds, argv @ ..] = arguments.as_slice() else { return ExitCode::from(2) };
    let mut session = Session::of(argv.to_vec());
    let limits = &mut session.policy.limits;
    limits.output = number(output).map(Ruled::default_of);
    limits.timeout = number(seconds).map(|time| Ruled::default_of(Duration::from_secs(time)));
    let report = session.run(|_| {}, || {});
    if let Some(error) = report.error {
        eprintln!("limited-launch: {error}");
    }
    ExitCode::from(u8::try_from(report.code & 0xff).unwrap_or(u8::MAX))
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}
