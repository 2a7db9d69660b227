//! What programs use to talk to each other inside: shared memory, semaphores, pipes with names, locks, watches, links.

use crate::support::{Place, binary};

#[test]
fn named_semaphores_shared_memory_and_message_queues_work() {
    let Some(place) = Place::with(&["gcc"]) else { return };
    let program = r#"
        #include <fcntl.h>
        #include <mqueue.h>
        #include <semaphore.h>
        #include <stdio.h>
        #include <sys/ipc.h>
        #include <sys/mman.h>
        #include <sys/sem.h>
        #include <sys/shm.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            sem_t *sem = sem_open("/named", O_CREAT | O_EXCL, 0600, 0);
            int fd = shm_open("/memory", O_CREAT | O_RDWR, 0600);
            if (sem == SEM_FAILED || fd < 0 || ftruncate(fd, 4096)) return 1;
            char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (fork() == 0) { memory[0] = 'y'; sem_post(sem); _exit(0); }
            sem_wait(sem);
            int old = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), set = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
            mqd_t queue = mq_open("/queue", O_CREAT | O_RDWR, 0600, 0);
            wait(0);
            printf("%c %d %d %d\n", memory[0], old >= 0, set >= 0, queue != (mqd_t)-1);
            return 0;
        }"#;
    place.write("share.c", program);
    assert_eq!(
        place.inside("gcc -o share share.c -lrt -pthread && ./share && ls -A /dev/shm").ok(),
        "y 1 1 1\nmemory\nsem.named\n"
    );
    assert_eq!(place.inside("ls -A /dev/shm | wc -l").ok(), "0\n");
}

#[test]
fn shared_memory_and_message_queues_of_the_host_are_out_of_reach() {
    let place = Place::new();
    let name = format!("/dev/shm/cofferdam-e2e-{}", std::process::id());
    std::fs::write(&name, "outside").expect("/dev/shm is writable");
    let ran = place.inside(&format!("cat {name}"));
    std::fs::remove_file(&name).expect("it is ours");
    assert_ne!(ran.code, 0);
    assert_eq!(ran.out, "");
}

#[test]
fn named_pipes_locks_and_hard_links_work_in_the_project() {
    let Some(place) = Place::with(&["flock"]) else { return };
    let script = "set -e
        mkfifo pipe; echo through > pipe & cat pipe; wait
        exec 9> lock; flock -n 9 && echo locked; (flock -n lock true) || echo busy
        echo text > a; ln a b; echo more >> b; wc -l < a; stat -c %h a
        ln -s a c; readlink c; cp --sparse=always a d; truncate -s 1M d; stat -c %s d";
    assert_eq!(place.inside(script).ok(), "through\nlocked\nbusy\n2\n2\na\n1048576\n");
}

#[test]
fn a_lock_taken_outside_is_seen_inside() {
    let Some(place) = Place::with(&["flock"]) else { return };
    place.write("lock", "");
    let binary = crate::support::binary().display().to_string();
    let ran = place.host(&format!("exec 9> lock; flock 9; '{binary}' run -- flock -n lock true 9>&-; echo $?"));
    assert_eq!(ran.out, "1\n");
}

#[test]
fn inotify_reports_changes_in_the_project() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
watch = libc.inotify_init1(0)
assert libc.inotify_add_watch(watch, b'.', 0x100) > 0
open('made', 'w').close()
event = os.read(watch, 4096)
print(event[16:16 + struct.unpack('iIII', event[:16])[3]].rstrip(b'\\0').decode())
";
    place.write("watch.py", script);
    assert_eq!(place.run(&[], &["python3", "watch.py"]).ok(), "made\n");
}

#[test]
fn unix_sockets_work_inside_the_project_and_tmp() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "
import socket, threading, time
for path in ('socket', '/tmp/socket', '\\0abstract'):
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect(path)
    client.send(b'x'); print(server.accept()[0].recv(1))
    # A keeper that took it for the host's would cover it by now.
    time.sleep(0.1); client = socket.socket(socket.AF_UNIX); client.connect(path)
a, b = socket.socketpair(); a.send(b'y'); print(b.recv(1))
";
    place.write("unix.py", script);
    assert_eq!(place.run(&[], &["python3", "unix.py"]).ok(), "b'x'\nb'x'\nb'x'\nb'y'\n");
}

#[test]
fn many_sessions_share_one_project_and_leave_nothing_in_it() {
    let place = Place::new();
    let project = place.path(".");
    for _ in 0..4 {
        let sessions: Vec<_> = (0..12)
            .map(|_| place.command(binary()).args(["run", "--", "true"]).current_dir(&project).spawn().expect("starts"))
            .collect();
        for mut session in sessions {
            assert!(session.wait().expect("ends").success());
        }
    }
    let left: Vec<_> = std::fs::read_dir(&project).expect("readable").flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
