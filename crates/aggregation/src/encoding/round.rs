//! Encoding and decoding in one round, whose rotation clients and server share.

use std::ops::Range;

use undertone_mechanisms::{FRACTION_BITS, UniformWords};

use super::rounding::BLOCK;
use super::{ClientNoisedSum, Encoding, GridFactor, NoiseKey, RawSum, Scheme, lift};
use crate::error::{AggregationError, Result, check_len};
use crate::modular::{ModularVec, Modulus, Place};
use crate::rotation::Rotation;

/// In bytes.
const CACHE_LINE: usize = 64;

/// An [`Encoding`] with the rotation of one round.
#[derive(Debug)]
pub struct RoundEncoding<'a> {
    pub(super) encoding: &'a Encoding,
    pub(super) rotation: Option<Rotation>,
    round: u64,
}

/// A decoded sum.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub enum Decoded {
    /// Without noise: for the server's mechanism. Its weight is the number of clients.
    Raw(RawSum),
    /// With the clients' noise: for [`ClientNoise::release`](undertone_mechanisms::ClientNoise::release).
    ClientNoised(ClientNoisedSum),
}

/// Encodes one client after the other, in memory of its own.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the last client's rotated update"
)]
pub struct Encoder<'a> {
    round: &'a RoundEncoding<'a>,
    memory: Vec<f32>,
    /// Where in the memory the rotated update is.
    work: Range<usize>,
}

impl Encoding {
    /// The encoding of one round. `seed` is shared by clients and server, need not be secret, and makes another rotation
    /// every round.
    ///
    /// # Errors
    /// A round of `2^48` or more.
    pub fn for_round(&self, seed: &NoiseKey, round: u64) -> Result<RoundEncoding<'_>> {
        // Refuses rounds that have no words, with or without a rotation.
        UniformWords::signs(seed, round)?;
        let rotated = match &self.scheme {
            Scheme::Identity(_) => false,
            Scheme::Rounded(_) | Scheme::Shared(..) => true,
            Scheme::Quantised(levels) => levels.rotates(),
        };
        let rotation = if rotated {
            Some(Rotation::new(self.size.dim, seed, round)?)
        } else {
            None
        };
        Ok(RoundEncoding {
            encoding: self,
            rotation,
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

    /// Turns the modular sum of `clients` encoded updates into numbers.
    ///
    /// # Errors
    /// Another modulus or length, no clients, and [`AggregationError::TooManyClients`] above the cap: such a sum may have
    /// wrapped around.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "PRIVACY: a sum is decoded once and then gone"
    )]
    pub fn decode(&self, sum: ModularVec, clients: u64) -> Result<Decoded> {
        let encoding = self.encoding;
        check_vector(&sum, encoding)?;
        check_clients(encoding, clients)?;
        let mut steps = lift::lift(&sum, clients, encoding.centre);
        let dim = encoding.size.dim;
        match &encoding.scheme {
            Scheme::Identity(identity) => {
                let shift = FRACTION_BITS - identity.fraction_bits();
                steps.iter_mut().for_each(|step| *step <<= shift);
                Ok(Decoded::Raw(raw(steps, clients)))
            }
            Scheme::Rounded(lattice) => {
                // PRIVACY: whole numbers, so nothing is rounded before the one floor that the sensitivity counts.
                if let Some(rotation) = &self.rotation {
                    rotation.backward_exact(&mut steps)?;
                }
                let padded = encoding.padded_dim() as f64;
                let factor = GridFactor::new(1.0 / (lattice.scale() * padded.sqrt()))?;
                steps.truncate(dim);
                steps.iter_mut().for_each(|step| *step = factor.apply(*step));
                Ok(Decoded::Raw(raw(steps, clients)))
            }
            Scheme::Quantised(levels) => {
                // Everything from here on is post-processing of a noised sum.
                let bias = clients as f64 * (levels.bias() - encoding.centre as f64);
                self.noised(steps, bias, levels.bin_width(), clients)
            }
            Scheme::Shared(lattice, _) => self.noised(steps, 0.0, lattice.scale().recip(), clients),
        }
    }

    fn noised(&self, steps: Vec<i64>, bias: f64, width: f64, clients: u64) -> Result<Decoded> {
        // Consumed, so that the numbers take the integers' place in memory.
        let mut values: Vec<f64> = steps.into_iter().map(|step| step as f64 - bias).collect();
        let mut scale = width;
        if let Some(rotation) = &self.rotation {
            rotation.backward(&mut values)?;
            scale /= (values.len() as f64).sqrt();
        }
        let values = values[..self.encoding.size.dim].iter();
        let values = values.map(|value| (value * scale) as f32).collect();
        Ok(Decoded::ClientNoised(ClientNoisedSum::new(values, clients)))
    }
}

fn raw(values: Vec<i64>, clients: u64) -> RawSum {
    // At most 2^22 clients.
    RawSum::new(values, (clients as i64) << FRACTION_BITS)
}

/// PRIVACY: a sum of more clients than the cap may have wrapped around.
pub(super) fn check_clients(encoding: &Encoding, clients: u64) -> Result<()> {
    let max = encoding.size.max_clients;
    if clients > max {
        return Err(AggregationError::TooManyClients { max, got: clients });
    }
    if clients == 0 {
        let (name, expected) = ("clients", "at least 1");
        return Err(AggregationError::Setting {
            name,
            expected,
            got: 0.0,
        });
    }
    Ok(())
}

pub(super) fn check_vector(vector: &ModularVec, encoding: &Encoding) -> Result<()> {
    if vector.modulus() != encoding.modulus {
        return Err(AggregationError::ModulusMismatch {
            expected: encoding.modulus.get(),
            got: vector.modulus().get(),
        });
    }
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
