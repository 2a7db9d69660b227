//! Rows about approvals: what an answer is about, who may give it, and in which words.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cofferdam_kernel::socket;
use cofferdam_testkit::{Helper, Person, person};
use cofferdam_wire::protocol::FsRequest;
use cofferdam_wire::{Keep, Reach};

use super::gate::{answering, asking, each_trigger, forget, tell};
use super::launch::{A12, inherit_everything};
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

/// Starts a check whose questions an operator answers, who does `then` with the first; the probe has the last word.
fn with_person(
    trial: &Trial,
    check: &str,
    variant: &[(&str, &str)],
    stdin: Stdio,
    then: impl FnOnce(&mut Person, FsRequest) -> io::Result<()>,
) -> Finding {
    let helper: Helper = trial.start_with(check, variant, stdin);
    let answered = Person::of(&trial.scene).and_then(|mut person| {
        let question = person.question()?;
        then(&mut person, question)
    });
    match (answered, helper.finish()) {
        (Ok(()), Ok(launched)) => trial.answer(&launched),
        (Err(error), Ok(launched)) => Finding::Broken(format!("{error}; {launched:?}")),
        (_, Err(error)) => Finding::Broken(error.to_string()),
    }
}

pub(crate) static F01: Row = Row {
    what: "the file is swapped between question and answer",
    control: "the object that was asked about is held, and given",
    session: asking,
    run: |trial| each_trigger(trial, |variant| swapped(trial, variant)),
    ..ROW
};

fn swapped(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    let file = trial.scene.write("outside/notes/a", "shown");
    tell(&trial.scene, "unknown", &file);
    let swap = || {
        let moved = fs::rename(&file, trial.scene.outside().join("notes/aside"));
        trial.scene.write("outside/notes/a", "swapped");
        moved
    };
    if trial.walls == Walls::Standing {
        return with_person(trial, "read-later", variant, Stdio::null(), |person, question| {
            swap()?;
            person.allow(question.id, Reach::File, Keep::Session)
        });
    }
    // A path that was looked at, and is opened by its name afterwards.
    trial.scene.write(trial.project().join("by-name"), "");
    let helper = trial.start_with("read-later", variant, Stdio::null());
    let swapped = swap();
    trial.scene.write(trial.project().join("swapped"), "");
    match (swapped, helper.finish()) {
        (Ok(()), Ok(launched)) => trial.answer(&launched),
        other => Finding::Broken(format!("{other:?}")),
    }
}

fn shell_at(trial: &Trial, name: &str) -> PathBuf {
    let tool = trial.scene.write(Path::new("outside").join(name), "");
    let copied = fs::copy("/bin/sh", &tool);
    assert!(copied.is_ok(), "{copied:?}");
    tool
}

/// An approved program, and something that was not approved.
fn two_things(trial: &Trial, approved: &Path, unknown: &Path) -> Finding {
    tell(&trial.scene, "approved", approved);
    tell(&trial.scene, "unknown", unknown);
    each_trigger(trial, |variant| trial.answer(&trial.launch_in(trial.check(), &trial.project(), variant)))
}

pub(crate) static E07: Row = Row {
    what: "requests that widen what was granted",
    control: "an answer is about the object and the access that were asked about, however the path was written",
    session: |session, place| answering(session, place, "notes/a"),
    run: |trial| {
        let approved = trial.scene.write("outside/notes/a", "approved");
        two_things(trial, &approved, &trial.scene.write("outside/notes/b", "unapproved"))
    },
    ..ROW
};

pub(crate) static F05: Row = Row {
    what: "arguments of an approved program",
    control: "an approval is about a file, and what the program opens is asked apart",
    session: |session, place| answering(session, place, "tools"),
    run: |trial| {
        let tool = shell_at(trial, "tools/tool");
        two_things(trial, &tool, &trial.scene.write("outside/secret/file", "secret\n"))
    },
    ..ROW
};

pub(crate) static F06: Row = Row {
    what: "chains, substitutions and here-documents",
    control: "each start is asked by its file; no command line is ever parsed",
    session: |session, place| answering(session, place, "tools"),
    run: |trial| {
        let tool = shell_at(trial, "tools/tool");
        two_things(trial, &tool, &shell_at(trial, "more/other"))
    },
    ..ROW
};

pub(crate) static F07: Row = Row {
    what: "an environment that was changed by an earlier call",
    control: "the environment is built anew for each session, also for one that asks",
    session: |session, place| answering(session, place, "none"),
    run: |trial| each_trigger(trial, |variant| trial.answer(&trial.launch_in("a12", &trial.project(), variant))),
    environment: A12.environment,
    off: Off::Edit(inherit_everything),
    ..ROW
};

pub(crate) static F08: Row = Row {
    what: "a program of the same name, earlier in PATH",
    control: "an approval is about a file, by its real path and object",
    session: |session, place| answering(session, place, "tools"),
    run: |trial| {
        use std::os::unix::fs::PermissionsExt as _;
        let script = |name: &str, word: &str| {
            let path = trial.scene.write(Path::new("outside").join(name), &format!("#!/bin/sh\necho {word}\n"));
            let made = fs::set_permissions(&path, fs::Permissions::from_mode(0o755));
            assert!(made.is_ok(), "{made:?}");
            path
        };
        let real = script("tools/git", "approved");
        two_things(trial, &real, &script("planted/git", "planted"))
    },
    ..ROW
};

/// Says lines that must not count; with the walls open, one that does. The question is denied in the end.
fn said(trial: &Trial, variant: &[(&str, &str)], lines: fn(u64) -> Vec<String>) -> Finding {
    let file = trial.scene.write("outside/notes/a", "text");
    tell(&trial.scene, "unknown", &file);
    with_person(trial, "read", variant, Stdio::null(), |person, question| {
        if trial.walls == Walls::Open {
            return person.allow(question.id, Reach::File, Keep::Session);
        }
        for line in lines(question.id) {
            person.say_line(format!("{line}\n").as_bytes())?;
            if person.reply()?.is_none() {
                return Err(io::Error::other(format!("taken: {line}")));
            }
        }
        person.deny(question.id)
    })
}

/// Open is the same session, with an answer in the right words: so the words are what counts.
const RIGHT_WORDS: Off = Off::Edit(|_, _| {});

pub(crate) static F09: Row = Row {
    what: "fields that widen an answer",
    control: "a message has the fields that are defined, and no other",
    session: asking,
    run: |trial| {
        each_trigger(trial, |variant| {
            said(trial, variant, |id| {
                ["\"force\":true", "\"bypass\":true", "\"path\":\"/\"", "\"unsandboxed\":true"]
                    .map(|field| {
                        format!(r#"{{"type":"cmd.approve","id":{id},"scope":"file","persist":false,{field}}}"#)
                    })
                    .to_vec()
            })
        })
    },
    off: RIGHT_WORDS,
    ..ROW
};

pub(crate) static F12: Row = Row {
    what: "something like a yes",
    control: "a strict set of words; what is none of them decides nothing",
    session: asking,
    run: |trial| {
        each_trigger(trial, |variant| {
            said(trial, variant, |id| {
                vec![
                    format!(r#"{{"type":"cmd.approve","id":{id},"scope":"file","persist":1}}"#),
                    format!(r#"{{"type":"cmd.approve","id":{id},"scope":"file","persist":"yes"}}"#),
                    format!(r#"{{"type":"cmd.approve","id":{id},"scope":"everything","persist":false}}"#),
                    format!(r#"{{"type":"cmd.approve","id":{id},"scope":true,"persist":true}}"#),
                    format!(r#"{{"type":"cmd.approve","id":"{id}","scope":"file","persist":false}}"#),
                    format!(r#"{{"type":"CMD.APPROVE","id":{id},"scope":"file","persist":false}}"#),
                    format!(r#"{{"type":"cmd.yes","id":{id}}}"#),
                    "true".to_owned(),
                    "1".to_owned(),
                    "yes".to_owned(),
                ]
            })
        })
    },
    off: RIGHT_WORDS,
    ..ROW
};

pub(crate) static F13: Row = Row {
    what: "answers that come late, again or early",
    control: "numbers are used once; an answer to none that is open is dropped",
    session: asking,
    run: |trial| each_trigger(trial, |variant| replayed(trial, variant)),
    off: RIGHT_WORDS,
    ..ROW
};

fn replayed(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    tell(&trial.scene, "approved", &trial.scene.write("outside/notes/a", "text"));
    tell(&trial.scene, "unknown", &trial.scene.write("outside/more/b", "text"));
    with_person(trial, "read-two", variant, Stdio::null(), |person, first| {
        person.allow(first.id, Reach::File, Keep::Session)?;
        person.reply()?;
        let second = person.question()?;
        if trial.walls == Walls::Open {
            return person.allow(second.id, Reach::File, Keep::Session);
        }
        for id in [first.id, second.id + 1, 0, u64::MAX] {
            person.allow(id, Reach::Dir, Keep::Session)?;
            if person.reply()?.is_none() {
                return Err(io::Error::other(format!("an answer to {id} was taken")));
            }
        }
        person.deny(second.id)
    })
}

pub(crate) static F11: Row = Row {
    what: "an answer to the own question",
    control: "the socket is not in the view; who connects from another namespace is refused",
    session: asking,
    run: |trial| each_trigger(trial, |variant| own_answer(trial, variant)),
    off: RIGHT_WORDS,
    ..ROW
};

fn own_answer(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    if let Err(error) = forget(&trial.scene, &["asked", "tried"]) {
        return Finding::Broken(error);
    }
    tell(&trial.scene, "unknown", &trial.scene.write("outside/notes/a", "text"));
    // A descriptor of the directory, as a host program could send it.
    let sessions = person::sessions(&trial.scene);
    let sent = fs::create_dir_all(&sessions).and_then(|()| fs::File::open(&sessions)).and_then(|directory| {
        let (ours, theirs) = socket::pair()?;
        socket::send(ours.as_fd(), b"directory", Some(directory.as_fd()))?;
        Ok((ours, theirs))
    });
    let Ok((_ours, theirs)) = sent else { return Finding::Broken("no directory of sessions".to_owned()) };
    with_person(trial, "f11", variant, theirs.into(), |person, question| {
        trial.scene.write(trial.project().join("session"), &person.session);
        trial.scene.write(trial.project().join("asked"), "");
        let tried = trial.project().join("tried");
        person::until(Duration::from_secs(20), || tried.exists().then_some(()))?;
        // From outside it is heard.
        match trial.walls {
            Walls::Open => person.allow(question.id, Reach::File, Keep::Session),
            Walls::Standing => person.deny(question.id),
        }
    })
}
