//! A setting with one value, whichever it is. Owns what the rows of the table make of it: its value, name and notation, which of
//! two values is the stricter, what is no usable value, and where a policy keeps it; knows no layers and no mechanism.
//! Used by everything that reads, merges, limits, compares or prints settings, so that none of them lists the settings again.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use crate::language::cpu_set::{CpuSet, is_subset};
use crate::language::quantity::{Cpus, Notation, Quantum, Retention, Size, Time};
use crate::types::files::Access;
use crate::types::network::{AgentUse, NetworkMode};
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::{
    EnvMode, Isolation, KeeperMode, Metadata, Mode, OnCritical, OnUnknown, Policy, SyscallMode, Transaction,
    TransactionMode,
};
use crate::types::table::settings;

/// Less than this is a forgotten unit: no program starts in it.
const LEAST_MEMORY: u64 = 4 << 20;
const ENOUGH_MEMORY: &str = "at least 4M: is a unit missing, as in `512M`?";

/// The kernel's least quota is a millisecond, of a period of 100 by custom.
const LEAST_CPU_MILLIS: u32 = 10;

/// With fewer the sandbox cannot set itself up.
const LEAST_OPEN_FILES: u64 = 16;

/// To the kernel a zero often means "no limit".
const SOME: &str = "at least 1; without a limit, leave the setting out";
const SOME_NETWORK: &str = "at least 1; without a network, `mode = \"none\"`";
const SECOND: Duration = Duration::from_secs(1);
const SOME_TIME: &str = "at least 1s";

/// A caller waits for it at every end.
const LONGEST_QUANTUM: Quantum = Quantum(10_000);

/// Which of two values is the stricter.
trait Strictness {
    /// Less is stricter; nothing where neither allows all that the other does.
    fn against(&self, other: &Self) -> Option<Ordering>;
}

macro_rules! stricter_first {
    ($($type:ty),+) => {
        $(impl Strictness for $type {
            fn against(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        })+
    };
}

stricter_first!(u32, u64, Duration, bool);
stricter_first!(
    Access,
    AgentUse,
    EnvMode,
    KeeperMode,
    Metadata,
    NetworkMode,
    OnCritical,
    OnUnknown,
    SyscallMode,
    Transaction,
    TransactionMode
);

impl Strictness for Isolation {
    fn against(&self, other: &Self) -> Option<Ordering> {
        Some(other.cmp(self))
    }
}

/// A longer one tells less.
impl Strictness for Quantum {
    fn against(&self, other: &Self) -> Option<Ordering> {
        Some(other.cmp(self))
    }
}

/// What is kept longer says more of what was done.
impl Strictness for Retention {
    fn against(&self, other: &Self) -> Option<Ordering> {
        Some(other.cmp(self))
    }
}

/// Static mode shows what no rule is about.
impl Strictness for Mode {
    fn against(&self, other: &Self) -> Option<Ordering> {
        Some((*self == Mode::Static).cmp(&(*other == Mode::Static)))
    }
}

/// The one text is a list of CPUs.
impl Strictness for String {
    fn against(&self, other: &Self) -> Option<Ordering> {
        match (is_subset(self, other), is_subset(other, self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

/// A field of a policy that holds one value.
trait Field<T> {
    fn said(&self) -> Option<Ruled<T>>;
    fn say(&mut self, value: Ruled<T>);
}

impl<T: Clone> Field<T> for Ruled<T> {
    fn said(&self) -> Option<Ruled<T>> {
        Some(self.clone())
    }

    fn say(&mut self, value: Ruled<T>) {
        *self = value;
    }
}

impl<T: Clone> Field<T> for Option<Ruled<T>> {
    fn said(&self) -> Option<Ruled<T>> {
        self.clone()
    }

    fn say(&mut self, value: Ruled<T>) {
        *self = Some(value);
    }
}

/// An approval, which is there or not.
impl Field<bool> for Option<Origin> {
    fn said(&self) -> Option<Ruled<bool>> {
        Some(Ruled::new(self.is_some(), self.clone().unwrap_or_else(Origin::default_value)))
    }

    fn say(&mut self, value: Ruled<bool>) {
        *self = value.value.then_some(value.origin);
    }
}

/// The first of these, for columns that can be left out.
macro_rules! first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}

macro_rules! scalars {
    ($($(#[$about:meta])* $struct:ident $table:literal $prefix:literal {
        $($(#[$help:meta])+ $key:ident: $notation:ty => $variant:ident($kept:ty) in $($place:ident).+
            $(, shown $shown:literal)? $(, least $least:expr => $expected:expr)* $(, only $layer:ident)?;)*
    } lists { $($lists:tt)* })+) => {
        /// A setting and its value.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Scalar {
            $($($(#[$help])+ $variant($kept),)*)+
        }

        impl Scalar {
            /// The table of a policy file that it stands in; empty at the top.
            pub(crate) fn table(&self) -> &'static str {
                match self { $($(Scalar::$variant(_) => $table,)*)+ }
            }

            /// Its name in that table.
            pub fn key(&self) -> &'static str {
                match self { $($(Scalar::$variant(_) => concat!($prefix, stringify!($key)),)*)+ }
            }

            /// What it is called where a person reads a policy.
            pub fn label(&self) -> &'static str {
                match self { $($(Scalar::$variant(_) => first!($($shown,)? self.key()),)*)+ }
            }

            /// Its value as a person would write it: `512M`.
            pub fn amount(&self) -> String {
                match self { $($(Scalar::$variant(value) => <$notation as Notation<$kept>>::written(value),)*)+ }
            }

            fn is_bare(&self) -> bool {
                match self { $($(Scalar::$variant(_) => <$notation as Notation<$kept>>::IS_BARE,)*)+ }
            }

            /// What a usable value would be, where this is none.
            pub(crate) fn mistake(&self) -> Option<&'static str> {
                match self { $($(Scalar::$variant(value) => {
                    let least: &[($kept, &'static str)] = &[$(($least, $expected)),*];
                    least.iter().find(|(least, _)| value.against(least) == Some(Ordering::Less)).map(|(_, expected)| *expected)
                })*)+ }
            }

            /// The one layer that may say it.
            pub(crate) fn only_layer(&self) -> Option<Layer> {
                match self { $($(Scalar::$variant(_) => first!($(Some(Layer::$layer),)? None),)*)+ }
            }

            /// Less is stricter. Two settings cannot be compared, nor two values of which neither allows all that the other does.
            fn against(&self, other: &Self) -> Option<Ordering> {
                match (self, other) {
                    $($((Scalar::$variant(value), Scalar::$variant(other)) => value.against(other),)*)+
                    _ => None,
                }
            }
        }

        impl Policy {
            pub(crate) fn set(&mut self, scalar: Scalar, origin: Origin) {
                match scalar {
                    $($(Scalar::$variant(value) => self.$($place).+.say(Ruled::new(value, origin)),)*)+
                }
            }

            /// The value here of the setting that `scalar` is a value of.
            pub(crate) fn same(&self, scalar: &Scalar) -> Option<Ruled<Scalar>> {
                match scalar {
                    $($(Scalar::$variant(_) => self.$($place).+.said().map(|now| now.map(Scalar::$variant)),)*)+
                }
            }

            /// Every setting that has a value, in the order of the format.
            pub fn scalars(&self) -> impl Iterator<Item = Ruled<Scalar>> {
                [$($(self.$($place).+.said().map(|now| now.map(Scalar::$variant)),)*)+].into_iter().flatten()
            }
        }
    };
}

settings!(scalars);

impl Scalar {
    /// Table and key: `limits.memory`.
    pub(crate) fn name(&self) -> String {
        let dot = if self.table().is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.table(), self.key())
    }

    /// Whether it grants no more than another value of the same setting.
    pub(crate) fn is_within(&self, most: &Self) -> bool {
        self.against(most).is_some_and(Ordering::is_le)
    }

    /// Its value as a file has it.
    pub(crate) fn value(&self, quote: fn(&str) -> String) -> String {
        let amount = self.amount();
        if self.is_bare() || amount.parse::<i64>().is_ok() { amount } else { quote(&amount) }
    }
}

impl fmt::Display for Scalar {
    /// As it would stand in a policy file: `limits.memory = "512M"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name(), self.value(|text| format!("{text:?}")))
    }
}

impl Policy {
    /// Those of one table of a policy file.
    pub fn scalars_of(&self, table: &'static str) -> impl Iterator<Item = Ruled<Scalar>> {
        self.scalars().filter(move |scalar| scalar.value.table() == table)
    }
}
