//! Who wanted something, as the operator is told, and what is told without a question. Owns that each path is told once; the
//! processes are `requester`'s. Part of `Gate`.

use std::path::{Path, PathBuf};

use cofferdam_wire::Asker;

use super::{Gate, MOST_LEARNED, MOST_TOLD, News};
use crate::requester::Processes;
use crate::triggers::Refused;

impl Gate {
    /// Who made a connection from this port in the session's network, and the package that it says it works for. `first`
    /// is pid 1 of the session as seen from outside.
    pub fn connected_from(&self, port: u16, first: u32) -> (Asker, Option<String>) {
        let Some(processes) = &self.processes else { return Default::default() };
        let first = if self.plan.trigger == cofferdam_plan::Trigger::Fuse { 1 } else { first };
        let Some(holder) = processes.holder_of(port, first) else { return Default::default() };
        Self::described(processes, holder)
    }

    /// The same of a process by its number outside.
    pub fn known_as(&self, outside: u32) -> (Asker, Option<String>) {
        let Some(processes) = &self.processes else { return Default::default() };
        let is_inside = self.plan.trigger == cofferdam_plan::Trigger::Fuse;
        let Some(process) = (if is_inside { inner_number(outside) } else { Some(outside) }) else {
            return Default::default();
        };
        Self::described(processes, process)
    }

    fn described(processes: &Processes, holder: u32) -> (Asker, Option<String>) {
        let asker = processes.asker(holder);
        let package = std::iter::once(holder)
            .chain(asker.parents.iter().map(|parent| parent.pid))
            .find_map(|process| processes.package(process));
        (asker, package)
    }

    pub(super) fn asker(&self, thread: u32) -> Asker {
        self.processes.as_ref().map(|processes| processes.asker(thread)).unwrap_or_default()
    }

    pub(super) fn is_news(&mut self, path: &Path) -> bool {
        let most = if self.plan.learns { MOST_LEARNED } else { MOST_TOLD };
        self.told.len() < most && self.told.insert(path.to_path_buf())
    }

    pub(super) fn tell_refused(&mut self, refused: Refused) {
        if self.is_news(&refused.path) {
            let asker = self.asker(refused.thread);
            self.news.push(News::Refused { what: refused.what, path: refused.path, asker });
        }
    }

    pub(super) fn tell_hidden(&mut self, path: PathBuf, thread: u32) {
        let ruling = self.rules.ruling(&path);
        let rule = self.rules.rule(ruling).cloned();
        if let Some(rule) = rule.filter(|_| self.is_news(&path)) {
            let asker = self.asker(thread);
            self.news.push(News::Hidden { path, rule: Box::new(rule), asker });
        }
    }
}

/// The number that a process has in its own namespace.
fn inner_number(outside: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{outside}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}
