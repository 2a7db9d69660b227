//! What a bench says: figures, targets and whether they were met, as one JSON object or as a table with the ratios first.
//! Owns the rendering; computes no figure. Filled by the benches.

use serde_json::{Map, Value, json};

use crate::bench::statistics::{Samples, ratio, rounded};

/// Of the JSON object: a field that changes its meaning makes another one.
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    pub(crate) fn met_by(self, value: f64) -> bool {
        match self {
            Limit::AtMost(limit) => value <= limit,
            Limit::AtLeast(limit) => value >= limit,
        }
    }
}

#[derive(Debug)]
struct Judged {
    name: String,
    label: String,
    value: f64,
    limit: Limit,
}

#[derive(Debug)]
pub(crate) struct Report {
    bench: &'static str,
    rounds: usize,
    machine: Value,
    judged: Vec<Judged>,
    figures: Map<String, Value>,
    /// Lines below the ratios: titled blocks of rows.
    context: Vec<String>,
    /// What failed or is absent.
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(bench: &'static str, rounds: usize, machine: Value) -> Self {
        Report {
            bench,
            rounds,
            machine,
            judged: Vec::new(),
            figures: Map::new(),
            context: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A figure that has a target.
    pub(crate) fn judge(&mut self, name: &str, label: &str, value: f64, limit: Limit) {
        self.figure(name, value);
        self.judged.push(Judged { name: name.to_owned(), label: label.to_owned(), value, limit });
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), json!(rounded(value)));
    }

    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    pub(crate) fn section(&mut self, title: &str) {
        self.context.extend([String::new(), title.to_owned()]);
    }

    /// A row of samples, shown in `unit` after dividing by `scale`.
    pub(crate) fn samples(&mut self, name: &str, label: &str, samples: &Samples, unit: &str, scale: f64) {
        let (median, p95) = (samples.median() / scale, samples.percentile(95) / scale);
        self.figure(&format!("{name}_median_{unit}"), median);
        self.figure(&format!("{name}_p95_{unit}"), p95);
        self.row(label, &format!("{median:>9.3} {unit}   p95 {p95:>9.3} {unit}"));
    }

    pub(crate) fn row(&mut self, label: &str, value: &str) {
        self.context.push(format!("  {label:<44} {value}"));
    }

    pub(crate) fn passes(&self) -> bool {
        self.judged.iter().all(|j| j.limit.met_by(j.value))
    }

    /// One line per target that was missed.
    pub(crate) fn missed(&self) -> Vec<String> {
        let missed = self.judged.iter().filter(|j| !j.limit.met_by(j.value));
        missed.map(|j| format!("{}: {:.3}, wanted {}", j.label, j.value, shown(j.limit))).collect()
    }

    pub(crate) fn json(&self) -> String {
        let targets: Map<String, Value> = self
            .judged
            .iter()
            .map(|j| {
                let (bound, limit) = match j.limit {
                    Limit::AtMost(limit) => ("at_most", limit),
                    Limit::AtLeast(limit) => ("at_least", limit),
                };
                (j.name.clone(), json!({ bound: limit, "met": j.limit.met_by(j.value) }))
            })
            .collect();
        json!({
            "version": VERSION,
            "bench": self.bench,
            "rounds": self.rounds,
            "machine": self.machine,
            "figures": self.figures,
            "targets": targets,
            "notes": self.notes,
            "pass": self.passes(),
        })
        .to_string()
    }

    pub(crate) fn table(&self) -> String {
        let mut lines = vec![format!("bench {}, {} rounds", self.bench, self.rounds)];
        lines.extend(self.machine.as_object().into_iter().flatten().map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("  {name:<14} {value}")
        }));
        lines.extend([String::new(), "against the targets".to_owned()]);
        lines.extend(self.judged.iter().map(|j| {
            let verdict = if j.limit.met_by(j.value) { "met" } else { "MISSED" };
            format!("  {:<44} {:>9.3}   {:<10} {verdict}", j.label, j.value, shown(j.limit))
        }));
        lines.extend_from_slice(&self.context);
        if !self.notes.is_empty() {
            lines.extend([String::new(), "what failed or is absent".to_owned()]);
            lines.extend(self.notes.iter().map(|note| format!("  {note}")));
        }
        lines.join("\n")
    }
}

/// How many times slower than `base`, for rows of context.
pub(crate) fn times(samples: &Samples, base: &Samples) -> f64 {
    ratio(samples.median(), base.median())
}

fn shown(limit: Limit) -> String {
    match limit {
        Limit::AtMost(limit) => format!("<= {limit:.2}"),
        Limit::AtLeast(limit) => format!(">= {limit:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("start", 3, json!({ "cores": 2 }));
        report.judge("ratio", "sandbox / bwrap", 0.55, Limit::AtMost(0.60));
        report.judge("rate", "launches", 1.5, Limit::AtLeast(1.8));
        report
    }

    #[test]
    fn one_missed_target_fails_the_whole() {
        assert!(!report().passes());
        assert_eq!(report().missed(), ["launches: 1.500, wanted >= 1.80"]);
    }

    #[test]
    fn json_is_one_line_with_figures_targets_and_pass() {
        let text = report().json();
        assert!(!text.contains('\n'));
        let value: Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(value["figures"]["ratio"], 0.55);
        assert_eq!(value["targets"]["ratio"]["met"], true);
        assert_eq!(value["targets"]["rate"]["at_least"], 1.8);
        assert_eq!(value["pass"], false);
    }

    #[test]
    fn a_target_is_met_at_its_limit() {
        assert!(Limit::AtMost(0.6).met_by(0.6));
        assert!(Limit::AtLeast(1.8).met_by(1.8));
    }
}
