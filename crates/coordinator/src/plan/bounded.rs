//! A guarantee that rests on how often and how far apart one user takes part: one mechanism for the whole run.

use std::ops::Range;

use undertone_accounting::adaptive_clipping::{BitNoise, sum_noise_multiplier};
use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_accounting::{
    Accountant, Adjacency, Delta, Epsilon, Event, Guarantee, NoiseMultiplier, Recipe, calibrate,
};
use undertone_mechanisms::{
    CorrelatedGaussian, Denominator, History, Mechanism, NoiseKey, ReleaseShape, SamplerDistance, Strategy,
    Tree,
};

use crate::error::{CoordinatorError, Result};
use crate::record::SchemaRecord;
use crate::task::{ClipConfig, RestartsConfig, TaskConfig};

/// One mechanism for the whole run, as this run adds its noise.
///
/// # Guarantee
/// Each user who keeps to the schema has the guarantee of [`Bounded::cost`], under the zero-out relation. With adaptive
/// clipping the sums and the counts of users below the norm together are one Gaussian of the mechanism's noise multiplier.
///
/// # Source
/// \[BLT\] section 2; \[Gboard\] Algorithm 1 and Theorem 1.
#[derive(Debug, Clone)]
pub struct Bounded {
    mechanism: Mechanism,
    target: ReleaseShape,
    /// The clip norm before the first round, and what one unit of it moves the average by.
    clip_norm: f64,
    adaptive: Option<Adaptive>,
    segments: Vec<Range<u64>>,
    /// Number of coordinates behind those of the model, to which no user contributes.
    lane: usize,
    /// Number of bits behind the users' bit, to which no user contributes.
    lane_bits: usize,
}

/// The event of all rounds so far, as the accountant composes it.
#[derive(Debug, Clone)]
pub struct WholeCost {
    event: Event,
    distance: SamplerDistance,
}

impl WholeCost {
    /// The delta that the distance of all samples from ideal ones adds at `epsilon`; [`WholeCost::guarantee`] counts it.
    #[must_use]
    pub fn sampler_delta(&self, epsilon: Epsilon) -> f64 {
        self.distance.delta(epsilon)
    }

    /// The event, and the distance of all samples from ideal ones.
    #[must_use]
    pub(super) fn into_parts(self) -> (Event, SamplerDistance) {
        (self.event, self.distance)
    }

    /// The guarantee at a delta, exact for the event.
    ///
    /// # Errors
    /// From the accountant; where the sampler's distance alone exceeds `delta`.
    pub fn guarantee(&self, delta: Delta) -> Result<Guarantee> {
        self.distance.guarantee(delta, |delta| {
            let mut accountant = Accountant::under(Recipe::ExactGaussian, Adjacency::ZeroOut);
            accountant.compose(&self.event, 1)?;
            Ok(accountant.guarantee(delta)?)
        })
    }
}

/// The noise of the users' bits.
#[derive(Debug, Clone, Copy)]
struct Adaptive {
    /// Noise on the count of users below the norm.
    bit_noise: BitNoise,
    /// The denominator of the count.
    clients: f64,
}

/// The inputs of a mechanism besides the configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Release {
    /// Number of coordinates that the noise is added to.
    pub(super) dim: usize,
    /// The clip norm before the first round.
    pub(super) clip_norm: f64,
    /// The distance by which one participation moves the average, at that norm; of residues, in steps.
    pub(super) sensitivity: f64,
    pub(super) denominator: Denominator,
    pub(super) users_per_round: f64,
    /// Users per round that the mechanism is made for, over those of this run: 1, or more for the larger run of an estimate. Its
    /// bits have so many times the noise, and the same noise in their mean.
    pub(super) larger: f64,
}

impl Bounded {
    /// The mechanism of this noise multiplier.
    pub(super) fn new(
        config: &TaskConfig,
        strategy: Strategy,
        participation: Participation,
        release: Release,
        noise_multiplier: NoiseMultiplier,
    ) -> Result<Self> {
        let rounds = usize::try_from(config.rounds).map_err(|_| {
            CoordinatorError::value("rounds", "a number that fits into memory", config.rounds)
        })?;
        let adaptive = match config.clip {
            ClipConfig::Adaptive { bit_noise_std, .. } => Some(Adaptive {
                bit_noise: BitNoise::new(
                    release.larger * bit_noise_std.unwrap_or(release.users_per_round / 20.0),
                )?,
                clients: release.larger * release.users_per_round,
            }),
            _ => None,
        };
        let bounded = Self {
            mechanism: Mechanism::new(strategy, rounds, participation, noise_multiplier)?,
            target: ReleaseShape {
                dim: release.dim,
                clip_norm: release.sensitivity,
                denominator: release.denominator,
                // Kept, so that a run can go on under another key after a crash.
                history: Some(History::Keep),
            },
            clip_norm: release.clip_norm,
            segments: match adaptive {
                Some(_) => segments(config.rounds, restarts_of(config)),
                None => std::iter::once(0..config.rounds).collect(),
            },
            adaptive,
            lane: 0,
            lane_bits: 0,
        };
        if let Some(adaptive) = bounded.adaptive {
            // Refuses bits that alone cost more than the whole.
            sum_noise_multiplier(noise_multiplier, adaptive.bit_noise)?;
        }
        Ok(bounded)
    }

    /// Makes noise for so many coordinates behind those of the model, and so many bits behind the users' bit. No user contributes to
    /// them, so the cost stays.
    pub(super) fn extend(&mut self, lane: usize, lane_bits: usize) {
        (self.lane, self.lane_bits) = (lane, lane_bits);
    }

    /// `true` if the clip norm changes during the run.
    pub(super) fn is_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }

    /// The mechanism as a value: strategy, rounds, schema and noise multiplier.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Clip norm before the first round.
    #[must_use]
    pub fn first_clip_norm(&self) -> f64 {
        self.clip_norm
    }

    /// The denominator of the count of users below the norm, where clipping is adaptive.
    #[must_use]
    pub fn clients(&self) -> Option<f64> {
        self.adaptive.map(|adaptive| adaptive.clients)
    }

    /// Noise on the users' bits over the distance by which one user moves their sum, where clipping is adaptive.
    #[must_use]
    pub fn bit_noise_multiplier(&self) -> Option<f64> {
        self.adaptive.map(|adaptive| 2.0 * adaptive.bit_noise.get())
    }

    /// The number of segments: stretches of rounds with their own noise and clip norm.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The rounds of a segment.
    #[must_use]
    pub fn segment(&self, segment: usize) -> Range<u64> {
        self.segments[segment.min(self.segments.len() - 1)].clone()
    }

    /// The segment that a round belongs to.
    #[must_use]
    pub fn segment_of(&self, round: u64) -> usize {
        let after = self.segments.partition_point(|segment| segment.start <= round);
        after.saturating_sub(1)
    }

    /// Noise multiplier of the clipped sums: the mechanism's own, or more where the users' bits are released beside them.
    ///
    /// # Errors
    /// From the accountant.
    pub fn sum_noise_multiplier(&self) -> Result<NoiseMultiplier> {
        let whole = self.mechanism.noise_multiplier();
        Ok(match self.adaptive {
            Some(adaptive) => sum_noise_multiplier(whole, adaptive.bit_noise)?,
            None => whole,
        })
    }

    /// The releases of a segment's averages.
    ///
    /// # Errors
    /// From the mechanism.
    pub fn sum(&self, segment: usize, clip_norm: f64, key: NoiseKey) -> Result<CorrelatedGaussian> {
        let mechanism = self.part(segment, self.sum_noise_multiplier()?)?;
        let target = ReleaseShape {
            clip_norm: self.target.clip_norm * (clip_norm / self.clip_norm),
            dim: self.target.dim + self.lane,
            ..self.target
        };
        Ok(CorrelatedGaussian::new(mechanism, target, key)?)
    }

    /// The releases of a segment's counts of users below the norm; `None` unless clipping is adaptive.
    ///
    /// # Errors
    /// From the mechanism.
    pub fn bits(&self, segment: usize, key: NoiseKey) -> Result<Option<CorrelatedGaussian>> {
        let Some(adaptive) = self.adaptive else {
            return Ok(None);
        };
        // One user's bit, less one half, is one half.
        let noise_multiplier = NoiseMultiplier::new(2.0 * adaptive.bit_noise.get())?;
        let target = ReleaseShape {
            dim: 1 + self.lane_bits,
            clip_norm: 0.5 / adaptive.clients,
            denominator: Denominator::Fixed(adaptive.clients),
            history: self.target.history,
        };
        Ok(Some(CorrelatedGaussian::new(
            self.part(segment, noise_multiplier)?,
            target,
            key,
        )?))
    }

    /// The mechanism of one segment alone.
    fn part(&self, segment: usize, noise_multiplier: NoiseMultiplier) -> Result<Mechanism> {
        let rounds = self.segment(segment);
        let whole = &self.mechanism;
        if self.adaptive.is_none() {
            return Ok(Mechanism::new(
                whole.strategy().clone(),
                whole.rounds(),
                whole.participation(),
                noise_multiplier,
            )?);
        }
        // A restarted tree is several trees: `Tree` accounts for them together, and each makes its own noise.
        let strategy = Strategy::Tree(Tree::new());
        let rounds = (rounds.end - rounds.start) as usize;
        Ok(Mechanism::new(
            strategy,
            rounds,
            whole.participation(),
            noise_multiplier,
        )?)
    }

    /// The cost of the first `rounds` rounds to each user who keeps to `participation`. Roundings and the sampler's distance from
    /// ideal noise are counted. `clip_norms` are those of the segments so far; later ones count as the first.
    ///
    /// # Errors
    /// From accountant and mechanism, also where there is no bound for this schema.
    pub fn cost(&self, rounds: u64, participation: Participation, clip_norms: &[f64]) -> Result<WholeCost> {
        // The key does not matter: nothing is drawn.
        let key = || NoiseKey::from_bytes([0; 32]);
        let whole = self.first(rounds, participation)?;
        let Some(_) = self.adaptive else {
            // What a run of these rounds alone would add; the whole run's roundings are no smaller.
            let releases = CorrelatedGaussian::new(whole, self.target, key())?;
            return Ok(WholeCost {
                event: releases.event(),
                distance: releases.sampler_distance(),
            });
        };
        // No user contributes to a lane, so its values cost nothing.
        let users = Self {
            lane: 0,
            lane_bits: 0,
            ..self.clone()
        };
        let mut distance = SamplerDistance::NONE;
        let mut margin: f64 = 1.0;
        for segment in 0..=self.segment_of(rounds.saturating_sub(1)) {
            let clip_norm = clip_norms.get(segment).copied().unwrap_or(self.clip_norm);
            for releases in
                std::iter::once(users.sum(segment, clip_norm, key())?).chain(users.bits(segment, key())?)
            {
                distance += releases.sampler_distance();
                margin = margin.max(widening(&releases));
            }
        }
        let event = Event::CorrelatedGaussian {
            sensitivity_squared: whole.sensitivity().squared.get() * margin,
            noise_multiplier: whole.noise_multiplier(),
        };
        Ok(WholeCost { event, distance })
    }

    /// The first `rounds` rounds under the schema, as `privacy.json` states them.
    ///
    /// # Errors
    /// From accountant and mechanism.
    pub fn record(&self, rounds: u64, participation: Participation) -> Result<SchemaRecord> {
        record(&self.first(rounds, participation)?)
    }

    fn first(&self, rounds: u64, participation: Participation) -> Result<Mechanism> {
        Ok(Mechanism::new(
            self.mechanism.strategy().clone(),
            rounds as usize,
            participation,
            self.mechanism.noise_multiplier(),
        )?)
    }
}

/// The schema of a mechanism and its cost, in exact arithmetic.
pub(super) fn record(mechanism: &Mechanism) -> Result<SchemaRecord> {
    let participation = mechanism.participation();
    let certified = mechanism.sensitivity();
    Ok(SchemaRecord {
        mechanism: mechanism.strategy().name(),
        min_sep: participation.gap().get(),
        exact_sep: participation.spacing() == Spacing::Exactly,
        max_part: participation.max_participation(),
        sensitivity: certified.squared.sensitivity(),
        rho: certified.squared.rho(mechanism.noise_multiplier())?.get(),
    })
}

/// The factor by which roundings widen the squared sensitivity of releases.
fn widening(releases: &CorrelatedGaussian) -> f64 {
    match releases.event() {
        Event::CorrelatedGaussian {
            sensitivity_squared, ..
        } => sensitivity_squared / releases.mechanism().sensitivity().squared.get(),
        _ => f64::NAN,
    }
}

/// The stretches between restarts.
fn segments(rounds: u64, restarts: Option<RestartsConfig>) -> Vec<Range<u64>> {
    let mut segments = Vec::new();
    let mut start = 0;
    let mut length = restarts.map_or(rounds, |restarts| restarts.first);
    while start < rounds {
        let end = start.saturating_add(length).min(rounds);
        segments.push(start..end);
        start = end;
        length = restarts.map_or(rounds, |restarts| restarts.every);
    }
    segments
}

fn restarts_of(config: &TaskConfig) -> Option<RestartsConfig> {
    config.privacy.as_ref()?.mechanism.as_ref()?.restarts
}

/// The schema that a run promises.
pub(super) fn participation(config: &TaskConfig, cohorts_per_epoch: u64) -> Result<Participation> {
    let rounds = config.rounds;
    Ok(match config.participation {
        Some(declared) => {
            let gap = Gap::new(declared.min_sep)?;
            let fitting = gap.fitting(rounds);
            Participation::at_least(gap, declared.max_part.unwrap_or(fitting).min(fitting))?
        }
        None => {
            let gap = Gap::new(cohorts_per_epoch)?;
            Participation::fixed_epochs(gap, gap.fitting(rounds))?
        }
    })
}

/// The min noise multiplier that keeps the whole run within a target.
pub(super) fn calibrate(
    target: (Epsilon, Delta),
    mut make: impl FnMut(NoiseMultiplier) -> Result<Bounded>,
) -> Result<Bounded> {
    let first = make(NoiseMultiplier::new(1.0)?)?;
    let (rounds, schema) = (first.mechanism.rounds() as u64, first.mechanism.participation());
    let squared = first.mechanism.sensitivity().squared.get();
    let event = |noise_multiplier| Event::CorrelatedGaussian {
        sensitivity_squared: squared,
        noise_multiplier,
    };
    let exact = calibrate::noise_multiplier_of(target, 1, Recipe::ExactGaussian, event)?.get();
    // What roundings and the sampler cost on top is a few parts in a million million at most; widened until it is covered.
    for widening in [0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1e-1] {
        let bounded = make(NoiseMultiplier::new(exact * (1.0 + widening))?)?;
        let reached = bounded
            .cost(rounds, schema, &[])
            .and_then(|cost| cost.guarantee(target.1));
        if reached.is_ok_and(|reached| reached.epsilon <= target.0) {
            return Ok(bounded);
        }
    }
    Err(CoordinatorError::value(
        "privacy.target_epsilon",
        format!("an epsilon that some noise reaches at delta {}", target.1.get()),
        target.0.get(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_the_stretches_between_restarts() {
        let restarts = Some(RestartsConfig { first: 3, every: 4 });
        assert_eq!(segments(10, restarts), [0..3, 3..7, 7..10]);
        assert_eq!(segments(3, restarts).len(), 1);
        assert_eq!(segments(7, restarts), [0..3, 3..7]);
    }
}
