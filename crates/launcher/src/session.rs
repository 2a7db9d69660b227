//! The session's identity and its directory on disk (overlay uppers). Owns making and removing it; state that a later
//! process needs lies on disk, nothing only in memory. Called by `launch`.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// `$XDG_STATE_HOME/cofferdam`, where sessions, approvals and logs are kept.
pub fn state_dir(home: &Path, variable: Option<&str>) -> PathBuf {
    match variable {
        Some(dir) if dir.starts_with('/') => Path::new(dir).join("cofferdam"),
        _ => home.join(".local/state/cofferdam"),
    }
}

/// A name that no other session has, sortable by start.
pub(crate) fn new_id() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:011x}-{:x}", now.as_millis(), rustix::process::getpid().as_raw_nonzero())
}

/// Upper and work directories of overlays; removed when dropped, except uppers that hold what the user asked to keep.
#[derive(Debug)]
pub(crate) struct OverlayDirs {
    pub(crate) path: PathBuf,
}

impl OverlayDirs {
    pub(crate) fn create(sessions: &Path, id: &str, slots: usize) -> Result<Self, Errno> {
        let path = sessions.join(id);
        make_all(&path)?;
        for slot in 0..slots {
            for name in ["upper", "work"] {
                make_all(&path.join(slot.to_string()).join(name))?;
            }
        }
        Ok(OverlayDirs { path })
    }

    pub(crate) fn upper(&self, slot: usize) -> PathBuf {
        self.path.join(slot.to_string()).join("upper")
    }

    /// Removes everything but the uppers in `keep` that are not empty. The command has run, so whatever cannot be
    /// removed is told and changes nothing else.
    pub(crate) fn finish(&self, keep: &[usize]) -> Finished {
        // An upper that the command made unreadable is not known to be empty.
        let is_changed = |upper: &Path| std::fs::read_dir(upper).map_or(true, |mut entries| entries.next().is_some());
        let uppers = keep.iter().map(|slot| (*slot, self.upper(*slot)));
        let kept: Vec<(usize, PathBuf)> = uppers.filter(|(_, upper)| is_changed(upper)).collect();
        let removed = self.remove_but(&kept);
        Finished { kept, left_behind: removed.is_err().then(|| self.path.clone()) }
    }

    fn remove_but(&self, kept: &[(usize, PathBuf)]) -> Result<(), std::io::Error> {
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?.path();
            let slot_is_kept = kept.iter().any(|(_, upper)| upper.starts_with(&entry));
            remove_tree(&if slot_is_kept { entry.join("work") } else { entry })?;
        }
        if kept.is_empty() { std::fs::remove_dir(&self.path) } else { Ok(()) }
    }
}

/// What is left of a session's directory.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) kept: Vec<(usize, PathBuf)>,
    pub(crate) left_behind: Option<PathBuf>,
}

/// overlayfs leaves directories of mode 000, and so may the command: each is opened up before it is emptied. Nobody
/// inside is alive any more, so a directory that was looked at cannot become a link before it is changed.
fn remove_tree(path: &Path) -> Result<(), std::io::Error> {
    use std::os::unix::fs::PermissionsExt as _;
    if !path.symlink_metadata()?.is_dir() {
        return std::fs::remove_file(path);
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(path)? {
        remove_tree(&entry?.path())?;
    }
    std::fs::remove_dir(path)
}

pub(crate) fn make_all(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            make_all(path.parent().ok_or(Errno::NOENT)?)?;
            rustix::fs::mkdir(path, Mode::RWXU)
        }
        Err(errno) => Err(errno),
    }
}

/// Appends to a file of the state directory, made on first use.
pub(crate) fn append(state: &Path, name: &str, text: &str) -> Result<(), Errno> {
    make_all(state)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, state.join(name), flags, Mode::RUSR | Mode::WUSR)?;
    let written = rustix::io::write(&fd, text.as_bytes())?;
    if written == text.len() { Ok(()) } else { Err(Errno::NOSPC) }
}
