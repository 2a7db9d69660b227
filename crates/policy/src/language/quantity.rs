//! Amounts with units: times (`"10m"`), sizes (`"512M"`) and CPUs (`1.5`). Owns their notation in files, flags and
//! variables; does not know limits or maxima. Called by `types::scalar`, `format` and by the edge.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// `90`, `"90s"`, `"10m"`, `"2h"`, `"1d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

/// `4096`, `"10K"`, `"512M"`, `"1G"`, `"1T"`; units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// `1`, `0.5`, `"1.5"`; kept in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) u32);

/// `"100ms"`, `"1s"`: what a time is rounded up to, in thousandths of a second. More of it tells less, so it is the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Quantum(pub u64);

/// `"90d"`, `"forever"`: how long records are kept, in days. Less than a day is a forgotten unit, and a record that is gone does not
/// come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Retention(pub u64);

impl Retention {
    pub const FOREVER: Retention = Retention(u64::MAX);

    /// None where records are kept forever.
    pub fn time(self) -> Option<Duration> {
        let seconds = self.0.checked_mul(86_400)?;
        Some(Duration::from_secs(seconds))
    }
}

const QUANTUM_UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1000)];
const TIME_UNITS: &[(&str, u64)] = &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
const SIZE_UNITS: &[(&str, u64)] = &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

/// Longer than any session; a moment that far away can still be written down.
const LONGEST: u64 = 100 * 366 * 86_400;

/// Seconds, or a number with `s`, `m`, `h` or `d`. Zero and more than a century are mistakes, so they are refused.
pub fn parse_time(text: &str) -> Option<Duration> {
    let seconds = scaled(text, TIME_UNITS)?;
    (1..=LONGEST).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// A number with `ms` or `s`, but zero.
fn parse_quantum(text: &str) -> Option<u64> {
    let has_unit = text.ends_with('s');
    scaled(text, QUANTUM_UNITS).filter(|millis| has_unit && *millis > 0)
}

fn parse_retention(text: &str) -> Option<u64> {
    if text == "forever" {
        return Some(Retention::FOREVER.0);
    }
    let days = text.strip_suffix('d').and_then(parse_count)?;
    (1..=LONGEST / 86_400).contains(&days).then_some(days)
}

/// Bytes, or a number with `K`, `M`, `G` or `T` (also written `KiB`, `MB`, `k` and so on).
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let text = text.strip_suffix('i').unwrap_or(text);
    scaled(&text.to_ascii_uppercase(), SIZE_UNITS)
}

/// Thousandths of a CPU, from a number with at most three decimals.
pub fn parse_cpus(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let thousandths: u32 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(thousandths)
}

/// A plain number: no sign, no unit.
pub fn parse_count(text: &str) -> Option<u64> {
    scaled(text, &[])
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let found = units.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, *factor)));
    let (number, factor) = found.unwrap_or((text, 1));
    if !is_digits(number) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// In the largest unit that leaves no rest; nothing is rounded.
fn in_largest_unit(amount: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| amount >= *factor && amount.is_multiple_of(*factor);
    match units.iter().rev().find(fits) {
        Some((unit, factor)) => format!("{}{unit}", amount / factor),
        None => amount.to_string(),
    }
}

/// How a value stands in a file, and what a policy keeps of it.
pub(crate) trait Notation<Kept> {
    /// Whether TOML has it without quotes.
    const IS_BARE: bool = false;

    fn kept(self) -> Kept;

    /// As a person would write it.
    fn written(kept: &Kept) -> String;
}

macro_rules! kept_as_it_is {
    ($($type:ty),+) => {
        $(impl Notation<$type> for $type {
            const IS_BARE: bool = true;

            fn kept(self) -> $type {
                self
            }

            fn written(kept: &$type) -> String {
                kept.to_string()
            }
        })+
    };
}

kept_as_it_is!(u32, u64, bool);

impl Notation<Duration> for Time {
    fn kept(self) -> Duration {
        self.0
    }

    fn written(kept: &Duration) -> String {
        in_largest_unit(kept.as_secs(), TIME_UNITS)
    }
}

/// In seconds.
impl Notation<u64> for Time {
    fn kept(self) -> u64 {
        self.0.as_secs()
    }

    fn written(kept: &u64) -> String {
        in_largest_unit(*kept, TIME_UNITS)
    }
}

impl Notation<Quantum> for Quantum {
    fn kept(self) -> Quantum {
        self
    }

    fn written(kept: &Quantum) -> String {
        in_largest_unit(kept.0, QUANTUM_UNITS)
    }
}

impl Notation<Retention> for Retention {
    fn kept(self) -> Retention {
        self
    }

    fn written(kept: &Retention) -> String {
        if *kept == Retention::FOREVER { "forever".to_owned() } else { format!("{}d", kept.0) }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text { expected: RETENTION, parse: parse_retention }).map(Retention)
    }
}

impl<'de> Deserialize<'de> for Quantum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text { expected: QUANTUM, parse: parse_quantum }).map(Quantum)
    }
}

impl Notation<u64> for Size {
    fn kept(self) -> u64 {
        self.0
    }

    fn written(kept: &u64) -> String {
        in_largest_unit(*kept, SIZE_UNITS)
    }
}

impl Notation<u32> for Cpus {
    const IS_BARE: bool = true;

    fn kept(self) -> u32 {
        self.0
    }

    fn written(kept: &u32) -> String {
        let (whole, rest) = (kept / 1000, kept % 1000);
        let text = format!("{whole}.{rest:03}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Reads a value that is written as text or as a number.
pub(crate) struct Text<T> {
    pub(crate) expected: &'static str,
    pub(crate) parse: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        // With its point also where nothing follows it: `2.0` bytes are a slip.
        self.visit_str(&format!("{value:?}"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        (self.parse)(value).ok_or_else(|| E::custom(format_args!("`{value}` is not {}", self.expected)))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text { expected: TIME, parse: parse_time }).map(Time)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text { expected: SIZE, parse: parse_size }).map(Size)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text { expected: CPUS, parse: parse_cpus }).map(Cpus)
    }
}

pub(crate) const TIME: &str = "a time such as `90s`, `10m` or `2h`";
pub(crate) const QUANTUM: &str = "a time such as `100ms` or `1s`";
pub(crate) const RETENTION: &str = "days such as `90d`, or `forever`";
pub(crate) const SIZE: &str = "a size such as `512M` or `1G`";
pub(crate) const COUNT: &str = "a number such as `100`";
pub(crate) const CPUS: &str = "a number of CPUs such as `2` or `0.5`";

/// The schema of a value with more than one notation.
#[cfg(feature = "schema")]
macro_rules! text_or_number {
    ($type:ident, $description:expr, $types:tt) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": $types, "description": $description })
            }
        }
    };
}

#[cfg(feature = "schema")]
pub(crate) use text_or_number;

#[cfg(feature = "schema")]
mod schema {
    use super::{CPUS, Cpus, QUANTUM, Quantum, RETENTION, Retention, SIZE, Size, TIME, Time};

    text_or_number!(Time, TIME, ["string", "integer"]);
    text_or_number!(Size, SIZE, ["string", "integer"]);
    text_or_number!(Quantum, QUANTUM, ["string"]);
    text_or_number!(Retention, RETENTION, ["string"]);
    text_or_number!(Cpus, CPUS, ["string", "number"]);
}
