//! Rows about what people read of a session: names in questions, records in the log, approvals by content.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_gate::shown;
use cofferdam_testkit::{Person, Place, program};

use super::gate::{answering, asking, tell};
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

/// The control is how a thing is written down; open is the same session, written down as it comes.
const AS_IT_COMES: Off = Off::Edit(|_, _| {});

/// A file of this name is asked about: what a person reads of it.
fn shown_name(trial: &Trial, name: &str, is_harmless: impl Fn(&str) -> bool) -> Finding {
    if program("sandbox").is_none() {
        return Finding::Skipped("`sandbox` was not built".to_owned());
    }
    let file = trial.scene.write(Path::new("outside/names").join(name), "text");
    tell(&trial.scene, "unknown", &file);
    let helper = trial.start("read", Stdio::null());
    let read = Person::of(&trial.scene).and_then(|mut person| {
        let question = person.question()?;
        let texts = match trial.walls {
            Walls::Open => vec![question.path.clone()],
            Walls::Standing => vec![shown(question.path.as_bytes()), printed(trial, &["questions"])?],
        };
        person.deny(question.id)?;
        Ok(texts)
    });
    if let Err(error) = helper.finish() {
        return Finding::Broken(error.to_string());
    }
    let texts = read.and_then(|mut texts| {
        if trial.walls == Walls::Standing {
            texts.push(printed(trial, &["logs", "last"])?);
        }
        Ok(texts)
    });
    match texts {
        Ok(texts) => match texts.iter().find(|text| !is_printable(text) || !is_harmless(text)) {
            Some(text) => Finding::Open(format!("shown as {:?}", short(text))),
            None => Finding::Contained(format!("{} places show it as {}", texts.len(), short(&texts[0]))),
        },
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn short(text: &str) -> &str {
    let from = text.rfind("names/").unwrap_or(0);
    let text = &text[from..];
    text.get(..text.floor_char_boundary(100)).unwrap_or(text)
}

/// What the command prints, where it was built.
fn printed(trial: &Trial, arguments: &[&str]) -> std::io::Result<String> {
    let Some(sandbox) = program("sandbox") else { return Err(std::io::Error::other("`sandbox` was not built")) };
    let mut command = Command::new(sandbox);
    command.args(arguments).current_dir(trial.project()).env_clear().env("HOME", trial.scene.home());
    let output = command.env("LANG", "C.UTF-8").env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

/// Nothing that moves, hides or turns what is on a screen.
fn is_printable(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().all(|c| c == '\n' || !c.is_control() && !turns(c))
}

pub(crate) static F02: Row = Row {
    what: "escape sequences in a name",
    control: "whatever is not plainly visible is written as its number",
    session: asking,
    run: |trial| {
        let name = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31mred\u{8}\u{8}\r";
        // Each place has its notation: `\\u{1b}` or that of JSON.
        let tells = |text: &str, number: &str| {
            text.contains(&format!("u{{{number}}}")) || text.contains(&format!("u00{number}"))
        };
        shown_name(trial, name, move |text| tells(text, "1b") && tells(text, "9b"))
    },
    off: AS_IT_COMES,
    ..ROW
};

pub(crate) static F03: Row = Row {
    what: "text that is turned or invisible",
    control: "shown by its number",
    session: asking,
    run: |trial| {
        let name = "\u{202e}txt.\u{2066}exe\u{200b}\u{feff}";
        shown_name(trial, name, |text| text.contains("u{202e}") && text.contains("u{200b}"))
    },
    off: AS_IT_COMES,
    ..ROW
};

pub(crate) static F04: Row = Row {
    what: "padding that pushes the end off the screen",
    control: "blanks are counted, both ends are shown",
    session: asking,
    run: |trial| {
        let name = format!("readme{}the-end", " ".repeat(200));
        // Who answers must see where the name goes on; the log has the name as it is, to its end.
        let is_whole = |text: &str| text.contains("the-end");
        let is_log = |text: &str| text.contains("FILE_REQUEST");
        shown_name(trial, &name, |text| is_whole(text) && (is_log(text) || !text.contains(&" ".repeat(20))))
    },
    off: AS_IT_COMES,
    ..ROW
};

const WIDENING: &str = "[files]\nwrite = [\"~/data\"]\n";

pub(crate) static F10: Row = Row {
    what: "a project policy that changes after it was approved",
    control: "approved is its content",
    run: |trial| match trust_and_edit(trial) {
        _ if program("sandbox").is_none() => Finding::Skipped("`sandbox` was not built".to_owned()),
        Ok(finding) => finding,
        Err(error) => Finding::Broken(error.to_string()),
    },
    ..ROW
};

fn trust_and_edit(trial: &Trial) -> std::io::Result<Finding> {
    let data = trial.scene.write("home/data/file", "old");
    let policy = trial.scene.write(trial.project().join(".cofferdam/policy.toml"), WIDENING);
    let run = ["run", "--on-unknown", "deny", "--", "sh", "-c", "echo new > ~/data/file"];
    printed(trial, &["trust", "--yes"])?;
    let approved = printed(trial, &run)?;
    if fs::read_to_string(&data)? != "new\n" {
        return Ok(Finding::Broken(format!("what was approved does not count: {approved}")));
    }
    fs::write(&policy, format!("{WIDENING}# one more line\n"))?;
    fs::write(&data, "old")?;
    if trial.walls == Walls::Open {
        printed(trial, &["trust", "--yes"])?;
    }
    let said = printed(trial, &run)?;
    Ok(match fs::read_to_string(&data)?.as_str() {
        "old" if said.contains("sandbox trust") => Finding::Contained("asked for again".to_owned()),
        "old" => Finding::Broken(said),
        _ => Finding::Open("the new content counts".to_owned()),
    })
}

fn log_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            log_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "ndjson") {
            found.push(path);
        }
    }
}

fn state_of(place: &Place) -> PathBuf {
    place.home().join(".local/state/cofferdam")
}

fn lines(place: &Place) -> Vec<String> {
    let mut files = Vec::new();
    log_files(&cofferdam_audit::directory(&state_of(place)), &mut files);
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap_or_default());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<String>>()).collect()
}

/// Records of a place's sessions that have this text in them.
pub(super) fn lines_with(place: &Place, text: &str) -> usize {
    lines(place).iter().filter(|line| line.contains(text)).count()
}

/// A name that looks like two records where no writer frames them.
const FORGED: &str = "x\n{\"event\":\"FILE_ACCESS_GRANTED\",\"forged\":1}";

pub(crate) static F15: Row = Row {
    what: "a record forged by a name",
    control: "each record is one line of JSON, whatever is in it",
    session: |session, place| answering(session, place, "none"),
    run: |trial| {
        let file = trial.scene.write(Path::new("outside").join(FORGED), "text");
        tell(&trial.scene, "unknown", &file);
        let finding = trial.answer(&trial.launch("read"));
        let lines = match trial.walls {
            Walls::Standing => lines(&trial.scene),
            Walls::Open => format!("denied {}", file.display()).lines().map(str::to_owned).collect(),
        };
        let parsed: Vec<serde_json::Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let forged = parsed.iter().filter(|record| record.get("forged").is_some()).count();
        let about = lines.iter().filter(|line| line.contains("forged")).count();
        finding.and_then(|| match (forged, about) {
            (0, 1..) if parsed.len() == lines.len() => {
                Finding::Contained(format!("{about} of {} records name it, none is forged", lines.len()))
            }
            other => Finding::Open(format!("{other:?} forged and naming, {} lines", lines.len())),
        })
    },
    off: AS_IT_COMES,
    ..ROW
};

pub(crate) static F16: Row = Row {
    what: "an edited log",
    control: "a chain of hashes over every record",
    session: |session, place| answering(session, place, "none"),
    run: |trial| {
        tell(&trial.scene, "unknown", &trial.scene.write("outside/notes/a", "text"));
        trial.answer(&trial.launch("read")).and_then(|| match edit_the_log(trial) {
            Ok(finding) => finding,
            Err(error) => Finding::Broken(error),
        })
    },
    off: AS_IT_COMES,
    ..ROW
};

/// Whether a changed and a missing record are noticed; with the walls open by who reads lines only.
fn edit_the_log(trial: &Trial) -> Result<Finding, String> {
    let state = state_of(&trial.scene);
    let mut files = Vec::new();
    log_files(&cofferdam_audit::directory(&state), &mut files);
    let file = files.first().ok_or("no log")?;
    let is_whole = || -> Result<bool, String> {
        if trial.walls == Walls::Open {
            return Ok(lines(&trial.scene).iter().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
        }
        cofferdam_audit::verify(&state).map(|report| report.is_whole()).map_err(|errno| errno.to_string())
    };
    if !is_whole()? {
        return Err("the log is broken as it is".to_owned());
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let without_second: Vec<&str> = text.lines().enumerate().filter(|(n, _)| *n != 1).map(|(_, line)| line).collect();
    for (what, changed) in [
        ("a changed word", text.replacen("\"deny\"", "\"allow\"", 1)),
        ("a missing record", without_second.join("\n") + "\n"),
    ] {
        if changed == text {
            return Err(format!("{what}: nothing to change"));
        }
        fs::write(file, changed).map_err(|error| error.to_string())?;
        if is_whole()? {
            return Ok(Finding::Open(format!("{what} is not noticed")));
        }
    }
    Ok(Finding::Contained("a changed word and a missing record are found".to_owned()))
}
