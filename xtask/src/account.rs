//! Whose rights a measurement or a stress test runs with. Owns the choice; becoming that user is the caller's.
//! Called by `bench`, `storm` and `stress`.

use std::path::{Path, PathBuf};

use crate::problems::Problems;
use crate::workspace::read;

/// An ordinary user for tests, made by `.ci/run`.
pub(crate) const TEST_USER: &str = "cofferdam-test";

/// An entry of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

/// The user that is named; else, for root, the test user if there is one; else the user who runs us.
pub(crate) fn choose_user(passwd: &str, own: u32, name: Option<&str>) -> Result<User, Problems> {
    let users: Vec<User> = passwd.lines().filter_map(parse_user).collect();
    let named = |name: &str| users.iter().find(|u| u.name == name).cloned();
    let me = || {
        let found = users.iter().find(|u| u.uid == own).cloned();
        found.ok_or_else(|| Problems::one(format!("uid {own} is not in /etc/passwd")))
    };
    match name {
        Some(name) => {
            let user = named(name).ok_or_else(|| Problems::one(format!("there is no user `{name}`")))?;
            if own != 0 && user.uid != own {
                return Err(Problems::one(format!("only root can run as `{name}`")));
            }
            Ok(user)
        }
        None if own == 0 => named(TEST_USER).map_or_else(me, Ok),
        None => me(),
    }
}

/// As whom sandboxes run: the user that is named, or the caller and for root the test user as well.
pub(crate) fn users(named: Option<&str>) -> Result<Vec<User>, Problems> {
    let passwd = read(Path::new("/etc/passwd"))?;
    let own = rustix::process::getuid().as_raw();
    if named.is_some() || own != 0 {
        return Ok(vec![choose_user(&passwd, own, named)?]);
    }
    let root = choose_user(&passwd, own, Some("root"))?;
    Ok([Some(root), choose_user(&passwd, own, Some(TEST_USER)).ok()].into_iter().flatten().collect())
}

fn parse_user(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, _] = fields[..] else { return None };
    Some(User { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()?, home: home.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\ncofferdam-test:x:1001:1002::/home/c:/bin/sh\n";

    #[test]
    fn root_runs_as_the_test_user_if_there_is_one() {
        let user = choose_user(PASSWD, 0, None).expect("found");
        assert_eq!((user.uid, user.gid, user.home), (1001, 1002, "/home/c".into()));
        assert_eq!(choose_user("root:x:0:0:root:/root:/bin/sh", 0, None).expect("found").uid, 0);
    }

    #[test]
    fn nobody_else_can_run_as_another_user() {
        assert!(choose_user(PASSWD, 1001, Some("root")).is_err());
        assert_eq!(choose_user(PASSWD, 1001, None).expect("found").uid, 1001);
        assert_eq!(choose_user(PASSWD, 1001, Some("cofferdam-test")).expect("found").uid, 1001);
    }
}
