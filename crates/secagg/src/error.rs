//! What can go wrong between a client's vector and the sum.

/// Every error of this crate.
///
/// Errors name indices, counts and kinds; they never carry a key, a share, a mask or an element of a vector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecAggError {
    /// A setting is outside its range.
    #[error("{name} must be {expected}, got {got}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The admissible range, in words.
        expected: &'static str,
        /// The value received.
        got: u64,
    },
    /// No graph on `clients` vertices has degree `neighbours` everywhere.
    #[error("{clients} clients with {neighbours} neighbours each: one of the two must be even")]
    OddGraph {
        /// Clients in the session.
        clients: u32,
        /// Neighbours of each.
        neighbours: u32,
    },
    /// The server's parameters are weaker than what this client was compiled to accept.
    #[error("refused: {name} is {got}, this client demands {expected} {demanded}")]
    Floor {
        /// Name of the parameter.
        name: &'static str,
        /// "at least" or "at most".
        expected: &'static str,
        /// The bound.
        demanded: u64,
        /// What the server proposed.
        got: u64,
    },
    /// Too few clients are left for the session to go on.
    #[error("{what}: {got} clients, at least {needed} are needed; nothing is released")]
    TooFew {
        /// Which clients.
        what: &'static str,
        /// How many are needed.
        needed: u32,
        /// How many there are.
        got: u32,
    },
    /// More clients than the session admits.
    #[error("the session admits {most} clients; another one is refused")]
    TooMany {
        /// The cap.
        most: u32,
    },
    /// A rate is outside its range.
    #[error("{name} must be {expected}, got {got}")]
    Rate {
        /// Name of the rate.
        name: &'static str,
        /// The admissible range, in words.
        expected: &'static str,
        /// The value received, as it prints.
        got: String,
    },
    /// No graph keeps the secrets of the honest clients and still opens those of the dropped ones.
    #[error(
        "no graph of at most 10000 neighbours protects {clients} clients of whom {corrupt} are corrupt and {dropped} drop out"
    )]
    Infeasible {
        /// Clients in the session.
        clients: u32,
        /// Corrupt ones.
        corrupt: u32,
        /// Dropped ones.
        dropped: u32,
    },
}

/// Shorthand for results of this crate.
pub type Result<T, E = SecAggError> = std::result::Result<T, E>;
