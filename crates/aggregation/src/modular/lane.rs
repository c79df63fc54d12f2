//! Arithmetic modulo `M` in lanes of 32 and 64 bits, at the speed of memory.

use undertone_simd::vectorised;

use super::Modulus;
use crate::error::{AggregationError, Result};

/// Lanes to write into.
#[doc(hidden)]
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: residues may be a client's own"
)]
pub enum Place<'a> {
    Narrow(&'a mut [u32]),
    Wide(&'a mut [u64]),
}

impl<'a> Place<'a> {
    /// The `count` lanes from index `start` on.
    pub(crate) fn part(self, start: usize, count: usize) -> Place<'a> {
        match self {
            Self::Narrow(lanes) => Place::Narrow(&mut lanes[start..][..count]),
            Self::Wide(lanes) => Place::Wide(&mut lanes[start..][..count]),
        }
    }
}

/// An unsigned integer that holds residues: `u32` or `u64`.
pub trait Lane: Copy + Into<u64> + sealed::Sealed {
    #[doc(hidden)]
    fn exceeds(residues: &[Self], modulus: Modulus) -> bool;
    #[doc(hidden)]
    fn add_to(place: Place<'_>, block: &[Self], modulus: Modulus);
    #[doc(hidden)]
    fn sub_from(place: Place<'_>, block: &[Self], modulus: Modulus);
}

pub(super) mod sealed {
    use super::Modulus;

    /// The arithmetic of one kind of lane, all residues below the modulus.
    pub trait Sealed: Sized {
        fn add(to: &mut [Self], from: &[Self], modulus: Modulus);
        fn sub(to: &mut [Self], from: &[Self], modulus: Modulus);
    }
}

use sealed::Sealed;

/// Refuses elements that are not below the modulus; `start` is the index of the first one.
pub(crate) fn check_residues<L: Lane>(modulus: Modulus, residues: &[L], start: usize) -> Result<()> {
    if !L::exceeds(residues, modulus) {
        return Ok(());
    }
    let place = residues.iter().position(|&x| x.into() >= modulus.get());
    Err(AggregationError::NotAResidue {
        index: start + place.unwrap_or_default(),
        modulus: modulus.get(),
    })
}

impl Sealed for u32 {
    fn add(to: &mut [u32], from: &[u32], modulus: Modulus) {
        let last = (modulus.get() - 1) as u32;
        if modulus.is_power_of_two() {
            add_masked_u32(to, from, last);
        } else {
            add_reduced_u32(to, from, last + 1);
        }
    }

    fn sub(to: &mut [u32], from: &[u32], modulus: Modulus) {
        let last = (modulus.get() - 1) as u32;
        if modulus.is_power_of_two() {
            sub_masked_u32(to, from, last);
        } else {
            sub_reduced_u32(to, from, last + 1);
        }
    }
}

impl Sealed for u64 {
    fn add(to: &mut [u64], from: &[u64], modulus: Modulus) {
        add_u64(to, from, modulus.get());
    }

    fn sub(to: &mut [u64], from: &[u64], modulus: Modulus) {
        sub_u64(to, from, modulus.get());
    }
}

impl Lane for u32 {
    fn exceeds(residues: &[u32], modulus: Modulus) -> bool {
        modulus.is_narrow() && any_above_u32(residues, (modulus.get() - 1) as u32)
    }

    fn add_to(place: Place<'_>, block: &[u32], modulus: Modulus) {
        match place {
            Place::Narrow(to) => u32::add(to, block, modulus),
            Place::Wide(to) => widened(to, block, modulus, u64::add),
        }
    }

    fn sub_from(place: Place<'_>, block: &[u32], modulus: Modulus) {
        match place {
            Place::Narrow(to) => u32::sub(to, block, modulus),
            Place::Wide(to) => widened(to, block, modulus, u64::sub),
        }
    }
}

impl Lane for u64 {
    fn exceeds(residues: &[u64], modulus: Modulus) -> bool {
        any_above_u64(residues, modulus.get() - 1)
    }

    fn add_to(place: Place<'_>, block: &[u64], modulus: Modulus) {
        match place {
            Place::Narrow(to) => narrowed(to, block, modulus, u32::add),
            Place::Wide(to) => u64::add(to, block, modulus),
        }
    }

    fn sub_from(place: Place<'_>, block: &[u64], modulus: Modulus) {
        match place {
            Place::Narrow(to) => narrowed(to, block, modulus, u32::sub),
            Place::Wide(to) => u64::sub(to, block, modulus),
        }
    }
}

/// Residues brought to another kind of lane at a time.
const CONVERTED: usize = 256;

fn widened(to: &mut [u64], block: &[u32], modulus: Modulus, combine: fn(&mut [u64], &[u64], Modulus)) {
    let mut wide = [0u64; CONVERTED];
    for (to, block) in to.chunks_mut(CONVERTED).zip(block.chunks(CONVERTED)) {
        wide.iter_mut().zip(block).for_each(|(wide, &x)| *wide = x.into());
        combine(to, &wide[..block.len()], modulus);
    }
}

fn narrowed(to: &mut [u32], block: &[u64], modulus: Modulus, combine: fn(&mut [u32], &[u32], Modulus)) {
    let mut narrow = [0u32; CONVERTED];
    for (to, block) in to.chunks_mut(CONVERTED).zip(block.chunks(CONVERTED)) {
        // Below a modulus of at most 2^32: nothing is cut off.
        narrow
            .iter_mut()
            .zip(block)
            .for_each(|(narrow, &x)| *narrow = x as u32);
        combine(to, &narrow[..block.len()], modulus);
    }
}

vectorised! {
    fn any_above_u32(residues: &[u32], last: u32) -> bool {
        residues.iter().fold(0, |top, &x| top.max(x)) > last
    }
}

vectorised! {
    fn any_above_u64(residues: &[u64], last: u64) -> bool {
        // The sign of last - x for x < 2^63, and the sign of x itself above.
        residues.iter().fold(0, |bad, &x| bad | x | last.wrapping_sub(x)) >> 63 != 0
    }
}

vectorised! {
    fn add_masked_u32(to: &mut [u32], from: &[u32], mask: u32) {
        to.iter_mut().zip(from).for_each(|(a, &b)| *a = a.wrapping_add(b) & mask);
    }
}

vectorised! {
    fn sub_masked_u32(to: &mut [u32], from: &[u32], mask: u32) {
        to.iter_mut().zip(from).for_each(|(a, &b)| *a = a.wrapping_sub(b) & mask);
    }
}

vectorised! {
    fn add_reduced_u32(to: &mut [u32], from: &[u32], modulus: u32) {
        for (a, &b) in to.iter_mut().zip(from) {
            // a + b - M, which may have wrapped below zero, as a + b may have wrapped above 2^32.
            let missing = modulus - b;
            let sum = a.wrapping_sub(missing);
            *a = sum.wrapping_add(if *a < missing { modulus } else { 0 });
        }
    }
}

vectorised! {
    fn sub_reduced_u32(to: &mut [u32], from: &[u32], modulus: u32) {
        for (a, &b) in to.iter_mut().zip(from) {
            let difference = a.wrapping_sub(b);
            *a = difference.wrapping_add(if *a < b { modulus } else { 0 });
        }
    }
}

vectorised! {
    fn add_u64(to: &mut [u64], from: &[u64], modulus: u64) {
        for (a, &b) in to.iter_mut().zip(from) {
            // Below 2^63 in either sign.
            let sum = (*a + b) as i64 - modulus as i64;
            *a = (sum + (modulus as i64 & sum >> 63)) as u64;
        }
    }
}

vectorised! {
    fn sub_u64(to: &mut [u64], from: &[u64], modulus: u64) {
        for (a, &b) in to.iter_mut().zip(from) {
            let difference = *a as i64 - b as i64;
            *a = (difference + (modulus as i64 & difference >> 63)) as u64;
        }
    }
}
