//! Errors of a fleet.

use undertone_device::DeviceError;

/// Result of this crate's functions.
pub type Result<T, E = FleetError> = std::result::Result<T, E>;

/// A failure of a fleet or of its tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// A setting is not usable.
    #[error("{key} must be {expected}, got {got}")]
    Value {
        /// The setting.
        key: &'static str,
        /// A description of a usable value.
        expected: String,
        /// The value found.
        got: String,
    },
    /// A device got no certificate.
    #[error("device {device} could not be enrolled: {reason}")]
    Enrolment {
        /// The number of the device.
        device: usize,
        /// The answer of the service, or the failure of the network.
        reason: String,
    },
    /// A connection to the service cannot be made.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file, a socket or a process cannot be used.
    #[error("cannot {action}: {source}")]
    Io {
        /// The attempted action and its object.
        action: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A process did not do something in time.
    #[error("{what} took longer than {seconds} s")]
    Late {
        /// The awaited event.
        what: String,
        /// The limit, in seconds.
        seconds: f64,
    },
}

impl FleetError {
    pub(crate) fn value(key: &'static str, expected: impl Into<String>, got: impl std::fmt::Display) -> Self {
        Self::Value {
            key,
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    pub(crate) fn io(action: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            action: action.into(),
            source,
        }
    }
}
