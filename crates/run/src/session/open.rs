//! A session before its first round, or after the rounds of its ledger.

use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};
use undertone_accounting::participation::Participation;
use undertone_aggregation::Estimator;
use undertone_coordinator::chain::Chain;
use undertone_coordinator::cohorts::Cohorts;
use undertone_coordinator::head::RunHead;
use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::kept_examples;
use undertone_coordinator::outlet::declared_examples;
use undertone_coordinator::participation::ParticipationKey;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry};
use undertone_present::numbers::hex;

use super::journal::Journal;
use super::model_name;
use crate::checkpoint::store::FileStore;
use crate::checkpoint::{self, Checkpoint};
use crate::driver::workspace::RunDirectory;
use crate::error::{Result, RunError};
use undertone_run_directory::entropy::{randomness, round_entropy};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{CONFIG_FILE, LEDGER_FILE};
use undertone_run_directory::ledger::{first_line, genesis_of_session, read_chain};
use undertone_run_directory::plan_inputs::{begun, config_text, named_strategy};
use undertone_run_directory::session_config::{SessionConfig, population, reads_counts};

/// Everything that depends on the population: the draws of its users, and the plan that was made for it.
pub(super) struct People {
    pub(super) counts: ParameterCounts,
    /// The digest of the numbers of users and of their examples. PRIVACY: it stays in the checkpoint.
    pub(super) sha256: String,
    pub(super) randomness: Randomness,
    pub(super) key: ParticipationKey,
    pub(super) cohorts: Cohorts,
    pub(super) planned: Option<GuaranteeRecord>,
    pub(super) participation: Option<Participation>,
    pub(super) denominator: Option<f64>,
}

/// The number of examples of each user; empty where nothing reads it.
pub(super) fn example_counts<'a>(config: &SessionConfig, examples: Option<&'a [u32]>) -> Result<&'a [u32]> {
    match (reads_counts(config), examples) {
        (false, None) => Ok(&[]),
        (true, Some(examples)) if examples.len() as u64 == config.users => Ok(examples),
        (true, found) => {
            let expected = format!(
                "the number of examples of each of the {} users with els",
                config.users
            );
            let got = found.map_or("none".to_owned(), |found| format!("{} numbers", found.len()));
            Err(RunError::value("examples", expected, got))
        }
        (false, Some(_)) => Err(RunError::value(
            "examples",
            "none: only els reads them",
            "numbers",
        )),
    }
}

/// A session before its next round.
type Made = (People, RunHead, FileStore);

impl People {
    fn new(
        config: &SessionConfig,
        plan: &PrivacyPlan,
        counts: &[u32],
        key: Option<ParticipationKey>,
    ) -> Result<Self> {
        let randomness = randomness(config.seed)?;
        let key = key.unwrap_or_else(|| ParticipationKey::new(&randomness));
        let denominator = match *plan.estimator() {
            Estimator::FixedDenominator { expected_weight } => Some(expected_weight),
            _ => None,
        };
        Ok(Self {
            counts: ParameterCounts::of(&config.task.model, 0)?,
            sha256: people_sha256(config.users, counts),
            cohorts: Cohorts::new(&config.task, plan, counts, &key)?,
            planned: plan.planned()?,
            participation: plan.participation(),
            denominator,
            randomness,
            key,
        })
    }
}

fn people_sha256(users: u64, counts: &[u32]) -> String {
    let mut hash = Sha256::new_with_prefix(b"undertone session\0");
    hash.update(users.to_le_bytes());
    for count in counts {
        hash.update(count.to_le_bytes());
    }
    hex(&hash.finalize())
}

/// The number of kept examples, with example-level sampling: the one that the settings give, or the counted one.
fn kept(config: &SessionConfig, counts: &[u32]) -> Option<f64> {
    let group_size = config
        .task
        .user_update
        .group_size
        .filter(|_| reads_counts(config))?;
    // PRIVACY: a number that the settings give is not counted on people's text.
    let declared = declared_examples(&config.task).filter(|_| config.task.privacy.is_some());
    Some(declared.unwrap_or_else(|| kept_examples::count(counts, group_size) as f64))
}

/// A session before its first round, with its settings written.
pub(super) fn started(
    directory: &RunDirectory,
    config: &SessionConfig,
    base: &Path,
    counts: &[u32],
) -> Result<Made> {
    let layout = config.task.model.layout(0)?;
    let strategy = named_strategy(&config.task, base)?;
    let population = population(config, kept(config, counts));
    let plan = PrivacyPlan::new(&config.task, strategy.as_ref(), &layout, population)?;
    plan.check_sum(1)?;
    plan.check_budget()?;
    let people = People::new(config, &plan, counts, None)?;
    files::write_atomic(&directory.file(CONFIG_FILE), config_text(config)?.as_bytes())?;
    directory.write_mechanism(&plan)?;
    let genesis = genesis_of_session(directory.path())?;
    let (store, _, _) = FileStore::open(directory.path(), &genesis, 0)?;
    // Its key is replaced before the first row.
    let entropy = round_entropy(config.seed)?;
    let head = RunHead::new(&config.task, plan, None, &genesis, &entropy)?;
    Ok((people, head, store))
}

/// A session after the rounds of its ledger.
pub(super) fn resumed(directory: &RunDirectory, config: &SessionConfig, counts: &[u32]) -> Result<Made> {
    let folder = directory.path();
    let layout = config.task.model.layout(0)?;
    let first = first_line(folder)?;
    // The matrix and the noise that were run, not those that are found once more.
    let begun = begun(folder, first.as_ref().and_then(|first| first.noise_multiplier))?;
    // An earlier version counted the examples although the settings gave their number.
    let known = first.and_then(|first| first.total_weight);
    let population = population(config, kept(config, counts).map(|kept| known.unwrap_or(kept)));
    let plan = PrivacyPlan::of_begun(&config.task, &begun, &layout, population)?;
    plan.check_sum(1)?;
    let found = Checkpoint::read(folder, 0)?;
    let model = model_name(ParameterCounts::of(&config.task.model, 0)?);
    let digest = undertone_run_directory::plan_inputs::config_digest(config)?;
    found.check_belongs(folder, &model, &digest, &people_sha256(config.users, counts))?;
    let key = found.state.participation_key.clone();
    let key =
        key.ok_or_else(|| RunError::damaged(&checkpoint::path(folder), "it has no key of participation"))?;
    let mut people = People::new(config, &plan, counts, Some(key))?;
    let genesis = genesis_of_session(folder)?;
    // PRIVACY: no whole line is cut, also none after the last state. What it accounts for may have left.
    let (store, entries, _) =
        FileStore::open(folder, &genesis, files::whole_lines(&folder.join(LEDGER_FILE))?)?;
    people.cohorts.replay(&entries)?;
    let head = replayed(folder, config, plan, &genesis, &found, &entries)?;
    Ok((people, head, store))
}

/// The head after all lines of a ledger: the last state, and the rows of the journal.
fn replayed(
    folder: &Path,
    config: &SessionConfig,
    plan: PrivacyPlan,
    genesis: &str,
    found: &Checkpoint,
    entries: &[LedgerEntry],
) -> Result<RunHead> {
    let (saved, known) = (found.state.rounds, entries.len() as u64);
    if known < saved {
        let message = format!("{saved} rounds, but the ledger has {known}");
        return Err(RunError::damaged(&checkpoint::path(folder), message));
    }
    let rows = Journal::rows(folder, saved, known, config.seed)?;
    // Its key is replaced before the first row.
    let entropy = round_entropy(config.seed)?;
    let mut head = RunHead::new(&config.task, plan, None, genesis, &entropy)?;
    if saved > 0 {
        let path = found.noise_state(folder)?.filter(|_| saved < config.task.rounds);
        let mut noise = match path {
            // How much of it is read follows from the plan, not from its size.
            Some(path) => Some(BufReader::new(files::open_at_most(&path, u64::MAX)?)),
            None => None,
        };
        let secret = noise.as_mut().map(|file| file as &mut dyn Read);
        let (before, chain) = (
            &entries[..saved as usize],
            chain_after(folder, genesis, entries, saved)?,
        );
        head = head.load(before, chain, found.state.adaptive_clip, secret, &entropy)?;
    }
    Ok(head.replay(entries, &rows)?)
}

/// The end of a ledger after this many of its rounds.
fn chain_after(folder: &Path, genesis: &str, entries: &[LedgerEntry], rounds: u64) -> Result<Chain> {
    match entries.get(rounds as usize) {
        Some(next) => Ok(Chain::at(next.previous_sha256.clone())),
        None => Ok(Chain::at(read_chain(&folder.join(LEDGER_FILE), genesis)?.1)),
    }
}
