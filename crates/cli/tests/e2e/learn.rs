//! `sandbox learn`: nothing is written for real, and the policy it prints is enough for the next run and for no more.

use serde_json::Value;

use crate::support::{Place, Ran, binary, finish};

/// A place with a key that must stay out of reach.
fn place_with_key(programs: &[&str]) -> Option<Place> {
    let place = Place::with(programs)?;
    place.write("home:.ssh/id_rsa", "the key\n");
    Some(place)
}

fn json_line(ran: &Ran) -> Value {
    let line = ran.err.lines().rev().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{}", ran.err));
    serde_json::from_str(line).expect("a JSON object")
}

/// Learns, saves, and runs again where no operator can be asked: nothing may be denied, and the key stays hidden.
fn learn_then_run(place: &Place, variables: &[(&str, &str)], command: &[&str]) -> Ran {
    let sandbox =
        |arguments: &[&str]| finish(place.command(binary()).args(arguments).envs(variables.iter().copied()), b"");
    let learned = sandbox(&[&["learn", "--save", "project", "--"], command].concat());
    assert_eq!(learned.code, 0, "{}\n{}", learned.out, learned.err);
    assert!(learned.err.contains("nothing was written"), "{}", learned.err);
    let ran = sandbox(&[&["run", "--on-unknown", "deny", "--json", "--"], command].concat());
    assert_eq!(ran.code, 0, "{}\n{}\nlearned:\n{}\n{}", ran.out, ran.err, learned.out, learned.err);
    let denied = json_line(&ran)["denied"].clone();
    assert_eq!(denied, serde_json::json!([]), "learned:\n{}\n{}", learned.out, learned.err);
    let key = sandbox(&["run", "--on-unknown", "deny", "--", "cat", &place.path("home:.ssh/id_rsa").to_string_lossy()]);
    assert_ne!(key.code, 0);
    assert!(!key.out.contains("the key"));
    assert!(!learned.out.contains(".ssh"), "{}", learned.out);
    learned
}

#[test]
fn what_is_written_while_learning_is_thrown_away_and_secrets_are_told_and_not_granted() {
    let Some(place) = place_with_key(&[]) else { return };
    place.write("kept", "old\n");
    place.write("home:data/given", "given\n");
    place.write("home:only-listed/x", "x\n");
    let script = "echo new > kept; echo made > made; cat ~/data/given; echo more >> ~/data/given; cat ~/data/given
        mkdir -p ~/tool/sub && echo y > ~/tool/sub/file && cat ~/tool/sub/file; cat ~/.ssh/id_rsa; ls ~/only-listed; true";
    let ran = place.sandbox(&["learn", "--", "bash", "-c", script]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("given\ngiven\nmore\ny\nx\n"), "{}\n{}", ran.out, ran.err);
    for (name, text) in [("kept", "old\n"), ("home:data/given", "given\n")] {
        assert_eq!(place.read(name).as_deref(), Some(text), "{name}");
    }
    assert!(!place.exists("made") && !place.exists("home:tool"));
    let policy = ran.out.split_once("# Learned from").expect("a policy").1;
    assert!(policy.contains("write = [\n  { path = \"~/data/given\""), "{policy}");
    assert!(policy.contains("touched and not granted: ~/.ssh"), "{policy}");
    assert!(policy.contains("left to you: ~/tool"), "{policy}");
    assert!(!policy.contains("path = \"~/.ssh") && !policy.contains("path = \"~/only-listed"), "{policy}");
    assert!(ran.err.contains("nothing was written for real"), "{}", ran.err);
}

#[test]
fn what_was_learned_is_json_on_request_and_other_modes_are_refused() {
    let place = Place::new();
    place.write("home:data/given", "given\n");
    let ran = place.sandbox(&["learn", "--json", "--", "sh", "-c", "cat ~/data/given; exit 3"]).code(3);
    let report = json_line(&ran);
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["grants"], serde_json::json!(["files.read = \"~/data/given\""]));
    assert_eq!(ran.out, "given\n");
    place.sandbox(&["learn", "--mode", "static", "--", "true"]).code(125).says(&["`--mode` cannot be `static`"]);
    place.sandbox(&["learn", "--save", "org", "--", "true"]).code(125).says(&["it is one of: user, project"]);
}

#[test]
fn a_cargo_build_runs_with_what_was_learned() {
    let Some(place) = place_with_key(&["cargo", "cc"]) else { return };
    place.write("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    place.write("src/main.rs", "fn main() { println!(\"built\") }\n");
    place.write("home:.cargo/config.toml", "");
    learn_then_run(&place, &[], &["cargo", "build", "--offline"]);
    assert!(place.exists("target/debug/app"));
}

#[test]
fn a_cargo_build_with_a_crate_of_the_cache_runs_with_what_was_learned() {
    let Some(place) = place_with_key(&["cargo", "cc"]) else { return };
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let cache = home.expect("HOME is set");
    place.write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ncfg-if = \"1\"\n",
    );
    place.write("src/main.rs", "fn main() { cfg_if::cfg_if! { if #[cfg(unix)] { println!(\"built\") } } }\n");
    if place.host(&format!("CARGO_HOME='{cache}' cargo fetch -q --offline")).code != 0 {
        println!("skipped: the crate `cfg-if` is not in the cache");
        return;
    }
    learn_then_run(&place, &[("CARGO_HOME", &cache)], &["cargo", "build", "--offline"]);
    assert!(place.exists("target/debug/app"));
}

#[test]
fn an_npm_test_runs_with_what_was_learned() {
    let Some(place) = place_with_key(&["npm", "node"]) else { return };
    place.write("package.json", "{\"name\":\"app\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node --test\"}}\n");
    place.write("test/one.test.js", "require('node:test')('works', () => {})\n");
    place.write("home:.npm/_logs/.keep", "");
    if place.host("npm test").code != 0 {
        println!("skipped: this node has no test runner");
        return;
    }
    learn_then_run(&place, &[], &["npm", "test"]);
}

/// The interpreter of an environment in the home directory that has pytest in it.
fn python_with_pytest(place: &Place) -> Option<String> {
    let made = place.host("timeout 60 sh -c 'python3 -m venv ~/venv && ~/venv/bin/pip install -q pytest' 2>&1");
    if made.code != 0 {
        println!("skipped: pytest is not installed and cannot be: {}", made.out.lines().last().unwrap_or_default());
        return None;
    }
    Some(place.path("home:venv/bin/python").display().to_string())
}

#[test]
fn a_pytest_runs_with_what_was_learned() {
    let Some(place) = place_with_key(&["python3"]) else { return };
    place.write("test_app.py", "def test_works():\n    assert 1 + 1 == 2\n");
    let Some(python) = python_with_pytest(&place) else { return };
    let learned = learn_then_run(&place, &[], &[&python, "-m", "pytest", "-q", "test_app.py"]);
    assert!(learned.out.contains("venv"), "{}", learned.out);
}

#[test]
fn the_tests_of_a_python_project_run_with_what_was_learned() {
    let Some(place) = place_with_key(&["python3"]) else { return };
    place.write("home:libraries/helper.py", "ANSWER = 42\n");
    place.write(
        "test_app.py",
        "import sys, unittest\nsys.path.insert(0, __file__.rsplit('/', 2)[0] + '/libraries')\nimport helper\n\
         class T(unittest.TestCase):\n    def test_works(self):\n        self.assertEqual(helper.ANSWER, 42)\n",
    );
    let learned = learn_then_run(&place, &[], &["python3", "-B", "-m", "unittest", "-q", "test_app"]);
    assert!(learned.out.contains("~/libraries"), "{}", learned.out);
}
