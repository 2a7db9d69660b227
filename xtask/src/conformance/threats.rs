//! The threats of the agent document (R0.29): each stands in docs/threat-model.md with rows of the corpus and tests that exist. Owns
//! reading that table; called by `cargo xtask conformance`.

use crate::conformance::Functions;
use crate::problems::Problems;

pub(super) const THREAT_MODEL: &str = "docs/threat-model.md";
const THREATS: std::ops::RangeInclusive<u32> = 101..=108;
const ANSWER: usize = 4;

pub(super) fn check(model: &str, defined: &Functions, problems: &mut Problems) {
    for id in THREATS.map(|number| format!("T-{number}")) {
        let row = model.lines().find_map(|line| line.strip_prefix(&format!("|{id}|")));
        let Some(answer) = row.and_then(|row| row.split('|').nth(ANSWER - 1)) else {
            problems.add(format!("{THREAT_MODEL} has no row for {id}"));
            continue;
        };
        let mut has_answer = false;
        for part in answer.split([',', ';']).map(str::trim).filter(|part| !part.is_empty()) {
            for name in answers(part) {
                has_answer = true;
                if !defined.values().flatten().any(|function| *function == name || is_row(function, &name)) {
                    problems.add(format!("{id}: `{part}`: there is no test `{name}`"));
                }
            }
        }
        if !has_answer {
            problems.add(format!("{id} is answered by no row and no test"));
        }
    }
}

/// Whether a test is that of a row: `escape_a05` and a word behind it.
fn is_row(function: &str, row: &str) -> bool {
    row.starts_with("escape_") && function.strip_prefix(row).is_some_and(|rest| rest.starts_with('_'))
}

/// What `A5-A8` and a name in backquotes stand for: rows by the beginning of their tests, tests by their name.
fn answers(part: &str) -> Vec<String> {
    if let Some(name) = part.strip_prefix('`') {
        return vec![name.trim_end_matches('`').to_owned()];
    }
    let row = |text: &str| {
        let (letter, number) = text.split_at_checked(1)?;
        Some((letter.to_lowercase(), number.parse::<u32>().ok()?))
    };
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    match (row(first), row(last)) {
        (Some((letter, first)), Some((other, last))) if letter == other && first <= last => {
            (first..=last).map(|number| format!("escape_{letter}{number:02}")).collect()
        }
        _ => vec![part.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::defined;
    use crate::workspace::Workspace;

    fn problems_of(model: &str) -> Vec<String> {
        let functions = ["escape_a05_x", "escape_a06_y", "told"].map(str::to_owned).into();
        let mut problems = Problems::default();
        check(model, &[("p".to_owned(), functions)].into(), &mut problems);
        problems.lines().to_vec()
    }

    fn model(answer: &str) -> String {
        THREATS.map(|number| format!("|T-{number}|what|HIGH|how|{answer}|")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_threat_needs_rows_or_tests_that_exist() {
        assert_eq!(problems_of(&model("A5-A6; `told`")), Vec::<String>::new());
        assert_eq!(problems_of("").len(), 8, "no row");
        assert_eq!(problems_of(&model(" ")).len(), 8, "no answer");
        assert_eq!(problems_of(&model("A5-A7")).len(), 8, "A7 does not exist");
        assert_eq!(problems_of(&model("A5; `untold`")).len(), 8, "no such test");
        assert_eq!(problems_of(&model("by little")).len(), 8, "words are no test");
    }

    #[test]
    fn every_threat_of_the_document_is_answered_by_rows_and_tests_that_exist() {
        let workspace = Workspace::load().expect("the workspace can be read");
        let mut problems = Problems::default();
        let defined = defined(&workspace).expect("the sources can be read");
        check(&workspace.read(THREAT_MODEL).expect("it is there"), &defined, &mut problems);
        assert!(problems.lines().is_empty(), "{}", problems.lines().join("\n"));
    }
}
