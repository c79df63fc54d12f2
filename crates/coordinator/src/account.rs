//! The account of a ledger: the cost of its rounds, and the participation of its users.

use undertone_accounting::participation::Participation;

use crate::error::{CoordinatorError, Result};
use crate::participation::ParticipantId;
use crate::participation::observed::Observed;
use crate::participation::policy::Policy;
use crate::plan::{Cost, PrivacyPlan, Spending};
use crate::record::{AbandonedAttempt, GuaranteeRecord, LedgerEnd, LedgerEntry, StopRecord, everyone_in};
use crate::task::TaskConfig;

/// The rounds of a ledger, composed one after another. A run writes its claims from it, and verification makes them again.
#[derive(Debug, Clone)]
pub struct Account<'a> {
    config: &'a TaskConfig,
    plan: &'a PrivacyPlan,
    spending: Spending,
    observed: Observed,
    /// The declared schema, where there is one.
    policy: Option<Policy>,
}

impl<'a> Account<'a> {
    /// The account before the first round.
    ///
    /// # Errors
    /// From the accountant's types.
    pub fn new(config: &'a TaskConfig, plan: &'a PrivacyPlan) -> Result<Self> {
        Ok(Self {
            config,
            plan,
            spending: Spending::new(plan),
            observed: Observed::new(),
            policy: plan.policy(config)?,
        })
    }

    /// Adds the next round.
    ///
    /// PRIVACY: the ledger's noise is priced with the plan's sampling, so the two must agree on it.
    ///
    /// # Errors
    /// A line of another sampling, or whose participants break the declared schema; from the accountant.
    pub fn add(&mut self, entry: &LedgerEntry) -> Result<()> {
        let planned = (
            self.config.cohort.sampling.name(),
            self.plan.sampling_probability(),
            self.plan.population().users,
        );
        let found = (&entry.sampling[..], entry.sampling_probability, entry.population);
        if planned != found {
            return Err(CoordinatorError::Ledger {
                message: format!(
                    "round {}: sampled as {found:?}, the run samples as {planned:?}",
                    entry.round
                ),
            });
        }
        if entry.noise_domain != self.plan.noise_label() {
            return Err(CoordinatorError::Ledger {
                message: format!(
                    "round {}: {}",
                    entry.round,
                    match entry.noise_domain {
                        Some(_) =>
                            "noise_domain is that of encoded updates with noise of the server; expected this key absent",
                        None =>
                            "expected noise_domain = \"modular\"; an earlier version made this round and added its noise after it \
                             had lifted the sum, so the run cannot go on: start a new one",
                    }
                ),
            });
        }
        check_rows(&entry.attempts)?;
        self.spending.compose(self.plan, Cost::from(entry), 1)?;
        self.count(entry.round, &entry.everyone())
    }

    /// Adds the end of a task: the attempts after its last release.
    ///
    /// # Errors
    /// An end after another number of rounds, or whose participants break the declared schema.
    pub fn end(&mut self, end: &LedgerEnd) -> Result<()> {
        if end.rounds != self.spending.rounds() {
            return Err(CoordinatorError::Ledger {
                message: format!(
                    "the end: expected `rounds` = {}, got {}",
                    self.spending.rounds(),
                    end.rounds
                ),
            });
        }
        check_rows(&end.attempts)?;
        if end.attempts.is_empty() {
            return Ok(());
        }
        self.spending.attempt();
        self.count(end.rounds, &everyone_in(&end.attempts))
    }

    /// PRIVACY: a user who was in an abandoned attempt counts as in a released one. With noise that clients add, the server has seen
    /// the noised sum of such an attempt, and the user pays for it.
    fn count(&mut self, round: u64, everyone: &[ParticipantId]) -> Result<()> {
        self.observed.record(round, everyone)?;
        if let Some(policy) = &mut self.policy {
            policy.admit(round, everyone)?;
        }
        Ok(())
    }

    /// The participation of the rounds so far, abandoned attempts included.
    #[must_use]
    pub fn participation(&self) -> &Observed {
        &self.observed
    }

    /// The schema to account for so far: the declared one, or a wider one where violations are accounted.
    fn accounted(&self) -> Result<Option<Participation>> {
        self.policy.as_ref().map(Policy::accounted).transpose()
    }

    /// The spending of the rounds so far, under the schema to account for: the input of a running guarantee.
    ///
    /// # Errors
    /// From the accountant.
    pub fn running(&self) -> Result<Spending> {
        Ok(match self.accounted()? {
            Some(schema) => self.spending.clone().under(schema),
            None => self.spending.clone(),
        })
    }

    /// The guarantee of the observed participation.
    ///
    /// # Errors
    /// From the accountant.
    pub fn observed(&self) -> Result<Option<GuaranteeRecord>> {
        match (self.spending.participation(), self.observed.participation()?) {
            (Some(_), Some(schema)) => self.spending.clone().under(schema).record(self.plan),
            _ => self.spending.record(self.plan),
        }
    }

    /// The end of the training before its last round, where the round of that end may depend on a release. `planned` is the guarantee of
    /// the plan, [`PrivacyPlan::planned`].
    ///
    /// PRIVACY: a person who looks at a loss and then stops chooses the number of rounds by the text. The guarantee of all rounds that could
    /// have been made holds for every such choice. That of the rounds so far does not.
    ///
    /// # Errors
    /// From the accountant.
    pub fn stopped(
        &self,
        end: Option<&LedgerEnd>,
        planned: Option<&GuaranteeRecord>,
    ) -> Result<Option<StopRecord>> {
        let rounds = self.spending.rounds();
        let is_over = rounds >= self.config.rounds || !self.plan.is_private();
        let independent = end.is_some_and(|end| end.end.is_independent_of_releases());
        if is_over || independent || self.spending.is_nothing(self.plan) {
            return Ok(None);
        }
        let declared = self.spending.participation();
        let as_declared = declared.is_none() || self.accounted()? == declared;
        let (planned_rounds, claimed) = match as_declared && self.spending.is_part_of_plan(self.plan)? {
            true => (self.config.rounds, planned.cloned()),
            false => {
                let all = self.running()?.completed(self.plan)?;
                (all.rounds(), all.record(self.plan)?)
            }
        };
        // The budget refuses the next round, whatever was released.
        Ok((planned_rounds > rounds).then_some(StopRecord {
            rounds,
            planned_rounds,
            claimed,
        }))
    }

    /// The guarantee of the rounds so far for each user who keeps to the schema to account for, where there is one.
    ///
    /// # Errors
    /// From the accountant.
    pub(crate) fn worst_case(&self) -> Result<Option<GuaranteeRecord>> {
        match self.accounted()? {
            Some(_) => self.running()?.record(self.plan),
            None => Ok(None),
        }
    }
}

/// Refuses an attempt beside a release that spent a row of noise: no line accounts for that row.
pub(crate) fn check_rows(attempts: &[AbandonedAttempt]) -> Result<()> {
    match attempts.iter().find(|attempt| attempt.row_spent) {
        None => Ok(()),
        Some(attempt) => Err(CoordinatorError::Ledger {
            message: format!(
                "attempt {}: expected `row_spent` = false, because a row of noise belongs to a line of its own, got true",
                attempt.attempt
            ),
        }),
    }
}

#[cfg(test)]
mod tests;
