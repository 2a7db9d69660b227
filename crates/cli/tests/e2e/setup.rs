//! `sandbox setup` in fresh homes: what it shows, what it writes and makes with consent, and that package managers work afterwards
//! without a question. With the toolchains of this machine.

use crate::registries::Client;
use crate::screen::Screen;
use crate::support::{Place, Ran, finish};

const CONFIG: &str = "home:.config/cofferdam/config.toml";
const COMPLETIONS: &str = "home:.local/share/bash-completion/completions/sandbox";

fn files(place: &Place) -> String {
    place.host("cd ~ && find . -path ./.local/state -prune -o -path ./.local -o -path . -o -printf '%p %y %s %T@\\n' | sort").ok()
}

#[test]
fn without_a_terminal_and_a_yes_it_shows_and_changes_nothing() {
    let Some(place) = Place::with(&["npm", "cargo", "python3"]) else { return };
    let before = files(&place);
    for flags in [&["setup"][..], &["setup", "--dry-run"]] {
        let ran = place.sandbox(flags).code(1).says(&["nothing was changed; `sandbox setup --yes`"]);
        for text in
            ["would be written to ", "+preset = [", "\"cargo\"", "\"node\"", "\"python\"", "\"registries\"", "/.npm\n"]
        {
            assert!(ran.out.contains(text), "{text}:\n{}", ran.out);
        }
    }
    let json: serde_json::Value = serde_json::from_str(&place.sandbox(&["setup", "--json"]).code(1).out).expect("JSON");
    assert_eq!(json["nothing_to_do"], false);
    assert_eq!(files(&place), before);
}

#[test]
fn a_yes_does_it_once_and_the_second_run_changes_nothing() {
    let Some(place) = Place::with(&["npm", "cargo", "python3"]) else { return };
    place.write(CONFIG, "# my own words\npreset = \"node\"\n\n[network]\nmode = \"none\" # none at all\n\n[limits]\ntimeout = \"30m\" # long enough\n");
    let ran = place.sandbox(&["setup", "--yes"]).code(0);
    assert!(ran.out.contains("-preset = \"node\"\n") && ran.out.ends_with("done\n"), "{}", ran.out);
    let config = place.read(CONFIG).expect("it was written");
    for text in ["# my own words", "timeout = \"30m\" # long enough", "[\"node\", \"cargo\"", "\"python\""] {
        assert!(config.contains(text), "{text}:\n{config}");
    }
    for made in ["home:.npm", "home:.cargo/registry", "home:.cargo/git", "home:.cache/pip"] {
        assert!(place.path(made).is_dir(), "{made}");
    }
    // What is not installed gets no directory.
    assert!(crate::support::which("bun").is_some() || !place.exists("home:.bun"));
    let script = place.read(COMPLETIONS).expect("it was written");
    assert_eq!(script, place.sandbox(&["completions", "bash"]).ok());
    let before = files(&place);
    let again = place.sandbox(&["setup", "--yes"]).ok();
    assert!(again.contains("nothing to do\n"), "{again}");
    assert!(place.sandbox(&["setup"]).ok().contains("nothing to do\n"));
    // The state directory has the lock and the audit record of the first run.
    assert_eq!(files(&place), before);
    place.sandbox(&["policy", "check", &place.path(CONFIG).display().to_string()]).code(0);
}

#[test]
fn configured_registries_are_named_and_their_tokens_are_not() {
    let Some(place) = Place::with(&["npm", "cargo", "python3"]) else { return };
    place.write("home:.npmrc", "registry=https://npm.corp.test/api/\n//npm.corp.test/api/:_authToken=npm_hush9word\n");
    place.write(
        "home:.config/pip/pip.conf",
        "[global]\nindex-url = https://me:piphush9word@pip.corp.test:8443/simple\n",
    );
    let cargo = "[registries.corp]\nindex = \"sparse+https://crates.corp.test/\"\ntoken = \"cargohush9word\"\n";
    place.write("home:.cargo/config.toml", cargo);
    place.write(".npmrc", "registry=https://project.corp.test/\n");
    let ran = place.sandbox(&["setup", "--yes"]).code(0);
    let config = place.read(CONFIG).expect("it was written");
    for host in ["npm.corp.test:443", "pip.corp.test:8443", "crates.corp.test:443"] {
        assert!(ran.out.contains(host) && config.contains(host), "{host}:\n{}\n{config}", ran.out);
    }
    assert!(ran.out.contains("docs/guides/credentials.md"), "{}", ran.out);
    assert!(
        !ran.out.contains("hush9word") && !ran.err.contains("hush9word") && !config.contains("hush9word"),
        "{}",
        ran.out
    );
    // What the project's files name is shown as theirs, and taken over by no flag.
    let (_, shown) = ran.out.split_once("registries that this project names").expect("a part of its own");
    assert!(shown.contains("project.corp.test:443 (./.npmrc"), "{shown}");
    assert!(!config.contains("project.corp.test"), "{config}");
    // The same files inside: the registry, and no token.
    std::fs::remove_file(place.path(".npmrc")).expect("it is there");
    let out = place.inside("cat ~/.npmrc ~/.config/pip/pip.conf ~/.cargo/config.toml").ok();
    for text in ["https://npm.corp.test/api/", "pip.corp.test:8443/simple", "sparse+https://crates.corp.test/"] {
        assert!(out.contains(text), "{text}:\n{out}");
    }
    assert!(!out.contains("hush9word"), "{out}");
    assert_eq!(place.inside("npm config get registry").ok(), "https://npm.corp.test/api/\n");
}

#[test]
fn no_link_is_followed_to_make_a_directory() {
    let Some(place) = Place::with(&["python3"]) else { return };
    std::fs::create_dir_all(place.path("home:elsewhere")).expect("a directory");
    std::os::unix::fs::symlink(place.path("home:elsewhere"), place.path("home:.cache")).expect("a link");
    let ran = place.sandbox(&["setup", "--yes"]).code(0);
    assert!(ran.out.contains(".cache/pip yourself: a link is on the way"), "{}", ran.out);
    assert_eq!(place.path("home:elsewhere").read_dir().expect("readable").count(), 0);
}

#[test]
fn at_a_terminal_it_asks_and_a_no_changes_nothing() {
    let Some(screen) = Screen::open(&["npm"]) else { return };
    screen.line("sandbox setup --no-completions");
    screen.wait_for("make these directories? [y/N]");
    screen.line("n");
    screen.wait_for("not all of it was done");
    assert!(!screen.place.exists(CONFIG) && !screen.place.exists("home:.npm"));
    screen.prompt();
    // All of it is more than 24 lines.
    screen.tmux(&["resize-window", "-x", "80", "-y", "60"]);
    screen.line("clear; sandbox setup");
    screen.wait_for("make these directories? [y/N]");
    screen.capture("setup");
    screen.line("y");
    screen.wait_for("completions/sandbox? [y/N]");
    screen.line("n");
    screen.wait_for("not all of it was done");
    assert!(screen.place.exists(CONFIG) && screen.place.exists("home:.npm") && !screen.place.exists(COMPLETIONS));
}

/// Outside it works, and inside after `setup --yes` in a home that has nothing else: no question, no further flag.
fn works_after_setup(client: &Client, script: &str) {
    let outside = client.outside(script);
    if outside.code != 0 {
        let why = outside.err.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        println!("skipped: the registry cannot be reached from outside: {why}");
        return;
    }
    let sandbox = |arguments: &[&str]| -> Ran {
        let variables = client.variables.iter().map(|(name, value)| (name, value));
        finish(client.place.command(crate::support::binary()).envs(variables).args(arguments), b"")
    };
    sandbox(&["setup", "--yes"]).code(0);
    let mut arguments = vec!["run".to_owned(), "--timeout".to_owned(), "180s".to_owned()];
    for (name, value) in &client.variables {
        arguments.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    arguments.extend(["--", "bash", "-c", script].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = sandbox(&arguments);
    assert_eq!(ran.code, 0, "{}\n{}\n{}", ran.out, ran.err, client.place.read(CONFIG).unwrap_or_default());
    let log = sandbox(&["audit", "--format", "json"]).ok();
    let denied: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONNECTION_ATTEMPT") && line.contains("\"decision\":\"deny\""))
        .collect();
    assert!(denied.is_empty(), "{denied:#?}");
}

#[test]
fn npm_installs_after_setup_without_a_question() {
    let Some(client) = Client::new(&["npm"], &[".npmrc"]) else { return };
    client.place.write("package.json", "{\"name\":\"app\",\"version\":\"1.0.0\"}\n");
    let install = "rm -rf node_modules package-lock.json
        npm install --no-audit --no-fund --fetch-retries 0 ms && test -f node_modules/ms/package.json";
    works_after_setup(&client, install);
    // The cache is the real one.
    assert!(client.place.path("home:.npm/_cacache").is_dir() || client.outside(install).code != 0);
}

#[test]
fn cargo_builds_after_setup_without_a_question() {
    let Some(client) = Client::new(&["cargo", "cc"], &[".cargo/config.toml"]) else { return };
    let manifest =
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ncfg-if = \"1\"\n";
    client.place.write("Cargo.toml", manifest);
    client.place.write("src/main.rs", "fn main() {}\n");
    works_after_setup(&client, "rm -rf Cargo.lock target && CARGO_NET_RETRY=0 cargo build 2>&1 && target/debug/app");
}

#[test]
fn pip_installs_after_setup_without_a_question() {
    let Some(client) = Client::new(&["python3"], &[".config/pip/pip.conf", ".pip/pip.conf"]) else { return };
    let install = "rm -rf out
        $(python3 -c 'import sys; print(sys.executable)') -m pip install --no-input --no-deps --retries 0 --target out iniconfig 2>&1 && test -d out/iniconfig";
    works_after_setup(&client, install);
}
