//! Encoding and decoding in one round, whose rotation clients and server share.

use std::ops::Range;

use undertone_mechanisms::UniformWords;

use super::rounding::BLOCK;
use super::{ClientNoisedSum, Encoding, NoiseKey, Scheme, lift};
use crate::error::{AggregationError, Result, check_len, check_modulus, ensure, setting};
use crate::modular::{ModularVec, Modulus, Place};
use crate::rotation::Rotation;

/// Size of a cache line in bytes.
const CACHE_LINE: usize = 64;

/// An [`Encoding`] with the rotation of one round.
#[derive(Debug)]
pub struct RoundEncoding<'a> {
    pub(super) encoding: &'a Encoding,
    pub(super) rotation: Option<Rotation>,
    round: u64,
}

/// Encodes one client after the other, in memory of its own.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the last client's rotated update"
)]
pub struct Encoder<'a> {
    round: &'a RoundEncoding<'a>,
    memory: Vec<f32>,
    /// Range of the memory that holds the rotated update.
    work: Range<usize>,
}

impl Encoding {
    /// The encoding of one round of a run. `seed` is shared by clients and server and need not be secret. The rotation is another one
    /// in every round where clients add the noise, and the same in all rounds where the server does: correlated noise then lives in
    /// the rotated coordinates.
    ///
    /// # Errors
    /// A round of `2^48` or more.
    pub fn for_round(&self, seed: &NoiseKey, round: u64) -> Result<RoundEncoding<'_>> {
        // Refuses rounds that have no words, with or without a rotation.
        UniformWords::signs(seed, round)?;
        let rotation_of = match &self.scheme {
            Scheme::Identity(_) => None,
            Scheme::Rounded(_) => Some(0),
            Scheme::Shared(..) => Some(round),
            Scheme::Quantised(levels) => levels.rotates().then_some(round),
        };
        let rotation = rotation_of.map(|place| Rotation::new(self.size.dim, seed, place));
        Ok(RoundEncoding {
            encoding: self,
            rotation: rotation.transpose()?,
            round,
        })
    }
}

impl<'a> RoundEncoding<'a> {
    /// An encoder, for one thread.
    #[must_use]
    pub fn encoder(&'a self) -> Encoder<'a> {
        let len = match &self.encoding.scheme {
            Scheme::Identity(_) => 0,
            _ => self.encoding.padded_dim(),
        };
        let memory = vec![0.0; len + CACHE_LINE / size_of::<f32>()];
        // A register of the transform is as long as a cache line, and must not lie across two.
        let start = memory.as_ptr().align_offset(CACHE_LINE);
        Encoder {
            round: self,
            work: start..start + len,
            memory,
        }
    }

    /// Turns the modular sum of `clients` encoded updates, which holds the noise of the clients, into numbers.
    ///
    /// # Errors
    /// A different modulus or length, no clients, and [`AggregationError::TooManyClients`] above the cap: such a sum may have
    /// wrapped around. An encoding without noise by the clients.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "PRIVACY: a sum is decoded once and then gone"
    )]
    pub fn decode(&self, sum: ModularVec, clients: u64) -> Result<ClientNoisedSum> {
        let encoding = self.encoding;
        check_vector(&sum, encoding)?;
        check_clients(encoding, clients)?;
        let (bias, width) = match &encoding.scheme {
            Scheme::Quantised(levels) => (
                clients as f64 * (levels.bias() - encoding.centre as f64),
                levels.bin_width(),
            ),
            Scheme::Shared(lattice, _) => (0.0, lattice.scale().recip()),
            // PRIVACY: the server's noise comes before anything is read from such a sum.
            Scheme::Identity(_) | Scheme::Rounded(_) => {
                return Err(setting("encoding", "with noise by the clients", f64::NAN));
            }
        };
        // Everything from here on is post-processing of a noised sum. The numbers take the integers' place in memory.
        let steps = lift::lift(&sum, clients, encoding.centre);
        let mut values: Vec<f64> = steps.into_iter().map(|step| step as f64 - bias).collect();
        self.rotate_back(&mut values, width)?;
        let values = values.into_iter().map(|value| value as f32).collect();
        Ok(ClientNoisedSum::new(values, clients))
    }

    /// Rotates back, drops the padding, and multiplies by the worth of a step.
    pub(super) fn rotate_back(&self, values: &mut Vec<f64>, step: f64) -> Result<()> {
        let mut scale = step;
        if let Some(rotation) = &self.rotation {
            rotation.backward(values)?;
            scale /= (values.len() as f64).sqrt();
        }
        values.truncate(self.encoding.size.dim);
        values.iter_mut().for_each(|value| *value *= scale);
        Ok(())
    }
}

/// PRIVACY: a sum of more clients than the cap may have wrapped around.
pub(super) fn check_clients(encoding: &Encoding, clients: u64) -> Result<()> {
    let max = encoding.size.max_clients;
    if clients > max {
        return Err(AggregationError::TooManyClients { max, got: clients });
    }
    ensure(clients > 0, "clients", "at least 1", 0.0).map(drop)
}

pub(super) fn check_vector(vector: &ModularVec, encoding: &Encoding) -> Result<()> {
    check_modulus(encoding.modulus.get(), vector.modulus().get())?;
    check_len("encoded vector", encoding.padded_dim(), vector.len())
}

impl Encoder<'_> {
    /// Writes the residues of one client's `weight * update` into `out`.
    ///
    /// `key` is the client's secret: its rounding and its share of the noise come from it and the round.
    ///
    /// PRIVACY: once for a client and round. A second encoding under the same key has the same noise, so the difference of
    /// two sums would show the difference of the updates.
    ///
    /// # Errors
    /// Another modulus or length, values that are not finite, a weight outside `[0, 1]`; for the identity an update that is
    /// longer than the clip norm. `out` then holds nothing of use.
    pub fn encode(
        &mut self,
        update: &[f32],
        weight: f64,
        key: &NoiseKey,
        out: &mut ModularVec,
    ) -> Result<()> {
        let RoundEncoding {
            encoding,
            rotation,
            round,
        } = self.round;
        check_len("update", encoding.size.dim, update.len())?;
        check_vector(out, encoding)?;
        let modulus = encoding.modulus;
        let mut place = out.place();
        let mut noise = [0; BLOCK];
        let work = &mut self.memory[self.work.clone()];
        let (what, who) = ((update, weight), (key, *round));
        match (&encoding.scheme, rotation) {
            (Scheme::Identity(identity), _) => identity.encode(update, weight, |block, steps| {
                store(&mut place, block, steps.iter().copied(), modulus);
                Ok(())
            }),
            (Scheme::Rounded(lattice), Some(rotation)) => {
                let shift = encoding.centre as i64;
                lattice.encode(rotation, what, who, work, |block, steps| {
                    store(
                        &mut place,
                        block,
                        steps.iter().map(|&x| i64::from(x) + shift),
                        modulus,
                    );
                    Ok(())
                })
            }
            (Scheme::Quantised(levels), rotation) => {
                let lowest = levels.lowest();
                levels.encode(rotation.as_ref(), what, who, work, |block, steps| {
                    let noise = &mut noise[..steps.len()];
                    levels.noise(key, *round, block as u64, noise)?;
                    let sent = steps.iter().zip(&*noise).map(|(&x, z)| i64::from(x) + lowest + z);
                    store(&mut place, block, sent, modulus);
                    Ok(())
                })
            }
            (Scheme::Shared(lattice, shared), Some(rotation)) => {
                lattice.encode(rotation, what, who, work, |block, steps| {
                    let noise = &mut noise[..steps.len()];
                    shared.noise(key, *round, block as u64, noise)?;
                    let sent = steps.iter().zip(&*noise).map(|(&x, z)| i64::from(x) + z);
                    store(&mut place, block, sent, modulus);
                    Ok(())
                })
            }
            // `for_round` makes a rotation for both.
            (Scheme::Rounded(_) | Scheme::Shared(..), None) => Ok(()),
        }
    }
}

/// Puts a block of integers into its lanes, reduced.
#[inline(always)]
fn store(place: &mut Place<'_>, block: usize, values: impl Iterator<Item = i64>, modulus: Modulus) {
    let first = block * BLOCK;
    let m = modulus.get() as i64;
    let reduce = |value: i64| -> u64 {
        if modulus.is_power_of_two() {
            value as u64 & (m as u64 - 1)
        } else if (0..m).contains(&value) {
            value as u64
        } else {
            value.rem_euclid(m) as u64
        }
    };
    match place {
        Place::Narrow(lanes) => {
            let lanes = lanes[first..].iter_mut();
            lanes
                .zip(values)
                .for_each(|(lane, value)| *lane = reduce(value) as u32);
        }
        Place::Wide(lanes) => {
            let lanes = lanes[first..].iter_mut();
            lanes.zip(values).for_each(|(lane, value)| *lane = reduce(value));
        }
    }
}
