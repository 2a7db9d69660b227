//! `cargo xtask vm --power-cut`: a guest whose power is cut during a commit, and one in which a session runs. Owns the moments and
//! the judgement; what the guest does is `guest/power.sh`. What the guest had not written to its disk is lost with its memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::problems::Problems;
use crate::vm::apparmor::Profiles;
use crate::vm::emulator::Emulator;
use crate::vm::files::{cannot, fresh_dir, make_dir};
use crate::vm::guests::Guest;
use crate::vm::kernel::Kernel;
use crate::vm::machine::{CONSOLE, End, Machine};
use crate::vm::{first_files, run_tool};
use crate::workspace::{Workspace, cargo};

const SIZE: &str = "256M";
/// Past it a guest hangs.
const PATIENCE: Duration = Duration::from_mins(5);
/// Moments of the time that a whole commit takes, after which the power is cut; one more lies right after its end.
const MOMENTS: u32 = 8;

const BEGINS: &str = "guest: commit begins";
const COMMITTED: &str = "guest: committed";
const WRITES: &str = "guest: session writes";

/// Boots of one guest, on copies of one disk.
struct Rig<'a> {
    guest: &'a Guest,
    kernel: &'a Kernel,
    emulator: &'a Emulator,
    dir: PathBuf,
}

pub(crate) fn run(
    workspace: &Workspace,
    guest: &Guest,
    kernel: &Kernel,
    emulator: &Emulator,
) -> Result<String, Problems> {
    let dir = fresh_dir(workspace.target.join("vm-power").join(guest.name))?;
    let rig = Rig { guest, kernel, emulator, dir };
    let prepared = rig.disk(workspace)?;
    rig.until_end("prepare", &prepared)?.says("guest: prepared")?;

    let whole = rig.whole(&prepared)?;
    println!("guest {}: a commit takes {} ms", guest.name, whole.as_millis());
    let (mut old, mut new) = (0, 0);
    for moment in 0..=MOMENTS {
        let disk = rig.copy(&prepared, &format!("cut-{moment}.img"))?;
        let after = whole * moment / MOMENTS;
        // The last is cut when the command has said that it is done: what it said has to be on the disk.
        let cut = if moment == MOMENTS { (COMMITTED, Duration::ZERO) } else { (BEGINS, after) };
        let cut_console = rig.until_cut("commit", &disk, cut)?;
        let was_done = cut_console.0.contains(COMMITTED);
        let found = rig.until_end("look", &disk)?;
        found.says("guest: ends well")?;
        let is_new = found.0.contains("guest: tree is new");
        if !is_new && (was_done || !found.0.contains("guest: tree is old")) {
            return Err(Problems::one(format!(
                "guest {}, cut after {} ms: {}",
                guest.name,
                after.as_millis(),
                found.tail()
            )));
        }
        println!(
            "guest {}: cut {} ms after the commit began{}: {}",
            guest.name,
            after.as_millis(),
            if was_done { ", when it was done" } else { "" },
            if is_new { "wholly new" } else { "wholly old" }
        );
        *if is_new { &mut new } else { &mut old } += 1;
        fs::remove_file(&disk).map_err(|e| cannot("remove", &disk, &e))?;
    }
    if old == 0 || new == 0 {
        return Err(Problems::one(format!(
            "guest {}: {old} old, {new} new: no moment was inside a commit",
            guest.name
        )));
    }
    rig.lost(&prepared)?;
    Ok(format!(
        "guest {}: {} cuts, {old} wholly old, {new} wholly new; an open session is lost and says so",
        guest.name,
        old + new
    ))
}

/// What a guest said.
struct Console(String);

impl Console {
    fn says(&self, words: &str) -> Result<(), Problems> {
        if self.0.contains(words) { Ok(()) } else { Err(Problems::one(format!("no `{words}` in: {}", self.tail()))) }
    }

    fn tail(&self) -> String {
        let lines: Vec<&str> = self.0.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Rig<'_> {
    /// With a journal, as disks of people have one.
    fn disk(&self, workspace: &Workspace) -> Result<PathBuf, Problems> {
        cargo(&["build", "--quiet", "--locked", "--package", "cofferdam-cli"])?;
        let tree = fresh_dir(self.dir.join("tree"))?;
        for directory in ["bin", "home", "project", "second"] {
            make_dir(&tree.join(directory))?;
        }
        let (from, to) = (workspace.target.join("debug/sandbox"), tree.join("bin/sandbox"));
        run_tool(Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(from))?;
        let disk = self.dir.join("prepared.img");
        run_tool(Command::new("/sbin/mkfs.ext4").args(["-q", "-d"]).arg(&tree).arg(&disk).arg(SIZE))?;
        Ok(disk)
    }

    fn copy(&self, disk: &Path, name: &str) -> Result<PathBuf, Problems> {
        let to = self.dir.join(name);
        run_tool(Command::new("cp").arg("--sparse=always").arg(disk).arg(&to))?;
        Ok(to)
    }

    /// How long a commit takes that is not disturbed.
    fn whole(&self, prepared: &Path) -> Result<Duration, Problems> {
        let disk = self.copy(prepared, "whole.img")?;
        let mut began = None;
        let mut took = None;
        let console = self.boot("commit", &disk, |console| {
            if began.is_none() && console.contains(BEGINS) {
                began = Some(Instant::now());
            }
            took = began.filter(|_| console.contains(COMMITTED)).map(|began| began.elapsed());
            took.is_some()
        })?;
        fs::remove_file(&disk).map_err(|e| cannot("remove", &disk, &e))?;
        took.ok_or_else(|| Problems::one(format!("no commit ended: {}", console.tail())))
    }

    /// A session that runs when the power goes: its changes are lost, which is said, and the project is as it was.
    fn lost(&self, prepared: &Path) -> Result<(), Problems> {
        let disk = self.copy(prepared, "open.img")?;
        self.until_cut("open", &disk, (WRITES, Duration::ZERO))?;
        let found = self.until_end("lost", &disk)?;
        found.says("guest: lost and said")?;
        found.says("guest: ends well")?;
        println!("guest {}: cut while a session ran: lost, and said so", self.guest.name);
        fs::remove_file(&disk).map_err(|e| cannot("remove", &disk, &e))
    }

    fn until_end(&self, step: &str, disk: &Path) -> Result<Console, Problems> {
        self.boot(step, disk, |_| false)
    }

    /// Cut so long after these words.
    fn until_cut(&self, step: &str, disk: &Path, (words, after): (&str, Duration)) -> Result<Console, Problems> {
        let mut said = None;
        let console = self.boot(step, disk, |console| {
            if said.is_none() && console.contains(words) {
                said = Some(Instant::now());
            }
            said.is_some_and(|said: Instant| said.elapsed() >= after)
        })?;
        console.says(words)?;
        Ok(console)
    }

    fn boot(&self, step: &str, disk: &Path, is_over: impl FnMut(&str) -> bool) -> Result<Console, Problems> {
        let dir = fresh_dir(self.dir.join("boot"))?;
        let initramfs = dir.join("initramfs");
        let settings = format!("{}STEP='{step}'\n", self.guest.settings("", ""));
        let script = include_bytes!("guest/power.sh");
        fs::write(&initramfs, first_files(self.kernel, &self.emulator.busybox(), &settings, script, &Profiles::new())?)
            .map_err(|e| cannot("write", &initramfs, &e))?;
        let machine = Machine {
            emulator: self.emulator,
            kernel: &self.kernel.image,
            initramfs: &initramfs,
            disk,
            keeps: true,
            patience: PATIENCE,
        };
        let end = machine.run_until(&dir, is_over)?;
        let console = dir.join(CONSOLE);
        let console = Console(fs::read_to_string(&console).map_err(|e| cannot("read", &console, &e))?);
        if end == End::Hung {
            return Err(Problems::one(format!("guest {} hangs in step {step}: {}", self.guest.name, console.tail())));
        }
        Ok(console)
    }
}
