//! The server's machine: it relays what it cannot read, adds what it cannot understand, and learns one sum.
//!
//! | phase | it takes | then gives each client |
//! |---|---|---|
//! | keys | [`AdvertiseKeys`] | after [`close_keys`](Server::close_keys) its [`Roster`] |
//! | shares | [`ShareKeys`] | after [`close_shares`](Server::close_shares) its [`RelayedShares`] |
//! | inputs | [`MaskedInput`](crate::message::MaskedInput) | after [`close_inputs`](Server::close_inputs) the [`Survivors`], where they must sign |
//! | signatures (active) | [`Consistency`] | |
//! | unmask | [`UnmaskShares`] | the [`Unmask`] request, from the start of the phase |
//!
//! When a phase closes is the caller's business; it closes once. A client's first message of a kind commits it: the same
//! bytes again are a retry and welcome, other bytes are refused and change nothing. Below the floor of survivors the
//! session aborts and its accumulator is cleared.

mod guard;
mod input;
mod outcome;
mod roster;
mod unmask;

use std::sync::Arc;

use rand_core::CryptoRng;
use undertone_aggregation::{ModularSum, ModularVec, Modulus, pack};

use crate::client::signed_survivors;
use crate::context::{Context, Digest32, SessionId};
use crate::error::{Result, SecAggError, ensure};
use crate::graph::check_neighbours;
use crate::keys::{Trust, VerifyingKey};
use crate::members::Members;
use crate::message::{
    AdvertiseKeys, Consistency, Message, RelayedShares, Roster, SealedShares, ShareKeys, Survivors, Unmask,
    UnmaskShares,
};
use crate::phase::ServerPhase;
use crate::terms::{Params, Topology};

use guard::commit;
use input::Place;
pub use input::{AddedInput, Ticket, UploadId};
pub use outcome::{Culprit, Outcome};
use roster::{JoinedClients, Joining};

/// One session on the server.
///
/// # Guarantee
/// It gives out one sum at most, over the clients whose vectors had arrived when [`close_inputs`](Self::close_inputs)
/// was called, of whom there are at least [`Terms::min_survivors`](crate::Terms::min_survivors). It verifies what it
/// recovers, so the sum is exact or there is none, as long as survivors masked what they said.
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds the sum")]
pub struct Server {
    context: Context,
    digest: Digest32,
    trust: Trust,
    modulus: Modulus,
    phase: ServerPhase,
    joining: Joining,
    clients: Option<JoinedClients>,
    /// Messages of shares, by client.
    shares: Vec<Option<ShareKeys>>,
    /// States of the masked vectors, by client.
    inputs: Vec<Place>,
    /// The sum of the masked vectors until round 2 is closed.
    incoming: Arc<ModularSum>,
    /// The sum of the masked vectors afterwards.
    sum: ModularVec,
    survivors: Members,
    signatures: Vec<Option<[u8; 64]>>,
    answers: Vec<Option<UnmaskShares>>,
}

impl Server {
    /// A session of `context`, open for the keys of the identities that `trust` accepts.
    ///
    /// Clients refuse a roster with a single identity that they do not know. The server must therefore accept no identity
    /// that one of its clients would refuse: any other identity that joins ends the session for everybody.
    ///
    /// # Errors
    /// A vector too long for this machine's memory addresses.
    pub fn new(context: Context, trust: Trust) -> Result<Self> {
        let terms = &context.terms;
        let modulus = Modulus::new(terms.modulus())?;
        let len = usize::try_from(terms.length()).map_err(|_| SecAggError::Setting {
            name: "the vector's length",
            expected: "an address on this machine",
            got: terms.length(),
        })?;
        pack::packed_len(modulus, len)?;
        Ok(Self {
            digest: context.digest(),
            context,
            trust,
            modulus,
            phase: ServerPhase::Keys,
            joining: Joining::default(),
            clients: None,
            shares: Vec::new(),
            inputs: Vec::new(),
            incoming: Arc::new(ModularSum::zeros(modulus, len)),
            sum: ModularVec::zeros(modulus, 0),
            survivors: Members::none(0),
            signatures: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// The messages that the server is collecting.
    #[must_use]
    pub fn phase(&self) -> ServerPhase {
        self.phase
    }

    /// Clients that have joined.
    #[must_use]
    pub fn joined(&self) -> u32 {
        self.joining.count()
    }

    /// The parameters, once the roster is closed.
    #[must_use]
    pub fn params(&self) -> Option<&Params> {
        self.clients.as_ref().map(|clients| &clients.params)
    }

    /// The session's name, once the roster is closed.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.clients.as_ref().map(|clients| clients.session)
    }

    /// The place in the roster of the client with this identity.
    #[must_use]
    pub fn index_of(&self, identity: &Digest32) -> Option<u32> {
        self.clients
            .as_ref()
            .and_then(|clients| clients.index_of(identity))
    }

    /// Round 0: a client joins.
    ///
    /// # Errors
    /// Keys for another context, an identity that is not trusted or lacks the issuer's certificate, unacceptable or unsigned keys, a key of somebody else,
    /// other keys than the identity's first, one client more than the session admits; and out of turn.
    pub fn receive_keys(&mut self, keys: &AdvertiseKeys) -> Result<()> {
        self.expect_phase(ServerPhase::Keys, AdvertiseKeys::NAME)?;
        keys.context
            .eq(&self.digest)
            .then_some(())
            .ok_or(SecAggError::Session {
                message: AdvertiseKeys::NAME,
            })?;
        // First the look-up: a repeat costs no signature.
        if self.joining.is_new(keys, self.context.terms.max_clients())? {
            self.trust.check(self.joined(), &keys.entry)?;
            keys.entry.check_keys(self.joined())?;
            keys.entry.check_signature(self.joined(), &self.digest)?;
            self.joining.push(keys.entry.clone());
        }
        Ok(())
    }

    /// Closes round 0: puts the clients on their places in random order. `topology` chooses the graph for as many clients as
    /// there are.
    ///
    /// # Errors
    /// What `topology` refuses; fewer clients than the floor of survivors, which aborts; and out of turn.
    pub fn close_keys<R: CryptoRng + ?Sized>(
        &mut self,
        topology: impl FnOnce(u32) -> Result<Topology>,
        rng: &mut R,
    ) -> Result<()> {
        self.expect_phase(ServerPhase::Keys, "closing of keys")?;
        let joined = self.joined();
        self.at_least("clients that joined", joined, self.context.terms.min_survivors())?;
        let params = Params::new(self.context.terms, topology(joined)?)?;
        let (name, clients) = ("the graph's number of clients", params.topology().clients());
        ensure(clients == joined, name, "the number that joined", clients)?;
        let entries = std::mem::take(&mut self.joining).into_entries();
        self.clients = Some(JoinedClients::new(&self.context, params, entries, rng));
        self.shares = vec![None; joined as usize];
        self.inputs = vec![Place::Empty; joined as usize];
        self.signatures = vec![None; joined as usize];
        self.answers = vec![None; joined as usize];
        self.phase = ServerPhase::Shares;
        Ok(())
    }

    /// Round 1: the part of the roster that client `index` needs.
    ///
    /// # Errors
    /// An index outside the roster; before the roster is closed.
    pub fn roster(&self, index: u32) -> Result<Roster> {
        let clients = self.clients(Roster::NAME)?;
        clients.check_index(Roster::NAME, index)?;
        Ok(clients.roster(index))
    }

    /// Round 1: a client's sealed shares.
    ///
    /// # Errors
    /// Another session, shares for others than its neighbours, a second and different message; and out of turn.
    pub fn receive_shares(&mut self, shares: &ShareKeys) -> Result<()> {
        self.expect_phase(ServerPhase::Shares, ShareKeys::NAME)?;
        let clients = self.member(ShareKeys::NAME, &shares.session, shares.index)?;
        let expected = clients.neighbours(shares.index);
        let listed = shares.shares.iter().map(|sealed| sealed.index);
        check_neighbours(ShareKeys::NAME, expected, listed, self.shares.len() as u32)?;
        commit(&mut self.shares, shares.index, ShareKeys::NAME, shares)
    }

    /// Closes round 1.
    ///
    /// # Errors
    /// [`SecAggError::TooFew`] where fewer than the floor of survivors have shared, which aborts; and out of turn.
    pub fn close_shares(&mut self) -> Result<()> {
        self.expect_phase(ServerPhase::Shares, "closing of shares")?;
        let sharing = self.shares.iter().flatten().count() as u32;
        self.at_least("clients that shared", sharing, self.context.terms.min_survivors())?;
        self.phase = ServerPhase::Inputs;
        Ok(())
    }

    /// Round 2: the shares that the neighbours of client `index` sealed for it.
    ///
    /// # Errors
    /// A client that has not shared; before the round.
    pub fn relayed_shares(&self, index: u32) -> Result<RelayedShares> {
        if self.phase < ServerPhase::Inputs || self.phase == ServerPhase::Aborted {
            return self.out_of_turn(RelayedShares::NAME);
        }
        let clients = self.sharer(RelayedShares::NAME, index)?;
        let from = |sender: &u32| {
            let shares = &self.shares[*sender as usize].as_ref()?.shares;
            // They are exactly the sender's neighbours, ascending.
            let place = shares.binary_search_by_key(&index, |sealed| sealed.index).ok()?;
            Some(SealedShares {
                index: *sender,
                sealed: shares[place].sealed,
            })
        };
        let shares = clients.neighbours(index).iter().filter_map(from).collect();
        Ok(RelayedShares {
            session: clients.session,
            index,
            shares,
        })
    }

    /// Round 2.5: the clients whose vectors are in the sum.
    ///
    /// # Errors
    /// Before the set is fixed.
    pub fn survivors(&self) -> Result<Survivors> {
        if !matches!(
            self.phase,
            ServerPhase::Signatures | ServerPhase::Unmask | ServerPhase::Done
        ) {
            return self.out_of_turn(Survivors::NAME);
        }
        let session = self.clients(Survivors::NAME)?.session;
        Ok(Survivors {
            session,
            survivors: self.survivors.clone(),
        })
    }

    /// Round 2.5: a survivor's signature of the set.
    ///
    /// # Errors
    /// Another session, somebody who did not survive, a signature that does not verify; and out of turn.
    pub fn receive_consistency(&mut self, consistency: &Consistency) -> Result<()> {
        self.expect_phase(ServerPhase::Signatures, Consistency::NAME)?;
        let Consistency {
            session,
            index,
            signature,
        } = consistency;
        let clients = self.survivor(Consistency::NAME, session, *index)?;
        let signed = signed_survivors(session, &self.survivors);
        let identity = VerifyingKey::new(&clients.entry(*index).identity);
        if !identity.is_some_and(|key| key.verifies(&signed, signature)) {
            return Err(SecAggError::signature(*index, "the set of survivors"));
        }
        commit(&mut self.signatures, *index, Consistency::NAME, signature)
    }

    /// Closes round 2.5.
    ///
    /// A survivor answers the request to unmask only if it signed and is shown the threshold of its neighbours' signatures.
    ///
    /// # Errors
    /// [`SecAggError::TooFew`] where some client's masks need more neighbours than will answer, which aborts; and out of turn.
    pub fn close_signatures(&mut self) -> Result<()> {
        self.expect_phase(ServerPhase::Signatures, "closing of signatures")?;
        let clients = self.clients("closing of signatures")?;
        let needed = clients.params.topology().threshold();
        let signed = |index: &&u32| self.signatures[**index as usize].is_some();
        let answers = Members::of(self.signatures.len() as u32, |index| {
            signed(&&index) && clients.neighbours(index).iter().filter(signed).count() as u32 >= needed
        });
        let fewest = self.fewest_among(&answers);
        self.at_least("neighbours of some client who will answer", fewest, needed)?;
        self.phase = ServerPhase::Unmask;
        Ok(())
    }

    /// Round 3: the request to survivor `index`.
    ///
    /// # Errors
    /// Somebody who did not survive; out of turn.
    pub fn unmask(&self, index: u32) -> Result<Unmask> {
        self.expect_phase(ServerPhase::Unmask, Unmask::NAME)?;
        let session = self.clients(Unmask::NAME)?.session;
        let clients = self.survivor(Unmask::NAME, &session, index)?;
        let signature = |other: &u32| Some((*other, self.signatures[*other as usize]?));
        let signatures = clients.neighbours(index).iter().filter_map(signature).collect();
        Ok(Unmask {
            session,
            survivors: self.survivors.clone(),
            signatures,
        })
    }
}
