//! Coding agents at a terminal: until the first screen, one command by their own `!`, and out again; outside and by `sandbox agent`. Owns
//! what is typed and waited for; no model answers. Called by `journeys`.

use std::time::Duration;

use crate::journeys::home::{Ground, Home, Terminal};
use crate::journeys::run::{Ended, Run, proposed};
use crate::journeys::walk::{Figures, MOST_ATTEMPTS, Manner, Row, Unattended};
use crate::problems::Problems;

/// Most of a minute on a busy machine.
const START: Duration = Duration::from_secs(90);
/// Until a dialog that was answered has gone on.
const ANSWERED: Duration = Duration::from_secs(10);
const COMMAND: Duration = Duration::from_secs(40);
/// Between keys, as a person types.
const KEYS: Duration = Duration::from_millis(800);

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: &'static str,
    /// Its own arguments; `PROJECT` is the project's path.
    arguments: &'static [&'static str],
    /// A key that it would have from the environment.
    variable: Option<(&'static str, &'static str)>,
    /// Given by `--env`, where its preset does not pass it.
    is_passed_by_flag: bool,
    /// Left behind by a first dialog that needs the model: a file below its directory, or below the home outside.
    begun: Option<(&'static str, &'static str)>,
    /// What it may ask at its start, and the keys for it.
    dialogs: &'static [(&'static str, &'static str)],
    /// On its first screen.
    ready: &'static str,
    /// What is typed to run a command of one's own, where it has that.
    shell: Option<&'static str>,
    quit: &'static [&'static str],
}

const PROVIDER: &str =
    "model_providers.lab={name=\"lab\",base_url=\"http://127.0.0.1:9/v1\",env_key=\"LAB\",wire_api=\"responses\"}";

pub(crate) const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        arguments: &[],
        // A program that belongs to root cannot be updated, and says so in the place of what is waited for.
        variable: Some(("DISABLE_AUTOUPDATER", "1")),
        is_passed_by_flag: false,
        begun: Some((".claude.json", r#"{"hasCompletedOnboarding":true,"theme":"dark"}"#)),
        dialogs: &[("trust this folder", "\r")],
        ready: "for shortcuts",
        shell: Some("!"),
        // Two interrupts count within less than a second alone.
        quit: &["/exit", "\r"],
    },
    Agent {
        name: "codex",
        arguments: &[
            "-c",
            "model_provider=lab",
            "-c",
            PROVIDER,
            "-c",
            "projects={\"PROJECT\"={trust_level=\"trusted\"}}",
        ],
        variable: Some(("LAB", "x")),
        is_passed_by_flag: true,
        begun: None,
        dialogs: &[],
        ready: "\u{b7} ~/app",
        shell: Some("!"),
        quit: &["\x03", "\x03"],
    },
    Agent {
        name: "gemini",
        arguments: &[],
        variable: Some(("GEMINI_API_KEY", "a-key-of-the-test")),
        is_passed_by_flag: false,
        begun: None,
        dialogs: &[("Trust folder", "\r"), ("Existing API key detected", "\r"), ("Enter Gemini API Key", "\r")],
        ready: "Type your message",
        shell: Some("!"),
        quit: &["\x1b", "/quit", "\r"],
    },
    Agent {
        name: "opencode",
        arguments: &[],
        variable: None,
        is_passed_by_flag: false,
        begun: None,
        dialogs: &[],
        ready: "Ask anything",
        shell: Some("!"),
        quit: &["\x1b", "\x03", "\x03"],
    },
    Agent {
        name: "aider",
        arguments: &["--model", "gpt-4o", "--no-gitignore"],
        variable: Some(("OPENAI_API_KEY", "a-key-of-the-test")),
        is_passed_by_flag: false,
        begun: None,
        dialogs: &[],
        ready: "Repo-map",
        shell: None,
        quit: &["/exit", "\r"],
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Outside,
    Inside,
}

pub(crate) fn walk(ground: &Ground, agent: &Agent, manner: Manner) -> Result<Row, Problems> {
    eprintln!("journeys: {}: outside", agent.name);
    let outside = agent.once(&prepared(ground)?, Where::Outside, manner)?;
    if let Some(why) = &outside.failure {
        return Err(Problems::one(format!("it does not work outside: {why}")));
    }
    eprintln!("journeys: {}: the first time, and again", agent.name);
    let home = prepared(ground)?;
    let first = agent.once(&home, Where::Inside, manner)?;
    home.outside("sandbox rollback || true")?;
    let second = agent.once(&home, Where::Inside, manner)?;
    drop(home);
    eprintln!("journeys: {}: after sandbox setup", agent.name);
    let home = prepared(ground)?;
    home.outside("sandbox setup --yes")?;
    let after_setup = agent.once(&home, Where::Inside, manner)?;
    drop(home);
    let home = prepared(ground)?;
    let command = home.command(&["sandbox", "agent", agent.name, "--", "--version"], Terminal::None);
    let ended = Run::without_terminal(command)?.end(START)?;
    let unattended = Unattended::of(&ended, true);
    let name = format!("agent {}", agent.name);
    Ok(Row { job: agent.name.to_owned(), name, outside, first, second, after_setup, unattended })
}

/// A repository: agents look for one.
fn prepared(ground: &Ground) -> Result<Home<'_>, Problems> {
    let home = ground.home()?;
    home.write(".gitconfig", b"[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n")?;
    home.outside("git init -q . && echo one > first && git add first && git commit -qm first")?;
    Ok(home)
}

impl Agent {
    fn once(&self, home: &Home<'_>, place: Where, manner: Manner) -> Result<Figures, Problems> {
        self.begin(home, place)?;
        let mut figures = Figures::default();
        while figures.attempts < MOST_ATTEMPTS {
            let (ended, seconds, failure) = self.attempt(home, place, manner, &figures.flags)?;
            figures.attempts += 1;
            figures.seconds += seconds;
            figures.silent = figures.silent.max(ended.silent);
            figures.questions.extend(ended.questions.iter().cloned());
            figures.worked = failure.is_none();
            figures.failure = failure;
            let is_new = |flag: &String| !figures.flags.contains(flag);
            let more: Vec<String> = proposed(&ended.text).into_iter().filter(is_new).collect();
            if figures.worked || place == Where::Outside || more.is_empty() {
                break;
            }
            figures.flags.extend(more);
        }
        Ok(figures)
    }

    /// What a first dialog leaves, once; the agent's directory is made by its first start.
    fn begin(&self, home: &Home<'_>, place: Where) -> Result<(), Problems> {
        let Some((file, text)) = self.begun else { return Ok(()) };
        let path = match place {
            Where::Outside => file.to_owned(),
            Where::Inside => format!(".local/share/cofferdam/agents/{}/{file}", self.name),
        };
        if home.outside(&format!("test -s ~/{path}")).is_ok() {
            return Ok(());
        }
        if place == Where::Inside {
            home.outside(&format!("sandbox agent {} -- --version", self.name))?;
        }
        home.write(&path, text.as_bytes())
    }

    /// How it ended, the seconds until its first screen, and why it did not work.
    fn attempt(
        &self,
        home: &Home<'_>,
        place: Where,
        manner: Manner,
        flags: &[String],
    ) -> Result<(Ended, f64, Option<String>), Problems> {
        let project = home.project();
        let own: Vec<String> = self.arguments.iter().map(|word| word.replace("PROJECT", &project)).collect();
        let passed =
            self.variable.filter(|_| self.is_passed_by_flag).map(|(name, value)| format!("--env={name}={value}"));
        let mut argv: Vec<&str> = match place {
            Where::Outside => vec![self.name],
            Where::Inside => vec!["sandbox", "agent", self.name],
        };
        if place == Where::Inside {
            argv.extend(flags.iter().map(String::as_str).chain(passed.as_deref()));
            argv.push("--");
        }
        argv.extend(own.iter().map(String::as_str));
        let mut command = home.command(&argv, Terminal::Own);
        command.envs(self.variable);
        let mut run = Run::at_terminal(command, home.user(), manner.answer)?;
        let failure = self.drive(&mut run, place)?;
        let seconds = failure.1;
        let ended = run.end(Duration::from_secs_f64(seconds) + START)?;
        let stayed = || ended.code.is_none().then(|| format!("it does not quit: {}", ended.last_lines()));
        let failure = failure.0.or_else(stayed);
        Ok((ended, seconds, failure))
    }

    /// Why it did not work, and the seconds until the first screen.
    fn drive(&self, run: &mut Run, place: Where) -> Result<(Option<String>, f64), Problems> {
        // Each once: what was chosen stays on the screen.
        let mut dialogs = self.dialogs.to_vec();
        let mut keys = None;
        loop {
            let is_late = run.elapsed() > START.as_secs_f64();
            let wanted: Vec<&str> = dialogs.iter().map(|(text, _)| *text).chain([self.ready]).collect();
            match (run.wait_for(&wanted, if keys.is_some() { ANSWERED } else { START })?, keys) {
                // On a busy machine a dialog is drawn before it reads.
                (None, Some(keys)) if !is_late => run.keys(keys)?,
                (None, _) => {
                    let why = format!("no first screen: {}", tail(run.shown()));
                    let seconds = run.elapsed();
                    run.keys("\x03")?;
                    self.leave(run, place)?;
                    return Ok((Some(why), seconds));
                }
                (Some(at), _) if at < dialogs.len() => {
                    let (_, answer) = dialogs.remove(at);
                    run.pause(KEYS)?;
                    run.keys(answer)?;
                    keys = Some(answer);
                }
                (Some(_), _) => break,
            }
        }
        let seconds = run.elapsed();
        run.set_idle(true);
        let mut failure = None;
        if let Some(key) = self.shell {
            for keys in [key, "echo in-$((40+2)) > made; cat made"] {
                run.pause(KEYS)?;
                run.keys(keys)?;
            }
            run.pause(KEYS)?;
            run.set_idle(false);
            run.keys("\r")?;
            if run.wait_for(&["in-42"], COMMAND)?.is_none() {
                failure = Some(format!("its shell command printed nothing: {}", tail(run.shown())));
            }
            run.set_idle(true);
        }
        self.leave(run, place)?;
        Ok((failure, seconds))
    }

    fn leave(&self, run: &mut Run, place: Where) -> Result<(), Problems> {
        run.pause(KEYS)?;
        for keys in self.quit {
            run.pause(KEYS)?;
            run.keys(keys)?;
        }
        // The changes are left waiting.
        if place == Where::Inside && run.wait_for(&["leave them waiting"], START)?.is_some() {
            run.keys("\r")?;
        }
        Ok(())
    }
}

fn tail(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words[words.len().saturating_sub(20)..].join(" ")
}
