//! The report for a terminal. Owns its layout; everything in it was made printable before. Called by `options`.

use std::fmt::Write as _;

use cofferdam_audit::{Stamp, parse_stamp};

use crate::answer::printable;
use crate::report::{ControlResult, Outcome, Report};

pub(crate) fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Contained => "contained",
        Outcome::NotContained => "NOT CONTAINED",
        Outcome::CannotCheck => "cannot be checked here",
    }
}

pub(crate) fn name_of_control(result: ControlResult) -> &'static str {
    match result {
        ControlResult::Fell => "fell",
        ControlResult::Held => "held",
        ControlResult::NotRun => "not run",
    }
}

/// The last line of every form.
pub(crate) fn summary(report: &Report) -> String {
    let summary = &report.summary;
    format!(
        "{} contained, {} not contained, {} cannot be checked here; {} required failed; {:.1} s",
        summary.contained, summary.not_contained, summary.cannot_check, summary.required_failed, summary.seconds
    )
}

/// What `--check` says of a report that is to be believed.
pub(crate) fn checked(report: &Report, key: &str, now: Stamp) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
    line(format!("signed by {key}"));
    line(format!("generated {}, {}", printable(&report.generated), age(&report.generated, now)));
    for fact in report.left_out() {
        line(format!("not a whole run: {}: {}", printable(&fact.name), printable(&fact.value)));
    }
    for fact in report.not_tried() {
        line(format!("{}: {}", printable(&fact.name), printable(&fact.value)));
    }
    let open: Vec<&str> = report.checks.iter().filter(|c| c.result == Outcome::CannotCheck).map(|c| &*c.id).collect();
    if !open.is_empty() {
        line(format!("could not be checked: {}", printable(&open.join(", "))));
    }
    line(summary(report));
    text
}

fn age(generated: &str, now: Stamp) -> String {
    let Some(Stamp(generated)) = parse_stamp(generated) else { return "at no time that can be read".to_owned() };
    let Some(micros) = now.0.checked_sub(generated) else { return "which is in the future of this machine".to_owned() };
    let seconds = micros / 1_000_000;
    let (count, unit) = match seconds {
        0..120 => (seconds, "seconds"),
        120..7_200 => (seconds / 60, "minutes"),
        7_200..172_800 => (seconds / 3_600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{count} {unit} ago")
}

pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    let host = &report.host;
    let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
    line(format!("kernel        {}", host.kernel));
    line(format!("distribution  {} ({}), as {}", host.distribution, host.machine, host.user));
    line(format!("policy        {} ({})", report.policy.source, report.policy.digest));
    for (name, version) in &report.versions {
        line(format!("{name:<13} {version}"));
    }
    line("\nposture".to_owned());
    for fact in &report.posture {
        line(format!("  {}: {}", fact.name, fact.value));
    }
    let mut group = "";
    for check in &report.checks {
        if check.group != group {
            group = &check.group;
            line(format!("\n{group}"));
        }
        let (result, control) = (name_of(check.result), name_of_control(check.control.result));
        line(format!("  {:<7} {result:<22}  {} (control {control})", check.id, check.title));
        if let Some(why) = &check.why {
            line(format!("          {why}"));
        }
    }
    line(format!("\n{}", summary(report)));
    if let Some(signature) = &report.signature {
        line(format!("signed by {} key {}", signature.algorithm, signature.key_id));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Fact, NOT_TRIED, ONLY, SWITCHED_OFF, sample};

    #[test]
    fn a_checked_report_says_its_age_and_what_it_does_not_show() {
        let mut report = sample();
        report.generated = "2026-11-15T08:30:00.000000Z".to_owned();
        let fact = |name: &str| Fact { name: name.to_owned(), value: "filter".to_owned() };
        report.posture.extend([SWITCHED_OFF, ONLY, NOT_TRIED].map(fact));
        let told = |now: &str| checked(&report, "00", parse_stamp(now).expect("a time"));
        let text = told("2026-11-18T08:31");
        for part in ["3 days ago", "run: switched off: filter", "run: checks:", "not tried: filter", "checked: A3\n"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        for (now, age) in
            [("2026-11-15T08:30:07", "7 seconds"), ("2026-11-15T10:29", "119 minutes"), ("2026-11-16", "15 hours")]
        {
            assert!(told(now).contains(&format!(", {age} ago\n")), "{now}");
        }
        assert!(told("2026-11-14").contains("future"));
    }

    #[test]
    fn the_table_says_what_held_what_did_not_and_why() {
        let text = table(&sample());
        for part in [
            "A1      contained",
            "A2      NOT CONTAINED",
            "A3      cannot be checked here",
            "why | <i>",
            "1 required failed",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
