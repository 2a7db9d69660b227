//! What a session makes in unknown places (decision 0056): files that it may rename and remove, and directories that exist for it
//! alone until something is opened below them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cofferdam_wire::{Keep, Op, Reach};

use crate::stage::Stage;

/// The directory of an unknown file, which is there before the session.
fn directory(stage: &Stage, name: &str) -> String {
    stage.scene.directory(Path::new("outside").join(name)).display().to_string()
}

fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn a_file_that_was_made_is_renamed_and_removed(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!(
        "cd {notes}; echo one > list.tmp.4711; mv list.tmp.4711 list; cat list; echo two > list.tmp.4712; \
         mv list.tmp.4712 list; cat list; echo x > gone; rm gone; ls"
    );
    let answers = format!("{notes} allow file session");
    stage.run(&answers, &script).says("one\ntwo\nlist").was_asked(&[
        format!("Create {notes}/list.tmp.4711"),
        format!("Create {notes}/list.tmp.4712"),
        format!("Create {notes}/gone"),
        format!("List {notes}"),
    ]);
    assert_eq!(names(&notes), ["list"]);
    assert_eq!(fs::read_to_string(format!("{notes}/list")).expect("it was saved"), "two\n");
}

pub(crate) fn a_file_that_was_made_is_itself_to_every_call(stage: &Stage) {
    let notes = directory(stage, "notes");
    let program = r#"
import mmap, os, sys
os.chdir(sys.argv[1])
os.umask(0o022)
fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
data = os.urandom(300000)
assert os.write(fd, data[:100000]) == 100000 and os.pwrite(fd, data[100000:], 100000) == 200000
os.fsync(fd); os.fdatasync(fd)
assert os.fstat(fd).st_size == 300000 and oct(os.stat("f").st_mode & 0o7777) == "0o640"
os.chmod("f", 0o600); os.utime("f", (1000, 2000)); os.ftruncate(fd, 200000)
stat = os.stat("f")
assert (stat.st_size, oct(stat.st_mode & 0o7777), stat.st_mtime, stat.st_atime) == (200000, "0o600", 2000, 1000) or stat.st_size == 200000
assert open("f", "rb").read() == data[:200000]
with mmap.mmap(fd, 0) as m:
    m[0:4] = b"mmap"; m.flush()
assert open("f", "rb").read(4) == b"mmap"
open("f", "ab").write(b"end")
assert open("f", "rb").read()[-3:] == b"end"
try: os.open("f", os.O_CREAT | os.O_EXCL); print("opened")
except FileExistsError: pass
for change in (lambda: os.link("f", "g"), lambda: os.chmod("f", 0o4755), lambda: os.rename("f", "../f")):
    try: change(); print("changed")
    except OSError: pass
os.unlink("f")
assert os.fstat(fd).st_size == 200003 and os.pread(fd, 4, 0) == b"mmap"
assert not os.path.exists("f")
open("f", "w").write("another")
assert os.pread(fd, 4, 0) == b"mmap" and open("f").read() == "another"
print("well")
"#;
    stage.scene.write(stage.scene.project().join("try.py"), program);
    let done = stage.run(&format!("{notes} allow file session"), &format!("python3 try.py {notes}"));
    done.says("well").was_asked(&[format!("Create {notes}/f")]);
    assert_eq!(fs::read_to_string(format!("{notes}/f")).expect("it was made"), "another");
}

pub(crate) fn a_name_that_was_not_told_is_asked_about(stage: &Stage) {
    let notes = directory(stage, "notes");
    // Hosts obey some of these; no question was about them.
    let moves =
        r#"for my $to (".git", "Makefile", "free", "note.txt", "sub/x") { rename "note.tmp", $to and print "$to\n" }"#;
    fs::create_dir(format!("{notes}/sub")).expect("it is ours");
    let script = format!("cd {notes}; echo x > note.tmp; perl -e '{moves}'; mv note.tmp other; cat note.tmp");
    let answers = format!("{notes}/note.tmp allow file session");
    let done = stage.run(&answers, &script);
    // What it is about to be saved as was told: that it says itself.
    done.says("x").was_asked(&[format!("Create {notes}/note.tmp"), format!("Create {notes}/other")]);
    assert_eq!(names(&notes), ["note.tmp", "sub"]);
}

pub(crate) fn a_new_name_never_takes_the_place_of_the_hosts_file(stage: &Stage) {
    let notes = directory(stage, "notes");
    stage.unknown("notes/config", "the host's\n");
    let script = format!(
        "cd {notes}; echo x > config.lock; perl -e 'rename \"config.lock\", \"config\" or print \"no\\n\"'; rm config || echo no"
    );
    stage.run(&format!("{notes} allow file session"), &script).says("no\nno");
    assert_eq!(fs::read_to_string(format!("{notes}/config")).expect("it is there"), "the host's\n");
    assert_eq!(names(&notes), ["config", "config.lock"]);
}

pub(crate) fn a_name_that_the_session_gave_up_is_the_hosts_again(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!("cd {notes}; echo x > a.tmp; mv a.tmp a; rm a; touch {{mark}}; read line; cat a; echo y >> a")
        .replace("{mark}", &stage.scene.project().join("mark").display().to_string());
    let answer = |path: &str| format!("{path} allow file session\n");
    let answers = answer(&format!("{notes}/a.tmp"));
    let script = script.replace("read line", &format!("until [ -s {notes}/a ]; do sleep 0.02; done"));
    let stage_done = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            stage.await_mark("mark");
            fs::write(format!("{notes}/a"), "secret\n").expect("it is ours");
        });
        let done = stage.run(&answers, &script);
        host.join().expect("it wrote");
        done
    });
    assert!(!stage_done.out.contains("secret"), "{stage_done:?}");
    assert_eq!(fs::read_to_string(format!("{notes}/a")).expect("it is there"), "secret\n");
}

pub(crate) fn a_file_that_the_host_replaced_is_not_the_sessions(stage: &Stage) {
    let notes = directory(stage, "notes");
    let mark = stage.scene.project().join("mark").display().to_string();
    let script = format!(
        "cd {notes}; echo x > a; touch {mark}; until [ -e {mark}2 ]; do sleep 0.02; done; cat a; echo y >> a; rm a; \
         perl -e 'rename \"a\", \"b\"'"
    );
    let done = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            stage.await_mark("mark");
            fs::write(format!("{notes}/.a"), "secret\n").expect("it is ours");
            fs::rename(format!("{notes}/.a"), format!("{notes}/a")).expect("it is ours");
            stage.mark("mark2");
        });
        let done = stage.run(&format!("{notes}/a allow file session"), &script);
        host.join().expect("it wrote");
        done
    });
    // What was approved is a file that is no more: this one is asked about, and stays where it is.
    done.says("secret");
    done.was_asked(&[format!("Create {notes}/a"), format!("Read {notes}/a")]);
    assert_eq!(fs::read_to_string(format!("{notes}/a")).expect("it is there"), "secret\n");
    assert_eq!(names(&notes), ["a"]);
}

pub(crate) fn what_was_made_cannot_be_called_what_is_protected(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    let names = [".bashrc", ".ssh", ".config/cofferdam"];
    let moves = names.map(|name| format!("rename \"{home}/{name}.tmp\", \"{home}/{name}\" and print \"{name}\\n\";"));
    let makes = names.map(|name| format!("echo evil > {home}/{name}.tmp"));
    let script = format!(
        "{}; perl -e '{}'; mkdir {home}/.ssh; mkdir {home}/free && mv {home}/free {home}/.ssh; echo done",
        makes.join("; "),
        moves.join(" ")
    );
    stage.run(&format!("{home} allow file session"), &script).says("done");
    for name in names {
        assert!(!stage.scene.home().join(name).is_file(), "{name}");
    }
    assert!(!stage.scene.home().join(".ssh").exists());
}

pub(crate) fn an_answer_for_once_opens_nothing_again(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!("cd {notes}; echo x > a; cat a; rm a; echo y > b");
    let done = stage.run(&format!("{notes}/a allow file once"), &script);
    done.was_asked(&[format!("Create {notes}/a"), format!("Read {notes}/a"), format!("Create {notes}/b")]);
    assert_eq!(names(&notes), Vec::<String>::new());
}

pub(crate) fn more_files_than_are_served_are_made_all_the_same(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!(
        "cd {notes}; for i in $(seq 200); do echo $i > f$i; done; cat f1 f128 f129 f200; rm f1 && echo removed"
    );
    let done =
        stage.run_with(",per-minute=1000", &format!("{notes} allow file session"), &stage.scene.project(), &script);
    done.says("1\n128\n129\n200\nremoved");
    assert_eq!(names(&notes).len(), 199);
}

pub(crate) fn a_directory_is_the_sessions_alone_until_something_is_opened_below(stage: &Stage) {
    let notes = directory(stage, "notes");
    let seen = format!("[ -d {notes}/a/b ] && ls {notes}/a");
    let script = format!(
        "mkdir -p {notes}/a/b; {seen}; mkdir {notes}/left; echo x > {notes}/a/b/f; mkdir {notes}/a/c; echo y > {notes}/a/c/f; \
         cat {notes}/a/b/f {notes}/a/c/f; ls {notes}/a"
    );
    let done = stage.run(&format!("{notes}/a allow file session"), &script);
    done.says("b\nx\ny\nb\nc").was_asked(&[format!("Create {notes}/a")]);
    assert_eq!(names(&notes), ["a"], "what nothing was opened in is not made");
    assert_eq!(fs::read_to_string(format!("{notes}/a/c/f")).expect("it was made"), "y\n");
}

pub(crate) fn a_directory_that_is_denied_is_never_made(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!("mkdir {notes}/a; echo x > {notes}/a/f; cd {notes}/a; rmdir {notes}/a && echo removed");
    let done = stage.run(&format!("{notes}/a deny file session"), &script);
    done.says("removed").complains("Permission denied");
    done.was_asked(&[format!("Create {notes}/a")]);
    assert_eq!(names(&notes), Vec::<String>::new());
}

pub(crate) fn a_process_that_goes_into_a_new_directory_writes_there(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script =
        format!("mkdir {notes}/a; cd {notes}/a; echo x > f; mkdir sub; mv f sub/g; ln -s sub/g link; cat link; pwd");
    let done = stage.run(&format!("{notes}/a allow file session"), &script);
    done.says(&format!("x\n{notes}/a")).was_asked(&[format!("Create {notes}/a")]);
    // One that came by a descriptor stays below the mount, and makes files there all the same.
    let script = format!(
        "import os\nd = '{notes}/b'\nos.mkdir(d)\nfd = os.open(d, os.O_RDONLY)\nf = os.open('f', os.O_CREAT | os.O_WRONLY, dir_fd=fd)\n\
         os.write(f, b'x')\nf = os.open('g.tmp', os.O_CREAT | os.O_WRONLY, dir_fd=fd)\n\
         os.rename('g.tmp', 'g', src_dir_fd=fd, dst_dir_fd=fd)\nprint(sorted(os.listdir(d)))"
    );
    stage.scene.write(stage.scene.project().join("try.py"), &script);
    stage.run(&format!("{notes}/b allow file session"), "python3 try.py").says("['f', 'g']");
    assert_eq!(names(&format!("{notes}/b")), ["f", "g"]);
}

pub(crate) fn what_the_host_makes_at_the_name_of_a_new_directory_is_not_given(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!("mkdir {notes}/a; echo x > {notes}/a/f; cat {notes}/a/secret; ls {notes}/a");
    let mut live = stage.start("", &script);
    let question = live.person.question().expect("it asks");
    assert_eq!(
        (question.op, question.path.as_str(), question.is_dir),
        (Op::Create, format!("{notes}/a").as_str(), true)
    );
    stage.unknown("notes/a/secret", "secret\n");
    live.person.allow(question.id, Reach::Dir, Keep::Session).expect("it is heard");
    // What lies there now is the host's, and asked about as such.
    while let Ok(question) = live.person.question_within(Duration::from_secs(2)) {
        live.person.deny(question.id).expect("it is heard");
    }
    let done = live.finish();
    assert!(!done.out.contains("secret"), "{done:?}");
    assert_eq!(names(&format!("{notes}/a")), ["secret"]);
}

pub(crate) fn a_directory_of_the_host_is_not_given_with_what_the_session_had_made_in_it(stage: &Stage) {
    let notes = directory(stage, "notes");
    let (made, seen) = (stage.scene.project().join("made"), stage.scene.project().join("seen"));
    // The second process tells the root that the name is the host's by now; only the inner directory is left of the session's.
    let script = format!(
        "mkdir -p {notes}/a/b; (until [ -e {made} ]; do sleep 0.02; done; ls -d {notes}/a; touch {seen}) & \
         echo x > {notes}/a/b/f; wait; cat {notes}/a/secret; echo y > {notes}/a/f",
        made = made.display(),
        seen = seen.display(),
    );
    let mut live = stage.start("", &script);
    let question = live.person.question().expect("it asks");
    stage.unknown("notes/a/secret", "secret\n");
    stage.mark("made");
    stage.await_mark("seen");
    live.person.allow(question.id, Reach::File, Keep::Session).expect("it is heard");
    while let Ok(question) = live.person.question_within(Duration::from_secs(2)) {
        live.person.deny(question.id).expect("it is heard");
    }
    let done = live.finish();
    assert!(!done.out.contains("secret"), "{done:?}");
    assert_eq!(names(&format!("{notes}/a")), ["secret"]);
}

pub(crate) fn a_new_directory_above_protected_names_is_made_and_not_given_whole(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    let script = format!(
        "mkdir {home}/.config; echo a > {home}/.config/tool; cat {home}/.config/tool; cd {home}/.config; \
         for name in git systemd autostart cofferdam; do \
           mkdir t; echo evil > t/config; mkdir -p t/user; echo evil > t/user/evil.service; mv t $name; rm -rf t; mkdir $name; echo evil > $name/config; \
         done; ln -s {home}/project gh; echo done"
    );
    stage.run(&format!("{home} allow file session"), &script).says("a\ndone");
    let left = names(&format!("{home}/.config"));
    assert!(left.contains(&"tool".to_owned()), "{left:?}");
    for name in ["git", "systemd", "autostart", "cofferdam", "gh"] {
        assert!(!left.contains(&name.to_owned()), "{left:?}");
    }
}

pub(crate) fn a_directory_with_protected_names_that_are_missing_is_not_given_whole(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    fs::create_dir_all(format!("{home}/.config")).expect("it is ours");
    let script = format!(
        "echo a > {home}/.config/tool; mkdir {home}/.config/x; mv {home}/.config/x {home}/.config/autostart; \
         echo evil > {home}/.config/autostart/x.desktop; echo done"
    );
    let done = stage.run(&format!("{home}/.config allow dir session"), &script);
    done.says("done");
    assert_eq!(fs::read_to_string(format!("{home}/.config/tool")).expect("it was approved"), "a\n");
    assert!(!Path::new(&format!("{home}/.config/autostart")).exists(), "{done:?}");
    // The control: where no rule names anything, the answer is about the directory.
    let notes = directory(stage, "notes");
    let script = format!("echo a > {notes}/a; echo b > {notes}/b; mkdir {notes}/x; mv {notes}/x {notes}/autostart");
    stage.run(&format!("{notes} allow dir session"), &script).was_asked(&[format!("Create {notes}/a")]);
    assert_eq!(names(&notes), ["a", "autostart", "b"]);
}

pub(crate) fn what_moves_along_with_a_new_directory_is_called_nothing_that_is_ruled(stage: &Stage) {
    let notes = directory(stage, "notes");
    let moves = format!(
        "rename \"{notes}/t\", \"{notes}/den\" and print \"moved\\n\"; rename \"{notes}/t\", \"{notes}/free\" or print \"stays\\n\""
    );
    let script = format!("mkdir -p {notes}/t/keys/deep; perl -e '{moves}'; echo x > {notes}/free/f; echo done");
    let answers = format!("{notes}/free allow file session");
    let settings = format!(",deny={notes}/den/keys");
    stage.run_with(&settings, &answers, &stage.scene.project(), &script).says("done");
    assert_eq!(names(&notes), ["free"]);
}

pub(crate) fn the_first_open_below_a_new_directory_above_protected_names_succeeds(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    for reach in ["file", "dir"] {
        let script = format!(
            "mkdir -p {home}/.local/share/{reach}/sub; echo a > {home}/.local/share/{reach}/sub/f; cat {home}/.local/share/{reach}/sub/f; \
             echo b > {home}/.local/share/b-{reach}; cat {home}/.local/share/b-{reach}; cd {home}/.local/share/{reach} && echo in"
        );
        stage.run(&format!("{home} allow {reach} session"), &script).says("a\nb\nin");
        fs::remove_dir_all(format!("{home}/.local")).expect("it is ours");
    }
}

/// Each of these threads is the first to open a file there; what it wrote has to be there afterwards.
fn opened_by_many(stage: &Stage, answers: &str, directory: &str, by_descriptor: bool) {
    let program = format!(
        "import os, threading\nd = '{directory}'\nn = 300\nos.makedirs(d + '/sub')\nthreading.stack_size(65536)\n\
         at = os.open(d + '/sub', os.O_PATH) if {} else None\nbarrier = threading.Barrier(n)\nlost = []\n\
         def write(i):\n    name = 'f%d' % i if at is not None else d + '/sub/f%d' % i\n    barrier.wait()\n\
         \x20   try:\n        f = os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=at)\n        os.write(f, b'x')\n        os.close(f)\n\
         \x20   except OSError as error:\n        lost.append(error.errno)\n\
         threads = [threading.Thread(target=write, args=(i,)) for i in range(n)]\n[t.start() for t in threads]\n[t.join() for t in threads]\n\
         there = len(os.listdir(d + '/sub'))\nprint('all' if at is not None or there + len(lost) == n and not lost else (there, lost))\n",
        if by_descriptor { "True" } else { "False" }
    );
    stage.scene.write(stage.scene.project().join("try.py"), &program);
    stage.run(answers, "python3 try.py").says("all");
}

pub(crate) fn many_first_opens_below_a_missing_cache_all_find_one_cache(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    opened_by_many(stage, "", &format!("{home}/.npm"), false);
    // By a descriptor from before they cannot meet the mount; they have to end all the same.
    opened_by_many(stage, "", &format!("{home}/.cache/go-build"), true);
}

pub(crate) fn many_first_opens_below_a_new_directory_all_find_it(stage: &Stage) {
    let notes = directory(stage, "notes");
    opened_by_many(stage, &format!("{notes}/new allow file session"), &format!("{notes}/new"), false);
}

pub(crate) fn what_replaces_a_directory_that_was_given_is_not_given(stage: &Stage) {
    let notes = directory(stage, "notes");
    let (made, replaced) = (stage.scene.project().join("made"), stage.scene.project().join("replaced"));
    let program = format!(
        "import os, time\nd = '{notes}/d'\nos.mkdir(d)\nk = os.open(d, os.O_PATH | os.O_DIRECTORY)\nopen(d + '/first', 'w').close()\n\
         open('{}', 'w').close()\nwhile not os.path.exists('{}'): time.sleep(0.02)\n\
         def tried(call):\n    try: return call()\n    except OSError: return 'refused'\n\
         print(tried(lambda: os.listdir('/proc/self/fd/%d' % k)))\n\
         print(tried(lambda: os.read(os.open('secret', 0, dir_fd=k), 99)))\n\
         print(tried(lambda: os.write(os.open('sub/.git', os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=k), b'gitdir: /x')))\n",
        made.display(),
        replaced.display()
    );
    stage.scene.write(stage.scene.project().join("try.py"), &program);
    let done = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            stage.await_mark("made");
            fs::remove_dir_all(format!("{notes}/d")).expect("it is ours");
            fs::create_dir_all(format!("{notes}/d/sub")).expect("it is ours");
            stage.unknown("notes/d/secret", "secret\n");
            stage.mark("replaced");
        });
        let done = stage.run(&format!("{notes}/d allow file session"), "python3 try.py");
        host.join().expect("it wrote");
        done
    });
    done.says("refused\nrefused\nrefused");
    assert!(names(&format!("{notes}/d/sub")).is_empty());
}

pub(crate) fn no_file_that_the_host_saves_is_removed_for_one_of_the_session(stage: &Stage) {
    let notes = directory(stage, "notes");
    let made = stage.scene.project().join("made");
    // The second answer is about the file of the host, where it is met.
    let program = format!(
        "import os, time\np = '{notes}/x'\nopen('{}', 'w').close()\nend = time.time() + 3\nmade = 0\n\
         while time.time() < end:\n    try:\n        os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY))\n        made += 1\n\
         \x20       os.unlink(p)\n    except OSError: pass\nprint('made' if made else 'never')\n",
        made.display()
    );
    stage.scene.write(stage.scene.project().join("try.py"), &program);
    let (done, lost) = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            stage.await_mark("made");
            let (temporary, saved) = (format!("{notes}/.host"), format!("{notes}/x"));
            let (mut lost, until) = (0, std::time::Instant::now() + Duration::from_millis(2500));
            while std::time::Instant::now() < until {
                fs::write(&temporary, "the host's").expect("it is ours");
                fs::rename(&temporary, &saved).expect("it is ours");
                // The session may have it under another name for a moment, and puts it back.
                let gone =
                    cofferdam_testkit::person::until(Duration::from_millis(500), || fs::remove_file(&saved).ok());
                lost += usize::from(gone.is_err());
            }
            lost
        });
        let done = stage.run_with(
            ",per-minute=100000",
            &format!("{notes}/x allow file session"),
            &stage.scene.project(),
            "python3 try.py",
        );
        (done, host.join().expect("it wrote"))
    });
    done.says("made");
    assert_eq!(lost, 0);
}

pub(crate) fn a_new_directory_is_renamed_removed_and_listed(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!(
        "cd {notes}; mkdir a a/b; rmdir a 2>/dev/null || echo full; mv a/b a/c; mv a d; find d; rmdir d/c d; mkdir d; \
         mkdir d 2>/dev/null || echo there; rmdir d; ls d 2>/dev/null || echo gone"
    );
    stage.run("", &script).says("full\nd\nd/c\nthere\ngone").was_asked(&[format!("List {notes}")]);
    assert_eq!(names(&notes), Vec::<String>::new());
}

pub(crate) fn secrets_in_a_new_directory_stay_hidden(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!(
        "mkdir {notes}/app; echo x > {notes}/app/f; touch {{mark}}; until [ -e {{mark}}2 ]; do sleep 0.02; done; sleep 0.3; cat {notes}/app/.env"
    );
    let script = script.replace("{mark}", &stage.scene.project().join("mark").display().to_string());
    let done = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            stage.await_mark("mark");
            stage.unknown("notes/app/.env", "secret\n");
            stage.mark("mark2");
        });
        let settings = format!(",deny={notes}/app/.env");
        let answers = format!("{notes}/app allow file session\n{notes}/app/f allow file session");
        let done = stage.run_with(&settings, &answers, &stage.scene.project(), &script);
        host.join().expect("it wrote");
        done
    });
    assert!(!done.out.contains("secret"), "{done:?}");
}

pub(crate) fn a_cache_that_is_missing_is_thrown_away(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    let script = format!(
        "mkdir -p {home}/.npm/_cacache/tmp; echo x > {home}/.npm/_cacache/tmp/f; mv {home}/.npm/_cacache/tmp {home}/.npm/t; \
         cat {home}/.npm/t/f; mkdir {home}/.cache {home}/.cache/go-build; cd {home}/.cache/go-build; echo y > g; cat g"
    );
    stage.run("", &script).says("x\ny").was_asked(&[]);
    for name in [".npm", ".cache"] {
        assert!(!stage.scene.home().join(name).exists(), "{name}");
    }
}

pub(crate) fn a_flood_of_new_directories_is_bounded(stage: &Stage) {
    let notes = directory(stage, "notes");
    let script = format!(
        "perl -e 'for (1..100000) {{ mkdir \"{notes}/d$_\" or do {{ print $_ > 1000 ? \"bounded\" : $_; last }} }}'"
    );
    let done = stage.run("", &script);
    done.says("bounded");
    assert!(done.took < Duration::from_secs(40), "{done:?}");
}

pub(crate) fn a_program_that_syncs_without_end_keeps_no_other_from_its_answer(stage: &Stage) {
    let (notes, other) = (directory(stage, "notes"), stage.unknown("other/a", "given\n"));
    let program = format!(
        "import os, threading\nfd = os.open('{notes}/f', os.O_CREAT | os.O_RDWR)\nend = False\n\
         def sync():\n    while not end:\n        os.pwrite(fd, b'x' * 65536, 0); os.fsync(fd)\n\
         threads = [threading.Thread(target=sync) for _ in range(64)]\n[t.start() for t in threads]\n\
         print(open('{}').read(), end='')\nend = True\n[t.join() for t in threads]\n",
        other.display()
    );
    stage.scene.write(stage.scene.project().join("try.py"), &program);
    let answers = format!("{notes} allow file session\n{} allow file session", other.display());
    stage.run(&answers, "python3 try.py").says("given");
}
