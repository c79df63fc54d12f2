//! The run of the same file without privacy, a ceiling to compare with.

use undertone_coordinator::task::{ClipConfig, EstimatorConfig};
use undertone_settings::{Algorithm, SourceSpec};

use super::RunConfig;

impl RunConfig {
    /// The run without privacy and with everything else as it is. Its name ends in `-without-privacy`.
    ///
    /// PRIVACY: its model is never a release. Nothing bounds what it tells of a person.
    #[must_use]
    pub fn without_privacy(mut self) -> Self {
        self.leave_audits_out();
        let task = &mut self.task;
        task.name += "-without-privacy";
        (task.privacy, task.aggregation, task.participation) = (None, None, None);
        // Both tables speak of clipping and noise alone.
        (task.schedule, task.estimate) = (Vec::new(), None);
        task.clip = ClipConfig::None;
        // Example-level sampling has no other denominator than a fixed one.
        if task.user_update.algorithm != Algorithm::Els {
            task.estimator = EstimatorConfig::Exact;
        }
        self
    }

    /// `true` for text of a table in memory, which the function `train` of the Python package alone can read.
    #[must_use]
    pub fn has_table(&self) -> bool {
        matches!(self.data.source, SourceSpec::Memory(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"
        name = "words"
        seed = 7
        rounds = 10
        initial_model = "start.safetensors"
        data = { source = { kind = "synthetic", users = 60, words = 40 } }
        model = { family = "dplm", embed = 6, hidden = 8 }
    "#;

    /// The run file of these lines, and that without privacy.
    fn pair(lines: &str) -> (RunConfig, RunConfig) {
        let config: RunConfig = toml::from_str(&format!("{HEAD}\n{lines}")).unwrap();
        config.validate().unwrap();
        (config.clone(), config.without_privacy())
    }

    #[test]
    fn everything_that_privacy_asks_for_goes_and_the_rest_stays() {
        let (mut private, ceiling) = pair(
            r#"cohort = { sampling = "fixed_size", users_per_round = 12 }
            user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
            clip = { kind = "flat", norm = 0.3 }
            privacy = { noise_multiplier = 2.0, delta = 1e-5, mechanism = { kind = "tree" } }
            participation = { min_sep = 2 }
            aggregation = { min_clients = 2, max_clients = 60 }
            audit = { lane = 20, holdback = 0.25 }"#,
        );
        ceiling.validate().unwrap();
        assert_eq!(ceiling.task.name, "words-without-privacy");
        // The texts that an audit holds back stay out of the training, so both runs have the same text.
        assert_eq!((ceiling.has_lane(), ceiling.holdback()), (false, 0.25));
        private.task.name.clone_from(&ceiling.task.name);
        let task = &mut private.task;
        (task.privacy, task.participation, task.aggregation) = (None, None, None);
        (task.clip, task.estimator) = (ClipConfig::None, EstimatorConfig::Exact);
        private.audit = ceiling.audit;
        assert_eq!(private, ceiling);
    }

    #[test]
    fn a_schedule_and_an_estimate_go_with_the_noise() {
        let (_, ceiling) = pair(
            r#"cohort.users_per_round = 12
            user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
            clip = { kind = "flat", norm = 0.3 }
            privacy = { noise_multiplier = 2.0, delta = 1e-5 }
            schedule = [{ from_round = 3, clip_norm = 0.1, noise_multiplier = 3.0 }]
            estimate = { population = 1000, users_per_round = 20.0 }"#,
        );
        ceiling.validate().unwrap();
        assert!(ceiling.task.schedule.is_empty() && ceiling.task.estimate.is_none());
    }

    #[test]
    fn example_level_sampling_keeps_its_denominator() {
        let (private, ceiling) = pair(
            r#"cohort.sampling_probability = 0.1
            user_update = { algorithm = "els", group_size = 4 }
            clip = { kind = "flat", norm = 0.3 }
            estimator = { kind = "fixed_denominator", expected_weight = 20.0 }
            privacy = { noise_multiplier = 2.0, delta = 1e-5 }"#,
        );
        ceiling.validate().unwrap();
        assert_eq!(ceiling.task.estimator, private.task.estimator);
    }
}
