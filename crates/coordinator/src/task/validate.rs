//! The checks of a run file that its types do not make: ranges, and keys that need or exclude each other.

use undertone_models::ModelSpec;
use undertone_settings::{Algorithm, Batching};

use super::{ClipConfig, EstimatorConfig, OptimizerConfig, ServerConfig, TaskConfig};
use crate::error::check::{apart, at_least_one, below_one, open_unit, positive, require};
use crate::error::{CoordinatorError, Result};

impl TaskConfig {
    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the key, the expected and the actual value.
    pub fn validate(&self) -> Result<()> {
        folder_name(&self.name)?;
        at_least_one("rounds", self.rounds as usize)?;
        self.validate_check_in()?;
        if let (Batching::Stream, Some(_)) = (self.user_update.batching, self.model.context()) {
            return Err(CoordinatorError::value(
                "user_update.batching",
                "`sentences` with a transformer, which carries no state",
                "stream",
            ));
        }
        self.user_update.validate()?;
        self.validate_cohort()?;
        self.validate_els()?;
        self.clip.validate()?;
        self.server.validate()?;
        self.validate_estimator()?;
        self.validate_privacy()?;
        self.validate_participation()?;
        self.validate_aggregation()?;
        self.validate_schedule()
    }

    fn validate_estimator(&self) -> Result<()> {
        match self.estimator {
            EstimatorConfig::ClippedDenominator { min_weight } => {
                return positive("estimator.min_weight", min_weight);
            }
            EstimatorConfig::Exact => return Ok(()),
            EstimatorConfig::FixedDenominator { expected_weight } => {
                if let Some(weight) = expected_weight {
                    return positive("estimator.expected_weight", weight);
                }
            }
        }
        // PRIVACY: weights and kept examples follow from what people wrote. A denominator that was computed from them would
        // be published by the size of the noise.
        let (update, cohort) = (&self.user_update, &self.cohort);
        let of_text = match (update.algorithm, update.weight_cap, cohort.sampling_probability) {
            (Algorithm::Els, _, Some(_)) => Some((
                "els by cohort.sampling_probability",
                "the examples of a round that you expect",
            )),
            (_, Some(_), _) => Some((
                "user_update.weight_cap",
                "the users per round times a mean weight that you guess (at most 1)",
            )),
            _ => None,
        };
        match of_text.filter(|_| self.privacy.is_some()) {
            None => Ok(()),
            Some((cause, choice)) => Err(CoordinatorError::missing(
                "estimator.expected_weight",
                format!(
                    "a number in a private run with {cause}: {choice}, chosen without looking at the users' text. Every \
                     number keeps the guarantee and the signal to noise; it scales the step as server.learning_rate does"
                ),
            )),
        }
    }

    fn validate_privacy(&self) -> Result<()> {
        if let Some(estimate) = &self.estimate {
            if self.privacy.is_none() {
                return Err(CoordinatorError::missing(
                    "privacy",
                    "a table with the noise that [estimate] accounts for",
                ));
            }
            positive("estimate.users_per_round", estimate.users_per_round)?;
            require(estimate.rounds != Some(0), "estimate.rounds", "at least 1", 0)?;
            let (users, population) = (estimate.users_per_round, estimate.population);
            let expected = format!("at most estimate.population = {population}");
            let fits = users <= population as f64;
            require(fits, "estimate.users_per_round", expected, users)?;
            if let Some(delta) = estimate.delta {
                open_unit("estimate.delta", delta)?;
            }
        }
        let Some(privacy) = &self.privacy else {
            return Ok(());
        };
        // The budget would speak of a run that is not made; what this one spends is beyond any budget.
        let both = privacy.max_epsilon.is_some() && self.estimate.is_some();
        let remedy = "remove one of them: a run with [estimate] has no budget";
        apart(both, "privacy.max_epsilon", "estimate", remedy)?;
        let holds = self.estimate.is_none() || self.estimator.is_fixed();
        let expected = "`fixed_denominator` in a run with [estimate]";
        require(holds, "estimator.kind", expected, self.estimator.kind())?;
        let holds = self.clip != ClipConfig::None;
        let expected = "`flat`, `per_layer` or `adaptive` in a private run";
        require(holds, "clip.kind", expected, "\"none\"")?;
        let holds = self.estimator != EstimatorConfig::Exact;
        let expected = "`fixed_denominator` or `clipped_denominator` in a private run";
        require(holds, "estimator.kind", expected, "exact")?;
        if let Some(delta) = privacy.delta {
            open_unit("privacy.delta", delta)?;
        }
        if let Some(epsilon) = privacy.max_epsilon {
            positive("privacy.max_epsilon", epsilon)?;
        }
        match (privacy.noise_multiplier, privacy.target_epsilon) {
            // The encoding says how much noise there is.
            (None, None) if self.encoding_is_noisy() => Ok(()),
            (Some(z), None) => positive("privacy.noise_multiplier", z),
            (None, Some(epsilon)) => positive("privacy.target_epsilon", epsilon),
            (None, None) => Err(CoordinatorError::missing(
                "privacy.noise_multiplier",
                "`noise_multiplier` or `target_epsilon` in the table [privacy]",
            )),
            (Some(_), Some(_)) => Err(CoordinatorError::conflict(
                "privacy.noise_multiplier",
                "privacy.target_epsilon",
                "remove one of them",
            )),
        }
    }

    fn validate_schedule(&self) -> Result<()> {
        let mut previous = 0;
        for (index, point) in self.schedule.iter().enumerate() {
            let key = |name: &str| format!("schedule[{index}].{name}");
            let (from, place) = (point.from_round, key("from_round"));
            require(from > previous, &place, format!("more than {previous}"), from)?;
            let end = format!("less than rounds = {}", self.rounds);
            require(from < self.rounds, &place, end, from)?;
            previous = from;
            if let Some(norm) = point.clip_norm {
                positive(&key("clip_norm"), norm)?;
                let (clips, expected) = (self.clip != ClipConfig::None, "clip.kind other than `none`");
                require(clips, &key("clip_norm"), expected, norm)?;
            }
            if let Some(z) = point.noise_multiplier {
                positive(&key("noise_multiplier"), z)?;
                let (key, privacy) = (key("noise_multiplier"), self.privacy.as_ref());
                require(privacy.is_some(), &key, "a [privacy] table", z)?;
                let chosen = privacy.is_some_and(|privacy| privacy.target_epsilon.is_some());
                let remedy = "remove one of them: the target chooses one noise multiplier for the whole run";
                apart(chosen, &key, "privacy.target_epsilon", remedy)?;
            }
            if point.clip_norm.is_none() && point.noise_multiplier.is_none() {
                return Err(CoordinatorError::missing(
                    &format!("schedule[{index}].clip_norm"),
                    "`clip_norm` or `noise_multiplier` in each entry",
                ));
            }
        }
        Ok(())
    }
}

impl ClipConfig {
    fn validate(&self) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Flat { norm, .. } => positive("clip.norm", *norm),
            Self::PerLayer {
                norm: Some(norm),
                norms: None,
            } => positive("clip.norm", *norm),
            Self::PerLayer {
                norm: None,
                norms: Some(norms),
            } => norms.iter().try_for_each(|&norm| positive("clip.norms", norm)),
            Self::PerLayer {
                norm: None,
                norms: None,
            } => Err(CoordinatorError::missing(
                "clip.norm",
                "`norm` or `norms` in the table [clip]",
            )),
            Self::PerLayer {
                norm: Some(_),
                norms: Some(_),
            } => Err(CoordinatorError::conflict(
                "clip.norm",
                "clip.norms",
                "remove one of them",
            )),
            Self::Adaptive {
                initial_norm,
                quantile,
                learning_rate,
                bit_noise_std,
            } => {
                positive("clip.initial_norm", *initial_norm)?;
                open_unit("clip.quantile", *quantile)?;
                positive("clip.learning_rate", *learning_rate)?;
                bit_noise_std.map_or(Ok(()), |std| positive("clip.bit_noise_std", std))
            }
        }
    }
}

impl ServerConfig {
    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the key.
    pub fn validate(&self) -> Result<()> {
        positive("server.learning_rate", self.learning_rate)?;
        match self.optimizer {
            OptimizerConfig::Sgd { momentum } => below_one("server.optimizer.momentum", momentum)?,
            OptimizerConfig::Adam {
                beta1,
                beta2,
                epsilon,
            } => adam(beta1, beta2, epsilon)?,
            OptimizerConfig::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                adam(beta1, beta2, epsilon)?;
                let keeps_sign = weight_decay >= 0.0 && weight_decay * self.learning_rate < 1.0;
                let expected = "a number from 0 on, below 1 over server.learning_rate";
                require(
                    keeps_sign,
                    "server.optimizer.weight_decay",
                    expected,
                    weight_decay,
                )?;
            }
            OptimizerConfig::Adafactor {
                decay_exponent,
                epsilon,
                clipping_threshold,
            } => {
                positive("server.optimizer.decay_exponent", decay_exponent)?;
                // Kept in single precision, where less than this is zero.
                let holds = epsilon >= 1e-37 && epsilon.is_finite();
                let expected = "a finite number from 1e-37 on";
                require(holds, "server.optimizer.epsilon", expected, epsilon)?;
                positive("server.optimizer.clipping_threshold", clipping_threshold)?;
            }
        }
        let Some(decay) = self.decay else { return Ok(()) };
        let (last, factor) = (decay.last_fraction, decay.final_factor);
        let in_run = last > 0.0 && last <= 1.0;
        require(in_run, "server.decay.last_fraction", "a number in (0, 1]", last)?;
        let lowers = (0.0..=1.0).contains(&factor);
        require(lowers, "server.decay.final_factor", "a number in [0, 1]", factor)
    }
}

fn adam(beta1: f64, beta2: f64, epsilon: f64) -> Result<()> {
    below_one("server.optimizer.beta1", beta1)?;
    below_one("server.optimizer.beta2", beta2)?;
    positive("server.optimizer.epsilon", epsilon)
}

/// Checks that the name of a run can be the name of its folder.
///
/// # Errors
/// [`CoordinatorError::ConfigValue`] for a name that is empty, starts with a dot or holds a separator.
pub fn folder_name(name: &str) -> Result<()> {
    let refused = name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']);
    require(!refused, "name", "a folder name", format!("{name:?}"))
}

/// Refuses a model that another program trains.
///
/// # Errors
/// [`CoordinatorError::ConfigValue`] naming `model.family`.
pub fn trained_here(spec: &ModelSpec) -> Result<()> {
    let expected = "a family that Undertone trains itself; a session of the Python package trains models of other programs";
    require(!spec.is_external(), "model.family", expected, spec.family())
}

/// Refuses adapters without an initial model. Beside random parameters they would train a model that computes nothing of use.
///
/// # Errors
/// [`CoordinatorError::ConfigMissing`] naming `initial_model`.
pub fn check_initial_model(spec: &ModelSpec, has_initial_model: bool) -> Result<()> {
    if spec.lora().is_none() || has_initial_model {
        return Ok(());
    }
    Err(CoordinatorError::missing(
        "initial_model",
        "the trained model that the adapters of `model.lora` are added to",
    ))
}
