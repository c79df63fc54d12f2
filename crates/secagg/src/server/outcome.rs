//! The outcome of a session.

use undertone_aggregation::ModularVec;

use crate::members::Members;

/// A client that gave a false share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Culprit {
    /// Who gave it.
    pub index: u32,
    /// About whom.
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
    /// Whose vectors are in it, by place in the roster.
    pub included: Members,
    /// Who gave false shares that stood in the way; the sum is right all the same.
    ///
    /// It names the sender or the owner's bad dealing: a client that deals its neighbours shares of no polynomial makes them
    /// appear here about it.
    pub culprits: Vec<Culprit>,
}
