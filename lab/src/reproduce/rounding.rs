use std::fmt;

use serde::Serialize;

/// The rule by which a paper rounds a number to its printed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Rounding {
    /// Rounds to the nearest number with `decimals` decimals.
    Nearest {
        /// Digits after the point.
        decimals: usize,
    },
    /// Cuts after `decimals` decimals. For an upper bound this prints less than was proved.
    Truncated {
        /// Digits after the point.
        decimals: usize,
    },
    /// Rounds up to `decimals` decimals, which keeps an upper bound one.
    Up {
        /// Digits after the point.
        decimals: usize,
    },
    /// Rounds to `digits` significant digits, with a power of ten below 0.001 and from a million on.
    Significant {
        /// Digits in all, at least one.
        digits: usize,
    },
}

impl Rounding {
    /// Digits after the point, or digits in all where those are fixed.
    #[must_use]
    pub fn decimals(self) -> usize {
        match self {
            Rounding::Nearest { decimals } | Rounding::Truncated { decimals } | Rounding::Up { decimals } => {
                decimals
            }
            Rounding::Significant { digits } => digits,
        }
    }

    /// The printed form of a non-negative `value`.
    #[must_use]
    pub fn print(self, value: f64) -> String {
        match self {
            Rounding::Nearest { decimals } => format!("{value:.decimals$}"),
            Rounding::Truncated { decimals } => {
                // Nine more digits, so that cutting the text is cutting the number.
                let precise = format!("{value:.places$}", places = decimals + 9);
                let end = precise.len().saturating_sub(9);
                precise
                    .get(..end)
                    .unwrap_or(&precise)
                    .trim_end_matches('.')
                    .to_owned()
            }
            Rounding::Up { decimals } => {
                let nearest = format!("{value:.decimals$}");
                match nearest.parse::<f64>() {
                    // The nearest lies below by half a unit at most: one unit more is the next number up.
                    Ok(printed) if printed < value => {
                        let unit = (0..decimals).fold(1.0, |unit, _| unit / 10.0);
                        format!("{:.decimals$}", printed + unit)
                    }
                    _ => nearest,
                }
            }
            Rounding::Significant { digits } => {
                let scientific = format!("{value:.places$e}", places = digits.saturating_sub(1));
                let exponent = scientific
                    .split_once('e')
                    .and_then(|(_, e)| e.parse::<i32>().ok());
                match exponent {
                    Some(exponent) if (-3..6).contains(&exponent) => {
                        let places = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
                        format!("{value:.places$}")
                    }
                    _ => scientific,
                }
            }
        }
    }
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rounding::Nearest { decimals } => write!(f, "rounded to {decimals} decimals"),
            Rounding::Truncated { decimals } => write!(f, "cut after {decimals} decimals"),
            Rounding::Significant { digits } => write!(f, "to {digits} significant digits"),
            Rounding::Up { decimals } => write!(f, "rounded up to {decimals} decimals"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rounding: Rounding, value: f64, want: &str) {
        assert_eq!(rounding.print(value), want, "{rounding}");
    }

    #[test]
    fn values_print_as_their_rounding_says() {
        check(Rounding::Nearest { decimals: 2 }, 3.8164, "3.82");
        check(Rounding::Truncated { decimals: 2 }, 3.8164, "3.81");
        check(Rounding::Truncated { decimals: 2 }, 3.819_999, "3.81");
        check(Rounding::Truncated { decimals: 0 }, 7.9, "7");
        check(Rounding::Nearest { decimals: 3 }, 0.9866, "0.987");
        check(Rounding::Nearest { decimals: 2 }, 187.012, "187.01");
        check(Rounding::Up { decimals: 2 }, 187.012, "187.02");
        check(Rounding::Up { decimals: 2 }, 187.018, "187.02");
        check(Rounding::Up { decimals: 2 }, 0.25, "0.25");
        check(Rounding::Up { decimals: 1 }, 0.96, "1.0");
        check(Rounding::Significant { digits: 2 }, 0.000_037_7, "3.8e-5");
        check(Rounding::Significant { digits: 2 }, 0.0213, "0.021");
        check(Rounding::Significant { digits: 3 }, 104_884.2, "104884");
        check(Rounding::Significant { digits: 3 }, 7.1449, "7.14");
    }
}
