//! A terminal session: the sandbox has a terminal of its own, and the user's is as it was afterwards.

use std::fmt::Write as _;

use crate::screen::Screen;
use crate::support::{Place, binary, wait_for};

#[test]
fn the_terminal_inside_is_the_sandboxs_own_and_the_exit_code_passes() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.ask("sandbox run -- tty", "/dev/pts/0");
    screen.ask("sandbox run -- bash -c 'exit 7'; echo code-$?", "code-7");
    screen.ask("sandbox run -- bash -c 'test -t 0 -a -t 1 -a -t 2'; echo all-$?", "all-0");
    screen.ask("sandbox run -- no-such-program; echo code-$?", "code-127");
    screen.wait_for("error: cannot execute `no-such-program`");
}

#[test]
fn a_resize_is_seen_inside() {
    let Some(screen) = Screen::open_inside(&[]) else { return };
    screen.ask("stty size", "24 80");
    screen
        .line("trap 'echo changed-to $(stty size)' WINCH; echo loop-$((1+1)); while :; do read -t 0.1 && break; done");
    screen.wait_for("loop-2");
    screen.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    screen.wait_for("changed-to 30 100");
    // A line, since a single key that comes between two reads waits for the end of its line.
    screen.line("q");
    screen.ask("stty size", "30 100");
}

#[test]
fn a_program_that_draws_sees_the_resize_at_once() {
    let Some(screen) = Screen::open(&["less"]) else { return };
    screen.place.host("seq 1000 > numbers").ok();
    screen.line("sandbox run -- less numbers");
    screen.wait_until("the first page", |text| text.contains("\n23\n") && text.contains("numbers"));
    screen.tmux(&["resize-window", "-x", "60", "-y", "40"]);
    screen.wait_until("the longer page", |text| text.contains("\n39\n"));
    screen.keys(&["q"]);
    screen.ask("echo back-$((1 + 1))", "back-2");
}

#[test]
fn less_draws_scrolls_and_leaves_the_terminal_as_it_was() {
    let Some(screen) = Screen::open(&["less"]) else { return };
    screen.place.host("seq 1000 > numbers").ok();
    let before = screen.settings("before");
    screen.line("sandbox run -- less numbers");
    screen.wait_for("\n22\n");
    screen.keys(&["G"]);
    screen.wait_for("\n1000\n");
    screen.keys(&["q"]);
    screen.prompt();
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn vim_edits_and_leaves_the_terminal_as_it_was() {
    let Some(vim) = ["vim.tiny", "vim", "vi"].into_iter().find(|name| crate::support::which(name).is_some()) else {
        println!("skipped: no vim is installed");
        return;
    };
    let Some(screen) = Screen::open(&[vim]) else { return };
    let before = screen.settings("before");
    screen.line(&format!("sandbox run -- {vim} -u NONE -n text"));
    screen.wait_for("\n~\n");
    screen.keys(&["i", "hello from vim", "Escape", ":wq", "Enter"]);
    screen.prompt();
    wait_for("the file", || screen.place.read("text").filter(|text| text == "hello from vim\n"));
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn a_megabyte_of_output_arrives_complete() {
    let Some(place) = Place::with(&["script"]) else { return };
    let out = typed(&place, "true", "run -- seq 150000", "cat").ok();
    assert!(out.len() > 1 << 20);
    let numbers = out.lines().map(|line| line.trim_end().parse::<u32>().expect("a number"));
    assert!(numbers.eq(1..=150_000));
}

/// A terminal without a person: `script` gives the command one, with `input` as what is typed.
fn typed(place: &Place, input: &str, command: &str, reader: &str) -> crate::support::Ran {
    let sandbox = binary().display().to_string();
    place.host(&format!(
        "set -o pipefail; {input} | timeout 15 script -qec \"'{sandbox}' {command}\" /dev/null | {reader}"
    ))
}

#[test]
fn end_of_input_that_comes_before_the_command_is_up_is_not_lost() {
    let Some(place) = Place::with(&["script"]) else { return };
    typed(&place, "true", "run -- cat", "cat").code(0);
}

#[test]
fn the_timeout_holds_while_the_command_does_not_read_what_is_typed() {
    let Some(place) = Place::with(&["script"]) else { return };
    typed(&place, "yes 0123456789 | head -c 300000", "run --timeout 1s -- sleep 100", "tail -c 1").code(124);
}

#[test]
fn the_timeout_holds_while_the_terminal_takes_no_output() {
    let Some(place) = Place::with(&["script"]) else { return };
    // The heartbeat stops when the session was ended, although the reader has not read a byte for two seconds.
    let beat = "run --timeout 1s -- bash -c '(while :; do touch beat; sleep 0.1; done) & yes'";
    let begun = "for n in $(seq 200); do [ -e beat ] && break; sleep 0.05; done";
    let ran = typed(&place, "true", beat, &format!("({begun}; sleep 3; stat -c %Y beat; date +%s; cat >/dev/null)"));
    let times: Vec<u64> = ran.out.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(matches!(times[..], [beat, now] if now > beat), "{times:?}");
}

#[test]
fn a_moment_in_which_nobody_holds_the_terminal_is_no_hang_up() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- bash -c 'exec </dev/null >/dev/null 2>&1; sleep 0.3; echo still-$((1+1)) >/dev/tty'; echo code-$?");
    screen.wait_for("\nstill-2\n");
    screen.wait_for("code-0");
}

#[test]
fn ten_kilobytes_pasted_arrive_complete() {
    let Some(screen) = Screen::open(&[]) else { return };
    let mut text = String::new();
    for number in 0..160 {
        writeln!(text, "{number:04} {}", "x".repeat(60)).expect("a string");
    }
    screen.place.write("home:pasted", &text);
    screen.line("sandbox run -- bash -c 'echo rea\"\"dy; cat > copied'");
    screen.wait_for("\nready");
    screen.tmux(&["load-buffer", &screen.place.path("home:pasted").display().to_string()]);
    // Line feeds stay line feeds.
    screen.tmux(&["paste-buffer", "-r"]);
    screen.keys(&["C-d"]);
    screen.ask("echo back-$((1 + 1))", "back-2");
    assert_eq!(screen.place.read("copied").expect("a copy"), text);
}

#[test]
fn end_of_input_ends_the_reader_and_then_the_shell() {
    let Some(screen) = Screen::open_inside(&[]) else { return };
    screen.ask("echo go-$((1 + 1)); cat; echo after-$((1 + 1))", "go-2");
    screen.line("echoed");
    screen.wait_for("echoed\nechoed");
    screen.keys(&["C-d"]);
    screen.wait_for("after-2");
    screen.prompt();
    screen.keys(&["C-d"]);
    screen.wait_until("the outer prompt", |text| text.trim_end().ends_with("\nouter$"));
    screen.ask("echo outside-$((1 + 1))", "outside-2");
}

#[test]
fn input_from_a_pipe_with_output_to_the_terminal_works() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.ask(
        "printf 'one\\ntwo\\n' | sandbox run -- bash -c 'test -t 1 && while read x; do echo got-$x; done'",
        "got-two",
    );
    // No staircase: each line starts at the left.
    let text = screen.text();
    assert!(text.contains("\ngot-one\ngot-two\n"), "{text}");
    screen.ask("stty -a | grep -c ' echo '", "1");
}

#[test]
fn input_from_the_terminal_with_output_to_a_pipe_works() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- bash -c 'read x; echo got-$x' | tr a-z A-Z");
    screen.line("word");
    screen.wait_for("GOT-WORD");
    screen.ask("stty -a | grep -c ' echo '", "1");
    screen.ask("sandbox run -- bash -c 'echo -n out; echo err >&2' > ~/captured; cat ~/captured; echo", "out");
}

#[test]
fn lines_of_a_pipeline_start_at_the_left() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.line("sandbox run -- bash -c 'seq 3; sleep 0.5; seq 4 6' | cat; echo end-$((1 + 1))");
    screen.wait_for("\n1\n2\n3\n4\n5\n6\nend-2\n");
}

#[test]
fn a_pager_after_the_sandbox_has_the_keys_while_the_command_runs_and_afterwards() {
    let Some(screen) = Screen::open(&["less"]) else { return };
    let before = screen.settings("before");
    for wait in ["0", "100"] {
        screen.prompt();
        screen.line(&format!("clear; sandbox run -- bash -c 'seq 1000; sleep {wait}' | less"));
        screen.wait_until("the first page", |text| text.starts_with("1\n2\n") && text.contains("\n23\n"));
        screen.keys(&["5", "0", "0", "g"]);
        screen.wait_for("\n510\n");
        screen.keys(&["q"]);
        if wait == "100" {
            // As without a sandbox: the command ends when it is interrupted, or writes to the pager that is gone.
            screen.keys(&["C-c"]);
        }
        screen.prompt();
    }
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn a_chooser_with_captured_output_still_gets_single_keys() {
    let Some(screen) = Screen::open(&[]) else { return };
    let choose = "x=$(sandbox run -- bash -c 'echo choose >&2; read -rsn1 key </dev/tty; echo chose-$key'); echo $x";
    screen.line(choose);
    screen.wait_for("\nchoose");
    std::thread::sleep(std::time::Duration::from_millis(200));
    screen.keys(&["k"]);
    screen.wait_for("\nchose-k\n");
    screen.ask("stty -a | grep -c ' echo '", "1");
}

#[test]
fn end_of_input_and_interrupts_reach_a_command_in_a_pipeline() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.ask("sandbox run -- bash -c 'echo up >&2; cat' | tr a-z A-Z", "up");
    screen.line("word");
    screen.wait_for("\nword\n");
    screen.keys(&["C-d"]);
    screen.wait_for("\nWORD\n");
    screen.ask("sandbox run -- bash -c 'echo slept >&2; sleep 100' | cat", "slept");
    screen.keys(&["C-c"]);
    screen.ask("echo after-$((1 + 1))", "after-2");
}

#[test]
fn a_session_in_the_background_leaves_the_terminal_alone() {
    let Some(screen) = Screen::open(&[]) else { return };
    let before = screen.settings("before");
    screen.line("sandbox run -- sleep 1 &");
    assert_eq!(screen.settings("during"), before);
    screen.ask("echo typed-$((1 + 1))", "typed-2");
    screen.ask("wait; echo code-$?", "code-0");
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn full_colour_and_unicode_pass_through() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.ask("sandbox run -- printf '\\033[31mr\\303\\266t\\033[0m\\n'", "röt");
    let coloured = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(coloured.contains("\u{1b}[31mröt"), "{coloured:?}");
}

#[test]
fn the_hosts_network_is_asked_for_and_the_answer_is_recorded() {
    let Some(screen) = Screen::open(&[]) else { return };
    let host = std::fs::read_link("/proc/self/ns/net").expect("a network").display().to_string();
    for (answer, code) in [("no", 126), ("", 126), ("yes", 0)] {
        screen.line("clear");
        screen.wait_until("an empty screen", |text| !text.contains("Type `yes`"));
        screen.line("sandbox run --network host -- readlink /proc/self/ns/net > net; echo code-$?");
        screen.wait_for("Type `yes`");
        screen.line(answer);
        screen.wait_for(&format!("\ncode-{code}"));
        let seen = screen.place.read("net").unwrap_or_default();
        assert_eq!(seen.trim() == host, code == 0, "{answer}: {seen}");
    }
    let log = screen.place.read("home:.local/state/cofferdam/audit/00000001.ndjson").expect("a log");
    let created: Vec<&str> = log.lines().filter(|line| line.contains("network_approved_by")).collect();
    assert_eq!(created.len(), 1, "{log}");
    assert!(created[0].contains("the person at the terminal") && created[0].contains("\"network\":\"host\""), "{log}");
    screen.line("clear; sandbox run --network host --on-unknown deny -- true; echo code-$?");
    screen.wait_for("code-126");
}
