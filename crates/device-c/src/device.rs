//! The functions of a device.

use std::ffi::c_char;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

use undertone_device::{
    Clock, Device, DeviceSettings, Example, FileKeyStore, HttpTransport, KeyStore, Stop, SystemClock,
};
use undertone_protocol::digest_of;

use crate::failure::{Failure, border, ut_status};
use crate::handles::Handles;
use crate::host::{Host, HostConditions, ut_host};
use crate::text::{optional, string};
use crate::types::{CONDITIONS, ut_evaluation, ut_model, ut_outcome, ut_participation, ut_state};

/// An open device. 0 is none. A handle is a number: a closed one is refused, and never names another device.
pub type ut_device = u64;

/// The name of the folder of keys in the folder of a device, as in `undertone device`.
const KEYS: &str = "keys";

/// An open device with its way to the service.
pub(crate) struct Open {
    pub(crate) device: Device,
    transport: HttpTransport,
    host: Host,
}

/// The object behind a handle.
pub(crate) struct Entry {
    open: Mutex<Option<Open>>,
    /// The thread that works on the device now.
    worker: Mutex<Option<ThreadId>>,
    /// The stop of the session that runs now.
    stop: Mutex<Option<Stop>>,
    unmet: AtomicU32,
}

pub(crate) static DEVICES: Handles<Entry> = Handles::new("device");

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // These locks guard single values, which are whole after a panic too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a call, also by a panic.
struct Working<'a>(&'a Entry);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        *lock(&self.0.worker) = None;
        *lock(&self.0.stop) = None;
    }
}

fn busy() -> Failure {
    let message = "the device is at work in another call; wait for its end, or stop it with ut_device_stop";
    Failure::new(ut_status::UT_BUSY, message)
}

/// Works on a device, alone. It does not wait for another call.
pub(crate) fn on_device<T>(
    handle: ut_device,
    work: impl FnOnce(&Entry, &mut Open) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let entry = DEVICES.find(handle)?;
    let mut guard = match entry.open.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Poisoned(_)) => {
            let message = "the device failed inside before; close it and open its folder again";
            return Err(Failure::new(ut_status::UT_PANIC, message));
        }
    };
    let open = guard.as_mut().ok_or_else(|| DEVICES.closed(handle))?;
    *lock(&entry.worker) = Some(std::thread::current().id());
    let _working = Working(&entry);
    work(&entry, open)
}

/// Opens the device in a folder, or makes it. Writes its handle to `device`.
///
/// `folder` must not be part of a backup. `settings` is JSON, as in the guide "Embed the device": the service, the population, and the
/// keys that the app trusts. `host` may be null; it is copied. Close the device with `ut_device_close`.
///
/// # Safety
/// Strings end with a zero byte. `host` is null or a structure of its `size`. `device` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_device_open(
    folder: *const c_char,
    settings: *const c_char,
    host: *const ut_host,
    device: *mut ut_device,
) -> ut_status {
    border(|| {
        // SAFETY: the caller promises strings and a structure, and each address is checked for null.
        let (folder, settings, host) = unsafe {
            (
                string("folder", folder)?,
                string("settings", settings)?,
                Host::new(host)?,
            )
        };
        if device.is_null() {
            return Err(Failure::null("device"));
        }
        let folder = Path::new(folder);
        let settings = DeviceSettings::from_json(settings)?;
        let transport = settings.transport(None)?;
        let keys: Box<dyn KeyStore> = match host.key_store() {
            Some(keys) => Box::new(keys),
            None => Box::new(FileKeyStore::open(folder.join(KEYS))?),
        };
        let opened = Device::open(settings.config(folder, keys)?)?;
        let handle = DEVICES.insert(Entry {
            open: Mutex::new(Some(Open {
                device: opened,
                transport,
                host,
            })),
            worker: Mutex::new(None),
            stop: Mutex::new(None),
            unmet: AtomicU32::new(0),
        });
        // SAFETY: the address is not null, and the caller promises that it is valid.
        unsafe { device.write(handle) };
        Ok(())
    })
}

/// Takes a device out of its entry: it stops the session that runs, and waits for the call that works on the device.
fn take(handle: ut_device) -> Result<Option<Open>, Failure> {
    let entry = DEVICES.find(handle)?;
    if *lock(&entry.worker) == Some(std::thread::current().id()) {
        return Err(busy());
    }
    let entry = DEVICES.remove(handle).map(|_| entry)?;
    loop {
        // The session may begin between the look and the wait, so it is stopped as often as it takes.
        if let Some(stop) = &*lock(&entry.stop) {
            stop.request();
        }
        match entry.open.try_lock() {
            Ok(mut guard) => return Ok(guard.take()),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner().take()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

/// Closes a device. A session that runs is stopped, and the function waits for its end. Closing 0 does nothing.
///
/// A call from a callback of the same device returns `UT_BUSY`, and the device stays open.
#[unsafe(no_mangle)]
pub extern "C" fn ut_device_close(device: ut_device) -> ut_status {
    border(|| match device {
        0 => Ok(()),
        device => take(device).map(drop),
    })
}

/// Gets a certificate for the device from the service, by an invitation. The function waits for the network.
///
/// `invitation` may be null. `subject` is the device's own claim of a person, may be null, and counts with the identity level `dev` alone.
///
/// # Safety
/// Strings are null or end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_device_enrol(
    device: ut_device,
    invitation: *const c_char,
    subject: *const c_char,
) -> ut_status {
    border(|| {
        // SAFETY: the caller promises strings, and each address is checked for null.
        let (invitation, subject) =
            unsafe { (optional("invitation", invitation)?, optional("subject", subject)?) };
        let subject = subject.map(|name| digest_of(name.as_bytes()));
        on_device(device, |_, open| {
            let invitation = invitation.unwrap_or_default();
            Ok(open.device.enrol(&mut open.transport, invitation, subject)?)
        })
    })
}

/// Renews the certificate of the device while it is valid. A session does so by itself in the last ten days.
#[unsafe(no_mangle)]
pub extern "C" fn ut_device_renew(device: ut_device) -> ut_status {
    border(|| on_device(device, |_, open| Ok(open.device.renew(&mut open.transport)?)))
}

/// Gives a text of the person to the device, which seals it in its folder. The text never leaves the machine.
///
/// `collected_ms` is the time of its writing, in milliseconds since 1970; 0 is now. `expires_ms` is the time of its deletion; 0 is the
/// latest time that the device allows, 60 days after its writing.
///
/// # Safety
/// `text` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_example_add(
    device: ut_device,
    text: *const c_char,
    collected_ms: u64,
    expires_ms: u64,
) -> ut_status {
    border(|| {
        // SAFETY: the caller promises a string, and the address is checked for null.
        let text = unsafe { string("text", text)? };
        let or = |value: u64, other: u64| if value == 0 { other } else { value };
        on_device(device, |_, open| {
            let example = Example {
                text,
                collected_ms: or(collected_ms, SystemClock.now_ms()),
                expires_ms: or(expires_ms, u64::MAX),
            };
            Ok(open.device.examples().add(example)?)
        })
    })
}

/// Deletes all texts of the device.
#[unsafe(no_mangle)]
pub extern "C" fn ut_examples_clear(device: ut_device) -> ut_status {
    border(|| on_device(device, |_, open| Ok(open.device.examples().clear()?)))
}

/// Runs one session: looks at the board, trains and sends an update, if a task wants this device now. It waits for its end.
///
/// A service that refuses or cannot be reached is an outcome, and the function returns `UT_OK` then. Do not start another session before
/// `wake_ms`. `outcome` may be null.
///
/// # Safety
/// `outcome` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_device_run(device: ut_device, outcome: *mut ut_outcome) -> ut_status {
    border(|| {
        let ended = on_device(device, |entry, open| {
            let stop = Stop::default();
            *lock(&entry.stop) = Some(stop.clone());
            let conditions = HostConditions {
                host: open.host,
                unmet: &entry.unmet,
            };
            Ok(open.device.run(&mut open.transport, &conditions, &stop)?)
        })?;
        if !outcome.is_null() {
            // SAFETY: the address is not null, and the caller promises that it is valid.
            unsafe { outcome.write(ut_outcome::new(&ended)) };
        }
        Ok(())
    })
}

/// Stops the session that runs on the device, between two batches or before the next request. It does not wait. Where no session runs,
/// nothing happens. Any thread may call it, and so may a callback.
#[unsafe(no_mangle)]
pub extern "C" fn ut_device_stop(device: ut_device) -> ut_status {
    border(|| {
        if let Some(stop) = &*lock(&DEVICES.find(device)?.stop) {
            stop.request();
        }
        Ok(())
    })
}

/// Sets the conditions that are not met now, as a sum of `ut_condition`; 0 where all are met. A session stops at once when one is not met.
///
/// It does not wait. It is an alternative to the callback `is_met`; where a host uses both, both must agree to work. Any thread may call
/// it, and so may a callback.
#[unsafe(no_mangle)]
pub extern "C" fn ut_device_set_unmet(device: ut_device, unmet: u32) -> ut_status {
    border(|| {
        let all = CONDITIONS
            .iter()
            .fold(0, |all, (condition, _)| all | *condition as u32);
        if unmet & !all != 0 {
            let message = format!("`unmet` must be a sum of conditions, at most {all}, got {unmet}");
            return Err(Failure::new(ut_status::UT_VALUE, message));
        }
        DEVICES.find(device)?.unmet.store(unmet, Ordering::Relaxed);
        Ok(())
    })
}

/// Writes the state of the device to `state`.
///
/// # Safety
/// `state` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_device_state(device: ut_device, state: *mut ut_state) -> ut_status {
    border(|| {
        if state.is_null() {
            return Err(Failure::null("state"));
        }
        let found = on_device(device, |_, open| {
            Ok(ut_state::new(&open.device.status()?, open.device.public_key()))
        })?;
        // SAFETY: the address is not null, and the caller promises that it is valid.
        unsafe { state.write(found) };
        Ok(())
    })
}

/// Copies a list into an array of the caller, and writes the length of the whole list to `count`.
///
/// # Safety
/// `rows` has room for `room` elements, and `count` is valid for writes; either may be null.
pub(crate) unsafe fn copy_list<T>(
    list: &[T],
    rows: *mut T,
    room: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    if rows.is_null() && room > 0 {
        return Err(Failure::null("rows"));
    }
    if count.is_null() {
        return Err(Failure::null("count"));
    }
    let number = list.len().min(room);
    if number > 0 {
        // SAFETY: the array is not null, has room for `number` elements, and is not part of the list.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), rows, number) };
    }
    // SAFETY: the address is not null, and the caller promises that it is valid.
    unsafe { count.write(list.len()) };
    Ok(())
}

/// Lists everything that the device ever sent: the rounds for which it may have sent an update, in their order.
///
/// Writes up to `room` elements to `rows`, and the number of all to `count`. `rows` may be null if `room` is 0.
///
/// # Safety
/// `rows` has room for `room` elements. `count` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_participations(
    device: ut_device,
    rows: *mut ut_participation,
    room: usize,
    count: *mut usize,
) -> ut_status {
    border(|| {
        let all = on_device(device, |_, open| Ok(open.device.participations()?))?;
        let list: Vec<ut_participation> = all.iter().map(Into::into).collect();
        // SAFETY: the caller makes the promise of `copy_list`.
        unsafe { copy_list(&list, rows, room, count) }
    })
}

/// Lists the released models that the device holds, the newest first. A session that trains brings the model of its round.
///
/// Writes up to `room` elements to `rows`, and the number of all to `count`. `rows` may be null if `room` is 0.
///
/// # Safety
/// `rows` has room for `room` elements. `count` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_models(
    device: ut_device,
    rows: *mut ut_model,
    room: usize,
    count: *mut usize,
) -> ut_status {
    border(|| {
        let all = on_device(device, |_, open| Ok(open.device.models()?))?;
        let list: Vec<ut_model> = all.iter().map(Into::into).collect();
        // SAFETY: the caller makes the promise of `copy_list`.
        unsafe { copy_list(&list, rows, room, count) }
    })
}

/// The 32 bytes of a task, or nothing.
///
/// # Safety
/// `task` is null or valid for reads of 32 bytes.
pub(crate) unsafe fn task<'a>(task: *const u8) -> Option<&'a [u8; 32]> {
    // SAFETY: the caller promises 32 bytes, whose alignment is 1.
    unsafe { task.cast::<[u8; 32]>().as_ref() }
}

/// Measures a released model on the texts that the device withholds from training. Nothing is sent.
///
/// `task` is the 32 bytes of a task, or null for the newest model.
///
/// # Safety
/// `task` is null or valid for reads of 32 bytes. `evaluation` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_device_evaluate(
    device: ut_device,
    task: *const u8,
    evaluation: *mut ut_evaluation,
) -> ut_status {
    border(|| {
        if evaluation.is_null() {
            return Err(Failure::null("evaluation"));
        }
        // SAFETY: the caller promises 32 bytes where the address is not null.
        let task = unsafe { self::task(task) };
        let measured = on_device(device, |_, open| Ok(open.device.evaluate(task)?))?;
        // SAFETY: the address is not null, and the caller promises that it is valid.
        unsafe { evaluation.write((&measured).into()) };
        Ok(())
    })
}

/// Deletes the texts, the memory and the keys of the device, and closes it. A session that runs is stopped first.
///
/// Released models stay as they are: the guarantee of their ledgers covers what this device gave. After a failure the device is closed,
/// and what is left in the folder is unreadable, unless the message names the key store.
#[unsafe(no_mangle)]
pub extern "C" fn ut_device_forget(device: ut_device) -> ut_status {
    border(|| match take(device)? {
        Some(open) => Ok(open.device.forget()?),
        None => Err(DEVICES.closed(device)),
    })
}
