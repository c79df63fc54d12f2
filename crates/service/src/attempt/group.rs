//! One group of a secure sum, from its lobby to its sum.
//!
//! | phase | devices | ends |
//! |---|---|---|
//! | lobby | join with their keys | closed by the attempt |
//! | keys | must be seen once more: the roll-call keeps devices that vanished in the lobby out of the roster | all were seen, or closed |
//! | shares | read the roster, send sealed shares | all have sent, or closed |
//! | inputs | read their neighbours' shares, send masked vectors | all have sent, or closed |
//! | signatures | read the set of survivors, sign it (where the server may lie) | all have signed, or closed |
//! | unmask | read the request to unmask, send shares | all have answered, or closed |
//! | summed, failed | wait for the verdict of the attempt | never |
//!
//! The group has no clock: its attempt says when a phase closes. A message comes as bytes with the session that sent it, and a
//! device reads its next message from its mailbox, as often as it likes. Equal bytes are welcome again at any time.

mod close;
mod input;
mod phase;
mod sum;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;

use undertone_aggregation::{Modulus, pack};
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, digest_of};
use undertone_secagg::message::{AdvertiseKeys, Consistency, MaskedInput, Message, ShareKeys, UnmaskShares};
use undertone_secagg::{Context, GraphChoice, SecAggError, Server, Trust};
use undertone_store::SessionId;

use super::refusal::Refusal;
use super::session::{Accepted, LostAt};
pub(crate) use input::{AddedVector, Input};
pub(crate) use phase::Phase;
pub(crate) use sum::{Blame, GroupSum};

/// The next step of a device, from its mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is nothing to do yet.
    Wait,
    /// A message of the secure sum.
    Message(Vec<u8>),
    /// The group has its sum. The verdict is that of the attempt.
    Done,
}

/// A change of phase. Every waiting device asks again after it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// The group has entered a phase.
    Entered {
        /// The phase.
        phase: Phase,
        /// The sessions that were lost with the phase before.
        lost: Vec<(SessionId, LostAt)>,
    },
    /// The group has its sum.
    Summed {
        /// Number of devices in it.
        included: u32,
    },
    /// The group has failed. Its vectors are gone.
    Failed {
        /// The phase in which it failed.
        at: Phase,
        /// The reason.
        why: SecAggError,
        /// All sessions that were not lost before.
        lost: Vec<(SessionId, LostAt)>,
        /// The sessions whose false shares kept the sum closed.
        exclude: Vec<SessionId>,
    },
}

/// The set of devices whose vectors count, by size and digest. It is fixed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FixedSet {
    /// Number of devices.
    pub size: u32,
    /// The digest of the message that names them.
    pub digest: Digest32,
}

struct Member {
    user: ParticipantId,
    keys: AdvertiseKeys,
    /// `true` once it was seen after the lobby.
    seen: bool,
    /// The place of the device in the roster.
    index: Option<u32>,
    /// The digest of each message that was taken, by kind.
    taken: BTreeMap<u8, Digest32>,
    /// Alive while its vector is being added.
    adding: Weak<()>,
    lost: Option<LostAt>,
    /// `true` once nothing more is expected of it, although its vector is in the sum.
    left: bool,
}

impl Member {
    fn has(&self, kind: u8) -> bool {
        self.taken.contains_key(&kind)
    }

    fn is_adding(&self) -> bool {
        self.adding.strong_count() > 0
    }
}

/// A group of a secure sum around [`Server`].
///
/// # Guarantee
/// It gives out one sum at most, over at least the minimum of its context, of devices of different subjects. The set of survivors is
/// fixed once, and no message that names it leaves before.
// PRIVACY: no `Debug`: it holds the sum, which must not be printable.
pub(crate) struct Group {
    context: Context,
    trust: Trust,
    graph: GraphChoice,
    places: u32,
    phase: Phase,
    /// The server of the secure sum. While the roster is open, it checks the keys of the devices that join; then it is the session
    /// of the devices that were seen.
    server: Server,
    members: BTreeMap<SessionId, Member>,
    identities: BTreeSet<Digest32>,
    users: BTreeSet<ParticipantId>,
    /// The sessions, by place in the roster.
    roster: Vec<SessionId>,
    /// `true` once the inputs were closed while vectors were being added. The phase ends with the last of them.
    closing: bool,
    fixed: Option<FixedSet>,
    sum: Option<GroupSum>,
}

impl Group {
    /// A group with room for `places` devices. The minimum number of devices in its sum is that of the context.
    ///
    /// # Errors
    /// The errors of [`Server::new`], and [`SecAggError::Setting`] for fewer places than the minimum or more than the maximum.
    pub(crate) fn new(
        context: Context,
        trust: Trust,
        graph: GraphChoice,
        places: u32,
    ) -> Result<Self, SecAggError> {
        let terms = &context.terms;
        if !(terms.min_survivors()..=terms.max_clients()).contains(&places) {
            return Err(SecAggError::Setting {
                name: "the number of places of a group",
                expected: "from the minimum of survivors to the maximum of clients",
                got: places.into(),
            });
        }
        Ok(Self {
            server: Server::new(context, trust.clone())?,
            context,
            trust,
            graph,
            places,
            phase: Phase::Lobby,
            members: BTreeMap::new(),
            identities: BTreeSet::new(),
            users: BTreeSet::new(),
            roster: Vec::new(),
            closing: false,
            fixed: None,
            sum: None,
        })
    }

    /// Number of sessions that have joined and are not lost.
    #[must_use]
    pub(crate) fn present(&self) -> u32 {
        self.alive().count() as u32
    }

    /// The exact number of bytes of a masked vector.
    ///
    /// # Errors
    /// The errors of [`pack::packed_len`].
    pub(crate) fn input_bytes(&self) -> Result<u64, SecAggError> {
        let terms = &self.context.terms;
        let length = usize::try_from(terms.length()).unwrap_or(usize::MAX);
        Ok(pack::packed_len(Modulus::new(terms.modulus())?, length)? as u64)
    }

    /// A device joins with its keys ([`AdvertiseKeys`]).
    ///
    /// # Errors
    /// [`Refusal::Late`] after the lobby, or without a place; [`Refusal::Conflict`] for other keys than the session's first, for a
    /// subject or an identity that stands in the group already; whatever [`Server::receive_keys`] refuses.
    pub(crate) fn join(
        &mut self,
        session: SessionId,
        user: ParticipantId,
        message: &[u8],
    ) -> Result<Accepted, Refusal> {
        if let Some(member) = self.members.get(&session) {
            return repeated(member, AdvertiseKeys::KIND, message)
                .unwrap_or_else(|| Err(Refusal::OutOfTurn("the session has joined".to_owned())));
        }
        if self.phase != Phase::Lobby || self.present() >= self.places {
            return Err(Refusal::Late);
        }
        let keys = AdvertiseKeys::decode(message)?;
        if self.users.contains(&user) {
            return Err(Refusal::Conflict(
                "the subject has another session in the group".to_owned(),
            ));
        }
        if self.identities.contains(&keys.entry.identity) {
            return Err(Refusal::Conflict(
                "the keys are those of another session".to_owned(),
            ));
        }
        self.server.receive_keys(&keys)?;
        self.identities.insert(keys.entry.identity);
        self.users.insert(user);
        let member = Member {
            user,
            keys,
            seen: false,
            index: None,
            taken: BTreeMap::from([(AdvertiseKeys::KIND, digest_of(message))]),
            adding: Weak::new(),
            lost: None,
            left: false,
        };
        self.members.insert(session, member);
        Ok(Accepted::Now)
    }

    /// A device sends shares ([`ShareKeys`]), a signature ([`Consistency`]) or the shares that open the sum ([`UnmaskShares`]).
    ///
    /// # Errors
    /// [`Refusal::Gone`] for a lost session; [`Refusal::Conflict`] for another message than the session's first of the kind, and for
    /// the message of another session; [`Refusal::OutOfTurn`]; whatever the server's machine refuses.
    pub(crate) fn receive(&mut self, session: SessionId, message: &[u8]) -> Result<Accepted, Refusal> {
        let member = self.member(session)?;
        let Some(kind) = message.get(1).copied() else {
            return Err(Refusal::Malformed("expected a version and a kind".to_owned()));
        };
        if let Some(outcome) = repeated(member, kind, message) {
            return outcome;
        }
        let place = member.index;
        match kind {
            ShareKeys::KIND => {
                let shares = ShareKeys::decode(message)?;
                check_place(place, shares.index)?;
                self.server.receive_shares(&shares)?;
            }
            Consistency::KIND => {
                let signature = Consistency::decode(message)?;
                check_place(place, signature.index)?;
                self.server.receive_consistency(&signature)?;
            }
            UnmaskShares::KIND => {
                let answer = UnmaskShares::decode(message)?;
                check_place(place, answer.index)?;
                self.server.receive_unmask(&answer)?;
            }
            _ => {
                return Err(Refusal::Malformed(format!(
                    "expected shares, a signature or shares to unmask, got kind {kind}"
                )));
            }
        }
        self.take(session, kind, digest_of(message));
        Ok(Accepted::Now)
    }

    /// The mailbox of a device. `after` is the last phase whose message it has handled, [`Phase::Lobby`] at the start.
    ///
    /// # Errors
    /// [`Refusal::Gone`] for a lost session and in a failed group; [`Refusal::OutOfTurn`] for a session that has not joined.
    pub(crate) fn next(&mut self, session: SessionId, after: Phase) -> Result<Step, Refusal> {
        let phase = self.phase;
        self.member(session)?;
        let Some(member) = self.members.get_mut(&session) else {
            return Err(Refusal::Gone);
        };
        if phase == Phase::Keys {
            member.seen = true;
        }
        let (Some(index), true) = (member.index, phase > after) else {
            return Ok(Step::Wait);
        };
        let message = match phase {
            Phase::Shares if !member.has(ShareKeys::KIND) => self.server.roster(index)?.encode(),
            Phase::Inputs if !member.has(MaskedInput::KIND) => self.server.relayed_shares(index)?.encode(),
            Phase::Signatures if !member.has(Consistency::KIND) => self.server.survivors()?.encode(),
            Phase::Unmask if !member.has(UnmaskShares::KIND) => self.server.unmask(index)?.encode(),
            Phase::Summed => return Ok(Step::Done),
            _ => return Ok(Step::Wait),
        };
        Ok(Step::Message(message))
    }

    /// A device has given up, or its connection is given up. `None` where it was lost before, or its vector is in the sum or being
    /// added: the group then waits for it no longer.
    pub(crate) fn lose(&mut self, session: SessionId) -> Option<LostAt> {
        let at = match self.phase {
            Phase::Lobby => LostAt::Lobby,
            Phase::Keys => LostAt::Keys,
            Phase::Shares => LostAt::Shares,
            Phase::Inputs => LostAt::Uploading,
            // The others have been lost when the inputs closed.
            Phase::Signatures | Phase::Unmask | Phase::Summed | Phase::Failed => LostAt::Reported,
        };
        let member = self.members.get_mut(&session)?;
        // A vector that is being added cannot be taken out again.
        if member.has(MaskedInput::KIND) || member.is_adding() {
            member.left = true;
        }
        if member.lost.is_some() || member.left {
            return None;
        }
        member.lost = Some(at);
        Some(at)
    }

    /// Ends the group without a sum, because its attempt has ended. The vectors are cleared.
    pub(crate) fn abort(&mut self) {
        if !self.phase.is_end() {
            self.phase = Phase::Failed;
            self.server.abort();
        }
        self.sum = None;
    }

    /// The sum with those who are in it, once.
    ///
    /// # Errors
    /// [`Refusal::OutOfTurn`] before it is there; [`Refusal::Gone`] after it was taken, and in a failed group.
    pub(crate) fn seal(&mut self) -> Result<GroupSum, Refusal> {
        if !self.phase.is_end() {
            let phase = self.phase;
            return Err(Refusal::OutOfTurn(format!("the group stands at {phase:?}")));
        }
        self.sum.take().ok_or(Refusal::Gone)
    }

    fn alive(&self) -> impl Iterator<Item = (&SessionId, &Member)> {
        self.members.iter().filter(|(_, member)| member.lost.is_none())
    }

    fn member(&self, session: SessionId) -> Result<&Member, Refusal> {
        let member = self
            .members
            .get(&session)
            .ok_or_else(|| Refusal::OutOfTurn("the session has not joined".to_owned()))?;
        if member.lost.is_some() || self.phase == Phase::Failed {
            return Err(Refusal::Gone);
        }
        Ok(member)
    }

    fn take(&mut self, session: SessionId, kind: u8, digest: Digest32) {
        if let Some(member) = self.members.get_mut(&session) {
            member.taken.insert(kind, digest);
        }
    }
}

/// The answer to a message of a kind that was taken before: the same bytes are a repeat.
fn repeated(member: &Member, kind: u8, message: &[u8]) -> Option<Result<Accepted, Refusal>> {
    let first = member.taken.get(&kind)?;
    Some(if member.lost.is_some() {
        Err(Refusal::Gone)
    } else if *first == digest_of(message) {
        Ok(Accepted::Before)
    } else {
        Err(Refusal::Conflict(
            "the first message of this kind counts".to_owned(),
        ))
    })
}

/// Refuses a message that names another place of the roster than that of its session.
fn check_place(expected: Option<u32>, got: u32) -> Result<(), Refusal> {
    match expected {
        Some(place) if place == got => Ok(()),
        Some(_) => Err(Refusal::Conflict("the message names another client".to_owned())),
        None => Err(Refusal::OutOfTurn("the group has no roster yet".to_owned())),
    }
}

#[cfg(test)]
mod tests;
