//! A round's sum as the trainer asks for it, whatever protocol computes it.
//!
//! Everything runs in this process: it is how the trainer gets sums that are those of the protocol bit for bit, and how
//! the protocol is tested at the sizes of a deployment.

mod plain;
mod secagg_plus;

use rand_core::CryptoRng;
use undertone_aggregation::ModularVec;

pub use plain::Plain;
pub use secagg_plus::{GraphChoice, SecAggPlus};

use crate::context::Context;
use crate::error::Result;
use crate::server::Culprit;

/// The point at which a client is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropOut {
    /// The client is lost before it advertises keys: it is not in the roster.
    BeforeKeys,
    /// The client is lost before it shares its secrets: its neighbours mask without it.
    BeforeShares,
    /// The client is lost before it uploads: the others wear masks that it should have cancelled, and its key is recovered.
    BeforeInput,
    /// The client is lost before it answers the request to unmask: its vector is in the sum.
    BeforeUnmask,
}

/// The rounds of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Keys and roster.
    Keys,
    /// Sealed shares.
    Shares,
    /// Masked vectors.
    Inputs,
    /// Signatures of the survivors.
    Signatures,
    /// Requests to unmask and shares.
    Unmask,
    /// Recovery of masks, and the sum.
    Sum,
}

/// Bytes that a phase moved, over all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes from clients to the server.
    pub up: u64,
    /// Bytes from the server to clients.
    pub down: u64,
}

/// A request for one sum over a cohort.
#[expect(missing_debug_implementations, reason = "closures")]
pub struct SumRequest<'a> {
    /// The terms of the sum, and the attempt and the round that it belongs to.
    pub context: Context,
    /// Clients selected.
    pub clients: u32,
    /// Writes a client's vector into zeroed memory. It is called once for each client whose vector is needed, from any
    /// thread, and at most as many vectors as there are threads are in memory at a time.
    pub input: &'a (dyn Fn(u32, &mut ModularVec) -> undertone_aggregation::Result<()> + Sync),
    /// The point at which a client is lost, or `None` if it stays.
    pub drop_out: &'a (dyn Fn(u32) -> Option<DropOut> + Sync),
    /// Called at the end of each phase. It may read a clock, which this crate does not.
    pub finished: &'a (dyn Fn(Phase) + Sync),
}

/// The result of a request.
///
/// PRIVACY: the sum has no noise but what the clients added; see [`Outcome`](crate::Outcome).
#[derive(Debug)]
pub struct SumOutcome {
    /// The modular sum of the included clients' vectors.
    pub sum: ModularVec,
    /// The clients whose vectors are in the sum, ascending, as numbered in the request.
    pub included: Vec<u32>,
    /// The clients that gave false shares, as numbered in the request. The sum is right all the same.
    pub culprits: Vec<Culprit>,
    /// Bytes by phase.
    pub traffic: Vec<(Phase, Traffic)>,
}

/// A protocol that sums the vectors of clients.
///
/// # Guarantee
/// For every implementation: the result is the sum modulo the context's modulus of exactly the `included` clients'
/// vectors, each counted once; these are the clients that were not lost before their upload was complete, at least
/// [`Terms::min_survivors`](crate::Terms::min_survivors) of them; otherwise there is an error and no sum. What the server
/// learns besides is each implementation's own statement.
///
/// # Errors
/// Too few clients, and what the input returns.
pub trait SecureSum: Sync {
    /// The sum over the request's clients. `rng` makes all keys and masks.
    ///
    /// # Errors
    /// See the trait.
    fn sum(&self, request: &SumRequest<'_>, rng: &mut dyn CryptoRng) -> Result<SumOutcome>;
}
