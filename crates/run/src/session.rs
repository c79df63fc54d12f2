//! Training that another program computes: it gives the updates of each round, and takes the noised average.
//!
//! A [`Session`] draws the users, bounds and sums what they contribute, adds the noise, and keeps ledger and guarantee as a run does.
//! The other program keeps parameters and optimizer. `undertone verify` checks the finished folder.

mod gpu;
mod journal;
mod open;
mod round;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use undertone_accounting::participation::Participation;
use undertone_aggregation::{AggregationError, ParamLayout};
use undertone_coordinator::head::{CloseError, RunHead};
use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::kept_examples;
use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_coordinator::task::ClipConfig;
use undertone_models::weights;
use undertone_settings::Algorithm;

use crate::checkpoint::store::{FileStore, RunStore};
use crate::checkpoint::{self, State};
use crate::driver::workspace::RunDirectory;
use crate::error::{Result, RunError};
use undertone_run_directory::entropy::{fresh_bytes, fresh_number};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{FINISHED_FILES, MODEL_FILE};
use undertone_run_directory::manifest::Manifest;
use undertone_run_directory::session_config::{SessionConfig, UnitRng, claims, described};

pub use round::Round;

use journal::{Journal, Source};
use open::People;

/// A private training whose updates come from another program.
///
/// # Guarantee
/// Each release is made by [`RunHead::close`], whatever the other program contributes. Before anything of a release leaves, its line in
/// the ledger and the entropy of its noise are durable. So a process that dies has either given out nothing of a round, or its ledger
/// has the line. A resumed session draws the rows of all lines again, for the sake of the rows that depend on them, and makes no
/// second release of a round.
pub struct Session {
    directory: RunDirectory,
    config: SessionConfig,
    people: People,
    store: FileStore,
    journal: Journal,
    /// Number of closed rounds.
    rounds: u64,
    /// Number of closed rounds in the last state.
    saved: u64,
    stage: Stage,
}

/// A session between two steps.
enum Stage {
    Between(Box<RunHead>),
    Open(Box<RunHead>, Box<Round>),
    /// The session was closed, or a release failed half way: the head is gone.
    Stopped,
    /// The session has written its model.
    Finished,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("path", &self.directory.path())
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

/// A release of a session. The values went to the caller's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Released {
    /// The round.
    pub round: u64,
    /// SHA-256 (hex) of the values as little-endian bytes, as the ledger states it.
    pub sha256: String,
    /// Max L2 norm of one contribution to the sum of the round; `None` without clipping. It changes where adaptive clipping restarts.
    pub clip_norm: Option<f64>,
    /// Standard deviation of the noise on each value before any division by the clip norm; of correlated noise, of its fresh part.
    pub noise_std: f64,
    /// The L2 norm of the values.
    pub norm: f64,
}

/// Values that one thread copies at once.
const PIECE: usize = 1 << 15;

const STOPPED: RunError = RunError::Session(
    "has stopped: a release failed half way, or the session was closed; make it anew with resume",
);
const FINISHED: RunError = RunError::Session("is finished");
const OPEN: RunError = RunError::Session("has an open round, which has to be released first");
const NO_ROUND: RunError = RunError::Session("has no open round");
/// The refusal of a step on a round that is not the open one.
pub const ROUND_CLOSED: RunError = RunError::Session("has closed this round");

impl Session {
    /// Starts a session in a folder of `out` that has the session's name, or goes on with the one that is there. Relative paths of the
    /// settings start at `base`. Example-level sampling needs the number of `examples` of each user, and nothing else takes it.
    ///
    /// # Errors
    /// [`RunError`]: settings and plans that are refused, a folder that is taken or held; with `resume`, a state of other settings or
    /// another population, and a ledger that is newer than its journal.
    pub fn create(
        out: &Path,
        config: SessionConfig,
        base: &Path,
        examples: Option<&[u32]>,
        resume: bool,
    ) -> Result<Self> {
        config.validate()?;
        let counts = open::example_counts(&config, examples)?;
        let directory = RunDirectory::prepare(out, &config.task.name, resume)?;
        let made = match resume {
            true => open::resumed(&directory, &config, counts),
            false => open::started(&directory, &config, base, counts),
        };
        let made = made.and_then(|made| Ok((made, Journal::open(directory.path())?)));
        let ((people, head, store), journal) = match made {
            Ok(made) => made,
            Err(error) => {
                directory.discard_unstarted();
                return Err(error);
            }
        };
        let mut session = Self {
            directory,
            config,
            people,
            store,
            journal,
            rounds: head.round(),
            saved: head.round(),
            stage: Stage::Stopped,
        };
        // With this state the rows of a journal that was replayed are no longer needed.
        if let Err(error) = session.checkpoint(&head) {
            session.directory.discard_unstarted();
            return Err(error);
        }
        session.stage = Stage::Between(Box::new(head));
        Ok(session)
    }

    /// Opens the next round and draws its users; `None` after the last round.
    ///
    /// # Errors
    /// [`CoordinatorError::BudgetExceeded`](undertone_coordinator::CoordinatorError::BudgetExceeded); the errors of the draw; a
    /// session with an open round.
    pub fn next_round(&mut self) -> Result<Option<&Round>> {
        let head = match std::mem::replace(&mut self.stage, Stage::Stopped) {
            Stage::Between(head) => head,
            other => {
                self.stage = other;
                return Err(self.not_between());
            }
        };
        if head.is_over() {
            self.stage = Stage::Between(head);
            return Ok(None);
        }
        match self.admit(&head) {
            Ok(round) => {
                self.stage = Stage::Open(head, Box::new(round));
                Ok(self.open_round())
            }
            Err(error) => {
                self.stage = Stage::Between(head);
                Err(error)
            }
        }
    }

    fn admit(&mut self, head: &RunHead) -> Result<Round> {
        if head.round() >= self.saved + self.config.checkpoint.every {
            self.checkpoint(head)?;
        }
        // Before the draw, so that a refused round changes nothing.
        let mut opened = head.open(None)?;
        let cohort = self.people.cohorts.draw(head.round(), &self.people.randomness)?;
        if cohort.widened {
            opened = head.open(self.people.cohorts.accounted()?)?;
        }
        let group_size = self.config.task.user_update.group_size;
        Round::new(opened, cohort, group_size, fresh_number()?)
    }

    /// The open round.
    #[must_use]
    pub fn open_round(&self) -> Option<&Round> {
        match &self.stage {
            Stage::Open(_, round) => Some(round),
            _ => None,
        }
    }

    /// The places of at most `group_size` of the `available` examples of a user of the open round, ascending: the draw of user-level
    /// sampling. It is the same however often it is asked for.
    ///
    /// # Errors
    /// A session of another algorithm, or without an open round; a user who is not in it.
    pub fn choose(&self, user: usize, available: usize) -> Result<Vec<usize>> {
        let update = &self.config.task.user_update;
        let (Algorithm::Uls, Some(group_size)) = (update.algorithm, update.group_size) else {
            return Err(RunError::value(
                "user_update.algorithm",
                "`uls`, whose users draw examples",
                update.algorithm.name(),
            ));
        };
        let round = self.open_round().ok_or(NO_ROUND)?;
        let index = round.index();
        // The draw of a run: from the secret of the user in the round.
        let order = self.people.randomness.user_seeds(index, user as u64).order;
        let places = kept_examples::drawn(available, group_size as usize, order);
        match round.gave(user, places.len()) {
            true => Ok(places),
            false => Err(RunError::Stranger { round: index, user }),
        }
    }

    /// Closes the open round and writes its noised average to `out`. A unit that has contributed nothing counts as zero. Where the
    /// clipping is `normalised`, the average is divided by the clip norm.
    ///
    /// # Guarantee
    /// The entropy of the noise and the line of the ledger are durable before `out` is touched. After an error it is untouched.
    ///
    /// # Errors
    /// No open round; an `out` of another length, or units on a GPU whose sum was not merged, which leave the round open; everything else stops the session, and it has to be made
    /// anew with `resume`.
    pub fn release(&mut self, out: &mut [f32]) -> Result<Released> {
        if let Some(round) = self.open_round() {
            if out.len() != self.dim() {
                return Err(AggregationError::Length {
                    what: "out",
                    expected: self.dim(),
                    got: out.len(),
                }
                .into());
            }
            round.check_gpu()?;
        }
        let (head, round) = match std::mem::replace(&mut self.stage, Stage::Stopped) {
            Stage::Open(head, round) => (head, round),
            other => {
                self.stage = other;
                return Err(match self.stage {
                    Stage::Between(_) => NO_ROUND,
                    _ => self.not_between(),
                });
            }
        };
        let source = match self.config.seed {
            Some(seed) => Source::Seed(seed),
            None => Source::Bytes(fresh_bytes()?),
        };
        let (opened, gathered) = round.close();
        let next = head
            .close(opened, gathered, &source.entropy(), &mut |_| ())
            .map_err(CloseError::why)?;
        // PRIVACY: in this order. The row brings back the noise and the clip norms of a line; the line accounts for what leaves.
        self.journal.append(next.entry.round, source, next.head.clip())?;
        self.store.append(&next.line)?;
        self.store.sync()?;
        let (Some(average), Some(sha256)) = (next.average, next.entry.released_sha256) else {
            return Err(STOPPED);
        };
        let pieces = out.par_chunks_mut(PIECE).zip(average.values().par_chunks(PIECE));
        pieces.for_each(|(out, values)| out.copy_from_slice(values));
        let scaled = matches!(self.config.task.clip, ClipConfig::Flat { normalised: true, .. });
        let norm = if scaled { norm_of(out) } else { next.release_norm };
        self.rounds = next.head.round();
        self.stage = Stage::Between(Box::new(next.head));
        Ok(Released {
            round: next.entry.round,
            sha256,
            clip_norm: next.entry.clip_norm,
            noise_std: next.entry.noise_std,
            norm,
        })
    }

    /// Writes the model, the report and the manifest, and removes the state. An open round is dropped. Returns the folder of the
    /// finished session. `parameters` are in the order of the layout.
    ///
    /// # Errors
    /// A session without a round, or one that has stopped or is finished; another number of parameters; [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io).
    pub fn finish(&mut self, parameters: &[f32]) -> Result<PathBuf> {
        let head = match std::mem::replace(&mut self.stage, Stage::Stopped) {
            Stage::Between(head) | Stage::Open(head, _) => head,
            other => {
                self.stage = other;
                return Err(self.not_between());
            }
        };
        let written = self.write_all(&head, parameters);
        self.stage = match written {
            Ok(()) => Stage::Finished,
            Err(_) => Stage::Between(head),
        };
        written?;
        self.directory.unlock();
        Ok(self.directory.path().to_owned())
    }

    fn write_all(&mut self, head: &RunHead, parameters: &[f32]) -> Result<()> {
        if head.round() == 0 {
            return Err(RunError::Session(
                "has no closed round, so there is nothing to finish",
            ));
        }
        let layout = self.config.task.model.layout(0)?;
        let report = self.write_privacy(head)?;
        let entries = self.store.lines()?;
        let planned = self.people.planned.clone();
        let claims = claims(&self.config, head.plan(), self.counts(), planned, &entries);
        let description = described(&claims, &report, head.round()).to_json()?;
        let bytes = weights::to_safetensors(&layout, parameters, &description)?;
        let folder = self.directory.path();
        files::write_atomic(&folder.join(MODEL_FILE), &bytes)?;
        Manifest::of(folder, &FINISHED_FILES, head.round(), head.chain().head())?.write(folder)?;
        // PRIVACY: with its manifest the session is over. Nothing that would tell who was sampled, or take noise off, stays.
        checkpoint::remove(folder)
    }

    /// Drops an open round and lets go of the folder, so that the session can be resumed.
    pub fn close(&mut self) {
        if !matches!(self.stage, Stage::Finished) {
            self.stage = Stage::Stopped;
        }
        self.directory.unlock();
    }

    fn not_between(&self) -> RunError {
        match self.stage {
            Stage::Open(..) => OPEN,
            Stage::Finished => FINISHED,
            Stage::Between(_) | Stage::Stopped => STOPPED,
        }
    }

    /// Writes a state, and cuts the journal.
    fn checkpoint(&mut self, head: &RunHead) -> Result<()> {
        self.write_privacy(head)?;
        let state = State {
            model: model_name(self.counts()),
            config_sha256: undertone_run_directory::plan_inputs::config_digest(&self.config)?,
            data_sha256: self.people.sha256.clone(),
            participation_key: Some(self.people.key.clone()),
            ..State::default()
        };
        self.store.checkpoint(state, head)?;
        self.saved = head.round();
        self.journal.cut()
    }

    /// Recomputes the guarantee from the ledger on disk and writes `privacy.json` and `privacy.md`.
    fn write_privacy(&mut self, head: &RunHead) -> Result<PrivacyReport> {
        let entries = self.store.lines()?;
        let planned = self.people.planned.clone();
        let claims = claims(&self.config, head.plan(), self.counts(), planned, &entries);
        let report = claims.report(&entries, None)?;
        self.directory.write_privacy(&self.config.task.name, &report)?;
        Ok(report)
    }

    /// The folder of the session.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Number of closed rounds.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.rounds
    }

    /// Number of rounds in all.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.config.task.rounds
    }

    /// Number of parameters.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.counts().trained
    }

    /// The shapes of the parameters.
    ///
    /// # Errors
    /// From the layout, which was checked before.
    pub fn layout(&self) -> Result<ParamLayout> {
        Ok(self.config.task.model.layout(0)?)
    }

    fn counts(&self) -> ParameterCounts {
        self.people.counts
    }

    /// The guarantee of all rounds, computed before the first; `None` where the session is not private.
    #[must_use]
    pub fn planned(&self) -> Option<&GuaranteeRecord> {
        self.people.planned.as_ref()
    }

    /// The origin of the random numbers of units.
    #[must_use]
    pub fn unit_rng(&self) -> UnitRng {
        self.config.unit_rng
    }

    /// The participation schema that the guarantee rests on, where there is one.
    #[must_use]
    pub fn participation(&self) -> Option<Participation> {
        self.people.participation
    }

    /// The number that sums are divided by; `None` where it is the number of contributions.
    #[must_use]
    pub fn denominator(&self) -> Option<f64> {
        self.people.denominator
    }

    /// Epsilon of the closed rounds at the delta of the session; `None` where there is none, or where the session has stopped.
    ///
    /// # Errors
    /// From the accountant.
    pub fn epsilon(&self) -> Result<Option<f64>> {
        match &self.stage {
            Stage::Between(head) | Stage::Open(head, _) => Ok(head.epsilon()?),
            Stage::Stopped | Stage::Finished => Ok(None),
        }
    }
}

fn model_name(counts: ParameterCounts) -> String {
    format!("external ({} parameters)", counts.trained)
}

fn norm_of(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&value| f64::from(value).powi(2));
    squares.sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
