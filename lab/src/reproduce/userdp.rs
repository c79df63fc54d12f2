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
    use undertone_accounting::Accountant;

    use super::*;

    /// With one example per user, the two algorithms are one mechanism. The value is of [`calibrate`]'s own example.
    #[test]
    fn uls_noise_is_calibrated_and_below_els_noise() {
        let promise = Promise {
            epsilon: 2.0,
            delta: 1e-6,
            steps: 1000,
        };
        let delta = Delta::new(promise.delta).unwrap();
        let sampling_probability = SamplingProbability::new(0.01).unwrap();
        let poisson = undertone_accounting::calibrate::noise_multiplier(
            (Epsilon::new(promise.epsilon).unwrap(), delta),
            sampling_probability,
            promise.steps,
            Recipe::Pld,
        );
        let poisson = poisson.unwrap().get();
        let uls = promise.uls_noise(0.01).unwrap();
        assert!((uls / poisson - 1.0).abs() < 1e-5, "{uls} {poisson}");
        // Each noise keeps the promise, and one percent less of it does not.
        let spent = |group_size, noise| {
            let event = Event::ExampleLevelSampling {
                group_size,
                sampling_probability,
                noise_multiplier: NoiseMultiplier::new(noise).unwrap(),
            };
            let mut accountant = Accountant::new(Recipe::Pld);
            accountant.compose(&event, promise.steps).unwrap();
            accountant.guarantee(delta).unwrap().epsilon.get()
        };
        let els = promise.els_noise(4, 0.01).unwrap();
        assert!(els > uls, "{els} {uls}");
        for (group_size, noise) in [(1, uls), (4, els)] {
            let (kept, missed) = (spent(group_size, noise), spent(group_size, 0.99 * noise));
            assert!(
                kept <= promise.epsilon && missed > promise.epsilon,
                "{kept} {missed}"
            );
        }
    }
}
