//! What keeps a name hidden, unwritable or absent while a session runs: one entry for each cover of a plan. Owns the words
//! by which `explain`, the posture and the keeper know a cover; `mounts` decides which there are, and makes the steps.
//! The kernel takes a mount off when its mount point is removed or replaced in any mount namespace, so an entry says whose
//! the mount point is.

use std::path::PathBuf;

use serde::Serialize;

use crate::facts::path::Kind;
use crate::posture::Posture;

/// What a cover is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Covered {
    /// Cannot be read.
    Hidden,
    /// Can be read without the values of secret names, and not be changed.
    Masked,
    /// Can be read and not be changed.
    Protected,
    /// Does not exist on the host and must not appear.
    Held,
    /// A process of the host listens there.
    Socket,
    /// A directory on the way to one of the others: it cannot be renamed.
    Parent,
}

/// Whose the directory entry is that a cover stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandsOn {
    /// The host's: a host program that removes or replaces the name takes the cover off.
    Host,
    /// The sandbox's: a FUSE root, a layer of an overlay, a private file system. No host program reaches it.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptBy {
    /// It cannot fall.
    Itself,
    /// The supervisor watches the name and covers what appears there.
    Keeper,
    /// It falls when a host program replaces what it covers.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cover {
    pub path: PathBuf,
    pub what: Covered,
    pub kind: Kind,
    pub stands_on: StandsOn,
    pub kept_by: KeptBy,
    /// The tree that is written directly and that it lies in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<PathBuf>,
}

impl Cover {
    /// Whether the supervisor's keeper watches it.
    pub fn is_watched(&self) -> bool {
        self.kept_by == KeptBy::Keeper
    }

    /// Why it cannot fall, or what becomes of it.
    pub fn why(&self) -> &'static str {
        match self.kept_by {
            KeptBy::Itself => "stands on a name of the sandbox's own: no host program reaches it",
            KeptBy::Keeper => "stands on a name of the host; a keeper watches it",
            KeptBy::Nothing => "stands on a name of the host: a host program that replaces it takes the cover off",
        }
    }
}

pub(crate) fn tell(covers: &[Cover], posture: &mut Posture) {
    let kept = |by: KeptBy| covers.iter().filter(|cover| cover.kept_by == by).count();
    let (own, watched, loose) = (kept(KeptBy::Itself), kept(KeptBy::Keeper), kept(KeptBy::Nothing));
    let mut said = vec![format!("{own} on names of the sandbox's own")];
    if watched > 0 {
        said.push(format!("{watched} on names of the host, watched by a keeper"));
    }
    if loose > 0 {
        said.push(format!("{loose} on names of the host: a host program that replaces one takes it off"));
    }
    if watched + loose > 0 {
        posture.reduced("covers", said.join(", "));
    } else {
        posture.enforced("covers", said.join(", "));
    }
}
