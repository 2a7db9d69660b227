//! What a check found wrong. Owns the list and its rendering; every subcommand returns it.

use std::fmt;

/// One or more findings, each a line that says what is wrong and where.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    pub(crate) fn one(problem: impl Into<String>) -> Self {
        Problems(vec![problem.into()])
    }

    pub(crate) fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    pub(crate) fn extend(&mut self, more: Problems) {
        self.0.extend(more.0);
    }

    /// `summary` if nothing was found.
    pub(crate) fn or(self, summary: impl Into<String>) -> Result<String, Problems> {
        if self.0.is_empty() { Ok(summary.into()) } else { Err(self) }
    }

    #[cfg(test)]
    pub(crate) fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            writeln!(f, "error: {problem}")?;
        }
        Ok(())
    }
}
