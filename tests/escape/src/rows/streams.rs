//! Row A19: a standard stream as a way out. Owns the streams that a session is started with and the look at them afterwards.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use super::gate::{answering, each_trigger};
use super::launch::is_variant;
use crate::row::{Finding, ROW, Row, Trial, Walls};

pub(crate) static A19: Row = Row {
    what: "a standard stream that leads to the host's files",
    control: "a closed list of what streams may be; files are carried or opened again on a read-only mount",
    session: |session, place| {
        if !is_variant("static") {
            answering(session, place, "none");
        }
    },
    run: |trial| {
        let in_variant = |variant: &[(&str, &str)]| {
            named_file(trial, variant)
                .and_then(|| removed_file(trial, variant))
                .and_then(|| named_pipe(trial, variant))
                .and_then(|| directory(trial, variant))
        };
        in_variant(&[("COFFERDAM_TEST_VARIANT", "static")]).and_then(|| each_trigger(trial, in_variant))
    },
    ..ROW
};

fn started(trial: &Trial, variant: &[(&str, &str)], stdin: io::Result<File>) -> Finding {
    let helper = match stdin {
        Ok(file) => trial.start_with("a19", variant, Stdio::from(file)),
        Err(error) => return Finding::Broken(error.to_string()),
    };
    match helper.finish() {
        Ok(launched) => trial.answer(&launched),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn named_file(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    let tool = trial.scene.write("outside/tool", "text of a tool");
    let mode = |path| fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
    let before = mode(&tool);
    let finding = started(trial, variant, File::open(&tool));
    let is_whole = fs::read_to_string(&tool).is_ok_and(|text| text == "text of a tool");
    match finding {
        Finding::Contained(_) if !is_whole => Finding::Open("the file was changed".to_owned()),
        Finding::Contained(_) if before.ok() != mode(&tool).ok() => Finding::Open("its mode was changed".to_owned()),
        other => other,
    }
}

/// It has no name to open it by.
fn removed_file(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    let path = trial.scene.write("outside/removed", "text of a file without a name");
    let file = File::open(&path).and_then(|file| fs::remove_file(&path).map(|()| file));
    started(trial, variant, file)
}

/// What is written to it from inside would be read by its reader outside.
fn named_pipe(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    use std::io::{Read as _, Write as _};
    let path = trial.scene.outside().join("fifo");
    let made = Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        return Finding::Broken("no fifo".to_owned());
    }
    let mut both = match File::options().read(true).write(true).open(&path) {
        Ok(both) => both,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    let stdin = both.write_all(b"text").and_then(|()| File::open(&path));
    let finding = started(trial, variant, stdin);
    // Never empty, so that reading it does not wait.
    let mut bytes = [0u8; 64];
    let planted = both.write_all(b"|").and_then(|()| both.read(&mut bytes)).map(|count| bytes[..count] != *b"|");
    let removed = fs::remove_file(&path);
    match (finding, planted, removed) {
        (Finding::Contained(_), Ok(true), _) => Finding::Open("the host's pipe was written".to_owned()),
        (finding, Ok(_), Ok(())) => finding,
        (_, planted, removed) => Finding::Broken(format!("{planted:?} {removed:?}")),
    }
}

fn directory(trial: &Trial, variant: &[(&str, &str)]) -> Finding {
    let stdin = match File::open(trial.scene.outside()) {
        Ok(directory) => Stdio::from(directory),
        Err(error) => return Finding::Broken(error.to_string()),
    };
    if trial.walls == Walls::Open {
        return Finding::Open("without walls a directory is a directory".to_owned());
    }
    match trial.start_with("ran", variant, stdin).finish() {
        Ok(launched) => trial.refusal(&launched, &["stdin is a directory"]),
        Err(error) => Finding::Broken(error.to_string()),
    }
}
