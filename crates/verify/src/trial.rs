//! One trial: a scratch root with canaries, a launch, and what was found of it. Owns what is believed: the host's own state first, the
//! words of the probe only where nothing else can be seen, and nothing without bounds. Called by `judge`.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::answer::{Answer, printable};
use crate::canaries::{CODE_VARIABLES, Canaries, SECRET_VARIABLES};
use crate::errand::{Errand, Launched, Walls};
use crate::spec::{Away, Seen, Spec};
use crate::walls::Wall;

/// Longer than any trial takes; one that hangs is killed.
const MOST_TIME: Duration = Duration::from_mins(2);
/// What is kept of the end of each stream.
const MOST_KEPT: usize = 16 << 10;
/// Of what the launch left.
const MOST_OUTCOME: u64 = 256 << 10;
/// Variables that say who keeps limits for this user.
const PASSED: &[&str] = &["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// What all trials of a run share.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) directory: PathBuf,
    /// This program, and the copy of it that is shown inside.
    pub(crate) own: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) token: String,
    /// What stands as the user's policy.
    pub(crate) policy: Option<String>,
    pub(crate) switched_off: Vec<Wall>,
    pub(crate) namespaces: Vec<String>,
}

/// What a trial found, and what the launch said.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) answer: Answer,
    pub(crate) launched: Launched,
}

/// One trial of a check. What goes wrong around it is no answer.
pub(crate) fn trial(ground: &Ground, spec: &Spec, walls: Walls) -> Found {
    tried(ground, spec, walls)
        .unwrap_or_else(|why| Found { answer: Answer::Unclear(printable(&why)), launched: Launched::default() })
}

fn tried(ground: &Ground, spec: &Spec, walls: Walls) -> Result<Found, String> {
    let name = if walls == Walls::Standing { "standing" } else { "away" };
    let mut errand = Errand {
        check: spec.id.to_owned(),
        walls,
        switched_off: ground.switched_off.clone(),
        run: std::process::id(),
        root: ground.directory.join(format!("{}-{name}", spec.id)),
        program: ground.program.clone(),
        token: ground.token.clone(),
        tcp: 0,
        udp: 0,
        process: 0,
        namespaces: ground.namespaces.clone(),
    };
    let scratch = errand.scratch();
    scratch.make(&errand.token, ground.policy.as_deref()).map_err(|error| format!("no scratch root: {error}"))?;
    let mut canaries = Canaries::place(&mut errand).map_err(|error| format!("no canaries: {error}"))?;
    let ran = run(ground, &errand);
    let found = ran.and_then(|(output, launched)| {
        if let (Away::Tampered { tamper, .. }, Walls::Away) = (spec.away, walls) {
            tamper(&errand).map_err(|error| format!("the control cannot be prepared: {error}"))?;
        }
        Ok(Found { answer: judged(spec, &errand, &mut canaries, &output, &launched), launched })
    });
    let removed = canaries.remove().and_then(|()| scratch.remove());
    removed.map_err(|error| format!("what the trial made cannot be removed: {error}"))?;
    found
}

/// The end of what a trial wrote to its streams.
#[derive(Debug)]
struct Output {
    stdout: Vec<u8>,
    stderr: String,
}

fn run(ground: &Ground, errand: &Errand) -> Result<(Output, Launched), String> {
    let scratch = errand.scratch();
    let mut command = Command::new(&ground.own);
    command.args(["launch", &errand.text()]).current_dir(scratch.project()).env_clear();
    command.env("HOME", scratch.home()).env("XDG_CONFIG_HOME", scratch.config()).env("XDG_STATE_HOME", scratch.state());
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
    command.envs(SECRET_VARIABLES.iter().chain(CODE_VARIABLES).map(|name| (name, &errand.token)));
    command.envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot launch: {error}"))?;
    let (stdout, stderr) = (kept(child.stdout.take()), kept(child.stderr.take()));
    let in_time = ended(&mut child)?;
    let output = Output { stdout: joined(stdout), stderr: String::from_utf8_lossy(&joined(stderr)).into_owned() };
    if !in_time {
        return Err(format!("the trial did not end within {} s", MOST_TIME.as_secs()));
    }
    let mut text = Vec::new();
    let read = fs::File::open(scratch.outcome()).and_then(|file| file.take(MOST_OUTCOME).read_to_end(&mut text));
    let launched = read
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    let launched = launched.map_err(|why| format!("the launch left no outcome ({why}): {}", output.stderr.trim()))?;
    Ok((output, launched))
}

/// Reads a stream to its end and keeps the last of it.
fn kept(stream: Option<impl Read + Send + 'static>) -> Option<JoinHandle<Vec<u8>>> {
    let mut stream = stream?;
    Some(std::thread::spawn(move || {
        let mut last = VecDeque::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            last.extend(&buffer[..length]);
            let over = last.len().saturating_sub(MOST_KEPT);
            last.drain(..over);
        }
        last.into()
    }))
}

fn joined(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
}

/// Whether it ended by itself. The session of a supervisor that is killed ends with it.
fn ended(child: &mut Child) -> Result<bool, String> {
    let until = Instant::now() + MOST_TIME;
    while Instant::now() < until {
        if child.try_wait().map_err(|error| error.to_string())?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
    Ok(false)
}

fn judged(spec: &Spec, errand: &Errand, canaries: &mut Canaries, output: &Output, launched: &Launched) -> Answer {
    if let Some(error) = &launched.error {
        return match spec.refusal {
            Some(words) if error.contains(words) => Answer::Refused(printable(error)),
            _ => Answer::Unclear(printable(&format!("the session did not start: {error}"))),
        };
    }
    let said = Answer::last_of(&output.stdout);
    if let Some(end) = launched.end.filter(|end| spec.ends.contains(end)) {
        return Answer::Refused(format!("the session was ended: {end:?}"));
    }
    let Some(said) = said else {
        let end = launched.end.map_or_else(String::new, |end| format!(", the session's end: {end:?}"));
        return Answer::Unclear(printable(&format!("the probe said nothing{end}; {}", output.stderr.trim())));
    };
    match (spec.seen, said) {
        (_, Answer::Unclear(why)) => Answer::Unclear(why),
        (Seen::OnHost(look), Answer::Reached(text) | Answer::Refused(text)) => match look(errand, canaries) {
            Some(harm) => Answer::Reached(printable(&format!("{harm} ({text})"))),
            None => Answer::Refused(printable(&format!("the host saw nothing of it ({text})"))),
        },
        (Seen::ByProbe, Answer::Refused(text)) => match unreported(spec, launched) {
            Some(call) => Answer::Reached(format!("{call} reached the kernel ({text})")),
            None => Answer::Refused(text),
        },
        (Seen::ByProbe, reached) => reached,
    }
}

fn unreported(spec: &Spec, launched: &Launched) -> Option<&'static str> {
    spec.reported.iter().copied().find(|call| !launched.blocked.iter().any(|blocked| blocked == call))
}
