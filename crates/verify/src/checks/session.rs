//! Checks about the session as a whole: its levels, what it does about an attempt to escape, and its log.

use std::fs;
use std::path::PathBuf;

use cofferdam_wire::End;

use crate::canaries::Canaries;
use crate::edit;
use crate::errand::Errand;
use crate::spec::{Away, SPEC, Seen, Spec};

const GROUP: &str = "session";

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "V11",
        title: "a call that no harmless program makes ends the session",
        group: GROUP,
        wall: "the response to indicators",
        probe: "go-on-after-attempt",
        ends: &[End::EscapeAttempt],
        away: Away::Edited {
            what: "the filter's row for open_by_handle_at",
            edit: |plan, _| edit::let_through(plan, &["open_by_handle_at"]),
        },
        ..SPEC
    },
    Spec {
        id: "V12",
        title: "isolation `none` needs the organisation's word",
        group: GROUP,
        wall: "the plan refuses it",
        probe: "ran",
        flags: &[("--isolation", "none")],
        refusal: Some("approv"),
        away: Away::Approved {
            what: "the same order where the organisation's policy allows it",
            org: "allow_isolation_none = true\n",
        },
        ..SPEC
    },
    Spec {
        id: "V13",
        title: "isolation `process` has filter, no rights and a view of its own",
        group: GROUP,
        wall: "isolation `process`",
        probe: "walls-of-process",
        flags: &[("--isolation", "process")],
        ..SPEC
    },
    Spec {
        id: "F16",
        title: "the audit log has the session, and its chain is whole",
        group: GROUP,
        wall: "the chain of records",
        probe: "ran",
        // The probe runs in both: what is judged is the log.
        seen: Seen::OnHost(log_is_wrong),
        away: Away::Tampered { what: "the same log with one byte changed", tamper: change_a_byte },
        ..SPEC
    },
];

fn state(errand: &Errand) -> PathBuf {
    errand.scratch().state().join("cofferdam")
}

fn log_is_wrong(errand: &Errand, _: &mut Canaries) -> Option<String> {
    match cofferdam_audit::verify(&state(errand)) {
        Ok(report) if report.records < 2 => Some(format!("the log has {} records", report.records)),
        Ok(report) if report.is_whole() => None,
        Ok(report) => Some(format!("{} problems in {} records", report.problems.len(), report.records)),
        Err(errno) => Some(format!("the log cannot be read: {errno}")),
    }
}

fn change_a_byte(errand: &Errand) -> std::io::Result<()> {
    let file = cofferdam_audit::directory(&state(errand)).join("00000001.ndjson");
    let mut text = fs::read(&file)?;
    let middle = text.len() / 2;
    if let Some(byte) = text.get_mut(middle) {
        *byte = if *byte == b'x' { b'y' } else { b'x' };
    }
    fs::write(file, text)
}
