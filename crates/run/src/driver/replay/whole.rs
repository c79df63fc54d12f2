//! The checks over all rounds: R5 on the users' whole runs, R3 on the norms of adaptive clipping, R6 on participation and cohorts.

use crate::run_file::training_users;
use undertone_coordinator::head::RunHead;
use undertone_coordinator::kept_examples;
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::task::ClipConfig;
use undertone_mechanisms::audit::{Definition, Difference};

use super::checks;
use super::pair::Auditor;
use crate::driver::{Run, example_counts};
use crate::error::Result;

impl Auditor<'_> {
    /// Asks the checks over all rounds. Returns the number of users all of whose rounds were audited.
    pub(super) fn end(&mut self, run: &Run<'_>, head: &RunHead, entries: &[LedgerEntry]) -> Result<usize> {
        let whole: Vec<usize> = self.participations.keys().copied().collect();
        let whole: Vec<usize> = (whole.into_iter())
            .filter(|user| !self.incomplete.contains(user))
            .collect();
        self.whole_runs(head, &whole)?;
        self.norms(run, head);
        self.bookkeeping(run, head, entries)?;
        Ok(whole.len())
    }

    /// R5: all rounds of a user together, under correlated noise.
    fn whole_runs(&mut self, head: &RunHead, users: &[usize]) -> Result<()> {
        let plan = head.plan();
        let (Some(bounded), Some(clip_norm)) = (plan.bounded(), plan.round(0).clipping.bound()) else {
            return Ok(());
        };
        let mechanism = bounded.mechanism();
        // The norm in force moves with adaptive clipping, and the bits count as well: R5 does not speak of it.
        let Ok(definition) = Definition::new(mechanism.strategy(), mechanism.rounds()) else {
            return Ok(());
        };
        if head.clip().is_some() {
            return Ok(());
        }
        let one = match plan.noise_domain() {
            // In steps, as the differences of residues are.
            Some(domain) => domain.l2 * f64::exp2(-40.0),
            None => clip_norm,
        };
        let bound = mechanism.sensitivity().squared.get().sqrt() * one * self.neighbour.clip_norms();
        for user in users {
            if let Some(differences) = self.differences.get(user) {
                let last = differences.last().map_or(0, |(round, _)| *round as u64);
                let within = Difference::all_within(differences, &definition, bound)?;
                self.checks.ask("R5", last, within);
            }
        }
        Ok(())
    }

    /// R3: the norms of adaptive clipping follow the noised bits.
    fn norms(&mut self, run: &Run<'_>, head: &RunHead) {
        let ClipConfig::Adaptive {
            quantile,
            learning_rate,
            ..
        } = run.config.task.clip
        else {
            return;
        };
        let clients = head
            .plan()
            .bounded()
            .and_then(undertone_coordinator::plan::Bounded::clients);
        for segment in std::mem::take(&mut self.estimates) {
            if let Some(clients) = clients
                && let Some(noisy) = checks::norms_have_noise(&segment, learning_rate, quantile, clients)
            {
                self.checks.ask("R3", head.round().saturating_sub(1), noisy);
            }
        }
    }

    /// R6: the users' rounds against the declared schema, the cohorts against the declared law.
    fn bookkeeping(&mut self, run: &Run<'_>, head: &RunHead, entries: &[LedgerEntry]) -> Result<()> {
        let plan = head.plan();
        let end = entries.len().saturating_sub(1) as u64;
        if let Some(schema) = plan.participation() {
            for rounds in self.participations.values() {
                let last = rounds.last().copied().unwrap_or(0);
                self.checks.ask("R6", last, checks::keeps_to(rounds, &schema));
            }
        }
        if let Some(group_size) = plan.kept_per_user() {
            for examples in self.examples.values() {
                self.checks.ask("R6", end, examples.len() <= group_size as usize);
            }
        }
        let sampled_from = match plan.kept_per_user() {
            Some(group_size) => {
                let counts = example_counts(&training_users(run.config, run.corpus)?);
                kept_examples::count(&counts, group_size)
            }
            None => plan.population().users,
        };
        let sampling = run.config.task.cohort.sampling;
        if let Some(holds) = checks::cohort_law(sampling, &self.sizes, sampled_from, plan)? {
            self.checks.ask("R6", 0, holds);
        }
        if head.clip().is_some() {
            return Ok(());
        }
        for entry in entries {
            let plan = plan.round(entry.round);
            let stated = (entry.sensitivity, entry.noise_multiplier)
                == (plan.sensitivity, plan.noise_multiplier)
                && entry.noise_std == plan.noise_std;
            self.checks.ask("R6", entry.round, stated);
        }
        Ok(())
    }
}
