//! Attempts to leave a file that runs with the rights of its owner or group: every call that takes a mode, with each bit.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cofferdam_testkit::Place;

use super::{Attempt, call, judge, number};
use crate::row::Finding;

const SET_USER: usize = 0o4755;
const SET_GROUP: usize = 0o2755;
const BOTH: usize = 0o6755;
const REGULAR: usize = 0o100_000;
/// As a wide argument, of which the kernel reads the low half.
const WIDE: usize = 0xffff_ffff << 32;

fn flags(flags: i32) -> usize {
    usize::try_from(flags).unwrap_or(0)
}

pub(super) fn e25_lent_rights(place: &Place) -> Finding {
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(usize::MAX - 99);
    let project = place.project();
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let file = name(&place.write("home/project/program", "#!/bin/sh\n"));
    let directory = name(&project);
    let path = file.as_ptr() as usize;
    let Ok(open) = fs::File::open(project.join("program")) else {
        return Finding::Broken("the file cannot be opened".to_owned());
    };
    let fd = number(open.as_raw_fd().into());
    let mut attempts = Vec::new();
    let mut tried = |what: String, result| attempts.push(Attempt::new(what, result, &[libc::EPERM]));
    for mode in [SET_USER, BOTH, SET_USER | WIDE] {
        tried(format!("chmod {mode:o}"), call(libc::SYS_chmod, &[path, mode]));
        tried(format!("fchmod {mode:o}"), call(libc::SYS_fchmod, &[fd, mode]));
        tried(format!("fchmodat {mode:o}"), call(libc::SYS_fchmodat, &[here, path, mode]));
    }
    for (count, mode) in [SET_USER, SET_GROUP, BOTH, SET_USER | WIDE, SET_GROUP | WIDE].into_iter().enumerate() {
        let new = |call: &str| name(&project.join(format!("{call}-{count}")));
        let make = flags(libc::O_CREAT | libc::O_WRONLY);
        let nameless = flags(libc::O_TMPFILE | libc::O_WRONLY);
        let by_mknod = new("mknod");
        tried(format!("mknod {mode:o}"), call(libc::SYS_mknod, &[by_mknod.as_ptr() as usize, REGULAR | mode, 0]));
        let by_mknodat = new("mknodat");
        let result = call(libc::SYS_mknodat, &[here, by_mknodat.as_ptr() as usize, REGULAR | mode, 0]);
        tried(format!("mknodat {mode:o}"), result);
        let by_creat = new("creat");
        tried(format!("creat {mode:o}"), call(libc::SYS_creat, &[by_creat.as_ptr() as usize, mode]));
        let by_open = new("open");
        tried(format!("open {mode:o}"), call(libc::SYS_open, &[by_open.as_ptr() as usize, make, mode]));
        let by_openat = new("openat");
        let result = call(libc::SYS_openat, &[here, by_openat.as_ptr() as usize, make | WIDE, mode]);
        tried(format!("openat {mode:o}"), result);
        let result = call(libc::SYS_openat, &[here, directory.as_ptr() as usize, nameless, mode]);
        tried(format!("openat of a file without a name {mode:o}"), result);
    }
    attempts.extend(where_arguments_are_not_seen(here, path, &name(&project.join("openat2"))));
    attempts.extend(kernel_takes_them_away(&project));
    share_a_directory(&project);
    judge(&attempts)
}

/// `openat2` has its mode in memory; `fchmodat2` is absent from kernels before 6.6.
fn where_arguments_are_not_seen(here: usize, file: usize, new: &CString) -> [Attempt; 2] {
    let how = [u64::from((libc::O_CREAT | libc::O_WRONLY).cast_unsigned()), 0o4755, 0];
    let arguments = [here, new.as_ptr() as usize, how.as_ptr() as usize, size_of_val(&how)];
    [
        Attempt::new("openat2", call(libc::SYS_openat2, &arguments), &[libc::ENOSYS]),
        Attempt::new("fchmodat2", call(452, &[here, file, SET_USER, 0]), &[libc::EPERM, libc::ENOSYS]),
    ]
}

/// `mkdir` has no such bits: the kernel takes them out of the mode by itself.
fn kernel_takes_them_away(project: &Path) -> Option<Attempt> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let made = project.join("made");
    let result = fs::DirBuilder::new().mode(0o6755).create(&made).and_then(|()| fs::metadata(&made));
    let has_bits = result.as_ref().is_ok_and(|found| found.permissions().mode() & 0o4000 != 0);
    has_bits.then(|| Attempt::new("mkdir", Ok(0), &[]))
}

/// What must go on working: a directory whose files belong to its group.
fn share_a_directory(project: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let shared = project.join("shared");
    let made = fs::create_dir_all(&shared);
    // Seen from outside by its mode.
    if let Err(error) = made.and_then(|()| fs::set_permissions(&shared, fs::Permissions::from_mode(0o2775))) {
        eprintln!("sharing a directory: {error}");
    }
}
