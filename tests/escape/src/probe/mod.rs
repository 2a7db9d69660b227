//! What runs inside the sandbox, one function per check. Owns the benign attempts and the reading of the kernel's answers;
//! knows nothing of how it was launched. Each file is about one boundary.

mod bits;
mod calls;
mod cover_storm;
mod cpu;
mod egress;
mod files;
mod gate;
mod ipc;
mod keeper;
mod kernel_files;
mod latency;
mod layers;
mod memory;
mod posture;
mod processes;
mod resources;
mod storm;
mod streams;

use std::io;
use std::time::Duration;

use cofferdam_testkit::Place;

pub(crate) use files::ways_to_read;

use crate::raw;
use crate::row::Finding;
use crate::words;

/// Makes one check.
#[expect(clippy::too_many_lines, reason = "one line for each check")]
pub fn run(check: &str, place: &Place) -> Finding {
    match check {
        "ran" => files::leave_a_mark(place),
        "a01" => posture::descriptors(place),
        "a02" => processes::launcher_binary(),
        "a06" => files::a06_planted_links(place),
        "a08" => files::a08_swapped_directory(place),
        "a12" => posture::code_in_environment(),
        "a14" => posture::same_everywhere(place),
        "a15" => files::a15_missing_names(place),
        "a19" => streams::a19_stdin(place),
        "a16" => files::a16_renames(place),
        "a17" => files::a17_other_names(place),
        "a18-spin" | "a18-quiet" => keeper::a18_spin(place, check == "a18-quiet"),
        "a18-overlay" => layers::spin_on_hidden(place),
        "cover-storm" | "cover-storm-quiet" => cover_storm::spin(place, check == "cover-storm-quiet"),
        "a20" => files::a20_home(place),
        "a18" => files::a18_hidden_names(place),
        "a24" => files::a24_below_the_project(place),
        "b22" => crate::rows::masked::look(place),
        "b01" => kernel_files::core_pattern(),
        "b02" => kernel_files::switches(),
        "b03" => kernel_files::cgroups(),
        "b04" => kernel_files::last_pid(),
        "b05" => kernel_files::readable(),
        "b06" => processes::deputy(1),
        "b06-own" => processes::deputy_of_own(),
        "b07" => processes::supervisor(place),
        "b09" => calls::b09_user_namespaces(),
        "b10" => calls::b10_setns(),
        "b11" => ipc::abstract_socket(place),
        "b12" => ipc::service_sockets(place),
        "b13" => ipc::received_descriptors(),
        "b14" => ipc::shared_memory(place),
        "b15" => calls::b15_keyrings(),
        "b16" => calls::b16_terminal_injection(),
        "b17" => calls::b17_wide_ioctl(),
        "b18" => calls::b18_clock_and_hostname(),
        "b19" => processes::kill_everybody(),
        "b20" => processes::many_sleepers(place),
        "b21" => posture::secrets_in_environments(),
        "c01" => calls::c01_io_uring(),
        "c02" => calls::c02_i386(),
        "c03" => calls::c03_x32(),
        "c04" => calls::c04_unknown(),
        "b07-gate" => gate::b07_out_of_reach(place),
        "c05" => gate::c05_behind_mounts(place),
        "c05-open" => gate::c05_before_the_call(place),
        "c06" => calls::c06_notifications(place),
        "c07" => calls::c07_mounts(),
        "c08" => calls::c08_handles(),
        "c09" => calls::c09_bpf(),
        "c10" => calls::c10_userfaultfd(),
        "c11" => calls::c11_administration(),
        "c12" => calls::c12_vsock(),
        "c13" => calls::c13_families(),
        "c14" => calls::c14_raw_sockets(),
        "c15" => calls::c15_netlink(),
        "c16" => posture::no_new_privileges(),
        "c17" => posture::capabilities(),
        "c18" => kernel_files::device_nodes(place),
        "c19" => calls::c19_personality(),
        "c20" => kernel_files::kernel_log(),
        "c21" => posture::threads(),
        "d01" => resources::d01_processes(),
        "d01-threads" => resources::d01_threads(),
        "d01-bomb" => resources::d01_bomb(place),
        "d02" => memory::d02_one_process(),
        "d02-many" => memory::d02_many_processes(),
        "d02-shared" => memory::d02_shared_pages(),
        "d02-private" => memory::d02_private_file_systems(),
        "d02-memfd" => memory::d02_nameless_files(),
        "d02-mapping" => memory::d02_shared_mapping(),
        "d02-segments" => memory::d02_segments(),
        "d02-score" => memory::d02_score(),
        "d03" => cpu::d03_realtime(),
        "d03-cpus" => cpu::d03_cpus(),
        "d03-pinned" => cpu::d03_pinned(),
        "d03-time" => cpu::d03_time(),
        "d03-ignored" => cpu::d03_time_of_ignored(),
        "d04" => resources::d04_flood(),
        "d05" => resources::d05_private_file_systems(),
        "d05-plain" => resources::d05_plain(place),
        "d05-allocated" => resources::d05_allocated(place),
        "d05-nameless" => resources::d05_nameless(place),
        "d06" => resources::d06_sparse(place),
        "d07" => resources::d07_descriptors(),
        "d08" => resources::d08_tree(place, &place.home().join(".npm"), 20_000, 100_000),
        "d08-project" => resources::d08_tree(place, &place.project(), 3_000, 5_000),
        "d09-make" => layers::odd_files(),
        "e10" => layers::forged_attributes(),
        "d08-wait" => wait(HOLD),
        "d10" => resources::d10_refused_calls(),
        "d10-questions" => gate::d10_many_questions(place),
        "read" => gate::read_unknown(place),
        "read-later" => gate::read_later(place),
        "read-two" => gate::read_two(place),
        "f05" => gate::f05_arguments(place),
        "f06" => gate::f06_chain(place),
        "f08" => gate::f08_planted(place),
        "f11" => gate::f11_own_answer(place),
        "e05" => files::e05_prefix(place),
        "e06" => files::e06_working_directory(place),
        "e07" => gate::e07_requests(place),
        "e12" | "e15" | "e16" | "e18" | "e27" => files::protected(place),
        "e25" => bits::e25_lent_rights(place),
        "e14" => files::e14_forged_pointer(place),
        "talk" => egress::talk(place),
        "nothing" => wait(Duration::ZERO),
        _ => beside_others(check, place),
    }
}

/// What runs to be measured, or to disturb what is.
fn beside_others(check: &str, place: &Place) -> Finding {
    match check {
        "rebinding" => storm::rebinding(place),
        "crowd" => storm::crowd(place),
        "work" => latency::work_in_small_steps(place),
        "attack-forks" => latency::attack_with_forks(),
        "attack-memory" => latency::attack_with_memory(),
        "attack-threads" => latency::attack_with_threads(),
        "attack-output" => latency::attack_with_output(),
        _ => Finding::Broken(format!("no check is called `{check}`")),
    }
}

/// A system call with plain numbers or addresses; see `raw::syscall`.
fn call(number: libc::c_long, arguments: &[usize]) -> Result<i64, i32> {
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(arguments) {
        *to = *from;
    }
    raw::syscall(number, all)
}

/// The same for a descriptor or a length.
fn number(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Longer than it takes the supervisor to look again.
const HOLD: Duration = Duration::from_secs(2);

fn wait(time: Duration) -> Finding {
    std::thread::sleep(time);
    Finding::Contained(String::new())
}

/// An address that no process has: the kernel answers EFAULT if it gets that far.
const NOWHERE: usize = usize::MAX - 4095;

/// -1 as an argument.
const NONE: usize = usize::MAX;

/// An attempt: what it was, what the kernel said, and which errors mean that it was contained.
struct Attempt {
    what: String,
    result: Result<(), i32>,
    expected: &'static [i32],
}

impl Attempt {
    fn new(what: impl Into<String>, result: Result<i64, i32>, expected: &'static [i32]) -> Self {
        Attempt { what: what.into(), result: result.map(|_| ()), expected }
    }

    fn io<T>(what: impl Into<String>, result: io::Result<T>, expected: &'static [i32]) -> Self {
        let result = result.map(|_| ()).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO));
        Attempt { what: what.into(), result, expected }
    }
}

/// Contained if every attempt was refused as expected; else open, with those that were not.
fn judge(attempts: &[Attempt]) -> Finding {
    let name = |a: &Attempt| match a.result {
        Ok(()) => format!("{} worked", a.what),
        Err(errno) => format!("{} {}", a.what, words::errno(errno)),
    };
    let open: Vec<String> = attempts
        .iter()
        .filter(|a| a.result.is_ok() || a.result.is_err_and(|e| !a.expected.contains(&e)))
        .map(name)
        .collect();
    if attempts.is_empty() {
        Finding::Broken("nothing was attempted".to_owned())
    } else if open.is_empty() {
        Finding::Contained(shortened(attempts.iter().map(name).collect()))
    } else {
        Finding::Open(shortened(open))
    }
}

fn shortened(mut parts: Vec<String>) -> String {
    let more = parts.len().saturating_sub(6);
    parts.truncate(6);
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

/// A line of a `status` file.
fn status_line(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

/// `statfs`: type and flags of the file system at a path.
fn file_system(path: &str) -> Result<(u64, u64), i32> {
    let path = std::ffi::CString::new(path).map_err(|_| libc::EINVAL)?;
    // struct statfs is 120 bytes: f_type is its first word, f_flags its eleventh.
    let mut buffer = [0u64; 32];
    call(libc::SYS_statfs, &[path.as_ptr() as usize, (&raw mut buffer) as usize])?;
    Ok((buffer[0], buffer[10]))
}

fn open(path: &str, flags: i32) -> Result<i64, i32> {
    let path = std::ffi::CString::new(path).map_err(|_| libc::EINVAL)?;
    let fd = call(libc::SYS_open, &[path.as_ptr() as usize, usize::try_from(flags | libc::O_CLOEXEC).unwrap_or(0)])?;
    call(libc::SYS_close, &[usize::try_from(fd).unwrap_or(0)])?;
    Ok(fd)
}
