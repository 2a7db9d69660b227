//! The report for a terminal. Owns its layout; everything in it was made printable before. Called by `options`.

use std::fmt::Write as _;

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
    use crate::report::sample;

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
