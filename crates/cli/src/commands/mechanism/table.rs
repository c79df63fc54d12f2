//! Tables and figures that the commands on mechanisms share.

use serde::Serialize;
use undertone_mechanisms::{CertifiedSensitivity, Strategy};
use undertone_present::numbers::number;

use super::kind::remade_rows;
use super::run::Run;

/// Bytes that a release keeps of a coordinate in every vector.
const BYTES: u64 = 8;

/// Numbers in one line, with an ellipsis where there are more.
pub(super) fn list(values: &[f64], more: bool) -> String {
    let mut shown: Vec<String> = values.iter().map(|value| number(*value)).collect();
    if more {
        shown.push("...".to_owned());
    }
    shown.join(" ")
}

/// A sensitivity, with a sign where it is an upper bound.
pub(super) fn sensitivity(certified: CertifiedSensitivity) -> String {
    let sign = if certified.exact { "" } else { "~" };
    format!("{sign}{:.4}", certified.squared.sensitivity())
}

/// A sensitivity in words.
pub(super) fn certified(sensitivity: CertifiedSensitivity) -> String {
    let certified = if sensitivity.exact {
        "exact"
    } else {
        "a proved upper bound"
    };
    format!("{:.6} ({certified})", sensitivity.squared.sensitivity())
}

/// The memory that the noise of a run needs between rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Memory {
    /// Vectors of the model's dimension.
    pub(super) vectors: usize,
    /// Earlier rows that every round makes again from their keys.
    pub(super) remade_rows: usize,
    pub(super) dim: u64,
    /// Bytes of a release in integers; a stream in `f32` keeps half.
    pub(super) bytes: u64,
}

impl Memory {
    pub(super) fn new(strategy: &Strategy, run: &Run, dim: u64) -> Self {
        let vectors = strategy.kept_vectors(run.rounds);
        Self {
            vectors,
            remade_rows: remade_rows(strategy, run),
            dim,
            bytes: (vectors as u64).saturating_mul(dim).saturating_mul(BYTES),
        }
    }

    /// Vectors, and what they come to.
    pub(super) fn shown(&self) -> String {
        let mut shown = format!(
            "{} vectors x {} coordinates x {BYTES} bytes = {}",
            self.vectors,
            self.dim,
            bytes(self.bytes)
        );
        if self.remade_rows > 0 {
            shown += &format!("; recomputes up to {} earlier rows per round", self.remade_rows);
        }
        shown
    }
}

/// `54.7 MB`.
pub(super) fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    let (unit, name) = match bytes {
        0..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        1_000_000_000..1_000_000_000_000 => (1e9, "GB"),
        _ => (1e12, "TB"),
    };
    if bytes == 0 {
        return "0".to_owned();
    }
    format!("{} {name}", number(value / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_decimal_units() {
        let check = |value, shown: &str| assert_eq!(bytes(value), shown);
        check(0, "0");
        check(800, "0.8 kB");
        check(51_200_000, "51.2 MB");
        check(2_182_400_000, "2.182 GB");
        check(5_000_000_000_000, "5 TB");
    }
}
