//! What two trials mean. Owns the rule of the negative control: a check that is contained with its wall away proves nothing here.
//! Called by `verification` for each check.

use crate::answer::{Answer, printable};
use crate::errand::Walls;
use crate::report::{Check, Control, ControlResult, Fact, Outcome};
use crate::spec::Spec;
use crate::trial::{Ground, trial};

/// A check with what else was learned on the way.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) check: Check,
    /// There was no answer with the walls standing: a wall of which that is all one knows is not shown to hold.
    pub(crate) is_broken: bool,
    pub(crate) posture: Vec<Fact>,
    pub(crate) not_tried: Vec<String>,
}

pub(crate) fn judge(ground: &Ground, spec: &Spec) -> Judged {
    let standing = trial(ground, spec, Walls::Standing);
    let what = spec.away.words(spec.wall);
    let not_run =
        |evidence: &str| Control { what: what.clone(), result: ControlResult::NotRun, evidence: evidence.to_owned() };
    let unasked = (spec.unasked)(&standing.launched).filter(|_| standing.launched.end.is_some());
    let is_broken = matches!(standing.answer, Answer::Unclear(_)) && unasked.is_none();
    let (result, why, evidence, control) = match (unasked, standing.answer) {
        (Some(why), answer) => {
            let (Answer::Reached(text) | Answer::Refused(text) | Answer::Unclear(text)) = answer;
            (Outcome::CannotCheck, Some(why), text, not_run("the policy has no such wall"))
        }
        (None, Answer::Unclear(why)) => {
            (Outcome::CannotCheck, Some(why), String::new(), not_run("there was no answer to compare with"))
        }
        (None, Answer::Reached(text)) => {
            (Outcome::NotContained, Some(text.clone()), text, not_run("the probe got there with the walls standing"))
        }
        (None, Answer::Refused(text)) => {
            let (result, evidence) = match trial(ground, spec, Walls::Away).answer {
                Answer::Reached(text) => (ControlResult::Fell, text),
                Answer::Refused(text) => (ControlResult::Held, text),
                Answer::Unclear(text) => (ControlResult::NotRun, text),
            };
            let (outcome, why) = match result {
                ControlResult::Fell => (Outcome::Contained, None),
                ControlResult::Held => {
                    let why = format!("the probe does not get there without the wall either: {evidence}");
                    (Outcome::CannotCheck, Some(printable(&why)))
                }
                ControlResult::NotRun => {
                    (Outcome::CannotCheck, Some(printable(&format!("the control gave no answer: {evidence}"))))
                }
            };
            (outcome, why, text, Control { what, result, evidence })
        }
    };
    let check = Check {
        id: spec.id.to_owned(),
        title: spec.title.to_owned(),
        group: spec.group.to_owned(),
        required: spec.required,
        result,
        why,
        evidence,
        control,
    };
    Judged { check, is_broken, posture: standing.launched.posture, not_tried: standing.launched.not_tried }
}
