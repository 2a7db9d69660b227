//! What a guest left behind, judged. Owns reading results and saying in words what is wrong with them; a result that is
//! missing is a failure. Called when a guest has ended.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::junit::{self, Ran, Status};
use crate::vm::machine::{CONSOLE, End};

/// How much of the console is shown when a guest failed.
const TAIL: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) time: Duration,
    pub(crate) facts: Vec<String>,
    pub(crate) tests: Vec<Ran>,
    /// Why the guest failed; empty when it did not.
    pub(crate) wrong: Vec<String>,
    console: String,
}

impl Outcome {
    pub(crate) fn read(name: &str, dir: &Path, end: &End, time: Duration) -> Outcome {
        let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let console = fs::read(dir.join(CONSOLE)).unwrap_or_default();
        let mut outcome = Outcome { name: name.to_owned(), time, ..Outcome::default() };
        outcome.console = String::from_utf8_lossy(&console).replace('\r', "");
        outcome.facts = text("facts.txt").unwrap_or_default().lines().map(str::to_owned).collect();
        let reports = ["junit.xml", "junit-root.xml"].map(|file| junit::tests(&text(file).unwrap_or_default()));
        outcome.tests = reports.into_iter().flatten().collect();
        outcome.judge(end, text("status").as_deref());
        outcome
    }

    fn judge(&mut self, end: &End, status: Option<&str>) {
        if *end == End::Hung {
            // What it found it could not hand over; the console shows how far it came.
            self.wrong.push(format!("the guest hung: it did not end within {} s", self.time.as_secs()));
            return;
        }
        match status.map(str::trim) {
            None => self.wrong.push("the guest ended without results".to_owned()),
            Some("0") => {}
            Some(code) => self.wrong.push(format!("the guest ended with {code}")),
        }
        let wrong_facts: Vec<_> = self.facts.iter().filter(|fact| !fact.starts_with("ok ")).cloned().collect();
        self.wrong.extend(wrong_facts);
        if self.facts.is_empty() {
            self.wrong.push("the guest did not say what it is".to_owned());
        }
        let failed = self.count(Status::Fail);
        if failed > 0 {
            self.wrong.push(format!("{failed} tests failed"));
        }
        if self.count(Status::Pass) == 0 {
            self.wrong.push("no test passed".to_owned());
        }
    }

    pub(crate) fn count(&self, status: Status) -> usize {
        self.tests.iter().filter(|test| test.status == status).count()
    }

    pub(crate) fn line(&self) -> String {
        let verdict = if self.wrong.is_empty() { "ok" } else { "FAILED" };
        format!(
            "{:<10} {:>6} passed {:>3} failed {:>3} skipped {:>3} facts {:>5} s  {verdict}",
            self.name,
            self.count(Status::Pass),
            self.count(Status::Fail),
            self.count(Status::Skip),
            self.facts.len(),
            self.time.as_secs()
        )
    }

    /// Skipped tests with their reasons; for a guest that failed, why and the end of its console.
    pub(crate) fn details(&self) -> String {
        let mut lines = Vec::new();
        for test in &self.tests {
            if let Some(reason) = &test.reason {
                lines.push(format!("{}: skipped {}: {reason}", self.name, test.name));
            }
        }
        if !self.wrong.is_empty() {
            let console: Vec<_> = self.console.lines().collect();
            lines.push(format!("--- {}: the end of the console", self.name));
            lines.extend(console[console.len().saturating_sub(TAIL)..].iter().map(|line| (*line).to_owned()));
            lines.push("---".to_owned());
            let failed = self.tests.iter().filter(|test| test.status == Status::Fail);
            lines.extend(failed.map(|test| format!("{}: failed {}", self.name, test.name)));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(facts: &[&str], junit: &str, end: &End, status: Option<&str>) -> Vec<String> {
        let mut outcome = Outcome { tests: junit::tests(junit), ..Outcome::default() };
        outcome.facts = facts.iter().map(|&fact| fact.to_owned()).collect();
        outcome.judge(end, status);
        outcome.wrong
    }

    const PASSED: &str = r#"<testcase name="a" classname="p"/>"#;

    #[test]
    fn a_guest_that_is_what_it_claims_and_passed_is_fine() {
        assert_eq!(judged(&["ok kernel: 6.1"], PASSED, &End::Off, Some("0\n")), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_fact_a_hang_and_missing_results_fail() {
        let wrong = judged(&["WRONG kernel: 6.1, expected 6.12.*"], PASSED, &End::Off, Some("1"));
        assert!(wrong.iter().any(|line| line.contains("expected 6.12.*")), "{wrong:?}");
        assert!(judged(&[], "", &End::Hung, None)[0].contains("hung"));
        assert_eq!(judged(&["ok kernel: 6.1"], PASSED, &End::Off, None), ["the guest ended without results"]);
        assert_eq!(judged(&["ok kernel: 6.1"], "", &End::Off, Some("0")), ["no test passed"]);
        assert_eq!(judged(&[], PASSED, &End::Off, Some("0")), ["the guest did not say what it is"]);
    }

    #[test]
    fn a_failed_test_fails_the_guest_whatever_its_status_says() {
        let junit = format!(r#"{PASSED}<testcase name="b" classname="p"><failure type="x">no</failure></testcase>"#);
        assert_eq!(judged(&["ok kernel: 6.1"], &junit, &End::Off, Some("0")), ["1 tests failed"]);
    }
}
