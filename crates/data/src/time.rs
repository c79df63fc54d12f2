//! Points in time as settings write them: unix seconds or a date.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};

/// A point in time: unix seconds, `"2024-06-05"` (midnight UTC) or `"2024-06-05T12:30:00Z"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "unix seconds or a date like \"2024-06-05\" or \"2024-06-05T12:30:00Z\""
)]
pub enum TimePoint {
    /// Seconds since 1970-01-01 UTC.
    Seconds(i64),
    /// An ISO 8601 date, or date and time, in UTC.
    Date(String),
}

impl TimePoint {
    /// Seconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// [`DataError::InvalidSetting`](crate::DataError::InvalidSetting) under `key` where the text is no date.
    pub(crate) fn seconds(&self, key: &'static str) -> Result<i64> {
        match self {
            TimePoint::Seconds(seconds) => Ok(*seconds),
            TimePoint::Date(text) => parse_date(text).ok_or_else(|| {
                invalid(
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

/// `YYYY-MM-DD`, optionally followed by `T` or a space and `HH:MM:SS`, optionally `Z`.
pub(crate) fn parse_date(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text
        .split_once(['T', ' '])
        .map_or((text, None), |(date, clock)| (date, Some(clock)));
    let [year, month, day] = three_numbers(date, '-', [4, 2, 2])?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let mut seconds = days_from_civil(year, month, day) * 86_400;
    if let Some(clock) = clock {
        let [hour, minute, second] = three_numbers(clock, ':', [2, 2, 2])?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds += hour * 3600 + minute * 60 + second;
    }
    Some(seconds)
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
mod tests {
    use super::*;

    #[test]
    fn only_real_dates_are_read() {
        fn check(text: &str, expected: Option<i64>) {
            assert_eq!(parse_date(text), expected, "{text}");
        }
        check("1970-01-01", Some(0));
        check("1970-01-02T00:00:01Z", Some(86_401));
        check("2000-02-29", Some(951_782_400));
        check("2024-06-05", Some(1_717_545_600));
        check("2024-06-05 12:30:00", Some(1_717_590_600));
        check("1969-12-31", Some(-86_400));
        check("2023-02-29", None);
        check("2024-13-01", None);
        check("2024-6-5", None);
        check("2024-06-05T25:00:00", None);
        check("yesterday", None);
    }
}
