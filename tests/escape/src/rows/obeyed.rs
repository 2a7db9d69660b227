//! Row E27: names that programs of the host obey, beyond git's and those of row E16. Owns both halves: what is obeyed on opening
//! is read-only at the project's root, and what the command makes or changes elsewhere is reported when the session ends.

use super::workspace::{attempt, unprotect};
use crate::row::{Finding, Off, ROW, Row, probe_argv};

pub(crate) static E27: Row = Row {
    what: "names that the host obeys on cd, on opening or when an agent starts",
    control: "read-only mounts on each that exists at the root",
    run: |trial| {
        let files = [
            ".cargo/config.toml",
            "rust-toolchain.toml",
            ".hg/hgrc",
            ".jj/repo/config.toml",
            ".mise.toml",
            ".tool-versions",
            ".kiro/hooks/x",
            ".agents/skills/x",
            "crush.json",
            "opencode.jsonc",
            "any.code-workspace",
            ".mvn/extensions.xml",
            "gradle/wrapper/gradle-wrapper.properties",
            ".lefthook.yml",
            ".lvimrc",
            ".pdbrc",
        ];
        for file in files {
            trial.scene.write(format!("home/project/{file}"), "x");
        }
        let names = files.map(|file| format!("project/{file}"));
        attempt(trial, &names.each_ref().map(String::as_str), &trial.project())
    },
    off: Off::Edit(unprotect),
    ..ROW
};

/// What the command makes, and what it changes.
const MADE: [&str; 6] = [
    "sub/.vscode/tasks.json",
    "sub/.mcp.json",
    "a/b/.claude/settings.json",
    ".envrc",
    "AGENTS.md",
    "b/.cargo/config.toml",
];
const CHANGED: [&str; 2] = ["sub/.bazelrc", ".github/workflows/ci.yml"];

pub(crate) static E27_REPORTED: Row = Row {
    what: "names that the host obeys, made or changed where they are not protected",
    control: "a bounded walk at the end of the session names each",
    argv: |place, check| match check {
        "write" => {
            let write = |name: &&str| format!("mkdir -p $(dirname {name}) && echo x >> {name}");
            let script = MADE.iter().chain(&CHANGED).map(write).collect::<Vec<_>>().join(" && ");
            ["sh", "-c", &format!("{script} && mkdir -p node_modules/x/.vscode")].map(str::to_owned).to_vec()
        }
        check => probe_argv(place, check),
    },
    run: |trial| {
        for name in CHANGED {
            trial.scene.write(format!("home/project/{name}"), "x");
        }
        trial.scene.write("home/project/other/.mcp.json", "{}");
        if let Err(why) = ticks(&trial.scene.home().join("project/other/.mcp.json")) {
            return Finding::Broken(why);
        }
        let launched = trial.launch("write");
        if launched.report.code != 0 {
            return Finding::Broken(format!("{:?} {}", launched.report, launched.stderr.trim()));
        }
        let told: Vec<String> = launched.report.obeyed.iter().map(|path| path.display().to_string()).collect();
        let mut wanted = MADE.iter().chain(&CHANGED);
        match wanted.find(|name| !told.iter().any(|told| name.starts_with(told.as_str()))) {
            Some(name) => Finding::Open(format!("{name} was written without a word")),
            None if told.len() > MADE.len() + CHANGED.len() => Finding::Broken(format!("too much is told: {told:?}")),
            None => Finding::Contained(format!("{} names are told", told.len())),
        }
    },
    off: Off::Bare,
    ..ROW
};

/// Waits until the clock that stamps files has moved on from a file's last change.
fn ticks(file: &std::path::Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let changed = |path: &std::path::Path| {
        path.metadata().map(|stat| (stat.ctime(), stat.ctime_nsec())).map_err(|error| error.to_string())
    };
    let before = changed(file)?;
    let clock = file.with_extension("clock");
    loop {
        std::fs::write(&clock, "").map_err(|error| error.to_string())?;
        if changed(&clock)? > before {
            return std::fs::remove_file(&clock).map_err(|error| error.to_string());
        }
        std::fs::remove_file(&clock).map_err(|error| error.to_string())?;
    }
}
