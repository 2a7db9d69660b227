//! What the probe says, on one line of its output. Owns how that line is written and how little of it is believed: it comes out of
//! a sandbox, so it is bounded and made printable before it goes into a report. Written by `probe`, read by `trial`.

use cofferdam_policy::is_unseen;
use serde::{Deserialize, Serialize};

/// Longest line that is read.
const MOST_BYTES: usize = 4096;
/// Most characters of evidence in a report.
const MOST_CHARACTERS: usize = 300;

/// What came of trying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer", content = "evidence", deny_unknown_fields)]
pub(crate) enum Answer {
    Reached(String),
    Refused(String),
    /// It could not be tried.
    Unclear(String),
}

impl Answer {
    /// The last line that is one, if the output has one.
    pub(crate) fn last_of(output: &[u8]) -> Option<Answer> {
        let mut lines = output.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let line = lines.next().filter(|line| line.len() <= MOST_BYTES)?;
        let answer: Answer = serde_json::from_slice(line).ok()?;
        Some(match answer {
            Answer::Reached(text) => Answer::Reached(printable(&text)),
            Answer::Refused(text) => Answer::Refused(printable(&text)),
            Answer::Unclear(text) => Answer::Unclear(printable(&text)),
        })
    }

    pub(crate) fn line(&self) -> String {
        let shortened = match self {
            Answer::Reached(text) => Answer::Reached(printable(text)),
            Answer::Refused(text) => Answer::Refused(printable(text)),
            Answer::Unclear(text) => Answer::Unclear(printable(text)),
        };
        serde_json::to_string(&shortened).unwrap_or_default()
    }
}

/// At most so much text, without characters that do something where they are shown.
pub(crate) fn printable(text: &str) -> String {
    let shown = text.chars().take(MOST_CHARACTERS).map(|c| if is_unseen(c) { '?' } else { c });
    let mut shown: String = shown.collect();
    if text.chars().nth(MOST_CHARACTERS).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_answers() {
        let said = [Answer::Reached("a".to_owned()), Answer::Refused("EPERM".to_owned())].map(|one| one.line());
        assert_eq!(Answer::last_of(said.join("\n").as_bytes()), Some(Answer::Refused("EPERM".to_owned())));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let long = Answer::Refused("x".repeat(100)).line().replace("xxx", &"x".repeat(3000));
        let wrong = ["", "contained", "{\"answer\":\"contained\",\"evidence\":\"\"}", "{}", long.as_str()];
        for output in wrong {
            assert_eq!(Answer::last_of(output.as_bytes()), None, "{output:.60}");
        }
    }

    #[test]
    fn evidence_from_inside_is_short_and_printable() {
        let hostile = format!("{{\"answer\":\"refused\",\"evidence\":\"\\u001b[2J\\u202e{}\"}}", "y".repeat(1000));
        let Some(Answer::Refused(text)) = Answer::last_of(hostile.as_bytes()) else { panic!("it is an answer") };
        assert!(text.chars().count() <= MOST_CHARACTERS + 3, "{}", text.len());
        assert!(text.starts_with("?[2J?y"), "{text}");
        assert_eq!(printable("a\u{e0041}\u{feff}b \u{2013} c"), "a??b \u{2013} c");
    }
}
