//! Requests that change a name or a file below the FUSE root. Owns which of them are about something that the session made;
//! everything else is refused at once and told. What a verdict allows is carried out here, on the host by `made`. Part of `fuse`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::io::Errno;

use super::made::{Made, MadeFile};
use super::wire::{Name, NewAttributes, Out};
use super::{Fuse, Handle, MODE_DIRECTORY, MOST_DIRECTORIES, MOST_HANDLES, NO_REPLACE, Node, Waiting};
use crate::host_files;
use crate::path_rules::PathRules;
use crate::triggers::{Access, CallId, Change, NewName, Noticed, Refused};
use cofferdam_wire::Op;

type Told = Result<Option<Noticed>, Errno>;

impl Fuse {
    pub(super) fn refuse_change(
        &mut self,
        unique: u64,
        what: &'static str,
        path: Option<PathBuf>,
        thread: u32,
    ) -> Told {
        self.reply(unique, Err(Errno::ROFS))?;
        Ok(path.map(|path| Noticed::Refused(Refused { what, path, thread })))
    }

    fn done(&mut self, unique: u64, result: Result<&[u8], Errno>) -> Told {
        self.reply(unique, result).map(|()| None)
    }

    pub(super) fn is_made_directory(&self, number: u64) -> bool {
        let made = |node: &Node| matches!(node.made, Made::Directory { .. });
        self.nodes.get(&number).is_some_and(|node| made(node) && host_files::stat(&node.path).is_err())
    }

    /// A file of the session's that the name still stands for.
    pub(super) fn made_file(&self, path: &Path) -> Option<Rc<MadeFile>> {
        let node = self.made_files.contains(path).then(|| self.by_path.get(path)).flatten()?;
        match &self.nodes.get(node)?.made {
            Made::File(file) if host_files::stat(path).is_ok_and(|stat| file.is(&stat)) => Some(Rc::clone(file)),
            _ => None,
        }
    }

    fn is_free(&self, path: &Path) -> bool {
        let is_known = |number: &u64| self.nodes.get(number).is_some_and(|node| !node.made.is_nothing());
        !self.by_path.get(path).is_some_and(is_known)
            && matches!(host_files::stat(path), Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// What the host has by now where the session made a name is the host's.
    pub(super) fn forget_replaced(&mut self, directory: u64, name: &[u8]) {
        let Some(path) = self.path_of(directory, Some(name)) else { return };
        if self.made_files.contains(&path) && self.made_file(&path).is_none() {
            self.let_go(&path);
        }
        if self.made_directories.contains(&path) && host_files::stat(&path).is_ok() {
            self.made_directories.remove(&path);
            let number = self.by_path.get(&path).copied();
            // It keeps its number: something may be mounted there.
            if let Some(node) = number.and_then(|number| self.nodes.get_mut(&number)) {
                node.made = Made::Nothing;
            }
        }
    }

    /// The name is gone. What still refers to it has its node, and another file of this name gets another one.
    fn let_go(&mut self, path: &Path) {
        self.made_files.remove(path);
        self.made_directories.remove(path);
        let Some(number) = self.by_path.remove(path) else { return };
        if self.nodes.get(&number).is_some_and(|node| node.lookups == 0) {
            self.nodes.remove(&number);
        }
    }

    /// The node gets another path, and so does everything below it.
    fn move_nodes(&mut self, from: &Path, to: &Path, rules: &PathRules) {
        let moved: Vec<(PathBuf, u64)> =
            self.by_path.iter().filter(|(path, _)| path.starts_with(from)).map(|(p, n)| (p.clone(), *n)).collect();
        for (old, number) in moved {
            let Ok(rest) = old.strip_prefix(from) else { continue };
            let new = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            self.by_path.remove(&old);
            if self.made_files.remove(&old) {
                self.made_files.insert(new.clone());
            }
            if self.made_directories.remove(&old) {
                self.made_directories.insert(new.clone());
            }
            if let Some(node) = self.nodes.get_mut(&number) {
                node.path.clone_from(&new);
                node.ruling = rules.ruling(&new);
            }
            self.by_path.insert(new, number);
        }
    }

    /// The directories of the session alone in this one.
    pub(super) fn names_made_in(&self, directory: &Path) -> Vec<Name> {
        let inside = self.made_directories.iter().filter(|made| made.parent() == Some(directory));
        let names = inside.filter_map(|made| {
            let number = self.by_path.get(made)?;
            Some(Name {
                bytes: made.file_name()?.as_bytes().to_vec(),
                ino: 1 << 62 | *number,
                kind: MODE_DIRECTORY >> 12,
            })
        });
        names.collect()
    }

    /// A listing of a directory of the session alone tells nothing of the host: no question is needed.
    pub(super) fn open_made(&mut self, number: u64) -> Result<Vec<u8>, Errno> {
        if self.handles.len() >= MOST_HANDLES {
            return Err(Errno::NFILE);
        }
        let path = self.path_of(number, None).ok_or(Errno::STALE)?;
        let mut names = self.names_made_in(&path);
        let dots =
            [".", ".."].map(|dots| Name { bytes: dots.into(), ino: 1 << 62 | number, kind: MODE_DIRECTORY >> 12 });
        names.extend(dots);
        Ok(self.keep(Handle::Names(names)))
    }

    /// Whether the thread only looks or goes in is for the gate to see.
    pub(super) fn look(&mut self, unique: u64, number: u64, thread: u32) -> Noticed {
        self.waiting.insert(unique, Waiting::Attributes { node: number });
        let path = self.path_of(number, None).unwrap_or_default();
        Noticed::Entered(Access { call: CallId(unique), op: Op::Create, path, mode: 0, flags: 0, thread })
    }

    pub(super) fn want_directory(
        &mut self,
        unique: u64,
        (directory, name): (u64, &[u8]),
        mode: u32,
        thread: u32,
        rules: &PathRules,
    ) -> Told {
        let Some(parent) = self.nodes.get(&directory) else { return self.done(unique, Err(Errno::STALE)) };
        let name = OsStr::from_bytes(name);
        let path = parent.path.join(name);
        let ruling = rules.child(&parent.path, parent.ruling, name);
        let refused = match () {
            () if rules.is_own(&parent.path) => Some(Errno::ACCESS),
            () if !self.is_free(&path) => Some(Errno::EXIST),
            () if self.is_full(&path) || self.made_directories.len() >= MOST_DIRECTORIES => Some(Errno::DQUOT),
            () => None,
        };
        if let Some(errno) = refused {
            return self.done(unique, Err(errno));
        }
        self.waiting.insert(unique, Waiting::MakeDirectory { path: path.clone(), ruling, mode });
        let what = "make the directory";
        Ok(Some(Noticed::Change(Change { call: CallId(unique), what, path, to: None, thread })))
    }

    /// What the session made gets another name: a directory of its own anywhere, a file in its directory.
    pub(super) fn want_name(
        &mut self,
        unique: u64,
        (directory, name): (u64, &[u8]),
        (into, new): (u64, Vec<u8>),
        flags: u32,
        thread: u32,
    ) -> Told {
        let (Some(from), Some(to)) = (self.path_of(directory, Some(name)), self.path_of(into, Some(&new))) else {
            return self.done(unique, Err(Errno::STALE));
        };
        let is_directory = self.made_directories.contains(&from) && host_files::stat(&from).is_err();
        let is_file = self.made_file(&from).is_some();
        if !is_directory && !is_file || flags & !NO_REPLACE != 0 {
            return self.refuse_change(unique, "rename", Some(from), thread);
        }
        if is_file && from.parent() != to.parent() {
            return self.done(unique, Err(Errno::XDEV));
        }
        let replaces = is_file && self.made_file(&to).is_some();
        let refused = match () {
            () if replaces && flags & NO_REPLACE != 0 => Some(Errno::EXIST),
            // What is the host's is never replaced: the program can copy, which is asked about.
            () if !replaces && !self.is_free(&to) => Some(Errno::XDEV),
            () => None,
        };
        if let Some(errno) = refused {
            return self.done(unique, Err(errno));
        }
        self.waiting.insert(unique, Waiting::Rename { from: from.clone(), to: to.clone() });
        let to = Some(NewName { path: to, replaces, is_file });
        Ok(Some(Noticed::Change(Change { call: CallId(unique), what: "rename", path: from, to, thread })))
    }

    pub(super) fn remove(&mut self, unique: u64, (directory, name): (u64, &[u8]), thread: u32) -> Told {
        let path = self.path_of(directory, Some(name));
        match path.as_deref().and_then(|path| Some((path, self.made_file(path)?))) {
            Some((path, file)) => {
                let removed = file.remove(path);
                if removed.is_ok() {
                    self.let_go(path);
                }
                self.done(unique, removed.map(|()| &[][..]))
            }
            None => self.refuse_change(unique, "remove", path, thread),
        }
    }

    pub(super) fn remove_directory(&mut self, unique: u64, (directory, name): (u64, &[u8]), thread: u32) -> Told {
        let path = self.path_of(directory, Some(name));
        let is_made = |path: &PathBuf| self.made_directories.contains(path) && host_files::stat(path).is_err();
        let Some(path) = path.clone().filter(is_made) else {
            return self.refuse_change(unique, "remove the directory", path, thread);
        };
        let is_below = |other: &PathBuf| *other != path && other.starts_with(&path);
        let has_names = self.by_path.iter().any(|(other, number)| {
            is_below(other) && self.nodes.get(number).is_some_and(|node| !node.made.is_nothing())
        });
        if has_names {
            return self.done(unique, Err(Errno::NOTEMPTY));
        }
        self.let_go(&path);
        self.done(unique, Ok(&[]))
    }

    pub(super) fn set_attributes(
        &mut self,
        unique: u64,
        number: u64,
        wanted: &NewAttributes,
        thread: u32,
        rules: &PathRules,
    ) -> Told {
        let changed = match self.nodes.get_mut(&number).map(|node| &mut node.made) {
            Some(Made::File(file)) => file.change(wanted),
            Some(Made::Directory { mode }) if wanted.uid.is_none() && wanted.gid.is_none() => {
                *mode = wanted.mode.unwrap_or(*mode);
                Ok(())
            }
            _ => {
                let path = self.path_of(number, None);
                return self.refuse_change(unique, "change the attributes of", path, thread);
            }
        };
        let result = changed.and_then(|()| self.attributes(number, rules));
        self.done(unique, result.as_deref().map_err(|errno| *errno))
    }

    pub(super) fn write(&mut self, handle: u64, offset: u64, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let Some(Handle::Made(file)) = self.handles.get(&handle) else { return Err(Errno::ROFS) };
        file.write(offset, data).map(Out::written)
    }

    /// What a verdict allows.
    pub(super) fn go(&mut self, waiting: &Waiting, rules: &PathRules) -> Result<Vec<u8>, Errno> {
        match waiting {
            Waiting::Attributes { node } => self.attributes(*node, rules),
            Waiting::Sync => Ok(Vec::new()),
            Waiting::Open { .. } => Err(Errno::ACCESS),
            Waiting::MakeDirectory { path, ruling, mode } => {
                let number = self.refer(path.clone(), *ruling);
                let made = Made::Directory { mode: *mode };
                let Some(node) = self.nodes.get_mut(&number) else { return Err(Errno::STALE) };
                node.made = made.clone();
                self.made_directories.insert(path.clone());
                Ok(Out::entry(number, &self.made_attr(path, &made), 0, 0))
            }
            Waiting::Rename { from, to } => self.rename(from, to, rules),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path, rules: &PathRules) -> Result<Vec<u8>, Errno> {
        if let Some(file) = self.made_file(from) {
            let over = self.made_file(to);
            file.rename(from, to.file_name().ok_or(Errno::INVAL)?, over.as_deref())?;
        }
        self.let_go(to);
        self.move_nodes(from, to, rules);
        Ok(Vec::new())
    }
}
