//! What a rule stands for on the host now, in a tree that is to be given: the names that a pattern matches, and other
//! spellings of a name that is refused. Owns listing a directory once for all rules about it. Used by `gate::carry_out`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_plan::GateRule;
use cofferdam_policy::decide::index::Written;
use rustix::io::Errno;

use crate::host_files;

#[derive(Debug, Default)]
pub(crate) struct Names {
    listed: HashMap<PathBuf, Result<Vec<Vec<u8>>, Errno>>,
}

impl Names {
    /// The paths that a rule is about which has its place below `tree`. A name is among them also where it is missing; of a
    /// pattern only what is there, and an error where that cannot be told.
    pub(crate) fn named_by(&mut self, rule: &GateRule, tree: &Path, place: &Path) -> Result<Vec<PathBuf>, Errno> {
        let Ok(rest) = place.strip_prefix(tree) else { return Ok(Vec::new()) };
        let mut found = vec![tree.to_path_buf()];
        let mut rest = rest.components().peekable();
        while let Some(written) = rest.next() {
            let written = written.as_os_str();
            let is_glob = rule.is_glob && rest.peek().is_none();
            let mut next = Vec::new();
            for directory in found {
                let meant = Written { access: rule.access, name: written.as_bytes(), is_glob, except: &rule.except };
                let is_meant = |name: &[u8]| meant.means(name);
                match self.list(&directory) {
                    Ok(names) => {
                        next.extend((!is_glob).then(|| directory.join(written)));
                        let is_other = |name: &[u8]| is_glob || name != written.as_bytes();
                        next.extend(named(&directory, names, |name| is_other(name) && is_meant(name)));
                    }
                    Err(Errno::NOENT | Errno::NOTDIR) if is_glob => {}
                    Err(errno) if is_glob => return Err(errno),
                    Err(_) => next.push(directory.join(written)),
                }
            }
            found = next;
        }
        Ok(found)
    }

    fn list(&mut self, directory: &Path) -> Result<&[Vec<u8>], Errno> {
        if !self.listed.contains_key(directory) {
            let names = host_files::names(directory).map(|names| names.into_iter().map(|(name, _, _)| name).collect());
            self.listed.insert(directory.to_path_buf(), names);
        }
        match &self.listed[directory] {
            Ok(names) => Ok(names),
            Err(errno) => Err(*errno),
        }
    }
}

fn named(directory: &Path, names: &[Vec<u8>], is_meant: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let real = names.iter().filter(|name| !matches!(name.as_slice(), b"." | b".."));
    real.filter(|name| is_meant(name)).map(|name| directory.join(OsStr::from_bytes(name))).collect()
}
