//! Buffers that are used again.
//!
//! Transforms are long and few: handing out and clearing fresh pages for each of them takes the system longer than the
//! transform itself.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use realfft::num_complex::Complex64;

/// No more buffers of a kind are kept, and no longer ones: a few megabytes in all, but for the largest compositions.
const MAX_KEPT: usize = 16;
const LONGEST_KEPT: usize = 1 << 19;

/// Buffers of one kind that wait for their next use.
pub(crate) struct Pool<T>(Mutex<Vec<Vec<T>>>);

/// An element type of buffers.
pub(crate) trait Pooled: Copy + Default + 'static {
    /// The pool of its kind.
    fn pool() -> &'static Pool<Self>;
}

impl Pooled for f64 {
    fn pool() -> &'static Pool<Self> {
        static POOL: Pool<f64> = Pool(Mutex::new(Vec::new()));
        &POOL
    }
}

impl Pooled for Complex64 {
    fn pool() -> &'static Pool<Self> {
        static POOL: Pool<Complex64> = Pool(Mutex::new(Vec::new()));
        &POOL
    }
}

/// A buffer, which goes back to its pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer<T: Pooled> {
    /// Elements; their number is the largest length that was ever requested of this buffer.
    values: Vec<T>,
    length: usize,
}

impl<T: Pooled> Buffer<T> {
    /// A buffer of `length` elements that hold whatever was left there.
    pub(crate) fn new(length: usize) -> Self {
        let mut pool = T::pool().0.lock().unwrap_or_else(PoisonError::into_inner);
        // The shortest that is long enough, else the longest.
        let fit = |values: &Vec<T>| match values.len() {
            held if held >= length => (0, held),
            held => (1, usize::MAX - held),
        };
        let best = (0..pool.len()).min_by_key(|&index| fit(&pool[index]));
        let mut values = best.map_or_else(Vec::new, |index| pool.swap_remove(index));
        drop(pool);
        if values.len() < length {
            values.resize(length, T::default());
        }
        Self { values, length }
    }

    /// A buffer of `length` zeros.
    pub(crate) fn zeros(length: usize) -> Self {
        let mut buffer = Self::new(length);
        buffer.fill(T::default());
        buffer
    }

    /// Keeps the elements from `first` up to `end`.
    pub(crate) fn keep(&mut self, first: usize, end: usize) {
        self.values.copy_within(first..end, 0);
        self.length = end - first;
    }
}

impl<T: Pooled> From<&[T]> for Buffer<T> {
    fn from(values: &[T]) -> Self {
        let mut buffer = Self::new(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl<T: Pooled> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T: Pooled> Drop for Buffer<T> {
    fn drop(&mut self) {
        let mut pool = T::pool().0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < MAX_KEPT && self.values.len() <= LONGEST_KEPT {
            pool.push(std::mem::take(&mut self.values));
        }
    }
}

impl<T: Pooled> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.length]
    }
}

impl<T: Pooled> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_what_was_put_there_whatever_they_held() {
        drop(Buffer::from([7.0; 40].as_slice()));
        assert!(Buffer::<f64>::zeros(30).iter().all(|value| *value == 0.0));
        let mut buffer = Buffer::from([1.0, 2.0, 3.0, 4.0].as_slice());
        buffer.keep(1, 3);
        assert_eq!(*buffer.clone(), [2.0, 3.0]);
        buffer.keep(0, 0);
        assert!(buffer.is_empty());
    }
}
