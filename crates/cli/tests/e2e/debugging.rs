//! gdb and strace work on processes inside, unless the policy says otherwise, and reach nothing outside.

use crate::support::Place;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
int depth(int n) { return n == 0 ? getpid() : depth(n - 1); }
int main(int argc, char **argv) {
    printf("%d\n", depth(3) > 0);
    fflush(stdout);
    if (argc > 1) for (;;) sleep(1);
    return 7;
}
"#;

fn with_program(tool: &str) -> Option<Place> {
    let place = Place::with(&["gcc", tool])?;
    place.write("program.c", PROGRAM);
    place.inside("gcc -g -O0 -o program program.c").ok();
    Some(place)
}

#[test]
fn gdb_stops_at_a_breakpoint_and_shows_the_stack() {
    let Some(place) = with_program("gdb") else { return };
    let script = "gdb -q -nx -batch -ex 'break depth if n == 0' -ex run -ex backtrace -ex continue ./program";
    let out = place.inside(script).ok();
    for text in ["#0  depth (n=0)", "in depth (n=3)", "in main (argc=1", "exited with code 07"] {
        assert!(out.contains(text), "`{text}` is not in:\n{out}");
    }
}

#[test]
fn gdb_attaches_to_a_running_process_inside() {
    let Some(place) = with_program("gdb") else { return };
    // A sibling, not a child: what a user does with a server that hangs.
    let script = "./program forever > said & for n in $(seq 200); do [ -s said ] && break; sleep 0.05; done; \
        gdb -q -nx -batch -p $! -ex backtrace 2>&1; kill $!";
    let out = place.inside(script).ok();
    assert!(out.contains("main (argc=2"), "{out}");
}

#[test]
fn strace_follows_children_inside() {
    let Some(place) = Place::with(&["strace"]) else { return };
    let out = place.inside("strace -f -o trace sh -c '/bin/true; /bin/echo traced'; grep -c execve trace").ok();
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("traced"));
    assert!(lines.next().and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n >= 2), "{out}");
}

#[test]
fn without_debugging_neither_gdb_nor_strace_works_and_the_reason_is_said() {
    let Some(place) = with_program("gdb") else { return };
    place.run(&["--no-debug"], &["./program"]).code(7);
    let gdb =
        place.run(&["--no-debug"], &["gdb", "-q", "-nx", "-batch", "-ex", "run", "-ex", "backtrace", "./program"]);
    assert!(!gdb.out.contains("exited with code"), "{}", gdb.out);
    if crate::support::which("strace").is_some() {
        let strace = place.run(&["--no-debug"], &["strace", "/bin/true"]);
        assert_ne!(strace.code, 0);
        strace.says(&["refused system call ptrace", "--no-debug"]);
    }
}

#[test]
fn no_process_outside_can_be_traced_or_signalled() {
    let Some(place) = Place::with(&["strace"]) else { return };
    let mut victim = place.command("sleep").arg("60").spawn().expect("sleep starts");
    let pid = victim.id();
    let ran = place.inside(&format!("strace -p {pid}; kill -9 {pid} 2>&1; ls /proc/{pid}"));
    let alive = victim.try_wait().expect("it can be asked").is_none();
    victim.kill().expect("it is ours");
    victim.wait().expect("it is ours");
    assert!(alive);
    assert_ne!(ran.code, 0);
}
