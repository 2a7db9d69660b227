//! Which directories are the user's homes: what HOME names, and what the password database names. Owns that choice and
//! reading the database; what is closed in a home is the policy's. Called by `survey` and by commands that need the state.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_plan::is_of_the_system;
use thiserror::Error;

/// Read as text, because a static program has no name service switch; users that only a network directory knows are not
/// in it.
const PASSWORD_DATABASE: &str = "/etc/passwd";

#[derive(Debug, Error, PartialEq, Eq)]
pub enum HomeError {
    #[error("there is no home directory to keep secrets out of: {environment}, and {database}")]
    None { environment: String, database: String },
}

/// The user's homes. State and configuration lie in the first: HOME where it is a directory of this user, else what the
/// password database says, because a home of another user must not say what this one's policy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Homes {
    pub first: PathBuf,
    pub other: Option<PathBuf>,
}

impl Homes {
    pub fn look(environment: &[(String, String)]) -> Result<Self, HomeError> {
        let value = environment.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.into());
        // A name that is no text is not in the list, and is a home all the same.
        let value: Option<OsString> = value.or_else(|| std::env::var_os("HOME"));
        let uid = rustix::process::getuid().as_raw();
        // A database that cannot be read names no home.
        let database = std::fs::read(PASSWORD_DATABASE).unwrap_or_default();
        Self::choose(value.as_deref(), recorded(&database, uid), uid)
    }

    fn choose(value: Option<&OsStr>, recorded: Option<PathBuf>, uid: u32) -> Result<Self, HomeError> {
        let claimed = match value {
            None => Err("HOME is not set".to_owned()),
            Some(value) if value.is_empty() => Err("HOME is empty".to_owned()),
            Some(value) => {
                usable(Path::new(value)).map_err(|why| format!("HOME is `{}`, which {why}", value.display()))
            }
        };
        let recorded = match recorded {
            None => Err(format!("`{PASSWORD_DATABASE}` has no user {uid}")),
            Some(path) => {
                usable(&path).map_err(|why| format!("`{PASSWORD_DATABASE}` says `{}`, which {why}", path.display()))
            }
        };
        match (claimed, recorded) {
            (Ok((claimed, about)), Ok((recorded, _))) => {
                let (first, other) = if about.uid() == uid { (claimed, recorded) } else { (recorded, claimed) };
                Ok(Homes { other: Some(other).filter(|other| *other != first), first })
            }
            (Ok((claimed, about)), Err(_)) if about.uid() == uid => Ok(Homes { first: claimed, other: None }),
            (Err(_), Ok((recorded, _))) => Ok(Homes { first: recorded, other: None }),
            (Ok((claimed, _)), Err(database)) => {
                let environment = format!("HOME is `{}`, which belongs to another user", claimed.display());
                Err(HomeError::None { environment, database })
            }
            (Err(environment), Err(database)) => Err(HomeError::None { environment, database }),
        }
    }
}

/// A directory, where it really is; else why it is no home.
fn usable(path: &Path) -> Result<(PathBuf, Metadata), &'static str> {
    if !path.is_absolute() {
        return Err("is not absolute");
    }
    let found = path.canonicalize().and_then(|real| real.metadata().map(|about| (real, about)));
    let (real, about) = found.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist",
        _ => "cannot be looked at",
    })?;
    match () {
        () if real.parent().is_none() => Err("is the root directory"),
        // Daemons have `/usr/sbin` and the like.
        () if is_of_the_system(&real) => Err("is a directory of the system"),
        () if !about.is_dir() => Err("is no directory"),
        () => Ok((real, about)),
    }
}

/// The home in the first line about `uid`: `name:password:uid:gid:comment:home:shell`.
fn recorded(database: &[u8], uid: u32) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let fields = |line: &'_ [u8]| -> Option<PathBuf> {
        let mut fields = line.split(|byte| *byte == b':');
        let number = std::str::from_utf8(fields.nth(2)?).ok()?.parse::<u32>().ok()?;
        let home = fields.nth(2)?;
        (number == uid).then(|| PathBuf::from(OsStr::from_bytes(home)))
    };
    // Lines with `+` and `-` are of another age's directory services.
    let lines = database.split(|byte| *byte == b'\n').filter(|line| !matches!(line.first(), Some(b'+' | b'-' | b'#')));
    lines.into_iter().find_map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: &[u8] =
        b"# x:x:7:7::/wrong:\n+nis:x:7:7::/wrong:\nroot:x:0:0:root:/root:/bin/sh\nbroken:x\nu:x:7:7:A, b:/home/\xff:/bin/sh\nv:x:7:7::/later:\n";

    #[test]
    fn the_first_line_about_a_user_counts() {
        use std::os::unix::ffi::OsStrExt as _;
        assert_eq!(recorded(DATABASE, 0), Some("/root".into()));
        assert_eq!(recorded(DATABASE, 7), Some(OsStr::from_bytes(b"/home/\xff").into()));
        assert_eq!(recorded(DATABASE, 8), None);
        assert_eq!(recorded(b"", 0), None);
    }

    /// Two directories of this user, below one that is removed at the end.
    fn two_homes(test: &str) -> [PathBuf; 2] {
        let root = std::env::temp_dir().join(format!("cofferdam-homes-{test}-{}", std::process::id()));
        let homes = ["a", "b"].map(|name| root.join(name));
        for home in &homes {
            std::fs::create_dir_all(home).expect("a directory of the test");
        }
        homes.map(|home| home.canonicalize().expect("it was just made"))
    }

    #[test]
    fn home_is_the_first_where_it_is_a_directory_of_the_user() {
        let [a, b] = two_homes("own");
        let uid = rustix::process::getuid().as_raw();
        let both = Homes { first: a.clone(), other: Some(b.clone()) };
        assert_eq!(Homes::choose(Some(a.as_os_str()), Some(b.clone()), uid), Ok(both));
        let one = Homes { first: a.clone(), other: None };
        assert_eq!(Homes::choose(Some(a.as_os_str()), Some(a.clone()), uid), Ok(one.clone()));
        assert_eq!(Homes::choose(Some(a.as_os_str()), None, uid), Ok(one.clone()), "a user of a network directory");
        let spelled = a.join("../a/.");
        assert_eq!(Homes::choose(Some(spelled.as_os_str()), Some("/nonexistent/home".into()), uid), Ok(one));
        // The same directories, looked at by a user who owns neither.
        let another = Homes { first: b.clone(), other: Some(a.clone()) };
        assert_eq!(Homes::choose(Some(a.as_os_str()), Some(b.clone()), uid + 1), Ok(another));
        assert!(Homes::choose(Some(a.as_os_str()), None, uid + 1).is_err());
        std::fs::remove_dir_all(a.parent().expect("made above")).expect("it is ours");
    }

    #[test]
    fn without_a_usable_home_the_database_decides_or_nothing_starts() {
        let [a, _] = two_homes("none");
        let uid = rustix::process::getuid().as_raw();
        for value in
            [None, Some(""), Some("home"), Some("./x"), Some("/"), Some("/."), Some("/nonexistent/home"), Some("/usr")]
        {
            let value = value.map(OsStr::new);
            let recorded = Homes { first: a.clone(), other: None };
            assert_eq!(Homes::choose(value, Some(a.clone()), uid), Ok(recorded), "{value:?}");
            for none in [None, Some("/"), Some("/nonexistent/home"), Some("/usr/sbin"), Some("")] {
                let refused = Homes::choose(value, none.map(PathBuf::from), uid);
                assert!(refused.is_err(), "{value:?} {none:?}: {refused:?}");
            }
        }
        std::fs::remove_dir_all(a.parent().expect("made above")).expect("it is ours");
    }
}
