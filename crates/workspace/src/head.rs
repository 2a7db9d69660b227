//! Which commit a project is at. Owns reading that without git, from files that a workload may have written: at the start of a session
//! nothing of the repository is run. Called by `supervisor`.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use crate::beneath;

/// `HEAD` and a ref are a line; a list of all refs is longer.
const LARGEST_REF: u64 = 4096;
const LARGEST_LIST: u64 = 4 << 20;

/// The commit of the repository in a project; none where that is not told by its files, as in a linked worktree.
pub fn head_of(project: &Path) -> Option<String> {
    let project = beneath::root(project).ok()?;
    let repository = beneath::directory(project.as_fd(), Path::new(".git")).ok()?;
    let head = text(repository.as_fd(), "HEAD", LARGEST_REF)?;
    let Some(name) = head.trim_end().strip_prefix("ref: ") else { return id(&head) };
    let loose = name.starts_with("refs/").then(|| text(repository.as_fd(), name, LARGEST_REF)).flatten();
    loose.and_then(|text| id(&text)).or_else(|| {
        let list = text(repository.as_fd(), "packed-refs", LARGEST_LIST)?;
        list.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').and_then(id))
    })
}

fn text(repository: BorrowedFd<'_>, name: &str, most: u64) -> Option<String> {
    String::from_utf8(crate::transaction::read(repository, Path::new(name), most)?).ok()
}

/// The id of an object, and nothing that git could take for something else.
pub fn id(text: &str) -> Option<String> {
    let text = text.trim_end();
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}
