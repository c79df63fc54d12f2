//! Limits that both sides keep to.

use core::time::Duration;

/// Max bytes of a message.
pub const MAX_MESSAGE: usize = 256 << 10;

/// Max bytes of the body of a certificate of a device.
pub const MAX_CERTIFICATE: usize = 1 << 10;

/// Max bytes of a message of secure sums from the server: a roster or the relayed shares of a large neighbourhood.
pub const MAX_SECAGG: usize = 4 << 20;

/// Max bytes of one chunk of an upload.
pub const MAX_CHUNK: usize = 1 << 20;

/// Max bytes of a plan.
pub const MAX_PLAN: usize = 64 << 10;

/// Max bytes of a vocabulary.
pub const MAX_VOCABULARY: usize = 64 << 20;

/// Max bytes of a model.
pub const MAX_MODEL: usize = 8 << 30;

/// Max number of tasks that a check-in names.
pub const MAX_ELIGIBLE: usize = 64;

/// Max number of session keys in one request.
pub const MAX_SESSION_KEYS: usize = 64;

/// Max difference between the clock of a device and that of the service.
pub const MAX_SKEW: Duration = Duration::from_secs(300);

/// Max life of a certificate.
pub const MAX_CERTIFICATE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
