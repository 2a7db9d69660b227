//! First accesses that are asked about, and attempts to get more than was answered. What is unknown lies outside home and
//! project; the trial says in the project what there is.

use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cofferdam_kernel::seccomp::{Instruction, Listener, install_with_listener};
use cofferdam_kernel::socket;
use cofferdam_testkit::{Place, person};

use super::{Attempt, call, judge, number, open};
use crate::row::Finding;

const PATIENCE: Duration = Duration::from_secs(20);
const PTRACE_SEIZE: usize = 0x4206;

fn mark(place: &Place, name: &str) -> io::Result<()> {
    fs::write(place.project().join(name), "")
}

fn await_mark(place: &Place, name: &str) -> io::Result<()> {
    let mark = place.project().join(name);
    person::until(PATIENCE, || mark.exists().then_some(()))
}

/// The path that the trial wrote to a file of the project, byte by byte.
fn told(place: &Place, name: &str) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(fs::read(place.project().join(name)).unwrap_or_default()))
}

/// Contained if the file could not be read.
fn unread(path: &Path) -> Finding {
    judge(&[Attempt::io("read", fs::read(path), &[libc::EACCES, libc::ENOENT])])
}

pub(super) fn read_unknown(place: &Place) -> Finding {
    unread(&told(place, "unknown"))
}

/// What is read must be what was there when it was asked about.
pub(super) fn read_later(place: &Place) -> Finding {
    if place.project().join("by-name").exists()
        && let Err(error) = await_mark(place, "swapped")
    {
        return Finding::Broken(error.to_string());
    }
    match fs::read_to_string(told(place, "unknown")) {
        Ok(text) if text == "swapped" => Finding::Open("what was put there later was read".to_owned()),
        Ok(text) => Finding::Contained(format!("read `{text}`")),
        Err(error) => Finding::Contained(error.to_string()),
    }
}

/// The first is approved; the second must not be.
pub(super) fn read_two(place: &Place) -> Finding {
    match fs::read_to_string(told(place, "approved")) {
        Ok(_) => unread(&told(place, "unknown")),
        Err(error) => Finding::Broken(format!("what was approved cannot be read: {error}")),
    }
}

/// Supervisor and broker, by the numbers that they have outside; and what a process inside might have inherited.
pub(super) fn b07_out_of_reach(place: &Place) -> Finding {
    let granted = fs::read_to_string(told(place, "unknown")).is_ok();
    if let Err(error) = mark(place, "ready").and_then(|()| await_mark(place, "told")) {
        return Finding::Broken(error.to_string());
    }
    if !granted {
        return Finding::Broken("no question was answered, so nobody mounts".to_owned());
    }
    let mut attempts = Vec::new();
    for who in ["supervisor", "broker"] {
        let text = fs::read_to_string(place.project().join(who)).unwrap_or_default();
        let Ok(pid) = text.parse::<usize>() else { return Finding::Broken(format!("{who}: no number")) };
        attempts.extend(attempts_on(who, pid));
    }
    judge(&attempts).and_then(descriptors_of_everybody)
}

fn attempts_on(who: &str, pid: usize) -> [Attempt; 5] {
    const ABSENT: &[i32] = &[libc::ESRCH];
    let mut word = [0u64; 1];
    let local = [(&raw mut word) as usize, 8];
    let (local, one) = ((&raw const local) as usize, 1);
    let read = call(libc::SYS_process_vm_readv, &[pid, local, one, local, one, 0]);
    [
        Attempt::io(format!("{who}: /proc"), fs::metadata(format!("/proc/{pid}")), &[libc::ENOENT]),
        Attempt::new(format!("{who}: memory"), open(&format!("/proc/{pid}/mem"), libc::O_RDONLY), &[libc::ENOENT]),
        Attempt::new(format!("{who}: process_vm_readv"), read, ABSENT),
        Attempt::new(format!("{who}: pidfd"), call(libc::SYS_pidfd_open, &[pid, 0]), ABSENT),
        Attempt::new(
            format!("{who}: PTRACE_SEIZE"),
            call(libc::SYS_ptrace, &[PTRACE_SEIZE, pid, 0, 0]),
            &[libc::ESRCH, libc::EPERM],
        ),
    ]
}

/// No process whose descriptors can be seen has the device, a namespace or the filter's listener.
fn descriptors_of_everybody() -> Finding {
    let mut seen = 0;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    for process in processes.filter(|path| path.join("fd").exists()) {
        for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default().display().to_string();
            seen += 1;
            if ["/dev/fuse", "mnt:[", "user:[", "seccomp notify"].iter().any(|word| target.contains(word)) {
                return Finding::Open(format!("{} is {target}", entry.path().display()));
            }
        }
    }
    Finding::Contained(format!("none of {seen} descriptors is the gate's"))
}

/// A path in memory whose last byte another thread changes.
struct Flipped {
    bytes: Vec<AtomicU8>,
    flips: AtomicU64,
    stop: AtomicBool,
}

#[derive(Default)]
struct Counts {
    approved: u64,
    unapproved: u64,
    refused: u64,
}

impl Flipped {
    /// Between `.../a` and `.../b`.
    fn new(directory: &Path) -> Self {
        let path = CString::new(directory.join("a").into_os_string().into_vec()).unwrap_or_default();
        let bytes = path.into_bytes_with_nul().into_iter().map(AtomicU8::new).collect();
        Flipped { bytes, flips: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }

    fn last(&self) -> &AtomicU8 {
        &self.bytes[self.bytes.len() - 2]
    }

    fn flip(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            for byte in [b'b', b'a'] {
                self.last().store(byte, Ordering::Relaxed);
                self.flips.fetch_add(1, Ordering::Relaxed);
                std::hint::spin_loop();
            }
        }
    }

    /// Opens and reads whatever the path says, until enough was flipped and opened.
    fn open_on_and_on(&self, flips: u64, opens: u64) -> Counts {
        let mut counts = Counts::default();
        let mut opened = 0;
        while opened < opens || self.flips.load(Ordering::Relaxed) < flips {
            opened += 1;
            let mut text = [0u8; 1];
            // AT_FDCWD is not looked at: the path begins at the root.
            let fd = call(libc::SYS_openat, &[0, self.bytes.as_ptr() as usize, 0]);
            match fd {
                Ok(fd) => {
                    let read = call(libc::SYS_read, &[number(fd), (&raw mut text) as usize, 1]);
                    let closed = call(libc::SYS_close, &[number(fd)]);
                    match (read, closed, text[0]) {
                        (Ok(1), Ok(_), b'a') => counts.approved += 1,
                        (Ok(1), Ok(_), _) => counts.unapproved += 1,
                        _ => {}
                    }
                }
                Err(_) => counts.refused += 1,
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        counts
    }

    fn judge(&self, counts: &Counts) -> Finding {
        let Counts { approved, unapproved, refused } = counts;
        let flips = self.flips.load(Ordering::Relaxed);
        let how = format!(
            "{unapproved} unapproved reads in {flips} flips ({approved} approved reads, {refused} refused opens)"
        );
        match counts {
            Counts { unapproved: 1.., .. } => Finding::Open(how),
            Counts { approved: 0, .. } | Counts { refused: 0, .. } => Finding::Broken(format!("no race: {how}")),
            _ => Finding::Contained(how),
        }
    }
}

/// How many flips and opens the trial wants.
fn wanted(place: &Place) -> (u64, u64) {
    let text = fs::read_to_string(place.project().join("wanted")).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// One of two files is approved. Whatever a call's path is when the supervisor looks at it, only mounts decide what is read.
pub(super) fn c05_behind_mounts(place: &Place) -> Finding {
    let pair = place.outside().join("pair");
    let (flips, opens) = wanted(place);
    if fs::read(pair.join("a")).is_err() || fs::read(pair.join("b")).is_ok() {
        return Finding::Broken("the answers are not as agreed".to_owned());
    }
    let path = Flipped::new(&pair);
    let counts = std::thread::scope(|scope| {
        scope.spawn(|| path.flip());
        path.open_on_and_on(flips, opens)
    });
    path.judge(&counts)
}

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NOTIFY: u32 = 0x7fc0_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Opens are reported, everything else goes on.
fn report_opens() -> Result<Listener, i32> {
    let openat = u32::try_from(libc::SYS_openat).unwrap_or(0);
    let instruction = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let program = [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_EQUAL, 0, 1, openat),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, ALLOW),
    ];
    call(libc::SYS_prctl, &[usize::try_from(libc::PR_SET_NO_NEW_PRIVS).unwrap_or(0), 1, 0, 0, 0])?;
    install_with_listener(program.into_iter()).map_err(cofferdam_kernel::Errno::raw_os_error)
}

/// The same race against a supervisor that looks at the path of a call and then lets it go on, with no mounts behind: what
/// the gate would be without its walls. The thread that opens has a filter; this one looks and answers.
pub(super) fn c05_before_the_call(place: &Place) -> Finding {
    let (flips, opens) = wanted(place);
    let path = Flipped::new(&place.outside().join("pair"));
    let (send, receive) = mpsc::channel();
    let counts = std::thread::scope(|scope| {
        scope.spawn(|| path.flip());
        let opener = scope.spawn(|| {
            let listener = report_opens();
            let is_watched = listener.is_ok();
            send.send(listener).map_err(|_| libc::EPIPE)?;
            let counts = if is_watched { path.open_on_and_on(flips, opens) } else { Counts::default() };
            path.stop.store(true, Ordering::Relaxed);
            // One more, so that who looks sees that it is over.
            call(libc::SYS_openat, &[0, path.bytes.as_ptr() as usize, 0])
                .map_or(Ok(()), |fd| call(libc::SYS_close, &[number(fd)]).map(drop))?;
            Ok::<Counts, i32>(counts)
        });
        let watched = receive.recv().map_err(|_| libc::EPIPE).flatten();
        let watched = watched.and_then(|listener| look_and_let_go(&listener, &path));
        let counts = opener.join().unwrap_or(Err(libc::EIO));
        watched.and(counts)
    });
    match counts {
        Ok(counts) => path.judge(&counts),
        Err(errno) => Finding::Broken(format!("nobody looks: errno {errno}")),
    }
}

fn look_and_let_go(listener: &Listener, path: &Flipped) -> Result<(), i32> {
    loop {
        let Some(notification) = listener.receive().map_err(cofferdam_kernel::Errno::raw_os_error)? else { continue };
        let is_over = path.stop.load(Ordering::Relaxed);
        let is_approved = path.last().load(Ordering::Relaxed) == b'a';
        // To decide takes the supervisor a moment.
        std::thread::sleep(Duration::from_micros(20));
        let answered = if is_approved {
            listener.go_on(notification.id)
        } else {
            listener.refuse(&notification, u16::try_from(libc::EACCES).unwrap_or(0))
        };
        answered.map_err(cofferdam_kernel::Errno::raw_os_error)?;
        if is_over {
            return Ok(());
        }
    }
}

/// Opens everything in directories of its own, for as long as it takes a neighbour to start.
pub(super) fn d10_many_questions(place: &Place) -> Finding {
    let end = Instant::now() + Duration::from_secs(1);
    let names: Vec<PathBuf> = (0..200).map(|n| place.outside().join(n.to_string()).join("file")).collect();
    let mut refused = 0;
    while Instant::now() < end {
        refused = names.iter().filter(|name| fs::read(name).is_err()).count();
    }
    Finding::Contained(format!("{refused} of {} opens refused", names.len()))
}

fn output(program: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An approved program gets no further by what it is told to do.
pub(super) fn f05_arguments(place: &Place) -> Finding {
    let (tool, secret) = (told(place, "approved"), told(place, "unknown"));
    let read = format!("read -r line < {} && echo \"$line\"", secret.display());
    match (output(&tool, &["-c", "echo harmless"]), output(&tool, &["-c", &read])) {
        (Ok(first), Ok(second)) if first == "harmless\n" && second.is_empty() => {
            Finding::Contained("it starts with any argument, and what it opens is asked apart".to_owned())
        }
        (Ok(first), Ok(second)) if first == "harmless\n" => Finding::Open(format!("read `{}`", second.trim())),
        other => Finding::Broken(format!("{other:?}")),
    }
}

/// Reads one approved file under many names, each of which says no more than that file or the project; then what lies beside it.
pub(super) fn e07_requests(place: &Place) -> Finding {
    let (approved, beside) = (told(place, "approved"), told(place, "unknown"));
    let (name, directory) = (approved.file_name().unwrap_or_default(), approved.parent().unwrap_or(&approved));
    let above = directory.parent().unwrap_or(directory);
    let within = directory.file_name().unwrap_or_default();
    for spelling in [
        approved.clone(),
        directory.join(".").join(name),
        directory.join("..").join(within).join(name),
        above.join(".").join(within).join("../").join(within).join(name),
        Path::new("/proc/self/root").join(approved.strip_prefix("/").unwrap_or(&approved)),
    ] {
        if let Err(error) = fs::read(&spelling) {
            return Finding::Broken(format!("{}: {error}", spelling.display()));
        }
    }
    // Requests that ask for nothing: the answer to none of them may be one about their directory.
    for nothing in
        [PathBuf::new(), PathBuf::from("."), approved.join("."), directory.join("absent"), above.join("./..")]
    {
        drop(fs::read(&nothing));
        drop(fs::metadata(&nothing));
    }
    let ways = [beside.clone(), directory.join("..").join(within).join(beside.file_name().unwrap_or_default())];
    for way in &ways {
        if let Ok(text) = fs::read_to_string(way) {
            return Finding::Open(format!("{}: read `{text}`", way.display()));
        }
    }
    match fs::write(&approved, "changed") {
        Ok(()) => Finding::Open("what was given to be read can be written".to_owned()),
        Err(error) => {
            Finding::Contained(format!("what lies beside it stays unread, and it cannot be written: {error}"))
        }
    }
}

/// What an approved program starts is asked like anything else, however it is written.
pub(super) fn f06_chain(place: &Place) -> Finding {
    let (tool, other) = (told(place, "approved"), told(place, "unknown"));
    let other = other.display();
    for chain in [
        format!("true; {other} -c 'echo ran'"),
        format!("echo $({other} -c 'echo ran')"),
        format!("true && {other} -c 'echo ran' || exit 0"),
        format!("{other} -c 'echo ran' <<E\nx\nE"),
        format!("eval \"{other} -c 'echo ran'\""),
    ] {
        match output(&tool, &["-c", &chain]) {
            Ok(text) if text.contains("ran") => return Finding::Open(format!("ran: {chain}")),
            Ok(_) => {}
            Err(error) => return Finding::Broken(error.to_string()),
        }
    }
    Finding::Contained("5 ways to chain, none started what was not approved".to_owned())
}

/// A program of the same name, earlier in PATH.
pub(super) fn f08_planted(place: &Place) -> Finding {
    let (real, planted) = (told(place, "approved"), told(place, "unknown"));
    let directory = |path: &Path| path.parent().unwrap_or(path).display().to_string();
    let path = format!("{}:{}:/usr/bin:/bin", directory(&planted), directory(&real));
    let ran = Command::new("/bin/sh").args(["-c", "git"]).env("PATH", path).output();
    match ran.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) {
        Ok(text) if text.contains("planted") => Finding::Open("the planted one ran".to_owned()),
        Ok(text) if text == "approved" => Finding::Contained("the planted one is another object".to_owned()),
        other => Finding::Broken(format!("{other:?}")),
    }
}

/// Tries to answer its own question: by the socket's path, and through a directory that a host program left open.
pub(super) fn f11_own_answer(place: &Place) -> Finding {
    let unknown = told(place, "unknown");
    let reader = std::thread::spawn(move || fs::read(unknown).is_ok());
    if let Err(error) = await_mark(place, "asked") {
        return Finding::Broken(error.to_string());
    }
    let session = fs::read_to_string(place.project().join("session")).unwrap_or_default();
    let by_path = UnixStream::connect(format!("../.local/state/cofferdam/sessions/{session}/socket"));
    let by_path = Attempt::io("the socket by its path", by_path, &[libc::ENOENT, libc::EACCES]);
    let sent = match socket::receive(io::stdin()) {
        Ok((_, Some(directory))) => directory,
        other => return Finding::Broken(format!("no directory was sent: {other:?}")),
    };
    let heard = answer_through(&format!("/proc/self/fd/{}/{session}/socket", sent.as_raw_fd()));
    let marked = mark(place, "tried");
    match (reader.join(), marked) {
        (Ok(true), _) => Finding::Open("the question was answered".to_owned()),
        (Ok(false), Ok(())) => judge(&[by_path]).and_then(|| heard),
        other => Finding::Broken(format!("{other:?}")),
    }
}

fn answer_through(socket: &str) -> Finding {
    let heard = UnixStream::connect(socket).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        let written = stream.write_all(
            b"{\"type\":\"hello\",\"version\":1,\"face\":\"inside\"}\n\
            {\"type\":\"cmd.approve\",\"id\":1,\"scope\":\"file\",\"persist\":false}\n",
        );
        let mut line = String::new();
        // Who is refused at the door may find it closed while still talking.
        BufReader::new(stream).read_line(&mut line).and(written).map(|()| line.clone()).or(Ok(line))
    });
    match heard {
        Ok(line) if line.contains("not answered from inside") => Finding::Contained("refused at the door".to_owned()),
        Ok(line) => Finding::Open(format!("heard `{}`", line.trim())),
        Err(error) => Finding::Contained(format!("through a descriptor: {error}")),
    }
}
