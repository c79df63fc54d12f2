//! The phases of a session on both sides. Errors name them, so they stand below the machines.

/// The message that a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientPhase {
    /// The roster.
    Roster,
    /// The neighbours' shares.
    Shares,
    /// The set of survivors, to sign it.
    Survivors,
    /// The request to unmask.
    Unmask,
    /// Nothing, since the client has answered.
    Done,
    /// Nothing, since a check failed.
    Aborted,
}

/// The messages that a server collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerPhase {
    /// Clients' keys.
    Keys,
    /// Sealed shares.
    Shares,
    /// Masked vectors.
    Inputs,
    /// Signatures of the set of survivors.
    Signatures,
    /// Shares that open the masks of the sum.
    Unmask,
    /// Nothing, since the sum was given out.
    Done,
    /// Nothing, since too few clients were left.
    Aborted,
}
