//! Rows about host programs that replace covered names while the workload spins on them. Owns the host's side of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cofferdam_testkit::{Launched, Place};
use cofferdam_wire::End;

use crate::row::{Finding, Off, ROW, Row, Trial};

const PATIENCE: Duration = Duration::from_secs(10);
/// Replacements of the short form.
const CALLS: usize = 300;

pub(crate) static A18: Row = Row {
    what: "a host program replaces covered names of a project that is written directly",
    control: "a keeper stops the session, covers what is there and reports",
    run: |trial| {
        let quiet = one_session(trial, "a18-quiet", CALLS);
        quiet.and_then(|| one_session(trial, "a18-spin", CALLS))
    },
    off: Off::Edit(|plan, _| plan.covers.clear()),
    ..ROW
};

/// What the host does to the names, by turns.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) turn: usize,
}

impl Host {
    /// Each content is another one, so that what was seen can be counted.
    pub(crate) fn replace(&mut self, project: &Path) -> std::io::Result<()> {
        self.turn += 1;
        let text = format!("TOKEN={}\n", self.turn);
        let (secret, spare) = (project.join(".env"), project.join("spare"));
        match self.turn % 8 {
            0 => {
                fs::remove_file(&secret).ok();
                fs::write(&secret, text)
            }
            1 => {
                fs::rename(&secret, project.join("old")).ok();
                fs::write(&secret, text)
            }
            2 => {
                fs::write(&spare, "[core]\n")?;
                fs::rename(&spare, project.join(".git/config"))
            }
            3 => {
                fs::rename(project.join(".git"), project.join("moved"))?;
                fs::rename(project.join("moved"), project.join(".git"))
            }
            4 => {
                fs::remove_dir(project.join(".claude")).ok();
                Ok(())
            }
            _ => {
                fs::write(&spare, text)?;
                fs::rename(&spare, &secret)
            }
        }
    }
}

/// One session beside a host that replaces names, until so many times or until it ends.
fn one_session(trial: &Trial, check: &str, calls: usize) -> Finding {
    let project = trial.project();
    prepare(&trial.scene);
    let mut helper = trial.start(check, Stdio::null());
    if !matches!(helper.wait_for(&project.join("up"), PATIENCE), Ok(true)) {
        return Finding::Broken(format!("the probe did not start: {:?}", helper.finish().map(|it| it.report)));
    }
    let mut host = Host::default();
    while host.turn < calls && matches!(helper.wait(Duration::ZERO), Ok(None)) {
        if let Err(error) = host.replace(&project) {
            return Finding::Broken(format!("the host cannot replace: {error}"));
        }
    }
    fs::write(project.join("stop"), "").unwrap_or_default();
    match helper.finish() {
        Ok(launched) => judge(trial, &launched),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn prepare(scene: &Place) {
    let project = scene.home().join("project");
    for left in ["up", "stop", "seen", "written", "linked", "renamed", "old", "spare"] {
        fs::remove_file(project.join(left)).ok();
    }
    super::repository(scene, "home/project/.git");
    scene.write("home/project/.git/config", "[core]\n");
    scene.write("home/project/.env", "TOKEN=0\n");
}

/// Nothing that was seen is unreported, and nothing is open at the end.
fn judge(trial: &Trial, launched: &Launched) -> Finding {
    let project = trial.project();
    let log = fs::read_to_string(project.join("seen")).unwrap_or_default();
    let seen = log.lines().collect::<BTreeSet<_>>().len();
    let times = |name: &str| {
        let about = launched.report.fallen.iter().filter(|(path, ..)| path.ends_with(name));
        about.map(|(_, times, ..)| *times).sum::<u32>()
    };
    let told = usize::try_from(times(".env")).unwrap_or(usize::MAX);
    let written = project.join("written").exists();
    if seen > told || written && times(".git/config") == 0 {
        return Finding::Open(format!("{seen} contents seen, {told} falls reported; written: {written}"));
    }
    if told == 0 {
        return Finding::Broken("the host replaced nothing that was covered".to_owned());
    }
    let worst = launched.report.fallen.iter().map(|(_, _, _, worst)| *worst).max().unwrap_or(0);
    let words = format!("{told} falls reported, {seen} contents seen, window {:.1} ms at worst", millis(worst));
    match launched.report.end {
        Some(End::CoverFell) => Finding::Contained(format!("{words}; ended")),
        _ => trial.answer(launched).and_then(|| Finding::Contained(words)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a session fit a float")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
