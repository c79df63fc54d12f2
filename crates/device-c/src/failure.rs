//! Statuses, the last error of a thread, and the place where panics end.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use undertone_device::DeviceError;

use crate::text::{fill, room_for};

/// The result of a function. `UT_OK` is 0; all others are failures, and nothing was done then but where a function says so.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ut_status {
    /// The function did its work.
    UT_OK = 0,
    /// A pointer is null that must not be.
    UT_NULL = 1,
    /// A string is not UTF-8.
    UT_UTF8 = 2,
    /// A value is not usable; the message says what is expected.
    UT_VALUE = 3,
    /// The handle is not open: it was closed, forgotten, or never given out.
    UT_HANDLE = 4,
    /// Another call works on the device now, or this is a call from its own callback.
    UT_BUSY = 5,
    /// The device holds no released model yet.
    UT_NO_MODEL = 6,
    /// The service cannot be reached.
    UT_NETWORK = 7,
    /// The service refused, or its message cannot be trusted.
    UT_REFUSED = 8,
    /// The key store failed, or holds another key than the one of the folder.
    UT_KEY_STORE = 9,
    /// A file or the database of the folder failed.
    UT_FILES = 10,
    /// The folder is open in another process, or by another handle.
    UT_FOLDER_OPEN = 11,
    /// The library failed inside. The device must be closed; its folder can be opened again.
    UT_PANIC = 12,
}

/// The number of bytes of a message, the zero byte at the end included.
pub const UT_MESSAGE_BYTES: usize = 1024;

/// The last failure on a thread.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_error {
    /// The status; `UT_OK` where nothing has failed on this thread.
    pub status: ut_status,
    /// One sentence in UTF-8, for a log. It names what was expected and what was given, and never holds a text of the person.
    pub message: [c_char; UT_MESSAGE_BYTES],
}

/// A failure on its way to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: ut_status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: ut_status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::new(
            ut_status::UT_NULL,
            format!("`{name}` must be an address, got null"),
        )
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let status = match &error {
            DeviceError::Value { .. } => ut_status::UT_VALUE,
            DeviceError::NoModel => ut_status::UT_NO_MODEL,
            DeviceError::Network(_) => ut_status::UT_NETWORK,
            DeviceError::Enrolment { .. } | DeviceError::Protocol(_) => ut_status::UT_REFUSED,
            DeviceError::KeyStore(_) | DeviceError::OtherKey | DeviceError::Entropy(_) => {
                ut_status::UT_KEY_STORE
            }
            DeviceError::Busy(_) => ut_status::UT_FOLDER_OPEN,
            _ => ut_status::UT_FILES,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Runs the body of a function of the interface. No panic leaves it, and a failure becomes the last error of the thread.
pub(crate) fn border(body: impl FnOnce() -> Result<(), Failure>) -> ut_status {
    // The state that a panic interrupts is behind a lock, which is poisoned and never used again.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        discard(payload);
        let message = "the library failed inside; close the handle and open it again";
        Err(Failure::new(ut_status::UT_PANIC, message))
    });
    match result {
        Ok(()) => ut_status::UT_OK,
        Err(failure) => {
            let status = failure.status;
            // During the end of a thread there is no place for the error any more.
            let _ = LAST.try_with(|last| last.replace(Some(failure)));
            status
        }
    }
}

/// A payload may panic when it is dropped, so it is kept.
fn discard(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}

/// Copies the last failure on this thread to `error`. A later success does not change it.
///
/// Returns `UT_OK`, or `UT_NULL` where `error` is null.
///
/// # Safety
/// `error` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_last_error(error: *mut ut_error) -> ut_status {
    if error.is_null() {
        return ut_status::UT_NULL;
    }
    let last = LAST.try_with(|last| last.borrow().clone()).ok().flatten();
    let mut found = ut_error {
        status: ut_status::UT_OK,
        message: room_for(),
    };
    if let Some(failure) = last {
        found.status = failure.status;
        fill(&mut found.message, &failure.message);
    }
    // SAFETY: the caller gives an address that is valid for writes, and it is not null.
    unsafe { error.write(found) };
    ut_status::UT_OK
}

/// Returns the name of a status, such as "UT_OK". The string is part of the library and is never freed. Returns NULL for other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn ut_status_name(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"UT_OK",
        1 => c"UT_NULL",
        2 => c"UT_UTF8",
        3 => c"UT_VALUE",
        4 => c"UT_HANDLE",
        5 => c"UT_BUSY",
        6 => c"UT_NO_MODEL",
        7 => c"UT_NETWORK",
        8 => c"UT_REFUSED",
        9 => c"UT_KEY_STORE",
        10 => c"UT_FILES",
        11 => c"UT_FOLDER_OPEN",
        12 => c"UT_PANIC",
        _ => return std::ptr::null(),
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::shown;

    fn last() -> (ut_status, String) {
        let mut error = ut_error {
            status: ut_status::UT_OK,
            message: room_for(),
        };
        // SAFETY: the address is that of a local value.
        assert_eq!(unsafe { ut_last_error(&raw mut error) }, ut_status::UT_OK);
        (error.status, shown(&error.message))
    }

    #[test]
    fn a_panic_ends_at_the_border_as_a_status() {
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                assert!(std::thread::panicking(), "the payload was dropped");
            }
        }
        assert_eq!(border(|| panic!("a secret")), ut_status::UT_PANIC);
        let (status, message) = last();
        assert_eq!(status, ut_status::UT_PANIC);
        assert!(!message.contains("secret"), "{message}");
        assert_eq!(border(|| std::panic::panic_any(Loud)), ut_status::UT_PANIC);
    }

    #[test]
    fn the_last_error_belongs_to_its_thread_and_survives_a_success() {
        let fails = || Err(Failure::new(ut_status::UT_VALUE, "a sentence"));
        let first = std::thread::spawn(move || {
            assert_eq!(last(), (ut_status::UT_OK, String::new()));
            assert_eq!(border(fails), ut_status::UT_VALUE);
            assert_eq!(border(|| Ok(())), ut_status::UT_OK);
            assert_eq!(last(), (ut_status::UT_VALUE, "a sentence".to_owned()));
        });
        first.join().unwrap();
        let other = std::thread::spawn(last).join().unwrap();
        assert_eq!(other, (ut_status::UT_OK, String::new()));
    }

    #[test]
    fn every_status_has_its_name() {
        let name = |status: c_int| {
            let name = ut_status_name(status);
            // SAFETY: a name is a constant that ends with a zero byte.
            (!name.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap())
        };
        for status in [
            ut_status::UT_OK,
            ut_status::UT_NULL,
            ut_status::UT_UTF8,
            ut_status::UT_VALUE,
            ut_status::UT_HANDLE,
            ut_status::UT_BUSY,
            ut_status::UT_NO_MODEL,
            ut_status::UT_NETWORK,
            ut_status::UT_REFUSED,
            ut_status::UT_KEY_STORE,
            ut_status::UT_FILES,
            ut_status::UT_FOLDER_OPEN,
            ut_status::UT_PANIC,
        ] {
            assert_eq!(name(status as c_int), Some(&*format!("{status:?}")));
        }
        assert_eq!((name(-1), name(13)), (None, None));
    }
}
