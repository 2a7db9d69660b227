//! Which package managers and coding agents are installed for this user. Owns the list of those that `sandbox setup` knows, the
//! preset of each and the caches that it fills; starts none of them. Called by `setup`.

use std::path::{Path, PathBuf};

use cofferdam_policy::{PathExpr, Places, Preset};

use crate::agents::which;

/// A package manager.
pub(super) struct Tool {
    /// The programs that show that it is there.
    programs: &'static [&'static str],
    pub(super) preset: &'static str,
    /// Directories that it makes and that its preset gives for writing.
    caches: &'static [&'static str],
    /// Hosts that it reaches where no registry is configured.
    pub(super) usual: &'static [&'static str],
}

const NPM: &[&str] = &["registry.npmjs.org"];
const YARN: &[&str] = &["registry.yarnpkg.com"];
const PYPI: &[&str] = &["pypi.org", "files.pythonhosted.org"];

#[rustfmt::skip]
pub(super) const TOOLS: &[Tool] = &[
    Tool { programs: &["cargo"], preset: "cargo", usual: &["index.crates.io", "static.crates.io"],
        caches: &["${CARGO_HOME:-~/.cargo}/registry", "${CARGO_HOME:-~/.cargo}/git"] },
    Tool { programs: &["npm"], preset: "node", caches: &["${npm_config_cache:-~/.npm}"], usual: NPM },
    Tool { programs: &["yarn"], preset: "node", caches: &["${YARN_CACHE_FOLDER:-~/.cache/yarn}", "~/.yarn/berry"], usual: YARN },
    Tool { programs: &["pnpm"], preset: "node", caches: &["~/.local/share/pnpm/store", "~/.cache/pnpm"], usual: NPM },
    Tool { programs: &["bun"], preset: "node", caches: &["~/.bun/install/cache"], usual: NPM },
    Tool { programs: &["deno"], preset: "node", caches: &["${DENO_DIR:-~/.cache/deno}"], usual: &["jsr.io", "npm.jsr.io"] },
    Tool { programs: &["pip", "pip3", "python3"], preset: "python", caches: &["${PIP_CACHE_DIR:-~/.cache/pip}"], usual: PYPI },
    Tool { programs: &["uv"], preset: "python", caches: &["${UV_CACHE_DIR:-~/.cache/uv}"], usual: PYPI },
    Tool { programs: &["poetry"], preset: "python", caches: &["${POETRY_CACHE_DIR:-~/.cache/pypoetry}"], usual: PYPI },
    Tool { programs: &["go"], preset: "go", usual: &["proxy.golang.org", "sum.golang.org"],
        caches: &["${GOCACHE:-~/.cache/go-build}", "${GOMODCACHE:-~/go/pkg/mod}", "~/go/pkg/sumdb"] },
    Tool { programs: &["mvn"], preset: "java", caches: &["~/.m2/repository"], usual: &["repo.maven.apache.org", "repo1.maven.org"] },
    Tool { programs: &["gradle"], preset: "java", caches: &["~/.gradle/caches", "~/.gradle/wrapper/dists"], usual: &["repo.maven.apache.org"] },
];

/// Coding agents, with the directory in the home that each keeps its configuration in.
const AGENTS: &[(&str, &str)] = &[
    ("claude", ".claude"),
    ("codex", ".codex"),
    ("gemini", ".gemini"),
    ("opencode", ".config/opencode"),
    ("aider", ".aider.conf.yml"),
];

impl Tool {
    pub(super) fn name(&self) -> &'static str {
        self.programs[0]
    }

    /// Where its caches lie here.
    pub(super) fn caches(&self, places: &Places) -> Vec<PathBuf> {
        let parsed = self.caches.iter().filter_map(|text| PathExpr::parse(text).ok());
        parsed.flat_map(|path| path.expand(places)).collect()
    }
}

/// The tools that this `PATH` leads to, with their programs. What lies in the project is the project's.
pub(super) fn tools(path: &str, project: Option<&Path>) -> Vec<(&'static Tool, PathBuf)> {
    let known = TOOLS.iter().filter(|tool| Preset::named(tool.preset).is_some());
    known
        .filter_map(|tool| Some((tool, tool.programs.iter().find_map(|name| which(path.as_ref(), project, name))?)))
        .collect()
}

/// The agents with a shipped preset that are installed, or were: by their program, else by their directory.
pub(super) fn agents(path: &str, project: Option<&Path>, home: &Path) -> Vec<(&'static str, PathBuf)> {
    let known = AGENTS.iter().filter(|(name, _)| Preset::named(name).is_some());
    let place = |directory: &str| Some(home.join(directory)).filter(|place| place.symlink_metadata().is_ok());
    known.filter_map(|(name, own)| Some((*name, which(path.as_ref(), project, name).or_else(|| place(own))?))).collect()
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::{Inputs, Layer, LayerInput, resolve};

    use super::*;

    #[test]
    fn a_cache_that_is_made_is_one_that_the_preset_gives() {
        for tool in TOOLS {
            let text = format!("preset = [{:?}]\n", tool.preset);
            let layers = [LayerInput { layer: Layer::User, source: "config.toml".to_owned(), text, trusted: true }];
            let policy = resolve(&Inputs { layers: &layers, ..Inputs::default() }).expect("a shipped preset");
            for cache in tool.caches {
                let is_given = policy.files.iter().any(|rule| rule.path.as_str() == *cache);
                assert!(is_given, "{cache} of {}", tool.preset);
            }
        }
    }
}
