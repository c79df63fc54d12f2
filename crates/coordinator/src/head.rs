//! A training between two rounds, and the only way from one round to the next.
//!
//! [`RunHead::open`] says what the next round is. A source gathers the contributions. [`RunHead::close`] takes the head by value,
//! draws the noise, and gives the next head back with the release and the line of the ledger. A program that loses a head, because
//! it crashed or could not store a line, has to load the stored one: no value of this crate makes a round twice.

mod check;
mod end;
mod release;
mod replay;
mod round;

use std::io::{Read, Write};
use std::sync::Arc;

use undertone_accounting::participation::Participation;
use undertone_aggregation::{Bound, Encoding, NonFinite};
use undertone_mechanisms::{MechanismError, NoisedAverage};
use undertone_models::SequenceModel;
use undertone_present::numbers::hex;

use crate::account::Account;
use crate::adaptive_clip::AdaptiveClip;
use crate::chain::Chain;
use crate::entropy::RoundEntropy;
use crate::error::{CoordinatorError, Result};
use crate::identity::{ModelIdentity, digest_of};
use crate::noise::Noise;
use crate::plan::{Cost, PrivacyPlan, RoundPlan, Spending};
use crate::record::LedgerEntry;
use crate::server_optimizer::ServerOptimizer;
use crate::source::{Gathered, Participants};
use crate::task::{ClipConfig, TaskConfig};

use check::Checked;
use release::Release;
pub use replay::Row;
pub use round::{CloseError, Next, Opened, Step};

/// A training between two rounds: what was spent, what the noise keeps, the parameters, and the end of the ledger.
///
/// # Guarantee
/// [`close`](Self::close) is the only caller of the noise. It draws the noise of a round once, for a sum that is bounded as the
/// plan says, and composes its cost before anything of the round can leave.
///
/// A head cannot be copied aside,
/// ```compile_fail,E0599
/// fn copy(head: &undertone_coordinator::head::RunHead) -> undertone_coordinator::head::RunHead {
///     head.clone()
/// }
/// ```
/// and a round cannot be closed twice:
/// ```compile_fail,E0382
/// use undertone_coordinator::{head::{Opened, RunHead}, source::Gathered, entropy::RoundEntropy};
/// fn twice(head: RunHead, opened: (Opened, Opened), sums: (Gathered, Gathered), fresh: (RoundEntropy, RoundEntropy)) {
///     let _ = head.close(opened.0, sums.0, &fresh.0, &mut |_| ());
///     let _ = head.close(opened.1, sums.1, &fresh.1, &mut |_| ());
/// }
/// ```
pub struct RunHead {
    task: TaskConfig,
    plan: PrivacyPlan,
    spending: Spending,
    noise: Noise,
    clip: Option<AdaptiveClip>,
    trained: Option<Trained>,
    genesis: String,
    chain: Chain,
    round: u64,
}

impl std::fmt::Debug for RunHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHead")
            .field("round", &self.round)
            .finish_non_exhaustive()
    }
}

/// The model that a training moves: parameters, the optimizer, and the canonical form of the model.
pub struct Trained {
    /// The model, for its layout and its canonical form.
    pub model: Arc<dyn SequenceModel>,
    /// The parameters.
    pub parameters: Vec<f32>,
    /// The optimizer with its moments.
    pub optimizer: ServerOptimizer,
    /// The name of the model in ledgers.
    pub identity: ModelIdentity,
}

impl std::fmt::Debug for Trained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trained")
            .field("parameters", &self.parameters.len())
            .finish_non_exhaustive()
    }
}

impl RunHead {
    /// The head before the first round. `genesis` is the digest of the settings that the first line of the ledger follows; `first`
    /// only gives the mechanism a key that is replaced before the first row.
    ///
    /// # Errors
    /// From the mechanism: noise that the fixed-point grid cannot hold, not enough memory.
    pub fn new(
        task: &TaskConfig,
        plan: PrivacyPlan,
        trained: Option<Trained>,
        genesis: &str,
        first: &RoundEntropy,
    ) -> Result<Self> {
        Ok(Self {
            spending: Spending::new(&plan),
            noise: Noise::new(&plan, first)?,
            clip: AdaptiveClip::new(&task.clip),
            task: task.clone(),
            plan,
            trained,
            genesis: genesis.to_owned(),
            chain: Chain::at(genesis),
            round: 0,
        })
    }

    /// The head after the rounds of a ledger, of which `chain` is the end. `clip` and `secret` are what [`clip`](Self::clip) and
    /// [`save_secret`](Self::save_secret) gave; `secret` is `None` where nothing was kept.
    ///
    /// # Errors
    /// A ledger that is not that of the task; a state of another mechanism, of another round or damaged.
    pub fn load(
        mut self,
        ledger: &[LedgerEntry],
        chain: Chain,
        clip: Option<AdaptiveClip>,
        secret: Option<&mut dyn Read>,
        first: &RoundEntropy,
    ) -> Result<Self> {
        // PRIVACY: what was spent is what the ledger says, not what the configuration would have planned.
        let mut account = Account::new(&self.task, &self.plan)?;
        for entry in ledger {
            account.add(entry)?;
        }
        self.spending = account.running()?;
        self.round = ledger.len() as u64;
        self.chain = chain;
        self.clip = clip.or(self.clip);
        if let Some(reader) = secret {
            let clip_norm = self.clip.map(|clip| clip.active());
            self.noise = Noise::load(&self.plan, self.round, clip_norm, first, reader)?;
        }
        Ok(self)
    }

    /// Opens the next round, if the budget admits it: a pure function of the head. `widened` is the schema to account for from
    /// this round on, where the cohort of the round has broken the declared one and the task accounts for that.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] after the last round of the task; [`CoordinatorError::BudgetExceeded`]; from the accountant: a check that cannot be evaluated refuses the round too.
    pub fn open(&self, widened: Option<Participation>) -> Result<Opened> {
        if self.is_over() {
            let expected = format!("more than the {} rounds that are closed", self.round);
            return Err(CoordinatorError::value("rounds", expected, self.task.rounds));
        }
        let plan = self.round_plan();
        let cost = Cost::from(&plan);
        // All rounds of one mechanism were checked before the first.
        if self.plan.bounded().is_none() {
            self.spending.check_budget(&self.plan, self.round, cost)?;
        }
        if let Some(widened) = widened {
            // PRIVACY: a violation that is accounted costs all rounds more, those that are out already included.
            let spending = self.spending.clone().under(widened);
            spending.check_budget(&self.plan, self.round, cost)?;
        }
        let non_finite = match self.plan.is_private() {
            true => NonFinite::Zero,
            false => NonFinite::Refuse,
        };
        Ok(Opened {
            genesis: self.genesis.clone(),
            chain: self.chain.clone(),
            round: self.round,
            bound: Bound::new(self.plan.layout(), plan.clipping.clone(), non_finite),
            lane: self.plan.lane_bounds(&plan, non_finite),
            plan,
            estimate: self.clip.map(|clip| clip.estimate()),
            widened,
        })
    }

    /// The plan of the present round, under the clip norm in force.
    fn round_plan(&self) -> RoundPlan {
        match &self.clip {
            Some(clip) => self.plan.round_clipped(self.round, clip.active()),
            None => self.plan.round(self.round),
        }
    }

    /// Closes the round: noise, server optimizer, cost and ledger line. `fresh` is drawn for this call alone.
    ///
    /// Everything that can be refused is refused before any noise is drawn, and gives the head back. Nothing after that depends on a
    /// value: a release saturates at the ends of its range, and parameters that would not be finite leave the round quarantined.
    ///
    /// # Errors
    /// [`CloseError::Refused`] for an opened round of another head, a sum with another bound or of another kind than the task's, a lane
    /// with other bounds than those of [`Opened::lane`]; [`CloseError::Lost`] where the mechanism cannot go on.
    // PRIVACY: an opened round is closed once and then gone.
    #[expect(clippy::needless_pass_by_value, reason = "an opened round is closed once")]
    pub fn close(
        mut self,
        opened: Opened,
        gathered: Gathered,
        fresh: &RoundEntropy,
        ended: &mut dyn FnMut(Step),
    ) -> Result<Next, CloseError> {
        let (checked, who, spending) = match self.ready(&opened, gathered, fresh) {
            Ok(ready) => ready,
            Err(why) => return Err(CloseError::refused(self, why)),
        };
        let noise_key = self.noise.key_id()?;
        let release = self.finish(checked, &opened)?;
        ended(Step::Noise);
        let release_norm = release.norm();
        let Release { model, bit, lane } = release;
        let quarantined = self.apply(model.as_ref(), &opened)?;
        let average = self.given_out(model, &opened);
        if let (Some(clip), Some(bit)) = (&mut self.clip, bit) {
            clip.observe(bit);
        }
        ended(Step::Server);
        self.spending = spending;
        let mut entry = self.entry(&opened, who, average.as_ref(), quarantined, noise_key);
        let (line, chain) = self.chain.line(&mut entry)?;
        self.chain = chain;
        self.round += 1;
        self.begin_segment(fresh)?;
        ended(Step::Entry);
        Ok(Next {
            head: self,
            line,
            entry,
            average,
            lane,
            quarantined,
            release_norm,
        })
    }

    /// Checks everything that can be refused: the users, the sum, the cost of the round, and the key of its noise.
    fn ready(
        &mut self,
        opened: &Opened,
        gathered: Gathered,
        fresh: &RoundEntropy,
    ) -> Result<(Checked, Participants, Spending)> {
        let Gathered { sum, who, lane, .. } = gathered;
        self.named_once(&who)?;
        let checked = self.check(opened, sum, lane)?;
        let mut spending = self.spending.clone();
        if let Some(widened) = opened.widened {
            spending = spending.under(widened);
        }
        spending.compose(&self.plan, Cost::from(&opened.plan), 1)?;
        self.noise.rekey(fresh)?;
        Ok((checked, who, spending))
    }

    /// The one place where a sum becomes a release.
    fn finish(&mut self, checked: Checked, opened: &Opened) -> Result<Release> {
        let (average, bits) = match checked {
            Checked::Raw(average, bits) => {
                let average = self.noise.privatize(self.round, &opened.plan, average)?;
                let bits = match bits {
                    Some(bits) => self.noise.privatize_bits(self.round, bits)?,
                    None => None,
                };
                (Some(average), bits)
            }
            Checked::Residues {
                residues,
                included,
                rotations,
                denominator,
            } => {
                let noise_std = self.plan.noise_grid()?.noise_std(opened.plan.noise_std);
                // PRIVACY: the noise first. Everything that is read from the sum afterwards is post-processing.
                let noised = self.noise.privatize_residues(self.round, noise_std, residues)?;
                let round = encoding_of(&self.plan)?.for_round(&rotations, self.round)?;
                (Some(round.release(noised, included, denominator)?), None)
            }
            Checked::WithClientNoise(sum, denominator) => {
                let noise = encoding_of(&self.plan)?.client_noise();
                let noise = noise.ok_or_else(|| {
                    CoordinatorError::missing("aggregation.encoding", "an encoding with noise")
                })?;
                (Some(noise.release(sum, denominator)?), None)
            }
            Checked::Abandoned => {
                self.skip_row(&opened.plan)?;
                (None, None)
            }
        };
        Ok(Release::of(average, bits, self.plan.layout().len()))
    }

    /// Moves the parameters. Returns `true` if they would not have been finite, so that they stay as they are.
    fn apply(&mut self, model: Option<&NoisedAverage>, opened: &Opened) -> Result<bool> {
        let scale = self.step_scale(opened);
        let (Some(trained), Some(average)) = (&mut self.trained, model) else {
            return Ok(false);
        };
        let applied = match scale {
            Some(scale) => trained.optimizer.apply(
                self.round,
                &average.clone().scaled(scale),
                &mut trained.parameters,
            ),
            None => trained
                .optimizer
                .apply(self.round, average, &mut trained.parameters),
        };
        match applied {
            Ok(()) => {
                trained.model.constrain(&mut trained.parameters);
                Ok(false)
            }
            Err(CoordinatorError::Diverged { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The factor on a release before an optimizer takes it. It is post-processing: learning rate and clip norm decouple.
    fn step_scale(&self, opened: &Opened) -> Option<f64> {
        match (&self.task.clip, opened.plan.clipping.bound()) {
            (ClipConfig::Flat { normalised: true, .. }, Some(clip_norm)) => Some(1.0 / clip_norm),
            _ => None,
        }
    }

    /// Draws the row of noise of the present round for the sake of later rows, and drops it.
    fn skip_row(&mut self, plan: &RoundPlan) -> Result<()> {
        self.noise.skip(self.round, &self.plan, plan)
    }

    /// The average that leaves with the round. The optimizer of another program takes it as an optimizer here would.
    fn given_out(&self, average: Option<NoisedAverage>, opened: &Opened) -> Option<NoisedAverage> {
        match self.step_scale(opened).filter(|_| self.task.model.is_external()) {
            Some(scale) => average.map(|average| average.scaled(scale)),
            None => average,
        }
    }

    /// Puts the estimated clip norm into force where the trees restart.
    fn begin_segment(&mut self, fresh: &RoundEntropy) -> Result<()> {
        let (Some(clip), Some(start)) = (&self.clip, self.noise.next_segment()) else {
            return Ok(());
        };
        if start != self.round {
            return Ok(());
        }
        let mut next = *clip;
        next.restart();
        match self.noise.begin_segment(next.active(), fresh) {
            Ok(()) => {}
            // The noise of this norm does not suit the grid. The norm in force stays, so that no round fails after its noise was
            // drawn; both norms are functions of released values.
            Err(CoordinatorError::Mechanism(
                MechanismError::NoiseAboveGrid { .. } | MechanismError::NoiseBelowGrid { .. },
            )) => {
                next.restart_at(clip.active());
                self.noise.begin_segment(next.active(), fresh)?;
            }
            Err(error) => return Err(error),
        }
        self.clip = Some(next);
        Ok(())
    }

    fn entry(
        &self,
        opened: &Opened,
        mut who: Participants,
        average: Option<&NoisedAverage>,
        quarantined: bool,
        noise_key: Option<String>,
    ) -> LedgerEntry {
        let plan = &opened.plan;
        let external = self.task.model.is_external();
        // PRIVACY: in the order of arrival, a list would tell who came first.
        who.names.sort_unstable();
        who.lost.sort_unstable();
        end::in_order_of_names(&mut who.attempts);
        LedgerEntry {
            round: self.round,
            sampling: self.task.cohort.sampling.name().to_owned(),
            mode: who.mode,
            sampling_probability: self.plan.sampling_probability(),
            population: self.plan.population().users,
            total_weight: self.plan.population().total_weight,
            cohort_size: who.unnamed.unwrap_or(who.names.len() as u64),
            group_size: self.task.user_update.group_size,
            examples: who.examples,
            survivors: who.survivors,
            abandoned: average.is_none(),
            quarantined,
            summed_on_gpu: who.summed_on_gpu,
            participants: who.names,
            lost: who.lost,
            attempts: who.attempts,
            issuer: who.issuer,
            clip_norm: plan.clipping.bound(),
            sensitivity: plan.sensitivity,
            noise_std: plan.noise_std,
            noise_multiplier: plan.noise_multiplier,
            noise_key,
            noise_domain: self.plan.noise_label(),
            parameters_sha256: match &self.trained {
                Some(trained) => Some(trained.identity.digest(&trained.parameters)),
                None => (!external).then(String::new),
            },
            released_sha256: average
                .filter(|_| external)
                .map(|average| match average.digest() {
                    Some(digest) => hex(&digest.sha256),
                    None => digest_of(average.values()),
                }),
            previous_sha256: String::new(),
        }
    }

    /// The privacy plan of the training.
    #[must_use]
    pub fn plan(&self) -> &PrivacyPlan {
        &self.plan
    }

    /// Number of closed rounds.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// `true` if all rounds of the task are closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.round >= self.task.rounds
    }

    /// The end of the ledger.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The estimate and the norm in force, where clipping is adaptive.
    #[must_use]
    pub fn clip(&self) -> Option<AdaptiveClip> {
        self.clip
    }

    /// The model that is trained; `None` where only sums are released.
    #[must_use]
    pub fn trained(&self) -> Option<&Trained> {
        self.trained.as_ref()
    }

    /// The parameters; empty where only sums are released.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        self.trained.as_ref().map_or(&[], |trained| &trained.parameters)
    }

    /// Epsilon of the closed rounds at the delta of the task; `None` when not private, or where none can be stated.
    ///
    /// # Errors
    /// From the accountant.
    pub fn epsilon(&self) -> Result<Option<f64>> {
        self.spending.epsilon(&self.plan)
    }

    /// `true` if [`save_secret`](Self::save_secret) writes anything.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.noise.has_state()
    }

    /// Writes what correlated noise keeps for later rounds, except keys: a loaded head has none.
    ///
    /// PRIVACY: as secret as the noise.
    ///
    /// # Errors
    /// From the mechanism and the writer.
    pub fn save_secret(&self, writer: &mut dyn Write) -> Result<()> {
        self.noise.save(writer)
    }
}

fn encoding_of(plan: &PrivacyPlan) -> Result<&Encoding> {
    plan.encoding()
        .ok_or_else(|| CoordinatorError::missing("aggregation", "a table"))
}

#[cfg(test)]
mod tests;
