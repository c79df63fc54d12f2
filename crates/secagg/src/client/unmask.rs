//! The client after its vector has left: shares of others are all that it still holds.

use crate::context::{Digest32, SessionId, labelled};
use crate::error::{Result, SecAggError, at_least};
use crate::keys::{SigningIdentity, VerifyingKey};
use crate::members::Members;
use crate::message::{Consistency, GivenBytes, GivenShare, Message, Survivors, Unmask, UnmaskShares};
use crate::seal::HeldShares;
use crate::terms::{Params, ThreatModel};

/// The shares and the identity of a neighbour that a client keeps after its vector has left.
pub(super) struct Held {
    pub(super) index: u32,
    pub(super) identity: Digest32,
    /// `true` if the vector was masked with this neighbour.
    pub(super) present: bool,
    /// The shares of this neighbour. `None` if it sent none, or if its message did not open.
    pub(super) shares: Option<HeldShares>,
}

/// A client whose masked vector has left.
pub(super) struct Uploaded {
    pub(super) identity: SigningIdentity,
    pub(super) params: Params,
    pub(super) session: SessionId,
    pub(super) index: u32,
    pub(super) peers: Vec<Held>,
    /// The minimum number of survivors among this client and the neighbours that it checked.
    pub(super) min_survivors: u32,
    /// The set that this client signed.
    pub(super) signed: Option<Members>,
}

/// The digest that survivors sign.
pub(crate) fn signed_survivors(session: &SessionId, survivors: &Members) -> Digest32 {
    labelled(
        "survivors",
        &[
            session.as_bytes(),
            &survivors.clients().to_le_bytes(),
            survivors.bits(),
        ],
    )
}

impl Uploaded {
    pub(super) fn is_active(&self) -> bool {
        self.params.terms().threat_model() == ThreatModel::Active
    }

    pub(super) fn sign(&mut self, message: &Survivors) -> Result<Consistency> {
        message.session.check(&self.session, Survivors::NAME)?;
        self.check(&message.survivors)?;
        let signature = self
            .identity
            .sign(&signed_survivors(&self.session, &message.survivors));
        self.signed = Some(message.survivors.clone());
        Ok(Consistency {
            session: self.session,
            index: self.index,
            signature,
        })
    }

    /// Answers a request to unmask, by value: whatever the answer, the shares are gone afterwards. They are wiped where they
    /// lie, and the given ones are copied, because a share that moved would leave its bytes behind.
    pub(super) fn answer(self, request: &Unmask) -> Result<UnmaskShares> {
        request.session.check(&self.session, Unmask::NAME)?;
        self.check(&request.survivors)?;
        if self.is_active() {
            self.check_signatures(request)?;
        }
        let (session, index) = (self.session, self.index);
        let mut shares = Vec::with_capacity(self.peers.len());
        for held in &self.peers {
            let Some(HeldShares { seed, masking_key }) = &held.shares else {
                continue;
            };
            // PRIVACY: exactly one of the two, by one bit of one set.
            let given = if request.survivors.contains(held.index) {
                GivenShare::Seed(GivenBytes(seed.clone()))
            } else {
                GivenShare::MaskingKey(GivenBytes(masking_key.clone()))
            };
            shares.push((held.index, given));
        }
        Ok(UnmaskShares {
            session,
            index,
            shares,
        })
    }

    /// The set is one of this session's clients, holds this client, nobody that it was not masked with, and enough.
    fn check(&self, survivors: &Members) -> Result<()> {
        let (index, topology) = (self.index, self.params.topology());
        if survivors.clients() != topology.clients() {
            return Err(SecAggError::Length {
                message: "the set of survivors",
                expected: topology.clients().into(),
                got: survivors.clients().into(),
            });
        }
        // PRIVACY: a client that is said to be lost is being asked about by somebody who has its vector.
        let contradiction = |about| Err(SecAggError::Survivors { index, about });
        if !survivors.contains(index) {
            return contradiction(index);
        }
        let mut alive = 0;
        for held in &self.peers {
            match (survivors.contains(held.index), held.present) {
                (true, true) => alive += 1,
                (true, false) => return contradiction(held.index),
                (false, _) => {}
            }
        }
        // PRIVACY: a sum over few is not much of a secret, and one over few neighbours is masked by few. Those whom this
        // client never saw are the server's word, so its own floor counts itself and its neighbours alone.
        let terms = self.params.terms();
        for (what, needed, got) in [
            ("survivors among the neighbours", topology.threshold(), alive),
            (
                "survivors whom this client checked",
                self.min_survivors,
                alive + 1,
            ),
            ("survivors", terms.min_survivors(), survivors.count()),
        ] {
            at_least(what, needed, got)?;
        }
        Ok(())
    }

    /// The set is the one that this client signed, and the threshold of surviving neighbours signed it too.
    fn check_signatures(&self, request: &Unmask) -> Result<()> {
        if self.signed.as_ref() != Some(&request.survivors) {
            return Err(SecAggError::Survivors {
                index: self.index,
                about: self.index,
            });
        }
        let signed = signed_survivors(&self.session, &request.survivors);
        let mut peers = self.peers.iter();
        for (index, signature) in &request.signatures {
            // Signatures ascend as neighbours do: each is looked for behind the last one, so nobody counts twice.
            let peer = peers.find(|held| held.index == *index && request.survivors.contains(*index));
            let Some(peer) = peer else {
                return Err(SecAggError::stranger("signature of survivors", *index));
            };
            if !VerifyingKey::new(&peer.identity).is_some_and(|key| key.verifies(&signed, signature)) {
                return Err(SecAggError::signature(*index, "the set of survivors"));
            }
        }
        let (got, needed) = (
            request.signatures.len() as u32,
            self.params.topology().threshold(),
        );
        at_least("neighbours who signed the set of survivors", needed, got)?;
        Ok(())
    }
}
