//! The pair of distributions that an event's release is worst on, under a relation.

use super::{Event, truncated};
use crate::binomial::exact::ShiftedBinomial;
use crate::discrete::{self, Outcomes};
use crate::error::no_guarantee;
use crate::pld::{GaussianMixtures, Pair};
use crate::special::{ln_1m_exp, ln_binomial};
use crate::{AccountingError, Adjacency};

/// Losses grow like the inverse square: below this they leave the range of numbers.
const MIN_NOISE: f64 = 1e-60;

/// The dominating pair of one release of `event` (validated, and supporting `adjacency`); `None` where only a
/// Renyi curve is known. Outcomes of less mass than `e^log_tail` may be left out.
///
/// # Source
/// Gaussian pairs: Zhu, Dong, Wang, "Optimal Accounting of Differential Privacy via Characteristic Function" (2022),
/// Proposition 30 for Poisson sampling; Ganesh (2024) and \[UserDP\] for the mixtures of example-level sampling.
pub(crate) fn pair(
    event: &Event,
    adjacency: Adjacency,
    log_tail: f64,
) -> Result<Option<Pair>, AccountingError> {
    let replace = adjacency == Adjacency::ReplaceOne;
    // PRIVACY: the integer that one user moves by `s` is moved by up to `2 s` when the user is replaced.
    let moved = |sensitivity: u64| if replace { 2 * sensitivity } else { sensitivity };
    let gaussians = |noise_multiplier: f64, components: &[(f64, f64)]| {
        let other = if replace { components } else { &[(0.0, 1.0)] };
        Pair::Mixtures(GaussianMixtures::new(noise_multiplier, components, other))
    };
    if let Some(rho) = event.gaussian_rho(adjacency) {
        let z = (2.0 * rho).sqrt().recip();
        return Ok(Some(Pair::Mixtures(GaussianMixtures::new(
            z,
            &[(1.0, 1.0)],
            &[(0.0, 1.0)],
        ))));
    }
    if let Event::PoissonGaussian { noise_multiplier, .. }
    | Event::ExampleLevelSampling { noise_multiplier, .. }
    | Event::MixtureOfGaussians { noise_multiplier, .. }
    | Event::TruncatedPoissonGaussian { noise_multiplier, .. } = event
        && noise_multiplier.get() < MIN_NOISE
    {
        return Err(no_guarantee(format!(
            "the noise multiplier {:e} of the {} event is below 1e-60; raise its noise_multiplier",
            noise_multiplier.get(),
            event.kind()
        )));
    }
    Ok(Some(match event {
        Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        } => gaussians(noise_multiplier.get(), &sampled(sampling_probability.get(), 1.0)),
        Event::ExampleLevelSampling {
            group_size,
            sampling_probability,
            noise_multiplier,
        } => gaussians(
            noise_multiplier.get(),
            &binomial(*group_size, sampling_probability.get()),
        ),
        Event::MixtureOfGaussians {
            noise_multiplier,
            sensitivities,
            probabilities,
        } => {
            let components: Vec<_> = sensitivities
                .iter()
                .copied()
                .zip(probabilities.iter().copied())
                .collect();
            gaussians(noise_multiplier.get(), &components)
        }
        Event::TruncatedPoissonGaussian {
            population,
            sampling_probability,
            max_cohort_size,
            noise_multiplier,
        } => truncated::pair(
            *population,
            sampling_probability.get(),
            *max_cohort_size,
            noise_multiplier.get(),
            adjacency,
        ),
        Event::Laplace { scale } => Pair::Laplace {
            sampling_probability: 1.0,
            scale: if replace { 0.5 * scale } else { *scale },
        },
        Event::PoissonSampled {
            sampling_probability,
            event,
        } => match **event {
            // PRIVACY: the scale is not halved for a replaced user, because `Event::supports` refuses that relation here.
            Event::Laplace { scale } => Pair::Laplace {
                sampling_probability: sampling_probability.get(),
                scale,
            },
            _ => match pair(event, adjacency, log_tail)? {
                Some(Pair::Outcomes(outcomes)) => {
                    Pair::Outcomes(outcomes.poisson_sampled(*sampling_probability))
                }
                _ => return Ok(None),
            },
        },
        Event::DiscreteLaplace {
            parameter,
            sensitivity,
        } => Pair::Outcomes(discrete::laplace::outcomes(
            *parameter,
            moved(*sensitivity),
            log_tail,
        )?),
        Event::DiscreteGaussian { sigma, sensitivity } => Pair::Outcomes(discrete::gaussian::outcomes(
            *sigma,
            moved(*sensitivity),
            log_tail,
        )?),
        Event::RandomizedResponse {
            num_buckets,
            noise_parameter,
        } => Pair::Outcomes(if replace {
            discrete::randomized_response::outcomes(*num_buckets, *noise_parameter)?
        } else {
            discrete::randomized_response::zero_out_outcomes(*num_buckets, *noise_parameter)?
        }),
        Event::Binomial {
            trials,
            success_probability,
            shift,
        } => Pair::Outcomes(
            ShiftedBinomial::new(*trials, *success_probability, moved(*shift))?.outcomes(log_tail)?,
        ),
        Event::BoundedRange { epsilon } => Pair::BoundedRange(epsilon.get()),
        Event::ApproximateDp { epsilon, delta } => {
            // Everything that satisfies the statement is a post-processing of this pair (Kairouz, Oh, Viswanath).
            let delta = delta.map_or(0.0, crate::Delta::get);
            let (log_max, log_min) = (-(-epsilon.get()).exp().ln_1p(), -epsilon.get().exp().ln_1p());
            let kept = (-delta).ln_1p();
            Pair::Outcomes(Outcomes {
                log_p: vec![kept + log_max, kept + log_min, delta.ln(), f64::NEG_INFINITY],
                log_q: vec![kept + log_min, kept + log_max, f64::NEG_INFINITY, delta.ln()],
                missing_p: 0.0,
                missing_q: 0.0,
            })
        }
        _ => return Ok(None),
    }))
}

/// The pair of two outcomes with the losses `highest` and `highest - range`, where `0 < highest < range`: a mechanism whose losses have
/// this range.
pub(crate) fn two_outcomes(range: f64, highest: f64) -> Pair {
    let rest = range - highest;
    // With w = e^highest: P = w (e^rest - 1) / (e^range - 1) at the higher loss, and (w - 1) / (e^range - 1) at the lower one.
    let part = |loss: f64| ln_1m_exp(-loss) - ln_1m_exp(-range);
    let log_p = vec![part(rest), part(highest) - rest];
    let log_q = vec![log_p[0] - highest, log_p[1] + rest];
    Pair::Outcomes(Outcomes {
        log_p,
        log_q,
        missing_p: 0.0,
        missing_q: 0.0,
    })
}

fn sampled(q: f64, distance: f64) -> [(f64, f64); 2] {
    [(0.0, 1.0 - q), (distance, q)]
}

/// `Bin(count, q)` as distances with probabilities.
pub(crate) fn binomial(count: u32, q: f64) -> Vec<(f64, f64)> {
    if q == 1.0 {
        return vec![(f64::from(count), 1.0)];
    }
    let log_probability = |k: u32| {
        let (n, k) = (f64::from(count), f64::from(k));
        ln_binomial(n, k) + k * q.ln() + (n - k) * (-q).ln_1p()
    };
    let mut components: Vec<_> = (0..=count)
        .map(|k| (f64::from(k), log_probability(k).exp()))
        .collect();
    // The probabilities are rounded; a sum of exactly 1 keeps the loss of tiny q free of that error.
    let rest: f64 = components[1..].iter().map(|(_, probability)| probability).sum();
    if rest < 0.5 {
        components[0].1 = 1.0 - rest;
    }
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_box_keeps_its_statement() {
        let event = Event::ApproximateDp {
            epsilon: crate::Epsilon::new(0.7).unwrap(),
            delta: Some(crate::Delta::new(1e-3).unwrap()),
        };
        let Some(Pair::Outcomes(outcomes)) = pair(&event, Adjacency::ZeroOut, -50.0).unwrap() else {
            panic!("a pair of outcomes");
        };
        let total: f64 = outcomes.log_p.iter().map(|log_p| log_p.exp()).sum();
        assert!((total - 1.0).abs() < 1e-15);
        assert!((outcomes.hockey_stick(0.7) - 1e-3).abs() < 1e-15);
        let sampled = outcomes.poisson_sampled(crate::SamplingProbability::new(1.0).unwrap());
        assert!((sampled.hockey_stick(0.7) - 1e-3).abs() < 1e-15);
    }
}
