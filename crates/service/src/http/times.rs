//! The times that a connection has.

use std::time::Duration;

/// The times that a connection has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Maximum time for the head of a request, from the end of the one before.
    pub(super) head: Duration,
    /// Maximum time without a byte in either direction. It is longer than the longest wait of a poll.
    pub(super) idle: Duration,
    /// Maximum time from the handshake to the first request.
    pub(super) first: Duration,
    /// Maximum time in which a client takes no piece of its downloads. A buffer of the operating system empties in it at the min rate.
    pub(super) stall: Duration,
    /// Maximum time without a request, whatever else moves.
    pub(super) rest: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(90),
            first: Duration::from_secs(15),
            stall: Duration::from_secs(120),
            rest: Duration::from_secs(300),
        }
    }
}
