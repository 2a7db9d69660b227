//! The process that launches: `escape-runner launch NAME WALLS CHECK SCENE`. Owns the order of a row's interventions;
//! called by the runner program only, alone in its process.

use std::fs;
use std::path::Path;

use cofferdam_plan::LaunchPlan;
use cofferdam_testkit::{Place, Report, Session};

use crate::row::{Off, Row, Walls};
use crate::{find, raw};

/// Runs one launch and writes its report. Returns the exit code.
pub fn launch(arguments: &[String]) -> i32 {
    let [name, walls, check, scene] = arguments else { return 2 };
    let (Some(row), Some(walls)) = (find(name), Walls::from_name(walls)) else { return 2 };
    let place = Place::at(scene);
    let report = match prepare(row, &place, walls) {
        Ok(()) => run(row, &place, walls, check),
        Err(error) => {
            Report { error: Some(format!("cannot prepare the launch: {error}")), code: 2, ..Report::default() }
        }
    };
    let code = report.code;
    match fs::write(place.report(), report.to_json()) {
        Ok(()) => code,
        Err(_) => 2,
    }
}

fn prepare(row: &Row, place: &Place, walls: Walls) -> Result<(), String> {
    let is_root =
        fs::metadata("/proc/self").map_err(|e| e.to_string()).map(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)?;
    if walls == Walls::Open && row.off_as_root && !is_root {
        enter_namespaces(libc::CLONE_NEWUSER)?;
    }
    (row.before)(place, walls)
}

fn run(row: &Row, place: &Place, walls: Walls, check: &str) -> Report {
    let mut session = Session::of((row.argv)(place, check));
    (row.session)(&mut session, place);
    (row.policy)(&mut session.policy, place);
    match (walls, row.off) {
        (Walls::Standing, _) => session.run(|plan| (row.arrange)(plan), || (row.swap)(place)),
        (Walls::Open, Off::Edit(edit)) => {
            let change = |plan: &mut LaunchPlan| {
                (row.arrange)(plan);
                edit(plan, place);
            };
            session.run(change, || (row.swap)(place))
        }
        (Walls::Open, Off::Bare) => session.run_bare(),
    }
}

/// Moves this process into new namespaces around the sandbox, as root of a new user namespace.
pub(crate) fn enter_namespaces(flags: i32) -> Result<(), String> {
    let own = fs::metadata("/proc/self").map_err(|e| e.to_string())?;
    let (uid, gid) = (std::os::unix::fs::MetadataExt::uid(&own), std::os::unix::fs::MetadataExt::gid(&own));
    raw::syscall(libc::SYS_unshare, [usize::try_from(flags).unwrap_or(0), 0, 0, 0, 0, 0])
        .map_err(|errno| format!("no user namespace around the sandbox: errno {errno}"))?;
    let write = |file: &str, text: &str| fs::write(Path::new("/proc/self").join(file), text).map_err(|e| e.to_string());
    write("setgroups", "deny")?;
    write("uid_map", &format!("0 {uid} 1"))?;
    write("gid_map", &format!("0 {gid} 1"))
}
