//! Amounts of memory as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `512MB`, `2 GiB`, `1000000`.
///
/// # Example
/// ```
/// use undertone_data::ByteSize;
///
/// assert_eq!("2GiB".parse(), Ok(ByteSize(2 << 30)));
/// assert!("2 buckets".parse::<ByteSize>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

/// A text that is no number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of bytes such as 512MB or 2GiB, got \"{got}\"")]
pub struct NotAByteSize {
    /// The text.
    pub got: String,
}

impl FromStr for ByteSize {
    type Err = NotAByteSize;

    fn from_str(text: &str) -> Result<ByteSize, NotAByteSize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim() {
            "" | "B" => Some(1),
            "kB" | "KB" => Some(1000),
            "MB" => Some(1_000_000),
            "GB" => Some(1_000_000_000),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            _ => None,
        };
        let bytes = unit.and_then(|unit| number.parse::<usize>().ok()?.checked_mul(unit));
        bytes
            .map(ByteSize)
            .ok_or_else(|| NotAByteSize { got: text.to_owned() })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1_000_000_000 => write!(f, "{:.1} GB", bytes as f64 / 1e9),
            bytes if bytes >= 1_000_000 => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let check = |text: &str, expected: Option<usize>| {
            assert_eq!(text.parse().ok(), expected.map(ByteSize), "{text}");
        };
        check("512MB", Some(512_000_000));
        check("2 GiB", Some(2 << 30));
        check("1000", Some(1000));
        check("MB", None);
        check("1.5GB", None);
        check("-1", None);
        check("99999999999999999999GB", None);
        assert_eq!(ByteSize(2_500_000_000).to_string(), "2.5 GB");
    }
}
