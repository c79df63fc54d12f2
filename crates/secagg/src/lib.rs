#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Client`], [`Server`] | the two machines of a session |
//! | [`message`] | their messages and the bytes of these |
//! | [`Context`], [`Terms`], [`Topology`] | the session: its name, its settings and its graph |
//! | [`Floors`], [`Trust`] | the demands of a client |
//! | [`SigningIdentity`], [`Certificate`], [`Vouch`] | identities of clients, and issuers that vouch for them |
//! | [`assurance`] | neighbours and thresholds from the assumptions, with the probability that privacy fails |
//! | [`SecureSum`], [`SecAggPlus`], [`Plain`] | a whole session in one process |
//!
//! # Notes
//!
//! The crate draws from the generator that it is given. The wire format, and the attacks with their tests, are in `docs/design/secure-aggregation.md`.
//!
//! Papers: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
//! CCS 2020 (\[SecAgg+\]); with every client every other's neighbour it is Bonawitz et al., "Practical Secure Aggregation for
//! Privacy-Preserving Machine Learning", CCS 2017 (\[SecAgg\]).

#![forbid(unsafe_code)]

pub mod assurance;
mod bytes;
mod certificate;
mod client;
mod context;
mod error;
mod field;
mod floors;
mod graph;
mod keys;
mod mask;
#[doc(hidden)]
pub mod measure;
mod members;
pub mod message;
mod phase;
mod roster;
mod seal;
mod secure_sum;
mod server;
mod shamir;
mod terms;

pub use certificate::{Certificate, MAX_CERTIFICATE_BYTES, Vouch};
pub use client::Client;
pub use context::{Context, Digest32, PROTOCOL_VERSION, SessionId};
pub use error::{Result, SecAggError};
pub use floors::Floors;
pub use keys::{SigningIdentity, Trust};
pub use members::Members;
pub use phase::{ClientPhase, ServerPhase};
pub use roster::Entry;
pub use secure_sum::{
    DropOut, GraphChoice, Phase, Plain, SecAggPlus, SecureSum, SumOutcome, SumRequest, Traffic,
};
pub use server::{AddedInput, Culprit, Outcome, Server, Ticket, UploadId};
pub use terms::{MAX_CLIENTS, MAX_LENGTH, MAX_MODULUS, Params, Terms, ThreatModel, Topology};
