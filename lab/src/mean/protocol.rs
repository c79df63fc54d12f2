//! The schemes: what each sends, what it guarantees, and one estimate of the mean.

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_accounting::binomial::theorem::{BinomialNoise, Sensitivities};
use undertone_accounting::{Accountant, Adjacency, Delta, Epsilon, Recipe, gaussian};
use undertone_aggregation::{Encoding, EncodingKind, EncodingSize, Levels};
use undertone_lab::normal::standard_normal;
use undertone_mechanisms::NoiseKey;
use undertone_present::numbers::number;

use super::vectors::Vectors;

/// The scheme that estimates the mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scheme {
    /// Use real numbers and Gaussian noise, as a trusted server would.
    Gaussian,
    /// Use levels between minus and plus the clip norm, and binomial noise.
    Binomial,
    /// Use levels and binomial noise after a random rotation, in the range of Theorem 4 of cpSGD.
    RotatedBinomial,
    /// Use a rotation, conditional rounding, and discrete Gaussian noise that each client adds in part.
    DiscreteGaussian,
    /// Use a rotation, conditional rounding, and Skellam noise that each client adds in part.
    Skellam,
}

impl Scheme {
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The setting that a scheme is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) clients: usize,
    pub(super) dim: usize,
    pub(super) clip_norm: f64,
    pub(super) epsilon: Epsilon,
    pub(super) delta: Delta,
    pub(super) levels: u64,
    pub(super) seed: u64,
}

/// A scheme with the least noise that it can account for at the target.
pub(super) struct Protocol {
    pub(super) scheme: Scheme,
    pub(super) parameters: String,
    pub(super) message_bits: f64,
    pub(super) sum_bits: Option<u32>,
    pub(super) epsilon: Epsilon,
    pub(super) accounting: &'static str,
    pub(super) expected_error: f64,
    way: Way,
    seed: u64,
}

enum Way {
    /// Standard deviation of the noise on the sum.
    Gaussian(f64),
    Encoded(Box<Encoding>),
}

/// Noise multipliers are found up to this part of themselves.
const ACCURACY: f64 = 1e-4;

impl Setting {
    pub(super) fn protocol(&self, scheme: Scheme) -> anyhow::Result<Protocol> {
        match scheme {
            Scheme::Gaussian => self.gaussian(),
            Scheme::Binomial => self.binomial(scheme, false),
            Scheme::RotatedBinomial => self.binomial(scheme, true),
            Scheme::DiscreteGaussian => {
                self.shared(scheme, |scale, noise_multiplier| EncodingKind::DiscreteGaussian {
                    scale,
                    noise_multiplier,
                })
            }
            Scheme::Skellam => self.shared(scheme, |scale, noise_multiplier| EncodingKind::Skellam {
                scale,
                noise_multiplier,
            }),
        }
    }

    fn gaussian(&self) -> anyhow::Result<Protocol> {
        // PRIVACY: replacing a vector moves the sum by two clip norms.
        let multiplier = gaussian::noise_multiplier(self.epsilon, self.delta)?;
        let stddev = 2.0 * self.clip_norm * multiplier.get();
        Ok(Protocol {
            scheme: Scheme::Gaussian,
            parameters: format!("noise {}", number(stddev)),
            message_bits: 32.0,
            sum_bits: None,
            epsilon: self.epsilon,
            accounting: "the exact Gaussian",
            expected_error: self.dim as f64 * (stddev / self.clients as f64).powi(2),
            way: Way::Gaussian(stddev),
            seed: self.seed,
        })
    }

    fn size(&self) -> EncodingSize {
        EncodingSize {
            dim: self.dim,
            clip_norm: self.clip_norm,
            min_clients: self.clients as u64,
            max_clients: self.clients as u64,
        }
    }

    /// `X_max` of Theorem 4 of \[cpSGD\], or the clip norm, which no coordinate exceeds.
    fn rotated_range(&self) -> f64 {
        let d = self.dim.next_power_of_two() as f64;
        let logarithm = (2.0 * self.clients as f64 * d / self.delta.get()).ln();
        self.clip_norm * (2.0 * (logarithm / d).sqrt()).min(1.0)
    }

    fn binomial(&self, scheme: Scheme, rotate: bool) -> anyhow::Result<Protocol> {
        // In one dimension the encoding's guarantee is another one, under another relation.
        ensure!(self.dim > 1, "expected vectors of at least 2 coordinates, got 1");
        let padded = if rotate {
            self.dim.next_power_of_two()
        } else {
            self.dim
        } as u64;
        let x_max = if rotate {
            self.rotated_range()
        } else {
            self.clip_norm
        };
        let half = Delta::new(0.5 * self.delta.get())?;
        let norms = Sensitivities::of_quantization(padded, self.levels, self.clip_norm, x_max, half)?;
        let all = BinomialNoise::new(padded, 1, 0.5, 1.0)?.trials_for(&norms, self.epsilon, half)?;
        let trials = all.div_ceil(self.clients as u64);
        let kind = EncodingKind::Binomial(Levels {
            levels: self.levels,
            trials,
            success_probability: (1, 2),
            x_max: Some(x_max),
            rotate,
            delta: self.delta.get(),
        });
        let parameters = format!("m = {trials}");
        self.encoded(
            scheme,
            kind,
            parameters,
            "Theorem 1 of cpSGD, half of delta for the norms of what is sent",
        )
    }

    /// The least noise at which the accountant reaches the target; the grid is as fine as the levels.
    fn shared(&self, scheme: Scheme, kind: impl Fn(f64, f64) -> EncodingKind) -> anyhow::Result<Protocol> {
        let scale = (self.levels - 1) as f64 / (2.0 * self.rotated_range());
        let holds = |multiplier: f64| -> anyhow::Result<()> {
            let encoding = Encoding::new(kind(scale, multiplier), self.size())?;
            let reached = self.accounted(&encoding)?;
            ensure!(reached <= self.epsilon, "epsilon is {reached}");
            Ok(())
        };
        let mut high = 1.0;
        while let Err(error) = holds(high) {
            high *= 2.0;
            if high > 1e6 {
                return Err(error.context("no noise reaches the target"));
            }
        }
        let mut low = 0.5 * high;
        while holds(low).is_ok() {
            (low, high) = (0.5 * low, low);
        }
        while high - low > ACCURACY * high {
            let middle = 0.5 * (low + high);
            if holds(middle).is_ok() {
                high = middle;
            } else {
                low = middle;
            }
        }
        let parameters = format!("noise {}", number(high * self.clip_norm));
        self.encoded(
            scheme,
            kind(scale, high),
            parameters,
            "Renyi divergences, conditional rounding counted",
        )
    }

    fn accounted(&self, encoding: &Encoding) -> anyhow::Result<Epsilon> {
        let noise = encoding.client_noise().context("an encoding without noise")?;
        let mut accountant = Accountant::under(Recipe::Rdp, Adjacency::ReplaceOne);
        accountant.compose(noise.event(), 1)?;
        Ok(accountant.guarantee(self.delta)?.epsilon)
    }

    fn encoded(
        &self,
        scheme: Scheme,
        kind: EncodingKind,
        parameters: String,
        accounting: &'static str,
    ) -> anyhow::Result<Protocol> {
        let encoding = Encoding::new(kind, self.size())?;
        let event = encoding
            .client_noise()
            .context("an encoding without noise")?
            .event();
        let epsilon = match event {
            // Stated for the delta that it was made with.
            undertone_accounting::Event::ApproximateDp { epsilon, .. } => *epsilon,
            _ => self.accounted(&encoding)?,
        };
        let per_coordinate = encoding.mean_squared_error(self.clients as u64).total();
        Ok(Protocol {
            scheme,
            parameters,
            message_bits: encoding.client_bits_per_coordinate(),
            sum_bits: Some(encoding.bits_per_coordinate()),
            epsilon,
            accounting,
            expected_error: self.dim as f64 * per_coordinate,
            way: Way::Encoded(Box::new(encoding)),
            seed: self.seed,
        })
    }
}

impl Protocol {
    /// The server's estimate of the mean, with the rotation, the roundings and the noise of one round.
    pub(super) fn estimate(&self, vectors: &Vectors, round: u64) -> anyhow::Result<Vec<f64>> {
        match &self.way {
            Way::Gaussian(stddev) => {
                let mut mean = vectors.mean();
                let noise = standard_normal(&NoiseKey::from_insecure_seed(self.seed), round, mean.len())?;
                let stddev = stddev / vectors.iter().len() as f64;
                for (mean, noise) in mean.iter_mut().zip(noise) {
                    *mean += stddev * noise;
                }
                Ok(mean)
            }
            Way::Encoded(encoding) => {
                let key = NoiseKey::from_insecure_seed(self.seed);
                let round = encoding.for_round(&key, round)?;
                let mut encoder = round.encoder();
                let (mut one, mut sum) = (encoding.zeros(), encoding.zeros());
                for (client, vector) in vectors.iter().enumerate() {
                    encoder.encode(vector, 1.0, &key.for_client(client as u64)?, &mut one)?;
                    sum.add(&one)?;
                }
                let clients = vectors.iter().len();
                let noise = encoding.client_noise().context("an encoding without noise")?;
                let release = noise.release(round.decode(sum, clients as u64)?, clients as f64)?;
                Ok(release.values().iter().map(|value| f64::from(*value)).collect())
            }
        }
    }
}
