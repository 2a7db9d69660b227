//! Relay and prompt around a real program in a real terminal, with questions that no program had. The test binary runs again
//! in tmux as `play`, which stands in for the supervisor.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_kernel::signal::SignalFd;
use cofferdam_launcher::terminal::{Outer, open_other_side};
use cofferdam_plan::Terminal;
use rustix::event::{PollFd, Timespec, poll};
use rustix::pty::OpenptFlags;

use super::question;
use crate::terminal::drain::Patience;
use crate::terminal::relay::{Ready, Relay};

/// Where `play` finds its orders and leaves the answers; the script of the program that it runs.
const DIRECTORY: &str = "COFFERDAM_TEST_REHEARSAL";
const SCRIPT: &str = "COFFERDAM_TEST_SCRIPT";

/// Not a test: the supervisor's part of a terminal session.
#[test]
fn play() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let terminal = Terminal { stdin: true, stdout: true, stderr: true };
    let outer = Outer::look(terminal).expect("a terminal").expect("a terminal");
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
    rustix::pty::unlockpt(&master).expect("a pty");
    let slave = open_other_side(&master).expect("a pty");
    rustix::termios::tcsetwinsize(&slave, rustix::termios::tcgetwinsize(rustix::stdio::stdin()).expect("a terminal"))
        .expect("a pty");
    let stdio = |fd: &OwnedFd| Stdio::from(fd.try_clone().expect("descriptors are free"));
    let mut child = Command::new("setsid")
        .args(["-c", "bash", "--noprofile", "--norc", "-c", &std::env::var(SCRIPT).expect("a script")])
        .stdin(stdio(&slave))
        .stdout(stdio(&slave))
        .stderr(stdio(&slave))
        .spawn()
        .expect("setsid is installed");
    drop(slave);
    let mut relay = Relay::new(outer, terminal, None);
    relay.answer_here(false).expect("a terminal");
    relay.open(master).expect("a pty");
    let (mut asked, mut answers) = (0, String::new());
    let mut size = crate::approvals::prompt::tests::SIZE;
    while child.try_wait().expect("a child").is_none() {
        turn(&mut relay);
        relay.check_clock(Instant::now()).expect("no surprise");
        let wanted = std::fs::read_to_string(directory.join("ask")).ok().and_then(|text| text.trim().parse().ok());
        while wanted.is_some_and(|wanted: u64| asked < wanted) {
            asked += 1;
            relay.ask("0a-1", &question(asked)).expect("no surprise");
        }
        for (id, verdict) in relay.answers() {
            writeln!(answers, "{id} {verdict:?}").expect("a string");
            std::fs::write(directory.join("answers"), &answers).expect("writable");
        }
        let now = rustix::termios::tcgetwinsize(rustix::stdio::stdin()).expect("a terminal");
        let now = crate::approvals::prompt::Size { rows: now.ws_row, columns: now.ws_col };
        if now != size {
            size = now;
            relay.resize().expect("a terminal");
            std::fs::write(directory.join("size"), format!("{}x{}", size.columns, size.rows)).expect("writable");
        }
    }
    let signals = SignalFd::new().expect("descriptors are free");
    relay.drain(&signals, Patience::WhileRead(Duration::from_secs(2))).expect("no surprise");
    relay.leave_raw_mode().expect("a terminal");
}

fn turn(relay: &mut Relay) {
    let wanted = relay.wanted();
    let mut fds: Vec<PollFd<'_>> = wanted.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 })).expect("pollable");
    let ready: Vec<Ready> =
        fds.iter().zip(&wanted).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, (_, _, ready))| *ready).collect();
    drop(fds);
    for ready in ready {
        relay.turn(ready).expect("no surprise");
    }
}

/// A terminal in tmux in which `play` runs a script.
struct Scene {
    directory: PathBuf,
}

impl Scene {
    fn open(name: &str, script: &str) -> Option<Scene> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            println!("skipped: `tmux` is not installed");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("cofferdam-prompt-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("writable");
        let scene = Scene { directory };
        let own = std::env::current_exe().expect("a path");
        let play = format!(
            "clear; '{}' --exact {}::play --nocapture; echo the-end; sleep 100",
            own.display(),
            crate::own_module(module_path!())
        );
        let mut tmux = scene.command(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &play]);
        tmux.env(DIRECTORY, &scene.directory).env(SCRIPT, script).env("TERM", "xterm");
        assert!(tmux.status().expect("tmux").success());
        Some(scene)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.env("TMUX_TMPDIR", &self.directory).env_remove("TMUX").args(["-L", "prompt"]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn text(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p"]);
        text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    fn ask(&self, questions: u32) {
        std::fs::write(self.directory.join("ask"), questions.to_string()).expect("writable");
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn answers(&self) -> String {
        std::fs::read_to_string(self.directory.join("answers")).unwrap_or_default()
    }

    /// The last size that `play` has seen the terminal change to.
    fn size(&self) -> String {
        std::fs::read_to_string(self.directory.join("size")).unwrap_or_default()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    #[track_caller]
    fn wait_until(&self, what: &str, there: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let text = self.text();
            if there(&text) {
                return text;
            }
            assert!(started.elapsed() < Duration::from_secs(15), "waited in vain for {what}; the screen:\n{text}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Asks question 1 and waits until the panel has the keys.
    #[track_caller]
    fn asked(&self) -> String {
        self.ask(1);
        self.wait_for("question 1 - press a key")
    }

    /// Kept for people to look at, where a directory for it is named.
    fn capture(&self, name: &str) {
        if let Some(directory) = std::env::var_os("COFFERDAM_CAPTURES") {
            let path = Path::new(&directory).join(format!("prompt-{name}.txt"));
            std::fs::write(path, self.text()).expect("writable");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

/// Whether the screen is what it was before, without the lines that scrolled away.
fn ends_alike(before: &str, after: &str) -> bool {
    let lines = |text: &str| -> Vec<String> { text.trim_end().lines().map(str::to_owned).collect() };
    lines(before).ends_with(&lines(after))
}

#[test]
fn a_shell_gets_its_screen_and_its_line_back() {
    let Some(scene) = Scene::open("shell", "PS1='$ ' bash --noprofile --norc -i") else { return };
    scene.wait_for("$");
    scene.keys(&["seq 30", "Enter"]);
    scene.wait_for("\n30\n");
    scene.keys(&["echo half a line"]);
    let before = scene.wait_for("half a line");
    scene.asked();
    scene.wait_until("the question below the line", |text| {
        text.contains("read   /home/you/notes/1.txt") && text.contains("$ echo half a line\n")
    });
    scene.capture("shell");
    scene.keys(&["s"]);
    scene.wait_until("the shell as it was", |text| !text.contains("question") && ends_alike(&before, text));
    std::thread::sleep(Duration::from_millis(400));
    scene.keys(&[" and the rest", "Enter"]);
    scene.wait_for("\nhalf a line and the rest\n");
    scene.capture("shell-after");
    assert_eq!(scene.answers(), "1 Allow { reach: File, keep: Session }\n");
    scene.keys(&["stty size", "Enter"]);
    scene.wait_for("\n24 80\n");
}

#[test]
fn less_is_smaller_and_then_as_it_was() {
    let Some(scene) = Scene::open("less", "seq 1000 | LESS= less") else { return };
    let before = scene.wait_for("\n23\n:");
    scene.ask(1);
    scene.wait_until("less above the panel", |text| {
        let is_less = text.contains("\n1\n2\n") | text.starts_with("1\n2\n") && text.contains("\n:\n");
        is_less && text.contains("press a key") && text.contains("read   /home/you/notes/1.txt")
    });
    scene.capture("less");
    scene.keys(&["n"]);
    scene.wait_until("less as it was", |text| text.trim_end() == before.trim_end());
    scene.capture("less-after");
    scene.keys(&["G"]);
    scene.wait_for("\n1000\n");
    scene.keys(&["q"]);
    scene.wait_for("the-end");
}

#[test]
fn vim_is_smaller_and_then_as_it_was() {
    let Some(vim) = ["vim.tiny", "vim", "vi"].iter().find(|name| Path::new("/usr/bin").join(name).exists()) else {
        println!("skipped: no vim is installed");
        return;
    };
    let script = format!("seq 100 > $PWD/numbers.txt; exec {vim} -u NONE -N -n $PWD/numbers.txt");
    let Some(scene) = Scene::open("vim", &format!("cd ${DIRECTORY}; {script}")) else { return };
    let before = scene.wait_for("\n23\n");
    scene.asked();
    scene.wait_until("vim above the panel", |text| text.contains("numbers.txt") || text.contains("question"));
    scene.capture("vim");
    scene.keys(&["y"]);
    scene.wait_until("vim as it was", |text| text.lines().take(23).eq(before.lines().take(23)));
    scene.capture("vim-after");
    scene.keys(&["G", "o", "typed"]);
    scene.wait_for("\ntyped\n");
    scene.keys(&["Escape", ":q!", "Enter"]);
    scene.wait_for("the-end");
}

#[test]
fn a_vim_that_ends_under_the_question_leaves_no_trace() {
    let Some(scene) = Scene::open("leaves", "seq 40; tput smcup; echo drawn; read -r; tput rmcup; echo bye; read -r")
    else {
        return;
    };
    scene.wait_for("drawn");
    scene.ask(1);
    scene.wait_for("question 1 - ");
    // Two at once are the program's, whether it or the panel has the keys by now, and it has time again to draw.
    scene.keys(&["x", "Enter"]);
    let shown = scene.wait_until("the lines above the panel", |text| {
        text.contains("\n40\n") && text.contains("press a key") && !text.contains("drawn")
    });
    assert!(!shown.contains("bye"), "{shown}");
    scene.keys(&["n"]);
    scene.wait_until("the lines alone", |text| text.contains("\n40\nbye\n") && !text.contains("question"));
}

#[test]
fn a_progress_bar_goes_on_in_its_line() {
    // At its fifth step it waits to be seen.
    let bar = "printf '\\rstep %3d of 40 ' $i; until [ $i != 5 -o -e on ]; do sleep 0.05; done; sleep 0.1";
    let script = format!("cd ${DIRECTORY}; seq 30; for i in $(seq 40); do {bar}; done; echo done; read -r");
    let Some(scene) = Scene::open("progress", &script) else { return };
    scene.wait_for("step   5 of 40");
    std::fs::write(scene.directory.join("on"), "").expect("writable");
    scene.asked();
    scene.capture("progress");
    scene.keys(&["N"]);
    scene.wait_until("one bar in its line", |text| {
        text.matches("step").count() == 1 && text.contains("\n30\nstep  40 of 40 done")
    });
}

#[test]
fn top_draws_again() {
    if !Path::new("/usr/bin/top").exists() {
        println!("skipped: `top` is not installed");
        return;
    }
    let Some(scene) = Scene::open("top", "top -d 100") else { return };
    let before = scene.wait_until("top", |text| {
        text.contains("PID USER") && text.lines().filter(|line| !line.is_empty()).count() > 10
    });
    scene.asked();
    scene.keys(&["y"]);
    let filled = |text: &str| text.lines().filter(|line| !line.is_empty()).count();
    scene.wait_until("all of its lines", |text| filled(text) + 1 >= filled(&before) && !text.contains("question"));
}

#[test]
fn a_resize_moves_the_panel() {
    let Some(scene) = Scene::open("resize", "seq 30; printf 'no newline'; while read -r; do stty size; done") else {
        return;
    };
    scene.wait_for("no newline");
    scene.asked();
    for (columns, rows) in [("60", "18"), ("100", "40"), ("80", "24")] {
        scene.tmux(&["resize-window", "-x", columns, "-y", rows]);
        scene.wait_until("the other size", |_| scene.size() == format!("{columns}x{rows}"));
        // The terminal moves what is there before the panel is drawn anew.
        scene.wait_until("one panel below what was printed", |text| {
            let is_drawn = text.contains("- press a key") && text.contains("[?] more");
            is_drawn && text.matches("question 1").count() == 1 && text.contains("\n30\nno newline\n")
        });
    }
    scene.keys(&["n"]);
    scene.wait_until("the panel to go", |text| !text.contains("question") && text.contains("\n30\nno newline\n"));
    // The rows come back a moment after the panel went.
    scene.wait_until("all of the rows", |text| {
        scene.keys(&["Enter"]);
        text.contains("\n24 80\n")
    });
}

#[test]
fn without_keys_of_its_own_a_line_says_how_to_answer() {
    let Some(scene) = Scene::open("small", "printf 'no newline'; read -r") else { return };
    scene.wait_for("no newline");
    scene.tmux(&["resize-window", "-x", "80", "-y", "6"]);
    scene.wait_until("the smaller size", |_| scene.size() == "80x6");
    scene.ask(1);
    scene.wait_for("no newline\nsandbox: cat wants to read /home/you/notes/1.txt: `sandbox approve 1:1`");
}
