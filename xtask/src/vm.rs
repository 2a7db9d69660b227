//! `cargo xtask vm`: the tests that meet the kernel, on other kernels than this machine's, under QEMU. Owns the order
//! (fetch, build, boot, judge) and the summary; the guests are in `vm/guests.rs`. Called by people and `.ci/run`, as root.

mod aarch64;
mod apparmor;
pub(crate) mod apt;
mod emulator;
pub(crate) mod files;
mod guests;
mod initramfs;
mod kernel;
mod machine;
mod outcome;
mod power;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use crate::junit::Status;
use crate::problems::Problems;
use crate::vm::apparmor::Profiles;
use crate::vm::emulator::Emulator;
use crate::vm::files::{cannot, fresh_dir, make_dir};
use crate::vm::guests::{GUESTS, Guest, LONG};
use crate::vm::initramfs::Initramfs;
use crate::vm::kernel::{Kernel, Version};
use crate::vm::machine::Machine;
use crate::vm::outcome::Outcome;
use crate::vm::stage::Stage;
use crate::workspace::Workspace;

/// What the guest needs to find its root and its disks, and what an unprivileged user cannot load.
const MODULES: [&str; 8] =
    ["virtio_pci", "virtio_blk", "virtiofs", "fuse", "overlay", "ext4", "quota_v2", "nft_tproxy"];

type Kernels = Vec<(Version, Kernel)>;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only guests with this kernel
    #[arg(long)]
    kernel: Option<Version>,
    /// Only these guests: 6.1, 6.12, no-userns, no-fuse, systemd
    #[arg(long, value_name = "NAME", value_parser = known_guest)]
    guest: Vec<String>,
    /// A filter expression of nextest instead of the guests' own
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// What the guests 6.1 and 6.12 leave out because it takes minutes there
    #[arg(long, conflicts_with = "filter")]
    long: bool,
    /// Cuts the power of guests during a commit instead, one moment after the other; of 6.1 and 6.12 alone
    #[arg(long, conflicts_with_all = ["filter", "long"])]
    power_cut: bool,
    /// The programs that are shipped, cross-built, in a guest of this machine instead
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["guest", "filter", "long", "power_cut"])]
    arch: Option<Arch>,
    /// How many guests run at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Ask Debian's archive for newer kernels and a newer QEMU than those in the cache
    #[arg(long)]
    refresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arch {
    Aarch64,
}

fn known_guest(name: &str) -> Result<String, String> {
    let names = GUESTS.map(|guest| guest.name);
    if names.contains(&name) { Ok(name.to_owned()) } else { Err(format!("the guests are {}", names.join(", "))) }
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    if args.arch == Some(Arch::Aarch64) {
        return aarch64::run(workspace, args.kernel.unwrap_or(Version::V6_12), args.refresh);
    }
    let chosen = chosen(args)?;
    let (emulator, kernels) = fetch(&chosen, args.refresh)?;
    if args.power_cut {
        for guest in chosen {
            println!("{}", power::run(workspace, guest, kernel_of(guest, &kernels)?, &emulator)?);
        }
        return Ok(String::new());
    }
    let dir = workspace.target.join("vm");
    let stage = Stage::build(workspace, &fresh_dir(dir.clone())?)?;

    let profiles = apparmor::profiles(&workspace.root, &cache()?, args.refresh)?;
    let next = Mutex::new(chosen.into_iter());
    let outcomes = Mutex::new(Vec::new());
    let boot_one_after_the_other = || {
        while let Some(guest) = next.lock().ok().and_then(|mut next| next.next()) {
            let outcome = boot(guest, &kernels, &emulator, &stage, &profiles, &dir, args.filter.as_deref());
            if let Ok(outcome) = &outcome {
                println!("{}", outcome.line());
            }
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.push(outcome);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(boot_one_after_the_other);
        }
    });
    summary(outcomes.into_inner().unwrap_or_default())
}

fn chosen(args: &Args) -> Result<Vec<&'static Guest>, Problems> {
    let by_kernel = |guest: &Guest| args.kernel.is_none_or(|kernel| kernel == guest.kernel);
    let by_name = |guest: &Guest| args.guest.is_empty() || args.guest.iter().any(|name| name == guest.name);
    let guests: &[Guest] = if args.long || args.power_cut { &LONG } else { &GUESTS };
    let chosen: Vec<_> = guests.iter().filter(|guest| by_kernel(guest) && by_name(guest)).collect();
    if chosen.is_empty() { Err(Problems::one("no guest has that name and that kernel")) } else { Ok(chosen) }
}

/// What guests need that no checkout holds. One rig fetches at a time: others find what it fetched.
fn fetch(guests: &[&Guest], refresh: bool) -> Result<(Emulator, Kernels), Problems> {
    let cache = cache()?;
    let lock = cache.join("lock");
    let held = fs::File::create(&lock).and_then(|file| file.lock().map(|()| file));
    let held = held.map_err(|e| cannot("lock", &lock, &e))?;
    let emulator = Emulator::get(&cache, refresh)?;
    println!("QEMU: Debian's {}", emulator.version);
    let kernels = kernels(guests, &cache, refresh)?;
    drop(held);
    Ok((emulator, kernels))
}

pub(crate) fn cache() -> Result<PathBuf, Problems> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let cache = cache.ok_or_else(|| Problems::one("neither XDG_CACHE_HOME nor HOME is set"))?.join("cofferdam-vm");
    make_dir(&cache)?;
    Ok(cache)
}

fn kernels(guests: &[&Guest], cache: &Path, refresh: bool) -> Result<Kernels, Problems> {
    let mut kernels: Kernels = Vec::new();
    for guest in guests {
        if !kernels.iter().any(|(version, _)| *version == guest.kernel) {
            let kernel = Kernel::get(guest.kernel, cache, refresh)?;
            println!("kernel {}: Debian's {}", guest.kernel.number(), kernel.package_version);
            kernels.push((guest.kernel, kernel));
        }
    }
    Ok(kernels)
}

fn kernel_of<'a>(guest: &Guest, kernels: &'a [(Version, Kernel)]) -> Result<&'a Kernel, Problems> {
    let found = kernels.iter().find(|(version, _)| *version == guest.kernel).map(|(_, kernel)| kernel);
    found.ok_or_else(|| Problems::one(format!("guest {} has no kernel", guest.name)))
}

fn boot(
    guest: &Guest,
    kernels: &[(Version, Kernel)],
    emulator: &Emulator,
    stage: &Stage,
    profiles: &Profiles,
    dir: &Path,
    filter: Option<&str>,
) -> Result<Outcome, Problems> {
    let kernel = kernel_of(guest, kernels)?;
    let dir = fresh_dir(dir.join(guest.name))?;
    let initramfs = dir.join("initramfs");
    let settings = guest.settings(&stage.toolchain, filter.unwrap_or(guest.tests));
    let script = include_bytes!("vm/guest/guest.sh");
    fs::write(&initramfs, first_files(kernel, &emulator.busybox(), &settings, script, profiles)?)
        .map_err(|e| cannot("write", &initramfs, &e))?;

    let started = Instant::now();
    let (kernel, disk, patience) = (&kernel.image, &stage.disk, guest.patience);
    let machine = Machine { emulator, kernel, initramfs: &initramfs, disk, keeps: false, patience };
    let end = machine.run(&dir)?;
    Ok(Outcome::read(guest.name, &dir, &end, started.elapsed()))
}

/// With the script that runs once there is a root.
fn first_files(
    kernel: &Kernel,
    busybox: &Path,
    settings: &str,
    script: &[u8],
    profiles: &Profiles,
) -> Result<Vec<u8>, Problems> {
    let mut archive = Initramfs::default();
    for directory in ["bin", "modules", "cofferdam-guest", "cofferdam-guest/apparmor"] {
        archive.directory(directory);
    }
    archive.file("init", include_bytes!("vm/guest/init.sh"));
    archive.file("bin/busybox", &fs::read(busybox).map_err(|e| cannot("read", busybox, &e))?);
    let mut order = String::new();
    for module in kernel.modules(&MODULES)? {
        archive.file(&format!("modules/{}", module.name), &module.content);
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.file("cofferdam-guest/modules", order.as_bytes());
    archive.file("cofferdam-guest/settings", settings.as_bytes());
    archive.file("cofferdam-guest/guest.sh", script);
    archive.file("cofferdam-guest/cofferdam-guest.service", include_bytes!("vm/guest/cofferdam-guest.service"));
    for (name, profile) in profiles {
        archive.file(&format!("cofferdam-guest/apparmor/{name}"), profile);
    }
    Ok(archive.finish())
}

fn summary(outcomes: Vec<Result<Outcome, Problems>>) -> Result<String, Problems> {
    let mut problems = Problems::default();
    let mut judged = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => judged.push(outcome),
            Err(found) => problems.extend(found),
        }
    }
    for outcome in &judged {
        let details = outcome.details();
        if !details.is_empty() {
            println!("{details}");
        }
        for wrong in &outcome.wrong {
            problems.add(format!("guest {}: {wrong}", outcome.name));
        }
    }
    let count = |status| judged.iter().map(|outcome| outcome.count(status)).sum::<usize>();
    let totals = format!(
        "{} guests: {} passed, {} failed, {} skipped",
        judged.len(),
        count(Status::Pass),
        count(Status::Fail),
        count(Status::Skip)
    );
    println!("{totals}");
    problems.or("")
}

/// Runs a program that has nothing to say to people; hands back what it printed.
pub(crate) fn tool(command: &mut Command) -> Result<String, Problems> {
    Ok(String::from_utf8_lossy(&run_tool(command)?).into_owned())
}

pub(crate) fn run_tool(command: &mut Command) -> Result<Vec<u8>, Problems> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| Problems::one(format!("cannot run {name}: {e}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Problems::one(format!("{name} failed ({}): {said}", output.status)))
}
