//! Processes, output, disks, descriptors and refused calls without end. Each attempt is bounded, so that it ends by itself
//! where neither the kernel nor the supervisor ends it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_testkit::Place;

use super::{Attempt, HOLD, call, judge, number, shortened};
use crate::limits::{DESCRIPTORS, PROCESSES, ROOM, STORAGE};
use crate::raw;
use crate::row::Finding;
use crate::words;

const MIB: usize = 1 << 20;

/// What many forks or threads came to: contained if the kernel said "not now" before the limit was passed.
fn counted(what: &str, made: u32, refused: Option<i32>) -> Finding {
    match refused {
        Some(libc::EAGAIN) if made < PROCESSES => Finding::Contained(format!("EAGAIN after {made} {what}")),
        Some(errno) => Finding::Open(format!("{} after {made} {what}", words::errno(errno))),
        None => {
            std::thread::sleep(HOLD);
            Finding::Open(format!("{made} {what} at once"))
        }
    }
}

const MANY: u32 = 5 * PROCESSES;

pub(super) fn d01_processes() -> Finding {
    let mut made = 0;
    let sleep = || {
        std::thread::sleep(3 * HOLD);
        0
    };
    while made < MANY {
        match raw::fork(sleep) {
            Ok(_) => made += 1,
            Err(errno) => return counted("processes", made, Some(errno)),
        }
    }
    counted("processes", made, None)
}

pub(super) fn d01_threads() -> Finding {
    let mut made = 0;
    while made < MANY {
        match std::thread::Builder::new().stack_size(64 << 10).spawn(|| std::thread::sleep(3 * HOLD)) {
            Ok(_) => made += 1,
            Err(error) => return counted("threads", made, Some(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
    counted("threads", made, None)
}

/// Every process forks on and none gives up, until there are enough or the time is over.
pub(super) fn d01_bomb(place: &Place) -> Finding {
    const ENOUGH: u64 = 6 * PROCESSES as u64;
    const AT_LONGEST: Duration = Duration::from_secs(10);
    fn explode(forks: &Path, end: Instant) -> i32 {
        let made = || fs::metadata(forks).map_or(u64::MAX, |file| file.len());
        while made() < ENOUGH && Instant::now() < end {
            let counted = match raw::fork(|| explode(forks, end)) {
                Ok(_) => OpenOptions::new().append(true).open(forks).and_then(|mut file| file.write_all(b".")),
                Err(_) => Ok(()),
            };
            if counted.is_err() {
                return 1;
            }
        }
        0
    }
    let forks = place.write("home/project/forks", "");
    let began = Instant::now();
    explode(&forks, began + AT_LONGEST);
    let made = fs::metadata(&forks).map_or(0, |file| file.len());
    Finding::Open(format!("{made} forks, nobody ended it within {} ms", began.elapsed().as_millis()))
}

/// Sixty-four times the limit, on both streams.
pub(super) fn d04_flood() -> Finding {
    let block = vec![b'x'; MIB];
    let mut written = 0;
    for round in 0..64 {
        let wrote = if round % 2 == 0 { io::stdout().write_all(&block) } else { io::stderr().write_all(&block) };
        if let Err(error) = wrote {
            return Finding::Contained(format!("{error} after {written} MiB"));
        }
        written += 1;
    }
    Finding::Open(format!("\nopen {written} MiB were written"))
}

/// Bytes and names, in every private file system.
pub(super) fn d05_private_file_systems() -> Finding {
    const FULL: &[i32] = &[libc::ENOSPC];
    let mut attempts = Vec::new();
    for directory in ["/tmp", "/var/tmp", "/dev/shm", "/run", "/dev"] {
        let path = Path::new(directory);
        let bytes = fill(&path.join("filled"), 4 * ROOM.bytes);
        let emptied = fs::remove_file(path.join("filled"));
        let names =
            (0..4 * ROOM.files).try_for_each(|index| File::create(path.join(format!("name-{index}"))).map(drop));
        attempts.push(Attempt::io(format!("bytes in {directory}"), bytes, FULL));
        attempts.push(Attempt::io(format!("names in {directory}"), names, FULL));
        if let Err(error) = emptied {
            return Finding::Broken(format!("{directory}: {error}"));
        }
    }
    judge(&attempts)
}

fn fill(path: &Path, bytes: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![1u8; MIB];
    (0..bytes / MIB).try_for_each(|_| file.write_all(&block))
}

/// Says how much could be kept on a disk of the host, if neither the kernel nor the supervisor ends it.
fn stored(result: Result<usize, i32>, how: &str) -> Finding {
    std::thread::sleep(HOLD);
    match result {
        Ok(bytes) => Finding::Open(format!("{} MiB stayed on the disk, {how}", bytes / MIB)),
        Err(errno) => Finding::Broken(format!("{how}: {}", words::errno(errno))),
    }
}

fn raw_error(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

pub(super) fn d05_plain(place: &Place) -> Finding {
    let filled = fill(&place.project().join("filled"), 4 * STORAGE);
    stored(filled.map(|()| 4 * STORAGE).map_err(|error| raw_error(&error)), "written")
}

pub(super) fn d05_allocated(place: &Place) -> Finding {
    use std::os::fd::AsRawFd as _;
    let file = match File::create(place.project().join("allocated")) {
        Ok(file) => file,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    let asked = call(libc::SYS_fallocate, &[number(file.as_raw_fd().into()), 0, 0, 4 * STORAGE]);
    stored(asked.map(|_| 4 * STORAGE), "allocated")
}

/// In no directory, so that only free space tells of it.
pub(super) fn d05_nameless(place: &Place) -> Finding {
    let path = place.project().join("nameless");
    let block = vec![1u8; MIB];
    let filled = File::create(&path).and_then(|mut file| {
        fs::remove_file(&path)?;
        (0..4 * STORAGE / MIB).try_for_each(|_| file.write_all(&block))?;
        std::thread::sleep(HOLD);
        Ok(())
    });
    stored(filled.map(|()| 4 * STORAGE).map_err(|error| raw_error(&error)), "in a file without a name")
}

/// A tebibyte of nothing, in the project and in memory.
pub(super) fn d06_sparse(place: &Place) -> Finding {
    const TEBIBYTE: u64 = 1 << 40;
    const TOO_LARGE: &[i32] = &[libc::EFBIG];
    const SIGXFSZ: u64 = 25;
    // The kernel tells with a signal as well, which would end the probe.
    let blocked = 1u64 << (SIGXFSZ - 1);
    if let Err(errno) = call(libc::SYS_rt_sigprocmask, &[0, (&raw const blocked) as usize, 0, 8]) {
        return Finding::Broken(format!("SIGXFSZ cannot be blocked: errno {errno}"));
    }
    let mut attempts = Vec::new();
    for path in [place.project().join("sparse"), Path::new("/tmp/sparse").to_path_buf()] {
        let file = match File::create(&path) {
            Ok(file) => file,
            Err(error) => return Finding::Broken(format!("{}: {error}", path.display())),
        };
        attempts.push(Attempt::io(format!("ftruncate {}", path.display()), file.set_len(TEBIBYTE), TOO_LARGE));
        let written = file.write_at(b"x", TEBIBYTE - 1);
        attempts.push(Attempt::io(format!("pwrite {}", path.display()), written, TOO_LARGE));
    }
    judge(&attempts)
}

/// Descriptors until there are no more, then instances of inotify.
pub(super) fn d07_descriptors() -> Finding {
    const INSTANCES: usize = 8;
    let files = until_refused(2 * DESCRIPTORS, || File::open("/dev/null").map_err(|error| raw_error(&error)));
    let instances = until_refused(INSTANCES + INSTANCES / 2, || call(libc::SYS_inotify_init, &[]));
    let told = |what: &str, (made, refused): (usize, Option<i32>)| {
        format!("{} after {made} {what}", refused.map_or_else(|| "no refusal".to_owned(), words::errno))
    };
    let text = shortened(vec![told("files", files), told("instances of inotify", instances)]);
    let held = |(made, refused): (usize, Option<i32>), most: usize| made <= most && refused == Some(libc::EMFILE);
    if held(files, DESCRIPTORS) && held(instances, INSTANCES) { Finding::Contained(text) } else { Finding::Open(text) }
}

fn until_refused<T>(most: usize, mut make: impl FnMut() -> Result<T, i32>) -> (usize, Option<i32>) {
    let mut held = Vec::new();
    while held.len() < most {
        match make() {
            Ok(one) => held.push(one),
            Err(errno) => return (held.len(), Some(errno)),
        }
    }
    (held.len(), None)
}

/// Calls that the supervisor is told about, from several processes at once.
pub(super) fn d10_refused_calls() -> Finding {
    const CALLERS: usize = 8;
    const EACH: usize = 12_500;
    // A processor in software answers more slowly.
    const AT_LONGEST: Duration = Duration::from_secs(8);
    let began = Instant::now();
    let refused = || call(libc::SYS_add_key, &[super::NOWHERE, 0, 0, 0, 0]) == Err(libc::EPERM);
    let flood = || {
        let mut calls = (0..EACH).take_while(|_| began.elapsed() < AT_LONGEST);
        i32::from(!calls.all(|_| refused()))
    };
    let callers: Result<Vec<i32>, i32> = (0..CALLERS).map(|_| raw::fork(flood)).collect();
    let ended = callers.and_then(|callers| callers.into_iter().map(raw::wait).collect::<Result<Vec<_>, i32>>());
    match ended {
        Ok(all) if all.iter().all(|ended| *ended == raw::Ended::Exited(0)) => {
            let most = CALLERS * EACH;
            Finding::Open(format!(
                "up to {most} refused calls in {} ms, and the session goes on",
                began.elapsed().as_millis()
            ))
        }
        other => Finding::Broken(format!("callers: {other:?}")),
    }
}

/// Deeper than any path can say, and as deep and wide as there is time for; then says how long it took.
pub(super) fn d08_tree(place: &Place, top: &Path, most_levels: u32, most_files: u32) -> Finding {
    const LEAST_LEVELS: u32 = 5_000;
    const AT_LONGEST: Duration = Duration::from_secs(4);
    let began = Instant::now();
    let (mut levels, mut files) = (0, 0);
    let mut made = || -> io::Result<()> {
        std::env::set_current_dir(top)?;
        fs::create_dir("wide")?;
        while files < most_files && began.elapsed() < AT_LONGEST {
            File::create(format!("wide/{files}"))?;
            files += 1;
        }
        while levels < most_levels && (levels < LEAST_LEVELS || began.elapsed() < 2 * AT_LONGEST) {
            fs::create_dir("d")?;
            std::env::set_current_dir("d")?;
            levels += 1;
        }
        fs::write(place.project().join("took"), began.elapsed().as_millis().to_string())
    };
    match made() {
        Ok(()) => Finding::Contained(format!("{levels} levels and {files} files")),
        Err(error) => Finding::Broken(error.to_string()),
    }
}
