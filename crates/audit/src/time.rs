//! Moments as RFC 3339 in UTC with microseconds, always of one length, so that their text sorts as they do. Owns the
//! conversion both ways; no time zones and no leap seconds. Used by the writer, and by `cli` for `--since`.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (year, month, day) = date(seconds / DAY);
        let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// Year, month and day of a day since 1970, after Hinnant: years begin in March, so that the odd day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn days_until(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

/// `2026-11-15`, `2026-11-15T08:30`, with seconds and their fraction, with or without `Z`; always UTC.
pub fn parse_stamp(text: &str) -> Option<Stamp> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date_part, time_part) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date_fields = date_part.split('-').map(number);
    let (year, month, day) = (date_fields.next()??, date_fields.next()??, date_fields.next()??);
    let (whole, fraction) = time_part.split_once('.').unwrap_or((time_part, "0"));
    let mut fields = whole.split(':').map(number);
    let (hour, minute, second) = (fields.next()??, fields.next()??, fields.next().unwrap_or(Some(0))?);
    let plausible = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !plausible || fraction.len() > 6 || date_fields.next().is_some() || fields.next().is_some() {
        return None;
    }
    let micros = number(&format!("{fraction:0<6}"))?;
    let days = days_until(year, month, day)?;
    Some(Stamp(((days * DAY) + hour * 3600 + minute * 60 + second) * 1_000_000 + micros))
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_it_was_written() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_794_730_200_123_456, "2026-11-15T08:10:00.123456Z"),
            (4_107_542_399_000_000, "2100-02-28T23:59:59.000000Z"),
        ] {
            assert_eq!(Stamp(micros).to_string(), text);
            assert_eq!(parse_stamp(text), Some(Stamp(micros)));
        }
        assert_eq!(parse_stamp("1970-01-02"), Some(Stamp(DAY * 1_000_000)));
        assert_eq!(parse_stamp("1970-01-01 00:01"), Some(Stamp(60_000_000)));
        for text in ["", "yesterday", "2026-13-01", "2026-11-15T25:00", "2026-11-15T08:30:00+01:00", "+026-01-01"] {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
    }
}
