//! The inputs of an encoding, and the properties that it reports.

use crate::error::{Result, ensure, positive};
use crate::rotation::check_dim;

/// The size of a secure sum: its coordinates, its clip norm and its numbers of clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EncodingSize {
    /// Coordinates of an update.
    pub dim: usize,
    /// L2 norm that no client's weighted update exceeds: `C`, or `D` of \[cpSGD\].
    pub clip_norm: f64,
    /// Minimum number of clients in a sum that is released. The clients' shares of noise suffice for this number.
    pub min_clients: u64,
    /// Maximum number of clients in a sum. The modulus is wide enough for this number.
    pub max_clients: u64,
}

/// Settings of the binomial encoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// `k`: levels of the quantisation, at least 2.
    pub levels: u64,
    /// `m`: trials of one client's noise.
    pub trials: u64,
    /// `p` as numerator and denominator.
    pub success_probability: (u64, u64),
    /// Coordinates are cut to `[-x_max, x_max]`. Without it: the clip norm, or with rotation that of Theorem 4.
    pub x_max: Option<f64>,
    /// `true` to rotate updates first.
    pub rotate: bool,
    /// Delta of one release, half for the norms after quantisation (equation 10) and half for Theorem 1.
    pub delta: f64,
}

/// An encoding with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EncodingKind {
    /// Truncation toward zero onto the fixed-point grid.
    Identity,
    /// Random rotation and conditional stochastic rounding.
    RotatedRounding {
        /// `s`: grid steps in one unit.
        scale: f64,
    },
    /// Stochastic quantisation and binomial noise in shares.
    Binomial(Levels),
    /// Random rotation, conditional rounding and discrete Gaussian noise in shares.
    DiscreteGaussian {
        /// Grid steps in one unit.
        scale: f64,
        /// Standard deviation of the noise of `min_clients` together, divided by the clip norm.
        noise_multiplier: f64,
    },
    /// Random rotation, conditional rounding and Skellam noise in shares.
    Skellam {
        /// Grid steps in one unit.
        scale: f64,
        /// Standard deviation of the noise of `min_clients` together, divided by the clip norm.
        noise_multiplier: f64,
    },
}

/// The maximum distance by which one client moves a decoded sum, in the unit of the updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity {
    /// The distance in the L2 norm.
    pub l2: f64,
    /// The distance in the L1 norm.
    pub l1: f64,
    /// The distance in any one coordinate.
    pub l_inf: f64,
}

/// The expected squared error of one coordinate of the mean of the clients' clipped updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanSquaredError {
    /// Maximum error from rounding. It is two thirds of this if fractions are spread evenly.
    pub rounding: f64,
    /// Error from the clients' noise, exactly.
    pub noise: f64,
}

impl MeanSquaredError {
    /// The sum of both errors.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.rounding + self.noise
    }
}

/// Maximum number of clients in a sum: their weights then fit the fixed-point weight of a [`RawSum`].
const MAX_CLIENTS: u64 = 1 << 22;

/// Refuses sizes that no encoding supports.
pub(super) fn check_size(size: &EncodingSize) -> Result<()> {
    check_dim(size.dim)?;
    positive("clip_norm", size.clip_norm)?;
    let holds = (1..=MAX_CLIENTS).contains(&size.max_clients);
    ensure(holds, "max_clients", "from 1 to 2^22", size.max_clients as f64)?;
    let (holds, got) = (
        (1..=size.max_clients).contains(&size.min_clients),
        size.min_clients,
    );
    ensure(holds, "min_clients", "from 1 to max_clients", got as f64).map(drop)
}
