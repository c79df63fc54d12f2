//! Replays a run beside its neighbours, and checks the sensitivity of each sum.
//!
//! Both sides of a round start from the parameters, the clip norm and the noise of the actual run, and only the sum is made twice: this is
//! the adaptive composition that a guarantee speaks of. The neighbour keeps every index. A user who is taken out leaves a tombstone, so
//! all others keep their coins, orders and seeds.

mod adversary;
mod checks;
mod neighbour;
mod pair;
mod population;
mod sums;
mod whole;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::files::names::{CONFIG_FILE, LEDGER_FILE};

use undertone_coordinator::head::{CloseError, RunHead};
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::source::Unwatched;
use undertone_data::Partition;

use super::workspace::RunDirectory;
use super::{Run, RunOptions};
use crate::error::{Result, RunError};
use crate::observer::Silent;
use crate::ranks::OneProcess;
use crate::run_file::{RunFile, training_users};
use undertone_run_directory::entropy::{fresh_bytes, round_entropy};
use undertone_run_directory::ledger::{self, genesis_of};
use undertone_run_directory::replays::{Battery, PopulationMode, Replay, TWIN};
use undertone_run_directory::{files, initial_model};

pub(super) use pair::{Auditor, Beside, Round};

/// The questions of a replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// An empty folder for the files of the replay, which the caller removes.
    pub scratch: PathBuf,
    /// The folder where relative paths of the run file start, where it is not known.
    pub base: Option<PathBuf>,
    /// Cores to use.
    pub threads: usize,
    /// Number of users to audit: those with the most text, those with the least, and users spread over all indices.
    pub users: usize,
    /// Number of rounds to replay; by default all.
    pub rounds: Option<u64>,
    /// Replay a twin of the run under a fresh seed, for a run without a seed.
    pub twin: bool,
    /// The contributions that stand in the audited slot.
    pub battery: Battery,
    /// The numbers that the neighbour is planned with.
    pub population: PopulationMode,
}

/// Replays the run of a directory.
///
/// # Errors
/// [`DirectoryError::Damaged`](undertone_run_directory::error::DirectoryError::Damaged) where a replayed round has other parameters than the ledger says; [`RunError`] for a run without a seed, unless a
/// twin was asked for, and one that is not private; from the run.
pub fn replay(run_dir: &Path, options: &ReplayOptions) -> Result<Replay> {
    let path = run_dir.join(CONFIG_FILE);
    let mut config = RunConfig::parse(&files::read_text(&path)?, &path, &[])?;
    let directory = RunDirectory::existing(run_dir)?;
    let base = directory.base(options.base.as_deref(), &config.data)?;
    if config.task.privacy.is_none() {
        return Err(RunError::missing(
            "privacy",
            "a table: a replay checks the claim of a private run",
        ));
    }
    if options.battery == Battery::Adversarial {
        adversary::check(&config.task)?;
    }
    if config.has_lane() {
        // No user contributes to a lane, and the model has the same bytes without one. Secure sums have none, and their rotations follow
        // from the whole configuration.
        config.leave_audits_out();
    }
    let mut expected = Some(ledger::read(&run_dir.join(LEDGER_FILE), &genesis_of(run_dir)?)?.entries);
    match (options.twin, config.seed) {
        (true, _) => {
            let [a, b, c, d, e, f, ..] = fresh_bytes()?;
            // TOML has signed integers.
            config.seed = Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]));
            expected = None;
        }
        (false, Some(_)) => {}
        (false, None) => {
            let hint = "a number: the keys of a run without a seed are gone, so replay a twin with --twin";
            return Err(RunError::missing("seed", hint));
        }
    }
    let file = RunFile::new(config, base);
    let run_options = RunOptions {
        out: options.scratch.clone(),
        threads: options.threads,
        resume: false,
    };
    RunDirectory::within(&run_options, &file.config.task.name, |scratch| {
        let corpus = scratch.open_corpus(&file.config.data, &file.base, &Silent)?;
        let initial = file.config.initial_model.as_deref();
        let model = initial_model::model(&file.config.task.model, initial, &file.base, corpus.vocab())?;
        let model = Arc::from(model);
        let (run, head) = Run::open(
            &file,
            scratch,
            &corpus,
            &model,
            &run_options,
            &OneProcess,
            &Silent,
        )?;
        let ledger = expected.as_deref().map(|entries| (run_dir, entries));
        let text = training_users(&file.config, &corpus)?;
        let users = audited_users(&text, options.users)?;
        let auditor = Auditor::new(&run.config.task, &text, users, options.battery);
        Replayed { run, auditor }.rounds(head, options, ledger)
    })
}

/// A run that is made again under audit.
struct Replayed<'a> {
    run: Run<'a>,
    auditor: Auditor<'a>,
}

impl Replayed<'_> {
    fn rounds(
        mut self,
        mut head: RunHead,
        options: &ReplayOptions,
        ledger: Option<(&Path, &[LedgerEntry])>,
    ) -> Result<Replay> {
        let planned = self.run.config.task.rounds;
        let made = ledger.map_or(planned, |(_, entries)| entries.len() as u64);
        let rounds = options.rounds.unwrap_or(made).min(made);
        let adjacency = head.plan().adjacency();
        let mut conditional_on = Replay::conditional_on(options.population);
        if options.population == PopulationMode::Recomputed {
            let moved = population::recomputed(&self.run, head.plan(), &mut self.auditor)?;
            conditional_on.extend(moved);
        }
        let mut entries: Vec<LedgerEntry> = Vec::new();
        while head.round() < rounds {
            let (opened, cohort) = self.run.admit(&head)?;
            let audited = self.auditor.observe(opened.round(), &cohort);
            let next = match audited {
                Some(user) => self
                    .auditor
                    .pair(&mut self.run, &entries, head, opened, &cohort, user)?,
                None => {
                    let gathered = self
                        .run
                        .source
                        .gather(&opened, &cohort, head.parameters(), &Unwatched)?;
                    let entropy = round_entropy(self.run.config.seed)?;
                    head.close(opened, gathered, &entropy, &mut |_| ())
                        .map_err(CloseError::why)?
                }
            };
            if let Some((run_dir, ledger)) = ledger {
                let same = same_round(run_dir, &ledger[next.entry.round as usize], &next.entry);
                // A check that failed before says more than the difference that follows from it.
                if !self.auditor.checks.fails() {
                    same?;
                }
            }
            self.auditor.follow(next.entry.round, next.head.clip());
            entries.push(next.entry);
            head = next.head;
        }
        if rounds == made && made < planned {
            // R0: only a refusal ends a run early, and the next round would be refused again.
            let refused = match self.run.admit(&head) {
                Err(error) => error.refuses_round(),
                Ok(_) => false,
            };
            self.auditor.checks.ask("R0", made, refused);
        }
        let whole_users = self.auditor.end(&self.run, &head, &entries)?;
        Ok(Replay {
            tested: match ledger {
                Some(_) => "this run",
                None => TWIN,
            }
            .to_owned(),
            adjacency,
            clip_norms_per_round: self.auditor.clip_norms(),
            population: options.population,
            battery: options.battery,
            users: self.auditor.users.len(),
            rounds,
            pairs: self.auditor.pairs,
            whole_users,
            checks: self.auditor.checks.list(),
            conditional_on,
        })
    }
}

/// Half of the users by their text, longest and shortest in turn, and half spread over all indices.
fn audited_users(text: &Partition<'_>, number: usize) -> Result<Vec<usize>> {
    let all = text.num_users();
    if number == 0 || number > all {
        let expected = format!("a number in [1, {all}], the users of the run");
        return Err(RunError::value("--users", expected, number));
    }
    let mut by_text: Vec<usize> = (0..all).collect();
    by_text.sort_by_key(|&user| (text.user(user).num_tokens(), user));
    let mut chosen = Vec::with_capacity(number);
    for place in 0..all {
        let candidates = [
            by_text[all - 1 - place],
            by_text[place],
            place * (all / number).max(1) % all,
        ];
        for user in candidates {
            if chosen.len() < number && !chosen.contains(&user) {
                chosen.push(user);
            }
        }
    }
    Ok(chosen)
}

/// Refuses a replayed round that is not the round of the ledger.
fn same_round(run_dir: &Path, ledger: &LedgerEntry, made: &LedgerEntry) -> Result<()> {
    if ledger.parameters_sha256 == made.parameters_sha256 && ledger.participants == made.participants {
        return Ok(());
    }
    let shown = |entry: &LedgerEntry| entry.parameters_sha256.clone().unwrap_or_default();
    let message = format!(
        "round {}: expected the replay to make parameters {} again, got {}; replay with the binary, the corpus and a processor of the same \
         kind as the run had",
        made.round,
        shown(ledger),
        shown(made)
    );
    Err(RunError::damaged(&run_dir.join(LEDGER_FILE), message))
}
