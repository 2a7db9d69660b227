//! Rows about the gate's walls: a path that changes under a call, the processes that ask and mount, floods of questions.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use cofferdam_policy::Access;
use cofferdam_supervisor::Decider;
use cofferdam_testkit::{Launched, Place, Session, person, policy_with};
use cofferdam_wire::{Keep, Reach, Verdict};

use super::launch::is_variant;
use super::rule;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

const VARIANT: &str = "COFFERDAM_TEST_VARIANT";

/// A session that asks, by the trigger that the variant names.
pub(super) fn asking(session: &mut Session, place: &Place) {
    session.policy = policy_with(&[("--mode", "dynamic"), ("--on-unknown", "ask")]);
    session.without_fuse = is_variant("calls");
    rule(&mut session.policy, &place.probe(), Access::Read);
}

/// The same, with questions answered here: what lies at or below `approved` is given, the rest is denied for good.
pub(super) fn answering(session: &mut Session, place: &Place, approved: &str) {
    asking(session, place);
    session.policy.unknown.per_minute.value = 100_000;
    let approved = place.outside().join(approved);
    session.decider = Some(Decider(Rc::new(move |question| {
        Some(if question.subject.path().is_some_and(|path| path.starts_with(&approved)) {
            Verdict::Allow { reach: Reach::File, keep: Keep::Session }
        } else {
            Verdict::Deny { reach: Reach::File, keep: Keep::Session }
        })
    })));
}

/// A trial once for each trigger that this machine has; with the walls open once.
pub(super) fn each_trigger(trial: &Trial, run: impl Fn(&[(&str, &str)]) -> Finding) -> Finding {
    if trial.walls == Walls::Open {
        return run(&[(VARIANT, "calls")]);
    }
    let named = |trigger: &str| match run(&[(VARIANT, trigger)]) {
        Finding::Contained(how) => Finding::Contained(format!("{trigger}: {how}")),
        Finding::Open(how) => Finding::Open(format!("{trigger}: {how}")),
        other => other,
    };
    let has_device = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if has_device { named("fuse").and_then(|| named("calls")) } else { named("calls") }
}

/// Forgets the marks of the trigger before.
pub(super) fn forget(place: &Place, marks: &[&str]) -> Result<(), String> {
    for mark in marks {
        match fs::remove_file(place.project().join(mark)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn tell(place: &Place, name: &str, path: &Path) {
    place.write(place.project().join(name), &path.to_string_lossy());
}

pub(crate) static C05: Row = Row {
    what: "a path that changes between the look and the call",
    control: "mounts decide; what a call says is only used to know what to ask",
    session: |session, place| answering(session, place, "pair/a"),
    run: |trial| {
        trial.scene.write("outside/pair/a", "approved");
        trial.scene.write("outside/pair/b", "unapproved");
        let is_guest = std::env::var_os("COFFERDAM_TEST_GUEST").is_some();
        // A processor in software takes minutes for what a real one does in seconds.
        let wanted = if is_guest { "100000 1000" } else { "1000000 20000" };
        trial.scene.write(trial.project().join("wanted"), wanted);
        let check = if trial.walls == Walls::Standing { "c05" } else { "c05-open" };
        each_trigger(trial, |variant| trial.answer(&trial.launch_in(check, &trial.project(), variant)))
    },
    ..ROW
};

pub(crate) static B07_GATE: Row = Row {
    what: "who asks and who mounts",
    control: "own pid namespace, own /proc; no descriptor of the gate is handed in",
    session: |session, place| answering(session, place, "asked"),
    run: |trial| {
        let unknown = trial.scene.write("outside/asked", "text");
        tell(&trial.scene, "unknown", &unknown);
        each_trigger(trial, |variant| look_for_the_gate(trial, variant))
    },
    ..ROW
};

fn look_for_the_gate(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    if let Err(error) = forget(&trial.scene, &["ready", "told"]) {
        return Finding::Broken(error);
    }
    let mut helper = trial.start_with("b07-gate", variant, Stdio::null());
    let supervisor = helper.child.id();
    let ready = helper.wait_for(&trial.project().join("ready"), Duration::from_secs(20));
    // With the walls open no broker mounts, and the process that started the probe stands for both.
    let broker = person::broker_of(supervisor).filter(|_| trial.walls == Walls::Standing);
    let broker = if trial.walls == Walls::Open { Some(supervisor) } else { broker };
    let (Ok(true), Some(broker)) = (ready, broker) else {
        return Finding::Broken(format!("nobody mounts: {:?}", helper.finish()));
    };
    for (name, pid) in [("supervisor", supervisor), ("broker", broker)] {
        trial.scene.write(trial.project().join(name), &pid.to_string());
    }
    trial.scene.write(trial.project().join("told"), "");
    helper.finish().map_or_else(|error| Finding::Broken(error.to_string()), |launched| trial.answer(&launched))
}

const PER_MINUTE: usize = 20;

fn flooding(session: &mut Session, place: &Place) {
    answering(session, place, "");
    session.policy.unknown.per_minute.value = u32::try_from(PER_MINUTE).unwrap_or(0);
    let counter = place.root().join("counted");
    session.decider = Some(Decider(Rc::new(move |_| {
        let text = fs::read_to_string(&counter).unwrap_or_default();
        let written = fs::write(&counter, format!("{text}."));
        Some(written.map_or(Verdict::DENY_ONCE, |()| Verdict::Deny { reach: Reach::File, keep: Keep::Once }))
    })));
}

/// A session that asks about two hundred directories, and another one beside it.
fn flood(trial: &Trial, variant: &[(&str, &str)]) -> Result<(usize, Finding), String> {
    for n in 0..200 {
        trial.scene.write(format!("outside/{n}/file"), "text");
    }
    trial.scene.write("counted", "");
    let helper = trial.start_with("d10-questions", variant, Stdio::null());
    let neighbour = trial.neighbour();
    let launched: Launched = helper.finish().map_err(|error| error.to_string())?;
    let asked = fs::read_to_string(trial.scene.root().join("counted")).unwrap_or_default().len();
    let finding = trial.answer(&launched).and_then(|| match neighbour {
        Ok(took) => Finding::Contained(format!("a neighbour ran in {} ms", took.as_millis())),
        Err(why) => Finding::Open(format!("a neighbour was not served: {why}")),
    });
    Ok((asked, finding))
}

fn few_questions(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    match flood(trial, variant) {
        Ok((asked, _)) if asked > PER_MINUTE => Finding::Open(format!("{asked} questions")),
        Ok((asked, finding)) => Finding::Contained(format!("{asked} questions")).and_then(|| finding),
        Err(error) => Finding::Broken(error),
    }
}

const NO_BUDGET: Off = Off::Edit(|plan, _| {
    if let Some(gate) = &mut plan.gate {
        gate.per_minute = u32::MAX;
    }
});

pub(crate) static D10_QUESTIONS: Row = Row {
    what: "a flood of questions",
    control: "a budget for each minute; past it everything is denied unasked",
    session: flooding,
    run: |trial| each_trigger(trial, |variant| few_questions(trial, variant)),
    off: NO_BUDGET,
    ..ROW
};

pub(crate) static F14: Row = Row {
    what: "so many questions that somebody says yes to all",
    control: "a budget, and one record for everything past it",
    session: flooding,
    run: |trial| {
        few_questions(trial, &[(VARIANT, "calls")]).and_then(|| {
            match super::records::lines_with(&trial.scene, "\"questions\"") {
                1 => Finding::Contained("one summary".to_owned()),
                count => Finding::Open(format!("{count} summaries")),
            }
        })
    },
    off: NO_BUDGET,
    ..ROW
};
