//! The report as Markdown. Owns its layout and that no text of a check is markup. Called by `options`.

use std::fmt::Write as _;

use crate::report::Report;
use crate::text::{name_of, name_of_control, summary};

/// Text between two bars.
fn cell(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if "\\|<>*_`[]&#".contains(character) {
            shown.push('\\');
        }
        shown.push(character);
    }
    shown
}

pub(crate) fn page(report: &Report) -> String {
    let mut text = String::from("# sandbox verify\n\n");
    let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
    line(format!("{}\n", summary(report)));
    line("|fact|value|\n|-|-|".to_owned());
    let host = &report.host;
    let facts = [
        ("generated", &report.generated),
        ("kernel", &host.kernel),
        ("distribution", &host.distribution),
        ("machine", &host.machine),
        ("user", &host.user),
        ("policy", &report.policy.source),
        ("policy's digest", &report.policy.digest),
    ];
    let versions = report.versions.iter().map(|(name, version)| (name.as_str(), version));
    let posture = report.posture.iter().map(|fact| (fact.name.as_str(), &fact.value));
    for (name, value) in facts.into_iter().chain(versions).chain(posture) {
        line(format!("|{}|{}|", cell(name), cell(value)));
    }
    line("\n|id|check|group|required|result|evidence|control|\n|-|-|-|-|-|-|-|".to_owned());
    for check in &report.checks {
        let control = &check.control;
        let why = check.why.as_ref().map_or_else(String::new, |why| format!(": {}", cell(why)));
        line(format!(
            "|{}|{}|{}|{}|{}{why}|{}|{} {}: {}|",
            cell(&check.id),
            cell(&check.title),
            cell(&check.group),
            if check.required { "yes" } else { "no" },
            name_of(check.result),
            cell(&check.evidence),
            cell(&control.what),
            name_of_control(control.result),
            cell(&control.evidence),
        ));
    }
    if let Some(signature) = &report.signature {
        line(format!("\nThe JSON form is signed: {} key {}", signature.algorithm, signature.key_id));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn text_of_a_check_is_no_markup() {
        let page = page(&sample());
        assert!(page.contains("a \\`\\|\\` and \\<b\\>"), "{page}");
        assert!(!page.contains("<script>"), "{page}");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("|A")).collect();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 8, "{row}");
        }
    }
}
