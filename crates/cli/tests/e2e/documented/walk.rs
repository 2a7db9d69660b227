//! A reader at a terminal: types each line of a section as it stands in the document, answers, and compares what comes with what the
//! document shows. Owns the terminal with its shell, in an internet of its own where the section needs one; the expectations are `table`'s.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use cofferdam_testkit::world::World;

use super::markdown::Line;
use super::table::{Row, Start};
use crate::internet::{ALLOWED, Internet, OTHER};
use crate::screen::Screen;
use crate::support::{Place, Ran, binary, finish, which};

/// An agent's first screen can take most of a minute on a busy machine.
const LONGEST: Duration = Duration::from_mins(1);
/// `PS0` stands between what was typed and what comes of it; the prompt has the number and the exit code.
const SHELL: &str = "PS0='<begin>\\n'\nPS1='\\n[\\#:$?]$ '\nHISTFILE=\nexport PATH=~/.local/bin:$PATH SSH_AUTH_SOCK=~/agent.sock\nunset MAIL\n";

pub(super) struct Terminal {
    screen: Screen,
    world: Option<World>,
    number: u32,
}

impl Terminal {
    /// In a new home and project; nothing, with the reason said, where such a place cannot be made.
    pub(super) fn open(start: Start) -> Option<Terminal> {
        if which("tmux").is_none() {
            println!("skipped: `tmux` is not installed");
            return None;
        }
        let (place, world) = match start {
            Start::Alone => (Place::new(), None),
            Start::Online | Start::Served => {
                let Internet { place, world } = Internet::naming(&[], NAMES)?;
                provide(&place, &world);
                if start == Start::Served && which("psql").is_some() {
                    world.postgres("0.0.0.0:5432");
                }
                (place, Some(world))
            }
        };
        let installed = place.path("home:.local/bin");
        std::fs::create_dir_all(&installed).expect("a directory");
        for name in ["sandbox", "sandbox-egress", "sandbox-verify"] {
            let built = binary().with_file_name(name);
            if built.exists() {
                std::os::unix::fs::symlink(built, installed.join(name)).expect("a link");
            }
        }
        let entering = world.as_ref().map(World::entering).unwrap_or_default();
        let variables = if world.is_some() { AUTHORITY } else { "" };
        let checkout =
            std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("set by the runner")).join("../..");
        let shell = format!("{SHELL}{variables}CHECKOUT='{}'\n", checkout.display());
        place.write("home:shell.rc", &shell);
        let screen = Screen::of(place, &entering, ["160", "50"], &shell);
        let mut terminal = Terminal { screen, world, number: 0 };
        terminal.number = terminal.ended(0).expect("a prompt").0;
        Some(terminal)
    }

    /// A script of the test's, beside the terminal and where its shell is.
    fn host(&self, script: &str) -> Ran {
        let mut words = self.world.as_ref().map(World::entering).unwrap_or_default();
        words.extend(["bash", "-c"].map(str::to_owned));
        let here = self.screen.tmux(&["display-message", "-p", "#{pane_current_path}"]);
        let mut command = self.screen.place.command(&words[0]);
        command
            .args(&words[1..])
            .arg(format!(". ~/shell.rc; . $CHECKOUT/crates/cli/tests/e2e/documented/prepare.sh\n{script}"));
        finish(command.current_dir(here.trim()), b"")
    }

    /// Types the line of a row and answers. What is wrong, if anything is.
    pub(super) fn enter(&mut self, row: &Row, line: &Line) -> Result<(), String> {
        if !row.before.is_empty() {
            let ran = self.host(&row.before);
            if ran.code != 0 {
                return Err(format!("its preparation ended with {}:\n{}{}", ran.code, ran.out, ran.err));
            }
        }
        let mut typed = row.typed.as_ref().unwrap_or(&line.text).clone();
        for (name, script) in &row.filled {
            let ran = self.host(script);
            typed = typed.replace(name, ran.out.trim());
        }
        if let Some(remark) = line.remark.as_ref().filter(|_| row.typed.is_none()) {
            write!(typed, "  # {remark}").expect("a text");
        }
        self.screen.tmux(&["clear-history"]);
        self.screen.line(&typed);
        let mut output = String::new();
        for (text, keys) in &row.answers {
            self.until(&format!("`{text}`"), |screen| screen.contains(text.as_str()).then_some(()))?;
            // What a question or a whole screen shows is gone with it.
            output.push_str(&self.output());
            self.answer(keys)?;
        }
        let (number, code) = self.ended(self.number)?;
        self.number = number;
        output.push_str(&self.output());
        let mut wrong = self.compare(row, line, code, &output);
        if !row.then.is_empty() {
            let ran = self.host(&row.then);
            if ran.code != 0 {
                write!(wrong, "afterwards `{}` ended with {}: {}{}; ", row.then, ran.code, ran.out, ran.err)
                    .expect("a text");
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("typed: {typed}\n{wrong}\nthe output:\n{output}")) }
    }

    /// Presses keys, types the line behind a `>`, or runs the script behind a `!` while the command goes on.
    fn answer(&self, keys: &str) -> Result<(), String> {
        if let Some(script) = keys.strip_prefix('!') {
            let ran = self.host(script);
            return if ran.code == 0 {
                Ok(())
            } else {
                Err(format!("`{script}` ended with {}: {}{}", ran.code, ran.out, ran.err))
            };
        }
        // A key that comes at once may be taken for one that was typed before the question.
        std::thread::sleep(Duration::from_millis(800));
        match keys.strip_prefix('>') {
            Some(line) => self.screen.line(line),
            None => keys.split(' ').for_each(|key| self.screen.keys(&[key])),
        }
        Ok(())
    }

    fn compare(&self, row: &Row, line: &Line, code: i32, output: &str) -> String {
        let mut wrong = String::new();
        if code != row.code {
            write!(wrong, "it ended with {code}, not with {}; ", row.code).expect("a text");
        }
        for text in &row.says {
            if !output.contains(text.as_str()) {
                write!(wrong, "`{text}` is not there; ").expect("a text");
            }
        }
        for text in &row.lacks {
            if output.contains(text.as_str()) {
                write!(wrong, "`{text}` is there; ").expect("a text");
            }
        }
        let home = self.screen.place.home.display().to_string();
        let came = general(&output.replace(&home, "/home/you"));
        let mut rest = came.as_str();
        for shown in line.shown.iter().map(|shown| general(shown)).filter(|shown| !shown.is_empty()) {
            match after(rest, &shown) {
                Some(left) => rest = left,
                None => write!(wrong, "the document shows `{shown}`, which does not come; ").expect("a text"),
            }
        }
        wrong
    }

    /// What came of the last line that was typed.
    fn output(&self) -> String {
        let all = self.screen.tmux(&["capture-pane", "-p", "-J", "-S", "-", "-E", "-"]);
        let came = all.rsplit_once("<begin>").map_or(all.as_str(), |(_, came)| came);
        let end = came.rfind(&format!("[{}:", self.number)).unwrap_or(came.len());
        came[..end].lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    /// The number of the next prompt after this one, and the exit code in it.
    fn ended(&self, number: u32) -> Result<(u32, i32), String> {
        self.until("the prompt", |text| {
            let (next, code) =
                text.trim_end().lines().last()?.strip_prefix('[')?.strip_suffix("]$")?.split_once(':')?;
            let next: u32 = next.parse().ok()?;
            (next > number).then_some((next, code.parse().ok()?))
        })
    }

    fn until<T>(&self, what: &str, found: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let started = Instant::now();
        loop {
            let text = self.screen.text();
            // Not what was typed.
            let came = text.rsplit_once("<begin>").map_or(text.as_str(), |(_, came)| came);
            if let Some(found) = found(came) {
                return Ok(found);
            }
            if started.elapsed() > LONGEST {
                return Err(format!("waited in vain for {what}; the screen:\n{text}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends what still runs.
    pub(super) fn close(self) {
        self.host("for name in $(sandbox ps | sed -n '2,$p' | cut -d' ' -f1); do sandbox kill $name; done; . ~/agent.env && kill $SSH_AGENT_PID");
    }
}

/// A database has a user `tester`; programs outside and inside believe the certificates of the test's internet.
const AUTHORITY: &str = "export PGUSER=tester PGDATABASE=postgres SSL_CERT_FILE=~/project/authority.pem
export NODE_EXTRA_CA_CERTS=$SSL_CERT_FILE COFFERDAM_RO=${COFFERDAM_RO:+$COFFERDAM_RO:}$SSL_CERT_FILE
";

/// The address of a registry that guides call a company's own.
const CORPORATE: &str = "10.1.2.3";
const NAMES: &[(&str, &str)] = &[
    ("registry.npmjs.org", ALLOWED),
    ("index.crates.io", ALLOWED),
    ("static.crates.io", ALLOWED),
    ("api.example.com", ALLOWED),
    ("db.example.com", ALLOWED),
    ("x.example", ALLOWED),
    ("npm.corp.example", CORPORATE),
];

/// The registries and hosts that documents name.
fn provide(place: &Place, world: &World) {
    let names: Vec<&str> = NAMES.iter().filter(|(_, address)| *address == ALLOWED).map(|(name, _)| *name).collect();
    world.http(&format!("{OTHER}:80"));
    world.http(&format!("{CORPORATE}:80"));
    world.http(&format!("{CORPORATE}:8443"));
    world.https(&format!("{ALLOWED}:443"), &names);
    world.https(&format!("{CORPORATE}:443"), &["npm.corp.example"]);
    let authority = std::fs::read_to_string(world.authority()).expect("it was made");
    place.write("authority.pem", &authority);
    // A machine's own `cafile` for npm comes before `NODE_EXTRA_CA_CERTS`, and the user's before the machine's.
    place.write("home:.npmrc", &format!("cafile={}\n", place.path("authority.pem").display()));
    finish(place.command("bash").args(["-c", REGISTRIES]).current_dir(world.files()), b"").ok();
}

/// The package `ms` for npm and the crate `cfg-if` for cargo, as files behind a web server.
const REGISTRIES: &str = r#"set -e
mkdir -p registry.npmjs.org/tarballs package cfg-if-1.0.0/src index.crates.io/cf/g- static.crates.io/crates/cfg-if/1.0.0
echo '{"name":"ms","version":"2.1.3"}' > package/package.json
tar czf registry.npmjs.org/tarballs/ms-2.1.3.tgz package
echo '{"name":"ms","dist-tags":{"latest":"2.1.3"},"versions":{"2.1.3":{"name":"ms","version":"2.1.3","dist":{"tarball":"https://registry.npmjs.org/tarballs/ms-2.1.3.tgz"}}}}' > registry.npmjs.org/ms
printf '[package]\nname = "cfg-if"\nversion = "1.0.0"\n' > cfg-if-1.0.0/Cargo.toml
touch cfg-if-1.0.0/src/lib.rs
tar czf static.crates.io/crates/cfg-if/1.0.0/download cfg-if-1.0.0
sum=$(sha256sum static.crates.io/crates/cfg-if/1.0.0/download | cut -d' ' -f1)
echo '{"dl":"https://static.crates.io/crates","api":"https://crates.io"}' > index.crates.io/config.json
echo '{"name":"cfg-if","vers":"1.0.0","deps":[],"cksum":"'$sum'","features":{},"yanked":false}' > index.crates.io/cf/g-/cfg-if
ln -s registry.npmjs.org npm.corp.example
"#;

/// A shown line without what differs from run to run: names of sessions, times, numbers of processes and seconds.
fn general(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let (name, question) = bare.split_once(':').map_or((bare, ""), |(name, rest)| (name, rest));
        let is_time = bare.len() >= 8 && bare.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'-'));
        let is_name = name.len() == 12 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let is_pid = words.last().is_some_and(|last| last.ends_with("pid") || last == "tried");
        // A name may be digits alone, as a time is.
        let put = if is_name {
            word.replace(bare, if question.is_empty() { "SESSION" } else { "SESSION:N" })
        } else if is_time {
            word.replace(bare, "TIME")
        } else if is_pid {
            word.replace(bare, "N")
        } else {
            word.to_owned()
        };
        if matches!(bare, "s" | "ms")
            && let Some(last) = words.last_mut().filter(|last| last.bytes().all(|b| b.is_ascii_digit()))
        {
            "N".clone_into(last);
        }
        words.push(put);
    }
    words.join(" ")
}

/// What comes after `shown`, in which `...` stands for anything.
fn after<'a>(came: &'a str, shown: &str) -> Option<&'a str> {
    shown.split("...").try_fold(came, |rest, part| rest.find(part.trim()).map(|at| &rest[at + part.trim().len()..]))
}

#[test]
fn documented_output_is_compared_but_for_what_differs_from_run_to_run() {
    let home =
        general("sandbox: waits (session 4f1f6a0c9d2e); in 298 s, pid 12 at 2026-11-18 09:12:04 of 6b1f0e92d7c4:1 `x`");
    assert_eq!(home, "sandbox: waits (session SESSION); in N s, pid N at TIME TIME of SESSION:N `x`");
    assert_eq!(general("677246736520:1"), "SESSION:N");
    assert_eq!(after("a long b and c", "a ... b"), Some(" and c"));
    assert_eq!(after("a long c", "a ... b"), None);
    assert_eq!(after("b then a", "a ... b"), None);
}
