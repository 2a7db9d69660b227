//! Checks about files: what a session reads, and what it changes on the host.

use crate::canaries::Canaries;
use crate::errand::Errand;
use crate::scratch::{AGENT_FILES, GIT_FILES, SHELL_FILES, changed};
use crate::spec::{SPEC, Seen, Spec};

const GROUP: &str = "files";
const VIEW: &str = "the view of files";
const PROTECTED: &str = "protected names";

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "V1",
        title: "a file that no rule is about is not read",
        group: GROUP,
        wall: VIEW,
        probe: "read-outside",
        unasked: |launched| {
            let why = "the policy shows the whole machine, read-only (mode static)";
            (!launched.asks).then(|| why.to_owned())
        },
        ..SPEC
    },
    Spec {
        id: "B22",
        title: "keys and tokens of the home directory are not read",
        group: GROUP,
        wall: "hidden names",
        probe: "read-home-secrets",
        ..SPEC
    },
    Spec {
        id: "A24",
        title: "secrets in the project are not read",
        group: GROUP,
        wall: "hidden names",
        probe: "read-project-secrets",
        ..SPEC
    },
    Spec {
        id: "V2",
        title: "files outside the project are not written",
        group: GROUP,
        wall: VIEW,
        probe: "write-outside",
        seen: Seen::OnHost(outside_was_written),
        ..SPEC
    },
    Spec {
        id: "V3",
        title: "`..` and the links of /proc lead nowhere else",
        group: GROUP,
        wall: VIEW,
        probe: "write-by-traversal",
        seen: Seen::OnHost(outside_was_written),
        ..SPEC
    },
    Spec {
        id: "E1",
        title: "symbolic links out of the project are not written through",
        group: GROUP,
        wall: VIEW,
        probe: "write-by-link",
        seen: Seen::OnHost(outside_was_written),
        ..SPEC
    },
    Spec {
        id: "V4",
        title: "symbolic links show no secret",
        group: GROUP,
        wall: "hidden names",
        probe: "read-by-link",
        ..SPEC
    },
    Spec {
        id: "E8",
        title: "hard links to files outside cannot be made",
        group: GROUP,
        wall: VIEW,
        probe: "hard-link",
        seen: Seen::OnHost(outside_was_written),
        ..SPEC
    },
    Spec {
        id: "E12",
        title: "git's hooks and configuration are not changed",
        group: GROUP,
        wall: PROTECTED,
        probe: "write-git",
        seen: Seen::OnHost(|errand, _| changed_in_project(errand, GIT_FILES)),
        ..SPEC
    },
    Spec {
        id: "E16",
        title: "configuration of agents and editors is not changed",
        group: GROUP,
        wall: PROTECTED,
        probe: "write-agents",
        seen: Seen::OnHost(|errand, _| changed_in_project(errand, AGENT_FILES)),
        ..SPEC
    },
    Spec {
        id: "E18",
        title: "files that shells run are not changed",
        group: GROUP,
        wall: PROTECTED,
        probe: "write-shell-files",
        seen: Seen::OnHost(|errand, _| changed(&errand.scratch().home(), SHELL_FILES, &errand.token)),
        ..SPEC
    },
    Spec {
        id: "E25",
        title: "set-user-ID bits are not left on the host",
        group: GROUP,
        wall: "the system call filter",
        probe: "set-user-id",
        seen: Seen::OnHost(|errand, _| {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(errand.scratch().project().join("plain")).ok()?.permissions().mode();
            (mode & 0o6000 != 0).then(|| format!("the file has mode {mode:o}"))
        }),
        ..SPEC
    },
    Spec {
        id: "B14",
        title: "shared memory and temporary files of the host are not read",
        group: GROUP,
        wall: "private file systems",
        probe: "read-private",
        ..SPEC
    },
];

fn outside_was_written(errand: &Errand, _: &mut Canaries) -> Option<String> {
    let outside = errand.scratch().outside();
    let names = std::fs::read_dir(outside).ok()?.flatten().map(|entry| entry.file_name());
    let made = names.into_iter().find(|name| name != "canary");
    let text = std::fs::read_to_string(errand.scratch().canary()).unwrap_or_default();
    match made {
        Some(name) => Some(format!("{} was made outside", name.to_string_lossy())),
        None if text.trim() != errand.token => Some("the file outside was changed".to_owned()),
        None => None,
    }
}

fn changed_in_project(errand: &Errand, names: &[&str]) -> Option<String> {
    changed(&errand.scratch().project(), names, &errand.token)
}
