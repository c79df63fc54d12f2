//! The correlated Gaussian mechanism: releases of averages round by round, in integers.

use std::io::{Read, Write};

use sha2::{Digest, Sha256};
use undertone_accounting::{Delta, Epsilon, Event, Guarantee};
use zeroize::Zeroizing;

use super::rounded::{Memory, Rounded};
use super::{Mechanism, guarantee_of, slack};
use crate::error::{MechanismError, Result, positive};
use crate::release::{Denominator, NoisedAverage, RawAverage};
use crate::residues::{NoisedResidues, RawResidues};
use crate::sampler::distance::SamplerDistance;
use crate::sampler::fresh;
use crate::sampler::uniform::{NoiseKey, Purpose};
use crate::state::{Keys, Resumable};
use crate::stream::engine::History;
use crate::stream::program::RecurrenceProgram;

/// The averages that a mechanism adds noise to: their size, their bound and their denominator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReleaseShape {
    /// Coordinates of an average.
    pub dim: usize,
    /// Maximum L2 distance by which one participation of one user moves the average: for a fixed denominator the clip
    /// norm of the weighted update over the denominator.
    pub clip_norm: f64,
    /// The denominator of every round's average.
    pub denominator: Denominator,
    /// Source of the noise of earlier rounds; `None` as in [`StreamOptions`](crate::StreamOptions).
    pub history: Option<History>,
}

/// Gaussian noise correlated over the rounds, added to the integers of each round's average.
///
/// Everything is integers on the grid of the averages: fresh noise is rounded to the grid, the recurrence's part from
/// earlier rounds is rounded to the grid, and both are added to the integers of the average. Memory is 8 bytes per
/// coordinate for every vector that the strategy keeps.
///
/// # Guarantee
/// All releases together are one Gaussian of squared sensitivity [`event`](Self::event)`.sensitivity_squared` for every
/// user who keeps to the participation schema, under the zero-out relation, also where averages depend on earlier
/// releases. The sensitivity includes [`rounding_slack`](Self::rounding_slack), the part that the roundings add, proved
/// in the source (`mechanism/slack.rs`). For trees and independent noise it is zero.
///
/// This is for the ideal rounded Gaussian. The real sampler's distance from it adds
/// [`sampler_delta`](Self::sampler_delta) to delta, and [`guarantee`](Self::guarantee) counts it.
///
/// PRIVACY: one key, one run. A round is released once: the mechanism refuses a second time, but a process that was
/// restored from a state before the release cannot know of it. Save the state before a release leaves the process, and
/// never release a round again with another average.
///
/// # Source
/// \[BLT\] section 2 and Algorithm 3; Denisov et al. (2022), Theorem 2.1; Smith and Thakurta (2022), Theorem 1.
///
/// # Example
/// ```
/// use undertone_accounting::{NoiseMultiplier, participation::Participation};
/// use undertone_mechanisms::{
///     CorrelatedGaussian, Denominator, Mechanism, NoiseKey, RawSum, ReleaseShape, Strategy, Tree,
/// };
///
/// let noise = NoiseMultiplier::new(3.0)?;
/// let mechanism = Mechanism::new(Strategy::Tree(Tree::new()), 64, Participation::single(), noise)?;
/// let shape = ReleaseShape { dim: 2, clip_norm: 0.01, denominator: Denominator::Fixed(100.0), history: None };
/// // In a run the key comes from the operating system's entropy.
/// let mut releases = CorrelatedGaussian::new(mechanism, shape, NoiseKey::from_bytes([7; 32]))?;
/// let average = RawSum::new(vec![5 << 40, -(3 << 40)], 0).average(Denominator::Fixed(100.0))?;
/// let released = releases.privatize(0, average)?;
/// assert!((released.values()[0] - 0.05).abs() < 0.3);
/// assert_eq!(releases.rounding_slack(), 0.0);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
pub struct CorrelatedGaussian {
    mechanism: Mechanism,
    pub(super) shape: ReleaseShape,
    key: NoiseKey,
    state: Resumable,
    /// Value of one grid step.
    scale: f64,
    rounding_slack: f64,
    truncation: f64,
    sampler_distance: SamplerDistance,
    rounded: Rounded,
    interrupted: bool,
}

impl CorrelatedGaussian {
    /// A mechanism before its first round.
    ///
    /// # Errors
    /// [`MechanismError::UnboundedSensitivity`] for the observed weight as the denominator; a clip norm or denominator that
    /// is not positive and finite; [`MechanismError::NoiseBelowGrid`] and [`MechanismError::NoiseAboveGrid`] where the
    /// noise does not suit the grid; not enough memory.
    pub fn new(mechanism: Mechanism, shape: ReleaseShape, key: NoiseKey) -> Result<Self> {
        let scale = shape.denominator.grid_step()?;
        let clip_norm = positive("clip_norm", shape.clip_norm)?;
        let rounds = mechanism.rounds();
        let program = RecurrenceProgram::new(&mechanism.strategy().recurrence(rounds)?, rounds)?;
        let noise_std = mechanism.noise_multiplier().get() * clip_norm;
        let steps = noise_std / scale;
        for factor in (0..rounds).map(|round| slack::fresh_factor(&program, round)) {
            fresh::steps(noise_std * factor, scale)?;
        }
        // Rows of trees are numbered up to twice the round; all have to fit a key's 48 bits.
        key.stream(Purpose::Snapped, 2 * rounds as u64)?;
        let Some(bound) = slack::bound(&program, rounds, steps) else {
            let fits =
                |halvings: &i32| slack::bound(&program, rounds, steps * 0.5f64.powi(*halvings)).is_some();
            let maximum = (1..64)
                .find(fits)
                .map_or(0.0, |halvings| noise_std * 0.5f64.powi(halvings));
            return Err(MechanismError::NoiseAboveGrid {
                got: noise_std,
                maximum,
            });
        };
        let slack = (shape.dim as f64 * bound.squared_per_coordinate).sqrt() * scale;
        let truncation = match shape.denominator {
            Denominator::Fixed(_) => 0.0,
            _ => (shape.dim as f64).sqrt() * scale,
        };
        let rounded = Rounded::new(
            program,
            rounds,
            shape.dim,
            steps,
            bound.fraction_bits,
            shape.history,
        )?;
        let mut hash = Sha256::new();
        hash.update(b"undertone correlated release\0");
        hash.update(mechanism.digest()?);
        for number in [scale, clip_norm, f64::from(u8::from(truncation > 0.0))] {
            hash.update(number.to_le_bytes());
        }
        hash.update(rounded.layout());
        Ok(Self {
            state: Resumable::new(hash.finalize().into(), &key, shape.dim, rounds)?,
            mechanism,
            shape,
            key,
            scale,
            rounding_slack: slack,
            truncation,
            sampler_distance: SamplerDistance::new(shape.dim as f64 * rounded.total_variation()?)?,
            rounded,
            interrupted: false,
        })
    }

    /// The name of the key, as [`NoiseKey::id`].
    #[must_use]
    pub fn key_id(&self) -> [u8; 32] {
        self.state.key_id()
    }

    /// The mechanism whose noise this is.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Origin of the keys of the noise, those of the rounds before a [`load`](Self::load) included.
    #[cfg(test)]
    pub(crate) fn key_origin(&self) -> crate::KeyOrigin {
        self.state.key_origin()
    }

    /// Rounds released.
    #[must_use]
    pub(crate) fn round(&self) -> usize {
        self.state.round()
    }

    /// Vectors of 8 bytes per coordinate that are kept between rounds.
    #[must_use]
    pub fn kept_vectors(&self) -> usize {
        self.rounded.kept_vectors()
    }

    /// Maximum L2 distance, in the unit of the averages, that all roundings of the run together add to one user's
    /// effect on `C X`.
    #[must_use]
    pub fn rounding_slack(&self) -> f64 {
        self.rounding_slack
    }

    /// The event of all releases of the run, roundings included.
    #[must_use]
    pub fn event(&self) -> Event {
        let clip_norm = self.shape.clip_norm;
        let exact = self.mechanism.sensitivity().squared.sensitivity();
        // A truncated quotient moves by up to a step more in every coordinate of every participation.
        let sensitivity =
            (exact * (clip_norm + self.truncation) + self.rounding_slack) / clip_norm * (1.0 + slack::MARGIN);
        Event::CorrelatedGaussian {
            sensitivity_squared: sensitivity * sensitivity,
            noise_multiplier: self.mechanism.noise_multiplier(),
        }
    }

    /// Distance of all samples of the run from ideal rounded Gaussians.
    #[must_use]
    pub fn sampler_distance(&self) -> SamplerDistance {
        self.sampler_distance
    }

    /// The part of delta at `epsilon` that this distance adds: [`SamplerDistance::delta`].
    #[must_use]
    pub fn sampler_delta(&self, epsilon: Epsilon) -> f64 {
        self.sampler_distance.delta(epsilon)
    }

    /// The guarantee of the whole run. It counts the roundings and the sampler.
    ///
    /// # Errors
    /// [`MechanismError::Accounting`], also where the sampler's part alone exceeds `delta`.
    pub fn guarantee(&self, delta: Delta) -> Result<Guarantee> {
        let event = self.event();
        self.sampler_distance
            .guarantee(delta, |remaining| guarantee_of(&event, remaining))
    }

    /// Adds the noise of `round` to its average.
    ///
    /// Costs no memory beyond the mechanism's own; threads of the current rayon pool share the work, and the result does
    /// not depend on their number. [`NoisedAverage::noise_std`] is that of an entry of `Z`.
    ///
    /// # Errors
    /// [`MechanismError::WrongRound`] for any but the next round, [`MechanismError::NoMoreRounds`] beyond the last one,
    /// [`MechanismError::WrongDimension`], [`MechanismError::WrongGrid`], [`MechanismError::UnboundedSensitivity`]; nothing
    /// has happened then. A release that leaves the range of the grid saturates, so that no error depends on a value.
    pub fn privatize(&mut self, round: u64, average: RawAverage) -> Result<NoisedAverage> {
        if !average.bounded_sensitivity {
            return Err(MechanismError::UnboundedSensitivity);
        }
        self.check_next(round, average.values.len())?;
        // PRIVACY: another grid is another sensitivity in steps, and one that depends on the data would tell of it.
        if average.scale != self.scale || average.truncated != (self.truncation > 0.0) {
            return Err(MechanismError::WrongGrid {
                expected: self.scale,
                got: average.scale,
            });
        }
        let noise_std = self.mechanism.noise_multiplier().get() * self.shape.clip_norm;
        self.advance(|rounded, round, key| {
            average.release_with(noise_std, &mut |first, values| {
                rounded.advance(round, key, first, values)
            })
        })
    }

    /// Adds the noise of `round` to residues. The shape of the mechanism has [`Denominator::WHOLE_STEPS`], and its clip norm is the
    /// integer bound of one user's contribution.
    ///
    /// # Guarantee
    /// The users who follow the encoding have the guarantee of [`privatize`](Self::privatize) for their whole numbers. It holds for
    /// any residues that the other users send, because the release is a function of a release on whole numbers and of those
    /// residues. The memory keeps unreduced noise.
    ///
    /// # Errors
    /// The errors of [`privatize`](Self::privatize).
    pub fn privatize_residues(&mut self, round: u64, residues: RawResidues) -> Result<NoisedResidues> {
        self.check_next(round, residues.len())?;
        let whole = Denominator::WHOLE_STEPS.grid_step()?;
        if self.scale != whole {
            return Err(MechanismError::WrongGrid {
                expected: self.scale,
                got: whole,
            });
        }
        let noise_std = self.mechanism.noise_multiplier().get() * self.shape.clip_norm;
        let mut noise = Zeroizing::new(vec![0; residues.len()]);
        self.advance(|rounded, round, key| rounded.advance(round, key, 0, &mut noise))?;
        Ok(residues.release(&noise, noise_std))
    }

    /// Refuses to go on after a release that failed half way.
    fn check_whole(&self) -> Result<()> {
        match self.interrupted {
            true => Err(MechanismError::Interrupted),
            false => Ok(()),
        }
    }

    /// Refuses any round but the next one, and any other dimension.
    fn check_next(&self, round: u64, dim: usize) -> Result<()> {
        self.check_whole()?;
        // PRIVACY: a round twice, or one out of order, would be noise that the guarantee does not know.
        if round != self.round() as u64 {
            return Err(MechanismError::WrongRound {
                expected: self.round() as u64,
                got: round,
            });
        }
        if self.round() >= self.mechanism.rounds() {
            return Err(MechanismError::NoMoreRounds {
                rounds: self.mechanism.rounds(),
            });
        }
        if dim != self.shape.dim {
            return Err(MechanismError::WrongDimension {
                expected: self.shape.dim,
                got: dim,
            });
        }
        Ok(())
    }

    /// Lets `add_noise` add the noise of the next round.
    fn advance<T>(
        &mut self,
        add_noise: impl FnOnce(&mut Rounded, usize, &NoiseKey) -> Result<T>,
    ) -> Result<T> {
        let now = self.state.round();
        // From here on an error leaves a memory of no round.
        self.interrupted = true;
        let added = add_noise(&mut self.rounded, now, &self.key)?;
        self.interrupted = false;
        self.state.advance();
        Ok(added)
    }

    /// Draws the rows of later rounds from another key. The same key again changes nothing.
    ///
    /// # Guarantee
    /// The noise has the same distribution as under one key. Each row of fresh noise is drawn in one round only, and later rounds use
    /// nothing of earlier ones but the memory. A caller that brings a new key per round can load a saved state twice and still never
    /// uses one row for two sums.
    ///
    /// # Errors
    /// [`MechanismError::HistoryNotRemade`] where rows of earlier rounds would be made again ([`History::Remake`]);
    /// [`MechanismError::StateMismatch`] for a seed after keys from entropy; [`MechanismError::Interrupted`].
    pub fn rekey(&mut self, key: NoiseKey) -> Result<()> {
        self.check_whole()?;
        if key.id()? == self.state.key_id() {
            return Ok(());
        }
        if self.state.round() > 0 && !self.rounded.keeps_all() {
            return Err(MechanismError::HistoryNotRemade);
        }
        self.state.rekey(&key)?;
        self.key = key;
        Ok(())
    }

    /// Writes everything that later rounds need, except the key.
    ///
    /// PRIVACY: a state is as secret as the noise: keep it as the key is kept.
    ///
    /// # Errors
    /// [`MechanismError::StateIo`], [`MechanismError::Interrupted`].
    pub fn save(&self, writer: &mut impl Write) -> Result<()> {
        self.check_whole()?;
        let restarted = self.rounded.restarted();
        match &self.rounded.memory {
            Memory::Integers(field) => self.state.save(restarted, field.values(), writer),
            Memory::Reals(field) => self.state.save(restarted, field.values(), writer),
        }
    }

    /// Continues where [`save`](Self::save) was called: the noise of later rounds is what it would have been.
    ///
    /// # Errors
    /// [`MechanismError::StateMismatch`] naming what is different, also for a state from before a round that this value has
    /// released; [`MechanismError::StateDamaged`], [`MechanismError::StateIo`]. The mechanism then refuses to go on until a
    /// state is read.
    pub fn load(&mut self, reader: &mut impl Read) -> Result<()> {
        self.read(Keys::Same, reader)
    }

    /// Continues where [`save`](Self::save) was called, under the key of this value, which must be another one. For
    /// keys that are kept nowhere, and so that no row of noise is ever made a second time.
    ///
    /// # Guarantee
    /// Of the same law as without the interruption. With a history that is kept, every row of `Z` is made in one round only
    /// (its own; a tree's node in the round that completes it), and later rounds take from earlier ones nothing but the
    /// memory, which is in the state. So the rounds to come are the same function of memory and rows not made yet, and
    /// rows not made yet are independent of all made so far, under the old key as under a fresh one. Releases, event and
    /// guarantee stay those of one run.
    ///
    /// PRIVACY: this is for states that no release has left the process after. A round that was released after the state
    /// was saved and is released again is one release more than the event counts, although its noise is another.
    ///
    /// A key from entropy does not go on as a seed; a seed that goes on under a key from entropy still is the origin of the key.
    ///
    /// # Errors
    /// As [`load`](Self::load); [`MechanismError::HistoryNotRemade`] where rows of earlier rounds would be made again
    /// ([`History::Remake`], the default for dense matrices): under another key they would be other noise than what was
    /// released. [`MechanismError::StateMismatch`] for the state's own key and for its origin. The mechanism then refuses to
    /// go on until a state is read.
    pub fn load_with_fresh_key(&mut self, reader: &mut impl Read) -> Result<()> {
        if !self.rounded.keeps_all() {
            self.interrupted = true;
            return Err(MechanismError::HistoryNotRemade);
        }
        self.read(Keys::Fresh, reader)
    }

    fn read(&mut self, keys: Keys, reader: &mut impl Read) -> Result<()> {
        // PRIVACY: after a failed attempt it must not begin again at round 0, whose noise may already be out.
        self.interrupted = true;
        let restarted = match &mut self.rounded.memory {
            Memory::Integers(field) => self.state.load(keys, field.values_mut(), reader)?,
            Memory::Reals(field) => self.state.load(keys, field.values_mut(), reader)?,
        };
        self.rounded.set_restarted(restarted);
        self.interrupted = false;
        Ok(())
    }
}

impl std::fmt::Debug for CorrelatedGaussian {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorrelatedGaussian")
            .field("strategy", &self.mechanism.strategy().name())
            .field("shape", &self.shape)
            .field("round", &self.round())
            .finish_non_exhaustive()
    }
}
