//! Amounts with units: times (`"10m"`) and sizes (`"512M"`). Owns their notation in files, flags and variables;
//! does not know limits or maxima. Called by `file`, `ceilings`, `variables` and by the edge for flags.

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

/// Seconds, or a number with `s`, `m`, `h` or `d`. Zero is no time limit anyone means, so it is refused.
pub fn parse_time(text: &str) -> Option<Duration> {
    let seconds = scaled(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)])?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Bytes, or a number with `K`, `M`, `G` or `T` (also written `KiB`, `MB`, `k` and so on).
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let text = text.strip_suffix('i').unwrap_or(text);
    scaled(&text.to_ascii_uppercase(), &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)])
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let found = units.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, *factor)));
    let (number, factor) = found.unwrap_or((text, 1));
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(factor)
}

struct Amount {
    expected: &'static str,
    parse: fn(&str) -> Option<u64>,
}

impl Visitor<'_> for Amount {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<u64, E> {
        (self.parse)(value).ok_or_else(|| E::custom(format_args!("`{value}` is not {}", self.expected)))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| parse_time(text).map(|time| time.as_secs());
        let seconds = deserializer.deserialize_any(Amount { expected: TIME, parse })?;
        Ok(Time(Duration::from_secs(seconds)))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Amount { expected: SIZE, parse: parse_size }).map(Size)
    }
}

pub(crate) const TIME: &str = "a time such as `90s`, `10m` or `2h`";
pub(crate) const SIZE: &str = "a size such as `10M` or `1G`";

#[cfg(feature = "schema")]
mod schema {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    use std::borrow::Cow;

    macro_rules! text_or_number {
        ($type:ident, $description:expr) => {
            impl JsonSchema for super::$type {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($type).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "type": ["string", "integer"], "description": $description })
                }
            }
        };
    }
    text_or_number!(Time, super::TIME);
    text_or_number!(Size, super::SIZE);
}
