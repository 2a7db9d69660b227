//! Attempts on files of the project, the home and what lies around them. What is asked for comes from the scene.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use cofferdam_testkit::Place;

use super::{Attempt, call, judge};
use crate::row::Finding;

const CLOSED: &[i32] = &[libc::EROFS, libc::EACCES, libc::EPERM];
/// What a name that is held or pinned answers to somebody who wants to make or move it.
const HELD: &[i32] =
    &[libc::EROFS, libc::EACCES, libc::EPERM, libc::EBUSY, libc::EEXIST, libc::EISDIR, libc::ENOTDIR, libc::EXDEV];

pub(super) fn leave_a_mark(place: &Place) -> Finding {
    place.write("home/project/ran", "");
    Finding::Open("the command ran".to_owned())
}

fn append(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path).map(drop)
}

fn exchange(a: &Path, b: &Path) -> Result<i64, i32> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let (a, b) = (name(a), name(b));
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(usize::MAX - 99);
    call(libc::SYS_renameat2, &[here, a.as_ptr() as usize, here, b.as_ptr() as usize, 2])
}

/// Every way to make, replace, move or remove a name in a directory that can be written.
fn attempts_on(name: &Path, spare: &Path) -> Vec<Attempt> {
    let shown = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (spare_dir, spare_file) = (spare.join("dir"), spare.join("file"));
    let result = |what: &str, result: io::Result<()>| Attempt::io(format!("{what} {shown}"), result, HELD);
    let mut attempts = vec![
        result("write below", fs::write(name.join("planted"), "x")),
        result("write", append(name)),
        result("rename a directory to", fs::rename(&spare_dir, name)),
        result("rename a file to", fs::rename(&spare_file, name)),
        Attempt::new(format!("exchange {shown}"), exchange(name, &spare_dir), HELD),
        result("link", symlink("/tmp", name)),
        result("hard link", fs::hard_link(&spare_file, name)),
        result("rename away", fs::rename(name, spare.join("away"))),
    ];
    if !name.is_dir() {
        attempts.push(result("remove", fs::remove_file(name)));
    } else if fs::read_dir(name).is_ok_and(|mut entries| entries.next().is_none()) {
        attempts.push(result("remove", fs::remove_dir(name)));
    }
    attempts
}

/// Things to rename over a name, in the project at hand.
fn spare() -> std::path::PathBuf {
    let here = Place::at(std::env::current_dir().unwrap_or_default());
    here.write("spare/file", "planted");
    here.directory("spare/dir").parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The names in the scene's list, each a path below its root.
fn listed(place: &Place) -> Vec<std::path::PathBuf> {
    let list = fs::read_to_string(place.project().join("names")).unwrap_or_default();
    list.lines().map(|name| place.root().join(name)).collect()
}

pub(super) fn protected(place: &Place) -> Finding {
    let cache = place.home().join(".npm");
    if cache.exists() {
        let closed = place.directory("home/.npm/made/closed");
        place.write("home/.npm/made/file", "");
        if let Err(error) = fs::set_permissions(closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)) {
            return Finding::Broken(format!("the cache does not look writable: {error}"));
        }
    }
    let spare = spare();
    judge(&listed(place).iter().flat_map(|name| attempts_on(name, &spare)).collect::<Vec<_>>())
}

pub(super) fn a15_missing_names(place: &Place) -> Finding {
    let spare = spare();
    let attempts: Vec<Attempt> = listed(place)
        .iter()
        .flat_map(|name| {
            let made = Attempt::io(format!("mkdir {}", name.display()), fs::create_dir(name), HELD);
            std::iter::once(made).chain(attempts_on(name, &spare))
        })
        .collect();
    judge(&attempts)
}

pub(super) fn a16_renames(place: &Place) -> Finding {
    let spare = spare();
    let attempts: Vec<Attempt> = listed(place)
        .iter()
        .flat_map(|name| {
            let shown = name.strip_prefix(place.project()).unwrap_or(name).display().to_string();
            [
                // Within one directory, so that nothing but the mount stands in the way.
                Attempt::io(format!("mv {shown}"), fs::rename(name, name.with_file_name("moved")), &[libc::EBUSY]),
                Attempt::new(
                    format!("exchange {shown}"),
                    exchange(name, &spare.join("dir")),
                    &[libc::EBUSY, libc::EXDEV],
                ),
            ]
        })
        .collect();
    judge(&attempts)
}

/// Through each planted link, and to its target directly.
pub(super) fn a06_planted_links(place: &Place) -> Finding {
    let mut attempts = Vec::new();
    for name in [".vscode", ".claude", ".git"] {
        let path = place.project().join(name).join("planted");
        attempts.push(Attempt::io(
            format!("through {name}"),
            fs::write(path, "x"),
            &[libc::EROFS, libc::ENOENT, libc::EACCES],
        ));
    }
    let made = fs::write(place.outside().join("repository/planted"), "x");
    attempts.push(Attempt::io("target", made, CLOSED));
    let known = ["HEAD", "objects", "refs", "hooks"];
    for entry in fs::read_dir(place.outside().join("repository")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !known.contains(&name.as_str()) {
            attempts.push(Attempt::new(format!("{name} was made outside"), Ok(0), CLOSED));
        }
    }
    judge(&attempts)
}

pub(super) fn a08_swapped_directory(place: &Place) -> Finding {
    let secret = place.root().join("data/secret");
    judge(&[
        Attempt::io("read through the grant", fs::read_to_string(&secret), &[libc::ENOENT]),
        Attempt::io("write through the grant", fs::write(place.root().join("data/planted"), "x"), CLOSED),
    ])
}

pub(super) fn e05_prefix(place: &Place) -> Finding {
    let granted = fs::write(place.root().join("ws/mine"), "x");
    if let Err(error) = granted {
        return Finding::Broken(format!("the grant itself does not work: {error}"));
    }
    let evil = place.root().join("ws-evil");
    judge(&[
        Attempt::io("write in ws-evil", fs::write(evil.join("planted"), "x"), CLOSED),
        Attempt::io("change in ws-evil", append(&evil.join("there")), CLOSED),
        Attempt::io("make ws2", fs::create_dir(place.root().join("ws2")), CLOSED),
    ])
}

pub(super) fn e06_working_directory(place: &Place) -> Finding {
    let above = |path: std::path::PathBuf| Path::new("/..").join(path.strip_prefix("/").unwrap_or(&path));
    let places = [
        "/".into(),
        "/..".into(),
        std::env::current_dir().unwrap_or_default(),
        "/etc".into(),
        "/usr/local".into(),
        "/opt".into(),
        place.home(),
        place.project(),
        place.outside(),
        above(place.home()),
        above(place.outside()),
    ];
    let attempts: Vec<Attempt> = places
        .iter()
        .map(|directory: &std::path::PathBuf| {
            let name = directory.join(".cofferdam-test");
            let made = append(&name);
            if made.is_ok() {
                fs::remove_file(&name).unwrap_or_default();
            }
            Attempt::io(format!("write in {}", directory.display()), made, CLOSED)
        })
        .collect();
    judge(&attempts)
}

/// The repository that a forged `.git` file points to.
pub(super) fn e14_forged_pointer(place: &Place) -> Finding {
    let target = place.outside().join("repository");
    judge(&[
        Attempt::io("write a hook there", fs::write(target.join("hooks/post-commit"), "x"), CLOSED),
        Attempt::io("write its config", append(&target.join("config")), CLOSED),
        Attempt::io("write an object", fs::write(target.join("objects/planted"), "x"), CLOSED),
        Attempt::io("write its entry", fs::write(target.join("worktrees/victim/index"), "x"), CLOSED),
    ])
}
