//! A file of the host as a session may see it: its text without the values of secret names (decision 0038). Owns what counts
//! as a text; what counts as a secret is `policy::secret_text`'s. Used by the survey, the FUSE trigger, the broker and the keeper.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use cofferdam_policy::secret_text;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// The longest file that is rendered; a longer one is hidden.
const MOST: u64 = 1 << 20;

/// What the file at a path reads as; none where it cannot be read as a text. No link is followed.
pub fn masked_at(path: &Path) -> Option<String> {
    masked_in(CWD, path, ResolveFlags::empty())
}

/// The same below an open directory.
pub(crate) fn masked_below(directory: impl AsFd, path: &Path) -> Option<String> {
    masked_in(directory, path, ResolveFlags::BENEATH)
}

fn masked_in(directory: impl AsFd, path: &Path, resolve: ResolveFlags) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = resolve | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    masked(rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve).ok()?)
}

fn masked(file: OwnedFd) -> Option<String> {
    let stat = rustix::fs::fstat(&file).ok()?;
    let size = u64::try_from(stat.st_size).ok().filter(|size| *size <= MOST)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()? + 1);
    // A host program may be writing to it.
    File::from(file).take(MOST + 1).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MOST && !text.contains('\0'))?;
    Some(secret_text::masked(&text).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_not_shown() {
        let place = std::env::temp_dir().join(format!("cofferdam-masked-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory");
        let place = place.canonicalize().expect("it is there");
        let at = |name: &str, bytes: &[u8]| {
            let path = place.join(name);
            std::fs::write(&path, bytes).expect("it can be written");
            path
        };
        assert_eq!(masked_at(&at("config", b"a = 1\ntoken = CANARY\n")).as_deref(), Some("a = 1\ntoken = ***\n"));
        assert_eq!(masked_at(&at("plain", b"a = 1\n")).as_deref(), Some("a = 1\n"));
        assert_eq!(masked_at(&at("binary", b"a\0b")), None);
        assert_eq!(masked_at(&at("latin", b"name = J\xf6rg\ntoken = x\n")), None);
        assert_eq!(masked_at(&at("long", &vec![b'a'; (1 << 20) + 1])), None);
        assert_eq!(masked_at(&place), None);
        assert_eq!(masked_at(&place.join("missing")), None);
        let link = place.join("link");
        std::os::unix::fs::symlink(at("config", b"a = 1\n"), &link).expect("a link");
        assert_eq!(masked_at(&link), None);
        std::fs::remove_dir_all(&place).expect("it can be removed");
    }
}
