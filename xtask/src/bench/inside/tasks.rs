//! The workloads, timed by the process that runs them, bare or inside: the sandbox's own start is not in the figures.
//! Owns what is run and on which files; compares nothing. Called by the worker, in the project directory.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::bench::inside::Workload;
use crate::bench::statistics::Samples;
use crate::bench::worker::as_number;

const DIRECTORIES: usize = 200;
const FILES_EACH: usize = 100;
const COMPILES: usize = 100;
/// A loop is cut in batches, and the median batch counts: one interruption by another process spoils one batch.
const BATCHES: usize = 15;
const SOURCE: &str = "small.c";

/// Makes `tree` with 20,000 small files, commits it, and writes a small program.
pub(crate) fn prepare(project: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot make the files: {e}");
    for directory in 0..DIRECTORIES {
        let dir = project.join("tree").join(directory.to_string());
        fs::create_dir_all(&dir).map_err(failed)?;
        for file in 0..FILES_EACH {
            let line = format!("file {file} of directory {directory}: nothing of interest on this line\n");
            fs::write(dir.join(format!("{file}.txt")), line.repeat(1 + (file + directory) % 12)).map_err(failed)?;
        }
    }
    let program = "#include <stdio.h>\n#include <stdlib.h>\nint main(int argc, char **argv) {\n\
        \x20 for (int i = 1; i < argc; i++) printf(\"%d\\n\", atoi(argv[i]));\n  return 0;\n}\n";
    fs::write(project.join(SOURCE), program).map_err(failed)?;
    fs::create_dir(project.join("objects")).map_err(failed)?;
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
    for arguments in [&["init", "--quiet"][..], &["add", "tree", SOURCE], &["commit", "--quiet", "--message", "files"]]
    {
        tool(Command::new("git").args(identity).args(arguments).current_dir(project))?;
    }
    Ok(())
}

/// Nanoseconds per operation of a loop, or of the whole of a tool's work.
pub(crate) fn time(workload: Workload) -> Result<f64, String> {
    match workload {
        Workload::OpenClose => {
            per_operation(4_000, || rustix::fs::open(SOURCE, OFlags::RDONLY, Mode::empty()).map(drop_file))
        }
        Workload::Stat => per_operation(4_000, || rustix::fs::stat(SOURCE).map(drop)),
        Workload::Getpid => per_operation(20_000, || {
            std::hint::black_box(rustix::process::getpid());
            Ok(())
        }),
        Workload::ForkExec => per_operation(10, || {
            let status = quiet(&mut Command::new("/bin/true")).status();
            if status.is_ok_and(|s| s.success()) { Ok(()) } else { Err(Errno::CHILD) }
        }),
        Workload::Grep => wall(|| {
            // No file has it, so every byte is read; grep's exit code for that is 1.
            let status = quiet(Command::new("grep").args(["-r", "no such words", "tree"])).status();
            if status.is_ok_and(|s| s.code() == Some(1)) { Ok(()) } else { Err("grep failed".to_owned()) }
        }),
        Workload::GitStatus => wall(|| tool(Command::new("git").args(["status", "--short"]))),
        Workload::Gcc => wall(|| {
            (0..COMPILES).try_for_each(|index| {
                let object = format!("objects/{index}.o");
                tool(Command::new("gcc").args(["-O1", "-c", SOURCE, "-o", &object]))
            })
        }),
    }
}

fn drop_file(file: OwnedFd) {
    drop(file);
}

fn per_operation(count: usize, mut operation: impl FnMut() -> Result<(), Errno>) -> Result<f64, String> {
    let mut batches = Samples::default();
    for _ in 0..BATCHES {
        let before = Instant::now();
        for _ in 0..count {
            operation().map_err(|e| e.to_string())?;
        }
        batches.push(nanoseconds(before.elapsed()) / as_number(count));
    }
    Ok(batches.median())
}

fn wall(work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let before = Instant::now();
    work()?;
    Ok(nanoseconds(before.elapsed()))
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn tool(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}
