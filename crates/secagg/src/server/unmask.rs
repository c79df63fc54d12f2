//! Round 3 on the server: secrets from shares, and the masks off the sum.

use rayon::prelude::*;
use undertone_aggregation::ModularVec;

use super::{Culprit, Outcome, Server, ServerPhase, commit};
use crate::error::{Result, SecAggError};
use crate::keys::{AgreementKey, Secret, commitment, pairwise_mask_key, self_mask_key};
use crate::mask::{self, Sign};
use crate::message::{GivenShare, Message, UnmaskShares};
use crate::shamir::{Share, recover};

/// Masks that one worker takes off in one pass over its vector.
const MASKS: usize = 128;

/// What a client's recovered secret takes off the sum.
struct Unmasking {
    keys: Vec<(Sign, Secret)>,
    culprits: Vec<Culprit>,
}

impl Server {
    /// Round 3: a survivor's shares.
    ///
    /// # Errors
    /// Another session, somebody who did not survive, a share about a stranger or of the wrong kind, a second and different
    /// answer; and out of turn.
    pub fn receive_unmask(&mut self, answer: &UnmaskShares) -> Result<()> {
        self.expect_phase(ServerPhase::Unmask, UnmaskShares::NAME)?;
        let cohort = self.survivor(UnmaskShares::NAME, &answer.session, answer.index)?;
        for (about, given) in &answer.shares {
            let neighbours = cohort.neighbours(answer.index);
            let known = neighbours.binary_search(about).is_ok() && self.shares[*about as usize].is_some();
            // PRIVACY: a client that gives the other kind is not one of ours; its answer is not even kept.
            if !known || matches!(given, GivenShare::Seed(_)) != self.survivors.contains(*about) {
                return Err(SecAggError::ShareKind {
                    index: answer.index,
                    about: *about,
                });
            }
        }
        commit(&mut self.answers, answer.index, UnmaskShares::NAME, answer)
    }

    /// Recovers the masks' keys, checks them and takes the masks off.
    ///
    /// # Errors
    /// [`SecAggError::Unrecoverable`] where shares are missing or too many of them are false, which aborts: the sum was
    /// cleared and nothing is released. Out of turn.
    pub fn finish(&mut self) -> Result<Outcome> {
        self.expect_phase(ServerPhase::Unmask, "finish")?;
        let unmasked = self.recover_all().and_then(|recovered| self.take_off(recovered));
        let culprits = unmasked.inspect_err(|_| self.abort())?;
        self.phase = ServerPhase::Done;
        self.shares.fill(None);
        self.answers.fill_with(|| None);
        self.arrived = ModularVec::zeros(self.modulus, 0);
        let sum = std::mem::replace(&mut self.sum, ModularVec::zeros(self.modulus, 0));
        Ok(Outcome {
            sum,
            included: self.survivors.clone(),
            culprits,
        })
    }

    fn recover_all(&self) -> Result<Vec<Unmasking>> {
        let shared = (0..self.shares.len() as u32).filter(|index| self.shares[*index as usize].is_some());
        let shared: Vec<u32> = shared.collect();
        shared.into_par_iter().map(|index| self.recover(index)).collect()
    }

    /// The masks that client `index` left in the sum.
    fn recover(&self, index: u32) -> Result<Unmasking> {
        let cohort = self.cohort("finish")?;
        let survived = self.survivors.contains(index);
        let alive: Vec<u32> = cohort
            .neighbours(index)
            .iter()
            .copied()
            .filter(|other| self.survivors.contains(*other))
            .collect();
        if !survived && alive.is_empty() {
            return Ok(Unmasking {
                keys: Vec::new(),
                culprits: Vec::new(),
            });
        }
        let given = |holder: &u32| {
            let answer = self.answers[*holder as usize].as_ref()?;
            let place = answer
                .shares
                .binary_search_by_key(&index, |(about, _)| *about)
                .ok()?;
            Some((*holder, answer.shares[place].1.share()))
        };
        let shares: Vec<(u32, &Share)> = alive.iter().filter_map(given).collect();
        let (threshold, session) = (cohort.params.topology().threshold(), &cohort.session);
        let entry = cohort.entry(index);
        let committed = self.shares[index as usize]
            .as_ref()
            .map(|message| message.commitment);
        // What comes out of the shares is what the client committed to, or it is not used.
        let recovered = recover(&shares, threshold, |secret| {
            if survived {
                Some(commitment(secret, session, index)) == committed
            } else {
                AgreementKey::new(&Secret::new(*secret)).public() == entry.masking_key
            }
        });
        let recovered = recovered.ok_or(SecAggError::Unrecoverable {
            index,
            which: if survived { "mask" } else { "masking key" },
            got: shares.len(),
            needed: threshold as usize,
        })?;
        let keys = if survived {
            vec![(Sign::Minus, self_mask_key(&recovered.secret, session, index))]
        } else {
            let masking = AgreementKey::new(&recovered.secret);
            let key = |other: &u32| {
                let agreed = masking
                    .agree(&cohort.entry(*other).masking_key)
                    .ok_or(SecAggError::Key {
                        index: *other,
                        which: "masking",
                    })?;
                // The other wore the mask with its own sign, so it comes off with the opposite.
                Ok((
                    Sign::of_pair(*other, index).opposite(),
                    pairwise_mask_key(&agreed, session, *other, index),
                ))
            };
            alive.iter().map(key).collect::<Result<_>>()?
        };
        let culprit = |holder| Culprit {
            index: holder,
            about: index,
        };
        Ok(Unmasking {
            keys,
            culprits: recovered.culprits.into_iter().map(culprit).collect(),
        })
    }

    fn take_off(&mut self, recovered: Vec<Unmasking>) -> Result<Vec<Culprit>> {
        let (mut keys, mut culprits) = (Vec::new(), Vec::new());
        for mut unmasking in recovered {
            keys.append(&mut unmasking.keys);
            culprits.append(&mut unmasking.culprits);
        }
        // One vector a worker: masks are integers, so neither their number nor their order shows in the sum.
        let part = keys.len().div_ceil(rayon::current_num_threads()).max(1);
        let (modulus, len) = (self.modulus, self.sum.len());
        let parts: Vec<ModularVec> = keys
            .par_chunks(part)
            .map(|keys| {
                let mut masks = ModularVec::zeros(modulus, len);
                for keys in keys.chunks(MASKS) {
                    mask::apply(&mut masks, keys.iter().map(|(sign, key)| (*sign, key)))?;
                }
                Ok(masks)
            })
            .collect::<Result<_>>()?;
        for part in &parts {
            self.sum.add(part)?;
        }
        Ok(culprits)
    }
}
