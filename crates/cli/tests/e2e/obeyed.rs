//! Names that programs of the host obey, in a project that a session writes directly (corpus E27, decision 0035): refused where
//! they are obeyed on opening and exist at the root, and named at the end wherever they were made or changed.

use std::os::unix::fs::MetadataExt as _;

use cofferdam_policy::{ObeyedClass, ObeyedName, obeyed_names};
use rustix::time::{ClockId, clock_gettime};

use crate::support::{Place, Ran, is_root, wait_for};

const MODES: [&str; 2] = ["static", "dynamic"];

/// What every line about them begins with.
const TOLD: &str = "programs on this machine obey";

fn inside(place: &Place, mode: &str, script: &str) -> Ran {
    place.run(&["--mode", mode, "--on-unknown", "deny"], &["bash", "-c", script])
}

/// Waits until the clock that a session's start is read from has moved on: what was written before is then older than the next session.
/// Stamps of files alone do not show it: since Linux 6.13 they run ahead of that clock.
fn settle(place: &Place) {
    place.write("home:clock", "");
    let stat = place.path("home:clock").metadata().expect("it was just written");
    wait_for("the clock of sessions", || {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        ((now.tv_sec, now.tv_nsec) > (stat.ctime(), stat.ctime_nsec())).then_some(())
    });
}

/// A path that the entry is about.
fn example(listed: &ObeyedName) -> String {
    listed.name.replace('*', "any")
}

/// The project's own names: those of repositories are `git_host`'s, and our own policy is read before anything runs.
fn of_projects() -> impl Iterator<Item = ObeyedName> {
    obeyed_names().filter(|listed| !listed.in_git && !listed.only_files && listed.name != ".cofferdam")
}

#[test]
fn escape_e27_each_name_of_the_list_is_refused_or_told() {
    for mode in MODES {
        let place = Place::new();
        for listed in of_projects() {
            place.write(&example(&listed), "before\n");
        }
        settle(&place);
        for class in [ObeyedClass::Opens, ObeyedClass::Runs] {
            let names: Vec<String> =
                of_projects().filter(|listed| listed.class == class).map(|listed| example(&listed)).collect();
            assert!(names.len() > 8, "{class:?}: {names:?}");
            let script = format!("for name in {}; do echo inside >> $name; done 2>/dev/null; true", names.join(" "));
            let ran = inside(&place, mode, &script).code(0);
            for name in &names {
                let is_changed = place.read(name).as_deref() != Some("before\n");
                // What may hold a token is masked, and read-only (decision 0038).
                let is_masked = [".npmrc", ".yarnrc.yml"].contains(&name.as_str());
                assert_eq!(is_changed, class == ObeyedClass::Runs && !is_masked, "{mode}: {name}");
            }
            assert_eq!(ran.err.contains(TOLD), class == ObeyedClass::Runs, "{mode}: {}", ran.err);
        }
    }
}

/// What `--json` says of obeyed files: each with what obeys it.
fn told(ran: &Ran) -> Vec<(String, String)> {
    let object = ran.err.lines().find(|line| line.starts_with('{')).expect("--json prints an object");
    let object: serde_json::Value = serde_json::from_str(object).expect("it is JSON");
    let files = object["obeyed"]["files"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    files.iter().map(|file| (text(&file["path"]), text(&file["why"]))).collect()
}

#[test]
fn escape_e27_what_is_made_or_changed_is_named_at_the_end() {
    let names = [
        ("sub/.vscode/tasks.json", "tasks and settings that an editor"),
        ("sub/.claude/settings.json", "hooks and permissions of an agent"),
        ("a/b/c/.mcp.json", "starts programs for an agent"),
        ("sub/.cargo/config.toml", "names programs that cargo runs"),
        ("new/.git/config", "names programs that git runs"),
        ("new/.git/hooks/post-checkout", "git on the host runs these"),
        ("other/.git", "a repository made inside"),
        ("sub/AGENTS.md", "instructions to an agent"),
        (".github/workflows/ci.yml", "runs with the repository's rights"),
        // Made once, these are protected.
        ("any.code-workspace", "tasks and settings"),
        (".envrc", "direnv runs it"),
        (".idea/workspace.xml", "run configurations"),
    ];
    let write: Vec<String> =
        names.iter().map(|(name, _)| format!("mkdir -p $(dirname {name}); echo x >> {name}")).collect();
    let write = format!("{{ {}; }} 2>/dev/null; true", write.join("; "));
    for mode in MODES {
        let place = Place::new();
        let run = |script: &str| {
            place.run(&["--mode", mode, "--on-unknown", "deny", "--json"], &["bash", "-c", script]).code(0)
        };
        let made = run(&write);
        for (name, why) in names {
            let is_told = |(path, told): &(String, String)| path == name && told.starts_with(why);
            assert!(told(&made).iter().any(is_told), "{mode}: {name} is not in {:?}", told(&made));
        }
        assert!(
            made.err.contains(TOLD) && made.err.contains("a/b/c/.mcp.json (starts programs"),
            "{mode}: {}",
            made.err
        );
        settle(&place);
        // The next session reads it only, and the one after it changes what it can.
        assert_eq!(told(&run("cat $(find . -type f) >/dev/null 2>&1; true")), [], "{mode}");
        let changed: Vec<String> = told(&run(&write)).into_iter().map(|(path, _)| path).collect();
        for (at, (name, _)) in names.iter().enumerate() {
            let is_open = at < names.len() - 3;
            assert_eq!(changed.iter().any(|path| path == name), is_open, "{mode}: {name} in {changed:?}");
        }
    }
}

/// A cover is on a name. A file that an earlier session gave a second one can be written under that.
#[test]
fn escape_e27_a_protected_file_that_is_written_under_another_name_is_told() {
    for mode in MODES {
        let place = Place::new();
        inside(&place, mode, "mkdir .idea; echo before | tee one > two; ln one .mise.toml; ln two .idea/workspace.xml")
            .code(0);
        settle(&place);
        // The control: what is only read is not told.
        let ran = inside(&place, mode, "cat .mise.toml .idea/* > /dev/null; echo no > .mise.toml; true").code(0);
        assert!(!ran.err.contains(TOLD), "{mode}: {}", ran.err);
        let ran = inside(&place, mode, "echo inside > one; echo inside > two; rm two").code(0);
        assert_eq!(place.read(".mise.toml").as_deref(), Some("inside\n"), "{mode}");
        ran.says(&[TOLD, ".mise.toml", ".idea/workspace.xml"]);
    }
}

/// Hooks and settings that are kept with the sources, and linked to from a protected directory.
#[test]
fn escape_e27_what_links_in_protected_directories_lead_to_is_protected() {
    let links = "mkdir -p scripts agents real .claude/hooks && ln -s real tools && echo before | tee scripts/{pc,free} agents/s.json real/x &&
        ln -s ../../scripts/pc .git/hooks/post-checkout && ln -s ../agents/s.json .claude/settings.json &&
        ln -s ../../tools/x .claude/hooks/x && ln -s .. .claude/up && ln -s ../../scripts/new .git/hooks/pre-commit";
    let write = "for name in scripts/pc scripts/free agents/s.json real/x tools/x scripts/new; do echo inside > $name; done 2>/dev/null
        rm -f tools && mkdir tools && echo inside > tools/x; mv scripts moved && mkdir scripts && echo inside > scripts/pc; true";
    let obeyed = [".git/hooks/post-checkout", ".claude/settings.json", ".claude/hooks/x"];
    let Some(control) = Place::with_repository() else { return };
    control.host(&format!("bash -c '{links}'; bash -c '{write}'")).ok();
    for name in obeyed {
        assert_eq!(control.read(name).as_deref(), Some("inside\n"), "{name}");
    }
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host(&format!("bash -c '{links}'")).ok();
        let ran = inside(&place, mode, write).code(0);
        for name in obeyed {
            assert_eq!(place.read(name).as_deref(), Some("before\n"), "{mode}: {name}: {}", ran.err);
        }
        assert_eq!(place.read(".git/hooks/pre-commit"), None, "{mode}: {}", ran.err);
        assert_eq!(place.read("scripts/free").as_deref(), Some("inside\n"), "{mode}: {}", ran.err);
        // More than is looked at: said, and nothing is protected that was not.
        place.host("bash -c 'mkdir .claude/many && touch .claude/many/{1..300}'").ok();
        inside(&place, mode, "true").code(0).says(&[".claude was not looked through to the end"]);
    }
}

/// What a chain of links leads to, also by way of `..`, is held like the name at its beginning.
#[test]
fn escape_e27_a_chain_of_links_that_leads_nowhere_is_kept_to_its_end() {
    let links = "ln -s first .claude && ln -s last first && mkdir sub && ln -s sub/../target .mcp.json";
    let write = "mkdir -p last && echo inside > last/settings.json; rm -f first; echo inside > target; true";
    let control = Place::new();
    control.host(&format!("{links}; {}", write.replace("rm -f first;", ""))).ok();
    assert_eq!(control.read(".claude/settings.json").as_deref(), Some("inside\n"));
    assert_eq!(control.read(".mcp.json").as_deref(), Some("inside\n"));
    for mode in MODES {
        let place = Place::new();
        place.host(links).ok();
        let ran = inside(&place, mode, write).code(0);
        assert_eq!(place.read(".claude/settings.json"), None, "{mode}: {}", ran.err);
        assert!(place.exists("first"), "{mode}: {}", ran.err);
        assert!(!ran.err.contains("changed by a host program"), "{mode}: {}", ran.err);
        assert!(place.read(".mcp.json").is_none() || ran.err.contains(TOLD), "{mode}: {}", ran.err);
    }
}

/// Ways to put something under an obeyed name without writing to it there.
#[test]
fn escape_e27_renames_and_links_are_told() {
    for mode in MODES {
        let place = Place::new();
        place.write("sub/template/tasks.json", "{}");
        place.write("sub/old.json", "{}");
        place.write("kept/settings.json", "{}");
        place
            .host(
                "mkdir linked && ln -s ../kept linked/.vscode && ln -s ../kept linked/.cargo && touch kept/config.toml",
            )
            .ok();
        settle(&place);
        assert_eq!(inside(&place, mode, "true").err, "", "{mode}");
        for (attack, told) in [
            ("mv sub/template sub/.vscode", "sub/.vscode ("),
            ("ln sub/old.json sub/.mcp.json", "sub/.mcp.json ("),
            ("ln -s ../elsewhere sub/.claude", "sub/.claude ("),
            ("echo x >> kept/settings.json", "linked/.vscode/settings.json ("),
            ("echo x >> kept/config.toml", "linked/.cargo/config.toml ("),
            ("touch -d 2001-01-01 sub/.mcp.json", "sub/.mcp.json ("),
            (r"mkdir $'\xff' && echo > $'\xff'/.mcp.json", r"\xff/.mcp.json ("),
        ] {
            inside(&place, mode, attack).says(&[told]).ok();
            settle(&place);
        }
    }
}

/// Neither what the host did before, nor what another session holds, nor what lies among dependencies, nor ordinary work.
#[test]
fn what_no_session_changed_is_not_told() {
    for mode in MODES {
        let place = Place::new();
        for name in
            ["sub/.vscode/tasks.json", "sub/.mcp.json", "CLAUDE.md", "sub/.git/config", ".github/workflows/ci.yml"]
        {
            place.write(name, "x\n");
        }
        settle(&place);
        let work = "echo x > sub/file; mkdir -p sub/deeper .github/other; cat CLAUDE.md sub/.mcp.json";
        assert_eq!(inside(&place, mode, work).err, "", "{mode}");
        let dependencies = "for d in node_modules/x target/debug .venv/lib sub/node_modules/y; do mkdir -p $d/.vscode; echo x > $d/.mcp.json; done";
        assert_eq!(inside(&place, mode, dependencies).err, "", "{mode}");
        let other = place.start(&["--mode", mode], "echo ready; read line");
        assert!(place.exists(".claude"), "{mode}: it is held");
        assert_eq!(inside(&place, mode, "true").err, "", "{mode}");
        other.end();
    }
}

/// The control: where the project is not written directly, nothing of it reaches the host, and nothing is told.
#[test]
fn what_stays_in_an_overlay_is_not_told() {
    for mode in MODES {
        let place = Place::new();
        place.write("sub/file", "x");
        let write = "mkdir sub/.vscode && echo x > sub/.vscode/tasks.json";
        let ran = place.run(&["--mode", mode, "--overlay", "sub"], &["sh", "-c", write]).code(0);
        assert!(!ran.err.contains(TOLD), "{mode}: {}", ran.err);
        assert!(!place.exists("sub/.vscode"), "{mode}");
    }
}

#[test]
fn what_is_told_is_bounded_and_is_in_json_and_in_the_log() {
    for mode in MODES {
        let place = Place::new();
        let many = "for i in $(seq 40); do mkdir s$i; echo x > s$i/.mcp.json; done; echo x > AGENTS.md";
        let ran = place.run(&["--mode", mode, "--json"], &["bash", "-c", many]).code(0);
        let lines: Vec<&str> = ran.err.lines().filter(|line| line.contains(TOLD) && !line.starts_with('{')).collect();
        assert_eq!(lines.len(), 1, "{mode}: {}", ran.err);
        assert!(lines[0].contains(", and 36 more;") && lines[0].len() < 500, "{mode}: {}", lines[0]);
        let object = ran.err.lines().find(|line| line.starts_with('{')).expect("--json prints an object");
        let object: serde_json::Value = serde_json::from_str(object).expect("it is JSON");
        let log = place.sandbox(&["audit", "--format", "json"]).ok();
        let record = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let record = record.map(|record| record["details"].clone()).find(|details| details["op"] == "obeyed-files");
        for told in [&object["obeyed"], &record.expect("it is in the log")] {
            assert_eq!(told["files"].as_array().map(Vec::len), Some(32), "{mode}: {told}");
            assert_eq!(told["more"], 9, "{mode}: {told}");
            assert_eq!(told["files"][0]["path"], "s1/.mcp.json", "{mode}: {told}");
            assert_eq!(told["files"][0]["class"], "opens", "{mode}: {told}");
            assert!(told["unseen"].is_null(), "{mode}: {told}");
        }
    }
}

/// What the bounds leave out is said, also where the command made it so.
#[test]
fn what_was_not_looked_at_is_said() {
    let unseen = "not all of the project was searched";
    for mode in MODES {
        let place = Place::new();
        let deep = format!("mkdir -p {}/.vscode", vec!["d"; 20].join("/"));
        inside(&place, mode, &deep).says(&[unseen, "too deep"]).ok();
        place.host("rm -r d").ok();
        // Root lists it all the same.
        let closed = inside(&place, mode, "mkdir -p closed/.vscode; chmod 0 closed");
        assert_eq!(closed.err.contains(unseen), !is_root(), "{mode}: {}", closed.err);
        place.host("chmod 700 closed").ok();
    }
    let place = Place::new();
    place.host("mkdir a && cd a && seq 51000 | xargs touch").ok();
    inside(&place, MODES[0], "true").says(&[unseen]).ok();
}
