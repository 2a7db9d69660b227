//! The environment of the command is built, not inherited. Owns which variables get in; reads no environment itself.
//! Called by `plan()` with the host's variables as data.

use std::path::Path;

use cofferdam_policy::{Layer, Origin, Policy};

use crate::network::egress::EgressPlan;
use crate::network::terminates::{JAVA_OPTIONS, withheld};
use crate::step::Hold;

/// Variables the sandbox sets itself; policy may override them with `env.set`.
fn own(uid: u32) -> Vec<(String, String)> {
    vec![
        ("COFFERDAM".to_owned(), "1".to_owned()),
        ("TMPDIR".to_owned(), "/tmp".to_owned()),
        ("XDG_RUNTIME_DIR".to_owned(), format!("/run/user/{uid}")),
    ]
}

/// Go asks git about whatever is called `.git`, and builds nothing where git knows of no repository: so not about a stand-in.
const REPOSITORY: &str = ".git";
const GO_FLAGS: &str = "GOFLAGS";
const WITHOUT_REPOSITORY: &str = "-buildvcs=false";

/// Where the workload says that a step of its work is done.
const CHECKPOINT: &str = "COFFERDAM_CHECKPOINT";

/// With what this session's network adds, and without what it keeps outside.
pub(crate) fn build(
    policy: &Policy,
    host: &[(String, String)],
    uid: u32,
    home: &Path,
    egress: Option<&EgressPlan>,
    checkpoints: Option<&Path>,
    holds: &[Hold],
) -> Vec<(String, String)> {
    let mut result: Vec<(String, String)> = Vec::new();
    let (env, withheld) = (&policy.env, withheld(&policy.network));
    for (name, value) in host {
        if name_is_plain(name) && env.lets_through(name) && !withheld.contains(&name.as_str()) {
            set(&mut result, name, value);
        }
    }
    let checkpoints = checkpoints.map(|at| (CHECKPOINT.to_owned(), at.display().to_string()));
    let of_egress = egress.map(EgressPlan::variables).unwrap_or_default();
    for (name, value) in own(uid).into_iter().chain(of_egress).chain(checkpoints) {
        let passed = result.iter().find(|(set, _)| *set == name && name == JAVA_OPTIONS);
        let value = passed.map_or(value.clone(), |(_, options)| format!("{options} {value}"));
        set(&mut result, &name, &value);
    }
    for rule in &env.set {
        let (name, value) = &rule.value;
        set(&mut result, name, &of_preset(value, &rule.origin, home).unwrap_or_else(|| value.clone()));
    }
    if holds.iter().any(|hold| hold.path.ends_with(REPOSITORY)) {
        let flags = result.iter().find(|(name, _)| name == GO_FLAGS).map(|(_, flags)| flags.clone());
        // The last one counts, and what the operator has set comes last.
        let flags = flags.map_or(WITHOUT_REPOSITORY.to_owned(), |flags| format!("{WITHOUT_REPOSITORY} {flags}"));
        set(&mut result, GO_FLAGS, &flags);
    }
    if !result.iter().any(|(name, _)| name == "PATH") {
        set(&mut result, "PATH", "/usr/local/bin:/usr/bin:/bin");
    }
    result
}

/// A preset does not know the home of the user.
fn of_preset(value: &str, origin: &Origin, home: &Path) -> Option<String> {
    let rest = value.strip_prefix("~/").filter(|_| origin.layer == Layer::BuiltIn)?;
    Some(home.join(rest).display().to_string())
}

/// Names such as `BASH_FUNC_x%%` carry code.
fn name_is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn set(variables: &mut Vec<(String, String)>, name: &str, value: &str) {
    match variables.iter_mut().find(|(n, _)| n == name) {
        Some(slot) => value.clone_into(&mut slot.1),
        None => variables.push((name.to_owned(), value.to_owned())),
    }
}
