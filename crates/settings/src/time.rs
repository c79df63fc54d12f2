//! Times of rows and of settings: one rule for all formats.
//!
//! A time is unix seconds, as a number or as text, or an ISO 8601 date with an optional clock, fraction and offset. Fractions are
//! floored. Numbers that look like milliseconds or like a date written as a number are refused unless the source names their unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Result, SettingsError};

/// Time of a row that has none. Readers refuse this number as a time.
pub const NO_TIME: i64 = i64::MIN;

/// The last second of the year 9999, and the first of the year 1. Numbers beyond are no seconds.
const LAST_SECOND: i128 = 253_402_300_799;
const FIRST_SECOND: i128 = -62_135_596_800;

/// The unit of times that are numbers. Without one they are seconds, and numbers that look otherwise are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TimeUnit {
    /// Seconds since 1970-01-01 UTC, of any size.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds since then.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds since then.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds since then.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// A date in UTC whose digits are written as one number: 20240605, 202406051230 or 20240605123000.
    #[serde(rename = "calendar")]
    Calendar,
}

impl TimeUnit {
    /// All units, with their names.
    const ALL: [(Self, &'static str); 5] = [
        (Self::Seconds, "s"),
        (Self::Milliseconds, "ms"),
        (Self::Microseconds, "us"),
        (Self::Nanoseconds, "ns"),
        (Self::Calendar, "calendar"),
    ];

    /// The unit that a number looks to be in, where that is not seconds.
    fn guessed(value: i128) -> Option<Self> {
        if calendar(value).is_some() {
            return Some(Self::Calendar);
        }
        if (FIRST_SECOND..=LAST_SECOND).contains(&value) {
            return None;
        }
        Some(match value.unsigned_abs() {
            0..100_000_000_000_000 => Self::Milliseconds,
            100_000_000_000_000..100_000_000_000_000_000 => Self::Microseconds,
            _ => Self::Nanoseconds,
        })
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
            Self::Calendar => "a date written as one number",
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(unit, _)| unit == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

/// The error of a text that names no unit of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected s, ms, us, ns or calendar")]
pub struct NotATimeUnit;

impl FromStr for TimeUnit {
    type Err = NotATimeUnit;

    fn from_str(text: &str) -> Result<Self, NotATimeUnit> {
        let unit = Self::ALL.iter().find(|(_, name)| *name == text);
        unit.map(|(unit, _)| *unit).ok_or(NotATimeUnit)
    }
}

/// The seconds of a time that is text, `None` for blank text. The error says what was expected.
pub fn of_text(text: &str, unit: Option<TimeUnit>) -> Result<Option<i64>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(whole) = floored_number(text) {
        return of_integer(whole, unit).map(Some);
    }
    parse_date(text).map(Some).ok_or_else(expected)
}

/// The seconds of a time that is a number of floating point, `None` for NaN, which stands for no value.
pub fn of_float(value: f64, unit: Option<TimeUnit>) -> Result<Option<i64>, String> {
    if value.is_nan() {
        return Ok(None);
    }
    // Beyond 2^53 a number of floating point is no exact count of anything.
    if value.abs() > 9_007_199_254_740_992.0 && unit != Some(TimeUnit::Nanoseconds) {
        return Err(expected());
    }
    of_integer(value.floor() as i128, unit).map(Some)
}

/// The seconds of a time that is a whole number.
pub fn of_integer(value: i128, unit: Option<TimeUnit>) -> Result<i64, String> {
    let seconds = match unit {
        None => match TimeUnit::guessed(value) {
            None => i64::try_from(value).ok(),
            Some(unit) => {
                return Err(format!(
                    "{}; the number looks like {}: --time-unit {unit} (time_unit = \"{unit}\") reads it",
                    expected(),
                    unit.in_words()
                ));
            }
        },
        Some(TimeUnit::Seconds) => i64::try_from(value).ok(),
        Some(TimeUnit::Milliseconds) => floored(value, 1_000),
        Some(TimeUnit::Microseconds) => floored(value, 1_000_000),
        Some(TimeUnit::Nanoseconds) => floored(value, 1_000_000_000),
        Some(TimeUnit::Calendar) => {
            return calendar(value).ok_or_else(|| "a date such as 20240605 or 20240605123000".to_owned());
        }
    };
    seconds.filter(|&seconds| seconds != NO_TIME).ok_or_else(expected)
}

/// Whole seconds of a count of smaller units: the one place where times are floored.
#[must_use]
pub fn floored(value: i128, per_second: i128) -> Option<i64> {
    i64::try_from(value.div_euclid(per_second)).ok()
}

/// The times that are read, in words for an error.
#[must_use]
pub fn expected() -> String {
    "unix seconds or an ISO date such as 2024-06-05 or 2024-06-05T12:30:00Z".to_owned()
}

/// The floor of a decimal number such as `1717588800` or `-1.5`; `None` for other text, exponents among it.
fn floored_number(text: &str) -> Option<i128> {
    let (digits, negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(are_digits(whole) && are_digits(fraction)) {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let below = negative && fraction.bytes().any(|byte| byte != b'0');
    Some(if negative { -whole } else { whole } - i128::from(below))
}

/// The seconds of a number whose digits are a date of the years 1900 to 2100, with hour and minute, or with hour, minute and second.
fn calendar(value: i128) -> Option<i64> {
    let (date, clock) = match value {
        19_000_101..=21_001_231 => (value, 0),
        190_001_010_000..=210_012_312_359 => (value / 10_000, value % 10_000 * 100),
        19_000_101_000_000..=21_001_231_235_959 => (value / 1_000_000, value % 1_000_000),
        _ => return None,
    };
    let part = |number: i128, by: i128| i64::try_from(number / by % 100).ok();
    let year = i64::try_from(date / 10_000).ok()?;
    let midnight = midnight(year, part(date, 100)?, part(date, 1)?)?;
    Some(midnight + second_of_day(part(clock, 10_000)?, part(clock, 100)?, part(clock, 1)?)?)
}

/// A point in time: unix seconds, `"2024-06-05"` (midnight UTC) or `"2024-06-05T12:30:00Z"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "unix seconds or a date like \"2024-06-05\" or \"2024-06-05T12:30:00Z\""
)]
pub enum TimePoint {
    /// Seconds since 1970-01-01 UTC.
    Seconds(i64),
    /// An ISO 8601 date, or date and time; in UTC unless it has an offset.
    Date(String),
}

impl TimePoint {
    /// Reads what a person types: unix seconds or a date.
    ///
    /// # Errors
    /// A description of what was expected, for other text and for numbers that look like milliseconds or like a date.
    pub fn parse(text: &str) -> Result<Self, String> {
        match floored_number(text) {
            Some(value) => of_integer(value, None).map(Self::Seconds),
            None => Ok(Self::Date(text.to_owned())),
        }
    }

    /// Seconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// An error that names `key`, where the text is no date.
    pub fn seconds(&self, key: &'static str) -> Result<i64> {
        match self {
            TimePoint::Seconds(seconds) => Ok(*seconds),
            TimePoint::Date(text) => parse_date(text).ok_or_else(|| {
                SettingsError::invalid(
                    key,
                    "unix seconds or a UTC date like \"2024-06-05\" or \"2024-06-05T12:30:00Z\"",
                    format!("\"{text}\""),
                )
            }),
        }
    }
}

impl fmt::Display for TimePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimePoint::Seconds(seconds) => write!(f, "{seconds}"),
            TimePoint::Date(text) => f.write_str(text),
        }
    }
}

/// `YYYY-MM-DD`, optionally followed by `T` or a space and `HH:MM`, `HH:MM:SS` or a fraction of seconds, optionally by an offset.
/// Without an offset the time is UTC. The fraction is dropped, which floors.
#[must_use]
pub fn parse_date(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = three_numbers(date, '-', [4, 2, 2])?;
    let midnight = midnight(year, month, day)?;
    if rest.is_empty() || rest == "Z" {
        return Some(midnight);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let clock_ends = rest.find(|letter: char| !matches!(letter, '0'..='9' | ':' | '.' | ','));
    let (clock, zone) = rest.split_at(clock_ends.unwrap_or(rest.len()));
    Some(midnight + clock_seconds(clock)? - offset(zone.trim_start())?)
}

/// Seconds of `HH:MM`, `HH:MM:SS` and `HH:MM:SS.FRACTION`.
fn clock_seconds(clock: &str) -> Option<i64> {
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, "0"));
    let seconds = match clock.len() {
        5 => format!("{clock}:00"),
        _ => clock.to_owned(),
    };
    let [hour, minute, second] = three_numbers(&seconds, ':', [2, 2, 2])?;
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    // A fraction of a minute is no clock.
    if !is_fraction || (clock.len() == 5 && fraction != "0") {
        return None;
    }
    second_of_day(hour, minute, second)
}

/// Seconds by which a zone is ahead of UTC: `Z`, `UTC`, `GMT`, `+02`, `+0200`, `+02:00`; nothing is UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "" | "Z" | "z" | "UTC" | "GMT") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hour, minute) = match zone.get(1..)? {
        hour if hour.len() == 2 => (hour, "00"),
        both if both.len() == 4 => both.split_at_checked(2)?,
        both => both.split_once(':')?,
    };
    let (hour, minute) = (digits(hour, 2)?, digits(minute, 2)?);
    (hour <= 23 && minute <= 59).then_some(sign * (hour * 3600 + minute * 60))
}

/// Days from 1970-01-01 to a date, where there is such a date.
#[must_use]
pub fn days_of_date(year: i64, month: i64, day: i64) -> Option<i64> {
    Some(midnight(year, month, day)?.div_euclid(86_400))
}

/// Seconds from 1970 to the midnight in UTC that begins a day.
fn midnight(year: i64, month: i64, day: i64) -> Option<i64> {
    let real = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    real.then(|| days_from_civil(year, month, day) * 86_400)
}

fn second_of_day(hour: i64, minute: i64, second: i64) -> Option<i64> {
    (hour <= 23 && minute <= 59 && second <= 59).then_some(hour * 3600 + minute * 60 + second)
}
fn three_numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        *number = digits(parts.next()?, width)?;
    }
    parts.next().is_none().then_some(numbers)
}

fn digits(text: &str, width: usize) -> Option<i64> {
    (text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that the leap day is
/// the last day of a year and month lengths follow `(153 m + 2) / 5`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests;
