//! What runs inside a session, and without one as a control: `sandbox-verify probe NAME ERRAND` makes one benign attempt and prints
//! what came of it. Owns the attempts and the reading of the kernel's answers; knows nothing of how it was launched.

mod calls;
mod files;
mod kernel_files;
mod limits;
mod processes;
mod sockets;

use std::io;

use crate::answer::Answer;
use crate::errand::Errand;

/// Makes one attempt.
pub(crate) fn run(name: &str, errand: &Errand) -> Answer {
    if let Some((kind, list)) = name.split_once(':') {
        let list: Vec<&str> = list.split(',').collect();
        return match kind {
            "calls" => calls::make(&list),
            "switches" => kernel_files::switches(&list),
            "visible" => kernel_files::visible(&list),
            _ => Answer::Unclear(format!("no attempt is called `{kind}`")),
        };
    }
    match name {
        "ran" => Answer::Reached("the command ran".to_owned()),
        "read-outside" => files::read_outside(errand),
        "read-home-secrets" => files::read_home_secrets(errand),
        "read-project-secrets" => files::read_project_secrets(errand),
        "write-outside" => files::write_outside(errand),
        "write-by-traversal" => files::write_by_traversal(errand),
        "write-by-link" => files::write_by_link(errand),
        "read-by-link" => files::read_by_link(errand),
        "hard-link" => files::hard_link(errand),
        "write-git" => files::write_git(errand),
        "write-agents" => files::write_agents(errand),
        "write-shell-files" => files::write_shell_files(errand),
        "set-user-id" => files::set_user_id(errand),
        "read-private" => files::read_private(errand),
        "read-process" => processes::read(errand),
        "end-process" => processes::end(errand),
        "trace-process" => processes::trace(errand),
        "open-first-process" => processes::open("/proc/1", Some(1)),
        "open-own-process" => processes::open("/proc/self", None),
        "outlive" => processes::outlive(errand),
        "inherited-descriptors" => processes::inherited_descriptors(errand),
        "secrets-in-environment" => processes::secrets_in_environment(errand),
        "code-in-environment" => processes::code_in_environment(errand),
        "namespaces" => processes::namespaces(errand, &[]),
        "no-new-privileges" => processes::no_new_privileges(),
        "capabilities" => processes::capabilities(),
        "filter-of-threads" => processes::filter_of_threads(),
        "walls-of-process" => processes::walls_of_process(errand),
        "connect-abstract" => sockets::connect_abstract(errand),
        "connect-path" => sockets::connect_path(errand),
        "connect-tcp" => sockets::connect_tcp(errand),
        "send-datagram" => sockets::send_datagram(errand),
        "many-processes" => limits::many_processes(),
        "much-memory" => limits::much_memory(),
        "much-output" => limits::much_output(),
        "many-descriptors" => limits::many_descriptors(),
        "much-time" => limits::much_time(),
        "go-on-after-attempt" => calls::go_on_after_attempt(),
        _ => Answer::Unclear(format!("no attempt is called `{name}`")),
    }
}

/// Attempts of one kind: reached if one of them succeeded.
#[derive(Debug, Default)]
struct Attempts {
    reached: Vec<String>,
    refused: Vec<String>,
}

impl Attempts {
    fn add<T>(&mut self, what: &str, result: io::Result<T>) {
        match result {
            Ok(_) => self.reached.push(format!("{what}: done")),
            Err(error) => self.refused.push(format!("{what}: {error}")),
        }
    }

    fn answer(self) -> Answer {
        match (self.reached.is_empty(), self.refused.is_empty()) {
            (false, _) => Answer::Reached(self.reached.join("; ")),
            (true, false) => Answer::Refused(self.refused.join("; ")),
            (true, true) => Answer::Unclear("nothing was tried".to_owned()),
        }
    }
}
