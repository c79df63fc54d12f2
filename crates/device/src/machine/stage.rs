//! The stage that a session has reached.

use super::{Machine, State};
use crate::stage::Stage;

impl Machine {
    /// The stage of the session.
    #[must_use]
    pub(crate) fn stage(&self) -> Stage {
        match &self.state {
            State::Board | State::Keys(_) | State::WriteStock(_) => Stage::Board,
            State::CheckIn(_) | State::WriteHead => Stage::CheckIn,
            State::Fetch(_) | State::WriteBlob(..) => Stage::Loading,
            State::Train(_) | State::Training | State::WritePlanBackoff(_) => Stage::Training,
            State::WriteParticipation | State::Join => Stage::Joining,
            State::Poll | State::Answer(_) => match self.has_committed() {
                true => Stage::Waiting,
                false => Stage::Joining,
            },
            State::Upload | State::Probe | State::Commit => Stage::Sending,
            State::WriteProgress { .. } => Stage::Waiting,
            State::Leave(_) | State::Done(_) => Stage::Over,
        }
    }

    fn has_committed(&self) -> bool {
        self.exchange.as_ref().is_some_and(super::Exchange::is_committed)
    }
}
