//! The callbacks of the host.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use undertone_device::{Conditions, Counter, DeviceError, KeyStore, SecretKey, Unmet};
use undertone_protocol::Digest32;

use crate::types::{CONDITIONS, Condition, Stage};

/// The conditions and the display of a host. The methods are called on the thread of `Device.run`.
#[uniffi::export(with_foreign)]
pub trait Host: Send + Sync {
    /// `true` if a condition is met. It is asked before a session, before each request, and every 10 ms during training.
    fn is_met(&self, condition: Condition) -> bool;

    /// The charge of the battery in percent; nothing without one.
    fn battery_percent(&self) -> Option<f32>;

    /// Takes note that the session has reached a stage.
    fn reached(&self, stage: Stage);
}

/// A failure of the host's key store. Its sentence must not hold a key.
#[derive(Debug, Clone, thiserror::Error, uniffi::Error)]
pub enum KeyFailure {
    /// The key store failed.
    #[error("{reason}")]
    Failed {
        /// One sentence.
        reason: String,
    },
}

impl From<uniffi::UnexpectedUniFFICallbackError> for KeyFailure {
    fn from(error: uniffi::UnexpectedUniFFICallbackError) -> Self {
        Self::Failed { reason: error.reason }
    }
}

/// The keys of a device, for example in Android's Keystore or in a Keychain. The counters must lie outside of all backups.
#[uniffi::export(with_foreign)]
pub trait Keys: Send + Sync {
    /// The 32 bytes of the key with this name. The first call makes it from random bytes of the operating system.
    fn key(&self, name: String) -> Result<Vec<u8>, KeyFailure>;

    /// A counter; 0 before it is raised.
    fn counter(&self, name: String) -> Result<u64, KeyFailure>;

    /// Raises a counter, durably. A higher counter stays.
    fn raise(&self, name: String, to: u64) -> Result<(), KeyFailure>;

    /// Deletes all keys and counters.
    fn forget(&self) -> Result<(), KeyFailure>;
}

/// The key store of a host.
pub(crate) struct HostKeys(pub(crate) Arc<dyn Keys>);

fn failed(error: KeyFailure) -> DeviceError {
    DeviceError::KeyStore(error.to_string())
}

impl KeyStore for HostKeys {
    fn key(&mut self, name: &'static str) -> Result<SecretKey, DeviceError> {
        let bytes = SecretBytes(self.0.key(name.to_owned()).map_err(failed)?);
        let key: Digest32 = bytes.0[..].try_into().map_err(|_| {
            DeviceError::KeyStore(format!("expected a key of 32 bytes, got {}", bytes.0.len()))
        })?;
        if key == [0; 32] {
            return Err(DeviceError::KeyStore(
                "expected a random key, got zeros".to_owned(),
            ));
        }
        Ok(SecretKey::new(key))
    }

    fn counter(&mut self, counter: Counter) -> Result<u64, DeviceError> {
        self.0.counter(counter.name().to_owned()).map_err(failed)
    }

    fn raise(&mut self, counter: Counter, to: u64) -> Result<(), DeviceError> {
        self.0.raise(counter.name().to_owned(), to).map_err(failed)
    }

    fn forget(&mut self) -> Result<(), DeviceError> {
        self.0.forget().map_err(failed)
    }
}

/// Bytes that are overwritten when they are dropped.
struct SecretBytes(Vec<u8>);

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

/// The conditions of a session: those of the host, and the values that it set.
pub(crate) struct HostConditions<'a> {
    pub(crate) host: Option<Arc<dyn Host>>,
    pub(crate) unmet: &'a Mutex<BTreeSet<Condition>>,
}

impl HostConditions<'_> {
    fn is_met(&self, condition: Condition) -> bool {
        let set = self
            .unmet
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&condition);
        !set && self.host.as_ref().is_none_or(|host| host.is_met(condition))
    }
}

impl Conditions for HostConditions<'_> {
    fn battery_percent(&self) -> Option<f32> {
        self.host.as_ref()?.battery_percent()
    }

    fn reached(&self, stage: undertone_device::Stage) {
        if let Some(host) = &self.host {
            host.reached(stage.into());
        }
    }

    fn unmet(&self) -> Option<Unmet> {
        let unmet = CONDITIONS.iter().find(|(condition, _)| !self.is_met(*condition));
        unmet.map(|(_, unmet)| *unmet)
    }
}
