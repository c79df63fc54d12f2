//! The noise of a run between two rounds: independent in every round, or one mechanism over many.

use std::io::{Read, Write};

use undertone_mechanisms::{
    CorrelatedGaussian, Denominator, IndependentGaussian, MechanismError, NoiseKey, NoisedAverage,
    NoisedResidues, NonPrivate, RawAverage, RawResidues, RawSum,
};

use crate::entropy::RoundEntropy;
use crate::error::Result;
use crate::plan::{Bounded, PrivacyPlan, RoundPlan};
use crate::random::NoiseOf;
use undertone_present::numbers::hex;

/// The source of a run's noise, with the state that it keeps between rounds.
///
/// # Guarantee
/// The noise is that of the plan: in a run whose guarantee rests on a participation schema all rounds of a segment come
/// from one mechanism value, the one that the plan accounts for. The rows of a round come from the [`RoundEntropy`] of that round. Only
/// [`RunHead::close`](crate::head::RunHead::close) draws them.
#[derive(Debug)]
pub(crate) struct Noise {
    source: Source,
}

#[derive(Debug)]
enum Source {
    None,
    Independent(NoiseKey),
    /// Noise that clients add; the key gives it a name and draws nothing.
    ClientNoise(NoiseKey),
    Correlated(Box<Correlated>),
}

/// Correlated noise of the rounds between two changes of the clip norm, or of all rounds if it never changes.
#[derive(Debug)]
struct Correlated {
    bounded: Bounded,
    segment: usize,
    sum: CorrelatedGaussian,
    /// The noise on the number of users below the norm, where clipping is adaptive.
    bits: Option<CorrelatedGaussian>,
}

impl Noise {
    /// The noise before the first round. The key of this entropy is replaced before the first row is drawn.
    ///
    /// # Errors
    /// From the mechanism: noise that the fixed-point grid cannot hold, not enough memory.
    pub(crate) fn new(plan: &PrivacyPlan, entropy: &RoundEntropy) -> Result<Self> {
        let source = match plan.bounded() {
            Some(bounded) => {
                let clip_norm = bounded.first_clip_norm();
                let correlated = Correlated::new(bounded.clone(), 0, clip_norm, entropy)?;
                Source::Correlated(Box::new(correlated))
            }
            None if plan.client_noise().is_some() => {
                Source::ClientNoise(entropy.key(NoiseOf::ClientNoise, 0))
            }
            None if plan.is_private() => Source::Independent(entropy.key(NoiseOf::Rounds, 0)),
            None => Source::None,
        };
        Ok(Self { source })
    }

    /// Draws the next rows from this entropy.
    ///
    /// # Errors
    /// From the mechanism, before anything has changed.
    pub(crate) fn rekey(&mut self, entropy: &RoundEntropy) -> Result<()> {
        match &mut self.source {
            Source::None => {}
            Source::Independent(key) => *key = entropy.key(NoiseOf::Rounds, 0),
            Source::ClientNoise(key) => *key = entropy.key(NoiseOf::ClientNoise, 0),
            Source::Correlated(correlated) => {
                let place = correlated.segment as u64;
                correlated.sum.rekey(entropy.key(NoiseOf::Rounds, place))?;
                if let Some(bits) = &mut correlated.bits {
                    bits.rekey(entropy.key(NoiseOf::Bits, place))?;
                }
            }
        }
        Ok(())
    }

    /// Adds the noise of `round` to its average.
    ///
    /// # Errors
    /// From the mechanism.
    pub(crate) fn privatize(
        &mut self,
        round: u64,
        plan: &RoundPlan,
        average: RawAverage,
    ) -> Result<NoisedAverage> {
        Ok(match &mut self.source {
            Source::None => NonPrivate.privatize(round, average)?,
            // PRIVACY: a sum without the users' noise in a run whose noise is theirs.
            Source::ClientNoise(_) => return Err(MechanismError::UnboundedSensitivity.into()),
            Source::Independent(key) => {
                IndependentGaussian::new(plan.noise_std, key.clone())?.privatize(round, average)?
            }
            Source::Correlated(correlated) => {
                let first = correlated.bounded.segment(correlated.segment).start;
                correlated.sum.privatize(round - first, average)?
            }
        })
    }

    /// Adds the noise of `round` to the residues of its sum. `noise_std` is in steps.
    ///
    /// # Errors
    /// From the mechanism.
    pub(crate) fn privatize_residues(
        &mut self,
        round: u64,
        noise_std: f64,
        residues: RawResidues,
    ) -> Result<NoisedResidues> {
        Ok(match &mut self.source {
            Source::None => NonPrivate.privatize_residues(round, residues),
            // PRIVACY: a sum without the users' noise in a run whose noise is theirs.
            Source::ClientNoise(_) => return Err(MechanismError::UnboundedSensitivity.into()),
            Source::Independent(key) => {
                IndependentGaussian::new(noise_std, key.clone())?.privatize_residues(round, residues)?
            }
            Source::Correlated(correlated) => {
                let first = correlated.bounded.segment(correlated.segment).start;
                correlated.sum.privatize_residues(round - first, residues)?
            }
        })
    }

    /// Skips a round that released nothing: its rows of correlated noise are made, and never used.
    ///
    /// # Errors
    /// From the mechanism.
    pub(crate) fn skip(&mut self, round: u64, plan: &PrivacyPlan, of_round: &RoundPlan) -> Result<()> {
        if !self.has_state() {
            return Ok(());
        }
        // PRIVACY: the noise alone, dropped here.
        match plan.noise_domain() {
            Some(domain) => {
                let nothing = RawResidues::new(vec![0; domain.dim], domain.modulus)?;
                drop(self.privatize_residues(round, of_round.noise_std, nothing)?);
            }
            None => {
                let nothing = RawSum::new(vec![0; plan.layout().len() + plan.lane_columns()], 0);
                drop(self.privatize(round, of_round, plan.estimator().apply(nothing)?)?);
            }
        }
        // Without adaptive clipping there is no second mechanism, and this does nothing.
        self.privatize_bits(round, RawSum::new(vec![0; 1 + plan.lane_bits()], 0))?;
        Ok(())
    }

    /// The noised mean of the users' bits less one half, where clipping is adaptive: the increment of its prefix sum. The bits of a
    /// lane stand behind it.
    ///
    /// # Errors
    /// From the mechanism.
    pub(crate) fn privatize_bits(&mut self, round: u64, bits: RawSum) -> Result<Option<NoisedAverage>> {
        let Source::Correlated(correlated) = &mut self.source else {
            return Ok(None);
        };
        let (Some(mechanism), Some(clients)) = (&mut correlated.bits, correlated.bounded.clients()) else {
            return Ok(None);
        };
        let first = correlated.bounded.segment(correlated.segment).start;
        let average = bits.average(Denominator::Fixed(clients))?;
        Ok(Some(mechanism.privatize(round - first, average)?))
    }

    /// The start of the segment after the current one, where the plan has one.
    pub(crate) fn next_segment(&self) -> Option<u64> {
        let Source::Correlated(correlated) = &self.source else {
            return None;
        };
        let next = correlated.segment + 1;
        (next < correlated.bounded.segments()).then(|| correlated.bounded.segment(next).start)
    }

    /// Begins the next segment: a new tree for a new clip norm.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn begin_segment(&mut self, clip_norm: f64, entropy: &RoundEntropy) -> Result<()> {
        if let Source::Correlated(correlated) = &mut self.source {
            let next = correlated.segment + 1;
            **correlated = Correlated::new(correlated.bounded.clone(), next, clip_norm, entropy)?;
        }
        Ok(())
    }

    /// A public name of the key that the next round's noise comes from; `None` without noise.
    ///
    /// # Errors
    /// From the mechanism.
    pub(crate) fn key_id(&self) -> Result<Option<String>> {
        let key_id = match &self.source {
            Source::None => return Ok(None),
            Source::Independent(key) | Source::ClientNoise(key) => key.id()?,
            Source::Correlated(correlated) => correlated.sum.key_id(),
        };
        Ok(Some(hex(&key_id[..8])))
    }

    /// `true` if there is state to keep for later rounds.
    #[must_use]
    pub(crate) fn has_state(&self) -> bool {
        matches!(self.source, Source::Correlated(_))
    }

    /// Writes the state that later rounds need, except keys. PRIVACY: as secret as the noise.
    ///
    /// # Errors
    /// From the mechanism and the writer.
    pub(crate) fn save(&self, mut writer: &mut dyn Write) -> Result<()> {
        if let Source::Correlated(correlated) = &self.source {
            correlated.sum.save(&mut writer)?;
            if let Some(bits) = &correlated.bits {
                bits.save(&mut writer)?;
            }
        }
        Ok(())
    }

    /// Continues a run at `round`, in the segment that holds it, whose clip norm is given.
    ///
    /// PRIVACY: a run without a seed continues under a new key. The state holds everything that earlier rounds left, and no row of
    /// noise is ever made a second time for a different sum.
    ///
    /// # Errors
    /// A state of another mechanism, of another round or damaged; as [`new`](Self::new).
    pub(crate) fn load(
        plan: &PrivacyPlan,
        round: u64,
        clip_norm: Option<f64>,
        entropy: &RoundEntropy,
        reader: &mut dyn Read,
    ) -> Result<Self> {
        let Some(bounded) = plan.bounded() else {
            return Self::new(plan, entropy);
        };
        let segment = bounded.segment_of(round);
        let clip_norm = clip_norm.unwrap_or(bounded.first_clip_norm());
        let mut correlated = Correlated::new(bounded.clone(), segment, clip_norm, entropy)?;
        for mechanism in std::iter::once(&mut correlated.sum).chain(&mut correlated.bits) {
            match entropy.is_seeded() {
                true => mechanism.load(&mut &mut *reader)?,
                false => mechanism.load_with_fresh_key(&mut &mut *reader)?,
            }
        }
        Ok(Self {
            source: Source::Correlated(Box::new(correlated)),
        })
    }
}

impl Correlated {
    fn new(bounded: Bounded, segment: usize, clip_norm: f64, entropy: &RoundEntropy) -> Result<Self> {
        let place = segment as u64;
        let sum = bounded.sum(segment, clip_norm, entropy.key(NoiseOf::Rounds, place))?;
        let bits = bounded.bits(segment, entropy.key(NoiseOf::Bits, place))?;
        Ok(Self {
            bounded,
            segment,
            sum,
            bits,
        })
    }
}
