//! \[UserDP\]: Charles et al., "Fine-Tuning Large Language Models with User-Level Differential Privacy" (2024).

pub(crate) mod estimate_and_double;
pub(crate) mod figure_1;
pub(crate) mod figure_2;
pub(crate) mod figure_3;
pub(crate) mod lemma_1;

use undertone_accounting::{
    Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability, calibrate::noise_multiplier_of,
};

use crate::reproduce::ReproduceError;

/// The guarantee that a user is promised over a number of steps.
#[derive(Debug, Clone, Copy)]
struct Promise {
    epsilon: f64,
    delta: f64,
    steps: u64,
}

impl Promise {
    /// `sigma_ELS`: the least noise multiplier when every example joins a step with probability `p` and a user has at most
    /// `group_size` of them (Theorem 1).
    fn els_noise(&self, group_size: u32, p: f64) -> Result<f64, ReproduceError> {
        let target = (Epsilon::new(self.epsilon)?, Delta::new(self.delta)?);
        let sampling_probability = SamplingProbability::new(p)?;
        let step = |noise_multiplier| Event::ExampleLevelSampling {
            group_size,
            sampling_probability,
            noise_multiplier,
        };
        Ok(noise_multiplier_of(target, self.steps, Recipe::Pld, step).map(NoiseMultiplier::get)?)
    }

    /// `sigma_ULS`: the same when every user joins with probability `q` (Theorem 2).
    fn uls_noise(&self, q: f64) -> Result<f64, ReproduceError> {
        self.els_noise(1, q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one example per user, the two algorithms are one mechanism. The value is of [`calibrate`]'s own example.
    #[test]
    fn uls_noise_is_calibrated_and_below_els_noise() {
        let promise = Promise {
            epsilon: 2.0,
            delta: 1e-6,
            steps: 1000,
        };
        let poisson = undertone_accounting::calibrate::noise_multiplier(
            (Epsilon::new(2.0).unwrap(), Delta::new(1e-6).unwrap()),
            SamplingProbability::new(0.01).unwrap(),
            1000,
            Recipe::Pld,
        )
        .unwrap();
        let uls = promise.uls_noise(0.01).unwrap();
        assert!(
            (uls / poisson.get() - 1.0).abs() < 1e-5,
            "{uls} {}",
            poisson.get()
        );
        assert!(promise.els_noise(4, 0.01).unwrap() > uls);
    }
}
