//! The mechanisms of production runs, with the noise they ran with: what Figures 8 and 9 extrapolate from.

use undertone_accounting::NoiseMultiplier;
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::production::{ProductionBlt, REPORT_GOAL, TREE_NOISE_MULTIPLIER};
use undertone_mechanisms::{Blt, Strategy, Tree, Workload};

use super::contenders::banded;
use crate::reproduce::{Conditions, ReproduceError};

/// Rounds that the BandMF matrices were made for (section 5, algorithm setting).
pub(super) const BANDED_ROUNDS: usize = 2000;

/// A mechanism and its noise.
#[derive(Debug, Clone)]
pub(super) struct Deployed {
    pub(super) name: String,
    strategy: Strategy,
    /// Noise multiplier, and the clients per round for which it holds.
    noise: (f64, u64),
    /// The squared sensitivity that is 1 in units of the clip norm.
    unit: f64,
}

impl Deployed {
    pub(super) fn tree() -> Self {
        Self {
            name: "TreeAgg-7".to_owned(),
            strategy: Strategy::Tree(Tree::new()),
            noise: (TREE_NOISE_MULTIPLIER, REPORT_GOAL),
            unit: 1.0,
        }
    }

    pub(super) fn blt(set: &ProductionBlt) -> Result<Self, ReproduceError> {
        Ok(Self {
            name: format!("BLT(b={})", set.gap),
            strategy: Strategy::Blt(Blt::production(set)?),
            noise: (set.noise_multiplier, set.report_goal),
            unit: 1.0,
        })
    }

    /// The matrix of 400 bands, whose noise multiplier is relative to the sensitivity of five participations at the gap it
    /// was made for (Table 4).
    pub(super) fn band_400(conditions: &Conditions<'_>) -> Result<Self, ReproduceError> {
        Self::band(conditions, 400, 1.411, 5.0)
    }

    /// The matrix of 1000 bands.
    pub(super) fn band_1000(conditions: &Conditions<'_>) -> Result<Self, ReproduceError> {
        Self::band(conditions, 1000, 4.523, 1.0)
    }

    fn band(
        conditions: &Conditions<'_>,
        bands: usize,
        noise: f64,
        unit: f64,
    ) -> Result<Self, ReproduceError> {
        let (name, strategy) = banded(conditions, BANDED_ROUNDS, bands)?;
        Ok(Self {
            name: format!("{name}({bands})"),
            strategy,
            noise: (noise, REPORT_GOAL),
            unit,
        })
    }

    /// The noise multiplier at this report goal, in proportion to the clients per round.
    pub(super) fn noise_multiplier(&self, report_goal: u64) -> f64 {
        self.noise.0 * report_goal as f64 / self.noise.1 as f64
    }

    /// rho of a run; `None` beyond the rounds that the matrix has.
    pub(super) fn rho(
        &self,
        rounds: usize,
        participation: &Participation,
        report_goal: u64,
    ) -> Result<Option<f64>, ReproduceError> {
        if self.strategy.rounds().is_some_and(|most| rounds > most) {
            return Ok(None);
        }
        let certified = self.strategy.squared_sensitivity(rounds, participation)?;
        let noise = NoiseMultiplier::new(self.noise_multiplier(report_goal))?;
        Ok(Some(certified.squared.rho(noise)?.get() / self.unit))
    }

    /// Root-mean-square noise in the iterates that averages over `report_goal` clients add up to, in clip norms.
    pub(super) fn iterate_noise(&self, rounds: usize, report_goal: u64) -> Result<f64, ReproduceError> {
        let errors = self.strategy.errors(rounds, &Workload::prefix_sum())?;
        let noise = self.noise_multiplier(report_goal) * self.unit.sqrt();
        Ok(noise * errors.rms_error / report_goal as f64)
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::sensitivity::production::BLT_100;

    use super::*;
    use crate::reproduce::blt::contenders::schema;

    #[test]
    fn noise_is_in_proportion_to_clients() {
        let blt = Deployed::blt(&BLT_100).unwrap();
        assert_eq!(blt.noise_multiplier(3000), 3.12);
        let tree = Deployed::tree();
        assert_eq!(tree.noise_multiplier(13_000), 14.0);
        // The average of more clients carries the same noise.
        let noise = |goal| tree.iterate_noise(100, goal).unwrap();
        assert!((noise(6500) / noise(500) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn banded_matrices_end_and_have_their_unit() {
        let clock = || 0.0;
        let band = Deployed::band(&Conditions::new(&clock), 4, 2.0, 5.0).unwrap();
        let five = schema(4, 5).unwrap();
        // Columns of norm 1 that do not meet: five of them are the unit.
        let rho = band.rho(2000, &five, REPORT_GOAL).unwrap().unwrap();
        assert!((rho - 1.0 / 8.0).abs() < 1e-9, "{rho}");
        assert_eq!(band.rho(2001, &five, REPORT_GOAL).unwrap(), None);
    }
}
