//! The report in one sentence. Owns the words and their order of precedence: what did not hold is told before what could not be
//! checked, and that before what held. Counts nothing that the summary has; used by the page's head and top.

use crate::report::{Check, ControlResult, Outcome, Report};

/// How a page or a check is marked, besides its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Good,
    Caution,
    Bad,
}

impl Standing {
    pub(super) fn class(self) -> &'static str {
        match self {
            Standing::Good => "good",
            Standing::Caution => "caution",
            Standing::Bad => "bad",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) standing: Standing,
    pub(super) word: &'static str,
    pub(super) sentence: String,
}

pub(super) fn of(report: &Report) -> Verdict {
    let summary = &report.summary;
    let (failed, open, required) = (summary.not_contained, summary.cannot_check, summary.required_failed);
    let all = report.checks.len();
    let unproven = report.checks.iter().filter(|check| is_unproven(check)).count();
    let verdict = |standing, word, sentence| Verdict { standing, word, sentence };
    let checks = counted(all, "check");
    if all == 0 {
        verdict(Standing::Bad, "Nothing was checked", "this page is evidence of nothing.".to_owned())
    } else if failed > 0 {
        let is_required = |check: &&Check| check.required && check.result == Outcome::NotContained;
        let of_them = report.checks.iter().filter(is_required).count();
        let sentence = format!("{failed} of {checks} did not hold on this host, {of_them} of them required.");
        verdict(Standing::Bad, "Not contained", sentence)
    } else if required > 0 {
        let sentence = format!("{required} required of {checks} could not be shown to hold on this host.");
        verdict(Standing::Bad, "Not shown to be contained", sentence)
    } else if open > 0 || unproven > 0 {
        let held = all - usize::try_from(open).unwrap_or(all);
        let told = |count: usize, words: String| if count > 0 { words } else { String::new() };
        let open = told(all - held, format!(", {open} cannot be made here"));
        let unproven = told(unproven, format!(", and {unproven} without a control that fell"));
        let sentence = format!("{held} of {checks} held on this host, none failed{open}{unproven}.");
        verdict(Standing::Caution, "Contained as far as it could be checked", sentence)
    } else if report.left_out().next().is_some() {
        let sentence = format!("all of {checks} held on this host, but this was not a whole run.");
        verdict(Standing::Caution, "Contained as far as it was checked", sentence)
    } else {
        let sentence = format!("all of {checks} held on this host, and the negative control of each fell.");
        verdict(Standing::Good, "Contained", sentence)
    }
}

/// Whether a check held that may be unable to fail.
pub(super) fn is_unproven(check: &Check) -> bool {
    check.result == Outcome::Contained && check.control.result != ControlResult::Fell
}

pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
