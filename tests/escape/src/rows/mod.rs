//! The rows, one file per boundary: what a row sets up on the host, how its control is switched off, what it asserts
//! outside. What happens inside is `probe`'s.

pub(crate) mod aliases;
pub(crate) mod answers;
pub(crate) mod bits;
pub(crate) mod calls;
pub(crate) mod commits;
pub(crate) mod covers;
pub(crate) mod depths;
pub(crate) mod egress;
pub(crate) mod egress_places;
pub(crate) mod egress_requests;
pub(crate) mod egress_spelling;
pub(crate) mod gate;
pub(crate) mod homes;
pub(crate) mod ipc;
pub(crate) mod keeper;
pub(crate) mod kernel_files;
pub(crate) mod launch;
pub(crate) mod leftovers;
pub(crate) mod masked;
pub(crate) mod names;
pub(crate) mod obeyed;
pub(crate) mod processes;
pub(crate) mod races;
pub(crate) mod records;
pub(crate) mod refusals;
pub(crate) mod resources;
pub(crate) mod sockets;
pub(crate) mod streams;
pub(crate) mod tracked;
pub(crate) mod transaction;
pub(crate) mod waits;
pub(crate) mod workspace;

use std::path::Path;

use cofferdam_policy::{Access, FileRule, Hold, Origin, PathExpr, Policy, Stand};

/// A rule as a flag of the command line would make it.
pub(crate) fn rule(policy: &mut Policy, path: &Path, access: Access) {
    let Ok(path) = PathExpr::literal(path) else { return };
    policy.files.push(FileRule {
        path,
        access,
        stand: Stand::Refuse,
        hold: Hold::Nothing,
        only_missing: false,
        optional: false,
        is_final: false,
        reason: "asked for by the row".into(),
        origin: Origin::flag("--test"),
    });
}

/// A git repository, as far as the sandbox looks at one.
fn repository(place: &cofferdam_testkit::Place, at: &str) {
    place.write(format!("{at}/HEAD"), "ref: refs/heads/main\n");
    place.directory(format!("{at}/objects"));
    place.directory(format!("{at}/refs"));
}
