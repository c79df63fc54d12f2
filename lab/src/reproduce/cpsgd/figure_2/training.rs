//! Federated training of a small network on digits, one picture a client, every client once.

use std::ops::Range;

use rayon::prelude::*;

use super::digits::{CLASSES, Digits, PIXELS};
use super::network::Network;
use crate::reproduce::ReproduceError;

/// Three layers with 60 rectified units in each hidden one.
const LAYERS: [usize; 4] = [PIXELS, 60, 60, CLASSES];

/// Pictures behind every number that a round can take: the test set, disjoint from all rounds.
const TEST_FROM: u64 = 1 << 40;
const TEST: u64 = 10_000;

/// The settings that all runs of the figure share.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) clients: u64,
    pub(super) rounds: u64,
    pub(super) clip_norm: f64,
    pub(super) learning_rate: f32,
    pub(super) momentum: f32,
    pub(super) seed: u64,
}

/// Channel from the clipped gradients of a round to the server's estimate of their mean.
pub(super) trait Channel: Sync {
    /// The sum that one thread computes.
    type Sum: Send;

    /// The sum over some of the clients.
    fn sum(&self, round: u64, clients: &mut Clients<'_>) -> Result<Self::Sum, ReproduceError>;

    fn join(&self, one: Self::Sum, other: Self::Sum) -> Result<Self::Sum, ReproduceError>;

    /// The estimate of the mean.
    fn finish(&self, sum: Self::Sum, clients: u64, round: u64) -> Result<Vec<f32>, ReproduceError>;
}

impl Task {
    /// The settings of the figure's training.
    pub(super) const FIGURE: Self = Self {
        clients: 10_000,
        rounds: 60,
        clip_norm: 1.0,
        learning_rate: 3.0,
        momentum: 0.9,
        seed: 1,
    };

    pub(super) fn model() -> Network {
        Network::new(&LAYERS)
    }

    /// Share of test pictures named rightly after the last round.
    pub(super) fn accuracy(&self, channel: &impl Channel) -> Result<f64, ReproduceError> {
        let (model, digits) = (Self::model(), Digits::new(self.seed));
        let mut params = model.initial_params(self.seed);
        let mut velocity = vec![0.0; params.len()];
        for round in 0..self.rounds {
            let mean = self.round(&model, &digits, &params, round, channel)?;
            for ((param, velocity), mean) in params.iter_mut().zip(&mut velocity).zip(mean) {
                *velocity = self.momentum * *velocity + mean;
                *param -= self.learning_rate * *velocity;
            }
        }
        Ok(test(model.clone(), &digits, &params))
    }

    fn round<C: Channel>(
        &self,
        model: &Network,
        digits: &Digits,
        params: &[f32],
        round: u64,
        channel: &C,
    ) -> Result<Vec<f32>, ReproduceError> {
        /// Clients of one piece of work. Pieces are joined in their order, whatever the number of threads.
        const PIECE: u64 = 250;
        // No client comes twice: numbers go on from round to round.
        let (first, end) = (round * self.clients, (round + 1) * self.clients);
        let starts: Vec<u64> = (first..end).step_by(PIECE as usize).collect();
        let sums: Vec<C::Sum> = starts
            .into_par_iter()
            .map(|start| {
                let numbers = start..(start + PIECE).min(end);
                channel.sum(
                    round,
                    &mut Clients::new(numbers, model, digits, params, self.clip_norm),
                )
            })
            .collect::<Result<_, ReproduceError>>()?;
        let mut sums = sums.into_iter();
        let first = sums.next().ok_or(ReproduceError::NobodyCame)?;
        let total = sums.try_fold(first, |total, sum| channel.join(total, sum))?;
        channel.finish(total, self.clients, round)
    }
}

/// Some clients of a round, one picture each, and their gradients.
pub(super) struct Clients<'a> {
    numbers: Range<u64>,
    digits: &'a Digits,
    params: &'a [f32],
    clip_norm: f64,
    network: Network,
    pixels: [f32; PIXELS],
    gradient: Vec<f32>,
}

impl<'a> Clients<'a> {
    fn new(
        numbers: Range<u64>,
        model: &Network,
        digits: &'a Digits,
        params: &'a [f32],
        clip_norm: f64,
    ) -> Self {
        Self {
            numbers,
            digits,
            params,
            clip_norm,
            network: model.clone(),
            pixels: [0.0; PIXELS],
            gradient: vec![0.0; params.len()],
        }
    }

    /// The next client's number and its gradient, shortened to the clip norm.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[f32])>, ReproduceError> {
        let Some(number) = self.numbers.next() else {
            return Ok(None);
        };
        let label = self.digits.draw(number, &mut self.pixels);
        let label = label as usize;
        self.network
            .gradient(self.params, &self.pixels, label, &mut self.gradient);
        let squared: f64 = self.gradient.iter().map(|value| f64::from(*value).powi(2)).sum();
        let factor = self.clip_norm / squared.sqrt();
        if factor < 1.0 {
            self.gradient.iter_mut().for_each(|value| *value *= factor as f32);
        }
        Ok(Some((number, &self.gradient)))
    }
}

fn test(mut network: Network, digits: &Digits, params: &[f32]) -> f64 {
    let mut pixels = [0.0; PIXELS];
    let mut right = 0usize;
    for number in TEST_FROM..TEST_FROM + TEST {
        let label = digits.draw(number, &mut pixels) as usize;
        right += usize::from(network.guess(params, &pixels) == Some(label));
    }
    right as f64 / TEST as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::cpsgd::figure_2::channel::{Gaussian, Plain};

    /// A hundredth of the figure's clients learns; noise as large as the sums does not let it.
    #[test]
    #[ignore = "slow"]
    fn it_learns_unless_noise_drowns_it() {
        let task = Task {
            clients: 100,
            rounds: 25,
            ..Task::FIGURE
        };
        let learned = task.accuracy(&Plain).unwrap();
        let drowned = task.accuracy(&Gaussian::new(task.clients as f64, 1)).unwrap();
        assert!(learned > 0.4 && drowned < 0.25, "{learned} {drowned}");
        assert_eq!(task.accuracy(&Plain).unwrap().to_bits(), learned.to_bits());
    }
}
