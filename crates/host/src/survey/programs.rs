//! The programs that a policy allows, and where their libraries lie. Called by `survey` where a list of programs is in force.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_plan::{HostFacts, PathFact, Request};
use cofferdam_policy::{Access, Policy};

use super::listings::list_matching;
use super::paths::Paths;

/// Those of the C libraries that programs of this machine are linked with.
const LOADERS: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"]
} else {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"]
};

pub(super) fn look_at_programs(policy: &Policy, request: &Request, facts: &mut HostFacts, paths: &Paths<'_>) {
    let path = request.environment.iter().find(|(n, _)| n == "PATH").map_or("/usr/local/bin:/usr/bin:/bin", |(_, v)| v);
    let mut executables = BTreeMap::new();
    for name in policy.process.executables.iter().map(|e| &e.value).chain(request.argv.first()) {
        let candidates: Vec<PathBuf> = if name.contains('/') {
            vec![facts.cwd.join(name)]
        } else {
            path.split(':').filter(|d| d.starts_with('/')).map(|d| Path::new(d).join(name)).collect()
        };
        let found = candidates.iter().filter_map(|c| c.canonicalize().ok()).find(|c| c.is_file());
        if let Some(found) = found {
            executables.insert(name.clone(), paths.look(&found));
        }
    }
    for library in library_directories(&executables) {
        if let Some(PathFact::Present { canonical, id, .. }) = library.canonicalize().ok().map(|p| paths.look(&p))
            && !facts.libraries.iter().any(|(known, _)| canonical.starts_with(known))
        {
            facts.libraries.push((canonical, id));
        }
    }
    facts.loaders = LOADERS.iter().filter_map(|l| Path::new(l).canonicalize().ok()).collect();
    facts.executables = executables;
}

/// Where the libraries of programs lie. The loader starts whatever it can map, so a directory that also holds programs
/// (compilers, git's own, java) is taken only where libraries are not kept apart from them.
pub(super) fn library_directories(executables: &BTreeMap<String, PathFact>) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for parent in ["/usr/lib", "/lib"].map(Path::new) {
        let apart = parent.join(format!("{}-linux-gnu", std::env::consts::ARCH));
        if apart.is_dir() {
            directories.push(apart);
            directories.extend(list_matching(&parent.join("python3*"), Access::Read, "").unwrap_or_default());
        } else {
            directories.push(parent.to_path_buf());
        }
    }
    directories.extend(["/usr/lib64", "/lib64", "/usr/local/lib"].map(PathBuf::from));
    // A program installed apart from the system brings its libraries along: PREFIX/bin/program, PREFIX/lib.
    let prefixes = executables.values().filter_map(|fact| match fact {
        PathFact::Present { canonical, .. } => canonical.parent().filter(|dir| dir.ends_with("bin"))?.parent(),
        PathFact::Missing { .. } => None,
    });
    let own = prefixes.filter(|prefix| !["/", "/usr", "/usr/local"].iter().any(|system| *prefix == Path::new(system)));
    directories.extend(own.map(|prefix| prefix.join("lib")));
    directories
}
