//! The client's machine: messages in, messages out, every secret gone as soon as it has served.
//!
//! | the client is | it takes | it gives | and erases |
//! |---|---|---|---|
//! | awaiting the roster | [`Roster`] | [`ShareKeys`] | |
//! | awaiting shares | [`RelayedShares`] and its vector | [`MaskedInput`] | its own seed, keys and masks |
//! | awaiting survivors (active) | [`Survivors`] | [`Consistency`] | |
//! | awaiting the request to unmask | [`Unmask`] | [`UnmaskShares`] | all shares that it held |
//!
//! A message out of turn is refused and changes nothing. A message in turn that fails any check aborts the session: all
//! secrets are wiped, and to the others the client has dropped out. No message is answered twice, so the transport keeps the
//! bytes of an answer until they have arrived. A client that lost them has dropped out too.

mod ready;
mod unmask;

use rand_core::CryptoRng;
use undertone_aggregation::ModularVec;

use crate::context::{Context, Digest32};
use crate::error::{Result, SecAggError};
use crate::floors::Floors;
use crate::keys::{AgreementKey, SigningIdentity, fresh, signed_keys};
use crate::message::{
    AdvertiseKeys, Consistency, MaskedInput, Message, RelayedShares, Roster, ShareKeys, Survivors, Unmask,
    UnmaskShares,
};
use crate::phase::ClientPhase;
use crate::roster::Entry;

use ready::{Demands, Joined, Sharing};
use unmask::Uploaded;
pub(crate) use unmask::signed_survivors;

// PRIVACY: in boxes, because a value that moves takes along what lay on the stack where it has no bytes of its own.
enum State {
    Roster(Box<Joined>),
    Shares(Box<Sharing>),
    Survivors(Box<Uploaded>),
    Unmask(Box<Uploaded>),
    Done,
    Aborted,
}

impl State {
    fn phase(&self) -> ClientPhase {
        match self {
            Self::Roster(_) => ClientPhase::Roster,
            Self::Shares(_) => ClientPhase::Shares,
            Self::Survivors(_) => ClientPhase::Survivors,
            Self::Unmask(_) => ClientPhase::Unmask,
            Self::Done => ClientPhase::Done,
            Self::Aborted => ClientPhase::Aborted,
        }
    }
}

/// One client in one session.
///
/// # Guarantee
/// For a client that [`join`](Self::join)ed, if at most the assumed fraction of its neighbours is corrupt:
///
/// - No client's two secrets come together: fewer than `t` shares of one of the two are ever given.
/// - Before it gives any share, at least [`Floors::min_survivors`] clients are in the sum that it agrees to, itself and the
///   surviving neighbours whose keys it checked. The server's word about other clients does not count.
/// - On the full graph, which [`Floors::COMPILED`] demands, what the server sees of the client's vector is a function of
///   the modular sum over all those survivors. On a sparse graph the server places the clients and may tell far parts of the
///   graph different sets; that it learns no sum over a part of the survivors is then not claimed.
///
/// A client of a simulation ([`join_simulation`](Self::join_simulation)) gives the same answers and demands nothing: its
/// guarantee is the one of [`ThreatModel`](crate::ThreatModel), and needs an honest-but-curious server.
///
/// Every client gives one kind of share about each neighbour, and answers one request to unmask.
///
/// It cannot be printed or copied:
///
/// ```compile_fail,E0277
/// fn printable<T: std::fmt::Debug>() {}
/// printable::<undertone_secagg::Client>();
/// ```
///
/// ```compile_fail,E0277
/// fn copyable<T: Clone>() {}
/// copyable::<undertone_secagg::Client>();
/// ```
///
/// # Source
/// \[SecAgg+\] Algorithm 2; \[SecAgg\] Figure 4.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds secret keys and shares"
)]
pub struct Client {
    state: State,
}

impl Client {
    /// Joins the session of `context` on a device: makes fresh keys and the message that advertises them.
    ///
    /// No value of [`Floors`] accepts a weaker session than their guarantee says. Where the others trust an issuer, `identity`
    /// needs its certificate ([`SigningIdentity::with_certificate`]).
    #[must_use]
    pub fn join<R: CryptoRng + ?Sized>(
        identity: SigningIdentity,
        context: Context,
        floors: Floors,
        rng: &mut R,
    ) -> (Self, AdvertiseKeys) {
        Self::join_under(identity, context, Demands::Floors(floors), rng)
    }

    /// Joins the session of `context` in a simulation, where server and clients are one process.
    ///
    /// PRIVACY: such a client accepts every valid session and any identities. A device must [`join`](Self::join).
    #[must_use]
    pub fn join_simulation<R: CryptoRng + ?Sized>(
        identity: SigningIdentity,
        context: Context,
        rng: &mut R,
    ) -> (Self, AdvertiseKeys) {
        Self::join_under(identity, context, Demands::Simulation, rng)
    }

    fn join_under<R: CryptoRng + ?Sized>(
        identity: SigningIdentity,
        context: Context,
        demands: Demands,
        rng: &mut R,
    ) -> (Self, AdvertiseKeys) {
        let (sealing, masking) = (AgreementKey::new(&fresh(rng)), AgreementKey::new(&fresh(rng)));
        let digest = context.digest();
        let (sealing_key, masking_key) = (sealing.public(), masking.public());
        let public = identity.public();
        let signature = identity.sign(&signed_keys(&digest, &public, &sealing_key, &masking_key));
        let entry = Entry {
            identity: public,
            sealing_key,
            masking_key,
            signature,
            certificate: identity.certificate().cloned(),
        };
        let message = AdvertiseKeys {
            context: digest,
            entry: entry.clone(),
        };
        let joined = Joined {
            identity,
            context,
            demands,
            sealing,
            masking,
            entry,
        };
        (
            Self {
                state: State::Roster(Box::new(joined)),
            },
            message,
        )
    }

    /// The message that the client is waiting for.
    #[must_use]
    pub fn phase(&self) -> ClientPhase {
        self.state.phase()
    }

    /// The public identity of the client. It is `None` after the session has ended.
    #[must_use]
    pub fn identity(&self) -> Option<Digest32> {
        match &self.state {
            State::Roster(joined) => Some(joined.entry.identity),
            State::Shares(sharing) => Some(sharing.identity.public()),
            State::Survivors(uploaded) | State::Unmask(uploaded) => Some(uploaded.identity.public()),
            State::Done | State::Aborted => None,
        }
    }

    /// Checks the roster and shares the two secrets among the neighbours.
    ///
    /// # Errors
    /// A roster that is not of this context, does not hold this client, lists other neighbours than the graph's, a key twice,
    /// a key that is not signed or not canonical, an identity that is not trusted, or has weaker parameters than the
    /// [`Floors`]; and out of turn.
    pub fn receive_roster<R: CryptoRng + ?Sized>(
        &mut self,
        roster: &Roster,
        rng: &mut R,
    ) -> Result<ShareKeys> {
        let joined = match self.take() {
            State::Roster(joined) => joined,
            other => return self.out_of_turn(other, Roster::NAME),
        };
        let (sharing, message) = joined.receive_roster(roster, rng)?;
        self.state = State::Shares(Box::new(sharing));
        Ok(message)
    }

    /// Opens the neighbours' shares and masks `vector` in place.
    ///
    /// What is left in `vector` are the masked residues.
    ///
    /// # Errors
    /// A vector of another length or modulus than agreed, shares from others than neighbours, fewer neighbours than the
    /// threshold whose shares open; and out of turn, when `vector` is untouched.
    pub fn receive_shares(&mut self, shares: &RelayedShares, vector: &mut ModularVec) -> Result<MaskedInput> {
        let sharing = match self.take() {
            State::Shares(sharing) => sharing,
            other => return self.out_of_turn(other, RelayedShares::NAME),
        };
        let (uploaded, message) = sharing.receive_shares(shares, vector)?;
        let uploaded = Box::new(uploaded);
        self.state = if uploaded.is_active() {
            State::Survivors(uploaded)
        } else {
            State::Unmask(uploaded)
        };
        Ok(message)
    }

    /// Checks and signs the set of survivors, once.
    ///
    /// # Errors
    /// A set that leaves this client out, names someone who never shared, or is too small; and out of turn, which it always
    /// is in an honest-but-curious session.
    pub fn receive_survivors(&mut self, survivors: &Survivors) -> Result<Consistency> {
        let mut uploaded = match self.take() {
            State::Survivors(uploaded) => uploaded,
            other => return self.out_of_turn(other, Survivors::NAME),
        };
        let message = uploaded.sign(survivors)?;
        self.state = State::Unmask(uploaded);
        Ok(message)
    }

    /// Gives one share about each neighbour, once: of the own mask of one who survived, of the masking key of one who did
    /// not.
    ///
    /// # Errors
    /// A set of survivors that contradicts what the client knows, signed or said before, or is too small; in an active
    /// session fewer than the threshold of neighbours' signatures; and out of turn.
    pub fn receive_unmask(&mut self, request: &Unmask) -> Result<UnmaskShares> {
        let uploaded = match self.take() {
            State::Unmask(uploaded) => uploaded,
            other => return self.out_of_turn(other, Unmask::NAME),
        };
        let message = uploaded.answer(request)?;
        self.state = State::Done;
        Ok(message)
    }

    /// The state, with the client aborted until another one is put in its place: an error on the way leaves nothing behind.
    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Aborted)
    }

    fn out_of_turn<T>(&mut self, state: State, message: &'static str) -> Result<T> {
        let phase = state.phase();
        self.state = state;
        Err(SecAggError::ClientPhase { message, phase })
    }
}
