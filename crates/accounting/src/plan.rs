//! The mechanisms of production runs, with the noise that kept utility there.
//!
//! BandMF is not among them, since its matrices are not published. Account for one of your own with
//! [`crate::sensitivity::banded::Banded`] or [`crate::sensitivity::general::LowerTriangular`];
//! `undertone_mechanisms::population_plan` makes matrices for a population.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::participation::Participation;
use crate::sensitivity::production::{self, BLT_100, BLT_400, BLT_1000, ProductionBlt};
use crate::sensitivity::{SquaredSensitivity, tree};
use crate::{AccountingError, NoiseMultiplier};

/// Maximum participations for which a tree's sensitivity is computed exactly; a plan asks for hundreds of sensitivities.
const MAX_EXACT: u64 = 100;

/// A mechanism of production runs, with the noise that kept utility in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProductionSetting {
    /// Binary tree, one for the whole run; noise multiplier 7 at 6500 clients per round.
    Tree,
    /// The BLT optimised for gap 100; 3.12 at the 3000 clients per round of its run, 6.76 at 6500.
    #[serde(rename = "blt-100")]
    Blt100,
    /// The BLT optimised for gap 400, the general default; 7.379 at 6500.
    #[serde(rename = "blt-400")]
    Blt400,
    /// The BLT optimised for gap 1000; 8.681 at 6500.
    #[serde(rename = "blt-1000")]
    Blt1000,
    /// Independent noise in every round, no sampling assumption: a reference. No production run used it; its noise
    /// multiplier gives prefix sums the same root-mean-square error over the run as the tree's.
    Independent,
}

impl ProductionSetting {
    /// All of them.
    pub const ALL: [ProductionSetting; 5] = [
        ProductionSetting::Tree,
        ProductionSetting::Blt100,
        ProductionSetting::Blt400,
        ProductionSetting::Blt1000,
        ProductionSetting::Independent,
    ];

    /// Name of the setting, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProductionSetting::Tree => "tree",
            ProductionSetting::Blt100 => BLT_100.name,
            ProductionSetting::Blt400 => BLT_400.name,
            ProductionSetting::Blt1000 => BLT_1000.name,
            ProductionSetting::Independent => "independent",
        }
    }

    /// The mechanism of a name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        ProductionSetting::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }

    fn blt(self) -> Option<&'static ProductionBlt> {
        match self {
            ProductionSetting::Blt100 => Some(&BLT_100),
            ProductionSetting::Blt400 => Some(&BLT_400),
            ProductionSetting::Blt1000 => Some(&BLT_1000),
            ProductionSetting::Tree | ProductionSetting::Independent => None,
        }
    }

    /// Noise multiplier that keeps utility at `report_goal` clients per round: in proportion to the report goal.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for a report goal or rounds of 0.
    ///
    /// # Source
    /// \[Gboard\] section 2.2 (500 clients at 0.54 did as well as 6500 at 7); \[BLT\] Table 4.
    pub fn noise_multiplier(self, rounds: u64, report_goal: u64) -> Result<NoiseMultiplier, AccountingError> {
        let (noise_multiplier, clients) = match self.blt() {
            Some(blt) => (blt.noise_multiplier, blt.report_goal),
            None if self == ProductionSetting::Tree => {
                (production::TREE_NOISE_MULTIPLIER, production::REPORT_GOAL)
            }
            None => (
                production::TREE_NOISE_MULTIPLIER * tree_over_independent(rounds),
                production::REPORT_GOAL,
            ),
        };
        NoiseMultiplier::new(noise_multiplier * report_goal as f64 / clients as f64)
    }

    /// Squared sensitivity under a schema, and whether it is exact; where not, it is an upper bound.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no rounds.
    pub fn squared_sensitivity(
        self,
        rounds: u64,
        participation: &Participation,
    ) -> Result<(SquaredSensitivity, bool), AccountingError> {
        let max_par = participation.effective(rounds)?.participation.max_participation();
        if let Some(blt) = self.blt() {
            let rounds = usize::try_from(rounds).unwrap_or(usize::MAX);
            return Ok((blt.strategy(rounds)?.squared_sensitivity(participation)?, true));
        }
        if self == ProductionSetting::Independent {
            return Ok((SquaredSensitivity::new(max_par as f64)?, true));
        }
        if max_par > MAX_EXACT {
            return Ok((tree::squared_sensitivity_bound(rounds, participation)?, false));
        }
        Ok((
            tree::squared_sensitivity(rounds, participation)?.squared_sensitivity,
            true,
        ))
    }
}

/// Root-mean-square error of the tree's prefix sums over that of independent noise, at equal noise multipliers.
///
/// After t rounds independent noise has variance t. The tree's prefix sum adds one node for every set bit h of t,
/// each estimated from itself and all nodes below it, at variance `1 / (2 - 2^-h)`.
///
/// # Source
/// Honaker, "Efficient Use of Differentially Private Binary Trees" (2015), the online estimator.
fn tree_over_independent(rounds: u64) -> f64 {
    // Numbers from 1 to `rounds` with bit h set: 2^h in each full period of 2^(h + 1), and part of the last.
    let numbers = |height: u32| {
        let (half, values) = (1u64 << height, rounds + 1);
        values / (2 * half) * half + (values % (2 * half)).saturating_sub(half)
    };
    let heights = 0..u64::BITS - rounds.leading_zeros();
    let tree: f64 = heights
        .map(|h| numbers(h) as f64 / (2.0 - 0.5f64.powi(h as i32)))
        .sum();
    let independent = 0.5 * rounds as f64 * (rounds as f64 + 1.0);
    (tree / independent).sqrt()
}

impl fmt::Display for ProductionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for mechanism in ProductionSetting::ALL {
            assert_eq!(ProductionSetting::by_name(mechanism.name()), Some(mechanism));
            assert_eq!(serde_json::to_value(mechanism).unwrap(), mechanism.name());
        }
        assert_eq!(ProductionSetting::by_name("bandmf"), None);
    }

    #[test]
    fn noise_multipliers_equal_those_of_production() {
        let noise =
            |mechanism: ProductionSetting, goal| mechanism.noise_multiplier(2000, goal).unwrap().get();
        assert_eq!(noise(ProductionSetting::Tree, 6500), 7.0);
        assert_eq!(noise(ProductionSetting::Blt400, 6500), 7.379);
        // [BLT] section 5: the pt-PT run had 3000 clients per round.
        assert_eq!(noise(ProductionSetting::Blt100, 3000), 3.12);
        assert!((noise(ProductionSetting::Blt100, 6500) - 6.76).abs() < 1e-12);
        // The paper ran 500 clients at 0.54.
        assert!((noise(ProductionSetting::Tree, 500) - 0.54).abs() < 0.002);
        assert!(ProductionSetting::Tree.noise_multiplier(2000, 0).is_err());
    }

    #[test]
    fn tree_error_is_the_sum_over_set_bits() {
        for rounds in [1u64, 2, 3, 7, 8, 100, 1023, 2052] {
            let row = |t: u64| -> f64 {
                let set = (0..11).chain([11]).filter(|h| t >> h & 1 == 1);
                set.map(|h| 1.0 / (2.0 - 0.5f64.powi(h))).sum()
            };
            let tree: f64 = (1..=rounds).map(row).sum();
            let independent: f64 = (1..=rounds).map(|t| t as f64).sum();
            let got = tree_over_independent(rounds);
            assert!(
                (got - (tree / independent).sqrt()).abs() < 1e-12,
                "{rounds}: {got}"
            );
        }
        // One round: the same mechanism.
        assert_eq!(tree_over_independent(1), 1.0);
    }
}
