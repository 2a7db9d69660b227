//! A neighbour that works in small steps and notes how long each took, and the neighbours that it has to live with. Run by
//! `escape-runner neighbour`; each ends by itself.

use std::fs;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::Place;

use super::call;
use super::memory::touch;
use crate::raw;
use crate::row::Finding;

const PAUSE: Duration = Duration::from_millis(1);
/// Some fifty microseconds of them.
const CALLS: usize = 300;
/// One round in so many starts a program: more than one in a hundred, so the 99th percentile is among these.
const STARTS: usize = 50;
/// Longer than any measurement; the process that measures ends it before.
const AT_LONGEST: Duration = Duration::from_mins(1);

/// Sleeps, then does a bit of work, as often as a file says; the time of each round without the sleep goes to another, in
/// nanoseconds.
pub(super) fn work_in_small_steps(place: &Place) -> Finding {
    let wanted = fs::read_to_string(place.project().join("wanted")).ok().and_then(|text| text.parse().ok());
    let Some(wanted) = wanted else { return Finding::Broken("how many rounds?".to_owned()) };
    let worked = std::env::current_exe().and_then(|own| {
        let file = place.project().join("work");
        let mut rounds = Vec::new();
        for round in 0..wanted {
            let began = Instant::now();
            std::thread::sleep(PAUSE);
            fs::write(&file, [7u8; 4096])?;
            fs::read(&file)?;
            let answered = (0..CALLS).filter(|_| call(libc::SYS_getppid, &[]).is_ok()).count();
            if answered == CALLS && round % STARTS == 0 {
                Command::new(&own).args(["nothing", "-"]).stdout(Stdio::null()).status()?;
            }
            rounds.push(began.elapsed().saturating_sub(PAUSE).as_nanos().to_string());
        }
        fs::write(place.project().join("rounds"), rounds.join("\n"))
    });
    match worked {
        Ok(()) => Finding::Contained(format!("{wanted} rounds")),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

/// Every process forks as fast as it can, whatever comes of it.
pub(super) fn attack_with_forks() -> Finding {
    fn explode(end: Instant) -> i32 {
        while Instant::now() < end {
            if raw::fork(|| explode(end)).is_err() {
                std::thread::yield_now();
            }
        }
        0
    }
    explode(Instant::now() + AT_LONGEST);
    Finding::Open("nobody ended it".to_owned())
}

/// Touches memory until the kernel gives no more, lets go of it, and begins again. A limit ends it at once.
pub(super) fn attack_with_memory() -> Finding {
    const MOST: usize = 1 << 30;
    let end = Instant::now() + AT_LONGEST;
    while Instant::now() < end {
        drop(touch(MOST));
    }
    Finding::Open("nobody ended it".to_owned())
}

pub(super) fn attack_with_threads() -> Finding {
    let threads = 4 * fs::read_to_string("/proc/cpuinfo").map_or(4, |text| text.matches("processor\t").count());
    let end = Instant::now() + AT_LONGEST;
    for _ in 0..threads {
        std::thread::spawn(move || while Instant::now() < end {});
    }
    std::thread::sleep(AT_LONGEST);
    Finding::Open("nobody ended it".to_owned())
}

pub(super) fn attack_with_output() -> Finding {
    let block = vec![b'x'; 1 << 16];
    let end = Instant::now() + AT_LONGEST;
    while Instant::now() < end {
        if let Err(error) = io::stdout().write_all(&block) {
            return Finding::Contained(error.to_string());
        }
    }
    Finding::Open("nobody ended it".to_owned())
}
