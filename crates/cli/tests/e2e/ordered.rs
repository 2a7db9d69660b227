//! Sessions with an order: `run --detach`, `output`, and the API of programs. Each is a process of its own, its commands are execs whose
//! output is kept, and it outlives its client where the order says so.

use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam_client::{
    Chosen, Chunk, ClientError, Exec, ExecEnd, ExecLimits, ExecRequest, Given, KEPT_BYTES, Keep, Lifetime,
    ORDER_VERSION, Order, OutputStream, Reach, Session, Verdict,
};
use serde_json::{Value, json};

use crate::support::{PATIENCE, Place, binary, wait_for};

fn order(place: &Place, lifetime: Lifetime) -> Order {
    Order {
        version: ORDER_VERSION,
        cwd: Some(place.project.clone()),
        environment: place.environment(),
        flags: Vec::new(),
        chosen: Chosen::default(),
        exec: None,
        lifetime,
        can_ask: false,
        kept_bytes: KEPT_BYTES,
    }
}

fn flag(flag: &str, value: &str) -> Given {
    Given { flag: flag.to_owned(), value: value.into() }
}

fn script(text: &str) -> ExecRequest {
    ExecRequest { argv: ["bash", "-c", text].map(str::to_owned).to_vec(), ..ExecRequest::default() }
}

/// In a program with sixteen threads.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(16).enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(async { tokio::time::timeout(Duration::from_mins(1), future).await.expect("in time") })
}

async fn start(order: &Order) -> Session {
    Session::start(binary(), order).await.expect("it starts")
}

async fn end(session: Session) -> Value {
    session.kill().await.expect("it is there");
    session.wait().await.expect("it ends").expect("it says how")
}

async fn stdout(exec: &Exec) -> String {
    String::from_utf8(exec.all(OutputStream::Stdout).await.expect("it is kept")).expect("text")
}

#[test]
fn a_detached_command_goes_on_and_its_output_is_read_later() {
    let place = Place::new();
    let ran = place.run(
        &["--detach"],
        &["bash", "-c", "echo one; echo two >&2; read line; until test -e go; do sleep 0.05; done; echo three"],
    );
    let name = ran.ok().trim().to_owned();
    let listed = place.sandbox(&["ps", "--json"]).ok();
    assert!(listed.contains(&name), "{listed}");
    wait_for("its first lines", || {
        let ran = place.sandbox(&["output", &name]).code(0);
        (ran.out == "one\n" && ran.err == "two\n").then_some(())
    });
    place.write("go", "");
    assert_eq!(place.sandbox(&["output", &name, "--follow", "--from", "4"]).ok(), "three\n");
    // It was read to its end, and nothing of it is kept any more.
    wait_for("the end of the session", || place.sessions().is_empty().then_some(()));
    place.sandbox(&["output", &name]).code(1).says(&["no live session"]);
    let exited = place.sandbox(&["audit", &name, "--format", "json"]).ok();
    assert!(exited.contains("SANDBOX_EXITED") && exited.contains("SANDBOX_DESTROYED"), "{exited}");
}

/// The audit log so far, by the names of its records.
fn recorded(place: &Place) -> Vec<String> {
    let log = place.read("home:.local/state/cofferdam/audit/00000001.ndjson").unwrap_or_default();
    let event =
        |line: &str| serde_json::from_str::<Value>(line).expect("a record")["event"].as_str().map(str::to_owned);
    log.lines().filter_map(event).collect()
}

#[test]
fn a_session_that_waits_is_in_the_log_and_so_is_the_end_of_one_that_is_still_read() {
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        assert_eq!(recorded(&place), ["SANDBOX_CREATED", "SANDBOX_ENTERED"], "no command follows");
        end(session).await;
    });
    let place = Place::new();
    let name = place.run(&["--detach"], &["echo", "one"]).ok().trim().to_owned();
    wait_for("its end", || recorded(&place).contains(&"SANDBOX_EXITED".to_owned()).then_some(()));
    assert!(!recorded(&place).contains(&"SANDBOX_DESTROYED".to_owned()), "its output was not read");
    assert_eq!(place.sandbox(&["output", &name, "--follow"]).ok(), "one\n");
    wait_for("the end of the session", || recorded(&place).contains(&"SANDBOX_DESTROYED".to_owned()).then_some(()));
}

#[test]
fn output_is_followed_to_the_end_of_the_command() {
    let place = Place::new();
    let name = place.run(&["--detach"], &["bash", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.2; done; exit 5"]).ok();
    let ran = place.sandbox(&["output", name.trim(), "--follow"]).code(5);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("1\n2\n3\n4\n", ""));
    // One that wrote nothing can be read, too, and nothing is said that it did not say.
    for script in ["exit 0", "echo out; echo err >&2"] {
        for follow in [&[][..], &["--follow"]] {
            let name = place.run(&["--detach"], &["bash", "-c", script]).ok();
            wait_for("its end", || place.sandbox(&["ps", "--json"]).ok().contains("\"state\":\"ended\"").then_some(()));
            let ran = place.sandbox(&[&["output", name.trim()], follow].concat()).code(0);
            let expected = if script == "exit 0" { ("", "") } else { ("out\n", "err\n") };
            assert_eq!((ran.out.as_str(), ran.err.as_str()), expected);
            wait_for("the end of the session", || place.sessions().is_empty().then_some(()));
        }
    }
}

#[test]
fn what_was_not_kept_is_said_once() {
    let place = Place::new();
    let name = place.run(&["--detach"], &["seq", "300000"]).ok();
    wait_for("its end", || place.sandbox(&["ps", "--json"]).ok().contains("\"state\":\"ended\"").then_some(()));
    let ran = place.sandbox(&["output", name.trim()]).code(0);
    let written = (1..=300_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    assert!(ran.out.len() == KEPT_BYTES && written.ends_with(&ran.out), "{} bytes", ran.out.len());
    let gone = format!("sandbox: {} bytes of stdout were not kept", written.len() - KEPT_BYTES);
    assert!(ran.err.starts_with(&gone) && ran.err.lines().count() == 1, "{}", ran.err);
}

#[test]
fn a_detached_command_that_a_limit_of_its_session_ended_is_told_so() {
    let place = Place::new();
    for (flag, value, why, command) in
        [("--timeout", "1", "timed-out", "sleep 100"), ("--max-output", "10K", "output-limit", "yes")]
    {
        let name = place.run(&["--detach", flag, value], &["sh", "-c", command]).ok();
        place.sandbox(&["output", "--follow", name.trim()]).code(124).says(&[why]);
    }
}

#[test]
fn a_detached_command_that_does_not_start_is_told_like_any_other() {
    let place = Place::new();
    place.run(&["--detach"], &["/no/such/program"]).code(127).says(&["error: cannot execute `/no/such/program`"]);
    for flags in [["--isolation", "none"], ["--network", "host"], ["--rw", "/"], ["--timeout", "soon"]] {
        let here = place.run(&flags, &["true"]);
        let detached = place.run(&[&["--detach"], &flags[..]].concat(), &["true"]);
        assert_eq!((detached.code, &detached.err), (here.code, &here.err));
        assert_ne!(detached.code, 0, "{flags:?}");
    }
    assert!(place.sessions().is_empty());
}

#[test]
fn a_detached_session_is_ended_by_kill() {
    let place = Place::new();
    let name = place.run(&["--detach"], &["sleep", "100"]).ok();
    place.sandbox(&["attach", "last", "--", "pgrep", "-x", "sleep"]).ok();
    let started = Instant::now();
    assert!(place.sandbox(&["kill", name.trim()]).ok().contains(" ended"));
    assert!(started.elapsed() < PATIENCE);
    // One whose output waits to be read, too.
    let name = place.run(&["--detach"], &["echo", "unread"]).ok();
    wait_for("its end", || place.sandbox(&["ps", "--json"]).ok().contains("\"state\":\"ended\"").then_some(()));
    place.sandbox(&["kill", name.trim()]).ok();
    assert!(place.sessions().is_empty());
}

#[test]
fn execs_have_arguments_directory_variables_input_time_and_signals() {
    let place = Place::new();
    place.write("sub/file", "there\n");
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        let request = ExecRequest {
            cwd: Some(place.project.join("sub")),
            environment: vec![("MARK".to_owned(), "mine".to_owned()), ("LANG".to_owned(), "C".to_owned())],
            argv: ["bash", "-c", "cat file; echo $MARK $LANG; echo \"$1\" >&2; exit 3", "name", "two  words"]
                .map(str::to_owned)
                .to_vec(),
            ..ExecRequest::default()
        };
        let exec = session.exec(request).await.expect("it starts");
        assert_eq!(stdout(&exec).await, "there\nmine C\n");
        assert_eq!(exec.all(OutputStream::Stderr).await.expect("it is kept"), b"two  words\n");
        assert_eq!(exec.wait().await.expect("it ended"), ExecEnd::Ended { code: 3 });

        let words: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let cat = session.exec(ExecRequest { has_input: true, ..script("cat") }).await.expect("it starts");
        let reading = tokio::spawn({
            let cat = cat.clone();
            async move { cat.all(OutputStream::Stdout).await }
        });
        cat.write(&words, true).await.expect("it reads");
        let echoed = reading.await.expect("no panic").expect("it is kept");
        assert!(echoed.len() >= KEPT_BYTES && words.ends_with(&echoed), "{} bytes", echoed.len());
        assert!(matches!(cat.write(b"x", false).await, Err(ClientError::Refused { .. })));

        let slow =
            session.exec(ExecRequest { timeout_millis: Some(200), ..script("sleep 100") }).await.expect("it starts");
        assert_eq!(slow.wait().await.expect("it ended"), ExecEnd::TimedOut);
        let signalled =
            session.exec(script("trap 'echo heard; exit 9' USR1; echo up; while :; do sleep 0.02; done")).await;
        let signalled = signalled.expect("it starts");
        assert!(
            matches!(signalled.chunk(OutputStream::Stdout, 0, true).await, Ok(Chunk::Data { data, .. }) if data == b"up\n")
        );
        signalled.signal(10).await.expect("it runs");
        assert_eq!(signalled.wait().await.expect("it ended"), ExecEnd::Ended { code: 9 });
        assert!(signalled.signal(10).await.is_err(), "it has ended");

        let missing =
            session.exec(ExecRequest { cwd: Some("/no/such".into()), ..script("true") }).await.expect("a number");
        assert!(matches!(missing.wait().await, Ok(ExecEnd::NotStarted { .. })));
        assert!(matches!(session.exec(ExecRequest::default()).await, Err(ClientError::Refused { .. })));
        assert!(matches!(session.known_exec(99).wait().await, Err(ClientError::Refused { .. })));
        assert_eq!(session.status().await.expect("it runs").execs.len(), 5);
        let report = end(session).await;
        assert_eq!(report["end"]["killed"]["signal"], 9, "{report}");
    });
}

#[test]
fn an_exec_has_limits_of_its_own_and_none_is_wider_than_the_sessions() {
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        let limits = ExecLimits {
            cpu_seconds: Some(1),
            address_space: Some(1 << 30),
            file_size: Some(8192),
            open_files: Some(u64::MAX),
        };
        let exec = |limits, text: &str| session.exec(ExecRequest { limits, ..script(text) });
        let shown = "ulimit -t; ulimit -v; ulimit -f; ulimit -n; ulimit -Hn";
        let limited = exec(limits, shown).await.expect("it starts");
        let plain = exec(ExecLimits::default(), shown).await.expect("it starts");
        let (limited, plain) = (stdout(&limited).await, stdout(&plain).await);
        let files: Vec<&str> = plain.lines().skip(3).collect();
        assert_eq!(limited.lines().collect::<Vec<_>>(), [&["1", "1048576", "8"], &files[..]].concat(), "{plain}");
        assert!(!plain.starts_with("1\n"), "the next one has the session's alone");

        let busy = exec(limits, "while :; do :; done").await.expect("it starts");
        assert!(matches!(busy.wait().await, Ok(ExecEnd::Ended { code: 137 | 152 })), "SIGXCPU, or SIGKILL after it");
        let large = exec(limits, "head -c 100000 /dev/zero > large; wc -c < large").await.expect("it starts");
        assert_eq!(stdout(&large).await.trim(), "8192");
        end(session).await;
    });
}

#[test]
fn output_is_the_same_from_every_offset_that_is_kept_and_gone_before() {
    const KEPT: usize = 10_000;
    const WRITTEN: u64 = 65_536 + 12_345;
    let place = Place::new();
    run(async {
        let session = start(&Order { kept_bytes: KEPT, ..order(&place, Lifetime::WithClient) }).await;
        let text = format!("import sys\nfor i in range({WRITTEN}): sys.stdout.buffer.write(bytes([i * i % 251]))");
        let argv = vec!["python3".to_owned(), "-c".to_owned(), text];
        let exec = session.exec(ExecRequest { argv, ..ExecRequest::default() }).await.expect("it starts");
        assert_eq!(exec.wait().await.expect("it ended"), ExecEnd::Ended { code: 0 });
        let written: Vec<u8> = (0..WRITTEN).map(|i| u8::try_from(i * i % 251).expect("a byte")).collect();
        let first = WRITTEN - KEPT as u64;
        for from in [0, 1, 5_000, first - 1] {
            let chunk = exec.chunk(OutputStream::Stdout, from, false).await.expect("it is there");
            assert_eq!(chunk, Chunk::Gone { first_kept: first }, "{from}");
        }
        for from in (first..WRITTEN).step_by(997).chain([WRITTEN - 1, WRITTEN]) {
            let chunk = exec.chunk(OutputStream::Stdout, from, false).await.expect("it is there");
            let from = usize::try_from(from).expect("small");
            assert_eq!(chunk, Chunk::Data { data: written[from..].to_vec(), ended: true }, "{from}");
        }
        end(session).await;
    });
}

#[test]
fn an_exec_sees_what_the_session_sees_and_its_calls_are_counted() {
    for mode in ["static", "dynamic"] {
        let place = Place::new();
        place.write("home:.ssh/id_rsa", "the key\n");
        place.write("home:other/file", "other\n");
        place.write("ok", "fine\n");
        run(async {
            let flags = vec![
                flag("--mode", mode),
                flag("--on-unknown", "deny"),
                flag("--blacklist", &place.home.join("other").display().to_string()),
            ];
            let session = start(&Order { flags, ..order(&place, Lifetime::WithClient) }).await;
            let exec =
                session.exec(script("cat ok ~/.ssh/id_rsa ~/other/file ~/.local/state/cofferdam/*; echo end")).await;
            assert_eq!(stdout(&exec.expect("it starts")).await, "fine\nend\n", "{mode}");
            // Left behind by an exec that has ended.
            let text = "(until test -e go; do sleep 0.02; done; unshare -U true; touch done) & echo left";
            let exec = session.exec(script(text)).await.expect("it starts");
            assert_eq!(exec.wait().await.expect("it ended"), ExecEnd::Ended { code: 0 });
            place.write("go", "");
            wait_for("what it left behind", || place.exists("done").then_some(()));
            let report = end(session).await;
            assert!(report["violations"].as_u64() > Some(0), "{mode}: {report}");
        });
    }
}

#[test]
fn a_session_ends_with_its_client_or_outlives_it() {
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        session.exec(script("sleep 100")).await.expect("it starts");
        drop(session);
        wait_for("the end of the session", || place.sessions().is_empty().then_some(()));
        let logged = place.sandbox(&["audit", "last", "--format", "json"]).ok();
        assert!(logged.contains("client-gone"), "{logged}");

        let session = start(&order(&place, Lifetime::UntilEnded)).await;
        let exec = session
            .exec(script("echo before; until test -e go; do sleep 0.05; done; echo after"))
            .await
            .expect("it starts");
        let (directory, id) = (session.directory().to_owned(), exec.id());
        drop(session);
        assert!(
            matches!(exec.chunk(OutputStream::Stdout, 0, true).await, Ok(Chunk::Data { data, .. }) if data == b"before\n")
        );
        let adopted = Session::adopt(&directory).await.expect("it lives");
        place.write("go", "");
        assert_eq!(stdout(&adopted.known_exec(id)).await, "before\nafter\n");
        let waiting = Session::adopt(&directory).await.expect("it lives");
        let waiting = tokio::spawn(waiting.wait());
        adopted.kill().await.expect("it is there");
        assert!(matches!(waiting.await.expect("no panic"), Ok(None) | Err(ClientError::Ended)));
        wait_for("the end of the session", || place.sessions().is_empty().then_some(()));
        assert!(matches!(Session::adopt(&directory).await, Err(ClientError::Ended)));
    });
}

#[test]
fn questions_come_as_a_stream_and_are_answered() {
    let place = Place::new();
    place.write("home:unknown/file", "behind a question\n");
    run(async {
        let flags = vec![flag("--mode", "dynamic")];
        let session = start(&Order { can_ask: true, flags, ..order(&place, Lifetime::WithClient) }).await;
        let mut questions = session.questions().await.expect("it runs");
        let exec = session.exec(script("cat ~/unknown/file")).await.expect("it starts");
        let question = loop {
            let question = questions.next().await.expect("it runs").expect("it asks");
            if question.path.ends_with("unknown/file") || question.path.ends_with("unknown") {
                break question;
            }
        };
        session
            .answer(question.id, Verdict::Allow { reach: Reach::Dir, keep: Keep::Session })
            .await
            .expect("it is open");
        assert_eq!(stdout(&exec).await, "behind a question\n");
        end(session).await;
        assert!(questions.next().await.expect("no error").is_none());
    });
}

/// What a supervisor says to these bytes.
fn answer_to(place: &Place, bytes: &[u8]) -> Value {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut command = place.command(binary());
    command.args(["supervise", "--order-fd", "0"]).stdin(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::null());
    let mut supervisor = command.spawn().expect("it starts");
    drop(command);
    (&ours).write_all(bytes).expect("it reads");
    ours.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut line = String::new();
    BufReader::new(ours.take(1 << 20)).read_line(&mut line).expect("text");
    assert_ne!(supervisor.wait().expect("it ends").code(), Some(0), "{line}");
    serde_json::from_str(&line).unwrap_or_else(|_| json!(line))
}

#[test]
fn an_order_that_cannot_be_followed_starts_nothing() {
    let place = Place::new();
    let good = order(&place, Lifetime::UntilEnded);
    let document = |order: &Order| order.document().expect("text");
    for bytes in [&b""[..], b"\n", b"{}\n", b"{\"version\":1", &document(&Order { version: 2, ..good.clone() })] {
        let told = answer_to(&place, bytes);
        assert_eq!(told["type"], "error", "{told}");
    }
    let told = answer_to(&place, &document(&Order { cwd: Some(place.home.join("missing")), ..good.clone() }));
    assert!(told["message"].as_str().is_some_and(|text| text.contains("missing")), "{told}");
    let told = answer_to(&place, &document(&Order { flags: vec![flag("--no-walls", "1")], ..good.clone() }));
    assert!(told["report"]["error"]["message"].as_str().is_some_and(|text| text.contains("--no-walls")), "{told}");
    let told = answer_to(&place, &document(&Order { flags: vec![flag("--isolation", "none")], ..good }));
    assert!(told["report"]["error"]["message"].as_str().is_some_and(|text| text.contains("isolation")), "{told}");
    assert!(place.sessions().is_empty());
}

#[test]
fn a_session_of_a_terminal_keeps_no_output_and_says_so() {
    let place = Place::new();
    let running = place.start(&[], "echo ready; read line");
    place.sandbox(&["output", "last"]).code(125).says(&["was not detached"]);
    running.end();
}

#[test]
fn input_is_not_waited_for_once_the_command_has_ended() {
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        let text = "sleep 100 <&0 & touch up; until test -e go; do sleep 0.02; done";
        let exec = session.exec(ExecRequest { has_input: true, ..script(text) }).await.expect("it starts");
        let writing = tokio::spawn({
            let exec = exec.clone();
            async move { exec.write(&vec![0; 1 << 20], true).await }
        });
        wait_for("the command", || place.exists("up").then_some(()));
        place.write("go", "");
        assert_eq!(exec.wait().await.expect("it ended"), ExecEnd::Ended { code: 0 });
        assert!(matches!(writing.await.expect("no panic"), Err(ClientError::Refused { .. })));
        end(session).await;
    });
}

#[test]
fn a_session_that_is_killed_does_not_wait_for_readers_of_its_output() {
    let place = Place::new();
    run(async {
        let lifetime = Lifetime::WithFirstExec { linger_seconds: 600 };
        let deaf = script("trap '' TERM HUP; echo unread; sleep 100 & wait; sleep 100");
        let ordered = Order { exec: Some(deaf), ..order(&place, lifetime) };
        let session = start(&ordered).await;
        wait_for("its output", || place.sandbox(&["output", session.id()]).out.contains("unread").then_some(()));
        // What does not listen is killed after two seconds.
        let started = Instant::now();
        assert!(place.sandbox(&["kill", session.id()]).ok().contains(" ended"));
        assert!(
            (Duration::from_secs(1)..Duration::from_secs(5)).contains(&started.elapsed()),
            "{:?}",
            started.elapsed()
        );
        assert!(session.wait().await.expect("it ends").is_some());
        let session = start(&ordered).await;
        let started = Instant::now();
        end(session).await;
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    });
}

/// A process that traces the command keeps its end from its parent, and never looks.
#[test]
fn a_traced_command_cannot_keep_its_session() {
    const TRACER: &str = "import ctypes, os, time
leader = os.getpid()
if os.fork() == 0:
    os.setsid()
    libc = ctypes.CDLL(None)
    assert libc.ptrace(0x4206, leader, None, None) == 0
    open('traced', 'w').close()
    time.sleep(1000)
while not os.path.exists('traced'): time.sleep(0.02)
";
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        let argv = ["python3", "-c", TRACER].map(str::to_owned).to_vec();
        let exec = session.exec(ExecRequest { argv, ..ExecRequest::default() }).await.expect("it starts");
        assert_eq!(exec.wait().await.expect("it is told"), ExecEnd::Ended { code: 137 });
        drop(session);
        wait_for("the end of the session", || place.sessions().is_empty().then_some(()));
    });
}

#[test]
fn a_command_line_of_any_length_ends_no_other_exec() {
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        let other = session.exec(script("sleep 100")).await.expect("it starts");
        let argv = vec!["x".repeat(50_000)];
        let long = session.exec(ExecRequest { argv, ..ExecRequest::default() }).await.expect("a number");
        assert!(matches!(long.wait().await, Ok(ExecEnd::NotStarted { .. })));
        other.signal(15).await.expect("it runs");
        assert_eq!(other.wait().await.expect("it ended"), ExecEnd::Ended { code: 143 });
        end(session).await;
    });
}

#[test]
fn so_many_execs_run_at_once_and_are_remembered() {
    let place = Place::new();
    run(async {
        let session = start(&order(&place, Lifetime::WithClient)).await;
        for _ in 0..16 {
            session.exec(script("sleep 100")).await.expect("it starts");
        }
        let Err(ClientError::Refused { message }) = session.exec(script("true")).await else { panic!("17 run") };
        assert!(message.contains("too many"), "{message}");
        let long = "x".repeat(20_000);
        for id in [1, 2] {
            session.known_exec(id).signal(9).await.expect("it runs");
            session.known_exec(id).wait().await.expect("it ended");
        }
        for _ in 0..70 {
            let argv = [vec!["true".to_owned()], vec![long.clone(); 2]].concat();
            let exec = session.exec(ExecRequest { argv, ..ExecRequest::default() }).await.expect("it starts");
            exec.wait().await.expect("it ended");
        }
        let status = session.status().await.expect("it answers");
        assert_eq!(status.execs.iter().filter(|exec| exec.end.is_none()).count(), 14);
        assert_eq!(status.execs.iter().filter(|exec| exec.end.is_some()).count(), 64);
        // The one that ended last is remembered, however early it began.
        session.known_exec(3).signal(9).await.expect("it runs");
        session.known_exec(3).wait().await.expect("it ended");
        session.exec(script("true")).await.expect("it starts");
        assert_eq!(session.known_exec(3).wait().await.expect("it is remembered"), ExecEnd::Ended { code: 137 });
        end(session).await;
    });
}

#[test]
fn calls_that_are_given_up_leave_no_zombie() {
    let place = Place::new();
    run(async {
        for millis in [0, 1, 3, 9, 20, 200] {
            let ordered = order(&place, Lifetime::WithClient);
            let given_up =
                tokio::time::timeout(Duration::from_millis(millis), Session::start(binary(), &ordered)).await;
            if let Ok(session) = given_up {
                let waited = session.expect("it starts").wait();
                assert!(tokio::time::timeout(Duration::from_millis(millis), waited).await.is_err());
            }
        }
        let ordered = order(&place, Lifetime::WithClient);
        let until = Instant::now() + PATIENCE;
        // What has ended is collected at the next start.
        while own_zombies() > 0 || !place.sessions().is_empty() {
            assert!(Instant::now() < until, "{} zombies", own_zombies());
            end(start(&ordered).await).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn the_limit_of_output_holds_for_execs() {
    let place = Place::new();
    run(async {
        let flags = vec![flag("--max-output", "10000")];
        let session = start(&Order { flags, ..order(&place, Lifetime::WithClient) }).await;
        let exec = session.exec(script("head -c 9000 /dev/zero; sleep 0.1; head -c 9000 /dev/zero; sleep 100")).await;
        let written = exec.expect("it starts").all(OutputStream::Stdout).await.expect("it is kept");
        assert_eq!(written.len(), 10_000);
        let report = session.wait().await.expect("it ends").expect("it says how");
        assert_eq!((&report["end"], &report["exit_code"]), (&json!("output-limit"), &json!(124)), "{report}");
    });
}

/// How many, unless the long form asks for more (`cargo xtask stress orders`).
fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A session with two execs; every byte of both arrives.
async fn whole_session(order: Order, number: usize) {
    let session = start(&order).await;
    if let Err(error) = two_execs(&session, number).await {
        let status = session.status().await;
        panic!("{error:?}: {status:?}, {:?}", tokio::time::timeout(PATIENCE, session.wait()).await);
    }
    end(session).await;
}

async fn two_execs(session: &Session, number: usize) -> Result<(), ClientError> {
    let code = u8::try_from(number % 100).expect("small");
    let text = format!("for i in $(seq 50); do echo {number}-$i; done; echo {number} >&2; exit {code}");
    let expected = (1..=50).map(|i| format!("{number}-{i}\n")).collect::<Vec<_>>().concat();
    for exec in [session.exec(script(&text)).await?, session.exec(script(&text)).await?] {
        assert_eq!(String::from_utf8(exec.all(OutputStream::Stdout).await?).expect("text"), expected);
        assert_eq!(exec.all(OutputStream::Stderr).await?, format!("{number}\n").into_bytes());
        assert_eq!(exec.wait().await?, ExecEnd::Ended { code });
    }
    Ok(())
}

#[test]
fn many_sessions_at_once_and_in_a_row_lose_nothing() {
    let (at_once, in_a_row) = (number("COFFERDAM_SESSIONS_AT_ONCE", 12), number("COFFERDAM_SESSIONS_IN_A_ROW", 24));
    let place = Place::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(16).enable_all().build().expect("a runtime");
    let began = Instant::now();
    runtime.block_on(async {
        let all: Vec<_> = (0..at_once)
            .map(|number| tokio::spawn(whole_session(order(&place, Lifetime::WithClient), number)))
            .collect();
        for one in all {
            one.await.expect("it loses nothing");
        }
        let (together, began) = (began.elapsed(), Instant::now());
        for number in 0..in_a_row {
            whole_session(order(&place, Lifetime::WithClient), number).await;
        }
        println!("{at_once} at once in {together:?}, {in_a_row} in a row in {:?}", began.elapsed());
    });
    wait_for("the last session", || place.sessions().is_empty().then_some(()));
    assert_eq!(own_zombies(), 0);
}

/// Children of this process that have ended and are not collected.
fn own_zombies() -> usize {
    let is_one = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&std::process::id().to_string().as_str())
    };
    std::fs::read_dir("/proc").expect("it is there").flatten().filter(is_one).count()
}

const VICTIM: &str = "COFFERDAM_TEST_VICTIM";
const BINARY: &str = "COFFERDAM_SANDBOX_BIN";

/// Not a test by itself: a client with a session of each kind, which `clients_that_are_killed_leave_nothing` kills.
#[test]
fn victim() {
    let Some(home) = std::env::var_os(VICTIM).map(PathBuf::from) else { return };
    let order = |lifetime| Order {
        version: ORDER_VERSION,
        cwd: Some(home.join("project")),
        environment: std::env::vars().filter(|(name, _)| name != VICTIM && name != BINARY).collect(),
        flags: Vec::new(),
        chosen: Chosen::default(),
        exec: None,
        lifetime,
        can_ask: false,
        kept_bytes: KEPT_BYTES,
    };
    run(async {
        let (mine, lasting) = (start(&order(Lifetime::WithClient)).await, start(&order(Lifetime::UntilEnded)).await);
        for session in [&mine, &lasting] {
            session.exec(script("i=0; while :; do echo $((i++)); done")).await.expect("it starts");
        }
        std::fs::write(home.join("lasting"), lasting.directory().as_os_str().as_encoded_bytes())
            .expect("it is written");
        let exec = lasting.known_exec(1);
        let mut from = 0;
        loop {
            match exec.chunk(OutputStream::Stdout, from, true).await.expect("it lives") {
                Chunk::Data { data, .. } => from += data.len() as u64,
                Chunk::Gone { first_kept } => from = first_kept,
            }
        }
    });
}

#[test]
fn clients_that_are_killed_leave_nothing() {
    for turn in 0..number("COFFERDAM_CLIENTS_KILLED", 3) {
        let place = Place::new();
        let mut command = place.command(std::env::current_exe().expect("it has a path"));
        command.args(["--exact", "ordered::victim", "--nocapture"]).env(VICTIM, &place.home);
        command.env(BINARY, binary());
        let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let lasting = wait_for("its sessions", || place.read("home:lasting").filter(|text| !text.is_empty()));
        std::thread::sleep(Duration::from_millis(u64::try_from(turn * 37 % 150).expect("small")));
        client.kill().and_then(|()| client.wait()).expect("it was there");
        wait_for("the session that ends with it", || (place.sessions().len() == 1).then_some(()));
        run(async {
            let adopted = Session::adopt(&lasting).await.expect("it lives");
            let kept = adopted.status().await.expect("it answers").execs[0].kept[0];
            assert!(kept.0 < kept.1, "{kept:?}");
            // Numbers follow each other wherever one begins to read.
            let Ok(Chunk::Data { data, .. }) =
                adopted.known_exec(1).chunk(OutputStream::Stdout, kept.1.saturating_sub(9_000), false).await
            else {
                panic!("it is kept")
            };
            let text = String::from_utf8(data).expect("text");
            let numbers: Vec<u64> = text.lines().skip(1).filter_map(|line| line.parse().ok()).collect();
            let whole = &numbers[..numbers.len().saturating_sub(1)];
            assert!(whole.len() > 100 && whole.windows(2).all(|pair| pair[1] == pair[0] + 1), "{text}");
            adopted.kill().await.expect("it lives");
        });
        wait_for("the end of the other", || place.sessions().is_empty().then_some(()));
    }
}

#[test]
fn an_exec_is_looked_for_in_the_quarantine_and_its_attempt_is_put_down_to_it() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let attempt = "import ctypes\nctypes.CDLL(None).syscall(308, -1, 0)";
    place.write("first.py", "import time\ntime.sleep(100)");
    place.write("tool.py", attempt);
    let python =
        |name: &str| ExecRequest { argv: ["python3", name].map(str::to_owned).to_vec(), ..ExecRequest::default() };
    let list = || place.sandbox(&["quarantine", "list"]).ok();
    run(async {
        let session = start(&Order { exec: Some(python("first.py")), ..order(&place, Lifetime::WithClient) }).await;
        session.exec(python("tool.py")).await.expect("it is in no list yet");
        let ended = session.wait().await.expect("it ends").expect("it says how");
        assert_eq!(ended["end"], "escape-attempt", "{ended}");
        assert!(list().contains("tool.py") && !list().contains("first.py"), "{}", list());
        let session = start(&Order { exec: Some(python("first.py")), ..order(&place, Lifetime::WithClient) }).await;
        let Err(refused) = session.exec(python("tool.py")).await else { panic!("it may not run") };
        assert!(refused.to_string().contains("is quarantined since session"), "{refused}");
        end(session).await;
    });
}
