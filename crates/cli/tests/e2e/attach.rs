//! `sandbox attach`: a further command sees what the session sees and no more, and ends with it.

use std::time::{Duration, Instant};

use crate::screen::Screen;
use crate::support::{Place, Ran, binary, finish, wait_for};

const MODES: [&str; 2] = ["static", "dynamic"];

/// What a command says of where it is; the namespaces of every session are others.
const WHERE: &str = "hostname; cd /proc/self/ns; readlink cgroup ipc mnt net pid user uts; cat ../mountinfo | md5sum
    grep -E '^(Cap|NoNewPrivs|Seccomp)' ../status; env | grep -v -E '^(_|PWD|OLDPWD|SHLVL)=' | sort | md5sum
    cat ../limits ../oom_score_adj; cat ../cgroup; id";

fn attach(place: &Place, script: &str) -> Ran {
    place.sandbox(&["attach", "last", "--", "bash", "-c", script])
}

#[test]
fn an_attached_command_is_where_the_session_is() {
    for mode in MODES {
        let place = Place::new();
        let script = format!("({WHERE}) > where; echo here > /tmp/file; echo ready; read line");
        let mut running = place.start(&["--mode", mode, "--env", "MARK=mine"], &script);
        let seen =
            attach(&place, &format!("({WHERE}) > other; diff where other && cat /tmp/file; echo $MARK; pwd")).ok();
        assert_eq!(seen, format!("here\nmine\n{}\n", place.project.display()), "{mode}");
        // The same processes, and its own number among theirs.
        let seen =
            attach(&place, "tr '\\0' ' ' < /proc/1/cmdline; test -d /proc/$$ && echo; ls -d /proc/[0-9]* | wc -l").ok();
        assert!(seen.contains(" run --mode "), "{mode}: {seen}");
        running.tell("x\n");
        assert_eq!(running.end().0, 0, "{mode}");
    }
}

#[test]
fn an_attached_command_sees_no_more_than_the_session() {
    for mode in MODES {
        let place = Place::new();
        place.write("home:.ssh/id_rsa", "the key\n");
        place.write("home:given/file", "given\n");
        place.write("home:other/file", "other\n");
        let hidden = place.path("home:other").display().to_string();
        let given = place.path("home:given").display().to_string();
        let flags = ["--mode", mode, "--on-unknown", "deny", "--blacklist", &hidden, "--ro", &given];
        let mut running = place.start(&flags, "echo ready; read line");
        assert_eq!(attach(&place, "cat ~/given/file").ok(), "given\n", "{mode}");
        for path in ["~/.ssh/id_rsa", "~/other/file", "~/.local/state/cofferdam/sessions"] {
            let ran = attach(&place, &format!("cat {path} || ls -A {path}/* "));
            assert_ne!(ran.code, 0, "{mode} {path}: {}", ran.out);
            assert_eq!(ran.out, "", "{mode} {path}");
        }
        assert_ne!(attach(&place, "echo x > ~/given/file").code, 0, "{mode}");
        assert_ne!(attach(&place, "unshare -Ur true || mount -t tmpfs none /mnt || exit 9").code, 0, "{mode}");
        running.tell("x\n");
        assert_eq!(running.end().0, 0);
    }
}

#[test]
fn an_attached_command_ends_with_the_session_and_its_exit_code_passes() {
    for mode in MODES {
        let place = Place::new();
        let mut running = place.start(&["--mode", mode], "echo ready; read line");
        assert_eq!(attach(&place, "exit 7").code, 7, "{mode}");
        attach(&place, "kill -TERM $$").code(143);
        place.sandbox(&["attach", "last", "--", "/no/such/program"]).says(&["cannot execute `/no/such/program`"]);
        let mut sleeping = place.command(binary());
        let sleeping = std::thread::spawn(move || finish(sleeping.args(["attach", "last", "--", "sleep", "100"]), b""));
        wait_for("the attached command", || attach(&place, "pgrep -x sleep").out.lines().next().map(str::to_owned));
        let started = Instant::now();
        running.tell("x\n");
        assert_eq!(running.end().0, 0);
        assert_eq!(sleeping.join().expect("it ends").code, 137, "{mode}");
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        place.sandbox(&["attach", "last", "--", "true"]).code(1).says(&["no live session"]);
    }
}

#[test]
fn a_session_with_somebody_attached_can_be_killed_and_a_client_that_goes_takes_its_command_along() {
    let place = Place::new();
    let running = place.start(&[], "echo ready; sleep 100");
    let gone = place.host(&format!("timeout -s KILL 1 '{}' attach last -- sleep 77", binary().display()));
    assert_ne!(gone.code, 0);
    wait_for("the end of what nobody waits for", || {
        attach(&place, "! pgrep -f 'sleep 7[7]'").ok().is_empty().then_some(())
    });
    let mut sleeping = place.command(binary());
    let sleeping = std::thread::spawn(move || finish(sleeping.args(["attach", "last", "--", "sleep", "50"]), b""));
    wait_for("the attached command", || attach(&place, "pgrep -f 'sleep 5[0]'").out.lines().next().map(str::to_owned));
    place.sandbox(&["kill", "last"]).ok();
    assert_eq!(sleeping.join().expect("it ends").code, 137);
    assert_eq!(running.end().0, 143);
}

#[test]
fn a_program_inside_cannot_attach() {
    let place = Place::new();
    place.write("home:.local/state/cofferdam/kept-open", "");
    let state = place.path("home:.local/state/cofferdam").display().to_string();
    let program = binary();
    let directory = program.parent().expect("a directory").display().to_string();
    // The supervisor lists its session and opens the door when it has a moment, which may come after the command's start.
    let door = format!(
        "for n in $(seq 200); do compgen -G '{state}/sessions/*/socket' > /dev/null && break; sleep 0.05; done"
    );
    let script = format!("{door}; '{}' attach last -- id", program.display());
    // Bound as it is: through an overlay, as in static mode, no lock shows and no session looks alive.
    let flags = ["--ro", &state, "--ro", &directory];
    let ran = place.run(&flags, &["bash", "-c", &script]).code(125);
    assert_eq!(ran.out, "");
    // Why is said once at the door, and who is still talking may not hear it.
    ran.says(&["cannot start a command in session"]);
}

#[test]
fn refused_calls_of_an_attached_command_count_for_the_session() {
    let place = Place::new();
    let running = place.start(&["--json"], "echo ready; read line");
    assert_ne!(attach(&place, "mount -t tmpfs none /mnt").code, 0);
    let log = place.sandbox(&["logs", "last"]).ok();
    assert!(log.contains("mount"), "{log}");
    drop(running);
}

#[test]
fn an_attached_shell_has_a_terminal_of_the_sessions_own() {
    let Some(screen) = Screen::open(&[]) else { return };
    let mut running = screen.place.start(&["--mode", "static"], "echo ready; read line");
    let before = screen.settings("before");
    screen.ask("sandbox attach last -- tty", "/dev/pts/0");
    screen.line("sandbox attach last -- bash --noprofile --rcfile ./inner.rc -i");
    screen.wait_for("inner$");
    screen.ask("stty size; hostname", "sandbox");
    screen.ask("stty size", "24 80");
    // Before it runs the key would be the shell's.
    screen.ask("sh -c 'echo up-$((1+1)); exec sleep 100'", "up-2");
    screen.keys(&["C-c"]);
    screen.ask("echo interrupted-$((1+1))", "interrupted-2");
    screen.line("exit 6");
    screen.wait_until("the outer prompt", |text| text.trim_end().ends_with("outer$"));
    screen.ask("echo code-$?", "code-6");
    assert_eq!(screen.settings("after"), before);
    running.tell("x\n");
    assert_eq!(running.end().0, 0);
}

/// Makes what is held and what is not, as often as it can.
const SPIN: &str = "
import os
os.close(os.open(f'spins-{os.getpid()}', os.O_CREAT | os.O_WRONLY))
def make(name):
    try: os.mkdir(name)
    except OSError: pass
make('free')
while True:
    make('.claude'); make('.mcp.json'); make('.vscode'); make('.cursor')
";

/// Attack corpus A22. An attached command has a filter of its own: the end of the first one says nothing about it.
#[test]
fn a22_held_names_stay_held_until_the_last_attached_command_is_gone() {
    const SPINNERS: usize = 4;
    const ROUNDS: usize = 40;
    for round in 0..ROUNDS {
        let Some(place) = Place::with(&["python3"]) else { return };
        let mut running = place.start(&[], "echo ready; read line");
        // The supervisor opens its door when it has a moment, which may come after the command's start.
        wait_for("the session", || (attach(&place, "true").code == 0).then_some(()));
        let spin = || {
            let mut command = place.command(binary());
            std::thread::spawn(move || finish(command.args(["attach", "last", "--", "python3", "-c", SPIN]), b""))
        };
        let spinners: Vec<_> = (0..SPINNERS).map(|_| spin()).collect();
        wait_for("the attached commands", || {
            let names = std::fs::read_dir(&place.project).ok()?.filter_map(Result::ok);
            let spinning = names.filter(|name| name.file_name().to_string_lossy().starts_with("spins-")).count();
            (spinning == SPINNERS).then_some(())
        });
        running.tell("x\n");
        assert_eq!(running.end().0, 0);
        for spinner in spinners {
            spinner.join().expect("it ends");
        }
        // The same loop makes what is not held.
        assert!(place.exists("free"), "round {round}");
        for held in [".claude", ".mcp.json", ".vscode", ".cursor"] {
            assert!(!place.exists(held), "round {round}: {held} is there after the end");
        }
    }
}

/// A reader that is slower than what is written, so that the pipe is never empty.
const READ_SLOWLY: &str = r#"mkfifo out && exec 3<> out || exit 1
    (while head -c 4096 <&3 > part; do :; done) & reader=$!
    timeout 10 "$0" attach last -- bash -c 'yes & until [ -s part ]; do :; done; exit 7' > out
    code=$?; kill $reader; exit $code"#;

#[test]
fn an_attached_command_ends_although_what_it_left_behind_goes_on_writing() {
    let place = Place::new();
    let mut running = place.start(&[], "echo ready; read line");
    finish(place.command("bash").args(["-c", READ_SLOWLY]).arg(binary()), b"").code(7);
    running.tell("x\n");
    assert_eq!(running.end().0, 0);
}
