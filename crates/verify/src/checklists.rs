//! The three checklists of the security model that Cofferdam implements (R0.22: its sections 9.3, 12.1 and 12.2), answered by checks
//! instead of being ticked. Owns which checks answer which line; runs nothing. Called by `verification` once the checks are done.

use crate::report::{Check, Control, ControlResult, Outcome};

const ESCAPE: &str = "checklist 9.3: escape prevention";
const IMPLEMENTATION: &str = "checklist 12.1: implementation";
const SECURITY: &str = "checklist 12.2: security";

/// Group, id, the line's own words, and the checks that answer it.
type Line = (&'static str, &'static str, &'static str, &'static [&'static str]);

const LINKS: &[&str] = &["E1", "V4", "E8"];
const PATHS: &[&str] = &["V2", "V3", "B22", "A24"];
const FILES: &[&str] = &["V1", "V2", "V3", "B22", "A24", "E12", "E16", "E18", "B14"];
const PROCESSES: &[&str] = &["V5", "V6", "B7", "B6", "B20", "A14"];
const NETWORK: &[&str] = &["G1", "G27", "B11", "B12", "C14"];
const LIMITS: &[&str] = &["D1", "D2", "D4", "D7", "V10"];
const CALLS: &[&str] =
    &["B9", "B10", "C7", "V7", "C8", "C11", "V8", "C9", "C1", "B15", "C10", "C19", "B16", "B18", "V9", "C20"];
const RIGHTS: &[&str] = &["C16", "C17", "E25", "B9"];

const LINES: &[Line] = &[
    (ESCAPE, "9.3-1", "Path validation prevents traversal", PATHS),
    (ESCAPE, "9.3-2", "Symlinks are resolved and validated", LINKS),
    (ESCAPE, "9.3-3", "Process namespace prevents host visibility", &["V5", "V6", "B7", "A14"]),
    (ESCAPE, "9.3-4", "Network namespace prevents unauthorized access", NETWORK),
    (ESCAPE, "9.3-5", "Seccomp filters block dangerous syscalls", CALLS),
    (ESCAPE, "9.3-6", "Resource limits prevent exhaustion", LIMITS),
    (ESCAPE, "9.3-7", "Capability set is minimized", &["C17"]),
    (ESCAPE, "9.3-8", "Mount namespace prevents escape", &["A14", "C7", "V7", "C8", "V2"]),
    (IMPLEMENTATION, "12.1-1", "All isolation levels are implemented", &["A14", "V13", "V12"]),
    (IMPLEMENTATION, "12.1-2", "Filesystem isolation is enforced", FILES),
    (IMPLEMENTATION, "12.1-3", "Process isolation is enforced", PROCESSES),
    (IMPLEMENTATION, "12.1-4", "Network isolation is enforced", NETWORK),
    (IMPLEMENTATION, "12.1-5", "Resource limits are enforced", LIMITS),
    (IMPLEMENTATION, "12.1-6", "Seccomp filtering is active", &["C21", "C8", "C9"]),
    (IMPLEMENTATION, "12.1-7", "Escape detection is active", &["V11"]),
    (IMPLEMENTATION, "12.1-8", "Audit events are emitted", &["F16"]),
    (SECURITY, "12.2-1", "Path traversal is prevented", PATHS),
    (SECURITY, "12.2-2", "Symlink attacks are prevented", LINKS),
    (SECURITY, "12.2-3", "Process escape is prevented", PROCESSES),
    (SECURITY, "12.2-4", "Network exfiltration is prevented", &["G1", "G27", "B11", "B12", "C12", "C14", "C15"]),
    (SECURITY, "12.2-5", "Privilege escalation is prevented", RIGHTS),
    (SECURITY, "12.2-6", "Resource exhaustion is prevented", LIMITS),
    (SECURITY, "12.2-7", "Dangerous syscalls are blocked", CALLS),
];

/// Every line of the three lists, answered by these checks.
pub(crate) fn answered(checks: &[Check]) -> Vec<Check> {
    LINES.iter().map(|line| answer(line, checks)).collect()
}

/// A line holds where one of its checks shows it and none shows the contrary; those that could not be made are named.
fn answer((group, id, title, by): &Line, checks: &[Check]) -> Check {
    let of = |outcome: Outcome| -> Vec<&str> {
        let found = checks.iter().filter(|check| by.contains(&check.id.as_str()) && check.result == outcome);
        found.map(|check| check.id.as_str()).collect()
    };
    let (held, open, unknown) = (of(Outcome::Contained), of(Outcome::NotContained), of(Outcome::CannotCheck));
    let result = match (open.is_empty(), held.is_empty()) {
        (false, _) => Outcome::NotContained,
        (true, false) => Outcome::Contained,
        (true, true) => Outcome::CannotCheck,
    };
    let why = match result {
        Outcome::NotContained => Some(format!("not contained: {}", open.join(", "))),
        Outcome::CannotCheck => Some(format!("none of {} could be checked here", by.join(", "))),
        Outcome::Contained => None,
    };
    let unknown =
        if unknown.is_empty() { String::new() } else { format!("; not checked here: {}", unknown.join(", ")) };
    let control = if held.is_empty() { ControlResult::NotRun } else { ControlResult::Fell };
    Check {
        id: (*id).to_owned(),
        title: (*title).to_owned(),
        group: (*group).to_owned(),
        required: true,
        result,
        why,
        evidence: format!("contained: {}{unknown}", if held.is_empty() { "none".to_owned() } else { held.join(", ") }),
        control: Control {
            what: "the controls of these checks".to_owned(),
            result: control,
            evidence: format!("{} of {} fell", held.len(), by.len()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    fn check(id: &str, result: Outcome) -> Check {
        let control = Control { what: String::new(), result: ControlResult::Fell, evidence: String::new() };
        let (title, group, evidence) = (String::new(), String::new(), String::new());
        Check { id: id.to_owned(), title, group, required: true, result, why: None, evidence, control }
    }

    #[test]
    fn every_line_is_answered_by_checks_that_exist() {
        assert_eq!(LINES.len(), 8 + 8 + 7);
        for (_, id, _, by) in LINES {
            assert!(!by.is_empty() && by.iter().all(|one| checks::find(one).is_some()), "{id} {by:?}");
        }
    }

    #[test]
    fn a_line_holds_only_where_a_check_shows_it_and_none_the_contrary() {
        use Outcome::{CannotCheck, Contained, NotContained};
        let line = (ESCAPE, "9.3-2", "links", LINKS);
        let result = |outcomes: [Outcome; 3]| {
            let checks: Vec<Check> = LINKS.iter().zip(outcomes).map(|(id, outcome)| check(id, outcome)).collect();
            answer(&line, &checks).result
        };
        assert_eq!(result([Contained, Contained, CannotCheck]), Contained);
        assert_eq!(result([Contained, NotContained, Contained]), NotContained);
        assert_eq!(result([CannotCheck; 3]), CannotCheck);
        assert_eq!(answer(&line, &[]).result, CannotCheck);
    }
}
