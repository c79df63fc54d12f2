//! Errors between a client's vector and the sum.

use crate::phase::{ClientPhase, ServerPhase};

/// Every error of this crate.
///
/// Errors name indices, counts and kinds; they never carry a key, a share, a mask or an element of a vector.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
    #[error(
        "{clients} clients with {neighbours} neighbours each: the number of clients or of neighbours must be even"
    )]
    OddGraph {
        /// Clients in the session.
        clients: u32,
        /// Neighbours of each.
        neighbours: u32,
    },
    /// The server's parameters are weaker than what this client was compiled to accept.
    #[error("refused: {name} is {got}, but this client demands {expected} {demanded}")]
    Floor {
        /// Name of the parameter.
        name: &'static str,
        /// "at least" or "at most".
        expected: &'static str,
        /// The bound.
        demanded: u64,
        /// The value that the server proposed.
        got: u64,
    },
    /// The server's proposal, or a setting, lacks what every client with [`Floors`](crate::Floors) demands.
    #[error("refused: {name} is {got}, but this client demands {expected}")]
    Demand {
        /// Name of the parameter.
        name: &'static str,
        /// The demanded value.
        expected: &'static str,
        /// The proposed value.
        got: &'static str,
    },
    /// Privacy on the server's graph fails too probably under the client's own assumptions.
    #[error("refused: the graph gives {got:.1} bits of privacy, but this client demands {demanded} bits")]
    Assurance {
        /// Bits that the client demands.
        demanded: u32,
        /// Bits that the client computed.
        got: f64,
    },
    /// A message is not the canonical encoding of anything.
    #[error("{message}: {reason} at byte {at}")]
    Encoding {
        /// Kind of message.
        message: &'static str,
        /// The reason for the refusal.
        reason: &'static str,
        /// Byte position of the refusal.
        at: usize,
    },
    /// A message's length differs from what its header and the session prescribe.
    #[error("{message}: expected {expected} bytes, got {got}")]
    Length {
        /// Kind of message or part.
        message: &'static str,
        /// Bytes prescribed.
        expected: u64,
        /// Bytes received.
        got: u64,
    },
    /// A message of another protocol version or of another kind.
    #[error("expected {expected}, got version {version}, kind {kind}")]
    Header {
        /// The expected kind of message, with its version.
        expected: &'static str,
        /// Version byte received.
        version: u8,
        /// Kind byte received.
        kind: u8,
    },
    /// A message belongs to another session.
    #[error("{message} belongs to a different session")]
    Session {
        /// Kind of message.
        message: &'static str,
    },
    /// The machine is not waiting for this message.
    #[error("client: {message} does not belong to phase {phase:?}")]
    ClientPhase {
        /// Kind of message.
        message: &'static str,
        /// Phase of the client.
        phase: ClientPhase,
    },
    /// The machine is not waiting for this message.
    #[error("server: {message} does not belong to phase {phase:?}")]
    ServerPhase {
        /// Kind of message or action.
        message: &'static str,
        /// Phase of the server.
        phase: ServerPhase,
    },
    /// A public key is the point of small order that forces the agreed secret, or is not a key at all.
    #[error("client {index}: its {which} key is not a valid key")]
    Key {
        /// The owner of the key.
        index: u32,
        /// Name of the key.
        which: &'static str,
    },
    /// A key that belongs to one client appears a second time.
    #[error("clients {first} and {second} have the same {which} key")]
    DuplicateKey {
        /// The first of the two.
        first: u32,
        /// The second.
        second: u32,
        /// Name of the key.
        which: &'static str,
    },
    /// A signature does not verify.
    #[error("client {index}: its signature of {what} is not valid")]
    Signature {
        /// The signer.
        index: u32,
        /// The signed message.
        what: &'static str,
    },
    /// An identity that the client's trust anchor does not list.
    #[error("client {index} has an identity that is not on the list of known devices")]
    UnknownIdentity {
        /// The client with this identity.
        index: u32,
    },
    /// An identity for which no trusted issuer vouches.
    #[error("client {index}: expected a certificate of a trusted issuer for its identity, got {got}")]
    Certificate {
        /// The client with this identity.
        index: u32,
        /// The missing or refused certificate, in words.
        got: &'static str,
    },
    /// An entry of the roster is not under the roster's root.
    #[error("client {index}: its entry is not in the roster")]
    NotInRoster {
        /// The client of the entry.
        index: u32,
    },
    /// The roster does not hold this client's own keys under the index it assigns.
    #[error("entry {index} of the roster does not hold the keys of this client")]
    NotMe {
        /// The index that the server assigned.
        index: u32,
    },
    /// The neighbours that a message lists are not those of the graph.
    #[error("{message}: expected client {expected}, got {got}")]
    Neighbours {
        /// Kind of message.
        message: &'static str,
        /// Next index that the graph prescribes, or the number of clients where any index below it would do.
        expected: u32,
        /// Index received.
        got: u32,
    },
    /// Fewer clients are left than the session needs to go on.
    #[error("{what}: expected at least {needed} clients, got {got}; nothing is released")]
    TooFew {
        /// The clients that are counted.
        what: &'static str,
        /// The minimum number.
        needed: u32,
        /// The number found.
        got: u32,
    },
    /// More clients than the session admits.
    #[error("the session admits at most {max} clients; the next client is refused")]
    TooMany {
        /// The cap.
        max: u32,
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
        "no graph with at most 10000 neighbours per client protects {clients} clients if {corrupt} are corrupt and {dropped} \
         drop out"
    )]
    Infeasible {
        /// Clients in the session.
        clients: u32,
        /// Corrupt clients.
        corrupt: u32,
        /// Clients that drop out.
        dropped: u32,
    },
    /// A message from an index or an identity that has no place in this session or phase.
    #[error("{message}: client {index} has no part in this phase")]
    Stranger {
        /// Kind of message.
        message: &'static str,
        /// The index.
        index: u32,
    },
    /// A client sent two different messages where one commits.
    #[error("client {index} has already committed to a different {message}")]
    Committed {
        /// Kind of message.
        message: &'static str,
        /// The client.
        index: u32,
    },
    /// A client's masked vector is being added, and another message brings one.
    #[error(
        "client {index}: its masked input is being added; the next attempt is answered when that has ended"
    )]
    Adding {
        /// The client.
        index: u32,
    },
    /// Masked vectors are being added, so the set of survivors cannot be fixed yet.
    #[error("expected all inputs to be committed before the round closes, but {inputs} are being added")]
    StillAdding {
        /// Number of tickets that exist.
        inputs: u32,
    },
    /// A vector was added and not committed, or its addition ended half-way, so the sum is not that of the survivors.
    #[error(
        "a masked input was added to the sum and not committed, so the sum is lost and nothing is released"
    )]
    InputLost,
    /// The server claims that someone survived who never shared, or that the receiver itself is gone.
    #[error("the set of survivors contradicts what client {index} knows about client {about}")]
    Survivors {
        /// The client that refuses.
        index: u32,
        /// The client that the claim is about.
        about: u32,
    },
    /// A share is of a kind that its sender must not give.
    #[error("client {index} gave a share of the wrong kind, or out of order, about client {about}")]
    ShareKind {
        /// The client that gave it.
        index: u32,
        /// The owner of the secret.
        about: u32,
    },
    /// A share, or a sealed share, is not the encoding of one.
    #[error("expected each share to be a field element below 2^61 - 1")]
    ShareRange,
    /// The shares received do not open every client's secret, so no sum can be released.
    #[error(
        "the masks of some clients cannot be removed; a retry must exclude {}",
        listed(exclude)
    )]
    Unrecoverable {
        /// The clients to exclude, ascending: those whose secrets no shares open, and those that gave false shares.
        exclude: Vec<u32>,
    },
    /// A client's vector is not one of this session.
    #[error(
        "expected a vector of {length} elements modulo {modulus}, got {got_length} elements modulo {got_modulus}"
    )]
    Vector {
        /// Length that the session prescribes.
        length: u64,
        /// Modulus that the session prescribes.
        modulus: u64,
        /// Length received.
        got_length: u64,
        /// Modulus received.
        got_modulus: u64,
    },
    /// Vectors or their packing were refused.
    #[error(transparent)]
    Aggregation(#[from] undertone_aggregation::AggregationError),
}

/// The first few of `clients` by name, and how many more there are.
fn listed(clients: &[u32]) -> String {
    const SHOWN: usize = 10;
    let mut text = clients
        .iter()
        .take(SHOWN)
        .map(|index| format!("client {index}"))
        .collect::<Vec<_>>()
        .join(", ");
    if clients.len() > SHOWN {
        text.push_str(&format!(" and {} more", clients.len() - SHOWN));
    }
    text
}

/// Shorthand for results of this crate.
pub type Result<T, E = SecAggError> = std::result::Result<T, E>;

impl SecAggError {
    pub(crate) fn key(index: u32, which: &'static str) -> Self {
        Self::Key { index, which }
    }

    pub(crate) fn signature(index: u32, what: &'static str) -> Self {
        Self::Signature { index, what }
    }

    pub(crate) fn stranger(message: &'static str, index: u32) -> Self {
        Self::Stranger { message, index }
    }
}

/// Refuses a setting outside its range.
pub(crate) fn ensure(
    holds: bool,
    name: &'static str,
    expected: &'static str,
    got: impl Into<u64>,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    let got = got.into();
    Err(SecAggError::Setting { name, expected, got })
}

/// Refuses to go on with fewer clients than `needed`.
pub(crate) fn at_least(what: &'static str, needed: u32, got: u32) -> Result<()> {
    if got >= needed {
        return Ok(());
    }
    Err(SecAggError::TooFew { what, needed, got })
}
