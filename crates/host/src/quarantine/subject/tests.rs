use std::fs::Permissions;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

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
        std::fs::set_permissions(self.0.join(name), Permissions::from_mode(0o755)).expect("it is ours");
    }

    /// Which name in here each command line is put down to.
    fn finds(&self, cases: &[(&[&str], Option<&str>)]) {
        for (argv, expected) in cases {
            let found = self.subject(argv).map(|one| one.path);
            assert_eq!(found, expected.map(|name| self.0.join(name)), "{argv:?}");
        }
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
    let cases: [(&[&str], Option<&str>); 12] = [
        (&["tool"], Some("tool")),
        (&["./tool", "-c"], Some("tool")),
        (&["sh", "script.py"], Some("script.py")),
        (&["sh", "-x", "./script.py", "tool"], Some("script.py")),
        (&["./not-a-shell", "script.py"], Some("script.py")),
        (&["sh"], None),
        (&["sh", "missing"], None),
        (&["sh", "."], None),
        (&["sh", "-s", "script.py"], None),
        (&["sh", "-", "script.py"], None),
        (&["ls", "script.py"], None),
        (&["sh", "/etc/passwd", "script.py"], None),
    ];
    place.finds(&cases);
    assert!(is_interpreter("python3.11") && is_interpreter("python3") && !is_interpreter("pythonic"));
}

#[test]
fn a_launcher_is_stepped_over_to_the_program_that_it_executes() {
    let place = Scratch::new("launchers");
    for name in ["tool", "script.py", "data", "nice"] {
        place.write(name, name);
    }
    std::fs::set_permissions(place.0.join("data"), Permissions::from_mode(0o644)).expect("it is ours");
    place.finds(&[
        (&["env", "A=1", "sh", "script.py"], Some("script.py")),
        (&["env", "-i", "tool"], Some("tool")),
        (&["env", "-u", "NAME", "tool"], Some("tool")),
        (&["nice", "./tool"], Some("tool")),
        (&["nice", "-n", "5", "timeout", "-s", "KILL", "5", "./tool", "x"], Some("tool")),
        (&["timeout", "-s", "kill", "5", "./tool"], Some("tool")),
        (&["stdbuf", "-o", "./data", "./tool"], Some("tool")),
        (&["nohup", "sh", "-c", "./tool"], Some("tool")),
        (&["timeout", "5", "ls", "./tool"], None),
        (&["env"], None),
        // A program of the user's that is only called so.
        (&["./nice", "./tool"], Some("nice")),
    ]);
    let many = [vec!["env"; 1000], vec!["./tool"]].concat();
    assert!(place.subject(&many).is_none());
}

#[test]
fn a_script_is_the_first_argument_that_is_a_file_and_no_options_value() {
    let place = Scratch::new("scripts");
    for name in ["python3", "perl", "node", "java", "awk"] {
        symlink("/bin/sh", place.0.join(name)).expect("a link");
    }
    for name in ["x.py", "y.py", "ignore.d"] {
        place.write(name, name);
    }
    place.finds(&[
        (&["./python3", "-W", "ignore", "x.py", "y.py"], Some("x.py")),
        (&["./python3", "-W", "y.py", "x.py"], Some("x.py")),
        (&["./python3", "-Wignore::Deprecation", "x.py"], Some("x.py")),
        (&["./python3", "-uX", "dev", "x.py"], Some("x.py")),
        (&["./python3", "--unknown", "value", "x.py"], Some("x.py")),
        (&["./python3", "-c", "x.py"], None),
        (&["./python3", "-m", "x", "x.py"], None),
        (&["./python3", "-", "x.py"], None),
        (&["./perl", "-Mstrict", "x.py"], Some("x.py")),
        (&["./perl", "-pe", "s", "x.py"], None),
        (&["./node", "--require", "./y.py", "x.py"], Some("x.py")),
        (&["./node", "--eval", "1", "x.py"], None),
        (&["./java", "-Xmx1g", "-cp", "y.py", "-jar", "x.py"], Some("x.py")),
        (&["./awk", "{print}", "x.py"], None),
        (&["./awk", "-f", "x.py", "y.py"], Some("x.py")),
        (&["sh", "-e", "x.py"], Some("x.py")),
        (&["sh", "-eo", "ignore.d", "+x", "x.py"], Some("x.py")),
    ]);
}

#[test]
fn the_text_of_a_shell_is_looked_at_by_the_same_rule() {
    let place = Scratch::new("text");
    std::fs::create_dir(place.0.join("below")).expect("a directory");
    for name in ["x.sh", "tool", "below/y.sh"] {
        place.write(name, name);
    }
    place.finds(&[
        (&["sh", "-c", "./x.sh"], Some("x.sh")),
        (&["sh", "-ec", "tool"], Some("tool")),
        (&["sh", "-c", "-e", "ls; ./x.sh"], Some("x.sh")),
        (&["bash", "-lc", "sh x.sh && ls ./tool"], Some("x.sh")),
        (&["sh", "-c", "A=1 exec nice './x.sh'"], Some("x.sh")),
        (&["sh", "-c", "echo \"./x.sh\""], None),
        (&["sh", "-c", "sh -c 'sh -c ./tool'"], Some("tool")),
        (&["sh", "-c", "cd below && . y.sh"], Some("below/y.sh")),
        (&["sh", "-c", "sh -c 'cd below'; ./x.sh"], Some("x.sh")),
        (&["sh", "-c", "exit 0", "./x.sh"], None),
        (&["sh", "-c"], None),
    ]);
    let late = format!("{}./tool", "true;".repeat(1000));
    assert!(place.subject(&["sh", "-c", &late]).is_none());
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

#[test]
fn a_lease_on_a_script_keeps_no_supervisor_waiting() {
    const HOLD: &str = "import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], 'r+')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
time.sleep(20)";
    let place = Scratch::new("lease");
    place.write("script", "true\n");
    let mut holder = std::process::Command::new("python3");
    holder.args(["-c", HOLD]).arg(place.0.join("script")).stdout(std::process::Stdio::piped());
    let mut holder = holder.spawn().expect("python runs");
    let mut said = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().expect("a pipe"), &mut said).expect("the lease is held");
    let began = std::time::Instant::now();
    let found = place.subject(&["sh", "script"]);
    let took = began.elapsed();
    holder.kill().and_then(|()| holder.wait()).expect("it is ours");
    assert!(found.is_none() && took < Duration::from_secs(5), "{took:?}");
    assert!(place.subject(&["sh", "script"]).is_some(), "the control");
}

#[test]
fn of_a_text_with_several_files_none_is_blamed() {
    let place = Scratch::new("several");
    for name in ["one.sh", "two.sh"] {
        place.write(name, "true\n");
    }
    place.finds(&[
        (&["sh", "-c", "./one.sh"], Some("one.sh")),
        (&["sh", "-c", "./one.sh; ./one.sh x"], Some("one.sh")),
        (&["sh", "-c", "false && ./one.sh; ./two.sh"], None),
        (&["sh", "-c", "<./one.sh ./two.sh"], None),
    ]);
}
