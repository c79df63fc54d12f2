//! Vectors of integers modulo `M`: what clients send to a secure sum and what comes out of it.

mod lane;
mod modulus;
mod sum;

pub use lane::Lane;
pub(crate) use lane::{Place, check_residues};
pub use modulus::Modulus;
pub use sum::ModularSum;

use crate::error::{AggregationError, Result, check_len, check_modulus};
use lane::sealed::Sealed;
use zeroize::Zeroize;

/// Residues in the lanes that their modulus asks for, borrowed.
#[derive(Clone, Copy)]
pub(crate) enum Lanes<'a> {
    /// Lanes of a modulus up to `2^32`.
    Narrow(&'a [u32]),
    /// Lanes of a larger modulus.
    Wide(&'a [u64]),
}

impl<'a> Lanes<'a> {
    /// The `count` lanes from index `start` on.
    pub(crate) fn part(self, start: usize, count: usize) -> Lanes<'a> {
        match self {
            Self::Narrow(lanes) => Lanes::Narrow(&lanes[start..][..count]),
            Self::Wide(lanes) => Lanes::Wide(&lanes[start..][..count]),
        }
    }
}

enum Owned {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

/// A vector of residues, every one below its [`Modulus`].
///
/// Addition and subtraction run in place and at the speed of memory. A vector can be read: it has to be masked and sent.
/// PRIVACY: so it is as secret as what is in it; it has no `Debug` of its contents and is not serialised.
///
/// # Example
/// ```
/// use undertone_aggregation::{Modulus, ModularVec};
/// let modulus = Modulus::new(10)?;
/// let mut sum = ModularVec::from_residues(modulus, &[7u32, 2])?;
/// sum.add(&ModularVec::from_residues(modulus, &[5u32, 1])?)?;
/// assert_eq!(sum.iter().collect::<Vec<_>>(), [2, 3]);
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
pub struct ModularVec {
    modulus: Modulus,
    lanes: Owned,
}

impl ModularVec {
    /// `len` zeros.
    #[must_use]
    pub fn zeros(modulus: Modulus, len: usize) -> Self {
        let lanes = if modulus.is_narrow() {
            Owned::Narrow(vec![0; len])
        } else {
            Owned::Wide(vec![0; len])
        };
        Self { modulus, lanes }
    }

    /// A copy of `residues`.
    ///
    /// # Errors
    /// [`AggregationError::NotAResidue`] names the first element that is not below the modulus.
    pub fn from_residues<L: Lane>(modulus: Modulus, residues: &[L]) -> Result<Self> {
        let mut vector = Self::zeros(modulus, residues.len());
        vector.add_at(0, residues)?;
        Ok(vector)
    }

    /// The modulus.
    #[must_use]
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// Number of residues.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.lanes {
            Owned::Narrow(lanes) => lanes.len(),
            Owned::Wide(lanes) => lanes.len(),
        }
    }

    /// Returns `true` if the vector has no residues.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The residues in their lanes.
    pub(crate) fn lanes(&self) -> Lanes<'_> {
        match &self.lanes {
            Owned::Narrow(lanes) => Lanes::Narrow(lanes),
            Owned::Wide(lanes) => Lanes::Wide(lanes),
        }
    }

    /// The residues one by one, for checks and small vectors.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (narrow, wide): (&[u32], &[u64]) = match self.lanes() {
            Lanes::Narrow(lanes) => (lanes, &[]),
            Lanes::Wide(lanes) => (&[], lanes),
        };
        narrow.iter().map(|&x| u64::from(x)).chain(wide.iter().copied())
    }

    /// Sets every residue to zero, so that the memory can serve again.
    pub fn clear(&mut self) {
        match &mut self.lanes {
            Owned::Narrow(lanes) => lanes.fill(0),
            Owned::Wide(lanes) => lanes.fill(0),
        }
    }

    /// `self += other` modulo `M`.
    ///
    /// # Errors
    /// Another modulus or length; nothing is added then.
    pub fn add(&mut self, other: &ModularVec) -> Result<()> {
        self.combine(other, u32::add, u64::add)
    }

    /// `self -= other` modulo `M`.
    ///
    /// # Errors
    /// Another modulus or length; nothing is subtracted then.
    pub fn sub(&mut self, other: &ModularVec) -> Result<()> {
        self.combine(other, u32::sub, u64::sub)
    }

    /// Adds a block of residues to those from index `start` on: masks are made and added block by block.
    ///
    /// # Errors
    /// A block that reaches past the end, or an element that is not below the modulus; nothing is added then.
    pub fn add_at<L: Lane>(&mut self, start: usize, block: &[L]) -> Result<()> {
        self.combine_at(start, block, L::add_to)
    }

    /// Subtracts a block of residues from those from index `start` on.
    ///
    /// # Errors
    /// As [`add_at`](Self::add_at).
    pub fn sub_at<L: Lane>(&mut self, start: usize, block: &[L]) -> Result<()> {
        self.combine_at(start, block, L::sub_from)
    }

    /// [`add_at`](Self::add_at) for lanes that the caller has checked and that end inside the vector.
    pub(crate) fn add_checked_at(&mut self, start: usize, lanes: Lanes<'_>) {
        let modulus = self.modulus;
        match lanes {
            Lanes::Narrow(lanes) => u32::add_to(self.place().part(start, lanes.len()), lanes, modulus),
            Lanes::Wide(lanes) => u64::add_to(self.place().part(start, lanes.len()), lanes, modulus),
        }
    }

    fn combine_at<L: Lane>(
        &mut self,
        start: usize,
        block: &[L],
        combine: fn(Place<'_>, &[L], Modulus),
    ) -> Result<()> {
        let (len, end) = (self.len(), start.saturating_add(block.len()));
        if end > len {
            return Err(AggregationError::Length {
                what: "end of the block of residues",
                expected: len,
                got: end,
            });
        }
        check_residues(self.modulus, block, start)?;
        let place = match &mut self.lanes {
            Owned::Narrow(lanes) => Place::Narrow(&mut lanes[start..end]),
            Owned::Wide(lanes) => Place::Wide(&mut lanes[start..end]),
        };
        combine(place, block, self.modulus);
        Ok(())
    }

    fn combine(
        &mut self,
        other: &ModularVec,
        narrow: fn(&mut [u32], &[u32], Modulus),
        wide: fn(&mut [u64], &[u64], Modulus),
    ) -> Result<()> {
        check_modulus(self.modulus.get(), other.modulus.get())?;
        check_len("vector of residues", self.len(), other.len())?;
        match (&mut self.lanes, &other.lanes) {
            (Owned::Narrow(to), Owned::Narrow(from)) => narrow(to, from, self.modulus),
            (Owned::Wide(to), Owned::Wide(from)) => wide(to, from, self.modulus),
            // Equal moduli have equal lanes.
            (Owned::Narrow(_), Owned::Wide(_)) | (Owned::Wide(_), Owned::Narrow(_)) => {}
        }
        Ok(())
    }

    /// Sets every residue to zero before the memory is given back. The compiler cannot leave it out, as it can [`clear`](Self::clear).
    pub(crate) fn wipe(&mut self) {
        match &mut self.lanes {
            Owned::Narrow(lanes) => lanes.as_mut_slice().zeroize(),
            Owned::Wide(lanes) => lanes.as_mut_slice().zeroize(),
        }
    }

    /// The lanes to write, for encoders and unpacking in this crate. The caller keeps them below the modulus.
    pub(crate) fn place(&mut self) -> Place<'_> {
        match &mut self.lanes {
            Owned::Narrow(lanes) => Place::Narrow(lanes),
            Owned::Wide(lanes) => Place::Wide(lanes),
        }
    }
}

impl std::fmt::Debug for ModularVec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: residues may be a client's own update or a sum without noise.
        f.debug_struct("ModularVec")
            .field("modulus", &self.modulus.get())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_message;
    use proptest::prelude::*;

    fn modulus(value: u64) -> Modulus {
        Modulus::new(value).unwrap()
    }

    #[test]
    fn a_modulus_has_its_bits_and_lanes() {
        let check = |m: u64, bits, narrow| {
            assert_eq!((modulus(m).bits(), modulus(m).is_narrow()), (bits, narrow), "{m}");
        };
        check(2, 1, true);
        check(3, 2, true);
        check(4, 2, true);
        check(5, 3, true);
        check((1 << 32) - 1, 32, true);
        check(1 << 32, 32, true);
        check((1 << 32) + 1, 33, false);
        check(1 << 62, 62, false);
        for refused in [0, 1, (1 << 62) + 1, u64::MAX] {
            let message = Modulus::new(refused).unwrap_err().to_string();
            assert!(message.contains(&refused.to_string()), "{message}");
        }
    }

    /// Any modulus, with the edges where lanes change and reductions wrap made likely.
    fn moduli() -> impl Strategy<Value = u64> {
        prop_oneof![
            2u64..=Modulus::MAX,
            (1u32..=62).prop_map(|bits| 1 << bits),
            (2u32..62, 0u64..7).prop_map(|(bits, off)| ((1 << bits) + off).saturating_sub(3).max(2)),
        ]
    }

    proptest! {
        #[test]
        fn arithmetic_is_that_of_wide_integers(
            m in moduli(),
            pairs in prop::collection::vec((any::<u64>(), any::<u64>(), 0u8..4), 0..600),
        ) {
            // The largest residues, zero and anything in between.
            let edge = |x: u64, kind: u8, at: u8| if kind == at { m - 1 } else if kind == 3 { 0 } else { x % m };
            let (a, b): (Vec<u64>, Vec<u64>) =
                pairs.iter().map(|&(a, b, kind)| (edge(a, kind, 1), edge(b, kind / 2, 1))).unzip();
            let vector = |x: &[u64]| ModularVec::from_residues(modulus(m), x).unwrap();
            let want = |f: &dyn Fn(u128, u128) -> u128| -> Vec<u64> {
                a.iter().zip(&b).map(|(&a, &b)| (f(a.into(), b.into()) % u128::from(m)) as u64).collect()
            };
            let wide = u128::from(m);
            let mut sum = vector(&a);
            sum.add(&vector(&b)).unwrap();
            prop_assert_eq!(sum.iter().collect::<Vec<_>>(), want(&|a, b| a + b));
            let mut difference = vector(&a);
            difference.sub(&vector(&b)).unwrap();
            prop_assert_eq!(difference.iter().collect::<Vec<_>>(), want(&|a, b| a + wide - b));
            // Blocks of either lane, somewhere inside.
            let start = a.len() / 3;
            let mut place = vector(&a);
            place.sub_at(start, &b[start..]).unwrap();
            place.add_at(start, &b[start..]).unwrap();
            if m <= 1 << 32 {
                let narrow: Vec<u32> = b.iter().map(|&x| x as u32).collect();
                place.add_at(start, &narrow[start..]).unwrap();
                place.sub_at(start, &narrow[start..]).unwrap();
            }
            prop_assert_eq!(place.iter().collect::<Vec<_>>(), a);
        }
    }

    #[test]
    fn narrow_blocks_fit_wide_vectors() {
        let m = modulus((1 << 40) + 1);
        let mut vector = ModularVec::from_residues(m, &[1u64 << 40; 700]).unwrap();
        vector.add_at(1, &[u32::MAX; 600]).unwrap();
        let got: Vec<u64> = vector.iter().collect();
        assert_eq!(
            (got[0], got[1], got[600], got[601]),
            (1 << 40, (1 << 32) - 2, (1 << 32) - 2, 1 << 40)
        );
        vector.sub_at(1, &[u32::MAX; 600]).unwrap();
        assert!(vector.iter().all(|x| x == 1 << 40));
    }

    #[test]
    fn refusals_change_nothing() {
        let mut vector = ModularVec::from_residues(modulus(10), &[1u32, 2, 3]).unwrap();
        let zeros = |m, len| ModularVec::zeros(modulus(m), len);
        check_message(vector.add_at(1, &[0u32, 10]), "index 2");
        check_message(vector.add_at(1, &[0u64, u64::MAX]), "index 2");
        check_message(vector.sub_at(2, &[0u32, 1]), "expected 3 values, got 4");
        check_message(vector.add_at(usize::MAX, &[0u32]), "expected 3 values");
        let moduli = "residues modulo 10, got residues modulo 11";
        check_message(vector.add(&zeros(11, 3)), moduli);
        check_message(vector.sub(&zeros(10, 2)), "expected 3 values, got 2");
        assert_eq!(vector.iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(ModularVec::from_residues(modulus(1 << 62), &[1u64 << 62]).is_err());
        assert!(ModularVec::from_residues(modulus(1 << 32), &[1u64 << 32]).is_err());
    }

    #[test]
    fn debug_shows_no_residue() {
        let vector = ModularVec::from_residues(modulus(1000), &[777u32]).unwrap();
        assert_eq!(format!("{vector:?}"), "ModularVec { modulus: 1000, len: 1, .. }");
    }
}
