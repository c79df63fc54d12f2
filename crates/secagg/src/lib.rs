//! Secure aggregation: the server learns the modular sum of the clients' vectors and nothing else of them.
//!
//! Paper: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
//! CCS 2020 (\[SecAgg+\]); with every client every other's neighbour it is Bonawitz et al., CCS 2017 (\[SecAgg\]).

mod bytes;
mod client;
mod context;
mod error;
mod field;
mod graph;
mod keys;
mod mask;
#[doc(hidden)]
pub mod measure;
mod members;
pub mod message;
pub mod parameters;
mod params;
mod roster;
mod seal;
mod secure_sum;
mod server;
mod shamir;

pub use client::{Client, ClientPhase};
pub use context::{Context, Digest32, PROTOCOL_VERSION, SessionId};
pub use error::{Result, SecAggError};
pub use keys::{Identity, Trust};
pub use members::Members;
pub use params::{Floors, MAX_CLIENTS, MAX_LENGTH, MAX_MODULUS, Params, Setting, Suite, Terms, Topology};
pub use roster::Entry;
pub use secure_sum::{
    DropOut, GraphChoice, Phase, Plain, SecAggPlus, SecureSum, SumOutcome, SumRequest, Traffic,
};
pub use server::{Culprit, Outcome, Server, ServerPhase};
