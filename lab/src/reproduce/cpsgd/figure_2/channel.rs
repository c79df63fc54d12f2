//! The channel of the figure: rotation, quantisation and noise between the clients' gradients and the server.

use undertone_aggregation::{Encoding, ModularVec};
use undertone_mechanisms::NoiseKey;

use super::training::{Channel, Clients};
use crate::reproduce::ReproduceError;

/// The mean itself: neither quantised nor noised.
#[derive(Debug)]
pub(super) struct Plain;

impl Channel for Plain {
    type Sum = Vec<f64>;

    fn sum(&self, _: u64, clients: &mut Clients<'_>) -> Result<Vec<f64>, ReproduceError> {
        let mut sum = Vec::new();
        while let Some((_, gradient)) = clients.next()? {
            sum.resize(gradient.len(), 0.0);
            for (sum, value) in sum.iter_mut().zip(gradient) {
                *sum += f64::from(*value);
            }
        }
        Ok(sum)
    }

    fn join(&self, mut one: Vec<f64>, other: Vec<f64>) -> Result<Vec<f64>, ReproduceError> {
        for (sum, value) in one.iter_mut().zip(other) {
            *sum += value;
        }
        Ok(one)
    }

    fn finish(&self, sum: Vec<f64>, clients: u64, _: u64) -> Result<Vec<f32>, ReproduceError> {
        Ok(sum.into_iter().map(|sum| (sum / clients as f64) as f32).collect())
    }
}

/// Gaussian noise on the sum, at full precision: what the clients' noise adds up to.
#[derive(Debug)]
pub(super) struct Gaussian {
    stddev: f64,
    key: NoiseKey,
}

impl Gaussian {
    pub(super) fn new(stddev: f64, seed: u64) -> Self {
        Self {
            stddev,
            key: NoiseKey::from_insecure_seed(seed),
        }
    }
}

impl Channel for Gaussian {
    type Sum = Vec<f64>;

    fn sum(&self, round: u64, clients: &mut Clients<'_>) -> Result<Vec<f64>, ReproduceError> {
        Plain.sum(round, clients)
    }

    fn join(&self, one: Vec<f64>, other: Vec<f64>) -> Result<Vec<f64>, ReproduceError> {
        Plain.join(one, other)
    }

    fn finish(&self, mut sum: Vec<f64>, clients: u64, round: u64) -> Result<Vec<f32>, ReproduceError> {
        let noise = crate::normal::standard_normal(&self.key, round, sum.len())?;
        for (sum, noise) in sum.iter_mut().zip(noise) {
            *sum += self.stddev * noise;
        }
        Plain.finish(sum, clients, round)
    }
}

/// Quantised levels after a random rotation, with every client's binomial noise, summed modulo `M`.
#[derive(Debug)]
pub(super) struct Rotated<'a> {
    encoding: &'a Encoding,
    /// The key of the rotations, which all clients share, and of each client's own key.
    key: NoiseKey,
}

impl<'a> Rotated<'a> {
    pub(super) fn new(encoding: &'a Encoding, seed: u64) -> Self {
        Self {
            encoding,
            key: NoiseKey::from_insecure_seed(seed),
        }
    }
}

impl Channel for Rotated<'_> {
    type Sum = ModularVec;

    fn sum(&self, round: u64, clients: &mut Clients<'_>) -> Result<ModularVec, ReproduceError> {
        let round = self.encoding.for_round(&self.key, round)?;
        let mut encoder = round.encoder();
        let (mut one, mut sum) = (self.encoding.zeros(), self.encoding.zeros());
        while let Some((client, gradient)) = clients.next()? {
            encoder.encode(gradient, 1.0, &self.key.for_client(client)?, &mut one)?;
            sum.add(&one)?;
        }
        Ok(sum)
    }

    fn join(&self, mut one: ModularVec, other: ModularVec) -> Result<ModularVec, ReproduceError> {
        one.add(&other)?;
        Ok(one)
    }

    fn finish(&self, sum: ModularVec, clients: u64, round: u64) -> Result<Vec<f32>, ReproduceError> {
        let round = self.encoding.for_round(&self.key, round)?;
        let noise = self.encoding.client_noise().ok_or(ReproduceError::WithoutNoise)?;
        let sum = round.decode(sum, clients)?;
        Ok(noise.release(sum, clients as f64)?.into_values())
    }
}
