//! Attempts on files of the project, the home and what lies around them. What is asked for comes from the scene.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use cofferdam_testkit::Place;

use super::{Attempt, call, judge};
use crate::row::Finding;

const CLOSED: &[i32] = &[libc::EROFS, libc::EACCES, libc::EPERM];
/// What a name that is held or pinned answers to a process that wants to make or move it.
const HELD: &[i32] =
    &[libc::EROFS, libc::EACCES, libc::EPERM, libc::EBUSY, libc::EEXIST, libc::EISDIR, libc::ENOTDIR, libc::EXDEV];

/// A file below a name that is held.
const HELD_BELOW: &[i32] = &[libc::EROFS, libc::EACCES, libc::EPERM, libc::ENOENT];

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

/// Every other name of what is hidden, and a second name of the project.
pub(super) fn a17_other_names(place: &Place) -> Finding {
    let names = place.outside().join("names");
    let work = place.outside().join("work");
    // What is not closed can be reached, or nothing would be shown by the rest.
    let reached = (fs::read_to_string(names.join("home/notes")), fs::write(work.join("made"), "x"));
    if !matches!(reached, (Ok(_), Ok(()))) {
        return Finding::Broken(format!("the mounts are not there: {reached:?}"));
    }
    let hidden = ["home/.ssh/id_canary", "directory/id_canary", "file", "memory/id_canary", "again/.ssh/id_canary"];
    let read = |name: &str| {
        let read = fs::read_to_string(names.join(name)).and_then(|text| {
            if text.contains("canary") { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOENT)) }
        });
        Attempt::io(format!("read {name}"), read, &[libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENXIO])
    };
    let mut attempts: Vec<Attempt> = hidden.iter().chain(&["overlay/.ssh/id_canary"]).map(|name| read(name)).collect();
    attempts.extend([
        Attempt::io("change work/.git/config", append(&work.join(".git/config")), CLOSED),
        Attempt::io("make work/.git/hooks/x", append(&work.join(".git/hooks/x")), CLOSED),
        Attempt::io("make work/.claude/x", append(&work.join(".claude/x")), HELD_BELOW),
    ]);
    judge(&attempts)
}

/// The home that the password database names, and one that only the environment does.
pub(super) fn a20_home(place: &Place) -> Finding {
    const HIDDEN: &[i32] = &[libc::ENOENT, libc::EACCES, libc::EPERM, libc::EROFS];
    let home = place.home();
    let secrets = [home.join(".ssh/id_canary"), place.outside().join("other/.ssh/id_canary")];
    let mut attempts = vec![
        Attempt::io("change .bashrc", append(&home.join(".bashrc")), CLOSED),
        Attempt::io("make a key of ssh", append(&home.join(".ssh/authorized_keys")), HIDDEN),
        Attempt::io("make a file in the home", append(&home.join("planted")), CLOSED),
    ];
    // Who does not have the other home as HOME knows nothing of its secrets.
    let count =
        if std::env::var_os("HOME").is_some_and(|home| home.as_encoded_bytes().ends_with(b"/other")) { 2 } else { 1 };
    attempts.extend(
        secrets
            .iter()
            .take(count)
            .map(|secret| Attempt::io(format!("read {}", secret.display()), fs::read_to_string(secret), HIDDEN)),
    );
    judge(&attempts)
}

/// Opens hidden names in a loop while a host program works on them.
pub(super) fn a18_hidden_names(place: &Place) -> Finding {
    let names: Vec<std::path::PathBuf> = fs::read_to_string(place.project().join("names"))
        .unwrap_or_default()
        .lines()
        .flat_map(|name| [name.into(), Path::new(name).join("inside")])
        .collect();
    // The first look into a tree may have to be approved; what is not hidden there can be read.
    for tree in ["given", "asked"] {
        let plain = place.outside().join(tree).join("plain");
        if let Err(error) = fs::read(&plain) {
            return Finding::Broken(format!("{}: {error}", plain.display()));
        }
    }
    place.write("home/project/ready", "");
    let (mut tries, mut read) = (0u64, Vec::new());
    while !place.project().join("done").exists() {
        for name in &names {
            tries += 1;
            if fs::read_to_string(name).is_ok_and(|text| text.contains("secret")) {
                read.push(name.display().to_string());
            }
        }
    }
    read.sort();
    let times = read.len();
    read.dedup();
    match read.as_slice() {
        _ if tries < 20 => Finding::Broken(format!("only {tries} tries")),
        [] => Finding::Contained(format!("{tries} tries read nothing")),
        read => Finding::Open(format!("{times} of {tries} tries read {}", read.join(", "))),
    }
}

/// Reads what the scene lists, under its own name and under every other that can be made for it.
pub(super) fn a24_below_the_project(place: &Place) -> Finding {
    let sample = place.project().join("packages/api/.env.example");
    if let Err(error) = fs::read(&sample) {
        return Finding::Broken(format!("{}: {error}", sample.display()));
    }
    let tools = place.directory("home/project/node_modules");
    let mut read = Vec::new();
    for name in listed(place) {
        let away = tools.join("away");
        let mut names = vec![name.clone()];
        if fs::hard_link(&name, &away).is_ok() || fs::rename(&name, &away).is_ok() {
            names.push(away.clone());
        }
        // The next session does not look into a directory that tools fill.
        for above in name.ancestors().skip(1).take_while(|above| *above != place.project()) {
            let moved = tools.join("moved");
            if fs::rename(above, &moved).is_ok() {
                names.push(name.strip_prefix(above).map_or(moved.clone(), |rest| moved.join(rest)));
                break;
            }
        }
        let opened = names.iter().filter(|name| fs::read_to_string(name).is_ok_and(|text| text == "secret"));
        read.extend(opened.map(|name| name.display().to_string()));
        if names.len() > 1 {
            read.push(format!("another name of {}", name.display()));
        }
    }
    match read.as_slice() {
        [] => Finding::Contained(format!("{} names read nothing and stay where they are", listed(place).len())),
        read => Finding::Open(read.join(", ")),
    }
}

/// What a file reads as: by name, through a descriptor that stands for it, and as long as its size says.
pub(crate) fn ways_to_read(path: &Path) -> io::Result<Vec<String>> {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let again = fs::read_to_string(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
    let text = fs::read_to_string(path)?;
    if held.metadata()?.len() != text.len() as u64 || again != text {
        return Err(io::Error::other("its size is not that of its text"));
    }
    Ok(vec![text, again])
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
