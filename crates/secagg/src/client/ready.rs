//! The client until its vector is masked.

use rand_core::CryptoRng;
use undertone_aggregation::{ModularVec, pack};

use crate::context::{Context, SessionId};
use crate::error::{Result, SecAggError, at_least};
use crate::floors::Floors;
use crate::graph;
use crate::keys::{
    AgreementKey, Secret, SigningIdentity, commitment, fresh, pairwise_mask_key, self_mask_key,
};
use crate::mask::{self, Sign};
use crate::message::{MaskedInput, Message, Neighbour, RelayedShares, Roster, SealedShares, ShareKeys};
use crate::roster::{Entry, check_distinct, is_under};
use crate::seal::{open, seal, sealing_key};
use crate::shamir::split;
use crate::terms::Params;

use super::unmask::{Held, Uploaded};

/// The demands of a client on a session.
pub(super) enum Demands {
    /// Floors of a client on a device.
    Floors(Floors),
    /// Nothing: server and clients are one process.
    Simulation,
}

impl Demands {
    fn admit(&self, params: &Params) -> Result<()> {
        match self {
            Self::Floors(floors) => floors.admit(params),
            Self::Simulation => Ok(()),
        }
    }

    fn check_identity(&self, index: u32, entry: &Entry) -> Result<()> {
        match self {
            Self::Floors(floors) => floors.trust().check(index, entry),
            Self::Simulation => Ok(()),
        }
    }

    /// The minimum number of survivors that the client vouches for, itself included.
    fn min_survivors(&self) -> u32 {
        match self {
            Self::Floors(floors) => floors.min_survivors(),
            Self::Simulation => 1,
        }
    }
}

/// A client that has advertised its keys.
pub(super) struct Joined {
    pub(super) identity: SigningIdentity,
    pub(super) context: Context,
    pub(super) demands: Demands,
    pub(super) sealing: AgreementKey,
    pub(super) masking: AgreementKey,
    pub(super) entry: Entry,
}

/// The keys of a neighbour that a client needs until its vector is masked.
struct Peer {
    entry: Entry,
    index: u32,
    /// Opens what the neighbour seals for this client.
    opening_key: Secret,
}

/// A client that has shared its secrets.
pub(super) struct Sharing {
    pub(super) identity: SigningIdentity,
    params: Params,
    session: SessionId,
    index: u32,
    masking: AgreementKey,
    /// Seed of the client's own mask, in a box because a value that moves leaves its bytes behind.
    seed: Box<Secret>,
    peers: Vec<Peer>,
    min_survivors: u32,
}

impl Joined {
    pub(super) fn receive_roster<R: CryptoRng + ?Sized>(
        self,
        roster: &Roster,
        rng: &mut R,
    ) -> Result<(Sharing, ShareKeys)> {
        let params = roster.params;
        let session = self.check(roster)?;
        let (index, threshold) = (roster.index, params.topology().threshold());
        let holders: Vec<u32> = roster
            .neighbours
            .iter()
            .map(|neighbour| neighbour.index)
            .collect();
        let seed = Box::new(fresh(rng));
        let seed_shares = split(&seed, threshold, &holders, rng);
        let key_shares = split(&self.masking.secret(), threshold, &holders, rng);
        let mut peers = Vec::with_capacity(holders.len());
        let mut sealed = Vec::with_capacity(holders.len());
        // PRIVACY: by reference, so that the shares are wiped where they lie.
        let shares = seed_shares.iter().zip(&key_shares);
        for (neighbour, (seed, masking_key)) in roster.neighbours.iter().zip(shares) {
            let Neighbour { index: to, entry, .. } = neighbour;
            let agreed = self
                .sealing
                .agree(&entry.sealing_key)
                .ok_or(SecAggError::key(*to, "sealing"))?;
            let key = sealing_key(&agreed, &session, index, *to);
            sealed.push(SealedShares {
                index: *to,
                sealed: seal(&key, &session, index, *to, seed, masking_key),
            });
            let opening_key = sealing_key(&agreed, &session, *to, index);
            peers.push(Peer {
                entry: entry.clone(),
                index: *to,
                opening_key,
            });
        }
        let message = ShareKeys {
            session,
            index,
            commitment: commitment(&seed, &session, index),
            shares: sealed,
        };
        let sharing = Sharing {
            identity: self.identity,
            params,
            session,
            index,
            masking: self.masking,
            seed,
            peers,
            min_survivors: self.demands.min_survivors(),
        };
        Ok((sharing, message))
    }

    /// Everything a roster must be before a secret is shared under it.
    fn check(&self, roster: &Roster) -> Result<SessionId> {
        let (params, root, clients) = (&roster.params, &roster.root, roster.params.topology().clients());
        if *params.terms() != self.context.terms {
            return Err(SecAggError::Session {
                message: Roster::NAME,
            });
        }
        // PRIVACY: the floors are this client's own, whatever the server proposes.
        self.demands.admit(params)?;
        if !is_under(root, clients, roster.index, &self.entry, &roster.path) {
            return Err(SecAggError::NotMe { index: roster.index });
        }
        // PRIVACY: with fewer or other neighbours than the graph's, the masks would hide the vector from fewer clients.
        let expected = graph::neighbours(params.topology(), roster.index);
        let listed = roster.neighbours.iter().map(|neighbour| neighbour.index);
        graph::check_neighbours(Roster::NAME, &expected, listed, clients)?;
        let context = self.context.digest();
        let mut seen: Vec<(u32, &Entry)> = roster
            .neighbours
            .iter()
            .map(|neighbour| (neighbour.index, &neighbour.entry))
            .collect();
        seen.push((roster.index, &self.entry));
        // PRIVACY: a client that met itself or one key twice would be masked towards one party where it counts two. Keys are
        // compared as bytes, so each point must have one encoding.
        for (index, entry) in &seen {
            entry.check_encodings(*index)?;
        }
        check_distinct(&seen)?;
        for Neighbour { index, entry, path } in &roster.neighbours {
            self.demands.check_identity(*index, entry)?;
            if !is_under(root, clients, *index, entry, path) {
                return Err(SecAggError::NotInRoster { index: *index });
            }
            entry.check_signature(*index, &context)?;
        }
        Ok(self.context.session(params.topology(), root))
    }
}

impl Sharing {
    pub(super) fn receive_shares(
        self,
        relayed: &RelayedShares,
        vector: &mut ModularVec,
    ) -> Result<(Uploaded, MaskedInput)> {
        relayed.session.check(&self.session, RelayedShares::NAME)?;
        if relayed.index != self.index {
            return Err(SecAggError::stranger(RelayedShares::NAME, relayed.index));
        }
        let terms = self.params.terms();
        if vector.len() as u64 != terms.length() || vector.modulus().get() != terms.modulus() {
            return Err(SecAggError::Vector {
                length: terms.length(),
                modulus: terms.modulus(),
                got_length: vector.len() as u64,
                got_modulus: vector.modulus().get(),
            });
        }
        let (peers, present) = self.open(relayed)?;
        // PRIVACY: room for all keys at once; a list that grew would leave copies of them behind.
        let mut keys = Vec::with_capacity(1 + present.len());
        keys.push((Sign::Plus, self_mask_key(&self.seed, &self.session, self.index)));
        for peer in &present {
            let agreed = self
                .masking
                .agree(&peer.entry.masking_key)
                .ok_or(SecAggError::key(peer.index, "masking"))?;
            let key = pairwise_mask_key(&agreed, &self.session, self.index, peer.index);
            keys.push((Sign::of_pair(self.index, peer.index), key));
        }
        // PRIVACY: the only place where a vector leaves the client. Its state has already been taken, so no second vector
        // is ever put under the same masks.
        mask::apply(vector, keys.iter().map(|(sign, key)| (*sign, key)))?;
        let message = MaskedInput {
            session: self.session,
            index: self.index,
            packed: pack::pack(vector)?,
        };
        let uploaded = Uploaded {
            identity: self.identity,
            params: self.params,
            session: self.session,
            index: self.index,
            peers,
            min_survivors: self.min_survivors,
            signed: None,
        };
        Ok((uploaded, message))
    }

    /// The neighbours with the shares that this client holds of those who are still there, and those themselves.
    ///
    /// A neighbour whose shares do not open is still masked with: it is there. This client just has nothing to say about
    /// it later, which the server can bear as it bears a lost client; refusing the session would let one neighbour shut
    /// out all of its own.
    fn open(&self, relayed: &RelayedShares) -> Result<(Vec<Held>, Vec<&Peer>)> {
        let mut waiting = relayed.shares.iter().peekable();
        let (mut held, mut present) = (Vec::with_capacity(self.peers.len()), Vec::new());
        for peer in &self.peers {
            let here = waiting.next_if(|shares| shares.index == peer.index);
            let shares = here.and_then(|shares| {
                open(
                    &peer.opening_key,
                    &self.session,
                    peer.index,
                    self.index,
                    &shares.sealed,
                )
                .ok()
            });
            present.extend(here.map(|_| peer));
            held.push(Held {
                index: peer.index,
                identity: peer.entry.identity,
                present: here.is_some(),
                shares,
            });
        }
        if let Some(stranger) = waiting.next() {
            return Err(SecAggError::stranger(RelayedShares::NAME, stranger.index));
        }
        let got = held.iter().filter(|held| held.shares.is_some()).count() as u32;
        let needed = self.params.topology().threshold();
        // PRIVACY: below the threshold nobody could take this client's masks off, or too few would have to lie to do so.
        at_least("neighbours whose shares open", needed, got)?;
        Ok((held, present))
    }
}
