//! What a policy says about processes and limits is enforced by the kernel, whichever way a program tries.

use crate::support::{Place, is_root};

const CONFIG: &str = "home:.config/cofferdam/config.toml";

/// Executes a program from memory: no path that a mount or a rule could name.
const FROM_MEMORY: &str = r"
import os, sys
try:
    fd = os.memfd_create('x')
    os.write(fd, open(sys.argv[1], 'rb').read())
    os.execve(fd, ['x', 'ran from memory'], {})
except OSError as error: print('refused', error.errno); sys.exit(1)
";

/// The distribution's: libraries of a program that is on the list are mapped from the system's directories only.
fn system_python() -> Option<&'static str> {
    let python = "/usr/bin/python3";
    if !std::path::Path::new(python).exists() {
        println!("skipped: `{python}` is not installed");
        return None;
    }
    Some(python)
}

#[test]
fn without_fork_the_command_runs_alone() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "[process]\nallow_fork = false\n");
    place.run(&[], &["/bin/true"]).ok();
    place.run(&[], &["/bin/bash", "-c", "/bin/echo child; /bin/true"]).says(&["fork"]);
    let script = "
import ctypes, os
for way in (os.fork, lambda: os.posix_spawn('/bin/true', ['true'], {})):
    try: way(); print('made')
    except OSError: print('refused')
libc = ctypes.CDLL(None, use_errno=True)
print('refused' if libc.syscall(58) < 0 else 'made', 'refused' if libc.syscall(56, 17, 0, 0, 0, 0) < 0 else 'made')
";
    place.write("probe.py", script);
    let Some(python) = system_python() else { return };
    assert_eq!(place.run(&[], &[python, "probe.py"]).ok(), "refused\nrefused\nrefused refused\n");
}

#[test]
fn without_exec_the_command_cannot_become_another() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "[process]\nallow_exec = false\n");
    let Some(python) = system_python() else { return };
    place.write("memory.py", FROM_MEMORY);
    let ran = place.run(&[], &[python, "memory.py", "/bin/echo"]);
    assert!(ran.out.starts_with("refused"), "{}{}", ran.out, ran.err);
    let script =
        "import subprocess\ntry: print(subprocess.run(['/bin/echo', 'ran']))\nexcept OSError as e: print('refused')\n";
    place.write("spawn.py", script);
    assert_eq!(place.run(&[], &[python, "spawn.py"]).ok(), "refused\n");
    let loader = "import os\ntry: os.execv('/lib64/ld-linux-x86-64.so.2', ['ld', '/bin/echo', 'ran'])\nexcept OSError: print('refused')\n";
    place.write("loader.py", loader);
    assert!(!place.run(&[], &[python, "loader.py"]).out.contains("ran"));
}

#[test]
fn only_the_listed_executables_run_whichever_way_is_tried() {
    let place = Place::new();
    place.write(CONFIG, "[process]\nexecutables = [\"bash\", \"cat\"]\n");
    place.write("first", "text\n");
    assert_eq!(place.run(&[], &["bash", "-c", "cat first"]).ok(), "text\n");
    place.host("cp /bin/echo copied; cp /bin/echo .; printf '#!/bin/echo\\n' > script; chmod +x script").ok();
    for attempt in [
        "/bin/echo ran",
        "./copied ran",
        "./script ran",
        "/lib64/ld-linux-x86-64.so.2 /bin/echo ran",
        "/lib64/ld-linux-x86-64.so.2 ./copied ran",
        "cat /bin/echo > /tmp/x; chmod 755 /tmp/x; /tmp/x ran",
        "cat /bin/echo > /dev/shm/x; /dev/shm/x ran",
        "exec -a bash /bin/echo ran",
    ] {
        let ran = place.run(&[], &["bash", "-c", attempt]);
        assert!(!ran.out.contains("ran"), "`{attempt}` ran: {}", ran.out);
        assert_ne!(ran.code, 0, "`{attempt}`: {}", ran.err);
    }
    place.run(&[], &["ls"]).code(126);
}

#[test]
fn the_loader_does_not_start_programs_that_packages_keep_beside_libraries() {
    let Some(place) = Place::with(&["gcc"]) else { return };
    let compiler = place.host("gcc -print-prog-name=cc1").ok();
    let run = format!("/lib64/ld-linux-x86-64.so.2 {} --help </dev/null", compiler.trim());
    // The control: without a rule the loader starts it.
    assert_ne!(place.inside(&run).ok(), "");
    place.write(CONFIG, "[process]\nexecutables = [\"bash\"]\n");
    let ran = place.inside(&run);
    assert_eq!((ran.out.as_str(), ran.code), ("", 127), "{}", ran.err);
}

#[test]
fn a_listed_program_outside_of_the_system_finds_its_libraries() {
    let Some(place) = Place::with(&["gcc"]) else { return };
    place.write("home:tool/answer.c", "int answer(void) { return 42; }");
    place.write("home:tool/main.c", "int answer(void); int main(void) { return answer(); }");
    let build = "cd ~/tool && mkdir bin lib && gcc -shared -fPIC -o lib/libanswer.so answer.c
        gcc -o bin/tool main.c -Llib -lanswer '-Wl,-rpath,$ORIGIN/../lib'";
    place.host(build).ok();
    let tool = place.path("home:tool/bin/tool").display().to_string();
    place.write(CONFIG, &format!("[process]\nexecutables = [\"{tool}\"]\n"));
    place.run(&[], &[&tool]).code(42);
}

#[test]
fn what_is_denied_below_the_libraries_of_a_listed_program_stays_hidden() {
    let place = Place::new();
    place.host("mkdir -p ~/tool/bin ~/tool/lib/closed && cp /bin/true ~/tool/bin/tool").ok();
    for name in ["open", "private", "closed/file"] {
        place.write(&format!("home:tool/lib/{name}"), "text\n");
    }
    let tool = place.path("home:tool/bin/tool").display().to_string();
    let config = format!(
        "[files]\ndeny = [\"~/tool/lib/private\", \"~/tool/lib/closed\"]\n\
         [process]\nexecutables = [\"bash\", \"cat\", \"{tool}\"]\n"
    );
    place.write(CONFIG, &config);
    assert_eq!(place.inside(&format!("{tool} && cat ~/tool/lib/open")).ok(), "text\n");
    for name in ["private", "closed/file"] {
        let ran = place.inside(&format!("cat ~/tool/lib/{name}"));
        assert_eq!((ran.out.as_str(), ran.code), ("", 1), "{name}: {}", ran.err);
    }
}

#[test]
fn an_unapproved_list_of_programs_gives_nothing() {
    let place = Place::new();
    place.write("home:notes", "text\n");
    let list = format!("[process]\nexecutables = [\"bash\", \"cat\", {:?}]\n", place.path("home:notes"));
    place.write(".cofferdam/policy.toml", &list);
    let ran = place.inside("cat ~/notes");
    assert_eq!((ran.out.as_str(), ran.code), ("", 1), "{}", ran.err);
    // The control: approved, it is given.
    place.sandbox(&["trust", "--yes"]).ok();
    assert_eq!(place.inside("cat ~/notes").ok(), "text\n");
}

#[test]
fn a_listed_interpreter_cannot_execute_from_memory() {
    let place = Place::new();
    let Some(python) = system_python() else { return };
    place.write(CONFIG, &format!("[process]\nexecutables = [\"{python}\"]\n"));
    place.write("memory.py", FROM_MEMORY);
    let ran = place.run(&[], &[python, "memory.py", "/bin/echo"]);
    assert!(ran.out.starts_with("refused"), "{}{}", ran.out, ran.err);
    ran.code(1).says(&["memfd_create", "config.toml:2"]);
    // The control: without the rule it runs.
    place.write(CONFIG, "");
    assert_eq!(place.run(&[], &[python, "memory.py", "/bin/echo"]).ok(), "ran from memory\n");
}

#[test]
fn limits_of_open_files_file_size_and_cpu_time_hold() {
    let place = Place::new();
    place.write(
        ".cofferdam/policy.toml",
        "[limits]\nopen_files = 64\nfile_size = \"1MiB\"\ncpu = \"1s\"\ntmp_size = \"2MiB\"\n",
    );
    assert_eq!(place.inside("ulimit -n; ulimit -Hn").ok(), "64\n64\n");
    let big = place.inside("head -c 3000000 /dev/zero > big");
    assert_ne!(big.code, 0);
    assert_eq!(std::fs::metadata(place.path("big")).expect("part of it").len(), 1 << 20);
    place.inside("while :; do :; done").code(124);
    let full = place.inside("for i in 1 2 3; do head -c 900000 /dev/zero > /tmp/$i || exit 9; done");
    assert_eq!(full.code, 9, "{}", full.err);
}

#[test]
fn limits_cannot_be_raised_again_inside() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "[limits]\nopen_files = 64\n");
    place.inside("ulimit -n 65").code(1);
}

#[test]
fn set_user_id_programs_gain_nothing() {
    let Some(place) = Place::with(&["su"]) else { return };
    assert_eq!(
        place.inside("grep -E '^(NoNewPrivs|CapEff|CapBnd|CapAmb)' /proc/self/status | cut -f2 | tr '\\n' ' '").ok(),
        "0000000000000000 0000000000000000 0000000000000000 1 "
    );
    assert_ne!(place.inside("su -c true </dev/null").code, 0);
}

#[test]
fn a_process_limit_without_room_for_the_command_is_told_apart_from_an_exit_of_the_command() {
    if is_root() {
        println!("skipped: the kernel ignores a process limit for root, so the plan refuses it");
        return;
    }
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", "[process]\nmax = 1\n");
    place
        .run(&[], &["true"])
        .code(125)
        .says(&["cannot set up the command's process", "Resource temporarily unavailable"]);
}
