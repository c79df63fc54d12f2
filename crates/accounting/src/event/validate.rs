//! Checks of an event's fields beyond their types.

use super::Event;
use crate::AccountingError;
use crate::binomial::exact::ShiftedBinomial;
use crate::discrete;
use crate::distributed::{DistributedDiscreteGaussian, DistributedSkellam, RoundedSensitivity};
use crate::error::{ensure, out_of_range};

/// Largest group of examples: as many components the mixture has.
const MAX_GROUP: u32 = 1 << 16;

impl Event {
    /// Checks the fields beyond their types, as [`Accountant::compose`](crate::Accountant::compose) does.
    ///
    /// # Errors
    /// The error that composing the event would end in.
    pub fn validate(&self) -> Result<(), AccountingError> {
        let positive = |quantity, value| discrete::positive(quantity, value).map(|_| ());
        let at_least_one = |quantity: &'static str, value: u64| positive(quantity, value as f64);
        match self {
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                ..
            }
            | Event::TruncatedPoissonGaussian {
                population,
                max_cohort_size: cohort_size,
                ..
            } if *cohort_size == 0 || cohort_size > population => Err(AccountingError::CohortSize {
                population: *population,
                cohort_size: *cohort_size,
            }),
            Event::MixtureOfGaussians {
                sensitivities,
                probabilities,
                ..
            } => mixture(sensitivities, probabilities),
            Event::ExampleLevelSampling { group_size, .. } if *group_size > MAX_GROUP => Err(out_of_range(
                "group_size",
                "at most 65536 examples",
                f64::from(*group_size),
            )),
            Event::ExampleLevelSampling { group_size, .. } => {
                at_least_one("group_size", u64::from(*group_size))
            }
            Event::CorrelatedGaussian {
                sensitivity_squared, ..
            } => positive("sensitivity_squared", *sensitivity_squared),
            Event::Laplace { scale } => positive("scale", *scale),
            Event::ZeroConcentrated { xi, .. } => {
                let holds = xi.is_finite() && *xi >= 0.0;
                ensure(holds, "xi", "a finite number >= 0", *xi).map(|_| ())
            }
            Event::DiscreteLaplace {
                parameter,
                sensitivity,
            } => positive("parameter", *parameter).and_then(|()| at_least_one("sensitivity", *sensitivity)),
            Event::DiscreteGaussian { sigma, sensitivity } => {
                positive("sigma", *sigma).and_then(|()| at_least_one("sensitivity", *sensitivity))
            }
            Event::RandomizedResponse {
                num_buckets,
                noise_parameter,
            } => discrete::randomized_response::outcomes(*num_buckets, *noise_parameter).map(|_| ()),
            Event::Binomial {
                trials,
                success_probability,
                shift,
            } => ShiftedBinomial::new(*trials, *success_probability, *shift).map(|_| ()),
            Event::PoissonSampled { event, .. } => match **event {
                Event::Laplace { .. }
                | Event::DiscreteLaplace { .. }
                | Event::DiscreteGaussian { .. }
                | Event::Binomial { .. } => event.validate(),
                _ => Err(AccountingError::UnsupportedInner {
                    outer: self.kind(),
                    covers: "Laplace, discrete Laplace, discrete Gaussian and binomial events (sampled Gaussians have \
                             an event of their own)",
                    inner: event.kind(),
                }),
            },
            Event::DistributedDiscreteGaussian { .. } => self.distributed_discrete_gaussian().map(|_| ()),
            Event::Skellam { .. } => self.skellam().map(|_| ()),
            Event::RepeatAndSelect { event, .. } => match **event {
                Event::RepeatAndSelect { .. } | Event::NonPrivate => Err(AccountingError::UnsupportedInner {
                    outer: self.kind(),
                    covers: "private events that are released once",
                    inner: event.kind(),
                }),
                _ => event.validate(),
            },
            // The types of their fields leave only values that have a meaning.
            Event::PoissonGaussian { .. }
            | Event::Gaussian { .. }
            | Event::FixedSizeGaussian { .. }
            | Event::TruncatedPoissonGaussian { .. }
            | Event::BoundedRange { .. }
            | Event::ApproximateDp { .. }
            | Event::NonPrivate => Ok(()),
        }
    }

    /// The mechanism of [`Event::DistributedDiscreteGaussian`]; `None` for other events.
    pub(crate) fn distributed_discrete_gaussian(
        &self,
    ) -> Result<Option<DistributedDiscreteGaussian>, AccountingError> {
        let Event::DistributedDiscreteGaussian {
            clip_norm,
            granularity,
            dimension,
            conditional_beta,
            local_stddev,
            clients,
        } = *self
        else {
            return Ok(None);
        };
        let sensitivity = RoundedSensitivity::new(clip_norm, granularity, dimension, conditional_beta)?;
        DistributedDiscreteGaussian::new(sensitivity, local_stddev, clients).map(Some)
    }

    /// The mechanism of [`Event::Skellam`]; `None` for other events.
    pub(crate) fn skellam(&self) -> Result<Option<DistributedSkellam>, AccountingError> {
        let Event::Skellam {
            clip_norm,
            granularity,
            dimension,
            conditional_beta,
            central_stddev,
        } = *self
        else {
            return Ok(None);
        };
        let sensitivity = RoundedSensitivity::new(clip_norm, granularity, dimension, conditional_beta)?;
        DistributedSkellam::new(sensitivity, central_stddev).map(Some)
    }
}

fn mixture(sensitivities: &[f64], probabilities: &[f64]) -> Result<(), AccountingError> {
    if sensitivities.is_empty() || sensitivities.len() != probabilities.len() {
        return Err(AccountingError::Size {
            quantity: "probabilities",
            expected: format!(
                "one for each of the {} sensitivities, and at least one",
                sensitivities.len()
            ),
            got: probabilities.len() as u64,
        });
    }
    let bad = |numbers: &[f64], holds: fn(f64) -> bool| numbers.iter().copied().find(|n| !holds(*n));
    if let Some(got) = bad(sensitivities, |n| n.is_finite() && n >= 0.0) {
        return Err(out_of_range("sensitivities", "finite numbers >= 0", got));
    }
    if let Some(got) = bad(probabilities, |n| (0.0..=1.0).contains(&n)) {
        return Err(out_of_range("probabilities", "numbers in [0, 1]", got));
    }
    let sum: f64 = probabilities.iter().sum();
    ensure((sum - 1.0).abs() <= 1e-9, "probabilities", "a sum of 1", sum).map(|_| ())
}
