//! Sums of residues with the noise of the server: noise first, lifting afterwards.
//!
//! The residues of a sum modulo `M` are multiplied by `2^f` and become residues modulo `2^f M`, so that noise keeps a fine grid. One
//! step is then worth `2^-f / s` in the unit of the updates, in the rotated coordinates. The mechanism adds its noise to these
//! residues, and everything after that is post-processing: centring, lifting, rotating back, dividing.
//!
//! # Source
//! The road of the types and its proof: `undertone_mechanisms::RawResidues`.

use undertone_mechanisms::{FRACTION_BITS, MAX_MODULUS, NoisedAverage, NoisedResidues, RawResidues};

use super::round::{RoundEncoding, check_clients, check_vector};
use super::{Encoding, Scheme};
use crate::error::{AggregationError, Result, check_len, check_modulus, positive, setting};
use crate::modular::{ModularVec, Modulus};

/// Standard deviations of noise that a modulus has room for. A coordinate that wraps around costs accuracy and never privacy.
const ROOM: f64 = 8.0;

/// The whole numbers that a server adds its noise to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseDomain {
    /// Number of coordinates: the padded dimension where updates are rotated.
    pub dim: usize,
    /// The modulus, `2^f M`.
    pub modulus: u64,
    /// `f`: a residue of a sum is `2^f` steps.
    pub fraction_bits: u32,
    /// The worth of one step in the unit of the updates.
    pub step: f64,
    /// Maximum L2 norm of what one client who follows the encoding adds, in steps: the sensitivity of a sum.
    pub l2: f64,
}

impl Encoding {
    /// The whole numbers that the server adds its noise to; `None` where clients add the noise.
    #[must_use]
    pub fn noise_domain(&self) -> Option<NoiseDomain> {
        let (scale, l2) = match &self.scheme {
            Scheme::Identity(identity) => {
                let scale = f64::from(identity.fraction_bits()).exp2();
                (scale, self.size.clip_norm * scale)
            }
            // PRIVACY: the bound that every client enforces on its integers.
            Scheme::Rounded(lattice) => (lattice.scale(), lattice.integer_norm()),
            Scheme::Quantised(_) | Scheme::Shared(..) => return None,
        };
        let modulus = self.modulus.get();
        let fits = |bits: &u32| {
            modulus <= MAX_MODULUS >> bits
                && scale * f64::from(*bits).exp2() <= f64::from(FRACTION_BITS).exp2()
        };
        let fraction_bits = (1..=62).take_while(fits).last().unwrap_or(0);
        let factor = f64::from(fraction_bits).exp2();
        Some(NoiseDomain {
            dim: self.padded_dim(),
            modulus: modulus << fraction_bits,
            fraction_bits,
            step: (scale * factor).recip(),
            l2: l2 * factor,
        })
    }

    /// Widens the modulus so that it holds the noise of the server as well: every honest sum and 8 standard deviations of the
    /// noise, given in the unit of the updates, for the largest row of the mechanism. It replaces the room that was made before.
    ///
    /// # Errors
    /// A modulus above `2^62`.
    pub fn with_room_for_noise(mut self, noise_std: f64) -> Result<Self> {
        let scale = match &self.scheme {
            Scheme::Identity(identity) => f64::from(identity.fraction_bits()).exp2(),
            Scheme::Rounded(lattice) => lattice.scale(),
            Scheme::Quantised(_) | Scheme::Shared(..) => return Ok(self),
        };
        let needed = self.honest_modulus.get() as f64 + (2.0 * ROOM * noise_std * scale).ceil();
        // Written so that noise that is no number is refused.
        let fits = needed.log2() <= 62.0;
        if !fits {
            return Err(AggregationError::EncodingTooLarge {
                what: "the modulus with room for the noise",
                limit: 62,
                got: needed.log2(),
                remedy: "choose a smaller scale: noise of this size hides its rounding",
            });
        }
        self.min_modulus = Modulus::new(needed as u64)?;
        self.modulus = Modulus::new((needed as u64).next_power_of_two())?;
        Ok(self)
    }

    /// The sensitivity of a sum that was brought onto the fixed-point grid of averages before the server added its noise, in the unit
    /// of the updates. Runs of earlier versions were made so; their ledgers are priced with it.
    ///
    /// # Guarantee
    /// It holds if every client follows the encoding: one that does not can make such a sum wrap around.
    #[must_use]
    pub fn lifted_sensitivity(&self) -> f64 {
        match &self.scheme {
            // The transform of the sum was exact, its scaling monotone and floored: one step of the grid per coordinate.
            Scheme::Rounded(lattice) => {
                let grid = (-f64::from(FRACTION_BITS)).exp2();
                lattice.sensitivity().l2() + (self.size.dim as f64).sqrt() * grid
            }
            _ => self.sensitivity().l2,
        }
    }
}

impl RoundEncoding<'_> {
    /// The residues of the modular sum of `clients` encoded updates, in steps of the noise.
    ///
    /// # Errors
    /// A different modulus or length, no clients or more than the cap, and an encoding with noise by clients.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "PRIVACY: a sum is used once and then gone"
    )]
    pub fn residues(&self, sum: ModularVec, clients: u64) -> Result<RawResidues> {
        let (encoding, domain) = self.domain()?;
        check_vector(&sum, encoding)?;
        check_clients(encoding, clients)?;
        let values = sum
            .iter()
            .map(|residue| residue << domain.fraction_bits)
            .collect();
        Ok(RawResidues::new(values, domain.modulus)?)
    }

    /// The released average: residues with noise, centred, lifted, rotated back and divided. All of it is post-processing.
    ///
    /// # Errors
    /// Residues of another encoding, and a denominator that is not positive and finite.
    pub fn release(&self, noised: NoisedResidues, clients: u64, denominator: f64) -> Result<NoisedAverage> {
        let (encoding, domain) = self.domain()?;
        check_modulus(domain.modulus, noised.modulus())?;
        check_len("noised residues", domain.dim, noised.values().len())?;
        check_clients(encoding, clients)?;
        positive("denominator", denominator)?;
        let centre = (u128::from(clients) * (u128::from(encoding.centre) << domain.fraction_bits)
            % u128::from(domain.modulus)) as u64;
        let largest = (domain.modulus - 1) / 2;
        let lifted = |&residue: &u64| -> f64 {
            // Both are below the modulus, which is at most 2^62.
            let value = match residue.checked_sub(centre) {
                Some(value) => value,
                None => residue + (domain.modulus - centre),
            };
            match value > largest {
                true => -((domain.modulus - value) as f64),
                false => value as f64,
            }
        };
        let mut values: Vec<f64> = noised.values().iter().map(lifted).collect();
        self.rotate_back(&mut values, domain.step / denominator)?;
        let values = values.iter().map(|&value| value as f32).collect();
        Ok(noised.into_average(values, domain.step / denominator))
    }

    fn domain(&self) -> Result<(&Encoding, NoiseDomain)> {
        let domain = self.encoding.noise_domain();
        let domain = domain.ok_or(setting("encoding", "without noise by the clients", f64::NAN))?;
        Ok((self.encoding, domain))
    }
}
