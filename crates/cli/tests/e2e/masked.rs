//! Files that tools need read without the values of secret names, and cannot be written (decision 0038).

use crate::support::Place;

const MODES: [&str; 2] = ["static", "dynamic"];
/// In no place that looks like a key by itself: it is masked because of its name.
const CANARY: &str = "canary-7";

fn inside(place: &Place, mode: &str, script: &str) -> crate::support::Ran {
    place.run(&["--mode", mode], &["bash", "-c", script])
}

fn fill(place: &Place) {
    place.write(
        "home:.cargo/config.toml",
        "[registries.mine]\nindex = \"sparse+https://r.example/\"\ntoken = \"canary-7\"\n",
    );
    place.write(
        "home:.gitconfig",
        "[user]\nname = T\nemail = t@example.org\n[http]\nextraheader = Authorization: Basic canary-7\n",
    );
    place.write("home:.npmrc", "registry=https://r.example/\n//r.example/:_authToken=canary-7\n");
    place.write("home:.config/pip/pip.conf", "[global]\nindex-url = https://u:canary-7@r.example/simple\n");
    place.write("home:.bashrc", "export EDITOR=vi\nexport GITHUB_TOKEN=canary-7\n");
    place.write(".npmrc", "save-exact=true\n//r.example/:_authToken=canary-7\n");
    place.write("packages/api/.npmrc", "engine-strict=true\n//r.example/:_authToken=canary-7\n");
    place.write("home:.npm-global/etc/npmrc", "fund=false\n//r.example/:_authToken=canary-7\n");
}

#[test]
fn tools_read_their_files_without_secrets_and_cannot_write_them() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        fill(&place);
        place.host("git remote add origin https://user:canary-7@host.example/r.git").ok();
        for (script, shown) in [
            ("cat ~/.cargo/config.toml", "sparse+https://r.example/"),
            ("cat ~/.npmrc .npmrc", "save-exact=true"),
            ("cat packages/api/.npmrc", "engine-strict=true"),
            ("cat ~/.npm-global/etc/npmrc", "fund=false"),
            ("cat ~/.config/pip/pip.conf", "@r.example/simple"),
            ("cat ~/.bashrc", "export EDITOR=vi"),
            ("cat .git/config", "@host.example/r.git"),
            ("git config --list", "user.name=T"),
            ("git remote -v; git status --short", "https://***@host.example/r.git (fetch)"),
        ] {
            let seen = inside(&place, mode, script).ok();
            assert!(seen.contains(shown) && !seen.contains(CANARY), "{mode}: {script}: {seen}");
        }
        let names = ["~/.cargo/config.toml", "~/.npmrc", "~/.gitconfig", "~/.bashrc", ".npmrc", "packages/api/.npmrc"];
        for name in names.into_iter().chain([".git/config"]) {
            for act in [format!("echo x >> {name}"), format!("rm -f {name}"), format!("echo x > new; mv new {name}")] {
                let ran = inside(&place, mode, &act);
                assert_ne!(ran.code, 0, "{mode}: {act}");
            }
            let why = inside_why(&place, mode, name);
            assert!(why.contains("is masked"), "{mode}: {why}");
        }
        assert_ne!(inside(&place, mode, "git config user.name changed").code, 0, "{mode}");
        assert!(place.read(".git/config").is_some_and(|text| text.contains(CANARY)), "{mode}");
        assert!(place.read("home:.npmrc").is_some_and(|text| text.contains(CANARY)), "{mode}");
        let fetch = place.run(&["--mode", mode, "--network", "none"], &["git", "fetch"]);
        assert_ne!(fetch.code, 0, "{mode}");
        fetch.says(&["holds a password or token for a host, which git inside does not get"]);
        // The negative control: the same file, given by name.
        let npmrc = place.path("home:.npmrc").display().to_string();
        let seen = place.run(&["--mode", mode, "--ro", &npmrc], &["cat", &npmrc]).ok();
        assert!(seen.contains(CANARY), "{mode}: {seen}");
    }
}

fn inside_why(place: &Place, mode: &str, name: &str) -> String {
    let name = name.strip_prefix("~/").map_or_else(|| place.path(name), |rest| place.path(&format!("home:{rest}")));
    place.sandbox(&["why", "--mode", mode, &name.display().to_string()]).ok()
}

/// By descriptor, by mapping and by size: what can be had is what can be read.
#[test]
fn every_way_to_read_a_masked_file_gives_the_same() {
    let script = r"
import mmap, os, sys
for name in sys.argv[1:]:
    text = open(name, 'rb').read()
    path = os.open(name, os.O_PATH)
    again = os.open(f'/proc/self/fd/{path}', os.O_RDONLY)
    ways = [os.read(again, 65536), mmap.mmap(again, 0, prot=mmap.PROT_READ)[:]]
    ways.append(mmap.mmap(again, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)[:])
    ways.append(os.pread(again, 65536, 0))
    assert os.stat(name).st_size == len(text) == os.fstat(path).st_size, name
    assert all(way == text for way in ways), (name, ways)
    assert b'canary' not in text and b'example' in text, text
    for flags in os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC:
        try: os.open(f'/proc/self/fd/{path}', flags); print('written', name)
        except OSError: pass
    for act in lambda: os.truncate(name, 0), lambda: os.chmod(name, 0o666), lambda: os.link(name, 'linked'):
        try:
            act(); print('changed', name)
        except OSError: pass
print('done')
";
    for mode in MODES {
        let Some(place) = Place::with(&["python3", "git"]) else { return };
        fill(&place);
        place.host("git init -q . && git remote add origin https://user:canary-7@host.example/r.git").ok();
        place.write("ways.py", script);
        let command = "python3 ways.py ~/.cargo/config.toml ~/.npmrc ~/.config/pip/pip.conf .npmrc .git/config";
        let seen = inside(&place, mode, command).ok();
        assert_eq!(seen, "done\n", "{mode}");
    }
}

#[test]
fn what_cannot_be_masked_is_hidden() {
    for mode in MODES {
        let place = Place::new();
        place.write("home:.npmrc", &format!("a=b\n//r/:_authToken={CANARY}\n{}", "x".repeat(1 << 20)));
        std::fs::write(place.path("home:.yarnrc"), b"\xff\xfe canary-7").expect("it can be written");
        std::fs::create_dir_all(place.path("home:.condarc")).expect("it can be made");
        place.write("home:.condarc/inside", CANARY);
        // A link that a session may have made leads to no file that is not shown under its own name.
        place.write("home:.ssh/id", CANARY);
        place.write("home:diary", CANARY);
        std::os::unix::fs::symlink(place.path("home:.ssh/id"), place.path(".npmrc")).expect("a link");
        std::os::unix::fs::symlink(place.path("home:diary"), place.path(".yarnrc")).expect("another");
        let script = "cat ~/.npmrc ~/.yarnrc ~/.condarc/inside .npmrc ~/.ssh/id; true";
        let seen = place.run(&["--mode", mode, "--on-unknown", "deny"], &["bash", "-c", script]);
        assert!(!seen.out.contains(CANARY), "{mode}: {}", seen.out);
        if mode == "dynamic" {
            let seen = place.run(&["--on-unknown", "deny"], &["cat", ".yarnrc"]);
            assert!(!seen.out.contains(CANARY), "{}", seen.out);
        }
    }
}

/// A host program changes the file while the session runs.
#[test]
fn what_the_host_writes_meanwhile_is_masked_at_the_next_open() {
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        println!("skipped: /dev/fuse cannot be opened");
        return;
    }
    let Some(place) = Place::with_repository() else { return };
    fill(&place);
    place.host("git remote add origin https://user:canary-7@host.example/r.git").ok();
    let names = ["home:.npmrc", "home:.cargo/config.toml", "home:.gitconfig", ".npmrc", ".git/config"];
    let paths: Vec<String> = names.iter().map(|name| place.path(name).display().to_string()).collect();
    // What was looked up before is looked up again.
    let script = "cat \"$@\" >before; echo up; read go; cat \"$@\"; stat -c %s \"$@\"";
    let mut command = place.command(crate::support::binary());
    command.args(["run", "--mode", "dynamic", "--", "bash", "-c", script, "bash"]).args(&paths);
    let mut session = place.begin_session(command);
    assert_eq!(session.first_line, "up");
    for (at, name) in names.iter().enumerate() {
        let text = format!("[a]\nnew = value-{at}\ntoken = canary-7\n");
        let path = place.path(name);
        if name.starts_with("home:") && at % 2 == 0 {
            // As editors and git save. In a project that would take a cover off, which the keeper's tests are about.
            let new = path.with_extension("new");
            std::fs::write(&new, &text).and_then(|()| std::fs::rename(&new, &path)).expect("it can be replaced");
        } else {
            std::fs::write(&path, &text).expect("it can be written");
        }
    }
    session.tell("go\n");
    let (code, seen) = session.end();
    assert_eq!(code, 0, "{seen}");
    assert!(!seen.contains(CANARY), "{seen}");
    for (at, name) in names.iter().enumerate() {
        assert!(seen.contains(&format!("new = value-{at}\ntoken = ***")), "{name}: {seen}");
    }
    let sizes: Vec<&str> = seen.lines().rev().take(names.len()).collect();
    assert!(sizes.iter().all(|size| *size == "30"), "{seen}");
}
