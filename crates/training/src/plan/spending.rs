//! What a run has spent: the accountant, fed with the rounds that were really made.

use undertone_accounting::Accountant;

use super::{PrivacyPlan, Private};
use crate::error::{Result, TrainingError};
use crate::record::GuaranteeRecord;

/// What has been spent so far: the accountant fed with the rounds that were really made.
#[derive(Debug, Clone)]
pub struct Spending {
    accountant: Option<Accountant>,
    rounds: u64,
    first_noise_multiplier: Option<f64>,
}

impl Spending {
    /// Nothing spent.
    #[must_use]
    pub fn new(plan: &PrivacyPlan) -> Self {
        Self {
            accountant: plan.private.map(|private| Accountant::new(private.recipe)),
            rounds: 0,
            first_noise_multiplier: None,
        }
    }

    /// Adds rounds with this noise multiplier.
    ///
    /// # Errors
    /// From the accountant.
    pub fn compose(&mut self, plan: &PrivacyPlan, noise_multiplier: Option<f64>, rounds: u64) -> Result<()> {
        if let Some(accountant) = &mut self.accountant {
            accountant.compose(&plan.event(noise_multiplier)?, rounds)?;
        }
        self.first_noise_multiplier = self.first_noise_multiplier.or(noise_multiplier);
        self.rounds += rounds;
        Ok(())
    }

    /// Epsilon so far at the run's delta; `None` when not private.
    ///
    /// # Errors
    /// From the accountant.
    pub fn epsilon(&self, plan: &PrivacyPlan) -> Result<Option<f64>> {
        match (&self.accountant, plan.private) {
            (Some(_), Some(_)) if self.rounds == 0 => Ok(Some(0.0)),
            (Some(accountant), Some(private)) => Ok(Some(accountant.guarantee(private.delta)?.epsilon.get())),
            _ => Ok(None),
        }
    }

    /// Refuses a round that would bring epsilon over the budget.
    ///
    /// # Errors
    /// [`TrainingError::BudgetExceeded`]; from the accountant: a check that cannot be evaluated refuses the round too.
    pub fn check_budget(&self, plan: &PrivacyPlan, round: u64, noise_multiplier: Option<f64>) -> Result<()> {
        let Some(Private {
            budget: Some(budget),
            delta,
            estimate: None,
            ..
        }) = plan.private
        else {
            return Ok(());
        };
        let mut next = self.clone();
        next.compose(plan, noise_multiplier, 1)?;
        let epsilon = next.epsilon(plan)?.unwrap_or(f64::INFINITY);
        // PRIVACY: written so that a NaN refuses.
        if epsilon <= budget {
            return Ok(());
        }
        Err(TrainingError::BudgetExceeded {
            round,
            next: epsilon,
            budget,
            spent: self.epsilon(plan)?.unwrap_or(0.0),
            delta: delta.get(),
        })
    }

    /// The guarantee of what was composed, as it is written to `privacy.json`; `None` when not private or nothing was spent.
    ///
    /// # Errors
    /// From the accountant.
    pub fn record(&self, plan: &PrivacyPlan) -> Result<Option<GuaranteeRecord>> {
        let (Some(accountant), Some(private)) = (&self.accountant, plan.private) else {
            return Ok(None);
        };
        if self.rounds == 0 {
            return Ok(None);
        }
        let guarantee = accountant.guarantee(private.delta)?;
        Ok(Some(GuaranteeRecord {
            rounds: self.rounds,
            population: plan.population.users,
            users_per_round: plan.users_per_round,
            noise_multiplier: self.first_noise_multiplier.unwrap_or(f64::NAN),
            ..GuaranteeRecord::from(&guarantee)
        }))
    }
}
