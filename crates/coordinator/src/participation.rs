//! Participation without assumptions about sampling: policies that promise a participation schema, and the schema that the
//! ledger shows afterwards.
//!
//! The guarantee of correlated noise depends on the number of participations of one user and on their distance, not on a
//! probability. A schema is either promised by construction ([`epochs`]: the same order of all users in every epoch), or an
//! outcome of many devices that each keep to a timer ([`timers`]). Either way the ledger names every round's participants by
//! [`ParticipantId`], [`policy`] holds the run to the declared schema, and [`observed`] and [`exact`]
//! recompute the real spending from the ledger.
//!
//! ```
//! use undertone_coordinator::participation::{ParticipationKey, epochs::ShuffledEpochs, policy::{Enforcement, Policy}};
//!
//! let key = ParticipationKey::from_bytes([7; 32]);
//! let epochs = ShuffledEpochs::new(100, 10, &key)?;
//! let mut policy = Policy::new(epochs.participation(25)?, Enforcement::Refuse);
//! let salt = key.salt();
//! for round in 0..25 {
//!     let cohort: Vec<_> = epochs.cohort(round).iter().map(|&user| salt.pseudonym(u64::from(user))).collect();
//!     policy.admit(round, &cohort)?;
//! }
//! assert_eq!(policy.observed().max_participation(), 3);
//! # Ok::<(), undertone_coordinator::CoordinatorError>(())
//! ```
//!
//! PRIVACY: a guarantee for an observed schema is one for the participation that happened. Under the zero-out relation
//! neighbouring data sets have the same participation. That holds as long as participation depends neither on the users' text
//! nor on anything that was computed from it.
//!
//! Source: \[Gboard\] section 2.2 and Appendix A; \[BLT\] section 3.2.

pub mod epochs;
pub mod exact;
mod key;
pub mod observed;
pub mod policy;
pub mod timers;

pub use crate::participant::{NotAParticipantId, ParticipantId, Salt};
pub use crate::violation::Violation;
pub use key::ParticipationKey;
