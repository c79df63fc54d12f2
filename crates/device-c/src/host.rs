//! The callbacks of the host: its conditions, its display and its key store.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use undertone_device::{Conditions, Counter, DeviceError, KeyStore, SecretKey, Stage, Unmet};

use crate::failure::{Failure, ut_status};
use crate::types::{CONDITIONS, ut_condition, ut_stage};

/// The callbacks of a host. Each may be null; so may the whole structure.
///
/// The library copies it. The callbacks run on the thread of the call that needs them, one at a time for each device, and must not throw.
/// They may call `ut_device_stop` and `ut_device_set_unmet`. Any other call for the same device returns `UT_BUSY`.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "addresses of functions say nothing")]
pub struct ut_host {
    /// `sizeof(ut_host)`.
    pub size: usize,
    /// The first argument of each callback. It must be usable on every thread that calls the library for this device.
    pub context: *mut c_void,
    /// Returns `true` if a condition is met. It is asked before a session, before each request, and every 10 ms during training.
    pub is_met: Option<unsafe extern "C" fn(context: *mut c_void, condition: ut_condition) -> bool>,
    /// Returns the charge of the battery in percent, or a negative number without one.
    pub battery_percent: Option<unsafe extern "C" fn(context: *mut c_void) -> f32>,
    /// Takes note that the session has reached a stage.
    pub reached: Option<unsafe extern "C" fn(context: *mut c_void, stage: ut_stage)>,
    /// Writes the 32 bytes of the key with this name to `key`, and returns `true`; returns `false` on failure. The first call for a name
    /// makes the key from random bytes of the operating system. All four callbacks of the key store are set, or none; without them keys
    /// are in files of the folder that only their owner can read.
    pub key: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, key: *mut u8) -> bool>,
    /// Writes a counter to `value`, and returns `true`; returns `false` on failure. A counter is 0 before it is raised.
    pub counter:
        Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: *mut u64) -> bool>,
    /// Raises a counter to `value`, durably and outside of all backups, and returns `true`. A higher counter stays.
    pub raise: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: u64) -> bool>,
    /// Deletes all keys and counters, and returns `true`.
    pub forget: Option<unsafe extern "C" fn(context: *mut c_void) -> bool>,
}

/// The callbacks of an open device.
#[derive(Clone, Copy)]
pub(crate) struct Host(Option<ut_host>);

// SAFETY: the header asks for a context that every calling thread can use. The addresses of functions are constants.
unsafe impl Send for Host {}

impl Host {
    /// Copies the callbacks.
    ///
    /// # Safety
    /// `host` is null, or the address of a structure of `size` bytes.
    pub(crate) unsafe fn new(host: *const ut_host) -> Result<Self, Failure> {
        if host.is_null() {
            return Ok(Self(None));
        }
        // SAFETY: the address is not null, and every version of the structure begins with its size.
        let size = unsafe { (&raw const (*host).size).read() };
        if size < size_of::<ut_host>() {
            let message = format!(
                "`host->size` must be at least {}, got {size}",
                size_of::<ut_host>()
            );
            return Err(Failure::new(ut_status::UT_VALUE, message));
        }
        // SAFETY: the structure has at least as many bytes as this version of it.
        let host = unsafe { host.read() };
        let store = [
            host.key.is_some(),
            host.counter.is_some(),
            host.raise.is_some(),
            host.forget.is_some(),
        ];
        if store.iter().any(|&is_set| is_set != store[0]) {
            let message = "`host` must set all four callbacks of the key store or none, got a part of them";
            return Err(Failure::new(ut_status::UT_VALUE, message));
        }
        Ok(Self(Some(host)))
    }

    /// The key store of the host, if it has one.
    pub(crate) fn key_store(&self) -> Option<HostKeyStore> {
        let host = self.0?;
        Some(HostKeyStore {
            key: host.key?,
            counter: host.counter?,
            raise: host.raise?,
            forget: host.forget?,
            context: Context(host.context),
        })
    }
}

#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the header asks for a context that every calling thread can use.
unsafe impl Send for Context {}

/// The key store of a host.
pub(crate) struct HostKeyStore {
    key: unsafe extern "C" fn(*mut c_void, *const c_char, *mut u8) -> bool,
    counter: unsafe extern "C" fn(*mut c_void, *const c_char, *mut u64) -> bool,
    raise: unsafe extern "C" fn(*mut c_void, *const c_char, u64) -> bool,
    forget: unsafe extern "C" fn(*mut c_void) -> bool,
    context: Context,
}

fn done(is_done: bool, what: &str) -> Result<(), DeviceError> {
    match is_done {
        true => Ok(()),
        false => Err(DeviceError::KeyStore(format!(
            "the host's callback `{what}` returned false"
        ))),
    }
}

/// A name with a zero byte at its end.
fn name(name: &str) -> Result<std::ffi::CString, DeviceError> {
    std::ffi::CString::new(name).map_err(|error| DeviceError::KeyStore(error.to_string()))
}

impl KeyStore for HostKeyStore {
    fn key(&mut self, of: &'static str) -> Result<SecretKey, DeviceError> {
        let (name, mut key) = (name(of)?, SecretKey::default());
        // SAFETY: the host set the callback; the name ends with a zero byte, and the key has room for 32 bytes.
        let is_done = unsafe { (self.key)(self.context.0, name.as_ptr(), key.as_mut_ptr()) };
        done(is_done, "key")?;
        if *key == [0; 32] {
            // PRIVACY: a host that forgot to write the key would seal every text under a known one.
            return Err(DeviceError::KeyStore(
                "the host's callback `key` wrote no key".to_owned(),
            ));
        }
        Ok(key)
    }

    fn counter(&mut self, counter: Counter) -> Result<u64, DeviceError> {
        let (name, mut value) = (name(counter.name())?, 0);
        // SAFETY: the host set the callback; the name ends with a zero byte, and the number is a local value.
        let is_done = unsafe { (self.counter)(self.context.0, name.as_ptr(), &raw mut value) };
        done(is_done, "counter").map(|()| value)
    }

    fn raise(&mut self, counter: Counter, to: u64) -> Result<(), DeviceError> {
        let name = name(counter.name())?;
        // SAFETY: the host set the callback; the name ends with a zero byte.
        done(
            unsafe { (self.raise)(self.context.0, name.as_ptr(), to) },
            "raise",
        )
    }

    fn forget(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the host set the callback.
        done(unsafe { (self.forget)(self.context.0) }, "forget")
    }
}

/// The conditions of a session: the callbacks of the host, and the values that it set.
pub(crate) struct HostConditions<'a> {
    pub(crate) host: Host,
    /// The sum of the conditions that are not met.
    pub(crate) unmet: &'a AtomicU32,
}

impl HostConditions<'_> {
    fn is_met(&self, condition: ut_condition) -> bool {
        if self.unmet.load(Ordering::Relaxed) & condition as u32 != 0 {
            return false;
        }
        let asked = self.host.0.and_then(|host| Some((host.is_met?, host.context)));
        // SAFETY: the host set the callback.
        asked.is_none_or(|(is_met, context)| unsafe { is_met(context, condition) })
    }
}

impl Conditions for HostConditions<'_> {
    fn battery_percent(&self) -> Option<f32> {
        let host = self.host.0?;
        // SAFETY: the host set the callback.
        let percent = unsafe { host.battery_percent?(host.context) };
        (percent >= 0.0).then_some(percent)
    }

    fn reached(&self, stage: Stage) {
        if let Some((reached, context)) = self.host.0.and_then(|host| Some((host.reached?, host.context))) {
            // SAFETY: the host set the callback.
            unsafe { reached(context, stage.into()) }
        }
    }

    fn unmet(&self) -> Option<Unmet> {
        let unmet = CONDITIONS.iter().find(|(condition, _)| !self.is_met(*condition));
        unmet.map(|(_, unmet)| *unmet)
    }
}
