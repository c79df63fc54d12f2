//! One audited round: its sums with the user, without, of the user alone and of nobody, and the checks R0 to R4.

use std::collections::{BTreeMap, BTreeSet};

use undertone_aggregation::Estimator;
use undertone_coordinator::adaptive_clip::AdaptiveClip;
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{CloseError, Next, Opened, RunHead, Trained};
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::source::{Gathered, Unwatched};
use undertone_coordinator::task::{ClipConfig, TaskConfig};
use undertone_data::Partition;
use undertone_mechanisms::audit::Difference;
use zeroize::Zeroizing;

use super::adversary::Adversary;
use super::checks::{self, Checks};
use super::neighbour::{Neighbour, Sides};
use super::sums::{Copied, Differences, copied, difference};
use crate::driver::Run;
use crate::error::{Result, RunError};
use undertone_run_directory::entropy::round_entropy;
use undertone_run_directory::replays::{Battery, ReplayCheck};

/// The state of an audit over the rounds of a run.
pub(in crate::driver) struct Auditor<'a> {
    pub(super) neighbour: Neighbour,
    /// The audited users, the first of which is audited in each of its rounds.
    pub(super) users: Vec<usize>,
    pub(super) checks: Checks,
    /// The differences of each audited user by round, and its rounds.
    pub(super) differences: BTreeMap<usize, Vec<(usize, Difference)>>,
    pub(super) participations: BTreeMap<usize, Vec<u64>>,
    /// Users who took part in a round whose audit was of somebody else, or of an invented update.
    pub(super) incomplete: BTreeSet<usize>,
    /// The distinct examples of each audited user that were sampled, with example-level sampling.
    pub(super) examples: BTreeMap<usize, BTreeSet<usize>>,
    /// Sizes of the cohorts, with example-level sampling in examples.
    pub(super) sizes: Vec<u64>,
    /// The estimates of adaptive clipping, from one change of the norm in force to the next.
    pub(super) estimates: Vec<Vec<f64>>,
    pub(super) pairs: u64,
    adversary: Option<Adversary<'a>>,
}

/// The sums of an audited round that belong to no run.
struct Others {
    with: Option<Gathered>,
    without: Gathered,
    alone: Copied,
    replacement: Copied,
}

impl<'a> Auditor<'a> {
    pub(in crate::driver) fn new(
        task: &'a TaskConfig,
        text: &Partition<'a>,
        users: Vec<usize>,
        battery: Battery,
    ) -> Self {
        Self {
            neighbour: Neighbour::of(task, text.num_users()),
            users,
            checks: Checks::default(),
            differences: BTreeMap::new(),
            participations: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            examples: BTreeMap::new(),
            sizes: Vec::new(),
            estimates: Vec::new(),
            pairs: 0,
            adversary: (battery == Battery::Adversarial).then(|| Adversary::new(task, text)),
        }
    }

    /// The checks that were asked.
    pub(in crate::driver) fn asked(&self) -> impl Iterator<Item = ReplayCheck> {
        self.checks.list().into_iter().filter(|check| check.compared > 0)
    }

    pub(super) fn clip_norms(&self) -> f64 {
        self.neighbour.clip_norms()
    }

    /// Takes note of a cohort. Returns the audited user of the round.
    pub(super) fn observe(&mut self, round: u64, cohort: &Cohort) -> Option<usize> {
        let here = |user: &&usize| cohort.users.contains(user);
        let taking_part: Vec<usize> = self.users.iter().filter(here).copied().collect();
        for &user in &taking_part {
            self.participations.entry(user).or_default().push(round);
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
        self.incomplete.extend(taking_part.iter().skip(1));
        taking_part.first().copied()
    }

    /// Takes note of the norm that adaptive clipping estimates after a round.
    pub(super) fn follow(&mut self, round: u64, clip: Option<AdaptiveClip>) {
        let Some(clip) = clip else { return };
        if round == 0 || clip.estimate() == clip.active() {
            self.estimates.push(Vec::new());
        }
        if let Some(segment) = self.estimates.last_mut() {
            segment.push(clip.estimate());
        }
    }

    /// A round with its neighbour: the sums, the releases, and the questions R0 to R4.
    pub(super) fn pair(
        &mut self,
        run: &mut Run<'_>,
        entries: &[LedgerEntry],
        head: RunHead,
        opened: Opened,
        cohort: &Cohort,
        user: usize,
    ) -> Result<Next> {
        let mut actual = run
            .source
            .gather(&opened, cohort, head.parameters(), &Unwatched)?;
        let entropy = round_entropy(run.config.seed)?;
        let round = Round {
            entries,
            head: &head,
            opened: &opened,
            cohort,
            entropy: &entropy,
        };
        let beside = self.beside(run, &round, &mut actual, user)?;
        let next = close(head, opened, actual, &entropy)?;
        if let Some(beside) = beside {
            self.compare(beside, &next);
        }
        Ok(next)
    }

    /// The neighbour of a round whose sum is gathered and whose noise is not drawn yet, with the questions R1 and R4. `None` where the
    /// neighbour fails.
    pub(in crate::driver) fn beside(
        &mut self,
        run: &mut Run<'_>,
        at: &Round<'_>,
        actual: &mut Gathered,
        user: usize,
    ) -> Result<Option<Beside>> {
        self.pairs += 1;
        let Round {
            head, opened, cohort, ..
        } = *at;
        let round = opened.round();
        let sides = self.neighbour.sides(cohort, user, &run.participation_key.salt());
        let others = match self.others(run, head, opened, &sides) {
            Ok(others) => others,
            Err(_) => {
                // PRIVACY: one side alone fails, so the error tells of the user. It is counted and not shown.
                self.checks.ask("R0", round, false);
                self.incomplete.insert(user);
                return Ok(None);
            }
        };
        let Others {
            mut with,
            mut without,
            alone,
            replacement,
        } = others;
        let encoding = head.plan().encoding();
        let of_with = match &mut with {
            Some(with) => copied(&mut with.sum, encoding, round)?,
            None => copied(&mut actual.sum, encoding, round)?,
        };
        let of_without = copied(&mut without.sum, encoding, round)?;
        let found = difference(of_with, of_without)?;
        let own = difference(alone, replacement)?;
        if let (Some(found), Some(own)) = (&found, &own) {
            let unit = head.plan().noise_domain().map(|domain| domain.l2);
            let bound = self.clip_norm(run, opened)? * sides.contributions * sides.margin();
            let mut within = match unit {
                Some(steps) => found.values.within_steps(steps * sides.contributions)?,
                None => found.values.within(bound)?,
            };
            let mut additive = found.values.is_exactly(&own.values);
            if let (Some(bits), Some(own)) = (&found.bits, &own.bits) {
                within &= bits.within(0.5 * sides.contributions)?;
                additive &= bits.is_exactly(own);
            }
            self.checks.ask("R1", round, within);
            if !sides.in_microbatches {
                self.checks.ask("R4", round, additive);
            }
        }
        if sides.names_stay {
            without.who.names.clone_from(&actual.who.names);
        }
        // The ledger states the sensitivity to one example, or to one user.
        let units = sides.contributions / self.neighbour.stated() * sides.margin();
        let denominator = match head.plan().estimator() {
            Estimator::FixedDenominator { expected_weight } if encoding.is_none() => Some(*expected_weight),
            _ => None,
        };
        let (other, same_plan) = at.close_shadow(run, without)?;
        let invented = match with {
            Some(with) => Some(at.close_shadow(run, with)?.0),
            None => None,
        };
        Ok(Some(Beside {
            user,
            found,
            sensitivity: opened.plan().sensitivity.map(|sensitivity| sensitivity * units),
            denominator,
            same_plan,
            other,
            invented,
        }))
    }

    /// Asks R0, R2 and R3 about the release of a round and that of its neighbour.
    pub(in crate::driver) fn compare(&mut self, beside: Beside, next: &Next) {
        let Beside {
            user,
            found,
            sensitivity,
            denominator,
            same_plan,
            other,
            invented,
        } = beside;
        let round = next.entry.round;
        let one = invented.as_ref().unwrap_or(next);
        let alike =
            checks::alike(&one.entry, &other.entry) && one.average.is_some() == other.average.is_some();
        self.checks.ask("R0", round, same_plan && alike);
        if let (Some(one), Some(other), Some(sensitivity)) = (&one.average, &other.average, sensitivity) {
            let near = checks::near(one, other, sensitivity);
            self.checks.ask("R2", round, near);
            if let (Some(denominator), Some(found)) = (denominator, &found) {
                let explained = found.values.explains(one, other, denominator);
                self.checks.ask("R3", round, explained);
            }
        }
        let invented = invented.is_some();
        match found {
            Some(found) if !invented => {
                let kept = self.differences.entry(user).or_default();
                kept.push((round as usize, found.values));
            }
            // An abandoned round moves nothing, and counts as a participation.
            _ if !invented && one.entry.abandoned && other.entry.abandoned => {}
            _ => drop(self.incomplete.insert(user)),
        }
    }

    /// The sums of the neighbour, of the user alone, and of nobody; with an adversary also that of the neighbour with its update.
    fn others(
        &mut self,
        run: &mut Run<'_>,
        head: &RunHead,
        opened: &Opened,
        sides: &Sides,
    ) -> Result<Others> {
        let encoding = head.plan().encoding();
        let round = opened.round();
        let mut gather = |cohort: &Cohort| run.source.gather(opened, cohort, head.parameters(), &Unwatched);
        let without = gather(&sides.neighbour)?;
        let mut replacement = gather(&sides.replacement)?;
        let Some(adversary) = &mut self.adversary else {
            let mut alone = gather(&sides.alone)?;
            return Ok(Others {
                with: None,
                without,
                alone: copied(&mut alone.sum, encoding, round)?,
                replacement: copied(&mut replacement.sum, encoding, round)?,
            });
        };
        // In a slot whose text is replaced, the invented update stands instead of either text.
        let others = sides.without_slot();
        let (mut with, mut alone) = (
            gather(others.as_ref().unwrap_or(&sides.neighbour))?,
            match others {
                Some(_) => gather(&sides.nobody())?,
                None => gather(&sides.replacement)?,
            },
        );
        let key = run.randomness.user_seeds(round, sides.user as u64).encoding;
        let update = adversary.update(self.pairs, run.model.as_ref(), head, opened, &mut with)?;
        for sum in [&mut with.sum, &mut alone.sum] {
            update.add(sum, opened, encoding, &key)?;
        }
        with.who.names.clone_from(&without.who.names);
        Ok(Others {
            alone: copied(&mut alone.sum, encoding, round)?,
            replacement: copied(&mut replacement.sum, encoding, round)?,
            with: Some(with),
            without,
        })
    }

    /// The clip norm of a round: that of the run file, unless the run moves it.
    fn clip_norm(&self, run: &Run<'_>, opened: &Opened) -> Result<f64> {
        let task = &run.config.task;
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
}

/// A round between its sum and its noise.
#[derive(Clone, Copy)]
pub(in crate::driver) struct Round<'a> {
    /// The ledger before the round.
    pub(in crate::driver) entries: &'a [LedgerEntry],
    pub(in crate::driver) head: &'a RunHead,
    pub(in crate::driver) opened: &'a Opened,
    pub(in crate::driver) cohort: &'a Cohort,
    /// The entropy of the round, which both sides take.
    pub(in crate::driver) entropy: &'a RoundEntropy,
}

/// The release of a round that its neighbour made.
pub(in crate::driver) struct Beside {
    user: usize,
    found: Option<Differences>,
    sensitivity: Option<f64>,
    denominator: Option<f64>,
    same_plan: bool,
    other: Next,
    invented: Option<Next>,
}

impl Round<'_> {
    /// Closes the round with another sum, in a head of its own. Also returns whether that head has opened the round alike.
    fn close_shadow(&self, run: &Run<'_>, mut gathered: Gathered) -> Result<(Next, bool)> {
        let shadow = self.shadow(run)?;
        let again = shadow.open(run.cohorts.accounted()?.filter(|_| self.cohort.widened))?;
        let alike = again.plan() == self.opened.plan() && again.bound() == self.opened.bound();
        gathered.lane = run.lane_of(self.opened, self.cohort)?;
        Ok((close(shadow, again, gathered, self.entropy)?, alike))
    }

    /// A second head in the same place, by the way that a resumed run takes.
    fn shadow(&self, run: &Run<'_>) -> Result<RunHead> {
        let Self { head, entropy, .. } = *self;
        let task = &run.config.task;
        let trained = head.trained().map(|trained| Trained {
            model: trained.model.clone(),
            parameters: trained.parameters.clone(),
            // The release comes before the optimizer.
            optimizer: ServerOptimizer::new(task.server, trained.model.layout(), task.rounds),
            identity: trained.identity.clone(),
        });
        let shadow = RunHead::new(task, head.plan().clone(), trained, &run.genesis, entropy)?;
        if head.round() == 0 {
            return Ok(shadow);
        }
        // PRIVACY: the noise to come follows from it.
        let mut secret = Zeroizing::new(Vec::new());
        head.save_secret(&mut *secret)?;
        let mut reader = secret.as_slice();
        let reader: Option<&mut dyn std::io::Read> = match head.has_secret() {
            true => Some(&mut reader),
            false => None,
        };
        Ok(shadow.load(self.entries, head.chain().clone(), head.clip(), reader, entropy)?)
    }
}

fn close(head: RunHead, opened: Opened, gathered: Gathered, entropy: &RoundEntropy) -> Result<Next> {
    Ok(head
        .close(opened, gathered, entropy, &mut |_| ())
        .map_err(CloseError::why)?)
}
