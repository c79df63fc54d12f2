//! Round 2 on the server: masked vectors, added by many threads and counted by one.
//!
//! | step | where | what it does |
//! |---|---|---|
//! | [`Server::admit_input`] | the thread of the machine | checks phase and client, and reserves the client's place |
//! | [`Ticket::add_packed`] | any thread | checks the bytes and adds them to the sum |
//! | [`Server::commit_input`] | the thread of the machine | makes the client a survivor |
//!
//! The sum and the set of survivors agree at the close of the round, by these rules:
//!
//! - A client has one ticket at a time, so its vector is never added twice. A ticket that is dropped frees the place.
//! - An added vector that is dropped without its commit is in the sum and of no survivor. The sum is then lost and the
//!   session aborts. The same holds for an addition that ends half-way.
//! - The round does not close while a ticket or an uncommitted vector exists. It closes with as many vectors in the sum as
//!   there are survivors, or aborts.
//!
//! All of this is in memory. A process that dies takes the whole session with it.

use std::sync::{Arc, Weak};

use sha2::{Digest, Sha256};
use undertone_aggregation::ModularSum;

use super::Server;
use crate::context::SessionId;
use crate::error::{Result, SecAggError};
use crate::members::Members;
use crate::message::{MaskedInput, Message};
use crate::phase::ServerPhase;
use crate::terms::ThreatModel;

/// The name that a transport gives to one upload, such as its random identifier or a digest of its bytes.
///
/// A repeat under the name of the committed upload is welcome and changes nothing: its bytes are not even read. An upload
/// under another name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UploadId(pub [u8; 32]);

/// The place of a client among the inputs.
#[derive(Clone)]
pub(super) enum Place {
    /// Nothing has arrived.
    Empty,
    /// A ticket or an added vector may exist, and does while its hold does.
    Reserved(Weak<()>),
    /// The vector is in the sum.
    Committed(UploadId),
}

impl Place {
    fn is_reserved(&self) -> bool {
        matches!(self, Self::Reserved(hold) if hold.strong_count() > 0)
    }

    fn is_committed(&self) -> bool {
        matches!(self, Self::Committed(_))
    }
}

/// A reserved place and the sum behind it.
struct Reservation {
    sum: Arc<ModularSum>,
    /// The server counts the place as reserved as long as this lives.
    _hold: Arc<()>,
}

/// The right to add one client's masked vector to the sum, on any thread.
///
/// A ticket that is dropped unused gives the right back.
#[must_use = "a ticket that is dropped adds nothing"]
#[expect(missing_debug_implementations, reason = "PRIVACY: it reaches the sum")]
pub struct Ticket {
    session: SessionId,
    index: u32,
    upload: UploadId,
    /// Empty for a repeat of the committed upload.
    reservation: Option<Reservation>,
}

impl Ticket {
    /// The client.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns `true` if the upload was committed before: there is nothing to add, and its bytes are not needed.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.reservation.is_none()
    }

    /// Adds the residues of [`MaskedInput::packed`] to the sum. A repeat adds nothing, whatever the bytes.
    ///
    /// # Errors
    /// Nothing is added where the bytes have another length than the session's vectors, an element that is no residue or a bit
    /// after the last one. The client's place is free again then. [`SecAggError::Aggregation`] for a sum that is lost or closed.
    pub fn add_packed(self, packed: &[u8]) -> Result<AddedInput> {
        if let Some(reservation) = &self.reservation {
            reservation.sum.add_packed(packed)?;
        }
        let Self {
            session,
            index,
            upload,
            reservation,
        } = self;
        Ok(AddedInput {
            session,
            index,
            upload,
            uncommitted: reservation,
        })
    }
}

/// A masked vector that is in the sum and whose client is no survivor yet.
///
/// PRIVACY: dropped without [`Server::commit_input`], it loses the sum, because the sum then holds the vector of a client
/// that the set of survivors leaves out.
#[must_use = "an added vector that is not committed ends the session"]
#[expect(missing_debug_implementations, reason = "PRIVACY: it reaches the sum")]
pub struct AddedInput {
    session: SessionId,
    index: u32,
    upload: UploadId,
    uncommitted: Option<Reservation>,
}

impl AddedInput {
    /// The client.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for AddedInput {
    fn drop(&mut self) {
        if let Some(reservation) = &self.uncommitted {
            reservation.sum.fail();
        }
    }
}

impl Server {
    /// Round 2: reserves the place of a client whose masked vector has arrived. The cost does not depend on the vector.
    ///
    /// A [`Ticket::is_repeat`] of the committed upload is welcome.
    ///
    /// # Errors
    /// [`SecAggError::Committed`] for another upload than the committed one. [`SecAggError::Adding`] while a ticket of this
    /// client exists. Another session, a client that has not shared; and out of turn, which a late one is.
    /// [`SecAggError::InputLost`] for a lost sum, which aborts.
    pub fn admit_input(&mut self, session: &SessionId, index: u32, upload: UploadId) -> Result<Ticket> {
        self.expect_phase(ServerPhase::Inputs, MaskedInput::NAME)?;
        self.unless_lost()?;
        self.member(MaskedInput::NAME, session, index)?;
        self.sharer(MaskedInput::NAME, index)?;
        let place = &mut self.inputs[index as usize];
        let reservation = match place {
            Place::Committed(first) if *first == upload => None,
            Place::Committed(_) => {
                return Err(SecAggError::Committed {
                    message: MaskedInput::NAME,
                    index,
                });
            }
            place if place.is_reserved() => return Err(SecAggError::Adding { index }),
            place => {
                let hold = Arc::new(());
                *place = Place::Reserved(Arc::downgrade(&hold));
                Some(Reservation {
                    sum: Arc::clone(&self.incoming),
                    _hold: hold,
                })
            }
        };
        Ok(Ticket {
            session: *session,
            index,
            upload,
            reservation,
        })
    }

    /// Round 2: makes the client of an added vector a survivor.
    ///
    /// # Errors
    /// [`SecAggError::Session`] for a vector that was added in another session, whose sum is lost by it.
    /// [`SecAggError::InputLost`] for a lost sum, which aborts; and out of turn, which it is only after an abort.
    pub fn commit_input(&mut self, mut added: AddedInput) -> Result<()> {
        self.expect_phase(ServerPhase::Inputs, MaskedInput::NAME)?;
        self.member(MaskedInput::NAME, &added.session, added.index)?;
        let Some(reservation) = &added.uncommitted else {
            return Ok(());
        };
        if !Arc::ptr_eq(&reservation.sum, &self.incoming) {
            return Err(SecAggError::Session {
                message: MaskedInput::NAME,
            });
        }
        self.unless_lost()?;
        self.inputs[added.index as usize] = Place::Committed(added.upload);
        added.uncommitted = None;
        Ok(())
    }

    /// Round 2: adds a client's masked vector on this thread. The upload is named by the digest of its bytes.
    ///
    /// # Errors
    /// Another session, a client that has not shared, a vector of another length or with an element that is no residue (nothing
    /// is added then), a second and different vector; and out of turn, which a late one is.
    pub fn receive_input(&mut self, input: &MaskedInput) -> Result<()> {
        let upload = UploadId(Sha256::digest(&input.packed).into());
        let ticket = self.admit_input(&input.session, input.index, upload)?;
        let added = ticket.add_packed(&input.packed)?;
        self.commit_input(added)
    }

    /// Closes round 2: the set of survivors is fixed, once and for all.
    ///
    /// # Errors
    /// [`SecAggError::StillAdding`] while tickets exist: nothing changes, and the caller closes after their commit.
    /// [`SecAggError::TooFew`] where fewer than the floor survive, or too few neighbours of somebody whose masks must be
    /// recovered, which aborts. [`SecAggError::InputLost`] for a lost sum, which aborts; and out of turn.
    pub fn close_inputs(&mut self) -> Result<()> {
        self.expect_phase(ServerPhase::Inputs, "closing of inputs")?;
        self.unless_lost()?;
        let reserved = self.inputs.iter().filter(|place| place.is_reserved()).count();
        if reserved > 0 {
            return Err(SecAggError::StillAdding {
                inputs: reserved as u32,
            });
        }
        // An input that was dropped between the two looks has marked the sum before it gave up its place.
        self.unless_lost()?;
        self.survivors = Members::of(self.inputs.len() as u32, |index| {
            self.inputs[index as usize].is_committed()
        });
        let survivors = self.survivors.count();
        self.at_least("survivors", survivors, self.context.terms.min_survivors())?;
        let needed = self.clients("closing of inputs")?.params.topology().threshold();
        let fewest = self.fewest_among(&self.survivors);
        self.at_least("surviving neighbours of some client", fewest, needed)?;
        if self.incoming.added() != u64::from(survivors) {
            self.abort();
            return Err(SecAggError::InputLost);
        }
        self.sum = self.incoming.seal().inspect_err(|_| self.abort())?;
        self.phase = match self.context.terms.threat_model() {
            ThreatModel::Active => ServerPhase::Signatures,
            ThreatModel::HonestButCurious => ServerPhase::Unmask,
        };
        Ok(())
    }

    /// Aborts where the sum is lost.
    fn unless_lost(&mut self) -> Result<()> {
        if !self.incoming.is_lost() {
            return Ok(());
        }
        self.abort();
        Err(SecAggError::InputLost)
    }
}
