//! Debian packages for guests and for booting them: fetched from the archive that this machine is configured for,
//! unpacked, never installed. Owns a private state of apt, one per Debian release, so that the machine's own lists, pins
//! and packages stay as they are. Called by `kernel` and `emulator`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::problems::Problems;
use crate::vm::files::{cannot, make_dir, remove_dir};
use crate::vm::tool;

/// Part of the package debian-archive-keyring; holds the keys of releases to come as well.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Names and versions of what was unpacked.
const RECORD: &str = "packages";

/// Packages that lie unpacked in the cache.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) root: PathBuf,
    /// Names with their versions.
    packages: Vec<(String, String)>,
}

impl Unpacked {
    /// The first package whose name starts so, with its version.
    pub(crate) fn package(&self, prefix: &str) -> Option<(&str, &str)> {
        self.packages.iter().find(|(name, _)| name.starts_with(prefix)).map(|(name, version)| (&**name, &**version))
    }
}

/// apt for one Debian release, with a system of its own on which nothing is installed.
#[derive(Debug)]
pub(crate) struct Release<'a> {
    name: &'a str,
    /// Debian's name of a machine that is not this one.
    machine: Option<&'a str>,
    dir: PathBuf,
}

impl<'a> Release<'a> {
    pub(crate) fn new(name: &'a str, cache: &Path) -> Self {
        Release { name, machine: None, dir: cache.join(name) }
    }

    /// Its packages for another machine, by Debian's name of that.
    pub(crate) fn of_machine(name: &'a str, machine: &'a str, cache: &Path) -> Self {
        Release { name, machine: Some(machine), dir: cache.join(format!("{name}-{machine}")) }
    }

    /// These packages as `what`, unpacked in one tree. What an earlier run left is used if it is complete; `refresh`
    /// asks the archive for newer ones.
    pub(crate) fn unpacked(&self, what: &str, packages: &Packages, refresh: bool) -> Result<Unpacked, Problems> {
        let root = self.dir.join(what);
        if let (false, Some(found)) = (refresh, recorded(&root)) {
            return Ok(found);
        }
        println!("fetching {what} of Debian {}", self.name);
        self.update()?;
        let archives = self.dir.join("cache/archives");
        make_dir(&archives.join("partial"))?;
        self.download(packages, &archives)?;
        if root.exists() {
            remove_dir(&root)?;
        }
        make_dir(&root)?;
        let packages = unpack(&archives, &root)?;
        remove_dir(&archives)?;
        // Written last: an unpacking that was interrupted has no record, and is made again.
        let lines = packages.iter().map(|(name, version)| format!("{name} {version}\n"));
        let record = root.join(RECORD);
        fs::write(&record, lines.collect::<Vec<_>>().concat()).map_err(|e| cannot("write", &record, &e))?;
        Ok(Unpacked { root, packages })
    }

    fn download(&self, packages: &Packages, archives: &Path) -> Result<(), Problems> {
        match packages {
            Packages::WithWhatTheyNeed(names) => {
                let mut command = self.apt("apt-get");
                command.args(["install", "--quiet", "--yes", "--no-install-recommends", "--download-only"]);
                tool(command.args(*names)).map(drop)
            }
            Packages::Alone(names) => {
                tool(self.apt("apt-get").arg("download").args(*names).current_dir(archives)).map(drop)
            }
            Packages::WhatItStandsFor(meta) => {
                let shown = tool(self.apt("apt-cache").args(["depends", "--important", meta]))?;
                let real = shown.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
                let real = real.ok_or_else(|| Problems::one(format!("{meta} of Debian {} is empty", self.name)))?;
                tool(self.apt("apt-get").args(["download", real]).current_dir(archives)).map(drop)
            }
        }
    }

    fn update(&self) -> Result<(), Problems> {
        let uri = archive_uri()?;
        for below in ["parts", "state/lists/partial"] {
            make_dir(&self.dir.join(below))?;
        }
        let write = |file: &str, text: &str| {
            let file = self.dir.join(file);
            fs::write(&file, text).map_err(|e| cannot("write", &file, &e))
        };
        write("sources.list", &format!("deb [signed-by={KEYRING}] {uri} {} main\n", self.name))?;
        write("status", "")?;
        tool(self.apt("apt-get").args(["update", "--quiet"])).map(drop)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, value) in [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::Etc::sourceparts", "parts"),
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.dir.join(value).display()));
        }
        // Translations and icons of ten thousand packages are not needed.
        command.args([
            "-o",
            "Acquire::Languages=none",
            "-o",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]);
        if let Some(machine) = self.machine {
            command.arg("-o").arg(format!("APT::Architecture={machine}"));
            command.arg("-o").arg(format!("APT::Architectures::={machine}"));
        }
        // apt's own user cannot write to a home; the archive's signature is checked all the same.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }
}

#[derive(Debug)]
pub(crate) enum Packages<'a> {
    /// These, and everything they depend on, the C library included.
    WithWhatTheyNeed(&'a [&'a str]),
    /// These, and nothing that they depend on.
    Alone(&'a [&'a str]),
    /// The one that a package without files depends on. A kernel's package is named after its version.
    WhatItStandsFor(&'a str),
}

fn recorded(root: &Path) -> Option<Unpacked> {
    let record = fs::read_to_string(root.join(RECORD)).ok()?;
    let packages: Option<Vec<_>> =
        record.lines().map(|line| line.split_once(' ').map(|(n, v)| (n.to_owned(), v.to_owned()))).collect();
    Some(Unpacked { root: root.to_owned(), packages: packages.filter(|packages| !packages.is_empty())? })
}

fn unpack(archives: &Path, root: &Path) -> Result<Vec<(String, String)>, Problems> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(archives).map_err(|e| cannot("list", archives, &e))? {
        let archive = entry.map_err(|e| cannot("list", archives, &e))?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            tool(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(root))?;
            let format = "--showformat=${Package} ${Version}";
            let shown = tool(Command::new("dpkg-deb").args(["--show", format]).arg(&archive))?;
            let (name, version) = shown.split_once(' ').unwrap_or((&shown, ""));
            packages.push((name.to_owned(), version.to_owned()));
        }
    }
    packages.sort();
    Ok(packages)
}

/// Where this machine gets Debian itself from, mirror or not.
fn archive_uri() -> Result<String, Problems> {
    let format = "$(ORIGIN) $(LABEL) $(REPO_URI)";
    let mut command = Command::new("apt-get");
    let targets = tool(command.args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let found = targets.lines().find_map(|line| line.strip_prefix("Debian Debian "));
    found.map(|uri| uri.trim_end_matches('/').to_owned()).ok_or_else(|| {
        Problems::one("apt on this machine has no Debian archive; run `apt-get update`, or add one to /etc/apt")
    })
}
