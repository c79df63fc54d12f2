//! The BLT parameters of the mobile-keyboard production runs, as data.
//!
//! # Source
//! \[BLT\] Appendix A and Table 4.

use crate::AccountingError;
use crate::sensitivity::toeplitz::Toeplitz;

/// A BLT of four buffers, with the run that it was optimised for and the noise that it was used with.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ProductionBlt {
    /// Short name, by the gap.
    pub name: &'static str,
    /// Gap b it was optimised for. It is valid for any other, and near-optimal for a wide range.
    pub gap: u64,
    /// Rounds it was optimised for.
    pub rounds: u64,
    /// Participations it was optimised for.
    pub max_participation: u64,
    /// Buffer decays.
    pub theta: [f64; 4],
    /// Output scales.
    pub omega: [f64; 4],
    /// Noise multiplier of the production runs at [`Self::report_goal`] clients per round (Table 4).
    pub noise_multiplier: f64,
    /// Clients per round that the noise multiplier belongs to (section 5: 6500, but 3000 for pt-PT).
    pub report_goal: u64,
}

/// Clients per round of the production runs, to which [`TREE_NOISE_MULTIPLIER`] belongs.
pub const REPORT_GOAL: u64 = 6500;

/// Noise multiplier of tree aggregation at [`REPORT_GOAL`] (\[Gboard\] Tables 1-2, \[BLT\] Table 4).
pub const TREE_NOISE_MULTIPLIER: f64 = 7.0;

/// The BLT for short separations (pt-PT).
pub static BLT_100: ProductionBlt = ProductionBlt {
    name: "blt-100",
    gap: 100,
    rounds: 2000,
    max_participation: 10,
    theta: [
        0.989739971007307,
        0.7352001759538236,
        0.16776199983448145,
        0.1677619998016191,
    ],
    omega: [
        0.20502892852480875,
        0.23357939425278557,
        0.03479503245420878,
        0.03479509876050538,
    ],
    noise_multiplier: 3.12,
    report_goal: 3000,
};

/// The BLT of the paper's general default (es-ES, id-ID).
pub static BLT_400: ProductionBlt = ProductionBlt {
    name: "blt-400",
    gap: 400,
    rounds: 4000,
    max_participation: 5,
    theta: [
        0.9999999999921251,
        0.9944453083640997,
        0.8985923474607591,
        0.4912001418098778,
    ],
    omega: [
        0.0070314825502323835,
        0.10613806907600574,
        0.1898159060327625,
        0.1966594748073734,
    ],
    noise_multiplier: 7.379,
    report_goal: REPORT_GOAL,
};

/// The BLT for large populations (pt-BR).
pub static BLT_1000: ProductionBlt = ProductionBlt {
    name: "blt-1000",
    gap: 1000,
    rounds: 4000,
    max_participation: 2,
    theta: [
        0.9999999999983397,
        0.9973412136664378,
        0.9584629472313878,
        0.6581796870749317,
    ],
    omega: [
        0.008657392263671862,
        0.05890891298180163,
        0.14548176930698697,
        0.2770117005326523,
    ],
    noise_multiplier: 8.681,
    report_goal: REPORT_GOAL,
};

/// All production BLTs, by gap.
#[must_use]
pub fn all() -> [&'static ProductionBlt; 3] {
    [&BLT_100, &BLT_400, &BLT_1000]
}

impl ProductionBlt {
    /// The strategy matrix of a run of `rounds` rounds.
    ///
    /// # Errors
    /// As [`Toeplitz::buffered`].
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::NoiseMultiplier;
    /// use undertone_accounting::participation::{Participation, RoundsBetween};
    /// use undertone_accounting::sensitivity::production::BLT_400;
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// // [BLT] Table 4, id-ID: 2350 rounds, MinS 447, MaxP 5.
    /// let schema = Participation::at_least(RoundsBetween::new(447).gap(), 5)?;
    /// let squared = BLT_400.strategy(2350)?.squared_sensitivity(&schema)?;
    /// let rho = squared.rho(NoiseMultiplier::new(BLT_400.noise_multiplier)?)?;
    /// assert_eq!(format!("{:.4}", rho.get()), "0.1949"); // printed rounded up: 0.20
    /// # Ok(())
    /// # }
    /// ```
    pub fn strategy(&self, rounds: usize) -> Result<Toeplitz, AccountingError> {
        Toeplitz::buffered(&self.theta, &self.omega, rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::participation::Participation;

    #[test]
    fn every_set_meets_the_theorem_at_twice_its_rounds() {
        for blt in all() {
            let strategy = blt.strategy(2 * blt.rounds as usize).unwrap();
            assert!(
                strategy.squared_sensitivity(&Participation::single()).is_ok(),
                "{}",
                blt.name
            );
        }
    }
}
