//! Coding agents with the real command lines of npm and PyPI: the whole agent in its preset, at a terminal; its shell tool alone; its
//! hooks. No model answers but one that a test has made, on loopback, and names are asked of a port where nothing listens.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::internet::{ALLOWED, Internet};
use crate::screen::Screen;
use crate::support::{Place, Ran, binary, finish, which};

const START: Duration = Duration::from_secs(40);

/// No name server on this machine is asked, and no other.
const NO_NAMES: &str = "[network]\nresolvers = [\"127.0.0.1:9\"]\n";

/// A terminal in a repository, in a home in which no agent has run.
fn terminal(agent: &str) -> Option<Screen> {
    let screen = Screen::open(&[agent, "git"])?;
    screen.place.make_repository();
    screen.place.write("home:.config/cofferdam/config.toml", NO_NAMES);
    Some(screen)
}

impl Screen {
    /// What an agent's own directory holds under a name.
    fn kept(&self, agent: &str, name: &str) -> Option<String> {
        self.place.read(&format!("home:.local/share/cofferdam/agents/{agent}/{name}"))
    }

    /// Waits for what an agent shows once it has started: on a busy machine that takes most of a minute.
    #[track_caller]
    fn wait_for_agent(&self, text: &str) -> String {
        let started = Instant::now();
        loop {
            let shown = self.text();
            if shown.contains(text) {
                return shown;
            }
            assert!(started.elapsed() < START, "waited in vain for `{text}`; the screen:\n{shown}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Types `!`, waits for what shows that it was taken, then a command for the agent's own shell tool.
    fn shell(&self, taken: &str) {
        self.tmux(&["send-keys", "-l", "!"]);
        self.wait_until("the mode of `!`", |text| text.lines().any(|line| line.trim_start().starts_with(taken)));
        self.tmux(&["send-keys", "-l", "echo in-$((40+2)) > made; hostname; cat made"]);
        self.wait_for_agent("cat made");
        self.keys(&["Enter"]);
    }

    /// Quits, and leaves the changes waiting.
    fn leave(&self, keys: &[&str]) {
        for key in keys {
            self.keys(&[key]);
        }
        // A list of commands that opens late takes the first Enter for its own.
        for _ in 0..3 {
            let pressed = Instant::now();
            while !self.text().contains("leave them waiting") && pressed.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(100));
            }
            if keys.last() == Some(&"Enter") && !self.text().contains("leave them waiting") {
                self.keys(&["Enter"]);
            }
        }
        self.wait_for_agent("leave them waiting");
        self.keys(&["Enter"]);
        self.prompt();
    }

    /// A question stays open for minutes: none now is none since the start.
    #[track_caller]
    fn assert_no_question(&self) {
        let ran = self.place.sandbox(&["questions"]).code(0);
        assert_eq!(ran.out, "");
        ran.says(&["no open questions"]);
    }

    /// Nothing of the agent is where the host's own would find it, and what it wrote waits.
    #[track_caller]
    fn assert_apart(&self, names: &[&str]) {
        for name in names {
            assert!(!self.place.exists(&format!("home:{name}")), "~/{name} was made");
        }
        assert_eq!(self.place.read("made"), None, "the project is not written");
        let waits = self.place.sandbox(&["diff", "--stat"]).ok();
        assert!(waits.contains("made"), "{waits}");
        self.place.sandbox(&["rollback"]).ok();
    }
}

#[test]
fn claude_draws_runs_a_command_keeps_its_settings_and_quits_without_a_question() {
    let Some(screen) = terminal("claude") else { return };
    // What its first dialog leaves, which ends where the model is not reached.
    screen.place.sandbox(&["agent", "claude", "--", "--version"]).ok();
    let begun = r#"{"hasCompletedOnboarding":true,"theme":"dark"}"#;
    screen.place.write("home:.local/share/cofferdam/agents/claude/.claude.json", begun);
    screen.line("sandbox agent claude");
    screen.wait_for_agent("trust this folder");
    screen.keys(&["Enter"]);
    screen.wait_for_agent("for shortcuts");
    screen.capture("agent-claude");
    screen.shell("!");
    screen.wait_for_agent("in-42");
    // It tells the model of it, in vain.
    screen.wait_for_agent("✻");
    screen.assert_no_question();
    screen.leave(&["C-c", "C-c"]);
    let kept = screen.kept("claude", ".claude.json").expect("its settings are there");
    assert!(kept.contains("\"hasTrustDialogAccepted\": true"), "{kept}");
    screen.assert_apart(&[".claude", ".claude.json"]);
}

#[test]
fn codex_draws_runs_a_command_keeps_its_settings_and_quits_without_a_question() {
    let Some(screen) = terminal("codex") else { return };
    let provider = "{name=\"lab\",base_url=\"http://127.0.0.1:9/v1\",env_key=\"LAB\",wire_api=\"responses\"}";
    // It begins to work once the directory is trusted; what is typed before waits for a second Enter.
    let trusted = format!("{{{:?}={{trust_level=\"trusted\"}}}}", screen.place.project.display().to_string());
    screen.line(&format!(
        "sandbox agent codex --env LAB=x -- -c model_provider=lab -c 'model_providers.lab={provider}' -c 'projects={trusted}'"
    ));
    screen.wait_for_agent("· ~/project");
    screen.capture("agent-codex");
    screen.shell("!");
    screen.wait_for_agent("in-42");
    screen.assert_no_question();
    screen.leave(&["C-c", "C-c"]);
    let kept = screen.kept("codex", "config.toml").expect("its settings are there");
    assert!(kept.contains("sandbox_mode = \"danger-full-access\""), "{kept}");
    assert!(screen.kept("codex", "installation_id").is_some(), "it writes there");
    screen.assert_apart(&[".codex"]);
}

#[test]
fn gemini_draws_runs_a_command_keeps_its_settings_and_quits_without_a_question() {
    let Some(screen) = terminal("gemini") else { return };
    screen.line("GEMINI_API_KEY=the-real-one sandbox agent gemini");
    screen.wait_for_agent("Trust folder");
    screen.keys(&["Enter"]);
    screen.wait_for_agent("Existing API key detected");
    screen.keys(&["Enter"]);
    // It proposes what it has found: the placeholder.
    let asked = screen.wait_for_agent("cofferdam-");
    assert!(!asked.contains("the-real-one"), "{asked}");
    screen.keys(&["Enter"]);
    screen.wait_for_agent("Type your message");
    screen.capture("agent-gemini");
    screen.shell("!");
    screen.wait_for_agent("in-42");
    screen.assert_no_question();
    screen.keys(&["Escape"]);
    screen.wait_for_agent("Type your message");
    screen.tmux(&["send-keys", "-l", "/quit"]);
    screen.wait_for("/quit");
    screen.leave(&["Enter"]);
    let kept = screen.kept("gemini", ".gemini/settings.json").expect("its settings are there");
    assert!(kept.contains("\"selectedType\": \"gemini-api-key\""), "{kept}");
    screen.assert_apart(&[".gemini"]);
}

#[test]
fn agents_are_listed_and_one_that_is_not_there_is_said_with_its_installation() {
    let place = Place::new();
    let mut command = place.command(binary());
    let ran = finish(command.arg("agent").env("PATH", "/nonexistent"), b"").ok();
    for (name, install) in [
        ("claude", "npm install -g @anthropic-ai/claude-code"),
        ("codex", "npm install -g @openai/codex"),
        ("gemini", "npm install -g @google/gemini-cli"),
        ("opencode", "npm install -g opencode-ai"),
        ("aider", "pipx install aider-chat"),
    ] {
        assert!(ran.lines().any(|line| line.starts_with(name) && line.ends_with(&format!("not installed: {install}"))));
        let mut command = place.command(binary());
        let missing = finish(command.args(["agent", name]).env("PATH", "/nonexistent"), b"").code(127);
        missing.says(&[&format!("`{name}` is not in PATH"), install]);
    }
    place.sandbox(&["agent", "nope"]).code(125).says(&["no agent is called `nope`", "`sandbox agent` lists"]);
    assert!(!place.exists("home:.local"), "nothing is made for one that does not run");
}

/// Some 600 MB of Python: installed by hand where this is to be run, in a place that sessions know (pipx).
#[test]
fn aider_draws_runs_a_command_and_quits_without_a_question() {
    let Some(screen) = terminal("aider") else { return };
    screen.line("OPENAI_API_KEY=the-real-one sandbox agent aider -- --model gpt-4o --no-gitignore");
    screen.wait_for_agent("Repo-map");
    screen.capture("agent-aider");
    screen.line("!echo in-$((40+2)) > made; hostname; cat made");
    screen.wait_for_agent("Add 0.0k tokens");
    screen.wait_for_agent("in-42");
    screen.assert_no_question();
    screen.line("n");
    screen.tmux(&["send-keys", "-l", "/exit"]);
    screen.wait_for("/exit");
    screen.leave(&["Enter"]);
    screen.assert_apart(&[".aider"]);
}

/// It draws too slowly on a busy machine to be tested at a terminal.
#[test]
fn opencode_keeps_everything_in_its_own_directory() {
    let Some(place) = Place::with(&["opencode"]) else { return };
    place.write("home:.config/cofferdam/config.toml", NO_NAMES);
    let paths = place.sandbox(&["agent", "opencode", "--", "debug", "paths"]).ok();
    let own = place.path("home:.local/share/cofferdam/agents/opencode").display().to_string();
    for (name, below) in [("config", "config"), ("data", "data"), ("state", "state"), ("cache", "cache")] {
        let place = format!("{own}/{below}/opencode");
        let is_there = |line: &str| line.split_whitespace().collect::<Vec<_>>() == [name, place.as_str()];
        assert!(paths.lines().any(is_there), "{name}: {paths}");
    }
    for name in [".config/opencode", ".local/share/opencode", ".local/state/opencode", ".cache/opencode"] {
        assert!(!place.exists(&format!("home:{name}")), "~/{name} was made");
    }
}

/// A program of the agent's name: what counts here is what it meets.
fn stand_in(place: &Place, agent: &str, script: &str) -> String {
    place.write(&format!("home:.local/bin/{agent}"), &format!("#!/bin/bash\n{script}\n"));
    place.host(&format!("chmod +x ~/.local/bin/{agent}")).ok();
    format!("{}:{}", place.path("home:.local/bin").display(), std::env::var("PATH").expect("PATH is set"))
}

fn agent(place: &Place, path: &str, words: &[&str]) -> Ran {
    let mut command = place.command(binary());
    finish(command.arg("agent").args(words).env("PATH", path), b"")
}

#[test]
fn each_agent_has_a_directory_of_its_own_and_sees_no_other() {
    let place = Place::new();
    let variables = [
        ("claude", "CLAUDE_CONFIG_DIR", ""),
        ("codex", "CODEX_HOME", ""),
        ("gemini", "GEMINI_CLI_HOME", ""),
        ("opencode", "XDG_CONFIG_HOME", "/config"),
    ];
    for (name, variable, below) in variables {
        place.write("home:.claude/settings.json", "host");
        let path = stand_in(
            &place,
            name,
            &format!(
                "mkdir -p ${variable} && echo {name} > ${variable}/own && cat ${variable}/own; echo \"${variable}\"; \
                 cat ~/.local/share/cofferdam/agents/*/*own ~/.local/share/cofferdam/agents/*/*/own; \
                 cat ~/.claude/settings.json; echo x > ~/.claude/settings.json; echo $@"
            ),
        );
        let ran = agent(&place, &path, &[name, "--", "two", "words"]);
        let own = place.path(&format!("home:.local/share/cofferdam/agents/{name}{below}"));
        let expected = format!("{name}\n{}\n{name}\ntwo words\n", own.display());
        assert_eq!(ran.out, expected, "{}", ran.err);
        assert_eq!(std::fs::read_to_string(own.join("own")).expect("it is kept"), format!("{name}\n"));
        assert_eq!(place.read("home:.claude/settings.json").as_deref(), Some("host"));
        let mode = place.host(&format!("stat -c %a ~/.local/share/cofferdam/agents/{name}")).ok();
        assert_eq!(mode, "700\n");
    }
    // Who has no preset of an agent finds none of it.
    let all = "cat ~/.local/share/cofferdam/agents/*/own";
    for mode in ["dynamic", "static"] {
        assert_ne!(place.run(&["--mode", mode], &["bash", "-c", all]).code, 0);
    }
    assert_eq!(place.host(all).ok(), "claude\ncodex\ngemini\n", "the control");
}

/// A session can put a program into the project's environment, which a shell finds first; this one would be given the login.
#[test]
fn what_lies_in_the_project_is_not_taken_for_the_agent() {
    let place = Place::new();
    let path = stand_in(&place, "claude", "echo the agent");
    place.write(".venv/bin/claude", "#!/bin/bash\necho planted\n");
    place.host("chmod +x .venv/bin/claude").ok();
    let path = format!("{}:{path}", place.path(".venv/bin").display());
    assert_eq!(agent(&place, &path, &["claude"]).ok(), "the agent\n");
    place.host("rm ~/.local/bin/claude").ok();
    let ran = agent(&place, &path, &["claude", "--", "--version"]);
    assert!(!ran.out.contains("planted"), "{}", ran.out);
}

#[test]
fn a_directory_that_is_there_is_not_filled() {
    let place = Place::new();
    let path = stand_in(&place, "gemini", "true");
    // What a session could have put there.
    place.host("mkdir -p ~/.local/share/cofferdam/agents/gemini ~/other && ln -s ~/other ~/.local/share/cofferdam/agents/gemini/.gemini").ok();
    agent(&place, &path, &["gemini"]).ok();
    assert!(!place.exists("home:other/settings.json"));
    place.host("rm -r ~/.local/share/cofferdam").ok();
    agent(&place, &path, &["gemini"]).ok();
    let made = place.read("home:.local/share/cofferdam/agents/gemini/.gemini/settings.json").expect("the control");
    assert!(made.contains("usageStatisticsEnabled\": false"), "{made}");
}

#[test]
fn what_an_agent_writes_in_the_project_waits_unless_it_is_told_otherwise() {
    let place = Place::new();
    let path = stand_in(&place, "claude", "echo x > made");
    agent(&place, &path, &["claude"]).ok();
    assert!(!place.exists("made"));
    place.sandbox(&["rollback"]).ok();
    agent(&place, &path, &["claude", "--transaction=off"]).ok();
    assert!(place.exists("made"));
    // The same in so many words.
    place.host("rm made").ok();
    let mut command = place.command(binary());
    finish(command.args(["run", "--preset", "claude", "--", "claude"]).env("PATH", &path), b"").ok();
    assert!(!place.exists("made"));
    place.sandbox(&["rollback"]).ok();
}

/// Claude Code itself, with a key that only the process outside holds, at a server of the name that it asks.
#[test]
fn claude_reaches_the_model_with_a_key_that_it_does_not_hold() {
    let Some(internet) = Internet::with(&["claude"]) else { return };
    let server = format!("{ALLOWED}:443");
    internet.world.https(&server, &["api.anthropic.com"]);
    let run = |words: &[&str]| {
        let mut command = internet.command(binary());
        command.env("ANTHROPIC_API_KEY", "sk-the-real-one").env("SSL_CERT_FILE", internet.world.authority());
        finish(command.args(words), b"")
    };
    let inside = run(&["run", "--preset", "claude", "--", "env"]).ok();
    assert!(!inside.contains("sk-the-real-one"), "{inside}");
    assert!(inside.contains("ANTHROPIC_API_KEY=cofferdam-"), "{inside}");
    // What answers is no model.
    let ran = run(&["agent", "claude", "--timeout", "60s", "--", "-p", "hello"]);
    let requests = internet.world.requests(&server);
    let asked = requests.iter().find(|request| request.target.starts_with("/v1/messages"));
    let head = asked.map(|request| request.head.to_ascii_lowercase());
    assert!(head.is_some_and(|head| head.contains("x-api-key: sk-the-real-one")), "{requests:?}\n{ran:?}");
}

/// An agent without a key has no TLS that ends outside, and one that a project names gets no credential.
#[test]
fn a_key_that_is_not_there_is_no_error_and_a_project_cannot_ask_for_one() {
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", NO_NAMES);
    let inside = place.run(&["--preset", "claude"], &["env"]).ok();
    assert!(!inside.contains("ANTHROPIC_API_KEY") && !inside.contains("SSL_CERT_FILE"), "{inside}");
    let with_key = |flags: &[&str]| {
        let mut command = place.command(binary());
        command.env("ANTHROPIC_API_KEY", "sk-the-real-one").arg("run").args(flags).args(["--", "env"]);
        finish(&mut command, b"").ok()
    };
    // Its directory holds the login of the user's sandboxed agent, and the key is the user's, too.
    place.write(".cofferdam/policy.toml", "preset = \"claude\"\n");
    for _ in ["before", "after"] {
        place.sandbox(&["run", "true"]).code(125).says(&["preset = \"claude\""]);
        place.sandbox(&["trust", "--yes"]);
    }
    place.host("rm -r .cofferdam").ok();
    assert!(with_key(&["--preset", "claude"]).contains("ANTHROPIC_API_KEY=cofferdam-"), "the control");
}

/// An agent outside, with a model of the test's own that calls its shell tool once.
struct Lab {
    internet: Internet,
    model: Child,
    port: String,
}

/// The first answer calls the shell tool with the command of the command line, the next one ends it. What the tool gave back becomes
/// a line of `home:results`.
const MODEL: &str = r#"
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self): self.answer(b"", "text/plain")
    do_HEAD = do_GET
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        said = asked.get("messages", [{}])[-1].get("content")
        results = [part for part in said if part.get("type") == "tool_result"] if isinstance(said, list) else []
        with open(os.environ["HOME"] + "/results", "a") as record:
            for result in results: record.write(json.dumps(result["content"]) + "\n")
        if results or "Bash" not in [tool["name"] for tool in asked.get("tools", [])]:
            block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn"
        else:
            block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
            call = json.dumps({"command": open(os.environ["HOME"] + "/call").read(), "description": "try"})
            delta, stop = {"type": "input_json_delta", "partial_json": call}, "tool_use"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model", "m"), "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": usage}
        events = [{"type": "message_start", "message": message},
                  {"type": "content_block_start", "index": 0, "content_block": block},
                  {"type": "content_block_delta", "index": 0, "delta": delta},
                  {"type": "content_block_stop", "index": 0},
                  {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
                  {"type": "message_stop"}]
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.answer(text.encode(), "text/event-stream")
server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
"#;

impl Lab {
    fn set_up() -> Option<Lab> {
        let internet = Internet::with(&["claude", "git"])?;
        internet.place.make_repository();
        internet.place.write("home:.ssh/id_ed25519", "PRIVATE");
        internet.place.write("home:model.py", MODEL);
        let mut command = internet.command("python3");
        command.arg(internet.place.path("home:model.py")).stdout(Stdio::piped());
        let mut model = command.spawn().expect("python3 starts");
        let mut port = String::new();
        let out = model.stdout.take().expect("stdout is piped");
        BufReader::new(out).read_line(&mut port).expect("it says its port");
        Some(Lab { internet, model, port: port.trim().to_owned() })
    }

    /// What the agent's shell tool gave back for a command, with these variables and arguments of the agent.
    fn result(&self, call: &str, variables: &[(&str, &Path)], arguments: &[&str]) -> String {
        let place = &self.internet.place;
        place.write("home:call", call);
        place.write("home:results", "");
        let mut command = self.internet.command("claude");
        command
            .envs(variables.iter().copied())
            .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", self.port))
            .env("ANTHROPIC_API_KEY", "sk-test")
            .env("DISABLE_AUTOUPDATER", "1")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .args(["-p", "go", "--allowedTools", "Bash"])
            .args(arguments);
        let ran = finish(&mut command, b"");
        let results = place.read("home:results").unwrap_or_default();
        let result = results.lines().next().and_then(|line| serde_json::from_str(line).ok());
        result.unwrap_or_else(|| panic!("the shell tool was not called: {ran:?}"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.model.kill().and_then(|()| self.model.wait().map(drop)).expect("ours");
    }
}

const CALL: &str = "echo \"it's in-$(hostname)\"; cat ~/.ssh/id_ed25519; echo x > made; mine";

#[test]
fn a_shell_prefix_runs_what_the_shell_tool_is_told_in_the_sandbox() {
    let Some(lab) = Lab::set_up() else { return };
    // A function of the user's shell: the agent's snapshot has it.
    lab.internet.place.write("home:.bashrc", "mine() { echo from-the-snapshot; }\n");
    let outside = lab.result(CALL, &[], &[]);
    assert!(outside.contains("PRIVATE") && outside.contains("from-the-snapshot"), "the control: {outside}");
    lab.internet.place.host("rm made").ok();

    let printed = lab.internet.sandbox(&["shell-prefix", "--memory", "1G", "--no-debug"]).ok();
    let prefix = PathBuf::from(printed.trim());
    let inside = lab.result(CALL, &[("CLAUDE_CODE_SHELL_PREFIX", &prefix)], &[]);
    assert!(inside.contains("it's in-sandbox") && inside.contains("from-the-snapshot"), "{inside}");
    assert!(!inside.contains("PRIVATE"), "{inside}");
    assert_eq!(lab.internet.place.read("made").as_deref(), Some("x\n"), "the project is writable");
    // Hints reach the agent.
    let failed = lab.result("cat ~/.ssh/id_ed25519", &[("CLAUDE_CODE_SHELL_PREFIX", &prefix)], &[]);
    assert!(failed.contains("is hidden") && !failed.contains("PRIVATE"), "{failed}");
}

#[test]
fn a_shell_prefix_is_one_script_for_each_set_of_options_and_takes_a_shells_words() {
    let place = Place::new();
    let printed = |flags: &[&str]| place.sandbox(&[&["shell-prefix"], flags].concat()).ok().trim().to_owned();
    let plain = printed(&[]);
    let other = printed(&["--env", "A=it's $HOME", "--no-debug", "--transaction"]);
    assert_eq!((plain.as_str(), plain == other), (printed(&[]).as_str(), false));
    let call = |program: &str, words: &[&str]| finish(place.command(program).args(words), b"").ok();
    assert_eq!(call(&plain, &["hostname; echo \"$0\"; echo $((1+1))"]), "sandbox\nbash\n2\n");
    assert_eq!(call(&plain, &["-c", "echo $0 $1", "zero", "one"]), "zero one\n");
    assert_eq!(call(&plain, &["echo", "a b"]), "a b\n");
    assert_eq!(call(&other, &["echo $A; echo x > made"]), "it's $HOME\n");
    assert!(!place.exists("made"), "the options count");
    place.sandbox(&["rollback"]).ok();
    // The agent says where its shell stands; the project stays the one that the prefix is for.
    place.write("home:clients/payroll", "salary");
    let elsewhere =
        finish(place.command(&plain).current_dir(place.path("home:clients")).arg("touch here; ls"), b"").code(125);
    elsewhere.says(&["is not in the project that this prefix is for"]);
    assert!(!place.exists("home:clients/here"));
    place.host("mkdir -p deep").ok();
    assert_eq!(finish(place.command(&plain).current_dir(place.path("deep")).arg("basename $PWD"), b"").ok(), "deep\n");
    // Made where there is no project, it runs nothing.
    let mut command = place.command(binary());
    let nowhere = finish(command.arg("shell-prefix").current_dir(place.path("home:.")), b"").code(0);
    let nowhere = nowhere.says(&["outside of a project"]);
    finish(place.command(nowhere.out.trim()).arg("touch made"), b"").code(126).says(&["runs nothing"]);
    assert!(!place.exists("made"));
    // No session can change what agents outside start.
    let write = format!("echo x >> {plain}");
    for mode in ["dynamic", "static"] {
        assert_ne!(place.run(&["--mode", mode], &["bash", "-c", &write]).code, 0);
    }
}

pub(crate) fn hooks() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.join("../../profiles/hooks")
}

#[test]
fn a_pre_tool_use_hook_makes_commands_of_the_sandbox_of_what_the_shell_tool_is_told() {
    let Some(lab) = Lab::set_up() else { return };
    let place = &lab.internet.place;
    // As the guide says.
    let installed = place.path("home:.local/share/cofferdam/hooks");
    let copy = format!("mkdir -p {0} && cp {1}/claude-pre-tool-use {0}", installed.display(), hooks().display());
    place.host(&copy).ok();
    install_binary(place);
    let settings = hooks().join("claude-settings.json").display().to_string();
    let inside = lab.result(CALL, &[], &["--settings", &settings]);
    assert!(inside.contains("it's in-sandbox") && !inside.contains("PRIVATE"), "{inside}");
    assert_eq!(place.read("made").as_deref(), Some("x\n"));
}

#[test]
fn a_pre_tool_use_hook_blocks_what_it_cannot_read_and_leaves_other_tools_alone() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let hook = hooks().join("claude-pre-tool-use");
    // What a session put before the system's programs in PATH, as in a virtual environment of the project.
    for name in ["python3", "sandbox", "env", "cat"] {
        place.write(&format!("venv/{name}"), "#!/bin/sh\nexit 0\n");
    }
    place.write("json.py", "raise SystemExit(0)\n");
    place.host("chmod +x venv/*").ok();
    let path = format!("{}:{}", place.path("venv").display(), std::env::var("PATH").expect("PATH is set"));
    let told = |input: &str| {
        let mut command = place.command(&hook);
        command.args(["--preset", "tool"]).env("PATH", &path).env("PYTHONPATH", place.path("."));
        finish(&mut command, input.as_bytes())
    };
    told("{}").code(2).says(&["not run: no `sandbox` in"]);
    install_binary(&place);
    for broken in
        ["", "{", "[]", r#"{"tool_name":"Bash","tool_input":{}}"#, r#"{"tool_name":"Bash","tool_input":{"command":1}}"#]
    {
        let ran = told(broken).code(2);
        assert!(ran.out.is_empty() && ran.err.starts_with("not run: "), "{broken}: {ran:?}");
    }
    assert_eq!(told(r#"{"tool_name":"Read","tool_input":{"file_path":"a"}}"#).ok(), "");
    let changed =
        told(r#"{"tool_name":"Bash","tool_input":{"command":"echo 'a'; sandbox run -- x","timeout":5}}"#).ok();
    let changed: serde_json::Value = serde_json::from_str(&changed).expect("JSON");
    let input = &changed["hookSpecificOutput"]["updatedInput"];
    let rest = "run --preset tool -- bash -c 'echo '\"'\"'a'\"'\"'; sandbox run -- x'";
    let command = format!("{} {rest}", place.path("home:.local/bin/sandbox").display());
    assert_eq!((input["command"].as_str(), input["timeout"].as_i64()), (Some(command.as_str()), Some(5)));
    assert!(changed["hookSpecificOutput"]["permissionDecision"].is_null(), "it allows nothing");
}

fn install_binary(place: &Place) {
    place.host(&format!("mkdir -p ~/.local/bin && ln -s {} ~/.local/bin/sandbox", binary().display())).ok();
}

/// `notify-send` with a person behind it: shows what it was told, presses the button that the file names.
const PERSON: &str = "#!/bin/bash\nprintf '%s\\n' \"$@\" > \"$HOME/shown\"\ncat \"$HOME/pressed\"\n";

#[test]
fn an_approval_hook_asks_on_the_desktop() {
    let Some(place) = Place::with(&["python3"]) else { return };
    place.write("home:bin/notify-send", PERSON);
    place.write("home:notes/a <b>$(c)", "noted\n");
    place.host("chmod +x ~/bin/notify-send").ok();
    let hook = hooks().join("ask-on-desktop").display().to_string();
    let send = place.path("home:bin/notify-send").display().to_string();
    place.write(
        "home:.config/cofferdam/config.toml",
        &format!("[unknown]\nhook = [{hook:?}, {send:?}]\ntimeout = \"2s\"\n"),
    );
    // A session that is asked about could answer itself by what it wrote here.
    let approves = "#!/bin/sh\necho '{\"type\":\"cmd.approve\",\"scope\":\"file\",\"persist\":\"once\",\"id\":1}'\n";
    for name in ["python3", "notify-send", "env"] {
        place.write(&format!("venv/{name}"), approves);
    }
    place.host("chmod +x venv/*").ok();
    let path = format!("{}:{}", place.path("venv").display(), std::env::var("PATH").expect("PATH is set"));
    let read = |pressed: &str| {
        place.write("home:pressed", pressed);
        let mut command = place.command(binary());
        command.env("PATH", &path).args(["run", "--", "bash", "-c", "cat ~/notes/'a <b>$(c)'"]);
        finish(&mut command, b"")
    };
    for (pressed, code) in [("once\n", 0), ("session\n", 0), ("deny\n", 1), ("", 1), ("something else\n", 1)] {
        let ran = read(pressed);
        assert_eq!(ran.code, code, "{pressed}: {ran:?}");
    }
    let shown = place.read("home:shown").expect("it was shown");
    assert!(shown.contains("notes/a &lt;b&gt;$(c)") && shown.contains("by /"), "{shown}");
}

#[test]
fn an_agent_whose_own_sandbox_fails_inside_is_told_how_to_switch_it_off() {
    let Some(place) = Place::with(&["codex"]) else { return };
    place.write("home:.config/cofferdam/config.toml", NO_NAMES);
    // Codex wants its directory to be there.
    place.host("mkdir -p ~/.local/share/cofferdam/agents/codex").ok();
    let own = "codex sandbox -- true; exit 3";
    let ran = place.run(&["--preset", "codex", "--transaction=off"], &["bash", "-c", own]);
    assert_eq!(ran.code, 3, "{ran:?}");
    ran.says(&["codex has a sandbox of its own", "codex --sandbox danger-full-access"]);
    // Another program's is not put down to it, and nothing is said where it is not tried.
    let ran = place.run(&["--preset", "codex", "--transaction=off"], &["bash", "-c", "unshare -U true; exit 3"]);
    assert!(!ran.err.contains("of its own"), "{ran:?}");
    let ran = place.run(&["--preset", "codex", "--transaction=off"], &["bash", "-c", "codex --version; exit 3"]);
    assert!(!ran.err.contains("of its own"), "{ran:?}");
    assert!(which("codex").is_some());
}
