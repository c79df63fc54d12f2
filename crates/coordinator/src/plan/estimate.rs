//! The larger run that a small one stands for: its noise is added here, its guarantee is an estimate.

use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, SamplingProbability};
use undertone_mechanisms::Mechanism;

use super::{Basis, PrivacyPlan};
use crate::error::Result;
use crate::record::GuaranteeRecord;

/// The larger run that noise is scaled for.
///
/// # Source
/// \[DPLM\] section 3; \[Gboard\] section 2.2: utility stays where users per round and noise grow together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub(super) population: u64,
    /// Users per round, times their mean weight.
    pub(super) weight_per_round: f64,
    pub(super) rounds: u64,
    pub(super) delta: Delta,
}

impl Estimate {
    /// The larger run's sampling probability.
    pub(super) fn q(&self, mean_weight: f64) -> f64 {
        (self.weight_per_round / mean_weight / self.population as f64).min(1.0)
    }
}

impl PrivacyPlan {
    /// The guarantee of the larger run that this one stands for; `None` without `[estimate]`.
    ///
    /// # Errors
    /// From the accountant.
    pub fn estimated(&self) -> Result<Option<GuaranteeRecord>> {
        let Some((private, estimate)) = self
            .private
            .as_ref()
            .and_then(|private| Some((private, private.estimate?)))
        else {
            return Ok(None);
        };
        let q = estimate.q(self.mean_weight());
        let mut schema = None;
        let guarantee = match &private.basis {
            // Refused with [estimate]: see `validate_aggregation`.
            Basis::ClientNoise(_) => return Ok(None),
            Basis::Sampling(recipe) => {
                let mut accountant = Accountant::new(*recipe);
                for (index, phase) in self.phases.iter().enumerate() {
                    let next = self.phases.get(index + 1);
                    let end = next.map_or(estimate.rounds, |next| next.from_round.min(estimate.rounds));
                    if let (Some(z), true) = (phase.noise_multiplier, phase.from_round < end) {
                        let event = Event::PoissonGaussian {
                            sampling_probability: SamplingProbability::new(q)?,
                            noise_multiplier: NoiseMultiplier::new(z)?,
                        };
                        accountant.compose(&event, end - phase.from_round)?;
                    }
                }
                accountant.guarantee(estimate.delta)?
            }
            Basis::Participation(bounded) => {
                let here = bounded.mechanism();
                let larger = Mechanism::new(
                    here.strategy().clone(),
                    estimate.rounds as usize,
                    here.participation(),
                    NoiseMultiplier::new(self.stated_noise_multiplier())?,
                )?;
                schema = Some(super::bounded::record(&larger)?);
                larger.guarantee(estimate.delta)?
            }
        };
        Ok(Some(GuaranteeRecord {
            rounds: estimate.rounds,
            population: estimate.population,
            users_per_round: q * estimate.population as f64,
            noise_multiplier: self.stated_noise_multiplier(),
            schema,
            ..GuaranteeRecord::from(&guarantee)
        }))
    }

    /// The noise multiplier that the run file means: with `[estimate]` the larger run's.
    pub(super) fn stated_noise_multiplier(&self) -> f64 {
        self.phases[0].noise_multiplier.unwrap_or(f64::NAN)
    }
}
