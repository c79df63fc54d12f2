//! The server optimizers: SGD with momentum, Adam, AdamW and Adafactor, on released averages only.

mod adafactor;

use adafactor::Adafactor;
use undertone_aggregation::ParamLayout;
use undertone_mechanisms::NoisedAverage;

use crate::error::{CoordinatorError, Result};
use crate::task::{OptimizerConfig, ServerConfig};

/// A server optimizer with its state.
///
/// # Guarantee
/// It costs no privacy, because it sees only released averages and its own state, never a user's update.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerOptimizer {
    config: ServerConfig,
    rounds: u64,
    /// Rounds over which the learning rate rises from zero; none in federated runs.
    warm_up: u64,
    steps: u64,
    /// First moment or momentum; empty for plain SGD.
    first: Vec<f32>,
    /// Second moment, with Adafactor of rows and columns; empty for SGD.
    second: Vec<f32>,
    adafactor: Option<Adafactor>,
}

/// The constants of one step of Adam.
struct AdamStep {
    rate: f32,
    epsilon: f32,
    beta1: f32,
    beta2: f32,
}

impl AdamStep {
    fn new((beta1, beta2): (f64, f64), epsilon: f64, rate: f64, steps: u64) -> Self {
        // Both bias corrections folded into the step size and epsilon.
        let correction1 = 1.0 - beta1.powf(steps as f64);
        let correction2 = (1.0 - beta2.powf(steps as f64)).sqrt();
        Self {
            rate: (rate * correction2 / correction1) as f32,
            epsilon: (epsilon * correction2) as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
        }
    }

    /// Both moments after a value, and the step of the parameter.
    #[inline(always)]
    fn step(&self, first: f32, second: f32, value: f32) -> (f32, f32, f32) {
        let first = self.beta1 * first + (1.0 - self.beta1) * value;
        let second = self.beta2 * second + (1.0 - self.beta2) * value * value;
        (first, second, self.rate * first / (second.sqrt() + self.epsilon))
    }
}

impl ServerOptimizer {
    /// An optimizer for parameters of this layout over a run of `rounds`.
    #[must_use]
    pub fn new(config: ServerConfig, layout: &ParamLayout, rounds: u64) -> Self {
        let zeros = |wanted| {
            if wanted {
                vec![0.0; layout.len()]
            } else {
                Vec::new()
            }
        };
        let mut adafactor = None;
        let (first, second) = match config.optimizer {
            OptimizerConfig::Sgd { momentum } => (zeros(momentum > 0.0), Vec::new()),
            OptimizerConfig::Adam { .. } | OptimizerConfig::AdamW { .. } => (zeros(true), zeros(true)),
            OptimizerConfig::Adafactor {
                decay_exponent,
                epsilon,
                clipping_threshold,
            } => {
                let made = Adafactor::new(layout, decay_exponent, epsilon, clipping_threshold);
                let second = vec![0.0; made.moments()];
                adafactor = Some(made);
                (Vec::new(), second)
            }
        };
        Self {
            config,
            rounds,
            warm_up: 0,
            steps: 0,
            first,
            second,
            adafactor,
        }
    }

    /// Lets the learning rate rise linearly over the first `rounds` rounds.
    #[must_use]
    pub fn with_warm_up(mut self, rounds: u64) -> Self {
        self.warm_up = rounds;
        self
    }

    /// The server learning rate of a round: constant, then falling linearly over the last part of the run; rising
    /// linearly over the first rounds where [`with_warm_up`](Self::with_warm_up) asked for it.
    #[must_use]
    pub fn learning_rate(&self, round: u64) -> f64 {
        let risen = (round + 1) as f64 / self.warm_up.max(1) as f64;
        self.config.learning_rate_at(round, self.rounds) * risen.min(1.0)
    }

    /// Applies a released average.
    ///
    /// # Errors
    /// [`CoordinatorError::Diverged`] where a parameter would not be finite. Nothing has changed then.
    pub fn apply(&mut self, round: u64, average: &NoisedAverage, parameters: &mut [f32]) -> Result<()> {
        if !self.stays_finite(round, average.values(), parameters) {
            return Err(CoordinatorError::Diverged { round });
        }
        self.step(round, average.values(), parameters);
        Ok(())
    }

    /// `true` if [`step`](Self::step) would leave each parameter finite: the same arithmetic without writing.
    fn stays_finite(&self, round: u64, average: &[f32], parameters: &[f32]) -> bool {
        let rate = self.learning_rate(round);
        let mut moved = parameters.iter().zip(average);
        match self.config.optimizer {
            OptimizerConfig::Sgd { momentum } if momentum > 0.0 => {
                let (momentum, rate) = (momentum as f32, rate as f32);
                moved.zip(&self.first).all(|((parameter, value), velocity)| {
                    (parameter + rate * (momentum * velocity + value)).is_finite()
                })
            }
            OptimizerConfig::Sgd { .. } => {
                let rate = rate as f32;
                moved.all(|(parameter, value)| (parameter + rate * value).is_finite())
            }
            OptimizerConfig::Adam {
                beta1,
                beta2,
                epsilon,
            } => self.adam_stays_finite((beta1, beta2), epsilon, rate, 1.0, moved),
            OptimizerConfig::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                let kept = (1.0 - rate * weight_decay) as f32;
                self.adam_stays_finite((beta1, beta2), epsilon, rate, kept, moved)
            }
            OptimizerConfig::Adafactor { .. } => {
                // Its step depends on norms over whole tensors, so it is made on a copy.
                let mut copy = (self.clone(), parameters.to_vec());
                copy.0.step(round, average, &mut copy.1);
                copy.1.iter().all(|value| value.is_finite())
            }
        }
    }

    fn adam_stays_finite<'a>(
        &self,
        betas: (f64, f64),
        epsilon: f64,
        rate: f64,
        kept: f32,
        moved: impl Iterator<Item = (&'a f32, &'a f32)>,
    ) -> bool {
        let adam = AdamStep::new(betas, epsilon, rate, self.steps + 1);
        let moments = self.first.iter().zip(&self.second);
        moved
            .zip(moments)
            .all(|((parameter, &value), (&first, &second))| {
                (parameter * kept + adam.step(first, second, value).2).is_finite()
            })
    }

    fn step(&mut self, round: u64, average: &[f32], parameters: &mut [f32]) {
        self.steps += 1;
        let rate = self.learning_rate(round);
        match self.config.optimizer {
            OptimizerConfig::Sgd { momentum } if momentum > 0.0 => {
                let (momentum, rate) = (momentum as f32, rate as f32);
                for ((parameter, velocity), &value) in parameters.iter_mut().zip(&mut self.first).zip(average)
                {
                    *velocity = momentum * *velocity + value;
                    *parameter += rate * *velocity;
                }
            }
            OptimizerConfig::Sgd { .. } => {
                let rate = rate as f32;
                parameters
                    .iter_mut()
                    .zip(average)
                    .for_each(|(parameter, value)| *parameter += rate * value);
            }
            OptimizerConfig::Adam {
                beta1,
                beta2,
                epsilon,
            } => self.adam((beta1, beta2), epsilon, rate, average, parameters),
            OptimizerConfig::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                let kept = (1.0 - rate * weight_decay) as f32;
                parameters.iter_mut().for_each(|parameter| *parameter *= kept);
                self.adam((beta1, beta2), epsilon, rate, average, parameters);
            }
            OptimizerConfig::Adafactor { .. } => {
                if let Some(adafactor) = &self.adafactor {
                    adafactor.step(self.steps, rate, average, &mut self.second, parameters);
                }
            }
        }
    }

    fn adam(
        &mut self,
        (beta1, beta2): (f64, f64),
        epsilon: f64,
        rate: f64,
        average: &[f32],
        parameters: &mut [f32],
    ) {
        let adam = AdamStep::new((beta1, beta2), epsilon, rate, self.steps);
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((parameter, (first, second)), &value) in parameters.iter_mut().zip(moments).zip(average) {
            let (next_first, next_second, moved) = adam.step(*first, *second, value);
            (*first, *second) = (next_first, next_second);
            *parameter += moved;
        }
    }

    /// The state for a checkpoint: step count and the moments in use, by name.
    #[must_use]
    pub fn state(&self) -> (u64, [(&'static str, &[f32]); 2]) {
        (
            self.steps,
            [
                ("optimizer.first", &self.first),
                ("optimizer.second", &self.second),
            ],
        )
    }

    /// Takes the state back; `false` when the lengths are not those of this optimizer.
    #[must_use]
    pub fn restore(&mut self, steps: u64, first: Vec<f32>, second: Vec<f32>) -> bool {
        let fits = first.len() == self.first.len() && second.len() == self.second.len();
        if fits {
            (self.steps, self.first, self.second) = (steps, first, second);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::DecayConfig;

    fn layout(len: usize) -> ParamLayout {
        ParamLayout::with_tensor_groups(vec![("w".into(), vec![len])]).unwrap()
    }

    fn optimizer(optimizer: OptimizerConfig, learning_rate: f64) -> ServerOptimizer {
        ServerOptimizer::new(
            ServerConfig {
                optimizer,
                learning_rate,
                decay: None,
            },
            &layout(2),
            10,
        )
    }

    fn check(mut optimizer: ServerOptimizer, averages: &[[f32; 2]], expected: [f32; 2]) {
        let mut parameters = [1.0, -1.0];
        for (round, average) in averages.iter().enumerate() {
            optimizer.step(round as u64, average, &mut parameters);
        }
        for (got, want) in parameters.iter().zip(expected) {
            assert!((got - want).abs() < 1e-6, "{parameters:?} != {expected:?}");
        }
    }

    #[test]
    fn sgd_applies_the_average() {
        check(
            optimizer(OptimizerConfig::Sgd { momentum: 0.0 }, 0.5),
            &[[2.0, 4.0]],
            [2.0, 1.0],
        );
    }

    /// One average of 1 per parameter and round: each parameter ends at the factor of its round, also where the run ends early.
    #[test]
    fn a_server_that_only_adds_ends_at_the_sum_of_its_averages_times_their_factors() {
        let decay = DecayConfig {
            last_fraction: 0.5,
            final_factor: 0.1,
        };
        for (momentum, decay) in [(0.0, None), (0.9, None), (0.5, Some(decay))] {
            for planned in [8, 12] {
                let config = ServerConfig {
                    optimizer: OptimizerConfig::Sgd { momentum },
                    learning_rate: 0.3,
                    decay,
                };
                let mut optimizer = ServerOptimizer::new(config, &layout(8), planned);
                let mut parameters = vec![0.0f32; 8];
                for round in 0..8 {
                    let mut average = [0.0; 8];
                    average[round] = 1.0;
                    optimizer.step(round as u64, &average, &mut parameters);
                }
                let factors = config.factors(8, planned).unwrap();
                for (got, want) in parameters.iter().zip(&factors) {
                    assert!(
                        (f64::from(*got) - want).abs() < 1e-6,
                        "{parameters:?} {factors:?}"
                    );
                }
            }
        }
        let adam: OptimizerConfig = toml::from_str("kind = \"adam\"").unwrap();
        let config = ServerConfig {
            optimizer: adam,
            ..ServerConfig::default()
        };
        assert!(config.factors(8, 8).is_none());
    }

    #[test]
    fn momentum_accumulates_over_steps() {
        // Velocities 1, then 0.9 + 1 = 1.9.
        check(
            optimizer(OptimizerConfig::Sgd { momentum: 0.9 }, 1.0),
            &[[1.0, 0.0], [1.0, 0.0]],
            [3.9, -1.0],
        );
    }

    #[test]
    fn adam_steps_have_the_size_of_the_rate() {
        let adam = OptimizerConfig::Adam {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-12,
        };
        // With a constant average every bias-corrected step is rate * sign.
        check(
            optimizer(adam, 0.1),
            &[[3.0, -0.02], [3.0, -0.02], [3.0, -0.02]],
            [1.3, -1.3],
        );
    }

    #[test]
    fn adamw_decays_weights_beside_the_step() {
        let adamw = OptimizerConfig::AdamW {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-12,
            weight_decay: 0.5,
        };
        // p <- 0.95 p + 0.1 sign: 1 -> 1.05 -> 1.0975, and the other way round.
        check(
            optimizer(adamw, 0.1),
            &[[3.0, -0.02], [3.0, -0.02]],
            [1.0975, -1.0975],
        );
    }

    #[test]
    fn the_state_of_adafactor_comes_back() {
        let kind = OptimizerConfig::Adafactor {
            decay_exponent: 0.8,
            epsilon: 1e-30,
            clipping_threshold: 1.0,
        };
        let (mut whole, mut before) = (optimizer(kind, 0.1), optimizer(kind, 0.1));
        let (mut one, mut other) = ([1.0, -1.0], [1.0, -1.0]);
        whole.step(0, &[1.0, 2.0], &mut one);
        before.step(0, &[1.0, 2.0], &mut other);
        let (steps, [(_, first), (_, second)]) = before.state();
        let mut after = optimizer(kind, 0.1);
        assert!(after.restore(steps, first.to_vec(), second.to_vec()));
        whole.step(1, &[-1.0, 0.5], &mut one);
        after.step(1, &[-1.0, 0.5], &mut other);
        assert_eq!(one, other);
        assert!(!after.restore(1, Vec::new(), vec![0.0; 1]));
    }

    #[test]
    fn the_rate_falls_linearly_to_its_end() {
        let config = ServerConfig {
            decay: Some(DecayConfig {
                last_fraction: 0.5,
                final_factor: 0.1,
            }),
            ..ServerConfig::default()
        };
        let optimizer = ServerOptimizer::new(config, &layout(1), 9);
        let rates: Vec<f64> = (0..9).map(|round| optimizer.learning_rate(round)).collect();
        assert_eq!(rates[..5], [1.0; 5]);
        assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]));
        assert!((rates[8] - 0.1).abs() < 1e-12);
    }

    #[test]
    fn the_rate_rises_linearly_where_asked() {
        let plain = optimizer(OptimizerConfig::default(), 2.0);
        assert_eq!(plain.learning_rate(0), 2.0);
        let warmed = plain.with_warm_up(4);
        let rates: Vec<f64> = (0..6).map(|round| warmed.learning_rate(round)).collect();
        assert_eq!(rates, [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn state_round_trips() {
        let mut a = optimizer(OptimizerConfig::Sgd { momentum: 0.9 }, 1.0);
        let mut b = a.clone();
        let mut parameters = [0.0, 0.0];
        a.step(0, &[1.0, 2.0], &mut parameters);
        let (steps, [(_, first), (_, second)]) = a.state();
        assert!(b.restore(steps, first.to_vec(), second.to_vec()));
        assert_eq!(a, b);
        assert!(!b.restore(1, vec![0.0; 3], Vec::new()));
    }
}
