//! Lengths of time as settings write them: `"20s"`, `"10m"`, `"24h"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time of whole milliseconds above zero. Its text is one whole number with one unit: `ms`, `s`, `m`, `h` or `d`.
///
/// ```
/// use undertone_coordinator::task::Span;
///
/// let span: Span = "90s".parse()?;
/// assert_eq!((span.millis(), span.to_string()), (90_000, "90s".to_owned()));
/// assert_eq!("24h".parse::<Span>()?.to_string(), "1d");
/// # Ok::<(), undertone_coordinator::task::NotASpan>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// The units with their milliseconds, longest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Max length: a hundred years, so that sums of lengths and times never overflow.
const MAX_DAYS: u64 = 36_500;

impl Span {
    /// A length of so many seconds, at least one.
    #[must_use]
    pub const fn seconds(seconds: u32) -> Self {
        Self(if seconds == 0 { 1000 } else { seconds as u64 * 1000 })
    }

    /// The length in milliseconds.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }
}

/// The text is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a length of time up to 36500 days, a whole number above 0 with one of the units ms, s, m, h and d such as \"10m\", \
     got {0:?}"
)]
pub struct NotASpan(String);

impl FromStr for Span {
    type Err = NotASpan;

    fn from_str(text: &str) -> Result<Self, NotASpan> {
        let fail = || NotASpan(text.chars().take(32).collect());
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let millis = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .and_then(|(_, millis)| number.parse::<u64>().ok()?.checked_mul(*millis));
        match millis {
            Some(millis) if millis > 0 && millis <= MAX_DAYS * UNITS[0].1 => Ok(Self(millis)),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Span {
    /// The text in the longest unit that divides the length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, millis) = UNITS
            .iter()
            .find(|(_, millis)| self.0.is_multiple_of(*millis))
            .unwrap_or(&UNITS[4]);
        write!(f, "{}{name}", self.0 / millis)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A length of time, such as `\"90s\"`, `\"20m\"`, `\"6h\"` or `\"30d\"`.",
            "pattern": "^[0-9]+(d|h|m|s|ms)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_in_the_longest_unit_that_divides_it() {
        for (text, millis, written) in [
            ("1ms", 1, "1ms"),
            ("20s", 20_000, "20s"),
            ("10m", 600_000, "10m"),
            ("60m", 3_600_000, "1h"),
            ("1500ms", 1500, "1500ms"),
            ("36500d", 36_500 * 86_400_000, "36500d"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.millis(), &span.to_string()[..]), (millis, written));
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        assert_eq!(Span::seconds(0).millis(), 1000);
    }

    #[test]
    fn text_that_is_no_span_is_refused_with_the_units() {
        let huge = "9".repeat(400) + "s";
        for text in [
            "", "0s", "10", "s", "-1s", "+1s", "1.5h", "1 h", "1w", "36501d", "１s", &huge,
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(
                error.contains("ms, s, m, h and d") && error.len() < 250,
                "{text}: {error}"
            );
        }
    }
}
