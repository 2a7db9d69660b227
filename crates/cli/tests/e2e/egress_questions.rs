//! Questions about hosts that no rule is about: who answers, what is kept and where, and that no server outside hears of
//! a host before the answer. And what `sandbox learn` makes of hosts. In an internet of the test's own.

use std::time::{Duration, Instant};

use crate::internet::{ALLOWED, Internet, OTHER, PRIVATE};
use crate::support::wait_for;

/// No flag chooses a network.
const ASK: [&str; 4] = ["--on-unknown", "ask", "--ask-timeout", "20s"];
const GET: &str = "curl -sS -o /dev/null -w '%{http_code}\\n' http://other.test/; echo code-$?; ";
const CONFIG: &str = "home:.config/cofferdam/config.toml";
const LOCAL: &str = ".cofferdam/policy.local.toml";

fn question(internet: &Internet) -> String {
    wait_for("a question", || {
        let text = internet.sandbox(&["questions"]).ok();
        text.split_whitespace().next().map(str::to_owned)
    })
}

/// A session that asks for `other.test` once it is told to, and what `answer` says to the question.
fn asked(internet: &Internet, script: &str, answer: &[&str]) -> String {
    let mut session = internet.start(&ASK, &format!("echo up; read x; {script}"));
    session.tell("\n");
    let name = question(internet);
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
    internet.sandbox(&[&answer[..1], &[&name], &answer[1..]].concat()).code(0);
    let (code, out) = session.end();
    assert_eq!(code, 0, "{out}");
    out
}

#[test]
fn a_question_says_the_host_and_who_asks() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let mut session = internet.start(&ASK, &format!("echo up; read x; {GET}"));
    session.tell("\n");
    let name = question(&internet);
    let text = internet.sandbox(&["questions"]).ok();
    assert!(text.contains("other.test:80") && text.contains("curl"), "{text}");
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
    internet.sandbox(&["approve", &name]).code(0).says(&["allowed ", "other.test:80"]);
    assert_eq!(session.end(), (0, "200\ncode-0\n".to_owned()));
    assert_eq!(internet.world.connections(&format!("{OTHER}:80")).len(), 1);
}

#[test]
fn a_denied_host_is_refused_with_words_and_without_them() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    assert_eq!(asked(&internet, GET, &["deny"]), "403\ncode-0\n");
    let direct = format!("unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; {GET}");
    let out = asked(&internet, &direct, &["deny"]);
    assert!(out.contains("403\ncode-0") || out.contains("code-56") || out.contains("code-52"), "{out}");
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
}

#[test]
fn an_answer_for_the_session_is_asked_once_and_written_nowhere() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let before = internet.place.read(CONFIG);
    let out = asked(&internet, &format!("{GET}{GET}"), &["approve", "--keep", "session"]);
    assert_eq!(out, "200\ncode-0\n200\ncode-0\n");
    assert_eq!(internet.place.read(CONFIG), before);
    assert!(!internet.place.exists(LOCAL));
}

#[test]
fn an_answer_for_the_project_or_the_user_is_written_there_and_not_asked_again() {
    for (keep, file) in [("project", LOCAL), ("user", CONFIG)] {
        let Some(internet) = Internet::with_web(&["curl"]) else { return };
        assert_eq!(asked(&internet, GET, &["approve", "--keep", keep]), "200\ncode-0\n");
        let policy = internet.place.read(file).expect("it was written");
        let (_, allow) = policy.split_once("allow = [").unwrap_or_else(|| panic!("no list:\n{policy}"));
        assert!(allow.contains("\"other.test:80\""), "{policy}");
        // With no operator there to answer.
        assert_eq!(internet.run(&[], GET).ok(), "200\ncode-0\n", "{keep}");
    }
}

#[test]
fn a_denial_for_the_user_is_written_and_not_asked_again() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    assert_eq!(asked(&internet, GET, &["deny", "--keep", "user"]), "403\ncode-0\n");
    let policy = internet.place.read(CONFIG).expect("it was written");
    let (_, deny) = policy.split_once("deny = [").unwrap_or_else(|| panic!("no list:\n{policy}"));
    assert!(deny.contains("other.test"), "{policy}");
    let started = Instant::now();
    assert_eq!(internet.run(&ASK, GET).ok(), "403\ncode-0\n");
    assert!(started.elapsed() < Duration::from_secs(10));
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
}

#[test]
fn a_host_that_nobody_answers_about_is_denied_in_time() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let started = Instant::now();
    let flags = ["--network", "egress", "--on-unknown", "ask", "--ask-timeout", "1s"];
    let ran = internet.run(&flags, &format!("{GET} exit 3")).code(3);
    assert_eq!(ran.out, "403\ncode-0\n");
    let ran = ran.says(&["other.test:80", "no answer came in time"]);
    assert!(!ran.err.contains("denied by"), "{}", ran.err);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
}

#[test]
fn more_questions_than_the_budget_are_denied_unasked() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let config = internet.place.read(CONFIG).expect("a file");
    internet.place.write(CONFIG, &format!("{config}\n[unknown]\nper_minute = 2\n"));
    let flags = ["--network", "egress", "--on-unknown", "ask", "--ask-timeout", "1s"];
    let script = "for n in 1 2 3 4 5 6; do
        curl -sS -o /dev/null -w '%{http_code}\\n' http://host-$n.test/ & done; wait";
    let started = Instant::now();
    let ran = internet.run(&flags, script);
    assert_eq!(ran.ok(), "403\n".repeat(6));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let log = internet.sandbox(&["audit", "--format", "json"]).ok();
    let asked = log.lines().filter(|line| line.contains("\"question\":") && !line.contains("\"decision\":"));
    assert_eq!(asked.count(), 2, "{log}");
    assert!(log.contains("\"limit\":\"questions\""), "{log}");
    assert!(internet.world.queries("").is_empty());
}

#[test]
fn learning_drafts_the_hosts_that_were_reached() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let get = "curl -sS -o /dev/null http://other.test/ && curl -sS -o /dev/null http://allowed.test:8080/";
    let learn = |more: &[&str]| {
        internet.sandbox(&[&["learn", "--network", "egress"], more, &["--", "bash", "-c", get]].concat())
    };
    let draft = learn(&[]).ok();
    for text in ["[network]", "mode = \"egress\"", "\"other.test:80\"", "\"allowed.test:8080\""] {
        assert!(draft.contains(text), "{text}:\n{draft}");
    }
    learn(&["--save", "user"]).ok();
    internet.run(&[], get).ok();
    let ran = internet.run(&[], "curl -sS http://third.test/; exit 3").code(3);
    ran.says(&["third.test"]);
}

fn with_pip_at(second: &str) -> Option<Internet> {
    let internet = Internet::naming(&["curl"], &[("pypi.org", ALLOWED), ("files.pythonhosted.org", second)])?;
    for address in [ALLOWED, second] {
        internet.world.http(&format!("{address}:80"));
    }
    Some(internet)
}

/// Two hosts that the shipped list has for `pip install`, with a web server each.
fn with_pip() -> Option<Internet> {
    with_pip_at(OTHER)
}

const PIP: &str = "for host in pypi.org files.pythonhosted.org; do
    curl -sS -o /dev/null -w '%{http_code}\\n' http://$host/; done; ";
const HOSTS: &str = "all 2 hosts of pip install: pypi.org:80, files.pythonhosted.org:80";

fn questions_asked(internet: &Internet) -> usize {
    let log = internet.sandbox(&["audit", "--format", "json"]).ok();
    log.lines().filter(|line| line.contains("\"question\":") && !line.contains("\"decision\":")).count()
}

#[test]
fn all_hosts_of_a_program_are_one_answer_and_no_other_host_is_in_it() {
    let Some(internet) = with_pip() else { return };
    let mut session = internet.start(&ASK, &format!("echo up; read x; {PIP}{GET}"));
    session.tell("\n");
    let name = question(&internet);
    let text = internet.sandbox(&["questions"]).ok();
    assert!(text.contains("pypi.org:80") && text.contains(HOSTS), "{text}");
    internet.sandbox(&["approve", &name, "--scope", "group", "--keep", "once"]).code(1).says(&["for the session"]);
    internet.sandbox(&["deny", &name, "--scope", "group"]).code(1).says(&["not denied"]);
    internet.sandbox(&["approve", &name, "--scope", "group"]).code(0);
    // The next question is about the host that is not in the group.
    let name = question(&internet);
    let text = internet.sandbox(&["questions"]).ok();
    assert!(text.contains("other.test:80") && !text.contains("--scope group"), "{text}");
    internet.sandbox(&["approve", &name, "--scope", "group"]).code(1).says(&["offers no group"]);
    internet.sandbox(&["deny", &name]).code(0);
    assert_eq!(session.end(), (0, "200\n200\n403\ncode-0\n".to_owned()));
    assert_eq!(questions_asked(&internet), 2);
    let log = internet.sandbox(&["audit", "--format", "json"]).ok();
    assert!(log.contains("\"scope\":\"group\"") && log.contains("about all 2 hosts of pip install"), "{log}");
    // For people as well.
    let log = internet.sandbox(&["logs", "last"]).ok();
    for said in
        ["asked connect pypi.org:80", "allowed connect pypi.org:80", "denied connect other.test:80", "2 questions"]
    {
        assert!(log.contains(said) && !log.contains(":null"), "{said}: {log}");
    }
}

#[test]
fn an_answer_for_the_group_covers_the_open_question_about_another_of_its_hosts() {
    let Some(internet) = with_pip() else { return };
    let both = "for host in pypi.org files.pythonhosted.org; do
        curl -sS -o /dev/null -w '%{http_code}\\n' http://$host/ & done; wait";
    let mut session = internet.start(&ASK, &format!("echo up; read x; {both}"));
    session.tell("\n");
    let [name, _] = two_questions(&internet);
    internet.sandbox(&["approve", &name, "--scope", "group"]).code(0);
    assert_eq!(session.end(), (0, "200\n200\n".to_owned()));
    let log = internet.sandbox(&["audit", "--format", "json"]).ok();
    assert_eq!(log.matches("\"byGroupOfQuestion\":").count(), 1, "{log}");
}

#[test]
fn a_group_of_hosts_is_kept_like_a_host() {
    let Some(internet) = with_pip() else { return };
    let out = asked_of_group(&internet, PIP, "project");
    assert_eq!(out, "200\n200\n");
    let policy = internet.place.read(LOCAL).expect("it was written");
    assert!(policy.contains("\"pypi.org:80\"") && policy.contains("\"files.pythonhosted.org:80\""), "{policy}");
    assert_eq!(internet.run(&[], PIP).ok(), "200\n200\n");
}

fn asked_of_group(internet: &Internet, script: &str, keep: &str) -> String {
    let mut session = internet.start(&ASK, &format!("echo up; read x; {script}"));
    session.tell("\n");
    let name = question(internet);
    internet.sandbox(&["approve", &name, "--scope", "group", "--keep", keep]).code(0);
    session.end().1
}

#[test]
fn what_a_rule_is_about_is_in_no_group() {
    // What is allowed may be allowed in part, and needs no answer.
    for (rule, code) in [("deny", 403), ("allow", 200)] {
        let Some(internet) = with_pip() else { return };
        internet.config(&format!("{rule} = [\"files.pythonhosted.org\"]\n"));
        let mut session = internet.start(&ASK, &format!("echo up; read x; {PIP}"));
        session.tell("\n");
        let name = question(&internet);
        let text = internet.sandbox(&["questions"]).ok();
        assert!(text.contains("pypi.org:80") && !text.contains("hosts of pip install"), "{text}");
        internet.sandbox(&["approve", &name, "--scope", "group"]).code(1).says(&["offers no group"]);
        internet.sandbox(&["approve", &name, "--keep", "session"]).code(0);
        assert_eq!(session.end().1, format!("200\n{code}\n"), "{rule}");
    }
}

/// The names of two questions, the one about `pypi.org` first.
fn two_questions(internet: &Internet) -> [String; 2] {
    wait_for("two questions", || {
        let text = internet.sandbox(&["questions"]).ok();
        let name = |host: &str| {
            let line = text.lines().find(|line| line.contains(&format!("connect to {host}")))?;
            line.split_whitespace().next().map(str::to_owned)
        };
        Some([name("pypi.org")?, name("files.pythonhosted.org")?])
    })
}

#[test]
fn what_was_denied_after_the_group_was_asked_about_stays_denied() {
    let Some(internet) = with_pip() else { return };
    let get = "curl -sS -o /dev/null -w '%{http_code}\\n' http://files.pythonhosted.org/";
    let script = format!("{get} & curl -sS -o /dev/null http://pypi.org/; echo pypi-$?; wait; {get}");
    let mut session = internet.start(&ASK, &format!("echo up; read x; {script}"));
    session.tell("\n");
    let [group, other] = two_questions(&internet);
    internet.sandbox(&["deny", &other, "--keep", "session"]).code(0);
    internet.sandbox(&["approve", &group, "--scope", "group"]).code(0);
    let (_, out) = session.end();
    assert!(out.contains("pypi-0") && out.matches("403").count() == 2 && !out.contains("200"), "{out}");
    let log = internet.sandbox(&["audit", "--format", "json"]).ok();
    assert!(log.contains("\"granted\":[\"pypi.org:80\"]"), "{log}");
}

#[test]
fn a_host_of_a_group_that_leads_to_a_private_address_is_asked_about_by_itself() {
    let Some(internet) = with_pip_at(PRIVATE) else { return };
    let mut session = internet.start(&ASK, &format!("echo up; read x; {PIP}"));
    session.tell("\n");
    let name = question(&internet);
    assert!(internet.sandbox(&["questions"]).ok().contains(HOSTS));
    internet.sandbox(&["approve", &name, "--scope", "group"]).code(0);
    let name = question(&internet);
    let text = internet.sandbox(&["questions"]).ok();
    assert!(text.contains("files.pythonhosted.org:80@10.0.0.5") && !text.contains("--scope group"), "{text}");
    assert!(internet.world.connections(&format!("{PRIVATE}:80")).is_empty(), "it was reached before the answer");
    internet.sandbox(&["deny", &name]).code(0);
    assert_eq!(session.end().1, "200\n403\n");
}
