//! Replays that a run makes of itself: in one round of so many, the neighbour of one user is made beside the round, while the keys of
//! its noise exist.
//!
//! PRIVACY: the neighbour has the noise of the round, so its release never leaves the memory. The record says which checks passed. These
//! are the same for every round, since a list that follows from the cohort would tell of it: one without users is an exact statistic.

use crate::run_file::training_users;
use std::path::Path;

use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{Next, Opened, RunHead};
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::random::Purpose;
use undertone_coordinator::source::Gathered;
use undertone_mechanisms::draws;

use super::Run;
use super::replay::{Auditor, Beside, Round};
use crate::error::{Result, RunError};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::files;
use undertone_run_directory::files::names::REPLAYS_FILE;
use undertone_run_directory::replays::live::{LiveRecord, LiveRound, SCHEMA, asked, is_due};
use undertone_run_directory::replays::{Battery, clip_norms};

/// The draws of the audited users, apart from all others of the run.
const AUDITED: u64 = 14;

/// The replays of a run between two rounds.
pub(super) struct LiveReplays {
    path: std::path::PathBuf,
    record: LiveRecord,
    /// The checks of each replayed round.
    asked: Vec<String>,
}

/// A round whose neighbour was made, before the release of the round.
pub(super) struct Audited<'a> {
    auditor: Auditor<'a>,
    /// `None` where the neighbour failed.
    beside: Option<Beside>,
}

impl LiveReplays {
    /// The replays before the first round, or after so many; `None` for a run without them. A fresh run writes an empty record.
    pub(super) fn open(
        folder: &Path,
        config: &RunConfig,
        plan: &PrivacyPlan,
        rounds: Option<u64>,
    ) -> Result<Option<Self>> {
        let every = config.audit.map_or(0, |audit| audit.replay_every);
        if every == 0 {
            return Ok(None);
        }
        let path = folder.join(REPLAYS_FILE);
        let record = match rounds {
            Some(rounds) => {
                let mut record = LiveRecord::read(folder, every)?;
                record.replays.retain(|replay| replay.round < rounds);
                record.check(folder, &config.task, rounds)?;
                record
            }
            None => LiveRecord {
                schema: SCHEMA.to_owned(),
                every,
                adjacency: plan.adjacency(),
                clip_norms_per_round: clip_norms(&config.task),
                replays: Vec::new(),
            },
        };
        files::write_json(&path, &record)?;
        Ok(Some(Self {
            path,
            record,
            asked: asked(&config.task),
        }))
    }

    /// Compares a round with its neighbour, and keeps that all checks passed. The list of checks is the same for a round without users.
    ///
    /// # Errors
    /// [`RunError::Contradicted`] where a check failed. Nothing is kept of the round then, so that the run cannot go on.
    pub(super) fn keep(&mut self, audited: Option<Audited<'_>>, next: &Next) -> Result<()> {
        let round = next.entry.round;
        if !is_due(self.record.every, round) {
            return Ok(());
        }
        if let Some(Audited { mut auditor, beside }) = audited {
            if let Some(beside) = beside {
                auditor.compare(beside, next);
            }
            let mut passed = Vec::new();
            for check in auditor.asked() {
                if check.failed > 0 {
                    return Err(RunError::Contradicted {
                        round,
                        check: check.name,
                        property: check.property,
                    });
                }
                passed.push(check.name);
            }
            debug_assert!(next.entry.abandoned || passed == self.asked, "{passed:?}");
        }
        self.record.replays.push(LiveRound {
            round,
            passed: self.asked.clone(),
        });
        Ok(files::write_json(&self.path, &self.record)?)
    }
}

impl<'a> Run<'a> {
    /// Makes the neighbour of one user of a round, if the round is to be replayed. Its sum is gathered, and its noise not yet drawn.
    pub(super) fn audited(
        &mut self,
        head: &RunHead,
        opened: &Opened,
        cohort: &Cohort,
        gathered: &mut Gathered,
        entropy: &RoundEntropy,
    ) -> Result<Option<Audited<'a>>> {
        let every = self.live.as_ref().map_or(0, |live| live.record.every);
        if !is_due(every, opened.round()) || cohort.users.is_empty() {
            return Ok(None);
        }
        let mut generator = self.randomness.generator(Purpose::Audit, opened.round(), AUDITED);
        let place = draws::below(cohort.users.len() as u64, &mut generator) as usize;
        let user = cohort.users[place];
        let text = training_users(self.config, self.corpus)?;
        let mut auditor = Auditor::new(&self.config.task, &text, vec![user], Battery::Natural);
        let entries = self.store.lines()?;
        let round = Round {
            entries: &entries,
            head,
            opened,
            cohort,
            entropy,
        };
        let beside = auditor.beside(self, &round, gathered, user)?;
        Ok(Some(Audited { auditor, beside }))
    }
}
