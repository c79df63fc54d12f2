//! Limits of an event's cost that hold by any recipe: its largest loss, and its cost without sampling.

use super::Event;
use crate::Adjacency;
use crate::discrete::randomized_response::buckets;
use crate::rdp::repeat_and_select::Repetitions;
use crate::special::sampled_loss;

/// Rounding errors of a few logarithms.
const ROUNDED_UP: f64 = 1.0 + 8.0 * f64::EPSILON;

impl Event {
    /// The largest privacy loss of one release, in both directions: its pure epsilon, apart from a delta that the event itself states.
    /// `+inf` where there is none.
    pub(crate) fn max_loss(&self, adjacency: Adjacency) -> f64 {
        let factor = adjacency.sensitivity_factor();
        match self {
            // The parameter itself, not a number that was computed from its outcomes.
            Event::Laplace { scale } => quotient_up(factor, *scale),
            Event::DiscreteLaplace {
                parameter,
                sensitivity,
            } => product_up(*parameter, factor * *sensitivity as f64),
            Event::RandomizedResponse {
                num_buckets,
                noise_parameter,
            } => randomized_response(*num_buckets, *noise_parameter, adjacency),
            Event::PoissonSampled {
                sampling_probability,
                event,
            } => {
                let (q, all) = (sampling_probability.get(), event.max_loss(adjacency));
                if q >= 1.0 || all.is_infinite() {
                    return all;
                }
                // No sampling makes a release worse.
                (sampled_loss(q, all).max(-sampled_loss(q, -all)) * ROUNDED_UP).min(all)
            }
            Event::BoundedRange { epsilon } | Event::ApproximateDp { epsilon, .. } => epsilon.get(),
            // Papernot and Steinke (2022), Corollary 3.
            Event::RepeatAndSelect {
                event,
                repetitions: Repetitions::TruncatedNegativeBinomial { shape, mean },
            } if event.without_delta().is_none() => {
                let once = event.max_loss(adjacency);
                if *mean == 1.0 {
                    return once;
                }
                product_up(2.0 + shape, once) * ROUNDED_UP
            }
            Event::PoissonGaussian { .. }
            | Event::Gaussian { .. }
            | Event::FixedSizeGaussian { .. }
            | Event::TruncatedPoissonGaussian { .. }
            | Event::MixtureOfGaussians { .. }
            | Event::ExampleLevelSampling { .. }
            | Event::CorrelatedGaussian { .. }
            | Event::DiscreteGaussian { .. }
            | Event::Binomial { .. }
            | Event::DistributedDiscreteGaussian { .. }
            | Event::Skellam { .. }
            | Event::ZeroConcentrated { .. }
            | Event::RepeatAndSelect { .. }
            | Event::NonPrivate => f64::INFINITY,
        }
    }

    /// `rho` of a Gaussian that is moved as far as this event moves it for any coins of its sampling; `None` for other events.
    ///
    /// A sampled release is a mixture of such Gaussians over coins that both neighbours share, and divergences are jointly convex. So the
    /// event never costs more.
    pub(crate) fn unsampled_rho(&self, adjacency: Adjacency) -> Option<f64> {
        let factor = adjacency.sensitivity_factor();
        let (moved, noise_multiplier) = match self {
            Event::PoissonGaussian { noise_multiplier, .. } => (factor, noise_multiplier),
            Event::ExampleLevelSampling {
                group_size,
                noise_multiplier,
                ..
            } => (factor * f64::from(*group_size), noise_multiplier),
            Event::MixtureOfGaussians {
                noise_multiplier,
                sensitivities,
                ..
            } => {
                let largest = sensitivities.iter().copied().fold(0.0, f64::max);
                (factor * largest, noise_multiplier)
            }
            // PRIVACY: a user who joins a full cohort displaces another one, so the sum moves twice as far. One who is replaced or
            // zeroed keeps the place, for the same coins.
            Event::TruncatedPoissonGaussian { noise_multiplier, .. } => match adjacency {
                Adjacency::AddOrRemoveOne | Adjacency::ReplaceOne => (2.0, noise_multiplier),
                Adjacency::ZeroOut => (1.0, noise_multiplier),
            },
            // Relative to the replace-one sensitivity.
            Event::FixedSizeGaussian { noise_multiplier, .. } => (1.0, noise_multiplier),
            _ => return self.gaussian_rho(adjacency),
        };
        let ratio = moved / noise_multiplier.get();
        Some(0.5 * ratio * ratio)
    }

    /// The event with every user in every round, where that is another event of a kind without Gaussian noise.
    pub(crate) fn without_sampling(&self) -> &Event {
        match self {
            Event::PoissonSampled { event, .. } => event,
            _ => self,
        }
    }

    /// The advice that makes an epsilon of this event finite.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Event::PoissonGaussian { .. }
            | Event::Gaussian { .. }
            | Event::FixedSizeGaussian { .. }
            | Event::TruncatedPoissonGaussian { .. }
            | Event::MixtureOfGaussians { .. }
            | Event::ExampleLevelSampling { .. }
            | Event::CorrelatedGaussian { .. } => "raise its noise_multiplier",
            Event::Laplace { .. } => "raise its scale",
            Event::DiscreteLaplace { .. } => "lower its parameter",
            Event::DiscreteGaussian { .. } => "raise its sigma or the delta",
            Event::RandomizedResponse { .. } => "raise its noise_parameter",
            Event::Binomial { .. } => {
                "raise the delta above the probability of outcomes that one neighbour alone can produce, or raise its trials"
            }
            Event::PoissonSampled { event, .. } => event.remedy(),
            Event::DistributedDiscreteGaussian { .. } => "raise its local_stddev",
            Event::Skellam { .. } => "raise its central_stddev",
            Event::ZeroConcentrated { .. } => "lower its rho or xi",
            Event::BoundedRange { .. } => "lower its epsilon",
            Event::ApproximateDp { .. } => "raise the delta, or lower its epsilon",
            Event::RepeatAndSelect { .. } => {
                "add noise to the event that is repeated, or lower the mean number of its runs"
            }
            Event::NonPrivate => "give it noise or leave it out",
        }
    }
}

fn randomized_response(num_buckets: u64, noise_parameter: f64, adjacency: Adjacency) -> f64 {
    let Ok(probabilities) = buckets(num_buckets, noise_parameter) else {
        return f64::INFINITY;
    };
    if num_buckets == 1 || noise_parameter == 1.0 {
        return 0.0;
    }
    let loss = if adjacency == Adjacency::ReplaceOne {
        ((1.0 - noise_parameter) / probabilities.other).ln_1p()
    } else {
        let gain = (num_buckets as f64 - 1.0) * (1.0 - noise_parameter);
        gain.ln_1p().max(-noise_parameter.ln())
    };
    loss * ROUNDED_UP
}

/// `a b`, rounded up to a number.
pub(crate) fn product_up(a: f64, b: f64) -> f64 {
    let product = a * b;
    if a.mul_add(b, -product) > 0.0 {
        product.next_up()
    } else {
        product
    }
}

/// `a + b`, rounded up to a number (both `>= 0`).
pub(crate) fn sum_up(a: f64, b: f64) -> f64 {
    let (large, small) = (a.max(b), a.min(b));
    let sum = large + small;
    if small > sum - large { sum.next_up() } else { sum }
}

/// `a / b`, rounded up to a number (both `> 0`).
fn quotient_up(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if quotient.mul_add(b, -a) < 0.0 {
        quotient.next_up()
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_products_and_quotients_round_up_and_keep_whole_numbers() {
        assert_eq!(product_up(5.0, 1.0), 5.0);
        assert_eq!(quotient_up(1.0, 0.5), 2.0);
        assert_eq!(sum_up(2.0, 3.0), 5.0);
        assert_eq!(sum_up(1.0, 1e-30), 1.0f64.next_up());
        // 3 times the number below 1 / 3 is below 1.
        assert!(quotient_up(1.0, 3.0) > 1.0 / 3.0 && quotient_up(1.0, 3.0) * 3.0 >= 1.0);
        assert_eq!(product_up(f64::INFINITY, 2.0), f64::INFINITY);
        assert_eq!(quotient_up(1.0, 1e-320), f64::INFINITY);
    }
}
