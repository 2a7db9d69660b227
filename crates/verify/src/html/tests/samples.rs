//! Reports to make pages of, and a directory for them. Owns what the tests of the page take for a usual report, and what for the
//! worst one; used by them alone.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::report::{
    Check, Control, ControlResult, Fact, Host, Outcome, PolicyUsed, Report, SCHEMA, Signature, Summary,
};

/// A directory of one test, gone with it.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cofferdam-page-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Scratch(path)
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir_all(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

fn check(id: &str, group: &str, title: &str, evidence: &str, control: (&str, &str)) -> Check {
    Check {
        id: id.to_owned(),
        title: title.to_owned(),
        group: group.to_owned(),
        required: true,
        result: Outcome::Contained,
        why: None,
        evidence: evidence.to_owned(),
        control: Control { what: control.0.to_owned(), result: ControlResult::Fell, evidence: control.1.to_owned() },
    }
}

fn report(checks: Vec<Check>) -> Report {
    let count =
        |outcome| u32::try_from(checks.iter().filter(|check| check.result == outcome).count()).unwrap_or(u32::MAX);
    let fact = |(name, value): (&str, &str)| Fact { name: name.to_owned(), value: value.to_owned() };
    Report {
        schema: SCHEMA.to_owned(),
        generated: "2026-11-18T09:58:21.104512Z".to_owned(),
        host: Host {
            kernel: "6.18.4-amd64 #1 SMP PREEMPT_DYNAMIC".to_owned(),
            distribution: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            machine: "x86_64".to_owned(),
            user: "uid 1000".to_owned(),
        },
        versions: [("cofferdam", "0.1.0"), ("sandbox-egress", "0.1.0"), ("git", "2.39.5")]
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .into(),
        policy: PolicyUsed {
            source: "built-in, /etc/cofferdam/policy.toml, /home/ada/.config/cofferdam/config.toml".to_owned(),
            digest: "sha256:5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592".to_owned(),
        },
        posture: [
            ("user namespace", "own, further ones forbidden"),
            ("mount namespace", "own, 61 mounts, root read-only"),
            ("capabilities", "none in any of the five sets; securebits locked"),
            ("system call filter", "installed, 318 calls allowed, others EPERM"),
            ("Landlock", "ABI 7: scopes for signals and abstract sockets"),
            ("memory limit", "cgroup v2, 4 GiB"),
        ]
        .map(fact)
        .into(),
        summary: Summary {
            contained: count(Outcome::Contained),
            not_contained: count(Outcome::NotContained),
            cannot_check: count(Outcome::CannotCheck),
            required_failed: count(Outcome::NotContained),
            seconds: 23.4,
        },
        checks,
        signature: Some(Signature {
            algorithm: "ed25519".to_owned(),
            key_id: "8f2a6c0d41e77b3590aa12c4d6f8e0b18f2a6c0d41e77b3590aa12c4d6f8e0b1".to_owned(),
            value: "3c".repeat(64),
        }),
    }
}

pub(super) fn all_contained() -> Report {
    report(vec![
        check(
            "F1",
            "files",
            "a hidden file cannot be read",
            "open ~/.ssh/id_ed25519: ENOENT",
            ("the same probe without the cover of ~/.ssh", "read 24 bytes: the canary"),
        ),
        check(
            "F2",
            "files",
            "a protected name cannot be made",
            "mkdir .git/hooks: EROFS\nrename x .git/hooks: EROFS\nlink x .git/hooks/pre-commit: EROFS",
            ("the same probe without the held name", "mkdir .git/hooks: 0"),
        ),
        check(
            "S1",
            "system calls",
            "open_by_handle_at is refused",
            "open_by_handle_at: EPERM, and the session was ended",
            (
                "the same probe with the filter open and CAP_DAC_READ_SEARCH kept",
                "a descriptor of the host's /etc/shadow",
            ),
        ),
    ])
}

/// One of each kind of result, worst last.
pub(super) fn mixed() -> Report {
    let mut checks = all_contained().checks;
    checks.push(check(
        "P1",
        "processes",
        "processes of the host cannot be seen, signalled or traced",
        "/proc lists 3 processes, all of the session\nkill(1): signals the session's own init",
        ("the same probe in the host's pid namespace", "/proc lists 214 processes"),
    ));
    checks.push(Check {
        required: false,
        control: Control {
            what: "the same probe without Landlock's scope".to_owned(),
            result: ControlResult::Held,
            evidence: "connect: ECONNREFUSED".to_owned(),
        },
        ..check("P3", "processes", "abstract sockets of the host cannot be reached", "connect: EPERM", ("", ""))
    });
    checks.push(Check {
        required: false,
        result: Outcome::CannotCheck,
        why: Some("no cgroup is delegated to this user, so the limit is kept by the supervisor".to_owned()),
        control: Control {
            what: "the same probe without the limit".to_owned(),
            result: ControlResult::NotRun,
            evidence: String::new(),
        },
        ..check("L2", "limits", "memory past the limit ends the session alone", "", ("", ""))
    });
    let reached = "connect 192.0.2.7:443: 0\nconnect [2001:db8::7]:443: ENETUNREACH\nresolve canary.example: NXDOMAIN";
    checks.push(Check {
        result: Outcome::NotContained,
        why: Some(reached.to_owned()),
        control: Control {
            what: "the same probe without the network namespace".to_owned(),
            result: ControlResult::NotRun,
            evidence: "the probe got there with the walls standing".to_owned(),
        },
        ..check("N1", "network", "no host is reached that was not allowed", reached, ("", ""))
    });
    report(checks)
}

/// What a workload, or a host that it prepared, would write to be believed.
const HOSTILE: [&str; 9] = [
    "<script>parent.ran.add(self.name); document.title = 'ran'</script>",
    "\"><img src=x onerror=\"parent.ran.add(self.name)\"><b title='",
    "' onmouseover='parent.ran.add(self.name)' style='position:fixed",
    "</pre></details></dd></dl></article></main><h1>Contained</h1>",
    "</style></title><style>.bad { display: none }</style><!--",
    "&lt;b&gt; &#60;b&#62; &amp; ]]>",
    "evidence: \u{202e}deniatnoc\u{2066} \u{200b}\u{feff}\u{5d0}\u{e0041}",
    "\u{0}\u{7}\u{8}\u{1b}[2J\u{9b}31m\r\u{7f}\n\ttwo lines\\",
    "        padded",
];

/// The text for the `at`th place: each of them in turn, and a line of 10,000 letters.
pub(super) fn hostile(at: usize) -> String {
    HOSTILE.get(at % (HOSTILE.len() + 1)).map_or_else(|| "W".repeat(10_000), |text| (*text).to_owned())
}

/// The report with every text in it replaced, whatever fields it has.
pub(super) fn with_every_text(report: &Report, text: impl Fn(usize) -> String) -> Report {
    let mut value = serde_json::to_value(report).expect("a report has a JSON form");
    let mut at = 0;
    replace(&mut value, "", &mut || {
        at += 1;
        text(at)
    });
    serde_json::from_value(value).expect("texts are free")
}

fn replace(value: &mut Value, name: &str, text: &mut impl FnMut() -> String) {
    match value {
        // The only field with a fixed set of words.
        Value::String(_) if name == "result" => {}
        Value::String(old) => *old = text(),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, "", text)),
        Value::Object(fields) if name == "versions" => {
            let count = fields.len();
            // Names of programs are text as well; the number keeps them apart and in order.
            *fields = (0..count).map(|number| (format!("{number}{}", text()), Value::String(text()))).collect();
        }
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| replace(value, name, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
