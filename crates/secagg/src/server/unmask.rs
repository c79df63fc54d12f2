//! Round 3 on the server: secrets from shares, and the masks off the sum.

use std::collections::BTreeSet;

use rayon::prelude::*;
use undertone_aggregation::ModularVec;

use super::{Culprit, Outcome, Server, commit};
use crate::error::{Result, SecAggError};
use crate::keys::{AgreementKey, Secret, commitment, pairwise_mask_key, self_mask_key};
use crate::mask::{self, Sign};
use crate::message::{GivenShare, Message, UnmaskShares};
use crate::phase::ServerPhase;
use crate::shamir::{Recovered, Share, recover, recover_first};

/// Masks that one worker takes off in one pass over its vector.
const MASKS: usize = 128;

/// One of the ways to open a secret that a check accepts: shares by holder, the threshold, the check.
type Search = fn(&[(u32, &Share)], u32, &dyn Fn(&[u8; 32]) -> bool) -> Option<Recovered>;

/// The masks that a client's recovered secret takes off the sum, and the clients that gave false shares of it.
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
        let clients = self.survivor(UnmaskShares::NAME, &answer.session, answer.index)?;
        for (about, given) in &answer.shares {
            let neighbours = clients.neighbours(answer.index);
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

    /// The clients about whom fewer shares than the threshold have arrived, although the sum needs their secrets.
    ///
    /// While this names somebody, [`finish`](Self::finish) refuses and the session goes on. Empty before the unmasking.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        let Ok(clients) = self
            .expect_phase(ServerPhase::Unmask, "finish")
            .and_then(|()| self.clients("finish"))
        else {
            return Vec::new();
        };
        let needed = clients.params.topology().threshold() as usize;
        self.needed_secrets()
            .filter(|index| self.given(*index).len() < needed)
            .collect()
    }

    /// Recovers the masks' keys, checks them and takes the masks off.
    ///
    /// # Errors
    /// [`SecAggError::TooFew`] while shares are [`missing`](Self::missing) that an answer could still bring; the session goes
    /// on. [`SecAggError::Unrecoverable`] where the shares do not open every secret, and names the clients that a retry
    /// should exclude. Once every survivor has answered this aborts: the sum was cleared and nothing is released. Out of turn.
    pub fn finish(&mut self) -> Result<Outcome> {
        self.expect_phase(ServerPhase::Unmask, "finish")?;
        let awaited = self
            .survivors
            .iter()
            .any(|index| self.answers[index as usize].is_none());
        let missing = self.missing();
        if let (true, Some(first)) = (awaited, missing.first()) {
            let threshold = self.clients("finish")?.params.topology().threshold();
            return Err(SecAggError::TooFew {
                what: "shares about some client so far",
                needed: threshold,
                got: self.given(*first).len() as u32,
            });
        }
        let unmasked = self.recover_all().and_then(|recovered| self.take_off(&recovered));
        let culprits = unmasked.inspect_err(|_| {
            if !awaited {
                self.abort();
            }
        })?;
        self.phase = ServerPhase::Done;
        self.shares.fill(None);
        self.answers.fill_with(|| None);
        let sum = std::mem::replace(&mut self.sum, ModularVec::zeros(self.modulus, 0));
        Ok(Outcome {
            sum,
            included: self.survivors.clone(),
            culprits,
        })
    }

    /// The shares that surviving neighbours gave about client `index`, by holder.
    fn given(&self, index: u32) -> Vec<(u32, &Share)> {
        let share = |holder: &u32| {
            let shares = &self.answers[*holder as usize].as_ref()?.shares;
            let place = shares.binary_search_by_key(&index, |(about, _)| *about).ok()?;
            Some((*holder, shares[place].1.share()))
        };
        self.neighbours(index).iter().filter_map(share).collect()
    }

    fn recover_all(&self) -> Result<Vec<Unmasking>> {
        let secrets: Vec<u32> = self.needed_secrets().collect();
        let first: Vec<Option<Unmasking>> = secrets
            .par_iter()
            .map(|index| self.recover(*index, &self.given(*index), recover_first))
            .collect::<Result<_>>()?;
        // Where the first shares do not open a secret, the false ones are looked for, one secret after the other. Clients that
        // were found out come last from there on, so that a liar costs one search and not one for each neighbour.
        let (mut liars, mut unopened) = (BTreeSet::new(), BTreeSet::new());
        let mut all = Vec::with_capacity(secrets.len());
        for (index, found) in secrets.into_iter().zip(first) {
            if let Some(found) = found {
                all.push(found);
                continue;
            }
            let mut shares = self.given(index);
            shares.sort_by_key(|(holder, _)| liars.contains(holder));
            match self.recover(index, &shares, recover)? {
                Some(found) => {
                    liars.extend(found.culprits.iter().map(|culprit| culprit.index));
                    all.push(found);
                }
                None => drop(unopened.insert(index)),
            }
        }
        if unopened.is_empty() {
            Ok(all)
        } else {
            let exclude = unopened.union(&liars).copied().collect();
            Err(SecAggError::Unrecoverable { exclude })
        }
    }

    /// The masks that client `index` left in the sum, where `search` opens its secret.
    fn recover(&self, index: u32, shares: &[(u32, &Share)], search: Search) -> Result<Option<Unmasking>> {
        let clients = self.clients("finish")?;
        let survived = self.survivors.contains(index);
        let (threshold, session) = (clients.params.topology().threshold(), &clients.session);
        let entry = clients.entry(index);
        let committed = self.shares[index as usize]
            .as_ref()
            .map(|message| message.commitment);
        // What comes out of the shares is what the client committed to, or it is not used.
        let recovered = search(shares, threshold, &|secret| {
            if survived {
                Some(commitment(secret, session, index)) == committed
            } else {
                AgreementKey::new(&Secret::new(*secret)).public() == entry.masking_key
            }
        });
        let Some(recovered) = recovered else {
            return Ok(None);
        };
        let keys = if survived {
            vec![(Sign::Minus, self_mask_key(&recovered.secret, session, index))]
        } else {
            let masking = AgreementKey::new(&recovered.secret);
            let alive = clients
                .neighbours(index)
                .iter()
                .filter(|other| self.survivors.contains(**other));
            let mut keys = Vec::with_capacity(clients.neighbours(index).len());
            for other in alive {
                let agreed = masking
                    .agree(&clients.entry(*other).masking_key)
                    .ok_or(SecAggError::key(*other, "masking"))?;
                // The other wore the mask with its own sign, so it comes off with the opposite.
                keys.push((
                    Sign::of_pair(*other, index).opposite(),
                    pairwise_mask_key(&agreed, session, *other, index),
                ));
            }
            keys
        };
        let culprit = |holder| Culprit {
            index: holder,
            about: index,
        };
        Ok(Some(Unmasking {
            keys,
            culprits: recovered.culprits.into_iter().map(culprit).collect(),
        }))
    }

    fn take_off(&mut self, recovered: &[Unmasking]) -> Result<Vec<Culprit>> {
        // PRIVACY: by reference, so that the keys are wiped where they lie.
        let keys: Vec<&(Sign, Secret)> = recovered.iter().flat_map(|unmasking| &unmasking.keys).collect();
        let culprits = recovered.iter().flat_map(|unmasking| &unmasking.culprits);
        let mut culprits: Vec<Culprit> = culprits.copied().collect();
        culprits.sort_unstable();
        // One vector per worker: masks are integers, so neither their number nor their order shows in the sum.
        let part = keys.len().div_ceil(rayon::current_num_threads()).max(1);
        let (modulus, len) = (self.modulus, self.sum.len());
        let masks = keys
            .par_chunks(part)
            .map(|keys| {
                let mut masks = ModularVec::zeros(modulus, len);
                for keys in keys.chunks(MASKS) {
                    mask::apply(&mut masks, keys.iter().map(|(sign, key)| (*sign, key)))?;
                }
                Ok(Some(masks))
            })
            .try_reduce(|| None, together)?;
        if let Some(masks) = masks {
            self.sum.add(&masks)?;
        }
        Ok(culprits)
    }
}

/// The sum of two workers' masks.
fn together(one: Option<ModularVec>, other: Option<ModularVec>) -> Result<Option<ModularVec>> {
    match (one, other) {
        (Some(mut one), Some(other)) => {
            one.add(&other)?;
            Ok(Some(one))
        }
        (one, other) => Ok(one.or(other)),
    }
}
