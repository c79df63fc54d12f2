//! Encodings of updates as integers modulo `M` for a secure sum: one value that client, server and accountant read.
//!
//! | encoding | noise | source |
//! |---|---|---|
//! | [`Identity`](EncodingKind::Identity) | none; bit for bit the plain sum | |
//! | [`RotatedRounding`](EncodingKind::RotatedRounding) | none; the server adds it to the residues | \[Gboard\] Algorithm 2 |
//! | [`Binomial`](EncodingKind::Binomial) | every client's share | \[cpSGD\] sections 4.2 and 4.3 |
//! | [`DiscreteGaussian`](EncodingKind::DiscreteGaussian) | every client's share | Kairouz, Liu, Steinke 2021 |
//! | [`Skellam`](EncodingKind::Skellam) | every client's share | Agarwal, Kairouz, Liu 2021 |
//!
//! Where the server adds the noise, it adds it to the residues of the sum ([`RoundEncoding::residues`]) and reads numbers from them
//! afterwards ([`RoundEncoding::release`]). A sum with the clients' noise is read at once ([`RoundEncoding::decode`]); only
//! [`ClientNoise::release`] releases it, once enough clients are in it.

mod binomial;
mod config;
mod identity;
mod lattice;
mod lift;
mod round;
mod rounding;
mod server_noise;
mod settings;
mod shared_noise;
#[cfg(test)]
mod tests;

pub use config::EncodingConfig;
pub use round::{Encoder, RoundEncoding};
pub use server_noise::NoiseDomain;
pub use settings::{EncodingKind, EncodingSize, Levels, MeanSquaredError, Sensitivity};

use undertone_mechanisms::{ClientNoise, ClientNoisedSum, NoiseKey};

use self::binomial::Quantisation;
use self::identity::Identity;
use self::lattice::Lattice;
use self::settings::check_size;
use self::shared_noise::SharedNoise;
use crate::error::{AggregationError, Result};
use crate::modular::Modulus;

/// An encoding turns clients' updates into integers modulo `M` and their sum into numbers again.
///
/// # Guarantee
/// One client moves the sum by at most [`sensitivity`](Self::sensitivity), whatever its update and the randomness of
/// its rounding; with noise in shares the release is [`event`](ClientNoise::event) of
/// [`client_noise`](Self::client_noise). With noise of the server this covers each client who follows the encoding, whatever the
/// others send. Noise in shares covers nobody if clients leave out their share: under a secure sum no server can see that.
///
/// # Example
/// ```
/// use undertone_aggregation::{Encoding, EncodingKind, EncodingSize};
/// use undertone_mechanisms::{IndependentGaussian, NoiseKey};
///
/// let size = EncodingSize { dim: 3, clip_norm: 1.0, min_clients: 2, max_clients: 4 };
/// // Room for noise of standard deviation 0.5 in each coordinate of the sum.
/// let encoding = Encoding::new(EncodingKind::RotatedRounding { scale: 1e4 }, size)?.with_room_for_noise(0.5)?;
/// let shared_seed = NoiseKey::from_bytes([1; 32]);
/// let round = encoding.for_round(&shared_seed, 0)?;
/// let mut encoder = round.encoder();
/// let (mut one, mut sum) = (encoding.zeros(), encoding.zeros());
/// for client in 0..2u8 {
///     let secret = NoiseKey::from_bytes([client + 2; 32]);
///     encoder.encode(&[0.5, -0.25, 0.1], 1.0, &secret, &mut one)?;
///     sum.add(&one)?; // a secure sum in a run
/// }
/// assert!(encoding.sensitivity().l2 < 1.0002);
/// let step = encoding.noise_domain().map_or(1.0, |domain| domain.step);
/// let noise = IndependentGaussian::new(0.5 / step, NoiseKey::from_bytes([9; 32]))?;
/// let noised = noise.privatize_residues(0, round.residues(sum, 2)?)?;
/// let average = round.release(noised, 2, 2.0)?;
/// assert!((average.values()[0] - 0.5).abs() < 2.0 && average.noise_std() == 0.25);
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Encoding {
    kind: EncodingKind,
    size: EncodingSize,
    scheme: Scheme,
    /// The offset that is subtracted from a sum once per client before the sum is lifted.
    centre: u64,
    /// The smallest modulus that holds every honest sum.
    honest_modulus: Modulus,
    min_modulus: Modulus,
    modulus: Modulus,
    client_noise: Option<ClientNoise>,
}

#[derive(Debug, Clone)]
enum Scheme {
    Identity(Identity),
    Rounded(Lattice),
    Quantised(Quantisation),
    Shared(Lattice, SharedNoise),
}

impl Encoding {
    /// # Errors
    /// A size without coordinates or clients, a clip norm that is not positive and finite, settings out of range, numbers
    /// that would not fit their integers, and noise for which no guarantee can be computed.
    pub fn new(kind: EncodingKind, size: EncodingSize) -> Result<Self> {
        check_size(&size)?;
        let scheme = match kind {
            EncodingKind::Identity => Scheme::Identity(Identity::new(&size)?),
            EncodingKind::RotatedRounding { scale } => {
                Scheme::Rounded(Lattice::new(size.dim, size.clip_norm, scale)?)
            }
            EncodingKind::Binomial(levels) => Scheme::Quantised(Quantisation::new(&size, levels)?),
            EncodingKind::DiscreteGaussian {
                scale,
                noise_multiplier,
            }
            | EncodingKind::Skellam {
                scale,
                noise_multiplier,
            } => {
                let lattice = Lattice::new(size.dim, size.clip_norm, scale)?;
                let skellam = matches!(kind, EncodingKind::Skellam { .. });
                let noise = SharedNoise::new(&size, &lattice, noise_multiplier, skellam)?;
                Scheme::Shared(lattice, noise)
            }
        };
        // The largest magnitude of one client's integer around its centre, and of all noise where it has no bound.
        let (centre, one, noise) = match &scheme {
            Scheme::Identity(identity) => (0, identity.cap(), 0),
            // The shift of the paper: residues of one client are 0 ..= 2 C_inf.
            Scheme::Rounded(lattice) => (lattice.cap(), lattice.cap(), 0),
            Scheme::Quantised(levels) => (levels.top() / 2, levels.top().div_ceil(2), 0),
            Scheme::Shared(lattice, noise) => (0, lattice.cap(), noise.reach()),
        };
        // PRIVACY: wide enough for the cap on clients, so that honest sums never wrap around.
        let min_modulus = 2 * (u128::from(one) * u128::from(size.max_clients) + u128::from(noise)) + 1;
        let modulus = |m: u128| {
            // A modulus of 1 would be a cap of 0, which no scheme has.
            u64::try_from(m).ok().and_then(|m| Modulus::new(m).ok()).ok_or({
                AggregationError::EncodingTooLarge {
                    what: "the modulus",
                    limit: 62,
                    got: (m as f64).log2(),
                    remedy: "choose a smaller scale or fewer clients",
                }
            })
        };
        let mut encoding = Self {
            kind,
            size,
            scheme,
            centre,
            honest_modulus: modulus(min_modulus)?,
            min_modulus: modulus(min_modulus)?,
            modulus: modulus(min_modulus.next_power_of_two())?,
            client_noise: None,
        };
        encoding.client_noise = encoding.make_client_noise()?;
        Ok(encoding)
    }

    /// Uses exactly [`min_modulus`](Self::min_modulus), as the papers do.
    #[cfg(test)]
    pub(crate) fn with_min_modulus(mut self) -> Self {
        self.modulus = self.min_modulus;
        self
    }

    /// The kind and its settings.
    #[must_use]
    pub fn kind(&self) -> EncodingKind {
        self.kind
    }

    /// The size of the sums that it is made for.
    #[must_use]
    pub fn size(&self) -> EncodingSize {
        self.size
    }

    /// The modulus of the sum: the next power of two, which needs as many bits as the smallest modulus and is faster to mask.
    #[must_use]
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// The smallest modulus under which no sum of `max_clients` wraps around, `2 C_inf m + 1` for \[Gboard\], with the room that
    /// [`with_room_for_noise`](Self::with_room_for_noise) added.
    #[must_use]
    pub fn min_modulus(&self) -> Modulus {
        self.min_modulus
    }

    /// Bits per coordinate under a secure sum, `ceil(log2 M)`.
    #[must_use]
    pub fn bits_per_coordinate(&self) -> u32 {
        self.modulus.bits()
    }

    /// Bits per coordinate of one client before masks, as the papers count them: `log2(k + m)` for \[cpSGD\].
    #[must_use]
    pub fn client_bits_per_coordinate(&self) -> f64 {
        match &self.scheme {
            Scheme::Identity(identity) => (2.0 * identity.cap() as f64 + 1.0).log2(),
            Scheme::Rounded(lattice) => (2.0 * lattice.cap() as f64 + 1.0).log2(),
            Scheme::Quantised(levels) => (levels.top() as f64 + 1.0).log2(),
            Scheme::Shared(lattice, noise) => (2.0 * (lattice.cap() + noise.reach()) as f64 + 1.0).log2(),
        }
    }

    /// Number of residues of an encoded update: the dimension, padded to a power of two for rotations.
    #[must_use]
    pub fn padded_dim(&self) -> usize {
        match &self.scheme {
            Scheme::Identity(_) => self.size.dim,
            Scheme::Quantised(levels) => levels.padded(),
            Scheme::Rounded(_) | Scheme::Shared(..) => self.size.dim.next_power_of_two(),
        }
    }

    /// A vector of zeros to encode into or to sum in.
    #[must_use]
    pub fn zeros(&self) -> crate::ModularVec {
        crate::ModularVec::zeros(self.modulus, self.padded_dim())
    }

    /// The maximum distance by which one client moves the sum.
    ///
    /// # Guarantee
    /// For encodings with noise of the server: adding, removing or zeroing out one client, all arithmetic included. That of
    /// \[Gboard\] is `C_inflated`, rounded down to the bound on the squared norm of the integers, which every client checks.
    /// Replacing a client counts twice.
    ///
    /// For noise in shares it is what the event was computed from, before the noise: for \[cpSGD\] equation 10, under
    /// replacement and except with half of its delta.
    #[must_use]
    pub fn sensitivity(&self) -> Sensitivity {
        let (d, clip_norm) = (self.size.dim as f64, self.size.clip_norm);
        match &self.scheme {
            Scheme::Identity(_) => Sensitivity {
                l2: clip_norm,
                l1: clip_norm * d.sqrt(),
                l_inf: clip_norm,
            },
            Scheme::Rounded(lattice) => {
                let l2 = lattice.integer_norm() / lattice.scale();
                Sensitivity {
                    l2,
                    l1: l2 * d.sqrt(),
                    l_inf: l2,
                }
            }
            Scheme::Quantised(levels) => {
                let (norms, width) = (levels.sensitivities(), levels.bin_width());
                Sensitivity {
                    l2: norms.l2() * width,
                    l1: norms.l1() * width,
                    l_inf: norms.l_inf() * width,
                }
            }
            Scheme::Shared(lattice, _) => {
                let norms = lattice.sensitivity();
                Sensitivity {
                    l2: norms.l2(),
                    l1: norms.l1(),
                    l_inf: norms.l2(),
                }
            }
        }
    }

    /// The noise of all clients' shares together. It is `None` if the server has to add the noise.
    #[must_use]
    pub fn client_noise(&self) -> Option<&ClientNoise> {
        self.client_noise.as_ref()
    }

    /// The expected squared error per coordinate of the mean over `clients`, if no coordinate is cut to its range.
    #[must_use]
    pub fn mean_squared_error(&self, clients: u64) -> MeanSquaredError {
        let n = clients as f64;
        let (rounding, noise) = match &self.scheme {
            // Truncation does not average out.
            Scheme::Identity(identity) => (n * (-2.0 * f64::from(identity.fraction_bits())).exp2(), 0.0),
            Scheme::Rounded(lattice) => (lattice.rounding_variance(), 0.0),
            Scheme::Quantised(levels) => {
                let square = levels.bin_width() * levels.bin_width();
                (0.25 * square, levels.share_variance() * square)
            }
            Scheme::Shared(lattice, noise) => {
                let square = lattice.scale() * lattice.scale();
                (lattice.rounding_variance(), noise.variance() / square)
            }
        };
        MeanSquaredError {
            rounding: rounding / n,
            noise: noise / n,
        }
    }

    fn make_client_noise(&self) -> Result<Option<ClientNoise>> {
        let (event, variance) = match &self.scheme {
            Scheme::Identity(_) | Scheme::Rounded(_) => return Ok(None),
            Scheme::Quantised(levels) => (
                levels.event(),
                levels.share_variance() * levels.bin_width().powi(2),
            ),
            Scheme::Shared(lattice, noise) => (noise.event(), noise.variance() / lattice.scale().powi(2)),
        };
        let EncodingSize {
            min_clients,
            max_clients,
            ..
        } = self.size;
        let noise = ClientNoise::new(event.clone(), min_clients, max_clients, variance.sqrt())?;
        Ok(Some(noise))
    }
}
