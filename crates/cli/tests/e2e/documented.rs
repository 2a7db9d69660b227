//! What README.md and docs/guides tell a reader to type, typed at a terminal, and what comes compared with what they say. The documents
//! are read, so a command without a row in `documented/*.toml` fails, and a row whose command is gone; `cargo` commands of guides, which are
//! for developers of this repository, are left out, and so is inline code. What cannot run here is printed with its reason and counted.

mod markdown;
mod table;
mod walk;

use std::path::PathBuf;

use markdown::Line;
use table::{Row, Section, Table};
use walk::Terminal;

/// Commands that cannot run here, at most.
const MOST_NOT_RUN: usize = 17;

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by the runner")).join("../..")
}

/// The file with the rows of a document: `docs/guides/setup.md` has `setup.toml`.
fn table_path(name: &str) -> PathBuf {
    let stem = name.rsplit('/').next().and_then(|file| file.strip_suffix(".md")).expect("a document");
    root().join("crates/cli/tests/e2e/documented").join(format!("{stem}.toml"))
}

fn document(name: &str) -> Vec<Line> {
    let path = root().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let for_developers = |line: &Line| line.text.starts_with("cargo ") && name != "README.md";
    markdown::lines(&text).into_iter().filter(|line| !for_developers(line)).collect()
}

fn table(name: &str) -> Vec<Section> {
    let path = table_path(name);
    let Ok(text) = std::fs::read_to_string(&path) else { return Vec::new() };
    let table: Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    table.section
}

fn is_about(row: &Row, line: &Line) -> bool {
    match &row.shown {
        Some(beginning) => line.is_message && line.text.starts_with(beginning),
        None => !line.is_message && row.run.as_ref() == Some(&line.text),
    }
}

fn rows<'a>(sections: &'a [Section], line: &'a Line) -> impl Iterator<Item = &'a Row> {
    let section = sections.iter().filter(|section| section.heading == line.section);
    section.flat_map(|section| &section.rows).filter(|row| is_about(row, line))
}

/// Lines without a row, rows without a line, and remarks that are not those of the rows.
fn differences(name: &str, lines: &[Line], sections: &[Section]) -> Vec<String> {
    let mut found = Vec::new();
    let table = table_path(name);
    let table = table.file_name().expect("it has a name").display();
    for line in lines {
        let of_line: Vec<&Row> = rows(sections, line).collect();
        if of_line.is_empty() {
            let row = if line.is_message {
                "{ shown = 'BEGINNING', typed = 'COMMAND' },"
            } else {
                "{ run = 'COMMAND', says = [...] },"
            };
            found.push(format!(
                "{name}:{}: `{}` is not tested: add a line `{row}` to crates/cli/tests/e2e/documented/{table}, below `[[section]]`, \
                 `heading = '{}'`, `rows = [`; what is no command goes into a fence with its language (```text)",
                line.number, line.text, line.section
            ));
        }
        // A README's remarks are claims: each row says which one it checks.
        if name == "README.md" && of_line.iter().any(|row| row.remark != line.remark) {
            found.push(format!(
                "{name}:{}: the remark is not the one that the row of `{}` checks",
                line.number, line.text
            ));
        }
    }
    for section in sections {
        for row in &section.rows {
            if !lines.iter().any(|line| line.section == section.heading && is_about(row, line)) {
                found.push(format!(
                    "{name} has no `{}` below `{}` any more: remove the row from {table}",
                    row.line(),
                    section.heading
                ));
            }
        }
    }
    found
}

/// Types all of a document.
#[track_caller]
fn walk(name: &str) {
    let lines = document(name);
    let mut wrong = Vec::new();
    for section in table(name) {
        let Some(mut terminal) = Terminal::open(section.start) else { return };
        let lines = lines.iter().filter(|line| line.section == section.heading);
        for (line, row) in
            lines.flat_map(|line| section.rows.iter().filter(|row| is_about(row, line)).map(move |row| (line, row)))
        {
            if let Some(reason) = &row.not_here {
                println!("not run: `{}`: {reason}", line.text);
            } else if let Some(missing) = row.needs.iter().find(|program| crate::support::which(program).is_none()) {
                println!("skipped: `{missing}` is not installed, for `{}`", line.text);
            } else if let Err(why) = terminal.enter(row, line) {
                wrong.push(format!("{name}:{}: {why}", line.number));
            }
        }
        terminal.close();
    }
    assert!(wrong.is_empty(), "{}\n", wrong.join("\n\n"));
}

/// Each document, and the test that types it.
macro_rules! documents {
    ($($test:ident $name:literal,)*) => {
        const DOCUMENTS: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                walk($name);
            }
        )*
    };
}

documents! {
    documented_agents "docs/guides/agents.md",
    documented_approvals "docs/guides/approvals.md",
    documented_audit "docs/guides/audit.md",
    documented_benchmarks "docs/guides/benchmarks.md",
    documented_credentials "docs/guides/credentials.md",
    documented_install "docs/guides/install.md",
    documented_learn "docs/guides/learn.md",
    documented_network "docs/guides/network.md",
    documented_policy "docs/guides/policy.md",
    documented_review "docs/guides/review.md",
    documented_sessions "docs/guides/sessions.md",
    documented_setup "docs/guides/setup.md",
    documented_troubleshooting "docs/guides/troubleshooting.md",
    documented_uninstall "docs/guides/uninstall.md",
    documented_readme "README.md",
    documented_verify "docs/guides/verify.md",
}

#[test]
fn documented_commands_have_rows_and_rows_have_commands() {
    let mut wrong = Vec::new();
    let (mut all, mut not_run) = (0, 0);
    let guides = root().join("docs/guides").read_dir().expect("there are guides");
    let guides = guides.map(|entry| format!("docs/guides/{}", entry.expect("an entry").file_name().display()));
    for name in guides.chain(["README.md".to_owned()]) {
        let (lines, sections) = (document(&name), table(&name));
        wrong.extend(differences(&name, &lines, &sections));
        if !sections.is_empty() && !DOCUMENTS.contains(&name.as_str()) {
            wrong.push(format!(
                "{name} has rows and no test: add it to `documents!` in crates/cli/tests/e2e/documented.rs"
            ));
        }
        let rows = sections.iter().flat_map(|section| &section.rows);
        all += rows.clone().count();
        not_run += rows.filter(|row| row.not_here.is_some()).count();
    }
    let gone = DOCUMENTS.iter().filter(|name| !root().join(name).exists());
    wrong.extend(gone.map(|name| format!("{name} is not there any more")));
    assert!(wrong.is_empty(), "{}\n", wrong.join("\n"));
    println!("{all} commands and messages, {not_run} of which cannot run here");
    assert!(not_run <= MOST_NOT_RUN, "{not_run} commands are not run: more than {MOST_NOT_RUN}");
}
