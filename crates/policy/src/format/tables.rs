//! The tables of policy files, made of the rows of `types::table`: what serde reads, and what the JSON schema says. Owns the
//! reading of settings with one value; what lists mean is `file`'s and `network`'s. Used by `file` and `requirements`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::format::spanned::At;
use crate::format::values::{CredentialTable, HostEntry, PathEntry, Texts};
use crate::language::cpu_set::CpuSet;
use crate::language::quantity::{Cpus, Notation, Quantum, Retention, Size, Time};
use crate::types::files::Access;
use crate::types::network::{AgentUse, NetworkMode};
use crate::types::policy::{
    EnvMode, Isolation, KeeperMode, Metadata, Mode, OnCritical, OnUnknown, SyscallMode, Transaction, TransactionMode,
};
use crate::types::scalar::Scalar;
use crate::types::table::settings;

pub(crate) trait Table {
    /// What has one value and is set, in the order of the format.
    fn scalars(&self) -> Vec<At<Scalar>>;
}

macro_rules! tables {
    ($($(#[$about:meta])* $struct:ident $table:literal $prefix:literal {
        $($(#[$help:meta])+ $key:ident: $notation:ty => $variant:ident($kept:ty) in $($place:ident).+
            $(, shown $shown:literal)? $(, least $least:expr => $expected:expr)* $(, only $layer:ident)?;)*
    } lists { $($(#[$list_help:meta])* $list:ident: $type:ty,)* })+) => {
        $(
            $(#[$about])*
            #[derive(Debug, Default, Deserialize)]
            #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
            #[serde(deny_unknown_fields, default)]
            pub(crate) struct $struct {
                $($(#[$help])+ pub(crate) $key: Option<At<$notation>>,)*
                $($(#[$list_help])* pub(crate) $list: $type,)*
            }

            impl Table for $struct {
                fn scalars(&self) -> Vec<At<Scalar>> {
                    let set: [Option<At<Scalar>>; _] =
                        [$(self.$key.as_ref().map(|at| at.map(|value| Scalar::$variant(value.kept()))),)*];
                    set.into_iter().flatten().collect()
                }
            }
        )+
    };
}

settings!(tables);

impl LimitsTable {
    /// Those of its own table `io`, too.
    pub(crate) fn every_scalar(&self) -> impl Iterator<Item = At<Scalar>> {
        self.scalars().into_iter().chain(self.io.scalars())
    }
}

/// What no request may exceed once the preset was chosen.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MostTable {
    pub(crate) process: MostProcessTable,
    pub(crate) limits: LimitsTable,
}

/// What a ceiling can say about processes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MostProcessTable {
    pub(crate) max: Option<At<u32>>,
}
