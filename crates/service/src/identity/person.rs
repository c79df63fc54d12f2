//! The limits of one person, whatever number of devices the person has. The store enforces those of devices and sessions.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use undertone_protocol::{Code, Digest32, Problem, RetryWindow};
use undertone_store::{Departure, Millis, SessionLimits, Store};

use super::DAY;
use crate::error::ServiceError;

/// The limits of one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonLimits {
    /// Max number of devices that are not revoked.
    pub devices: u32,
    /// Max number of devices that one invitation ever enrols.
    pub enrolments: u32,
    /// Max number of sessions in one attempt.
    pub sessions: u32,
    /// Min time between two check-ins, in milliseconds; 0 for none.
    pub interval: Millis,
}

impl PersonLimits {
    /// No limits, for tests and simulations on one machine.
    pub const NONE: Self = Self {
        devices: u32::MAX,
        enrolments: u32::MAX,
        sessions: u32::MAX,
        interval: 0,
    };

    /// The limits of the sessions of an attempt.
    pub(crate) fn sessions(self) -> SessionLimits {
        SessionLimits {
            sessions: self.sessions,
            interval: self.interval,
        }
    }

    /// The refusal of one device more.
    pub(crate) fn too_many_devices(self) -> Problem {
        let why = format!(
            "a person has at most {} devices; the operator can revoke one that is lost",
            self.devices
        );
        Problem::new(Code::TooOften, why).with_retry(RetryWindow::between(DAY / 4, DAY))
    }

    /// The refusal of one enrolment more.
    pub(crate) fn too_many_enrolments(self) -> Problem {
        let why = format!(
            "an invitation enrols at most {} devices; ask for a new one",
            self.enrolments
        );
        Problem::new(Code::TooOften, why).with_retry(RetryWindow::between(DAY / 4, DAY))
    }
}

impl Default for PersonLimits {
    fn default() -> Self {
        Self {
            devices: 5,
            enrolments: 10,
            sessions: 4,
            interval: 1000,
        }
    }
}

/// The answer to a person who takes part, or enrols a device, no more.
pub(crate) fn departed(how: Departure) -> Problem {
    let (code, why) = match how {
        Departure::Withdrawn => (
            Code::BadCertificate,
            "the invitation was withdrawn; ask the operator for a new one",
        ),
        Departure::Left => (
            Code::TooOften,
            "the person takes part in this population no more, by its own wish or that of the operator",
        ),
        Departure::Revoked => (Code::Revoked, "the person was revoked, with all devices"),
    };
    Problem::new(code, why).with_retry(RetryWindow::between(DAY / 2, DAY))
}

/// The answer to a device whose key was revoked.
pub(crate) fn revoked() -> Problem {
    Problem::new(Code::Revoked, "the key of this device was revoked")
}

/// `true` for the answer to a device that was revoked, or whose person takes part no more.
pub(crate) fn is_gone(problem: &Problem) -> bool {
    *problem == revoked()
        || [Departure::Left, Departure::Revoked]
            .map(departed)
            .contains(problem)
}

/// Asks the store about a device that no admission asks for.
///
/// # Errors
/// A refusal of a device that was revoked, or whose person takes part no more; the store fails.
pub(crate) fn still_here(
    store: &dyn Store,
    population: &str,
    device: &Digest32,
    person: &Digest32,
) -> Result<(), Problem> {
    let found = store
        .membership(device, population, person)
        .map_err(ServiceError::from)?;
    if found.device.is_some_and(|row| row.revoked) {
        return Err(revoked());
    }
    match found.departure.filter(|how| how.ends_participation()) {
        Some(how) => Err(departed(how)),
        None => Ok(()),
    }
}

/// People are forgotten once this many were noted since the last time.
const MAX_NOTED: usize = 10_000;

/// The last check-ins of people, in memory alone. A check-in that is refused here costs no look at the store.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<HashMap<Digest32, ([u8; 16], Millis)>>);

impl Arrivals {
    /// Notes a check-in of a person.
    ///
    /// # Errors
    /// A refusal for another check-in than the last one, before the interval has passed. The last one may come again: its answer may have
    /// been lost on the way.
    pub(crate) fn note(
        &self,
        person: &Digest32,
        checkin: [u8; 16],
        now: Millis,
        interval: Millis,
    ) -> Result<(), Problem> {
        if interval == 0 {
            return Ok(());
        }
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, at)) = noted.get(person)
            && *last != checkin
            && now.saturating_sub(*at) < interval
        {
            let why = format!("two check-ins of a person are at least {interval} ms apart");
            let retry = RetryWindow::between(interval, interval.saturating_mul(2));
            return Err(Problem::new(Code::TooSoon, why).with_retry(retry));
        }
        if noted.len() >= MAX_NOTED {
            noted.retain(|_, (_, at)| now.saturating_sub(*at) < interval);
        }
        noted.insert(*person, (checkin, now));
        Ok(())
    }

    /// Forgets a check-in, so that a device that was revoked does not keep the other devices of its person waiting.
    pub(crate) fn forget(&self, person: &Digest32, checkin: [u8; 16]) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(person).is_some_and(|(last, _)| *last == checkin) {
            noted.remove(person);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_checks_in_once_per_interval_and_may_repeat_the_last_check_in() {
        let arrivals = Arrivals::default();
        let note = |person: u8, checkin: u8, now| arrivals.note(&[person; 32], [checkin; 16], now, 1000);
        note(1, 1, 5000).unwrap();
        note(1, 1, 5001).unwrap();
        let refused = note(1, 2, 5999).unwrap_err();
        assert_eq!(refused.code(), Code::TooSoon);
        assert_eq!(refused.retry.unwrap().min_ms, 1000);
        note(2, 2, 5999).unwrap();
        note(1, 2, 6001).unwrap();
        // A check-in that is forgotten holds up no other, and only the last one can be forgotten.
        arrivals.forget(&[1; 32], [1; 16]);
        assert!(note(1, 3, 6002).is_err());
        arrivals.forget(&[1; 32], [2; 16]);
        note(1, 3, 6002).unwrap();
        // Without an interval nobody is noted.
        arrivals.note(&[3; 32], [1; 16], 0, 0).unwrap();
        arrivals.note(&[3; 32], [2; 16], 0, 0).unwrap();
    }

    #[test]
    fn the_memory_of_check_ins_does_not_grow_with_the_people_who_came() {
        let arrivals = Arrivals::default();
        for who in 0..(3 * MAX_NOTED as u64) {
            let mut person = [0; 32];
            person[..8].copy_from_slice(&who.to_le_bytes());
            arrivals.note(&person, [0; 16], 1000 + who, 100).unwrap();
        }
        assert!(arrivals.0.lock().unwrap().len() <= MAX_NOTED);
    }
}
