//! A real terminal with a person's shell in it, driven through tmux. Owns one tmux server per test, ended when dropped.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Place, binary, finish, wait_for};

pub(crate) struct Screen {
    pub(crate) place: Place,
}

impl Screen {
    /// A terminal of 80 x 24 at the prompt `outer$ ` of a shell that knows `sandbox`.
    pub(crate) fn open(programs: &[&str]) -> Option<Screen> {
        let place = Place::with(&[&["tmux"], programs].concat())?;
        let rc = format!("PS1='outer$ '\nalias sandbox='{}'\nHISTFILE=\n", binary().display());
        place.write("inner.rc", "PS1='inner$ '\nHISTFILE=\n");
        let screen = Screen::of(place, &[], ["80", "24"], &rc);
        screen.wait_for("outer$");
        Some(screen)
    }

    /// A terminal of that size with a shell that first reads `rc`; all of it behind the words of `entering`.
    pub(crate) fn of(place: Place, entering: &[String], [columns, rows]: [&str; 2], rc: &str) -> Screen {
        place.write("home:outer.rc", rc);
        let screen = Screen { place };
        let shell = format!("bash --noprofile --rcfile '{}' -i", screen.place.path("home:outer.rc").display());
        let mut words = entering.to_vec();
        words.push("tmux".to_owned());
        screen.tmux_by(&words, &["new-session", "-d", "-x", columns, "-y", rows, &shell]);
        screen.tmux(&["set-option", "-g", "history-limit", "20000"]);
        screen
    }

    /// The same, with an inner shell started: the prompt is `inner$ `.
    pub(crate) fn open_inside(programs: &[&str]) -> Option<Screen> {
        let screen = Screen::open(programs)?;
        screen.line("sandbox run -- bash --noprofile --rcfile ./inner.rc -i");
        screen.wait_for("inner$");
        Some(screen)
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> String {
        self.tmux_by(&["tmux".to_owned()], arguments)
    }

    fn tmux_by(&self, words: &[String], arguments: &[&str]) -> String {
        let mut command = self.place.command(&words[0]);
        command
            .args(&words[1..])
            .env("TMUX_TMPDIR", &self.place.home)
            .args(["-L", "e2e", "-f", "/dev/null"])
            .args(arguments);
        finish(command.stdin(Stdio::null()), b"").ok()
    }

    /// Presses keys by tmux's names: `C-c`, `Enter`, `q`.
    pub(crate) fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line and presses Enter.
    pub(crate) fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// What is on the screen, without what scrolled away.
    pub(crate) fn text(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p", "-J"]);
        text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    /// Kept for people to look at, where a directory for it is named: `HOME=/home COFFERDAM_CAPTURES=DIR`, one test at a time.
    pub(crate) fn capture(&self, name: &str) {
        if let Some(directory) = std::env::var_os("COFFERDAM_CAPTURES") {
            let path = std::path::Path::new(&directory).join(format!("{name}.txt"));
            let home = self.place.home.display().to_string();
            std::fs::write(path, self.text().replace(&home, "/home/you")).expect("writable");
        }
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(&format!("`{text}`"), |screen| screen.contains(text))
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, there: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let text = self.text();
            if there(&text) {
                return text;
            }
            assert!(started.elapsed() < PATIENCE, "waited in vain for {what}; the screen:\n{text}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until a shell asks for a command. What is typed sooner may go to the program that is about to end.
    #[track_caller]
    pub(crate) fn prompt(&self) {
        self.wait_until("a prompt", |screen| screen.trim_end().ends_with('$'));
    }

    /// At the next prompt, types `command` and waits for a line that starts with `answer`, which the typed line must not.
    #[track_caller]
    pub(crate) fn ask(&self, command: &str, answer: &str) {
        self.prompt();
        self.line(command);
        self.wait_until(&format!("the answer `{answer}`"), |screen| {
            screen.lines().any(|line| line.starts_with(answer))
        });
    }

    /// Closes the terminal while a command runs in it, which must end then.
    #[track_caller]
    pub(crate) fn close(&self) {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.trim())).expect("it runs");
        let command = std::path::Path::new("/proc").join(children.trim());
        assert!(command.is_dir(), "{children}");
        self.tmux(&["kill-pane"]);
        wait_for("the end of the command", || (!command.exists()).then_some(()));
    }

    /// The settings of the outer terminal; asked at the outer prompt.
    pub(crate) fn settings(&self, name: &str) -> String {
        self.ask(&format!("stty -a > ~/{name}; echo stored-{name}"), &format!("stored-{name}"));
        self.place.read(&format!("home:{name}")).expect("stty wrote it")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut command = self.place.command("tmux");
        command.env("TMUX_TMPDIR", &self.place.home).args(["-L", "e2e", "kill-server"]);
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(ended.is_ok() || std::thread::panicking(), "tmux cannot be ended");
    }
}
