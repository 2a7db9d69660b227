//! QEMU, virtiofsd and busybox, from the cache. Owns how programs of another Debian release run on this machine: with
//! that release's loader and libraries. Not those of the machine: QEMU 7.2 of Debian 12 breaks a guest's flags at
//! cmpxchg16b, and kernel 6.12 dies of it; and installing another could remove what people have installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::problems::Problems;
use crate::vm::apt::{Packages, Release};

const DEBIAN: &str = "trixie";
const PACKAGES: [&str; 3] = ["qemu-system-x86", "virtiofsd", "busybox-static"];
const PACKAGE_AARCH64: &str = "qemu-system-arm";

#[derive(Debug)]
pub(crate) struct Emulator {
    root: PathBuf,
    program: &'static str,
    pub(crate) version: String,
}

impl Emulator {
    pub(crate) fn get(cache: &Path, refresh: bool) -> Result<Emulator, Problems> {
        let debian = Release::new(DEBIAN, cache);
        let unpacked = debian.unpacked("emulator", &Packages::WithWhatTheyNeed(&PACKAGES), refresh)?;
        let version = unpacked.package(PACKAGES[0]).map(|(_, version)| version.to_owned());
        let program = "qemu-system-x86_64";
        let emulator = Emulator { root: unpacked.root, program, version: version.unwrap_or_default() };
        Emulator::lacks_none(&[emulator.loader(), emulator.qemu(), emulator.virtiofsd(), emulator.busybox()])?;
        Ok(emulator)
    }

    /// QEMU alone, for guests of another machine, which share no tree with this one.
    pub(crate) fn aarch64(cache: &Path, refresh: bool) -> Result<Emulator, Problems> {
        let debian = Release::new(DEBIAN, cache);
        let packages = Packages::WithWhatTheyNeed(&[PACKAGE_AARCH64]);
        let unpacked = debian.unpacked("emulator-aarch64", &packages, refresh)?;
        let version = unpacked.package(PACKAGE_AARCH64).map(|(_, version)| version.to_owned());
        let program = "qemu-system-aarch64";
        let emulator = Emulator { root: unpacked.root, program, version: version.unwrap_or_default() };
        Emulator::lacks_none(&[emulator.loader(), emulator.qemu()])?;
        Ok(emulator)
    }

    fn lacks_none(needed: &[PathBuf]) -> Result<(), Problems> {
        let missing = needed.iter().find(|file| !file.exists());
        let told = |file: &PathBuf| format!("{} is missing; `--refresh` fetches it again", file.display());
        missing.map_or(Ok(()), |file| Err(Problems::one(told(file))))
    }

    fn loader(&self) -> PathBuf {
        self.root.join("usr/lib64/ld-linux-x86-64.so.2")
    }

    pub(crate) fn qemu(&self) -> PathBuf {
        self.root.join("usr/bin").join(self.program)
    }

    pub(crate) fn virtiofsd(&self) -> PathBuf {
        self.root.join("usr/libexec/virtiofsd")
    }

    /// Static: it also runs where nothing else is.
    pub(crate) fn busybox(&self) -> PathBuf {
        self.root.join("usr/bin/busybox")
    }

    /// Where QEMU finds the guest's firmware.
    pub(crate) fn firmware(&self) -> [PathBuf; 2] {
        ["usr/share/seabios", "usr/share/qemu"].map(|dir| self.root.join(dir))
    }

    /// The words that start a program of the emulator.
    pub(crate) fn command(&self, program: PathBuf) -> [OsString; 4] {
        let libraries = self.root.join("usr/lib/x86_64-linux-gnu");
        [self.loader().into(), "--library-path".into(), libraries.into(), program.into()]
    }
}
