//! Tasks with `ledger = "device"`: the memories of the devices alone count participations.
//!
//! The server keeps nothing that links two sessions of a subject. Each session has a random name in place of a pseudonym, and, as in
//! every task, the key of its device is hashed with a salt of the room. So the server cannot see that a subject comes too early, and the
//! separation rests on the timers of the devices. A timer of `T` keeps two participations `b` rounds apart only while rounds are
//! short enough: a subject that took part when round `t - b + 1` opened must not be able to come again
//! before round `t` is closed.

use sha2::{Digest, Sha256};
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::task::LedgerPlace;
use undertone_protocol::{Digest32, limits};
use undertone_store::Millis;

use super::Room;
use crate::error::Result;
use crate::identity::Member;
use crate::keys::random;

/// The clock of a device may be wrong by the max skew at both of its participations, once in each direction.
const SKEW: Millis = 2 * limits::MAX_SKEW.as_millis() as Millis;

impl Room {
    /// `true` if the devices alone count participations.
    pub(super) fn counts_on_devices(&self) -> bool {
        self.task.file.service.ledger == LedgerPlace::Device
    }

    /// The names of a subject and its device in the rows of the store.
    pub(super) fn names_in_store(&self, member: &Member) -> Result<(ParticipantId, Digest32)> {
        // PRIVACY: no row holds the key of a device, which would link the pseudonyms of its subject over tasks, and after they were
        // forgotten. The salt ends with the room. Rows of two attempts under one room share the hash of a device, so the number of the
        // round is in it.
        let round = self
            .lock()
            .current
            .as_ref()
            .map_or(0, |current| current.opened.round());
        let device = Sha256::new()
            .chain_update(b"undertone device of a round")
            .chain_update(self.salt)
            .chain_update(round.to_le_bytes())
            .chain_update(member.device)
            .finalize();
        let user = match self.counts_on_devices() {
            // PRIVACY: the name is drawn for this session.
            true => ParticipantId::new(u64::from_be_bytes(random()?)),
            false => self.name_in_memory(member),
        };
        Ok((user, device.into()))
    }

    /// The name of a subject in the estimate of the population, which is in memory alone.
    pub(super) fn name_in_memory(&self, member: &Member) -> ParticipantId {
        if !self.counts_on_devices() {
            return self.name_of(&member.issuer, &member.subject);
        }
        let hash = Sha256::new()
            .chain_update(b"undertone subject of a process")
            .chain_update(self.salt)
            .chain_update(member.issuer)
            .chain_update(member.subject)
            .finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        ParticipantId::new(u64::from_be_bytes(first))
    }

    /// The reason for which a round must not be released now: its rounds were too slow for the timer of the devices. `None` for a
    /// round that may be released, and for tasks whose participations the server counts.
    pub(super) fn too_slow(&self, round: u64, now: Millis) -> Result<Option<String>> {
        if !self.counts_on_devices() {
            return Ok(None);
        }
        let first = (round + 1).saturating_sub(self.min_sep());
        let Some(opened) = self.shared.store.round_opened(self.task.id, first)? else {
            return Ok(None);
        };
        let timer = self.task.file.service.eligibility.timer.millis();
        let taken = now.saturating_sub(opened);
        // PRIVACY: from here on a device of round `first` can be in this round, too, and nobody would notice.
        Ok((taken.saturating_add(SKEW) >= timer).then(|| {
            format!(
                "rounds {first} to {round} took {} s; with service.ledger = \"device\" they must take less than {} s, which is \
                 service.eligibility.timer less {} s for clocks, so that no device is in two of them",
                taken / 1000,
                timer.saturating_sub(SKEW) / 1000,
                SKEW / 1000,
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use undertone_protocol::TaskState;

    use crate::test_world::{Kind, World, checkin, member};

    const TIMER: u64 = 3_600_000;
    const LEDGER: &str =
        "ledger = \"device\"\neligibility = { min_examples = 1, max_examples = 8, timer = \"1h\" }\n";

    #[test]
    fn a_round_that_outlasts_the_timer_is_not_released_and_pauses_the_task() {
        for kind in [Kind::Memory, Kind::Sqlite] {
            let world = World::with(kind, 4, LEDGER);
            let room = &world.room;
            let opened = world.clock_now();
            let last = opened + TIMER - super::SKEW - 1;
            assert_eq!(room.too_slow(0, last).unwrap(), None);
            // With min_sep = 2, round 1 is measured from the opening of round 0.
            for round in [0, 1] {
                let why = room.too_slow(round, last + 1).unwrap().unwrap();
                assert!(
                    why.contains("took 3000 s") && why.contains("less than 3000 s"),
                    "{why}"
                );
            }
            // A round that was not opened yet stands in nobody's way.
            assert_eq!(room.too_slow(9, last + 1).unwrap(), None);
            // The attempt ends at its deadline, and the task pauses instead of opening another one.
            for _ in 0..10 {
                world.clock.advance(TIMER);
                world.service.tick().unwrap();
            }
            let row = world.service.shared().store.task(room.task().id).unwrap();
            assert_eq!((row.state, row.head_round), (TaskState::Paused, 0));
        }
    }

    #[test]
    fn rows_of_two_rounds_or_sessions_share_no_name() {
        let world = World::with(Kind::Memory, 4, LEDGER);
        let (user, device) = world.room.names_in_store(&member(1)).unwrap();
        let (again, same) = world.room.names_in_store(&member(1)).unwrap();
        assert_ne!(user, again);
        assert_eq!(device, same, "a repeated check-in must be known");
        assert_ne!(device, member(1).device);
        let plain = World::new(Kind::Memory, 4);
        let (user, device) = plain.room.names_in_store(&member(1)).unwrap();
        assert_eq!(plain.room.names_in_store(&member(1)).unwrap(), (user, device));
        assert_ne!(device, member(1).device, "no row holds the key of a device");
        // The same check-in gets the same session all the same.
        let first = world.room.admit(&member(1), checkin(1, 0), &world.token).unwrap();
        let second = world.room.admit(&member(1), checkin(1, 0), &world.token).unwrap();
        assert_eq!(first.session, second.session);
    }
}
