//! Handles: numbers that name open objects, so that a closed or invented one never reaches memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::failure::{Failure, ut_status};

/// The open objects of one kind. Numbers begin at 1 and are never used again.
pub(crate) struct Handles<T> {
    kind: &'static str,
    open: Mutex<(u64, BTreeMap<u64, Arc<T>>)>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            open: Mutex::new((0, BTreeMap::new())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<T>>)> {
        // No code of an object runs under this lock, so it is whole even after a panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an object and returns its handle.
    pub(crate) fn insert(&self, object: T) -> u64 {
        let mut open = self.lock();
        open.0 += 1;
        let handle = open.0;
        open.1.insert(handle, Arc::new(object));
        handle
    }

    /// The object of a handle.
    pub(crate) fn find(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let found = self.lock().1.get(&handle).cloned();
        found.ok_or_else(|| self.closed(handle))
    }

    /// Closes a handle. Its object lives on where a call still works with it.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let found = self.lock().1.remove(&handle);
        found.ok_or_else(|| self.closed(handle))
    }

    pub(crate) fn closed(&self, handle: u64) -> Failure {
        let message = format!("expected an open {}, got the handle {handle}", self.kind);
        Failure::new(ut_status::UT_HANDLE, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_open_once_and_its_number_never_returns() {
        let handles = Handles::new("thing");
        let (first, second) = (handles.insert('a'), handles.insert('b'));
        assert_ne!(first, second);
        assert_eq!(*handles.find(first).unwrap(), 'a');
        let kept = handles.remove(first).unwrap();
        let closed = handles.find(first).unwrap_err();
        assert_eq!(closed.status, ut_status::UT_HANDLE);
        assert_eq!(
            closed.message,
            format!("expected an open thing, got the handle {first}")
        );
        assert!(handles.remove(first).is_err() && handles.find(0).is_err());
        assert_eq!(*kept, 'a');
        assert!(handles.insert('c') > second);
    }
}
