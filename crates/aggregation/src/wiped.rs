//! Buffers of updates: vectors that are cleared when they are dropped, and their form as bytes.

use std::borrow::Cow;
use std::hint::black_box;
use std::ops::{Deref, DerefMut};

use bytemuck::{cast_slice, try_cast_slice};

/// A vector that is cleared when it is dropped, with all of its capacity.
///
/// It is cleared as fast as memory can be written. Clearing one value after another, as for keys, would cost more than the addition
/// of an update to its sum. A vector that grows leaves a copy behind, so a caller takes its capacity at once.
///
/// # Example
/// ```
/// use undertone_aggregation::Wiped;
/// let mut update = Wiped::from(vec![0.5f32, -0.25]);
/// update.wipe();
/// assert!(update.is_empty() && update.capacity() >= 2);
/// ```
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds an update")]
pub struct Wiped<T: Copy + Default>(Vec<T>);

impl<T: Copy + Default> Wiped<T> {
    /// An empty vector with room for this number of values.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Clears the values and the spare capacity, which stays.
    pub fn wipe(&mut self) {
        let capacity = self.0.capacity();
        self.0.clear();
        self.0.resize(capacity, T::default());
        // Keeps the compiler from leaving out writes that nothing reads.
        black_box(self.0.as_mut_slice());
        self.0.clear();
    }
}

impl<T: Copy + Default> Drop for Wiped<T> {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl<T: Copy + Default> Default for Wiped<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + Default> From<Vec<T>> for Wiped<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T: Copy + Default> Deref for Wiped<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Copy + Default> DerefMut for Wiped<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

/// An update as it travels: little-endian `f32` values, cleared when they are dropped. Nothing is copied to make it.
#[derive(Clone, Default)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds an update")]
pub struct UpdateBytes(Wiped<f32>);

impl UpdateBytes {
    /// The bytes of an update.
    #[must_use]
    pub fn new(mut update: Wiped<f32>) -> Self {
        // Nothing to do on a little-endian machine.
        update
            .iter_mut()
            .for_each(|value| *value = f32::from_bits(value.to_bits().to_le()));
        Self(update)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        cast_slice(&self.0)
    }
}

/// The values of an update in bytes that travelled; a remainder of fewer than four bytes is left out.
///
/// They are the bytes themselves where these stand in the order and at a place that the machine can read.
pub struct Values<'b>(Cow<'b, [f32]>);

impl<'b> Values<'b> {
    /// Reads little-endian values.
    #[must_use]
    pub fn read(bytes: &'b [u8]) -> Self {
        let (values, _) = bytes.as_chunks::<4>();
        let in_place = match cfg!(target_endian = "little") {
            true => try_cast_slice(values.as_flattened()).ok(),
            false => None,
        };
        Self(in_place.map_or_else(
            || values.iter().map(|value| f32::from_le_bytes(*value)).collect(),
            Cow::Borrowed,
        ))
    }
}

impl std::fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: the values are of one person.
        f.debug_struct("Values")
            .field("len", &self.0.len())
            .finish_non_exhaustive()
    }
}

impl Deref for Values<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl Drop for Values<'_> {
    fn drop(&mut self) {
        if let Cow::Owned(values) = &mut self.0 {
            drop(Wiped::from(std::mem::take(values)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wiped_vector_holds_nothing_within_its_capacity() {
        let mut values = Wiped::from(vec![7u8; 100]);
        values.truncate(10);
        values.wipe();
        let capacity = values.capacity();
        assert!(values.is_empty() && capacity >= 100);
        // The capacity was written, so a longer vector over it has no old value.
        values.resize(capacity, 0);
        assert!(values.iter().all(|value| *value == 0));
    }

    #[test]
    fn updates_come_back_from_their_bytes_at_any_place() {
        let update: Vec<f32> = vec![0.5, -0.0, f32::MIN_POSITIVE, f32::INFINITY, 1e-40, -3.25];
        let bytes = UpdateBytes::new(update.clone().into());
        let expected: Vec<u8> = update.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(bytes.as_bytes(), expected);
        for shift in 0..5 {
            let mut moved = vec![9; shift];
            moved.extend_from_slice(bytes.as_bytes());
            moved.extend_from_slice(&[1, 2, 3][..shift % 4]);
            let read = Values::read(&moved[shift..]);
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            assert_eq!(bits(&read), bits(&update), "{shift}");
        }
        assert!(Values::read(&[1, 2, 3]).is_empty());
    }
}
