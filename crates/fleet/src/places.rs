//! A limit for the trainings at one time: threads that wait for the service leave the cores to those that train.

use std::sync::{Condvar, Mutex, PoisonError};

/// Places that threads take and give back.
pub(crate) struct Places {
    free: Mutex<usize>,
    changed: Condvar,
}

/// A place that is taken. Dropping it gives it back.
pub(crate) struct Place<'p>(&'p Places);

impl Places {
    /// This number of free places.
    pub(crate) fn new(number: usize) -> Self {
        Self {
            free: Mutex::new(number),
            changed: Condvar::new(),
        }
    }

    /// Waits for a free place and takes it.
    pub(crate) fn take(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_threads_than_places_work_at_one_time_and_all_get_their_turn() {
        let (places, working, done) = (Places::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let place = places.take();
                        assert!(working.fetch_add(1, Ordering::SeqCst) < 2);
                        std::thread::yield_now();
                        working.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 300);
    }
}
