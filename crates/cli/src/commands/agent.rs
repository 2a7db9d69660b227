//! `sandbox agent`: an agent's own command line in its preset, in one word. Owns the list of agents, and making an agent's directory
//! before its first session; the session is `sandbox run --preset NAME -- NAME ARGS`, and what it may do is the preset's. Called
//! by `main`, which runs what comes back.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_host::{HomeError, Surroundings, SurveyError};
use cofferdam_wire::order::Given;
use thiserror::Error;

use crate::agents::{AGENTS, Agent};
use crate::args::run::{AgentArgs, RunArgs};
use crate::environment::{environment, own_home};
use crate::render::output::print;

/// Why no agent was started.
#[derive(Debug, Error)]
pub(crate) enum AgentError {
    #[error("no agent is called `{name}` here")]
    Unknown { name: String },
    #[error("`{name}` is not in PATH")]
    NotInstalled { name: &'static str, install: &'static str },
    #[error("cannot make `{path}`, where the agent keeps its settings")]
    Directory { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// What `sandbox run` is to do; without a name there is only a list to print.
pub(crate) fn order(args: AgentArgs) -> Result<Option<RunArgs>, AgentError> {
    let AgentArgs { mut policy, json, name, args } = args;
    let Some(name) = name else {
        print(&list(project()?.as_deref()));
        return Ok(None);
    };
    let agent = Agent::named(&name).ok_or(AgentError::Unknown { name })?;
    let program = agent.program(project()?.as_deref());
    let program = program.ok_or(AgentError::NotInstalled { name: agent.name, install: agent.install })?;
    let directory = agent.directory(&own_home()?);
    make(agent, &directory).map_err(|source| AgentError::Directory { path: directory, source })?;
    policy.0.push(Given { flag: "--preset".to_owned(), value: agent.name.into() });
    let argv = std::iter::once(program.display().to_string()).chain(args).collect();
    Ok(Some(RunArgs::of(policy, json, argv)))
}

/// Outside, because a session writes only in directories that are there. It holds a login: no other user reads it. In one that
/// sessions could write to nothing is made: they could have put links there.
fn make(agent: &Agent, directory: &Path) -> io::Result<()> {
    let mut owners = DirBuilder::new();
    owners.mode(0o700);
    owners.recursive(true).create(directory.parent().unwrap_or(directory))?;
    match owners.recursive(false).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let Some((file, content)) = agent.first else { return Ok(()) };
    let file = directory.join(file);
    owners.recursive(true).create(file.parent().unwrap_or(directory))?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?.write_all(content.as_bytes())
}

fn project() -> Result<Option<PathBuf>, SurveyError> {
    Ok(Surroundings::look(&environment())?.project)
}

fn list(project: Option<&Path>) -> String {
    let line = |agent: &Agent| {
        let place = agent
            .program(project)
            .map_or_else(|| format!("not installed: {}", agent.install), |program| program.display().to_string());
        format!("{:<10}{:<13}{place}\n", agent.name, agent.title)
    };
    AGENTS.iter().map(line).collect()
}
