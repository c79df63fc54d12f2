//! Masked vectors, added by many threads beside each other.
//!
//! | step | lock of the group | what it does |
//! |---|---|---|
//! | [`Group::admit_input`] | held | reserves the place of the device |
//! | [`InputTicket::add_packed`] | free | checks the bytes and adds them |
//! | [`Group::commit_input`] | held | takes the device into the set of survivors |
//!
//! A ticket that is dropped frees the place. The phase of the inputs does not end while a ticket or an added vector exists.

use std::sync::Arc;

use undertone_secagg::message::MaskedInput;
use undertone_secagg::message::Message as _;
use undertone_secagg::{AddedInput, Ticket, UploadId};
use undertone_store::SessionId;

use super::{Group, Phase};
use crate::attempt::refusal::Refusal;

/// The answer to a device that brings its masked vector.
// PRIVACY: no `Debug`: it reaches the sum, which must not be printable.
pub(crate) enum Input {
    /// The vector is to be added.
    Add(InputTicket),
    /// The vector of the device is in the sum.
    Before,
}

/// The right to add the vector of one device, on any thread.
#[must_use = "a ticket that is dropped adds nothing"]
// PRIVACY: no `Debug`: it reaches the sum, which must not be printable.
pub(crate) struct InputTicket {
    session: SessionId,
    ticket: Ticket,
    adding: Arc<()>,
}

impl InputTicket {
    /// Adds the packed residues to the sum of the group.
    ///
    /// # Errors
    /// [`Refusal::Range`] for bytes that are no residues: nothing is added then, and the device may send others. [`Refusal::Gone`]
    /// where the sum takes no more vectors.
    pub(crate) fn add_packed(self, packed: &[u8]) -> Result<AddedVector, Refusal> {
        let Self {
            session,
            ticket,
            adding,
        } = self;
        Ok(AddedVector {
            session,
            added: ticket.add_packed(packed)?,
            _adding: adding,
        })
    }
}

/// A vector that is in the sum, and whose device is no survivor yet.
///
/// PRIVACY: dropped without [`Group::commit_input`], it loses the sum of the group.
#[must_use = "an added vector that is not committed ends the group"]
// PRIVACY: no `Debug`: it reaches the sum, which must not be printable.
pub(crate) struct AddedVector {
    session: SessionId,
    added: AddedInput,
    _adding: Arc<()>,
}

impl Group {
    /// Reserves the place of a device that brings its masked vector, of this number of bytes. The cost does not depend on the vector.
    ///
    /// # Errors
    /// [`Refusal::Gone`] for a lost session, and once the phase closes; [`Refusal::OutOfTurn`]; [`Refusal::Range`] for another length
    /// than [`input_bytes`](Self::input_bytes). [`Refusal::Busy`] while the vector of the session is being added.
    pub(crate) fn admit_input(&mut self, session: SessionId, length: u64) -> Result<Input, Refusal> {
        let member = self.member(session)?;
        if member.has(MaskedInput::KIND) {
            return Ok(Input::Before);
        }
        let (Some(index), Some(name)) = (member.index, self.server.session()) else {
            return Err(Refusal::OutOfTurn("the group has no roster yet".to_owned()));
        };
        let expected = self.input_bytes()?;
        if length != expected {
            return Err(Refusal::range("the number of bytes", expected, length));
        }
        if self.closing && !member.is_adding() {
            return Err(Refusal::Gone);
        }
        // A session brings one vector, so its name is that of the upload.
        let mut upload = [0; 32];
        upload[..16].copy_from_slice(&session.0);
        let ticket = self.server.admit_input(&name, index, UploadId(upload))?;
        let adding = Arc::new(());
        if let Some(member) = self.members.get_mut(&session) {
            member.adding = Arc::downgrade(&adding);
        }
        Ok(Input::Add(InputTicket {
            session,
            ticket,
            adding,
        }))
    }

    /// Takes the device of an added vector into the set of survivors.
    ///
    /// # Errors
    /// [`Refusal::Gone`] for a group that has ended, or whose sum is lost: it fails when it [advances](Self::advance) next.
    pub(crate) fn commit_input(&mut self, added: AddedVector) -> Result<(), Refusal> {
        if self.phase != Phase::Inputs {
            return Err(Refusal::Gone);
        }
        self.server.commit_input(added.added)?;
        self.take(added.session, MaskedInput::KIND, [0; 32]);
        Ok(())
    }
}
