//! Moments as RFC 3339 in UTC with microseconds, always of one length, so that their text sorts as they do. Owns the
//! conversion both ways; no time zones and no leap seconds. Used by the writer, by `cli` for `--since` and by `host` for the day in policy files.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::{Date, Month, Time, UtcDateTime};

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }

    /// That long before.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        Stamp(self.0.saturating_sub(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The day in UTC, as `2026-11-15`.
    pub fn day(self) -> String {
        let mut text = self.to_string();
        text.truncate("2026-11-15".len());
        text
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        // `time` ends with the year 9999 (without its feature `large-dates`): later, the text would have another length.
        let moment = i64::try_from(seconds).ok().and_then(|seconds| UtcDateTime::from_unix_timestamp(seconds).ok());
        let moment = moment.unwrap_or(UtcDateTime::MAX);
        let (year, month, day) = moment.to_calendar_date();
        let (hour, minute, second) = moment.as_hms();
        write!(f, "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", u8::from(month))
    }
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
    if fraction.len() > 6 || date_fields.next().is_some() || fields.next().is_some() {
        return None;
    }
    let short = |value: u64| u8::try_from(value).ok();
    let month = Month::try_from(short(month)?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, short(day)?).ok()?;
    let time = Time::from_hms(short(hour)?, short(minute)?, short(second)?).ok()?;
    let seconds = u64::try_from(UtcDateTime::new(date, time).unix_timestamp()).ok()?;
    Some(Stamp(seconds * 1_000_000 + number(&format!("{fraction:0<6}"))?))
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
        assert_eq!(parse_stamp("1970-01-02"), Some(Stamp(86_400_000_000)));
        assert_eq!(parse_stamp("1970-01-01 00:01"), Some(Stamp(60_000_000)));
        for text in ["", "yesterday", "2026-13-01", "2026-11-15T25:00", "2026-11-15T08:30:00+01:00", "+026-01-01"] {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
        for text in ["2026-02-29", "2026-04-31", "1969-12-31", "10000-01-01", "2026-11-15T08:30:60"] {
            assert_eq!(parse_stamp(text), None, "{text} is no valid date or time");
        }
        assert_eq!(Stamp(u64::MAX).day(), "9999-12-31", "of the same length as any");
        let days = [0, 59, 789, 11_016, 20_772].map(|days| Stamp((days * 86_400 + 5) * 1_000_000).day());
        assert_eq!(days.join(" "), "1970-01-01 1970-03-01 1972-02-29 2000-02-29 2026-11-15");
    }
}
