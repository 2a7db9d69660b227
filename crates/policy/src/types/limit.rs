//! One limit and its value, whichever it is. Owns the one list that joins a limit's field, its key in files and its
//! notation, and which of two values is the tighter; knows no layers and no mechanism.
//! Used by `merge`, `tighten`, `ceilings` and `explain`, so that none of them lists the limits again.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::language::cpu_set::is_subset;
use crate::language::quantity::{written_cpus, written_size, written_time};
use crate::types::origin::{Origin, Ruled};

/// How much of the machine a session may use. What enforces each is the plan's business; nothing here is a promise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Limits {
    /// Wall-clock time for the whole run.
    pub timeout: Option<Ruled<Duration>>,
    /// CPU seconds of all processes together.
    pub cpu_seconds: Option<Ruled<u64>>,
    /// Thousandths of a CPU that may be used at once: 1500 is one and a half.
    pub cpu_millis: Option<Ruled<u32>>,
    /// The CPUs that may be used, as the kernel writes a list: `0-3,6`.
    pub cpu_set: Option<Ruled<String>>,
    /// Memory of all processes together, in bytes; swap is never used.
    pub memory: Option<Ruled<u64>>,
    /// Memory above which the session is slowed down, in bytes.
    pub memory_high: Option<Ruled<u64>>,
    /// Bytes and operations a second, for each disk that the session can write to.
    pub io_read: Option<Ruled<u64>>,
    pub io_write: Option<Ruled<u64>>,
    pub io_read_ops: Option<Ruled<u64>>,
    pub io_write_ops: Option<Ruled<u64>>,
    pub open_files: Option<Ruled<u64>>,
    /// Largest single file, in bytes.
    pub file_size: Option<Ruled<u64>>,
    /// Size of each private temporary file system, in bytes, and how many files it holds.
    pub tmp_size: Option<Ruled<u64>>,
    pub tmp_inodes: Option<Ruled<u64>>,
    /// What the session may add to each file system of the host that it can write to: bytes and files.
    pub storage: Option<Ruled<u64>>,
    pub inodes: Option<Ruled<u64>>,
    /// Bytes written to stdout and stderr together.
    pub output: Option<Ruled<u64>>,
}

/// Less than this is a forgotten unit: no program starts in it.
const LEAST_MEMORY: u64 = 4 << 20;

/// The kernel's least quota is a millisecond, of a period of 100 by custom.
const LEAST_CPU_MILLIS: u32 = 10;

/// With fewer the sandbox cannot set itself up.
const LEAST_OPEN_FILES: u64 = 16;

/// Whether a value grants no more than another.
pub(crate) trait Within {
    fn is_within(&self, most: &Self) -> bool;
}

macro_rules! within_by_order {
    ($($type:ty),+) => {
        $(impl Within for $type {
            fn is_within(&self, most: &Self) -> bool {
                self <= most
            }
        })+
    };
}

within_by_order!(u32, u64, Duration);

/// The one text among the limits is a list of CPUs.
impl Within for String {
    fn is_within(&self, most: &Self) -> bool {
        is_subset(self, most)
    }
}

/// Each line: variant, its value and type, the field of [`Limits`], the key in the table `limits`, the value as it is written.
macro_rules! limits {
    ($($variant:ident($value:ident: $type:ty), $field:ident, $key:literal, $written:expr;)+) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Limit {
            $($variant($type),)+
        }

        impl Limit {
            /// Its name in the table `limits` of a policy file.
            pub fn key(&self) -> &'static str {
                match self { $(Limit::$variant(_) => $key,)+ }
            }

            /// Its value as a person would write it: `512M`.
            pub fn amount(&self) -> String {
                match self { $(Limit::$variant($value) => $written,)+ }
            }
        }

        /// Of two values of the same limit; two limits cannot be compared.
        impl Within for Limit {
            fn is_within(&self, most: &Self) -> bool {
                match (self, most) {
                    $((Limit::$variant(value), Limit::$variant(most)) => value.is_within(most),)+
                    _ => false,
                }
            }
        }

        impl Limits {
            pub(crate) fn set(&mut self, limit: Limit, origin: Origin) {
                match limit { $(Limit::$variant(value) => self.$field = Some(Ruled::new(value, origin)),)+ }
            }

            /// The value here of the limit that `limit` is a value of.
            pub(crate) fn same(&self, limit: &Limit) -> Option<Ruled<Limit>> {
                match limit { $(Limit::$variant(_) => self.$field.as_ref().map(|now| now.map(Limit::$variant)),)+ }
            }

            /// What is set, in the order of the format.
            pub fn each(&self) -> impl Iterator<Item = Ruled<Limit>> {
                let set = [$(self.$field.as_ref().map(|now| now.map(Limit::$variant)),)+];
                set.into_iter().flatten()
            }
        }
    };
}

limits! {
    Timeout(time: Duration), timeout, "timeout", written_time(*time);
    CpuSeconds(seconds: u64), cpu_seconds, "cpu", written_time(Duration::from_secs(*seconds));
    CpuMillis(thousandths: u32), cpu_millis, "cpus", written_cpus(*thousandths);
    CpuSet(list: String), cpu_set, "cpu_set", list.clone();
    Memory(bytes: u64), memory, "memory", written_size(*bytes);
    MemoryHigh(bytes: u64), memory_high, "memory_high", written_size(*bytes);
    IoRead(bytes: u64), io_read, "io.read", written_size(*bytes);
    IoWrite(bytes: u64), io_write, "io.write", written_size(*bytes);
    IoReadOps(count: u64), io_read_ops, "io.read_ops", count.to_string();
    IoWriteOps(count: u64), io_write_ops, "io.write_ops", count.to_string();
    OpenFiles(count: u64), open_files, "open_files", count.to_string();
    FileSize(bytes: u64), file_size, "file_size", written_size(*bytes);
    TmpSize(bytes: u64), tmp_size, "tmp_size", written_size(*bytes);
    TmpInodes(count: u64), tmp_inodes, "tmp_inodes", count.to_string();
    Storage(bytes: u64), storage, "storage", written_size(*bytes);
    Inodes(count: u64), inodes, "inodes", count.to_string();
    Output(bytes: u64), output, "output", written_size(*bytes);
}

impl Limit {
    /// What a usable value would be, where this is none. To the kernel a zero often means "no limit".
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        match self {
            Limit::Memory(bytes) | Limit::MemoryHigh(bytes) if *bytes < LEAST_MEMORY => {
                Some("at least 4M: is a unit missing, as in `512M`?")
            }
            Limit::OpenFiles(count) if (1..LEAST_OPEN_FILES).contains(count) => Some("at least 16"),
            Limit::CpuMillis(thousandths) if *thousandths < LEAST_CPU_MILLIS => Some("at least 0.01"),
            Limit::CpuSeconds(0)
            | Limit::IoRead(0)
            | Limit::IoWrite(0)
            | Limit::IoReadOps(0)
            | Limit::IoWriteOps(0)
            | Limit::OpenFiles(0)
            | Limit::FileSize(0)
            | Limit::TmpSize(0)
            | Limit::TmpInodes(0)
            | Limit::Storage(0)
            | Limit::Inodes(0)
            | Limit::Output(0) => Some("at least 1; without a limit, leave the setting out"),
            Limit::Timeout(time) if time.is_zero() => Some("at least 1s"),
            _ => None,
        }
    }
}

impl fmt::Display for Limit {
    /// As it would stand in a policy file: `limits.memory = "512M"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.amount();
        let is_number = matches!(self, Limit::CpuMillis(_)) || amount.parse::<i64>().is_ok();
        if is_number {
            write!(f, "limits.{} = {amount}", self.key())
        } else {
            write!(f, "limits.{} = \"{amount}\"", self.key())
        }
    }
}

impl Limits {
    /// Takes over a limit that is not set here, or not as tight.
    pub(crate) fn lower(&mut self, limit: Ruled<Limit>) {
        if self.same(&limit.value).is_none_or(|now| !now.value.is_within(&limit.value)) {
            self.set(limit.value, limit.origin);
        }
    }
}
