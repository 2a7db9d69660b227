//! `cargo xtask vm --arch aarch64`: the programs that are shipped, cross-built, on a kernel of that machine. Owns what lies in the
//! guest and the judgement; what is tried there is `guest/aarch64.sh`, and the tests of the workspace are not: they need a tree
//! of that machine. Called by `vm`; needs no root.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cross;
use crate::problems::Problems;
use crate::vm::apt::{Packages, Release};
use crate::vm::cache;
use crate::vm::emulator::Emulator;
use crate::vm::files::{cannot, fresh_dir};
use crate::vm::initramfs::Initramfs;
use crate::vm::kernel::{Kernel, Version};
use crate::vm::machine::{CONSOLE, End, run_aarch64};
use crate::workspace::Workspace;

const PATIENCE: Duration = Duration::from_mins(20);
/// What an unprivileged user cannot load.
const MODULES: [&str; 3] = ["fuse", "overlay", "nft_tproxy"];

pub(crate) fn run(workspace: &Workspace, version: Version, refresh: bool) -> Result<String, Problems> {
    let cache = cache()?;
    let emulator = Emulator::aarch64(&cache, refresh)?;
    let kernel = Kernel::aarch64(version, &cache, refresh)?;
    println!("QEMU: Debian's {}; kernel: Debian's {}", emulator.version, kernel.package_version);
    let debian = Release::of_machine("trixie", "arm64", &cache);
    let busybox =
        debian.unpacked("busybox", &Packages::Alone(&["busybox-static"]), refresh)?.root.join("usr/bin/busybox");

    let dir = fresh_dir(workspace.target.join("vm").join("aarch64"))?;
    let initramfs = dir.join("initramfs");
    let content = first_files(&kernel, &busybox, &cross::build(workspace)?)?;
    fs::write(&initramfs, content).map_err(|e| cannot("write", &initramfs, &e))?;
    let started = Instant::now();
    let end = run_aarch64(&emulator, (&kernel.image, &initramfs), &dir, PATIENCE)?;
    let console = dir.join(CONSOLE);
    let console = fs::read(&console).map_err(|e| cannot("read", &console, &e))?;
    judge(&String::from_utf8_lossy(&console), &end).map(|passed| {
        format!(
            "guest aarch64, Linux {}: {passed} checks passed in {} s",
            version.number(),
            started.elapsed().as_secs()
        )
    })
}

fn first_files(kernel: &Kernel, busybox: &Path, programs: &[cross::Built]) -> Result<Vec<u8>, Problems> {
    let mut archive = Initramfs::default();
    for directory in ["bin", "modules", "new"] {
        archive.directory(directory);
    }
    let content = |file: &Path| fs::read(file).map_err(|e| cannot("read", file, &e));
    archive.file("init", include_bytes!("guest/aarch64.sh"));
    archive.file("bin/busybox", &content(busybox)?);
    for program in programs {
        archive.file(&format!("bin/{}", program.name), &content(&program.path)?);
    }
    // The number keeps them in the order in which they load.
    for (number, module) in kernel.modules(&MODULES)?.iter().enumerate() {
        archive.file(&format!("modules/{number:03}-{}.ko", module.name), &module.content);
    }
    Ok(archive.finish())
}

/// How many checks passed; the script says `guest: ok NAME`, `guest: WRONG NAME: ...` and, last, `guest: end`.
fn judge(console: &str, end: &End) -> Result<usize, Problems> {
    let said: Vec<&str> = console.lines().filter_map(|line| line.trim_end().strip_prefix("guest: ")).collect();
    let mut problems = Problems::default();
    for wrong in said.iter().filter_map(|line| line.strip_prefix("WRONG ")) {
        problems.add(format!("guest aarch64: {wrong}"));
    }
    if *end != End::Off || said.last() != Some(&"end") {
        let tail: Vec<&str> = console.lines().rev().take(20).collect();
        problems.add(format!(
            "guest aarch64 did not come to its end:\n{}",
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        ));
    }
    let passed = said.iter().filter(|line| line.starts_with("ok ")).count();
    if passed == 0 {
        problems.add("guest aarch64: no check passed");
    }
    problems.or("").map(|_| passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_ends_early_or_finds_something_wrong_fails() {
        assert_eq!(judge("[ 1.0] boot\nguest: ok runs\r\nguest: end\r\n", &End::Off), Ok(1));
        for (console, end) in [
            ("guest: ok runs\nguest: WRONG file: not there\nguest: end\n", End::Off),
            ("guest: ok runs\n", End::Off),
            ("guest: ok runs\nguest: end\n", End::Hung),
            ("guest: end\n", End::Off),
        ] {
            assert!(judge(console, &end).is_err(), "{console}");
        }
    }
}
