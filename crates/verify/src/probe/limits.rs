//! Taking more than a limit allows. Where the supervisor keeps one, it looks now and then: what was taken is held for a while.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use cofferdam_kernel::process;

use crate::answer::Answer;

/// Longer than it takes the supervisor to look again.
const HOLD: Duration = Duration::from_millis(1500);
const PROCESSES: usize = 80;
const BYTES: usize = 160 << 20;
const DESCRIPTORS: usize = 250;

pub(super) fn many_processes() -> Answer {
    for made in 0..PROCESSES {
        match process::fork() {
            Ok(Some(_)) => {}
            Ok(None) => {
                std::thread::sleep(HOLD);
                process::exit_now(0)
            }
            Err(errno) => return Answer::Refused(format!("{made} processes, then {errno}")),
        }
    }
    std::thread::sleep(HOLD);
    Answer::Reached(format!("{PROCESSES} processes at once"))
}

pub(super) fn much_memory() -> Answer {
    let mut memory: Vec<u8> = Vec::new();
    if let Err(error) = memory.try_reserve_exact(BYTES) {
        return Answer::Refused(error.to_string());
    }
    memory.resize(BYTES, 1);
    std::thread::sleep(HOLD);
    let sum: usize = memory.iter().step_by(4096).map(|byte| usize::from(*byte)).sum();
    Answer::Reached(format!("{sum} pages at once"))
}

pub(super) fn much_output() -> Answer {
    let line = [b'.'; 1023];
    let mut output = std::io::stdout().lock();
    for _ in 0..512 {
        if let Err(error) = output.write_all(&line).and_then(|()| output.write_all(b"\n")) {
            return Answer::Refused(error.to_string());
        }
    }
    Answer::Reached("512 KiB of output".to_owned())
}

pub(super) fn many_descriptors() -> Answer {
    let mut open = Vec::new();
    for made in 0..DESCRIPTORS {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => return Answer::Refused(format!("{made} descriptors, then {error}")),
        }
    }
    Answer::Reached(format!("{} descriptors at once", open.len()))
}

pub(super) fn much_time() -> Answer {
    std::thread::sleep(Duration::from_millis(1800));
    Answer::Reached("1.8 seconds".to_owned())
}
