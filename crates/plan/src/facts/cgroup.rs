//! Where the session's cgroup can be made. Owns the cases and why a controller is missing; which limits use it is `limits`'.
//! Part of `HostFacts`.

use std::path::PathBuf;

use serde::Serialize;

/// Where the session's cgroup can be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupHome {
    None {
        why: String,
    },
    /// A cgroup of this user's, below which others can be made. Where `alone` is set, only this process is in it
    /// and it has to move down before controllers can be switched on.
    Delegated {
        path: PathBuf,
        controllers: Vec<String>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        alone: bool,
    },
    /// The service manager makes one on demand.
    Scope {
        controllers: Vec<String>,
    },
}

impl Default for CgroupHome {
    fn default() -> Self {
        CgroupHome::None { why: "it was not looked for".to_owned() }
    }
}

impl CgroupHome {
    pub fn controllers(&self) -> &[String] {
        match self {
            CgroupHome::None { .. } => &[],
            CgroupHome::Delegated { controllers, .. } | CgroupHome::Scope { controllers } => controllers,
        }
    }

    /// Why a controller that is not in `controllers` cannot be had.
    pub(crate) fn why_not(&self) -> String {
        match self {
            CgroupHome::None { why } => why.clone(),
            CgroupHome::Delegated { path, controllers, .. } => {
                format!("`{}` has only: {}", path.display(), controllers.join(" "))
            }
            CgroupHome::Scope { controllers } => {
                format!("the service manager delegates only: {}", controllers.join(" "))
            }
        }
    }
}
