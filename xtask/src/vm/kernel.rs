//! A Debian kernel from the cache: its image, its release and the modules that a guest loads. Owns finding modules and
//! the order in which they load; knows nothing of what runs on it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::problems::Problems;
use crate::vm::apt::{Packages, Release, Unpacked};
use crate::vm::files::cannot;
use crate::vm::run_tool;
use crate::workspace::read;

const PACKAGE: &str = "linux-image-cloud-amd64";
const PACKAGE_AARCH64: &str = "linux-image-cloud-arm64";
const PREFIX: &str = "linux-image-";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Version {
    #[value(name = "6.1")]
    V6_1,
    #[value(name = "6.12")]
    V6_12,
}

impl Version {
    pub(crate) fn number(self) -> &'static str {
        match self {
            Version::V6_1 => "6.1",
            Version::V6_12 => "6.12",
        }
    }

    fn debian(self) -> &'static str {
        match self {
            Version::V6_1 => "bookworm",
            Version::V6_12 => "trixie",
        }
    }

    /// What `landlock_create_ruleset` answers when asked for its version.
    pub(crate) fn landlock(self) -> u32 {
        match self {
            Version::V6_1 => 2,
            Version::V6_12 => 6,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) package_version: String,
    pub(crate) image: PathBuf,
    modules: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

impl Kernel {
    pub(crate) fn get(version: Version, cache: &Path, refresh: bool) -> Result<Kernel, Problems> {
        Kernel::fetched(version, &Release::new(version.debian(), cache), PACKAGE, refresh)
    }

    pub(crate) fn aarch64(version: Version, cache: &Path, refresh: bool) -> Result<Kernel, Problems> {
        Kernel::fetched(version, &Release::of_machine(version.debian(), "arm64", cache), PACKAGE_AARCH64, refresh)
    }

    fn fetched(version: Version, debian: &Release<'_>, package: &str, refresh: bool) -> Result<Kernel, Problems> {
        let unpacked = |refresh| debian.unpacked("kernel", &Packages::WhatItStandsFor(package), refresh);
        let kernel = match Kernel::of(&unpacked(refresh)?) {
            Ok(kernel) => kernel,
            // The cache was damaged: once more, from the archive.
            Err(_) if !refresh => Kernel::of(&unpacked(true)?)?,
            Err(problems) => return Err(problems),
        };
        let expected = format!("{}.", version.number());
        if !kernel.package_version.starts_with(&expected) {
            let (name, found) = (version.debian(), &kernel.package_version);
            return Err(Problems::one(format!("Debian {name} has kernel {found}, not {}", version.number())));
        }
        Ok(kernel)
    }

    fn of(unpacked: &Unpacked) -> Result<Kernel, Problems> {
        let root = &unpacked.root;
        let none = || Problems::one(format!("{} holds no kernel", root.display()));
        let (release, version) = unpacked.package(PREFIX).ok_or_else(none)?;
        let release = release.trim_start_matches(PREFIX);
        let image = root.join("boot").join(format!("vmlinuz-{release}"));
        let places = ["usr/lib/modules", "lib/modules"].map(|place| root.join(place).join(release));
        let modules = places.into_iter().find(|dir| dir.join("modules.builtin").exists()).ok_or_else(none)?;
        if !image.exists() {
            return Err(none());
        }
        Ok(Kernel { package_version: version.to_owned(), image, modules })
    }

    /// These modules and those they need, in the order in which they load. One that is built in is left out.
    pub(crate) fn modules(&self, names: &[&str]) -> Result<Vec<Module>, Problems> {
        let builtin = read(&self.modules.join("modules.builtin"))?;
        let builtin: BTreeSet<String> = builtin.lines().map(module_name).collect();
        let order = self.modules.join("modules.order");
        let files: Vec<String> = read(&order)?.lines().map(str::to_owned).collect();
        let mut loaded = Vec::new();
        for name in names {
            self.add(name, &builtin, &files, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn add(
        &self,
        name: &str,
        builtin: &BTreeSet<String>,
        files: &[String],
        loaded: &mut Vec<Module>,
    ) -> Result<(), Problems> {
        if builtin.contains(name) || loaded.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let Some(file) = files.iter().find(|file| module_name(file) == name) else {
            return Err(Problems::one(format!("kernel {} has no module {name}", self.package_version)));
        };
        let content = content(&self.modules.join(file))?;
        for needed in needs(&content) {
            self.add(&needed, builtin, files, loaded)?;
        }
        loaded.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

/// `kernel/fs/fuse/virtiofs.ko` is `virtiofs`. Kernel and files do not agree on dashes.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// From 6.12 on Debian compresses modules.
fn content(file: &Path) -> Result<Vec<u8>, Problems> {
    let compressed = PathBuf::from(format!("{}.xz", file.display()));
    if compressed.exists() {
        return run_tool(Command::new("xz").args(["--decompress", "--stdout"]).arg(&compressed));
    }
    fs::read(file).map_err(|e| cannot("read", file, &e))
}

/// The modules that a module names in its section `.modinfo`, a list of `key=value` strings that end with a zero byte.
fn needs(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(start) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = module[start + key.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_tells_what_it_needs() {
        assert_eq!(needs(b"\x7fELF\0license=GPL\0depends=virtio,virtio-ring\0name=x\0"), ["virtio", "virtio_ring"]);
        assert_eq!(needs(b"\x7fELF\0depends=\0name=x\0"), Vec::<String>::new());
        assert_eq!(needs(b"\x7fELF"), Vec::<String>::new());
    }

    #[test]
    fn names_of_modules_do_not_depend_on_dashes_or_compression() {
        assert_eq!(module_name("kernel/crypto/crc32c-generic.ko"), "crc32c_generic");
        assert_eq!(module_name("kernel/fs/fuse/virtiofs.ko.xz"), "virtiofs");
    }
}
