use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;

use super::*;

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let place = std::env::temp_dir().join(format!("cofferdam-quarantine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory");
        Scratch(place.canonicalize().expect("it exists"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("a file");
    }

    fn subject(&self, argv: &[&str]) -> Option<Subject> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let search = format!("/usr/bin:/bin:{}", self.0.display());
        Subject::of(&Starting { argv: &argv, cwd: &self.0, search: &search, views: &[] })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it is ours");
    }
}

fn hash_of(text: &[u8]) -> String {
    to_hex(&Sha256::digest(text))
}

#[test]
fn the_script_counts_and_never_an_interpreter_or_what_is_the_systems() {
    let place = Scratch::new("which");
    for name in ["tool", "script.py"] {
        place.write(name, name);
    }
    symlink("/bin/sh", place.0.join("not-a-shell")).expect("a link");
    let cases: [(&[&str], Option<&str>); 14] = [
        (&["tool"], Some("tool")),
        (&["./tool", "-c"], Some("tool")),
        (&["sh", "script.py"], Some("script.py")),
        (&["sh", "-x", "./script.py", "tool"], Some("script.py")),
        (&["env", "A=1", "sh", "script.py"], Some("script.py")),
        (&["env", "-i", "tool"], Some("tool")),
        (&["./not-a-shell", "script.py"], Some("script.py")),
        (&["sh", "-c", "script.py"], None),
        (&["sh", "-ec", "script.py"], None),
        (&["sh"], None),
        (&["sh", "missing"], None),
        (&["sh", "."], None),
        (&["ls", "script.py"], None),
        (&["sh", "/etc/passwd"], None),
    ];
    for (argv, expected) in cases {
        let found = place.subject(argv).map(|one| one.path);
        assert_eq!(found, expected.map(|name| place.0.join(name)), "{argv:?}");
    }
    assert!(is_interpreter("python3.11") && is_interpreter("python3") && !is_interpreter("pythonic"));
}

#[test]
fn what_counts_is_what_lay_there_when_the_command_was_started() {
    let place = Scratch::new("when");
    place.write("tool.py", "bad");
    place.write("other.py", "good");
    let replaced = place.subject(&["python3", "tool.py"]).expect("a script");
    std::fs::rename(place.0.join("other.py"), place.0.join("tool.py")).expect("it is ours");
    assert_eq!(replaced.hash(), Some(hash_of(b"bad")));
    let written = place.subject(&["python3", "tool.py"]).expect("a script");
    place.write("tool.py", "another");
    assert_eq!(written.hash(), Some(hash_of(b"good")));
}

#[test]
fn a_large_program_that_was_changed_since_has_no_hash() {
    let place = Scratch::new("large");
    let text = vec![b'x'; usize::try_from(READ_AT_START).expect("small") + 1];
    let path = place.0.join("tool");
    std::fs::write(&path, &text).expect("a file");
    // As if it had been made long ago: times of change cannot be set.
    let mut subject = place.subject(&["tool"]).expect("a program");
    assert_eq!(subject.hash.take(), Some(hash_of(&text)), "it is young");
    assert_eq!(subject.hash(), Some(hash_of(&text)));
    std::thread::sleep(Duration::from_millis(20));
    File::options().append(true).open(&path).and_then(|mut file| file.write_all(b"y")).expect("it is ours");
    assert_eq!(subject.hash(), None);
}

#[test]
fn a_script_of_a_view_is_the_views_and_not_the_hosts() {
    let (host, inside) = (Scratch::new("host"), Scratch::new("view"));
    host.write("tool.py", "of the host");
    host.write("hidden.py", "of the host");
    inside.write("tool.py", "of the session");
    let view = File::open(&inside.0).expect("a directory");
    let views = [(host.0.as_path(), view.as_fd())];
    let of = |name: &str| {
        let argv = ["python3", name].map(str::to_owned);
        Subject::of(&Starting { argv: &argv, cwd: &host.0, search: "/usr/bin:/bin", views: &views })
    };
    assert_eq!(of("tool.py").and_then(|one| one.hash()), Some(hash_of(b"of the session")));
    assert!(of("hidden.py").is_none());
    symlink(host.0.join("hidden.py"), inside.0.join("link.py")).expect("a link");
    assert!(of("link.py").is_none(), "it leads to a name that the view does not have");
}
