//! Replays a run beside its neighbours, and checks the sensitivity of each sum.
//!
//! Both sides of a round start from the parameters, the clip norm and the noise of the actual run, and only the sum is made twice: this is
//! the adaptive composition that a guarantee speaks of. The neighbour keeps every index. A user who is taken out leaves a tombstone, so
//! all others keep their coins, orders and seeds.

mod checks;
mod neighbour;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use undertone_accounting::Adjacency;
use undertone_aggregation::Estimator;
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{CloseError, Next, Opened, RunHead, Trained};
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::source::{Gathered, RoundSum, Unwatched};
use undertone_coordinator::task::ClipConfig;
use undertone_data::{Partition, Split};
use undertone_mechanisms::RawSum;
use undertone_mechanisms::audit::{Definition, Difference};

use super::entropy::round_entropy;
use super::workspace::RunDirectory;
use super::{CONFIG_FILE, LEDGER_FILE, Run, RunOptions, fresh_bytes, genesis_of};
use crate::config::RunFile;
use crate::error::{Result, RunError};
use crate::ledger::read_chain;
use crate::observer::Silent;
use crate::ranks::OneProcess;
use crate::{files, initial_model};
use neighbour::{Neighbour, Sides};

use checks::Checks;
pub use checks::ReplayCheck;

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
}

/// The result of a replay, as `audit.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    /// `this run`, or `a twin of this run`.
    pub tested: &'static str,
    /// The relation between neighbours.
    pub adjacency: Adjacency,
    /// The bound on one round, in clip norms: 1, or 2 where another text stands in the slot of a user.
    pub clip_norms_per_round: f64,
    /// `public`: the numbers of users and the denominator stay as planned.
    pub population: &'static str,
    /// `natural`: the users' own texts.
    pub battery: &'static str,
    /// Number of audited users.
    pub users: usize,
    /// Number of replayed rounds.
    pub rounds: u64,
    /// Number of (user, round) pairs whose sums were made twice.
    pub pairs: u64,
    /// Number of users all of whose rounds were audited, so that R5 speaks of them.
    pub whole_users: usize,
    /// The checks, R0 to R6.
    pub checks: Vec<ReplayCheck>,
    /// Public statistics that the result is conditional on.
    pub conditional_on: Vec<&'static str>,
}

impl Replay {
    /// `true` if a check failed.
    #[must_use]
    pub fn contradicts(&self) -> bool {
        self.checks.iter().any(|check| check.failed > 0)
    }
}

/// Replays the run of a directory.
///
/// # Errors
/// [`RunError::Damaged`] where a replayed round has other parameters than the ledger says; [`RunError`] for a run without a seed, unless a
/// twin was asked for, one that is not private, and one with `[aggregation]`; from the run.
pub fn replay(run_dir: &Path, options: &ReplayOptions) -> Result<Replay> {
    let path = run_dir.join(CONFIG_FILE);
    let mut config = RunFile::parse(&files::read_text(&path)?, &path, &[])?;
    let directory = RunDirectory::existing(run_dir)?;
    let base = directory.base(options.base.as_deref(), &config.data)?;
    if config.task.privacy.is_none() {
        return Err(RunError::missing(
            "privacy",
            "a table: a replay checks the claim of a private run",
        ));
    }
    if config.task.aggregation.is_some() {
        let expected = "no table: a replay does not yet make secure sums twice";
        return Err(RunError::value("aggregation", expected, "a table"));
    }
    let mut expected = Some(read_chain(&run_dir.join(LEDGER_FILE), &genesis_of(run_dir)?)?.0);
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
        Audited::new(run, &corpus.partition(Split::Train), options)?.rounds(head, options, ledger)
    })
}

/// A run under audit.
struct Audited<'a> {
    run: Run<'a>,
    neighbour: Neighbour,
    /// The audited users, the first of which is audited in each of its rounds.
    users: Vec<usize>,
    checks: Checks,
    entries: Vec<LedgerEntry>,
    /// The differences of each audited user by round, and its rounds.
    differences: BTreeMap<usize, Vec<(usize, Difference)>>,
    participations: BTreeMap<usize, Vec<u64>>,
    /// The distinct examples of each audited user that were sampled, with example-level sampling.
    examples: BTreeMap<usize, BTreeSet<usize>>,
    /// Sizes of the cohorts, with example-level sampling in examples.
    sizes: Vec<u64>,
    pairs: u64,
}

impl<'a> Audited<'a> {
    fn new(run: Run<'a>, text: &Partition<'_>, options: &ReplayOptions) -> Result<Self> {
        let users = audited_users(text, options.users)?;
        Ok(Self {
            neighbour: Neighbour::of(&run.config.task, text.num_users()),
            run,
            users,
            checks: Checks::default(),
            entries: Vec::new(),
            differences: BTreeMap::new(),
            participations: BTreeMap::new(),
            examples: BTreeMap::new(),
            sizes: Vec::new(),
            pairs: 0,
        })
    }

    fn rounds(
        mut self,
        mut head: RunHead,
        options: &ReplayOptions,
        ledger: Option<(&Path, &[LedgerEntry])>,
    ) -> Result<Replay> {
        let made = ledger.map_or(self.run.config.task.rounds, |(_, entries)| entries.len() as u64);
        let rounds = options.rounds.unwrap_or(made).min(made);
        let adjacency = head.plan().adjacency();
        while head.round() < rounds {
            let (opened, cohort) = self.run.admit(&head)?;
            for user in self.users.iter().filter(|user| cohort.users.contains(user)) {
                self.participations.entry(*user).or_default().push(opened.round());
            }
            for &(user, example) in cohort.microbatches.iter().flatten().flatten() {
                if self.users.contains(&user) {
                    self.examples.entry(user).or_default().insert(example);
                }
            }
            self.sizes.push(match &cohort.microbatches {
                Some(all) => all.iter().map(Vec::len).sum::<usize>() as u64,
                None => cohort.users.len() as u64,
            });
            let audited = self
                .users
                .iter()
                .copied()
                .find(|user| cohort.users.contains(user));
            let next = match audited {
                Some(user) => self.pair(head, opened, &cohort, user)?,
                None => {
                    let gathered = self.gather(&opened, &cohort, &head)?;
                    close(head, opened, gathered, &round_entropy(self.run.config.seed)?)?
                }
            };
            if let Some((run_dir, entries)) = ledger {
                same_round(run_dir, &entries[next.entry.round as usize], &next.entry)?;
            }
            self.entries.push(next.entry);
            head = next.head;
        }
        self.whole_runs(&head)?;
        self.bookkeeping(&head)?;
        Ok(Replay {
            tested: match ledger {
                Some(_) => "this run",
                None => "a twin of this run",
            },
            adjacency,
            clip_norms_per_round: self.neighbour.clip_norms(),
            population: "public",
            battery: "natural",
            users: self.users.len(),
            rounds,
            pairs: self.pairs,
            whole_users: self.whole_users().count(),
            checks: self.checks.list(),
            conditional_on: vec!["number of users", "denominator of the average"],
        })
    }

    fn gather(&mut self, opened: &Opened, cohort: &Cohort, head: &RunHead) -> Result<Gathered> {
        self.run
            .source
            .gather(opened, cohort, head.parameters(), &Unwatched)
    }

    /// A round with its neighbour: four sums, two releases, and the questions R0 to R4.
    fn pair(&mut self, head: RunHead, opened: Opened, cohort: &Cohort, user: usize) -> Result<Next> {
        let round = opened.round();
        self.pairs += 1;
        let mut with = self.gather(&opened, cohort, &head)?;
        let sides = self
            .neighbour
            .sides(cohort, user, &self.run.participation_key.salt());
        let mut without = match self.gather(&opened, &sides.neighbour, &head) {
            Ok(without) => without,
            Err(error) => {
                // One side alone fails: the error tells of the user.
                self.checks.ask("R0", round, false);
                return Err(error);
            }
        };
        self.sums(&opened, &mut with, &mut without, &sides, &head)?;
        if let Some(names) = sides.names_stay.then(|| with.who.names.clone()) {
            without.who.names = names;
        }
        let (shadow, entropy) = (self.shadow(&head)?, round_entropy(self.run.config.seed)?);
        // The ledger states the sensitivity to one example, or to one user.
        let units = sides.contributions / self.neighbour.clip_norms() * sides.margin();
        let sensitivity = opened.plan().sensitivity.map(|sensitivity| sensitivity * units);
        let denominator = match head.plan().estimator() {
            Estimator::FixedDenominator { expected_weight } => Some(*expected_weight),
            _ => None,
        };
        let again = shadow.open(self.run.cohorts.accounted()?.filter(|_| cohort.widened))?;
        let same_plan = again.plan() == opened.plan() && again.bound() == opened.bound();
        let (one, other) = (
            close(head, opened, with, &entropy)?,
            close(shadow, again, without, &entropy)?,
        );
        self.checks
            .ask("R0", round, same_plan && checks::alike(&one.entry, &other.entry));
        if let (Some(one), Some(other), Some(sensitivity)) = (&one.average, &other.average, sensitivity) {
            self.checks
                .ask("R2", round, checks::near(one, other, sensitivity));
            if let (Some(denominator), Some(difference)) = (denominator, self.last_difference(user)) {
                let explained = difference.explains(one, other, denominator);
                self.checks.ask("R3", round, explained);
            }
        }
        Ok(one)
    }

    fn last_difference(&self, user: usize) -> Option<&Difference> {
        Some(&self.differences.get(&user)?.last()?.1)
    }

    /// R1 and R4, on the sums; the difference is kept for R3 and R5.
    fn sums(
        &mut self,
        opened: &Opened,
        with: &mut Gathered,
        without: &mut Gathered,
        sides: &Sides,
        head: &RunHead,
    ) -> Result<()> {
        let round = opened.round();
        let (a, a_bits) = raw(&mut with.sum)?;
        let (b, b_bits) = raw(&mut without.sum)?;
        let difference = Difference::between(a, b)?;
        let bound = self.clip_norm(opened)? * sides.contributions;
        let mut within = difference.within(bound * sides.margin())?;
        let mut alone = self.gather(opened, &sides.alone, head)?;
        let (a, alone_bits) = raw(&mut alone.sum)?;
        let mut replacement = self.gather(opened, &sides.replacement, head)?;
        let (b, replacement_bits) = raw(&mut replacement.sum)?;
        let mut additive = sides.in_microbatches || difference.is_exactly(&Difference::between(a, b)?);
        if let (Some(a), Some(b)) = (a_bits, b_bits) {
            let bits = Difference::between(a, b)?;
            within &= bits.within(0.5 * sides.contributions)?;
            if let (Some(a), Some(b)) = (alone_bits, replacement_bits) {
                additive &= bits.is_exactly(&Difference::between(a, b)?);
            }
        }
        self.checks.ask("R1", round, within);
        if !sides.in_microbatches {
            self.checks.ask("R4", round, additive);
        }
        let kept = self.differences.entry(sides.user).or_default();
        kept.push((round as usize, difference));
        Ok(())
    }

    /// The clip norm of a round: that of the run file, unless the run moves it.
    fn clip_norm(&self, opened: &Opened) -> Result<f64> {
        let task = &self.run.config.task;
        let given = match &task.clip {
            _ if !task.schedule.is_empty() => None,
            ClipConfig::Flat { norm, .. } | ClipConfig::PerLayer { norm: Some(norm), .. } => Some(*norm),
            ClipConfig::PerLayer { norms, .. } => {
                Some(norms.iter().flatten().map(|norm| norm * norm).sum::<f64>().sqrt())
            }
            ClipConfig::None | ClipConfig::Adaptive { .. } => None,
        };
        given
            .or_else(|| opened.plan().clipping.bound())
            .ok_or_else(|| RunError::missing("clip", "a clip norm"))
    }

    /// A second head in the same place, by the way that a resumed run takes.
    fn shadow(&self, head: &RunHead) -> Result<RunHead> {
        let (run, entropy) = (&self.run, round_entropy(self.run.config.seed)?);
        let task = &run.config.task;
        let trained = head.trained().map(|trained| Trained {
            model: trained.model.clone(),
            parameters: trained.parameters.clone(),
            // The release comes before the optimizer.
            optimizer: ServerOptimizer::new(task.server, trained.model.layout(), task.rounds),
            identity: trained.identity.clone(),
        });
        let shadow = RunHead::new(task, head.plan().clone(), trained, &run.genesis, &entropy)?;
        if head.round() == 0 {
            return Ok(shadow);
        }
        let mut secret = Vec::new();
        head.save_secret(&mut secret)?;
        let mut reader = secret.as_slice();
        let reader: Option<&mut dyn std::io::Read> = match head.has_secret() {
            true => Some(&mut reader),
            false => None,
        };
        Ok(shadow.load(&self.entries, head.chain().clone(), head.clip(), reader, &entropy)?)
    }

    /// Users with a difference for each of their rounds.
    fn whole_users(&self) -> impl Iterator<Item = usize> {
        let whole = |(user, differences): (&usize, &Vec<(usize, Difference)>)| {
            let rounds = self.participations.get(user).map_or(0, Vec::len);
            (rounds == differences.len()).then_some(*user)
        };
        self.differences.iter().filter_map(whole)
    }

    /// R5: all rounds of a user together, under correlated noise.
    fn whole_runs(&mut self, head: &RunHead) -> Result<()> {
        let plan = head.plan();
        let (Some(bounded), Some(clip_norm)) = (plan.bounded(), plan.round(0).clipping.bound()) else {
            return Ok(());
        };
        let mechanism = bounded.mechanism();
        // The matrix of a tree is not square; adaptive clipping restarts one.
        let Ok(definition) = Definition::new(mechanism.strategy(), mechanism.rounds()) else {
            return Ok(());
        };
        let bound = mechanism.sensitivity().squared.get().sqrt() * clip_norm * self.neighbour.clip_norms();
        let users: Vec<usize> = self.whole_users().collect();
        for user in users {
            if let Some(differences) = self.differences.get(&user) {
                let last = differences.last().map_or(0, |(round, _)| *round as u64);
                let within = Difference::all_within(differences, &definition, bound)?;
                self.checks.ask("R5", last, within);
            }
        }
        Ok(())
    }

    /// R6: the users' rounds against the declared schema, the cohorts against the declared law.
    fn bookkeeping(&mut self, head: &RunHead) -> Result<()> {
        let plan = head.plan();
        if let Some(schema) = plan.participation() {
            for rounds in self.participations.values() {
                let last = rounds.last().copied().unwrap_or(0);
                let kept = checks::keeps_to(rounds, &schema);
                self.checks.ask("R6", last, kept);
            }
        }
        if let Some(group_size) = plan.kept_per_user() {
            for examples in self.examples.values() {
                let kept = examples.len() <= group_size as usize;
                self.checks
                    .ask("R6", self.entries.len().saturating_sub(1) as u64, kept);
            }
        }
        let sampled_from = match plan.kept_per_user() {
            Some(_) => plan.population().total_weight as u64,
            None => plan.population().users,
        };
        let sampling = self.run.config.task.cohort.sampling;
        if let Some(holds) = checks::cohort_law(sampling, &self.sizes, sampled_from, plan)? {
            self.checks.ask("R6", 0, holds);
        }
        for entry in &self.entries {
            let plan = match head.clip() {
                Some(_) => continue,
                None => plan.round(entry.round),
            };
            let stated = (entry.sensitivity, entry.noise_multiplier)
                == (plan.sensitivity, plan.noise_multiplier)
                && entry.noise_std == plan.noise_std;
            self.checks.ask("R6", entry.round, stated);
        }
        Ok(())
    }
}

fn close(head: RunHead, opened: Opened, gathered: Gathered, entropy: &RoundEntropy) -> Result<Next> {
    Ok(head
        .close(opened, gathered, entropy, &mut |_| ())
        .map_err(CloseError::why)?)
}

/// Copies of the sums of a round: values and, with adaptive clipping, bits.
///
/// PRIVACY: they stay in this module, which turns them into differences without a reader.
fn raw(sum: &mut RoundSum) -> Result<(RawSum, Option<RawSum>)> {
    let copy = |sum: &mut undertone_aggregation::BoundedSum| -> Result<RawSum> {
        // The weight comes first, then the values in order.
        let mut all: Vec<i64> = Vec::new();
        sum.combine(1, |values| {
            all.extend_from_slice(values);
            Ok::<(), RunError>(())
        })?;
        let values = all.split_off(1);
        Ok(RawSum::new(values, all[0]))
    };
    match sum {
        RoundSum::Users { sum, bits } => Ok((copy(sum)?, bits.as_mut().map(copy).transpose()?)),
        RoundSum::Examples(sum) => Ok((copy(sum)?, None)),
        _ => Err(RunError::value(
            "aggregation",
            "sums in fixed point",
            "another sum",
        )),
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
