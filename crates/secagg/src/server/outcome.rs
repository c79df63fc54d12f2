//! The outcome of a session.

use undertone_aggregation::ModularVec;

use crate::members::Members;

/// A client that gave a false share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Culprit {
    /// The client that gave it.
    pub index: u32,
    /// The client whose secret it is a share of.
    pub about: u32,
}

/// The sum of the survivors' vectors.
///
/// PRIVACY: it is without noise unless the clients added some; it goes to a mechanism, not to a file or a log. Its
/// `Debug` shows lengths only.
#[derive(Debug)]
pub struct Outcome {
    /// The sum, modulo the session's modulus.
    pub sum: ModularVec,
    /// The clients whose vectors are in the sum, by place in the roster.
    pub included: Members,
    /// The clients that gave false shares which had to be worked around. The sum is correct all the same.
    ///
    /// An entry blames the sender of a share, or its owner: a client that deals its neighbours shares of no polynomial makes them
    /// appear here about it.
    pub culprits: Vec<Culprit>,
}
