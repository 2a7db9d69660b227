//! Ctrl-C, Ctrl-Z, Ctrl-\\ and hang-up do inside and outside what they do in any shell.

use crate::screen::Screen;
use crate::support::{slurp, wait_for};

#[test]
fn ctrl_c_ends_the_running_program_and_not_the_shell() {
    let Some(screen) = Screen::open_inside(&[]) else { return };
    screen.line("sleep 100");
    screen.wait_until("sleep to run", |_| runs("sleep\u{0}100\u{0}", &screen));
    screen.keys(&["C-c"]);
    screen.ask("echo code-$?", "code-130");
    screen.ask("tty", "/dev/pts/0");
}

#[test]
fn ctrl_c_ends_a_command_without_a_shell_and_the_code_says_so() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- sleep 101");
    screen.wait_until("sleep to run", |_| runs("sleep\u{0}101\u{0}", &screen));
    screen.keys(&["C-c"]);
    screen.ask("echo code-$?", "code-130");
    screen.ask("stty -a | grep -c ' echo '", "1");
}

#[test]
fn ctrl_z_stops_a_job_of_the_inner_shell_and_fg_resumes_it() {
    let Some(screen) = Screen::open_inside(&[]) else { return };
    screen.ask("echo go-$((1 + 1)); cat", "go-2");
    screen.line("first");
    screen.wait_for("first\nfirst");
    screen.keys(&["C-z"]);
    screen.wait_for("Stopped");
    screen.ask("echo still-$((1 + 1))", "still-2");
    screen.line("fg");
    screen.wait_for("\ncat\n");
    screen.line("second");
    screen.wait_for("second\nsecond");
    screen.keys(&["C-d"]);
    screen.ask("echo code-$?", "code-0");
}

#[test]
fn ctrl_z_suspends_the_whole_session_and_fg_brings_it_back() {
    let Some(screen) = Screen::open(&[]) else { return };
    let before = screen.settings("before");
    screen.line("sandbox run -- cat");
    screen.line("first");
    screen.wait_for("first\nfirst");
    screen.keys(&["C-z"]);
    screen.wait_for("Stopped");
    assert_eq!(screen.settings("during"), before);
    screen.line("fg");
    screen.line("second");
    screen.wait_for("second\nsecond");
    // A second time, since state that is set up once wears out.
    screen.keys(&["C-z"]);
    screen.wait_until("the second stop", |text| text.matches("Stopped").count() >= 2);
    screen.line("fg");
    screen.line("third");
    screen.wait_for("third\nthird");
    screen.keys(&["C-d"]);
    screen.ask("echo code-$?", "code-0");
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn a_suspended_session_goes_on_in_the_background() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- bash -c 'until [ -e go ]; do sleep 0.2; done; touch done'");
    screen.wait_until("the loop to run", |_| runs("bash\u{0}-c\u{0}until", &screen));
    screen.keys(&["C-z"]);
    screen.wait_for("Stopped");
    screen.prompt();
    screen.line("bg");
    screen.place.write("go", "");
    wait_for("the end in the background", || screen.place.exists("done").then_some(()));
    screen.ask("wait; echo typed-$((1 + 1))", "typed-2");
    screen.ask("stty -a | grep -c ' echo '", "1");
}

#[test]
fn a_resize_while_suspended_is_seen_after_fg() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- bash -c 'while read x; do stty size; done'");
    screen.line("");
    screen.wait_for("24 80");
    screen.keys(&["C-z"]);
    screen.wait_for("Stopped");
    screen.tmux(&["resize-window", "-x", "90", "-y", "28"]);
    screen.line("fg");
    screen.line("");
    screen.wait_for("28 90");
}

#[test]
fn the_quit_key_reaches_the_command() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- sleep 102");
    screen.wait_until("sleep to run", |_| runs("sleep\u{0}102\u{0}", &screen));
    screen.keys(&["C-\\"]);
    screen.ask("echo code-$?", "code-131");
}

#[test]
fn a_supervisor_that_is_terminated_leaves_the_terminal_as_it_was() {
    let Some(screen) = Screen::open(&[]) else { return };
    let before = screen.settings("before");
    screen.line("sandbox run -- bash -c 'echo $PPID > started; sleep 103'");
    wait_for("the start", || screen.place.exists("started").then_some(()));
    let supervisor = supervisor(&screen).expect("it runs");
    screen.place.host(&format!("kill -TERM {supervisor}")).ok();
    screen.ask("echo code-$?", "code-143");
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn a_terminal_that_hangs_up_ends_everything_inside() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- bash -c 'touch started; exec sleep 104'");
    wait_for("the start", || screen.place.exists("started").then_some(()));
    screen.wait_until("sleep to run", |_| runs("sleep\u{0}104\u{0}", &screen));
    // Another session keeps the server; the first one's terminal goes away.
    screen.tmux(&["new-session", "-d", "-s", "other", "sleep 60"]);
    screen.tmux(&["kill-session", "-t", "0"]);
    wait_for("the end of what runs inside", || (!runs("sleep\u{0}104\u{0}", &screen)).then_some(()));
    wait_for("the end of the supervisor", || supervisor(&screen).is_none().then_some(()));
}

/// Processes whose working directory is the test's project.
fn ours(screen: &Screen) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let command = slurp(&entry.path().join("cmdline"));
        let environment = slurp(&entry.path().join("environ"));
        let home = format!("HOME={}\u{0}", screen.place.home.display());
        if environment.contains(&home) || command.contains(&screen.place.home.display().to_string()) {
            found.push((pid, command));
        }
    }
    found
}

pub(crate) fn runs(start: &str, screen: &Screen) -> bool {
    ours(screen).iter().any(|(_, command)| command.starts_with(start))
}

/// The supervisor is not dumpable, so an ordinary user cannot read its environment; its parent is the outer shell.
fn supervisor(screen: &Screen) -> Option<u32> {
    let shells: Vec<u32> =
        ours(screen).into_iter().filter(|(_, command)| command.contains("outer.rc")).map(|(pid, _)| pid).collect();
    let children = shells.iter().flat_map(|shell| {
        let list = slurp(std::path::Path::new(&format!("/proc/{shell}/task/{shell}/children")));
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    children
        .into_iter()
        .find(|pid| slurp(std::path::Path::new(&format!("/proc/{pid}/cmdline"))).contains("run\u{0}--\u{0}"))
}
