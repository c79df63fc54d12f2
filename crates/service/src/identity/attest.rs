//! Attestation: evidence of a device's platform, which an operator's own verifier judges.
//!
//! A task with `identity = "attested"` takes devices whose check-in brings evidence that the verifier accepts. Everything else refuses
//! them: no verifier, one that does not answer, and an answer of another form.

mod webhook;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use undertone_protocol::{Code, Digest32, Problem, RetryWindow, digest_of};
use undertone_store::{DeviceRow, Enrolled, Enrolment, Millis, Quota, Store};

use super::person::{PersonLimits, departed};
use super::{DAY, Member};
use crate::trouble::Seldom;

pub use webhook::Webhook;

/// Max bytes of evidence.
pub(crate) const MAX_EVIDENCE: usize = 16 << 10;

/// An accepted piece of evidence is not judged again for this long, in milliseconds.
const REMEMBERED: Millis = DAY;

/// Max number of accepted pieces of evidence that are remembered.
const MAX_REMEMBERED: usize = 100_000;

/// Days in which the subjects of one piece of hardware are counted together.
const WINDOW_DAYS: u64 = 30;

/// The verdict on evidence that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// A digest of the identifier of the hardware; `None` where the platform names none.
    pub hardware: Option<Digest32>,
}

/// The verdict on evidence that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttestError {
    /// The evidence is not genuine.
    #[error("the evidence was refused: {0}")]
    Refused(String),
    /// The verifier gave no verdict.
    #[error("the evidence could not be judged: {0}")]
    Unavailable(String),
}

/// A verifier of platform evidence.
pub trait Attestor: Send + Sync {
    /// Judges evidence that must be over this challenge.
    ///
    /// # Errors
    /// [`AttestError`]; the device is refused in both cases.
    fn verify(&self, evidence: &[u8], challenge: &Digest32) -> Result<Passed, AttestError>;
}

/// No verifier: it accepts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAttestor;

impl Attestor for NoAttestor {
    fn verify(&self, _evidence: &[u8], _challenge: &Digest32) -> Result<Passed, AttestError> {
        Err(AttestError::Unavailable(
            "this service has no verifier of evidence".to_owned(),
        ))
    }
}

/// The challenge that the evidence of a device is over: its population and its key. Evidence of one device serves no other.
#[must_use]
pub fn challenge(population: &str, device: &Digest32) -> Digest32 {
    Sha256::new()
        .chain_update(b"undertone/1/attestation\0")
        .chain_update((population.len() as u64).to_le_bytes())
        .chain_update(population)
        .chain_update(device)
        .finalize()
        .into()
}

/// The rules under which devices enrol, and the verifier of their evidence.
pub struct Admissions {
    attestor: Arc<dyn Attestor>,
    /// Max number of new devices that the issuer enrols per day.
    per_day: u32,
    /// Max number of subjects that take part with one piece of hardware in 30 days.
    subjects_per_hardware: u32,
    /// The limits of one person.
    person: PersonLimits,
    passed: Mutex<HashMap<Digest32, (Millis, Option<Digest32>)>>,
}

impl std::fmt::Debug for Admissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admissions")
            .field("per_day", &self.per_day)
            .field("subjects_per_hardware", &self.subjects_per_hardware)
            .finish_non_exhaustive()
    }
}

impl Default for Admissions {
    fn default() -> Self {
        Self::new(Arc::new(NoAttestor))
    }
}

impl Admissions {
    /// The default number of new devices per day.
    pub const PER_DAY: u32 = 1_000_000;

    /// The default number of subjects per piece of hardware.
    pub const SUBJECTS_PER_HARDWARE: u32 = 3;

    /// Rules with this verifier and the default limits.
    #[must_use]
    pub fn new(attestor: Arc<dyn Attestor>) -> Self {
        Self {
            attestor,
            per_day: Self::PER_DAY,
            subjects_per_hardware: Self::SUBJECTS_PER_HARDWARE,
            person: PersonLimits::NONE,
            passed: Mutex::default(),
        }
    }

    /// These rules with other limits.
    #[must_use]
    pub fn with_limits(self, per_day: u32, subjects_per_hardware: u32) -> Self {
        Self {
            per_day,
            subjects_per_hardware,
            ..self
        }
    }

    /// These rules with limits of one person.
    #[must_use]
    pub fn with_person_limits(self, person: PersonLimits) -> Self {
        Self { person, ..self }
    }

    /// The limits of one person.
    pub(crate) fn person(&self) -> PersonLimits {
        self.person
    }

    /// Enrols a device. Only one that its person may have is counted for the day of the issuer, so nobody uses up the day of others.
    ///
    /// # Errors
    /// A refusal of a person who left, or beyond a limit; the store fails.
    pub(crate) fn enrol(
        &self,
        store: &dyn Store,
        issuer: &Digest32,
        (key, population, person): (&Digest32, &str, &Digest32),
    ) -> Result<DeviceRow, Problem> {
        let enrolment = Enrolment {
            key: *key,
            population: population.to_owned(),
            person: *person,
            max_devices: self.person.devices,
            max_enrolments: self.person.enrolments,
            day: Quota {
                counter: counted(b"enrolments of an issuer", &[issuer]),
                window: store.now() / DAY,
                limit: self.per_day,
            },
        };
        let enrolled = store
            .enrol(&enrolment)
            .map_err(crate::error::ServiceError::from)?;
        match enrolled {
            Enrolled::Device(row) => Ok(row),
            Enrolled::Day => Err(Problem::new(
                Code::TooOften,
                format!("the issuer enrols at most {} new devices per day", self.per_day),
            )
            .with_retry(RetryWindow::between(DAY / 4, DAY))),
            Enrolled::Departed(how) => Err(departed(how)),
            Enrolled::Devices => Err(self.person.too_many_devices()),
            Enrolled::Enrolments => Err(self.person.too_many_enrolments()),
        }
    }

    /// Checks the evidence of a device, and counts its subject for its hardware.
    ///
    /// # Errors
    /// A refusal.
    pub(crate) fn attest(
        &self,
        store: &dyn Store,
        population: &str,
        member: &Member,
        evidence: &[u8],
    ) -> Result<(), Problem> {
        let refused = |reason: String| Problem::new(Code::Attestation, reason);
        if evidence.is_empty() || evidence.len() > MAX_EVIDENCE {
            return Err(refused(format!(
                "the task needs evidence of the platform, of 1 to {MAX_EVIDENCE} bytes; got {}",
                evidence.len()
            )));
        }
        let now = store.now();
        let challenge = challenge(population, &member.device);
        let known = counted(b"evidence", &[&challenge, &digest_of(evidence)]);
        let hardware = match self.remembered(&known, now) {
            Some(hardware) => hardware,
            None => match self.attestor.verify(evidence, &challenge) {
                Ok(Passed { hardware }) => {
                    self.remember(known, now, hardware);
                    hardware
                }
                Err(AttestError::Refused(reason)) => return Err(refused(reason)),
                Err(AttestError::Unavailable(reason)) => {
                    static UNJUDGED: Seldom = Seldom::new();
                    if let Some(left_out) = UNJUDGED.speaks() {
                        tracing::warn!(reason, left_out, "the evidence of a device could not be judged");
                    }
                    return Err(Problem::new(
                        Code::Busy,
                        "the evidence of the platform cannot be judged now",
                    )
                    .with_retry(RetryWindow::between(60_000, 600_000)));
                }
            },
        };
        let Some(hardware) = hardware else { return Ok(()) };
        let window = now / DAY / WINDOW_DAYS;
        let pair = counted(
            b"subject of hardware",
            &[&hardware, &member.issuer, &member.subject],
        );
        let failed = |error| Problem::from(crate::error::ServiceError::from(error));
        // A subject is counted once per window for one piece of hardware. Adding nothing to a counter below 1 asks whether it is 0.
        if !store.issue(&pair, window, 0, 0).map_err(failed)? {
            return Ok(());
        }
        let all = counted(b"hardware", &[&hardware]);
        if !store
            .issue(&all, window, 1, self.subjects_per_hardware)
            .map_err(failed)?
        {
            return Err(refused(format!(
                "at most {} people take part with one piece of hardware in {WINDOW_DAYS} days",
                self.subjects_per_hardware
            )));
        }
        store.issue(&pair, window, 1, 1).map_err(failed)?;
        Ok(())
    }

    fn remembered(&self, known: &Digest32, now: Millis) -> Option<Option<Digest32>> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed
            .get(known)
            .filter(|(until, _)| now < *until)
            .map(|(_, hardware)| *hardware)
    }

    fn remember(&self, known: Digest32, now: Millis, hardware: Option<Digest32>) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.len() >= MAX_REMEMBERED {
            passed.retain(|_, (until, _)| now < *until);
        }
        if passed.len() < MAX_REMEMBERED {
            passed.insert(known, (now + REMEMBERED, hardware));
        }
    }
}

/// The name of a counter. The store hides it under its salt.
fn counted(purpose: &[u8], parts: &[&Digest32]) -> Digest32 {
    let mut hash = Sha256::new()
        .chain_update(b"undertone/1/counted\0")
        .chain_update(purpose)
        .chain_update([0]);
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
