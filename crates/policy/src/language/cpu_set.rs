//! Lists of CPUs as the kernel writes them: `0-3,6`. Owns their notation and comparison; which CPUs a machine has is
//! `plan`'s to know. Called by `format::limits` and `types::limit`.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer};

use crate::language::quantity::{Notation, Text};

/// The largest number of CPUs that Linux can be built for.
const MOST: u32 = 8192;

/// A list in its one shortest form: sorted, no CPU twice, neighbours joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuSet(pub(crate) String);

/// The ranges of a list: sorted, at least one, none touches another.
pub fn parse_cpu_set(text: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let mut ranges = text.split(',').map(range).collect::<Option<Vec<_>>>()?;
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut joined: Vec<RangeInclusive<u32>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if *range.start() <= last.end() + 1 => *last = *last.start()..=*last.end().max(range.end()),
            _ => joined.push(range),
        }
    }
    Some(joined)
}

fn range(text: &str) -> Option<RangeInclusive<u32>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && *number < MOST)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}

/// Whether every CPU of one list is on the other. What is no list is within nothing.
pub(crate) fn is_subset(inner: &str, outer: &str) -> bool {
    let (Some(inner), Some(outer)) = (parse_cpu_set(inner), parse_cpu_set(outer)) else { return false };
    inner.iter().all(|part| outer.iter().any(|range| range.contains(part.start()) && range.contains(part.end())))
}

fn written(ranges: &[RangeInclusive<u32>]) -> String {
    let mut text = String::new();
    for range in ranges {
        let comma = if text.is_empty() { "" } else { "," };
        let done = if range.start() == range.end() {
            write!(text, "{comma}{}", range.start())
        } else {
            write!(text, "{comma}{}-{}", range.start(), range.end())
        };
        done.unwrap_or_default(); // a String takes everything
    }
    text
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| parse_cpu_set(text).map(|ranges| written(&ranges));
        deserializer.deserialize_any(Text { expected: CPU_SET, parse }).map(CpuSet)
    }
}

impl Notation<String> for CpuSet {
    fn kept(self) -> String {
        self.0
    }

    fn written(kept: &String) -> String {
        kept.clone()
    }
}

pub(crate) const CPU_SET: &str = "a list of CPUs such as `0-3,6`";

#[cfg(feature = "schema")]
crate::language::quantity::text_or_number!(CpuSet, CPU_SET, ["string", "integer"]);
