//! The agents that have a preset. Owns how each is installed, what its directory begins with and how its own sandbox is switched
//! off; what it may reach and write is its preset's. Read by `commands::agent`, and by `render::denials` for hints.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A program with a preset of its name.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) install: &'static str,
    /// A file of its directory, and what it holds in a new one.
    pub(crate) first: Option<(&'static str, &'static str)>,
    /// What switches its own sandbox off; none where it has none, or where it is off unless it is asked for.
    pub(crate) own_sandbox: Option<&'static str>,
}

/// It would register itself with the desktop, in a directory whose programs the host starts.
const CLAUDE: &str = "{\"disableDeepLinkRegistration\": \"disable\"}\n";
/// Telemetry, updates and plugins are hosts that would be asked about.
const CODEX: &str = r#"# The session is the sandbox; a second one cannot be made inside.
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
"#;
const GEMINI: &str = r#"{"privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false}}
"#;

pub(crate) const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        title: "Claude Code",
        install: "npm install -g @anthropic-ai/claude-code",
        first: Some(("settings.json", CLAUDE)),
        own_sandbox: Some("`\"sandbox\": {\"enabled\": false}` in its settings.json, or /sandbox"),
    },
    Agent {
        name: "codex",
        title: "Codex",
        install: "npm install -g @openai/codex",
        first: Some(("config.toml", CODEX)),
        own_sandbox: Some(
            "`codex --sandbox danger-full-access`, or `sandbox_mode = \"danger-full-access\"` in its config.toml",
        ),
    },
    Agent {
        name: "gemini",
        title: "Gemini CLI",
        install: "npm install -g @google/gemini-cli",
        first: Some((".gemini/settings.json", GEMINI)),
        own_sandbox: Some("`GEMINI_SANDBOX=false`, or no `--sandbox`"),
    },
    Agent {
        name: "opencode",
        title: "OpenCode",
        install: "npm install -g opencode-ai",
        first: None,
        own_sandbox: None,
    },
    Agent { name: "aider", title: "aider", install: "pipx install aider-chat", first: None, own_sandbox: None },
];

impl Agent {
    pub(crate) fn named(name: &str) -> Option<&'static Agent> {
        AGENTS.iter().find(|agent| agent.name == name)
    }

    /// Where it keeps settings, login and conversations: written by its sessions, and read by no agent outside (decision 0057).
    pub(crate) fn directory(&self, home: &Path) -> PathBuf {
        home.join(".local/share/cofferdam/agents").join(self.name)
    }

    pub(crate) fn program(&self, project: Option<&Path>) -> Option<PathBuf> {
        which(&std::env::var_os("PATH")?, project, self.name)
    }
}

/// The file that a shell would run, but for what lies in the project: a session may have put it there.
pub(crate) fn which(path: &OsStr, project: Option<&Path>, program: &str) -> Option<PathBuf> {
    let is_mine =
        |directory: &PathBuf| directory.is_absolute() && project.is_none_or(|own| !directory.starts_with(own));
    let is_program = |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(path).filter(is_mine).map(|directory| directory.join(program)).find(is_program)
}
