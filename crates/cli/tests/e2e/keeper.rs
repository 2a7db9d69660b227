//! Host programs replace covered names while a session runs: the names are covered again, and it is told.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::screen::Screen;
use crate::support::{PATIENCE, Place, Running, binary, finish, is_root, slurp, wait_for};

const MODES: [&str; 2] = ["dynamic", "static"];

/// A session that says that it is up, waits for a line, and does the rest then. Its stderr goes to a file of the home.
fn start(place: &Place, flags: &[&str], rest: &str) -> Running {
    let script = format!("echo up; read line; {rest}");
    begin(place, flags, &script)
}

fn begin(place: &Place, flags: &[&str], script: &str) -> Running {
    let mut command = place.command(binary());
    command.arg("run").args(flags).args(["--", "bash", "-c", script]);
    command.stderr(Stdio::from(File::create(place.path("home:err")).expect("it can be made")));
    place.begin_session(command)
}

/// How many falls the log of this place has.
fn falls(place: &Place) -> usize {
    let logs = place.sandbox(&["audit", "--format", "json"]);
    logs.out.matches("cover-fell").count()
}

/// Waits until the log has so many falls.
#[track_caller]
fn await_falls(place: &Place, count: usize) {
    let began = Instant::now();
    while falls(place) < count {
        let told = || (slurp(&place.path("home:err")), place.sandbox(&["audit", "last"]).out);
        assert!(began.elapsed() < PATIENCE, "no {count} falls in the log: {:?}", told());
    }
}

fn repository() -> Option<Place> {
    let place = Place::with_repository()?;
    place.write(".env", "TOKEN=old\n");
    Some(place)
}

#[test]
fn a_replaced_secret_and_a_replaced_configuration_are_covered_again() {
    for mode in MODES {
        let Some(place) = repository() else { return };
        let mut session = start(&place, &["--mode", mode], "cat .env; echo '[x]' >> .git/config; echo end");
        place.host("sed -i s/old/new/ .env && git config user.name other").ok();
        await_falls(&place, 2);
        session.tell("go\n");
        let (code, out) = session.end();
        let told = slurp(&place.path("home:err"));
        assert_eq!((code, out.as_str()), (0, "end\n"), "{mode}: {told}");
        for text in [
            ".env (hidden) was changed",
            "it may have been read",
            ".git/config (masked) was changed",
            "it may have been read or changed",
            " ms",
        ] {
            assert!(told.contains(text), "{mode}: `{text}` is not in {told}");
        }
        assert!(!place.read(".git/config").expect("it is there").contains("[x]"), "{mode}");
    }
}

#[test]
fn a_stand_in_that_git_clean_removes_is_held_again() {
    for mode in MODES {
        let Some(place) = repository() else { return };
        let mut session = start(
            &place,
            &["--mode", mode],
            "mkdir -p .claude && echo x > .claude/settings.json; echo x > .mcp.json; echo end",
        );
        place.host("rmdir .claude .mcp.json").ok();
        wait_for("both names held again", || (place.exists(".claude") && place.exists(".mcp.json")).then_some(()));
        session.tell("go\n");
        assert_eq!(session.end(), (0, "end\n".to_owned()), "{mode}");
        assert!(!place.exists(".claude") && !place.exists(".mcp.json"), "{mode}: made inside, or left behind");
    }
}

#[test]
fn a_name_that_one_session_holds_again_is_held_for_the_other_too() {
    const NAMES: [&str; 5] = [".claude", ".codex", ".cursor", ".gemini", ".vscode"];
    for (mode, first_ends) in [("static", true), ("static", false), ("dynamic", true), ("dynamic", false)] {
        let Some(place) = repository() else { return };
        let rest = format!(
            "mkdir -p {}; ls -d {}; echo end",
            NAMES.map(|name| format!("{name}/x")).join(" "),
            NAMES.join(" ")
        );
        let sessions = [start(&place, &["--mode", mode], &rest), start(&place, &["--mode", mode], &rest)];
        place.host(&format!("rmdir {}", NAMES.join(" "))).ok();
        // Each of them has noticed each, and has done what it does about it.
        wait_for("falls of all names in both sessions", || {
            let logs = place.sandbox(&["audit", "--format", "json"]).out;
            let records = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let fallen = records.filter(|record| record["details"]["op"] == "cover-fell");
            let told: BTreeSet<String> =
                fallen.map(|record| format!("{} {}", record["sandboxId"], record["details"]["path"])).collect();
            (told.len() == 2 * NAMES.len()).then_some(())
        });
        let all_held = || NAMES.iter().all(|name| place.exists(name)).then_some(());
        wait_for("all names held again", all_held);
        // Neither has anything left to say about the other's stand-ins.
        let settled = wait_for("no more falls", || {
            let before = falls(&place);
            std::thread::sleep(Duration::from_millis(300));
            (falls(&place) == before).then_some(before)
        });
        let [one, other] = sessions;
        let (ends, mut stays) = if first_ends { (one, other) } else { (other, one) };
        assert_eq!(ends.end().0, 0, "{mode}");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(falls(&place), settled, "{mode}: a stand-in that the other session needs was taken away");
        assert!(all_held().is_some(), "{mode}");
        stays.tell("go\n");
        assert_eq!(stays.end(), (0, format!("{}\nend\n", NAMES.join("\n"))), "{mode}");
        let left: Vec<_> = NAMES.iter().filter(|name| place.exists(name)).collect();
        assert!(left.is_empty(), "{mode}: {left:?}");
    }
}

#[test]
fn a_removed_parent_and_its_successor_are_covered() {
    for mode in MODES {
        let Some(place) = repository() else { return };
        place.write("sub/keep", "");
        let policy = format!("[files]\ndeny = [\"{}\"]\n", place.path("sub/secret").display());
        place.write("home:.config/cofferdam/config.toml", &policy);
        place.write("sub/secret", "old\n");
        let mut session = start(&place, &["--mode", mode], "cat sub/secret; echo end");
        place.host("mv sub gone && mkdir sub && echo new > sub/secret").ok();
        // The directory's and the name's.
        await_falls(&place, 2);
        session.tell("go\n");
        assert_eq!(session.end(), (0, "end\n".to_owned()), "{mode}");
    }
}

/// Replaces a name until the session has ended.
fn replace_until_end(place: &Place, mut session: Running, replace: &str) -> i32 {
    session.tell("go\n");
    for _ in 0..400 {
        place.host(replace).ok();
        if slurp(&place.path("home:err")).contains("sandbox: ended") {
            break;
        }
    }
    place.write("stop", "");
    session.end().0
}

#[test]
fn a_session_is_ended_when_what_lost_its_cover_has_a_second_name() {
    let Some(place) = repository() else { return };
    let session = start(&place, &[], "sleep 100");
    // As a workload that links it in the moment between does.
    place.host("cp .env new && ln new linked && mv new .env").ok();
    let (code, _) = session.end();
    let told = slurp(&place.path("home:err"));
    assert_eq!(code, 126, "{told}");
    assert!(told.contains("it has a second name: ended"), "{told}");
}

#[test]
fn a_session_is_ended_when_what_lost_its_cover_is_moved_to_where_nothing_is_watched() {
    let Some(place) = repository() else { return };
    place.write("src/keep", "TOKEN=new\n");
    let session = start(&place, &[], "until [ -e stop ]; do sleep 0.1; done");
    // As a workload that renames it in the moment between does.
    let moves =
        "import os, shutil\nshutil.copy('src/keep', 'new')\nos.rename('new', '.env')\nos.rename('.env', 'src/taken')";
    place.write("moves.py", moves);
    let code = replace_until_end(&place, session, "python3 moves.py");
    let told = slurp(&place.path("home:err"));
    assert_eq!(code, 126, "{told}");
    assert!(told.contains("it was moved to another name: ended"), "{told}");
}

#[test]
fn a_session_is_ended_when_a_read_only_directory_with_a_hidden_name_is_replaced() {
    for mode in MODES {
        for (name, flags) in [(".devcontainer", &[][..]), ("infra", &["--ro", "infra"][..])] {
            let Some(place) = repository() else { return };
            place.write(&format!("{name}/.env"), "TOKEN=old\n");
            place.write(&format!("{name}/shown"), "shown\n");
            let flags = [&["--mode", mode][..], flags].concat();
            // The negative control: it can be entered, and the name cannot be opened.
            let script = format!("cat {name}/shown {name}/.env 2>/dev/null");
            let seen = place.run(&flags, &["bash", "-c", &script]).out;
            assert_eq!(seen, "shown\n", "{mode} {name}");
            let session = start(&place, &flags, "sleep 100");
            place.host(&format!("cp -r {name} new && mv {name} old && mv new {name}")).ok();
            let (code, _) = session.end();
            let told = slurp(&place.path("home:err"));
            assert_eq!(code, 126, "{mode} {name}: {told}");
            assert!(told.contains("it could not be covered again: ended"), "{mode} {name}: {told}");
        }
    }
}

#[test]
fn what_is_given_for_reading_in_a_project_stays_so() {
    for mode in MODES {
        let Some(place) = repository() else { return };
        place.write("ci/scripts/run", "echo host\n");
        let rest = "mv ci ci2; echo x > ci/scripts/run; echo x > ci/scripts/new; echo x > ci/beside; cat ci/scripts/run; echo end";
        let mut session = start(&place, &["--mode", mode, "--ro", "ci/scripts"], rest);
        // By one process: two programs may take longer than a name is waited for before it is held.
        place.write("swap.py", "import os\nos.rename('ci/scripts', 'old')\nos.rename('new', 'ci/scripts')\n");
        place.host("cp -r ci/scripts new && python3 swap.py").ok();
        await_falls(&place, 1);
        session.tell("go\n");
        let (code, out) = session.end();
        let told = slurp(&place.path("home:err"));
        assert_eq!((code, out.as_str()), (0, "echo host\nend\n"), "{mode}: {told}");
        assert!(told.contains("ci/scripts (protected) was changed"), "{mode}: {told}");
        assert!(place.exists("ci/beside") && !place.exists("ci2") && !place.exists("ci/scripts/new"), "{mode}");
    }
}

#[test]
fn a_session_that_writes_what_lost_its_cover_is_ended() {
    let Some(place) = repository() else { return };
    let session = start(&place, &[], "until [ -e stop ]; do echo '#' >> .git/config; done 2>/dev/null");
    let code = replace_until_end(&place, session, "git config user.name other");
    let told = slurp(&place.path("home:err"));
    assert_eq!(code, 126, "{told}");
    assert!(told.contains(": ended"), "{told}");
}

#[test]
fn what_the_session_itself_saves_by_renaming_goes_on_working() {
    let Some(place) = repository() else { return };
    let script = "for i in 1 2 3; do echo $i > new && mv new saved || exit 1; done; cat saved
        echo x > new; mv new .env 2>&1 | grep -c busy; git commit -q --allow-empty -m inside && echo end";
    assert_eq!(place.inside(script).ok(), "3\n1\nend\n");
    assert_eq!(falls(&place), 0);
}

#[test]
fn jobs_that_were_stopped_stay_stopped_and_others_go_on() {
    let Some(screen) = Screen::open_inside(&[]) else { return };
    let place = &screen.place;
    screen.line("sleep 301");
    screen.wait_until("sleep to run", |_| crate::job_control::runs("sleep\u{0}301\u{0}", &screen));
    screen.keys(&["C-z"]);
    screen.wait_for("Stopped");
    screen.line("sleep 302 &");
    screen.ask("echo ready-$((1 + 1))", "ready-2");
    // A stand-in is there in any project.
    place.host("rmdir .claude").ok();
    wait_for("the name held again", || place.exists(".claude").then_some(()));
    screen.ask("jobs | grep -c 'Stopped.*sleep 301'", "1");
    screen.ask("jobs | grep -c 'Running.*sleep 302'", "1");
    // And the key still stops what is in the foreground.
    screen.line("sleep 303");
    screen.wait_until("sleep to run", |_| crate::job_control::runs("sleep\u{0}303\u{0}", &screen));
    screen.keys(&["C-z"]);
    screen.wait_for("Stopped                 sleep 303");
    screen.ask("kill %1 %2 %3; echo typed-$((2 + 1))", "typed-3");
}

#[test]
fn a_strict_policy_ends_the_session_at_the_first_fall() {
    for mode in MODES {
        let Some(place) = repository() else { return };
        place.write("home:.config/cofferdam/config.toml", "keeper = \"strict\"\n");
        let session = start(&place, &["--json", "--mode", mode], "sleep 100");
        place.host("sed -i s/old/new/ .env").ok();
        let (code, _) = session.end();
        let told = slurp(&place.path("home:err"));
        assert_eq!(code, 126, "{mode}: {told}");
        assert!(told.contains("ended, as the policy says (keeper = \"strict\")"), "{mode}: {told}");
        let report: Value = told.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("an object");
        assert_eq!((&report["end"], &report["error"]["kind"]), (&"cover-fell".into(), &"SecurityViolation".into()));
    }
}

/// The name of the one open question.
fn question(place: &Place) -> String {
    wait_for("a question", || place.sandbox(&["questions"]).ok().split_whitespace().next().map(str::to_owned))
}

#[test]
fn covers_in_a_tree_that_an_answer_gave_for_writing_are_kept() {
    let Some(place) = repository() else { return };
    let policy = format!("[files]\ndeny = [\"{}\"]\n", place.path("home:work/secret").display());
    place.write("home:.config/cofferdam/config.toml", &policy);
    place.write("home:work/secret", "old\n");
    let script = "echo up; read line; echo x > ~/work/new; echo given; read line; cat ~/work/secret; echo end";
    let mut session = begin(&place, &["--mode", "dynamic", "--on-unknown", "ask"], script);
    session.tell("go\n");
    place.sandbox(&["approve", &question(&place), "--scope", "dir", "--keep", "session"]).code(0);
    wait_for("the file", || place.exists("home:work/new").then_some(()));
    place.host("cd ~/work && sed -i s/old/new/ secret").ok();
    await_falls(&place, 1);
    session.tell("go\n");
    assert_eq!(session.end(), (0, "given\nend\n".to_owned()), "{}", slurp(&place.path("home:err")));
    assert!(slurp(&place.path("home:err")).contains("work/secret (hidden) was changed"));
}

/// A session whose first write, of `~/TREE/new`, is answered for its directory, and that does the rest after a line.
fn start_with_answer(place: &Place, tree: &str, rest: &str) -> Running {
    let script = format!("echo up; read line; echo x > ~/{tree}/new; read line; {rest}");
    let mut session = begin(place, &["--mode", "dynamic", "--on-unknown", "ask"], &script);
    session.tell("go\n");
    place.sandbox(&["approve", &question(place), "--scope", "dir", "--keep", "session"]).code(0);
    wait_for("the file", || place.exists(&format!("home:{tree}/new")).then_some(()));
    session
}

#[test]
fn a_tree_in_which_protected_names_are_missing_is_not_given_by_an_answer() {
    let Some(place) = repository() else { return };
    place.write("home:.config/app/keep", "");
    let rest = "mkdir ~/.config/x && mv ~/.config/x ~/.config/autostart && echo moved
        mkdir ~/.config/autostart && echo made; echo x > ~/.config/autostart/new && echo written; echo end";
    let mut session = start_with_answer(&place, ".config", rest);
    session.tell("go\n");
    assert_eq!(session.end().1, "end\n", "{}", slurp(&place.path("home:err")));
    assert!(!place.exists("home:.config/autostart"));
    assert_eq!(falls(&place), 0);
}

#[test]
fn a_directory_with_covered_names_in_a_given_tree_cannot_be_renamed() {
    let Some(place) = repository() else { return };
    let policy = format!("[files]\nprotect = [\"{}\"]\n", place.path("home:work/Code/User").display());
    place.write("home:.config/cofferdam/config.toml", &policy);
    place.write("home:work/Code/User/settings.json", "{}");
    let rest = "mv ~/work/Code ~/work/moved 2>/dev/null || echo busy
        echo x > ~/work/Code/User/new || echo refused; echo x > ~/work/Code/new && echo written";
    let mut session = start_with_answer(&place, "work", rest);
    session.tell("go\n");
    assert_eq!(session.end().1, "busy\nrefused\nwritten\n", "{}", slurp(&place.path("home:err")));
    assert!(!place.exists("home:work/moved"));
    assert_eq!(falls(&place), 0);
}

#[test]
fn a_listener_that_appears_in_a_watched_directory_is_covered() {
    for mode in MODES {
        let Some(place) = Place::with(&["git", "python3"]) else { return };
        let script = "python3 - <<'END'
import socket
own = socket.socket(socket.AF_UNIX); own.bind('own.sock'); own.listen()
socket.socket(socket.AF_UNIX).connect('own.sock'); print('own')
try: socket.socket(socket.AF_UNIX).connect('late.sock'); print('reached')
except OSError: print('closed')
END";
        let mut session = start(&place, &["--mode", mode], script);
        let _late = std::os::unix::net::UnixListener::bind(place.path("late.sock")).expect("it can be bound");
        await_falls(&place, 1);
        session.tell("go\n");
        assert_eq!(session.end(), (0, "own\nclosed\n".to_owned()), "{mode}");
        let told = slurp(&place.path("home:err"));
        assert!(told.contains("late.sock (a covered socket)") && !told.contains("own.sock"), "{mode}: {told}");
    }
}

#[test]
fn without_an_inotify_instance_nothing_runs() {
    let Some(place) = Place::with(&["unshare"]) else { return };
    let mut command = place.command("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c"]);
    command.arg("echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" run -- touch ran").arg(binary());
    finish(&mut command, b"").code(125).says(&["inotify", "max_user_instances"]);
    assert!(!place.exists("ran"));
}

#[test]
fn a_session_whose_replaced_directory_cannot_be_watched_is_ended() {
    let Some(place) = Place::with(&["unshare", "nsenter"]) else { return };
    place.write("sub/secret", "old\n");
    let policy = format!("[files]\ndeny = [\"{}\"]\n", place.path("sub/secret").display());
    place.write("home:.config/cofferdam/config.toml", &policy);
    // A user namespace of its own, so that no watch is left here and every other program keeps its own.
    let mut command = place.command("unshare");
    command.args(["--user", "--map-root-user"]).arg(binary());
    command.args(["run", "--mode", "static", "--", "bash", "-c", "echo up; read line; cat sub/secret; echo end"]);
    let mut session = place.begin_session(command);
    let mut limit = place.command("nsenter");
    limit.arg(format!("--target={}", session.pid())).args(["--user", "--preserve-credentials", "sh", "-c"]);
    finish(limit.arg("echo 0 > /proc/sys/user/max_inotify_watches"), b"").code(0);
    place.host("mv sub gone && mkdir sub && echo new > sub/secret").ok();
    // It ends, or goes on as if the directory had been covered again.
    wait_for("an end or a fall", || (session.has_ended() || falls(&place) > 0).then_some(()));
    assert_eq!(session.end(), (126, String::new()));
}

#[test]
fn what_the_host_mounts_after_the_start_is_not_given_by_an_answer() {
    if !is_root() {
        println!("skipped: mounting needs root");
        return;
    }
    let Some(place) = Place::with(&["unshare", "nsenter"]) else { return };
    place.write("home:private/key", "secret\n");
    place.write("home:data/plain", "plain\n");
    place.write("home:data/late/below", "below\n");
    place.write("home:.config/cofferdam/config.toml", "[files]\ndeny = [\"~/private\"]\n");
    // A namespace of their own, so that nothing is mounted on this machine.
    let mut command = place.command("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(binary());
    command.args(["run", "--mode", "dynamic", "--on-unknown", "ask", "--", "bash", "-c"]);
    command.arg("echo up; read line; cat ~/data/plain; cat ~/data/late/key; echo end");
    let mut session = place.begin_session(command);
    let mount = format!("--target={}", session.pid());
    let mut late = place.command("nsenter");
    late.args([&mount, "--mount", "mount", "--bind"]).args([place.path("home:private"), place.path("home:data/late")]);
    finish(&mut late, b"").code(0);
    session.tell("go\n");
    place.sandbox(&["approve", &question(&place), "--scope", "dir", "--keep", "session"]).code(0);
    assert_eq!(session.end(), (0, "plain\nend\n".to_owned()));
}

/// It reads what lost its cover and is gone before the keeper looks.
#[test]
fn a_session_that_ends_at_once_after_a_fall_is_told_of() {
    let spin = "import os, time\nprint('up', flush=True)\nend = time.time() + 2\nwhile time.time() < end:\n    try:\n        \
                os.read(os.open('.env', os.O_RDONLY), 100)\n        os._exit(7)\n    except OSError:\n        pass\nos._exit(0)\n";
    let mut reads = 0;
    for round in 0..6 {
        let Some(place) = repository() else { return };
        place.write("spin.py", spin);
        place.write("new", "TOKEN=new\n");
        let session = begin(&place, &["--mode", "static"], "exec python3 spin.py");
        place.host("mv new .env").ok();
        let (code, _) = session.end();
        reads += u32::from(code == 7);
        assert!(falls(&place) > 0, "round {round}, exit code {code}: {}", slurp(&place.path("home:err")));
    }
    println!("{reads} of 6 read it");
}

/// It reads what lost its cover, closes the directory and is gone.
#[test]
fn a_directory_that_is_closed_at_the_end_is_told_of() {
    if crate::support::is_root() {
        println!("skipped: root can look into every directory");
        return;
    }
    let Some(place) = repository() else { return };
    place.write("sub/.env", "TOKEN=old\n");
    let mut session = start(&place, &["--mode", "static"], "chmod 000 sub; echo end");
    session.tell("go\n");
    assert_eq!(session.end().0, 0);
    assert!(slurp(&place.path("home:err")).contains("could not be looked at when it ended"));
    place.host("chmod 700 sub").ok();
}

/// One that the session has asked for before is remembered as missing by the overlay, and one lies in a directory that is new.
#[test]
fn a_hidden_name_that_the_host_makes_below_a_transaction_is_covered_at_any_depth() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write("sub/deep/kept", "");
        let look = "for f in sub/deep/.env.local sub/.env new/x.tfvars moved/.env; do cat $f; test -S $f && echo covered; done; \
                    cat sub/deep/shown; ls -A sub/.env.d; rm -rf sub/.env; mv sub/deep/.env.local sub/deep/other; echo end";
        let flags = ["--mode", mode, "--transaction"];
        let mut session = begin(&place, &flags, &format!("test -e sub/.env; echo up; read line; {look}"));
        place.host("mkdir ~/apart && echo T=hunter2 > ~/apart/.env").ok();
        place.host("echo T=hunter2 > sub/deep/.env.local; echo T=hunter2 > sub/.env; echo x > sub/deep/shown").ok();
        place.host("mkdir new && echo T=hunter2 > new/x.tfvars; mv ~/apart moved; mkdir sub/.env.d; echo T=hunter2 > sub/.env.d/a").ok();
        await_falls(&place, 5);
        // A cover on an overlay's own name does not fall.
        place.host("sed -i s/T/U/ sub/deep/.env.local; mv -T sub/.env sub/.env2; echo U=hunter2 > sub/.env").ok();
        await_falls(&place, 6);
        session.tell("go\n");
        let (code, out) = session.end();
        let told = slurp(&place.path("home:err"));
        assert_eq!((code, out.as_str()), (0, "covered\ncovered\ncovered\ncovered\nx\nend\n"), "{mode}: {told}");
        assert!(told.contains("sub/deep/.env.local (hidden)") && told.contains("may have been read"), "{mode}: {told}");
        assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n", "{mode}");
        assert_eq!(place.read("sub/deep/.env.local").as_deref(), Some("U=hunter2\n"), "{mode}");
    }
}

/// As editors do it: under another name first.
#[test]
fn a_hidden_name_that_the_host_saves_five_thousand_times_does_not_end_a_transaction() {
    let Some(place) = Place::with_repository() else { return };
    let mut session =
        begin(&place, &["--mode", "static", "--transaction"], "echo up; read line; cat .env.local; echo end");
    for _ in 0..5000 {
        let part = place.path("save");
        std::fs::write(&part, "T=hunter2\n").expect("it is ours");
        std::fs::rename(&part, place.path(".env.local")).expect("it is ours");
    }
    await_falls(&place, 1);
    session.tell("go\n");
    let (code, out) = session.end();
    assert_eq!((code, out.as_str()), (0, "end\n"), "{}", slurp(&place.path("home:err")));
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
}

/// A pattern stands for no name: what matches it is made, and covered then. Names that are known: `hidden_made`.
#[test]
fn a_hidden_name_that_a_transaction_makes_is_covered_told_and_left_out() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let made = "mkdir -p a/b; echo T=1 > a/b/.env.local; echo T=1 > .env.x; echo x > a/b/shown; echo T=1 > .npmrc; \
                    for f in a/b/.env.local .env.x; do while test -f $f; do sleep 0.01; done; done; echo up; \
                    cat a/b/.env.local; echo T=2 > .env.x; mv .env.x other; rm a/b/.env.local; cat a/b/shown .npmrc";
        let (code, out) = begin(&place, &["--mode", mode, "--transaction"], made).end();
        let told = slurp(&place.path("home:err"));
        assert_eq!((code, out.as_str()), (0, "x\nT=1\n"), "{mode}: {told}");
        assert!(told.contains("a/b/.env.local: made by the session, hidden by the policy"), "{mode}: {told}");
        let stat = place.sandbox(&["diff", "--stat"]).ok();
        let left_out = |name: &str| stat.contains(&format!("- {name}  left out: a name that the policy hides"));
        assert!(left_out(".env.x") && left_out("a/b/.env.local"), "{mode}: {stat}");
        assert!(stat.contains("A a/b/shown") && stat.contains("A .npmrc"), "{mode}: {stat}");
        place.sandbox(&["commit"]).ok();
        assert!(place.exists("a/b/shown") && !place.exists(".env.x") && !place.exists("a/b/.env.local"), "{mode}");
    }
}
