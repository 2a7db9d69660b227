//! The table `limits` of policy files and requirements, which is the same in both. Owns its keys and the settings they
//! stand for; what a limit may be is `types::limit`'s and `types::validate`'s. Called by `file` and
//! `requirements`.

use serde::Deserialize;

use crate::format::spanned::At;
use crate::language::cpu_set::CpuSet;
use crate::language::quantity::{Cpus, Size, Time};
use crate::types::limit::Limit;

/// How much of the machine a session may use: all its processes together, where nothing else is said.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsTable {
    /// Wall-clock time for the whole run.
    timeout: Option<At<Time>>,
    /// CPU time.
    cpu: Option<At<Time>>,
    /// CPUs used at once; `1.5` is one and a half.
    cpus: Option<At<Cpus>>,
    /// The CPUs that may be used.
    cpu_set: Option<At<CpuSet>>,
    /// Memory; swap is never used.
    memory: Option<At<Size>>,
    /// Memory above which the session is slowed down.
    memory_high: Option<At<Size>>,
    io: IoTable,
    /// Descriptors of each process.
    open_files: Option<At<u64>>,
    /// Largest single file.
    file_size: Option<At<Size>>,
    /// Size of each private temporary file system.
    tmp_size: Option<At<Size>>,
    /// Files and directories in each private temporary file system.
    tmp_inodes: Option<At<u64>>,
    /// Bytes that may be added to each file system of the host.
    storage: Option<At<Size>>,
    /// Files and directories that may be added to each file system of the host.
    inodes: Option<At<u64>>,
    /// Bytes written to stdout and stderr together.
    output: Option<At<Size>>,
}

/// What a second may take, for each disk.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct IoTable {
    /// Bytes read a second.
    read: Option<At<Size>>,
    /// Bytes written a second.
    write: Option<At<Size>>,
    /// Reads a second.
    read_ops: Option<At<u64>>,
    /// Writes a second.
    write_ops: Option<At<u64>>,
}

impl LimitsTable {
    /// What is set, in the order of the format.
    pub(crate) fn limits(self) -> impl Iterator<Item = At<Limit>> {
        [
            at(self.timeout, |time| Limit::Timeout(time.0)),
            at(self.cpu, |time| Limit::CpuSeconds(time.0.as_secs())),
            at(self.cpus, |cpus| Limit::CpuMillis(cpus.0)),
            at(self.cpu_set, |list| Limit::CpuSet(list.0)),
            at(self.memory, |size| Limit::Memory(size.0)),
            at(self.memory_high, |size| Limit::MemoryHigh(size.0)),
            at(self.io.read, |size| Limit::IoRead(size.0)),
            at(self.io.write, |size| Limit::IoWrite(size.0)),
            at(self.io.read_ops, Limit::IoReadOps),
            at(self.io.write_ops, Limit::IoWriteOps),
            at(self.open_files, Limit::OpenFiles),
            at(self.file_size, |size| Limit::FileSize(size.0)),
            at(self.tmp_size, |size| Limit::TmpSize(size.0)),
            at(self.tmp_inodes, Limit::TmpInodes),
            at(self.storage, |size| Limit::Storage(size.0)),
            at(self.inodes, Limit::Inodes),
            at(self.output, |size| Limit::Output(size.0)),
        ]
        .into_iter()
        .flatten()
    }
}

fn at<T>(value: Option<At<T>>, limit: impl FnOnce(T) -> Limit) -> Option<At<Limit>> {
    value.map(|At { value, offset }| At { value: limit(value), offset })
}
