//! The rates of machines: measured by the benches of this project, or on the machine at hand.

use serde::{Deserialize, Serialize};
use undertone_service::Result;

use super::check;

/// The origin of the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Server and masks: the benches of this project. Training and encoding: a short calibration on this machine.
    Calibrated,
    /// A file that the operator gave.
    File,
}

/// The rates of machines. Core seconds of the server hold the cost of the load generator of the benches, so they are upper bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// Seconds of a device's training per word, on a core of the calibrated machine.
    pub train_s_per_word: f64,
    /// Seconds in which a device encodes its update, on a core of the calibrated machine.
    pub encode_s: f64,
    /// Words of masks of a secure sum per core second.
    pub mask_words_per_core_s: f64,
    /// Bytes of uploads per core second: TLS, checks, clipping and addition.
    pub upload_bytes_per_core_s: f64,
    /// Bytes of downloads per core second over TLS.
    pub download_bytes_per_core_s: f64,
    /// Check-ins with two signatures each per core second.
    pub checkins_per_core_s: f64,
    /// Assignments per core second.
    pub assignments_per_core_s: f64,
    /// Boards per core second.
    pub boards_per_core_s: f64,
    /// Seconds of a release per parameter: noise, two files and the commit.
    pub release_s_per_parameter: f64,
}

impl Default for Rates {
    /// The measurements of `lab/notebooks/benchmarks.md`, of two cores of an AMD EPYC, per core. Training is of the order of T12: 77 ms
    /// per user of a model with 4 million parameters. A calibration replaces training and encoding.
    fn default() -> Self {
        Self {
            train_s_per_word: 1e-4,
            encode_s: 0.01,
            // Section "Secure sums": 1.03 G words per core second.
            mask_words_per_core_s: 1.03e9,
            // T5: 1.60 GB/s on two cores.
            upload_bytes_per_core_s: 800e6,
            // Raw TLS in T5: 4.36 GB/s on two cores, both ends.
            download_bytes_per_core_s: 2.1e9,
            // T2: 12,080 check-ins per second on two cores.
            checkins_per_core_s: 6_000.0,
            // T3: 7,470 assignments per second on two cores.
            assignments_per_core_s: 3_700.0,
            // T1: 74,500 boards per second on two cores.
            boards_per_core_s: 37_000.0,
            // T10: 0.76 s at 4.05 million parameters.
            release_s_per_parameter: 1.9e-7,
        }
    }
}

impl Rates {
    /// Checks that each rate is a number above 0.
    ///
    /// # Errors
    /// [`ServiceError::Value`](undertone_service::ServiceError::Value) naming the rate.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("train_s_per_word", self.train_s_per_word),
            ("encode_s", self.encode_s),
            ("mask_words_per_core_s", self.mask_words_per_core_s),
            ("upload_bytes_per_core_s", self.upload_bytes_per_core_s),
            ("download_bytes_per_core_s", self.download_bytes_per_core_s),
            ("checkins_per_core_s", self.checkins_per_core_s),
            ("assignments_per_core_s", self.assignments_per_core_s),
            ("boards_per_core_s", self.boards_per_core_s),
            ("release_s_per_parameter", self.release_s_per_parameter),
        ] {
            let zero = name == "encode_s" && value == 0.0;
            let holds = value.is_finite() && value > 0.0;
            check(name, holds || zero, "a number above 0", value)?;
        }
        Ok(())
    }
}
