//! Links that a session left in what it could write: the next session, in another project, is led nowhere by them. The controls: a
//! link of the user's own elsewhere, and one that stays in its tree, lead on.

use crate::support::{Place, Ran, binary, finish};

const LEFT: &str = "a link leads from there";

/// Two projects below the home, and a session in the first that has made these links.
fn left(links: &[(&str, &str)]) -> Place {
    let mut place = Place::new();
    place.write("home:.ssh/id_ed25519", "hunter2\n");
    place.write("home:private/notes", "mine\n");
    place.write("home:a/kept", "of a\n");
    place.write("home:b/kept", "of b\n");
    place.project = place.home.join("a");
    let make = links.iter().map(|(link, target)| format!("mkdir -p $(dirname {link}); ln -s {target} {link}; "));
    place.inside(&make.collect::<String>()).ok();
    place.project = place.home.join("b");
    place
}

fn run_with(place: &Place, variable: (&str, &str), flags: &[&str], script: &str) -> Ran {
    let mut command = place.command(binary());
    command.env(variable.0, variable.1).arg("run").args(flags).args(["--", "bash", "-c", script]);
    finish(&mut command, b"")
}

#[test]
fn a_flag_is_not_led_out_of_the_other_project() {
    let links = [("notes", "~/private/notes"), ("all", "~/private"), ("key", "~/.ssh/id_ed25519"), ("same", "kept")];
    let place = left(&links);
    for mode in ["static", "dynamic"] {
        for flags in [
            ["--ro", "../a/notes"],
            ["--rw", "../a/all"],
            ["--overlay", "../a/all"],
            ["--ro", "../a/all/notes"],
            ["--rw", "../a/key"],
        ] {
            let ran = place.run(&["--mode", mode, flags[0], flags[1]], &["true"]);
            ran.code(125).says(&[LEFT]);
        }
        assert_eq!(place.run(&["--mode", mode, "--ro", "../a/same"], &["cat", "../a/same"]).ok(), "of a\n");
    }
    // What the operator names is given.
    let named = place.path("home:private").display().to_string();
    assert_eq!(place.run(&["--ro", &named], &["cat", "../a/notes"]).ok(), "mine\n");
    place.host("ln -s ~/private/notes ../own").ok();
    assert_eq!(place.run(&["--ro", "../own"], &["cat", "../own"]).ok(), "mine\n");
}

#[test]
fn rules_variables_projects_and_policies_are_not_led_either() {
    let links = [("gen/x", "~/private/notes"), ("build", "~/private"), ("cache", "~/private"), ("p.toml", "~/p.toml")];
    let place = left(&links);
    let rules = "[files]\nread = [{ path = \"~/a/gen/x\", optional = true }]\nwrite = [{ path = \"~/a/build\", optional = true }]\n";
    place.write("home:.config/cofferdam/config.toml", rules);
    for mode in ["static", "dynamic"] {
        // Static mode reads the home as it is.
        let read = if mode == "static" { "true" } else { "cat ../a/gen/x ../a/build/notes ~/private/notes" };
        let script = format!("{read}; echo x >> ../a/build/notes; echo x > ../a/build/new");
        let ran = place.run(&["--mode", mode, "--on-unknown", "deny"], &["bash", "-c", &script]);
        assert_eq!(ran.out, "", "{mode}: {}", ran.err);
        assert_eq!(place.read("home:private/notes").as_deref(), Some("mine\n"), "{mode}");
        assert!(!place.exists("home:private/new"), "{mode}");
        let cache = place.path("home:a/cache").display().to_string();
        let script = "echo x > ../a/cache/made && cat ../a/cache/made";
        let ran = run_with(&place, ("GOCACHE", &cache), &["--mode", mode, "--on-unknown", "deny"], script);
        assert_eq!(ran.out, "", "{mode}: {}", ran.err);
    }
    let project = place.path("home:a/build").display().to_string();
    place.run(&["--project", &project], &["true"]).code(125).says(&["may have left", &project]);
    place.write("home:p.toml", "[files]\nread = [\"~/private\"]\n");
    place.write("home:a/q.toml", "[files]\nread = [\"~/private\"]\n");
    place.run(&["--policy", "../a/q.toml"], &["true"]).code(126).says(&["for writing", "q.toml"]);
    assert_eq!(place.run(&["--policy", "../p.toml"], &["cat", "../private/notes"]).ok(), "mine\n");
}

/// Dotfile managers lead from the home into a repository; what leads on from there may be a session's.
#[test]
fn a_link_in_the_middle_of_the_way_leads_nowhere() {
    let place = left(&[("fonts", "~/private")]);
    place.host("ln -s a/fonts ~/.fonts; mkdir -p ~/a/real; echo font > ~/a/real/one; ln -s a ~/shared").ok();
    // Static mode reads the home as it is.
    let flags = ["--mode", "dynamic", "--on-unknown", "deny"];
    assert_eq!(place.run(&flags, &["bash", "-c", "cat ~/private/notes ~/.fonts/notes"]).out, "");
    place.run(&["--ro", "../shared/fonts"], &["true"]).code(125).says(&[LEFT]);
    place.host("rm ~/.fonts; ln -s a/real ~/.fonts").ok();
    assert_eq!(place.run(&["--on-unknown", "deny"], &["bash", "-c", "cat ~/.fonts/one"]).ok(), "font\n");
}

/// Whatever is remembered of earlier sessions: the word of the operator about a link is no word about a place that is refused.
#[test]
fn a_link_lifts_no_refusal() {
    let place = left(&[("key", "~/.ssh/id_ed25519"), ("rc", "~/.bashrc")]);
    place.write("home:.bashrc", "mine\n");
    let forget = || std::fs::remove_file(place.path("home:.local/state/cofferdam/written-trees"));
    forget().expect("the first session was remembered");
    for flags in [["--ro", "../a/key"], ["--rw", "../a/rc"]] {
        place.run(&flags, &["true"]).code(125).says(&[LEFT]);
        // A start that is refused remembers nothing.
        assert!(forget().is_err());
    }
    // The control: named, it is given.
    let key = place.path("home:.ssh/id_ed25519").display().to_string();
    assert_eq!(place.run(&["--ro", &key], &["cat", &key]).ok(), "hunter2\n");
}

/// A directory that an answer gave during a session is one that it wrote.
#[test]
fn what_an_answer_gave_for_writing_is_remembered() {
    let place = left(&[]);
    place.write("home:given/file", "");
    place.write(
        "home:.config/cofferdam/config.toml",
        &format!(
            "mode = \"dynamic\"\n[unknown]\nverdict = \"ask\"\nhook = [\"{}\"]\n",
            place.path("home:hook").display()
        ),
    );
    place.write(
        "home:hook",
        "#!/bin/bash\nread -r line\nid=${line#*\\\"id\\\":}\necho \"{\\\"type\\\":\\\"cmd.approve\\\",\\\"id\\\":${id%%[,\\}]*},\\\"scope\\\":\\\"dir\\\",\\\"persist\\\":\\\"session\\\"}\"\n",
    );
    place.host("chmod 755 ~/hook").ok();
    place.run(&["--network", "none"], &["bash", "-c", "echo x > ~/given/new && ln -s ~/private ~/given/link"]).ok();
    place.run(&["--ro", "../given/link"], &["true"]).code(125).says(&[LEFT]);
}
