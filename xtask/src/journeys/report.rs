//! What the walks found: each row beside its targets, as a table or as one JSON object. Owns the targets and the words; measures nothing.
//! Filled by `journeys`.

use serde::Serialize;
use serde_json::{Value, json};

use crate::journeys::others::Compared;
use crate::journeys::walk::{Figures, Row};

/// Of the JSON object: a field that changes its meaning makes another one.
const VERSION: u32 = 1;
/// Longer than this without a byte of output is a silent wait.
const SILENCE: f64 = 3.0;
/// What the same job outside may be exceeded by before its silence is the sandbox's: machines are shared.
const AS_OUTSIDE: f64 = 1.5;
/// What a run is not given is refused, with the flag that helps, in so many seconds.
const REFUSAL: f64 = 3.0;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Value,
    pub(crate) rows: Vec<Row>,
    pub(crate) compared: Vec<Compared>,
    /// What was not walked, and why.
    pub(crate) skipped: Vec<String>,
}

impl Report {
    /// What a row misses, in words; of questions the whole job's are counted.
    fn missed(&self, row: &Row) -> Vec<String> {
        let mut missed = Vec::new();
        let runs = [("first", &row.first), ("second", &row.second), ("after setup", &row.after_setup)];
        for (when, figures) in runs {
            if let Some(failure) = &figures.failure {
                missed.push(format!("{when}: does not work ({failure})"));
            } else if figures.attempts > 1 {
                missed.push(format!("{when}: {} attempts", figures.attempts));
            }
            if figures.silent > SILENCE && figures.silent > row.outside.silent * AS_OUTSIDE {
                missed.push(format!("{when}: silent for {:.1} s", figures.silent));
            }
        }
        let asked: usize =
            self.rows.iter().filter(|other| other.job == row.job).map(|other| other.first.questions.len()).sum();
        if asked > 1 && !row.first.questions.is_empty() {
            missed.push(format!("first: {asked} questions for {}", row.job));
        }
        for (when, figures) in &runs[1..] {
            if !figures.questions.is_empty() {
                missed.push(format!("{when}: {} questions", figures.questions.len()));
            }
        }
        let alone = &row.unattended;
        if !alone.worked {
            // What a program does after it was refused is its own: pip tries five times.
            match alone.help_after {
                None => missed.push("unattended: no flag is named".to_owned()),
                Some(after) if after > REFUSAL => missed.push(format!("unattended: refused after {after:.1} s")),
                Some(_) => {}
            }
        }
        missed
    }

    pub(crate) fn all_missed(&self) -> Vec<String> {
        let of = |row: &Row| {
            self.missed(row).into_iter().map(|missed| format!("{}: {missed}", row.name)).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of).collect()
    }

    pub(crate) fn json(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let mut value = json!(row);
            value["missed"] = json!(self.missed(row));
            value
        });
        json!({
            "version": VERSION,
            "machine": self.machine,
            "rows": rows.collect::<Vec<_>>(),
            "compared": self.compared,
            "skipped": self.skipped,
            "pass": self.all_missed().is_empty(),
        })
        .to_string()
    }

    /// In Markdown, so that it can be kept in a guide.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![
            "|journey|outside: s, silent|first: attempts, questions, s, silent|second: questions, s, silent|after setup: attempts, questions, s, silent|no terminal|targets|".to_owned(),
            "|-|-|-|-|-|-|-|".to_owned(),
        ];
        for row in &self.rows {
            let missed = self.missed(row);
            let verdict =
                if missed.is_empty() { "met".to_owned() } else { format!("**not met**: {}", missed.join("; ")) };
            lines.push(format!(
                "|{}|{}, {}|{}|{}, {}, {}|{}|{}|{verdict}|",
                row.name,
                seconds(row.outside.seconds),
                seconds(row.outside.silent),
                whole(&row.first),
                row.second.questions.len(),
                seconds(row.second.seconds),
                seconds(row.second.silent),
                whole(&row.after_setup),
                self.unattended(row),
            ));
        }
        lines.extend(self.comparison());
        lines.extend(self.skipped.iter().map(|skipped| format!("\nskipped: {skipped}")));
        lines.join("\n")
    }

    #[expect(clippy::unused_self, reason = "reads as what the report says")]
    fn unattended(&self, row: &Row) -> String {
        let alone = &row.unattended;
        match (alone.worked, alone.help_after) {
            (true, _) => format!("works, {}", seconds(alone.seconds)),
            (false, Some(after)) => {
                format!("flag named after {}, ended after {}", seconds(after), seconds(alone.seconds))
            }
            (false, None) => format!("fails after {}", seconds(alone.seconds)),
        }
    }

    fn comparison(&self) -> Vec<String> {
        if self.compared.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![
            String::new(),
            "|journey|with|worked at the first attempt|s|silent|key readable|other project readable|".to_owned(),
            "|-|-|-|-|-|-|-|".to_owned(),
        ];
        let yes = |it: bool| if it { "yes" } else { "no" };
        for one in &self.compared {
            let worked = one.failure.as_ref().map_or("yes".to_owned(), |failure| format!("no: {failure}"));
            let (took, silent) = (seconds(one.seconds), seconds(one.silent));
            let (key, other) = (yes(one.reads_key), yes(one.reads_other_project));
            lines.push(format!("|{}|{}|{worked}|{took}|{silent}|{key}|{other}|", one.name, one.with));
        }
        lines
    }
}

fn whole(figures: &Figures) -> String {
    let (attempts, asked) = (figures.attempts, figures.questions.len());
    format!("{attempts}, {asked}, {}, {}", seconds(figures.seconds), seconds(figures.silent))
}

fn seconds(time: f64) -> String {
    format!("{time:.1}")
}
