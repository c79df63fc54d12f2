//! Errors of reading.

/// A value that cannot be read or trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The value has more bytes than its limit.
    #[error("{name} has {length} bytes; the limit is {limit}")]
    TooLong {
        /// The kind of value.
        name: &'static str,
        /// Number of bytes of the value.
        length: usize,
        /// Max number of bytes.
        limit: usize,
    },
    /// The bytes are no such message.
    #[error("{name} cannot be read: {reason}")]
    Malformed {
        /// The kind of value.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// A field has the wrong length.
    #[error("{name} must have {expected} bytes, got {got}")]
    Length {
        /// The field.
        name: &'static str,
        /// Right length of the field, in bytes.
        expected: usize,
        /// Actual length of the field, in bytes.
        got: usize,
    },
    /// The blob is not the named one.
    #[error("{name} has another length or digest than its name says")]
    Digest {
        /// The kind of blob.
        name: &'static str,
    },
    /// No trusted key has this identifier.
    #[error("{name} is signed by the key {key}, which is not trusted")]
    UnknownKey {
        /// The kind of value.
        name: &'static str,
        /// The identifier of the key, in hexadecimal digits.
        key: String,
    },
    /// The signature does not fit.
    #[error("the signature of {name} does not fit")]
    Signature {
        /// The kind of value.
        name: &'static str,
    },
    /// The bytes of a key are no key.
    #[error("{name} is no public key")]
    Key {
        /// The kind of key.
        name: &'static str,
    },
    /// The value is not valid at this time.
    #[error("{name} is valid from {from} to {to} ms, and now it is {now} ms")]
    Expired {
        /// The kind of value.
        name: &'static str,
        /// The start.
        from: u64,
        /// The end.
        to: u64,
        /// The present.
        now: u64,
    },
    /// The token was not made by this key, or was changed.
    #[error("the session token is not one of this service")]
    Token,
}

/// A result of this crate.
pub type Result<T, E = ProtocolError> = core::result::Result<T, E>;
