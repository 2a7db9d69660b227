//! CPU time and who gets it first. Each attempt ends by itself after some seconds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Attempt, call, judge, number};
use crate::raw;
use crate::row::Finding;

const CLOCK_PROCESS: usize = 2;
const REFUSED: &[i32] = &[libc::EPERM, libc::EACCES];

/// CPU time of this process, its threads included.
fn cpu_time() -> Duration {
    let mut time = [0i64; 2];
    match call(libc::SYS_clock_gettime, &[CLOCK_PROCESS, (&raw mut time) as usize]) {
        Ok(_) => Duration::new(time[0].unsigned_abs(), u32::try_from(time[1]).unwrap_or(0)),
        Err(_) => Duration::ZERO,
    }
}

pub(super) fn d03_realtime() -> Finding {
    const SCHED_DEADLINE: u32 = 6;
    const PRIO_PROCESS: usize = 0;
    let priority = 1i32;
    let class = |class: usize| call(libc::SYS_sched_setscheduler, &[0, class, (&raw const priority) as usize]);
    // struct sched_attr: size and policy, flags, nice and priority, then 10 ms in every 30.
    let deadline = [0x30 | u64::from(SCHED_DEADLINE) << 32, 0, 0, 10_000_000, 30_000_000, 30_000_000];
    let nice = usize::MAX - 4;
    judge(&[
        Attempt::new("SCHED_FIFO", class(1), REFUSED),
        Attempt::new("SCHED_RR", class(2), REFUSED),
        Attempt::new("SCHED_DEADLINE", call(libc::SYS_sched_setattr, &[0, (&raw const deadline) as usize, 0]), REFUSED),
        Attempt::new("nice -5", call(libc::SYS_setpriority, &[PRIO_PROCESS, 0, nice]), REFUSED),
    ])
}

/// On how many CPUs threads run that do not say where, after an attempt to get all of them back.
pub(super) fn d03_pinned() -> Finding {
    const WINDOW: Duration = Duration::from_secs(2);
    let asked = ask_for_every_cpu();
    let end = Instant::now() + WINDOW;
    let run = move || {
        let mut seen = BTreeSet::new();
        while Instant::now() < end {
            let mut cpu = u32::MAX;
            if call(libc::SYS_getcpu, &[(&raw mut cpu) as usize, 0, 0]).is_ok() {
                seen.insert(cpu);
            }
        }
        seen
    };
    let threads: Vec<_> = (0..THREADS).map(|_| std::thread::spawn(run)).collect();
    let seen: BTreeSet<u32> = threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect();
    let text = format!("{THREADS} threads ran on {} CPUs, all CPUs asked for and {asked}", seen.len());
    if seen.len() == 1 { Finding::Contained(text) } else { Finding::Open(text) }
}

const THREADS: usize = 16;

fn ask_for_every_cpu() -> &'static str {
    let every = [u64::MAX; 16];
    let asked = call(libc::SYS_sched_setaffinity, &[0, size_of_val(&every), (&raw const every) as usize]);
    if asked.is_ok() { "granted" } else { "refused" }
}

/// More threads than CPUs, after an attempt to get all CPUs back. The best of some windows is what counts: other work on
/// the machine makes a window smaller. A window is forty periods of cpu.max long, since one period can give too much: a CPU
/// that is itself kept waiting (a guest's) notices the end of its share late, and the kernel takes what it gave too much
/// from the periods that follow.
pub(super) fn d03_cpus() -> Finding {
    const SAMPLES: usize = 12;
    const SAMPLE: Duration = Duration::from_secs(1);
    const WINDOW: usize = 4;
    // One CPU, and what windows and periods that begin at different times add to it.
    const AT_MOST: f64 = 1.25;
    const SURELY_MORE: f64 = 1.4;
    let asked = ask_for_every_cpu();
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..THREADS {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
    }
    let now = || (cpu_time(), Instant::now());
    let mut samples = vec![now()];
    let mut best = 0.0f64;
    while samples.len() <= SAMPLES && best <= SURELY_MORE {
        std::thread::sleep(SAMPLE);
        let (cpu, wall) = now();
        if let Some((cpu_before, before)) = samples.iter().rev().nth(WINDOW - 1) {
            best = best.max(cpu.saturating_sub(*cpu_before).as_secs_f64() / (wall - *before).as_secs_f64());
        }
        samples.push((cpu, wall));
    }
    stop.store(true, Ordering::Relaxed);
    let text = format!("{best:.2} CPUs used by {THREADS} threads, all CPUs asked for and {asked}");
    if best <= AT_MOST { Finding::Contained(text) } else { Finding::Open(text) }
}

const CHILDREN: u32 = 120;
const EACH: Duration = Duration::from_millis(50);
const AT_LONGEST: Duration = Duration::from_secs(25);

fn burn() -> i32 {
    let end = Instant::now() + AT_LONGEST;
    while cpu_time() < EACH && Instant::now() < end {}
    0
}

/// Three times the limit, by processes that use little each.
pub(super) fn d03_time() -> Finding {
    let end = Instant::now() + AT_LONGEST;
    for _ in 0..CHILDREN {
        if let Err(errno) = raw::fork(burn).and_then(raw::wait) {
            return Finding::Broken(format!("cannot fork or wait: errno {errno}"));
        }
        if Instant::now() > end {
            break;
        }
    }
    Finding::Open(format!("{CHILDREN} processes used {} ms each", EACH.as_millis()))
}

/// The same by processes whose time is left to no parent: theirs does not want to know how they ended.
pub(super) fn d03_time_of_ignored() -> Finding {
    const SIGCHLD: usize = 17;
    // struct sigaction of the kernel: SIG_IGN, no flags, no restorer, no mask.
    let ignore = [1u64, 0, 0, 0];
    if let Err(errno) = call(libc::SYS_rt_sigaction, &[SIGCHLD, (&raw const ignore) as usize, 0, 8]) {
        return Finding::Broken(format!("SIGCHLD cannot be ignored: errno {errno}"));
    }
    let end = Instant::now() + AT_LONGEST;
    for _ in 0..CHILDREN {
        let Ok(child) = raw::fork(burn) else { return Finding::Broken("cannot fork".to_owned()) };
        while call(libc::SYS_kill, &[number(child.into()), 0]).is_ok() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Finding::Open(format!("{CHILDREN} ignored processes used {} ms each", EACH.as_millis()))
}
