//! `gated-launch fuse|calls[,timeout=SECONDS][,per-minute=N][,deny=PATTERN] ANSWERS COMMAND...`: one launch in dynamic mode.
//! Its questions are answered by a file, a line `PREFIX allow|deny file|dir|toolchain once|session` each; the first line
//! whose prefix begins the path counts, and what no line is about is denied. Questions go to stderr. With `-` for a file the
//! session's own socket answers. Ends with the code that `sandbox run` would end with.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use cofferdam_policy::{Access, FileRule, Hold, Origin, PathExpr, Policy, Stand};
use cofferdam_supervisor::Decider;
use cofferdam_testkit::{Session, policy_with};
use cofferdam_wire::{Keep, Question, Reach, Verdict};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [settings, answers, argv @ ..] = arguments.as_slice() else { return ExitCode::from(2) };
    let mut session = Session::of(argv.to_vec());
    session.policy = policy_with(&[("--mode", "dynamic"), ("--on-unknown", "ask")]);
    session.policy.unknown.per_minute.value = 100_000;
    let mut settings = settings.split(',');
    session.without_fuse = settings.next() == Some("calls");
    for setting in settings {
        if change(&mut session.policy, setting).is_none() {
            return ExitCode::from(2);
        }
    }
    if answers != "-" {
        let Ok(answers) = std::fs::read_to_string(answers) else { return ExitCode::from(2) };
        session.decider = Some(Decider(Rc::new(move |question| Some(answer(&answers, question)))));
    }
    let report = session.run(|_| {}, || {});
    if let Some(error) = report.error {
        eprintln!("gated-launch: {error}");
    }
    ExitCode::from(u8::try_from(report.code & 0xff).unwrap_or(u8::MAX))
}

fn change(policy: &mut Policy, setting: &str) -> Option<()> {
    match setting.split_once('=')? {
        ("timeout", seconds) => policy.unknown.timeout.value = Duration::from_secs(seconds.parse().ok()?),
        ("per-minute", number) => policy.unknown.per_minute.value = number.parse().ok()?,
        ("deny", pattern) => policy.files.push(FileRule {
            path: PathExpr::parse(pattern).ok()?,
            access: Access::Deny,
            stand: Stand::Refuse,
            hold: Hold::Nothing,
            only_missing: false,
            optional: true,
            is_final: false,
            reason: "hidden by the test".into(),
            origin: Origin::flag("--test"),
        }),
        _ => return None,
    }
    Some(())
}

fn answer(answers: &str, question: &Question) -> Verdict {
    eprintln!("asked {:?} {}", question.op, question.subject.text());
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let line = answers
        .lines()
        .map(words)
        .find(|words| words.first().is_some_and(|p| question.subject.path().is_some_and(|path| path.starts_with(p))));
    let Some([_, verdict, reach, keep]) = line.as_deref() else { return Verdict::DENY_ONCE };
    let reach = match reach.as_str() {
        "dir" => Reach::Dir,
        "toolchain" => Reach::Toolchain,
        _ => Reach::File,
    };
    let keep = if keep == "once" { Keep::Once } else { Keep::Session };
    if verdict == "allow" { Verdict::Allow { reach, keep } } else { Verdict::Deny { reach, keep } }
}
