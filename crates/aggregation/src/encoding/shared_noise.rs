//! Discrete Gaussian and Skellam noise in shares, on the conditionally rounded lattice.

use undertone_accounting::{Event, distributed};
use undertone_mechanisms::{DiscreteGaussian, NoiseKey, Skellam};

use super::EncodingSize;
use super::lattice::{ALPHA, Lattice};
use crate::error::{Result, ensure};

/// Variances are whole multiples of the inverse of this.
const DENOMINATOR: u64 = 1 << 16;

/// Minus the binary logarithm of the probability that any coordinate of an honest sum wraps around. Wrapping costs accuracy; the
/// guarantee holds for the residues themselves.
const WRAP_BITS: f64 = 40.0;

/// Distribution of a share.
#[derive(Debug, Clone)]
enum Sampler {
    Gaussian(DiscreteGaussian),
    Skellam(Skellam),
}

/// Shares of noise in grid steps.
#[derive(Debug, Clone)]
pub(super) struct SharedNoise {
    sampler: Sampler,
    /// Variance parameter of one share, in squared grid steps.
    variance: f64,
    event: Event,
    reach: u64,
}

impl SharedNoise {
    /// Noise of standard deviation `noise_multiplier` times the clip norm in the sum of the fewest clients.
    ///
    /// # Errors
    /// A multiplier that is not positive and finite, and noise that the samplers or the accountant refuse: for discrete
    /// Gaussians shares of less than half a grid step.
    pub(super) fn new(
        size: &EncodingSize,
        lattice: &Lattice,
        noise_multiplier: f64,
        skellam: bool,
    ) -> Result<Self> {
        let steps = noise_multiplier * size.clip_norm * lattice.scale();
        let wanted = steps * steps / size.min_clients as f64 * DENOMINATOR as f64;
        let (name, holds) = ("noise_multiplier", noise_multiplier > 0.0 && wanted.is_finite());
        ensure(holds, name, "positive and finite", noise_multiplier)?;
        // PRIVACY: rounded up; never less noise than asked for.
        let numerator = wanted.ceil() as u64;
        let variance = numerator as f64 / DENOMINATOR as f64;
        // The standard deviations of the events are rounded down, past any error of the square roots.
        let stated = |variance: f64| variance.sqrt() / lattice.scale() * (1.0 - 1e-12);
        let (clip_norm, dimension) = (size.clip_norm, size.dim.next_power_of_two() as u64);
        let (granularity, conditional_beta) = (lattice.scale().recip(), ALPHA);
        let (sampler, event) = if skellam {
            let central_stddev = stated(variance * size.min_clients as f64);
            // PRIVACY: noise that no guarantee is known for is refused here, before anyone uses it.
            distributed::DistributedSkellam::new(lattice.sensitivity(), central_stddev)?;
            let event = Event::Skellam {
                clip_norm,
                granularity,
                dimension,
                conditional_beta,
                central_stddev,
            };
            (Sampler::Skellam(Skellam::new(numerator, DENOMINATOR)?), event)
        } else {
            let (local_stddev, clients) = (stated(variance), size.min_clients);
            distributed::DistributedDiscreteGaussian::new(lattice.sensitivity(), local_stddev, clients)?;
            let event = Event::DistributedDiscreteGaussian {
                clip_norm,
                granularity,
                dimension,
                conditional_beta,
                local_stddev,
                clients,
            };
            (
                Sampler::Gaussian(DiscreteGaussian::new(numerator, DENOMINATOR)?),
                event,
            )
        };
        let total = variance * size.max_clients as f64;
        Ok(Self {
            sampler,
            variance,
            event,
            reach: reach(total, dimension as f64),
        })
    }

    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    /// Variance of one share, in squared grid steps.
    pub(super) fn variance(&self) -> f64 {
        self.variance
    }

    /// The magnitude that the noise of `max_clients` exceeds in some coordinate with probability at most `2^-40`.
    pub(super) fn reach(&self) -> u64 {
        self.reach
    }

    pub(super) fn noise(&self, key: &NoiseKey, round: u64, block: u64, out: &mut [i64]) -> Result<()> {
        match &self.sampler {
            Sampler::Gaussian(sampler) => sampler.fill_block(key, round, block, out)?,
            Sampler::Skellam(sampler) => sampler.fill_block(key, round, block, out)?,
        }
        Ok(())
    }
}

/// The smallest `r`, up to one part in a hundred, with `2 d P(noise > r) <= 2^-40`.
///
/// Chernoff's bound for Skellam noise of variance `v`, `ln P <= -v h(r / v)` with
/// `h(x) = x asinh(x) - sqrt(1 + x^2) + 1`. It lies above that of a Gaussian of this variance, which is what discrete
/// Gaussians obey (Canonne, Kamath, Steinke 2020, Proposition 25), so it serves both.
fn reach(variance: f64, dimension: f64) -> u64 {
    let wanted = (2.0 * dimension).ln() + WRAP_BITS * std::f64::consts::LN_2;
    let exponent = |r: f64| {
        let x = r / variance;
        // x asinh(x) - x^2 / (sqrt(1 + x^2) + 1), without the cancellation of 1 against the root.
        variance * (x * x.asinh() - x * x / ((1.0 + x * x).sqrt() + 1.0))
    };
    let mut r = (2.0 * variance * wanted).sqrt().max(1.0);
    while exponent(r) < wanted {
        r *= 1.01;
    }
    r.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_that_of_a_gaussian_where_noise_is_large_and_wider_where_it_is_small() {
        let gaussian = |variance: f64, d: f64| (2.0 * variance * ((2.0 * d).ln() + 40.0 * 2f64.ln())).sqrt();
        let (large, wide) = (reach(1e8, 1e6) as f64, reach(0.1, 1.0));
        assert!(large >= gaussian(1e8, 1e6) && large < 1.02 * gaussian(1e8, 1e6));
        // P(Skellam of variance 0.1 > 13) is below 0.05^14 / 14! < 2^-90; beyond 9 it is above 2^-80.
        assert!((5..=20).contains(&wide), "{wide}");
    }
}
