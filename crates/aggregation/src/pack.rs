//! Residues on the wire: dense, little-endian, as many bits each as the modulus needs.
//!
//! Element `i` is bits `i w .. (i + 1) w` of the bytes, bit `j` being bit `j % 8` of byte `j / 8`; what is left of the last
//! byte is zero. So there is exactly one encoding of a vector, and eight elements fill `w` whole bytes.

use undertone_simd::vectorised;

use crate::error::{AggregationError, Result, check_len};
use crate::modular::{Lanes, ModularVec, Modulus, Place, check_residues};

/// Elements that begin and end at a byte, whatever their width.
const GROUP: usize = 8;

/// Elements that are unpacked at a time where not the whole vector is: 8 or 16 KiB, which stay in the first cache.
const PIECE: usize = 1 << 11;

/// The widest element that one word holds together with up to seven bits of a neighbour.
const SINGLE_WORD: u32 = 57;

/// Bytes of `len` packed residues: `ceil(len * bits / 8)`.
///
/// # Errors
/// [`AggregationError::PackedLength`] where that overflows the address space.
///
/// # Example
/// ```
/// use undertone_aggregation::{Modulus, pack};
/// assert_eq!(pack::packed_len(Modulus::new(1000)?, 5)?, 7); // 50 bits
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
pub fn packed_len(modulus: Modulus, len: usize) -> Result<usize> {
    let bytes = (len as u128 * u128::from(modulus.bits())).div_ceil(8);
    usize::try_from(bytes).map_err(|_| AggregationError::PackedLength { len })
}

/// Packs a vector into bytes.
///
/// # Errors
/// The errors of [`packed_len`].
///
/// # Example
/// ```
/// use undertone_aggregation::{Modulus, ModularVec, pack};
/// let modulus = Modulus::new(1000)?;
/// let vector = ModularVec::from_residues(modulus, &[1u32, 999])?;
/// let bytes = pack::pack(&vector)?;
/// assert_eq!(bytes, [0b0000_0001, 0b1001_1100, 0b1111]);
/// assert!(pack::unpack(modulus, 2, &bytes)?.iter().eq([1, 999]));
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
pub fn pack(vector: &ModularVec) -> Result<Vec<u8>> {
    let mut bytes = vec![0; packed_len(vector.modulus(), vector.len())?];
    pack_into(vector, &mut bytes)?;
    Ok(bytes)
}

/// Packs a vector into memory of exactly the right length.
///
/// # Errors
/// [`AggregationError::Length`] for any other length.
pub fn pack_into(vector: &ModularVec, bytes: &mut [u8]) -> Result<()> {
    let bits = vector.modulus().bits();
    check_packed_len(vector.modulus(), vector.len(), bytes.len())?;
    match vector.lanes() {
        Lanes::Narrow(lanes) => pack_lanes(lanes, bits, bytes, pack_narrow),
        Lanes::Wide(lanes) if bits < SINGLE_WORD => pack_lanes(lanes, bits, bytes, pack_wide),
        Lanes::Wide(lanes) => pack_lanes(lanes, bits, bytes, pack_widest),
    }
    Ok(())
}

/// Unpacks `len` residues from `bytes`.
///
/// # Errors
/// [`AggregationError::Length`] unless there are exactly [`packed_len`] bytes (nothing is allocated then),
/// [`AggregationError::NotAResidue`] and [`AggregationError::Padding`] for bytes that no vector is packed to.
pub fn unpack(modulus: Modulus, len: usize, bytes: &[u8]) -> Result<ModularVec> {
    check_packed_len(modulus, len, bytes.len())?;
    let mut vector = ModularVec::zeros(modulus, len);
    unpack_into(bytes, &mut vector)?;
    Ok(vector)
}

/// [`unpack`] into a vector of the right modulus and length. What it held is lost; after an error it is zero.
///
/// # Errors
/// The errors of [`unpack`].
pub fn unpack_into(bytes: &[u8], vector: &mut ModularVec) -> Result<()> {
    let modulus = vector.modulus();
    check_packed_len(modulus, vector.len(), bytes.len())?;
    check_padding(modulus, vector.len(), bytes).inspect_err(|_| vector.clear())?;
    unpack_from(bytes, 0, modulus, vector.place());
    check_unpacked(modulus, vector.lanes(), 0).inspect_err(|_| vector.clear())
}

/// Checks that `bytes` are the packing of `len` residues, in memory of one piece.
///
/// # Errors
/// The errors of [`unpack`].
pub(crate) fn check(modulus: Modulus, len: usize, bytes: &[u8]) -> Result<()> {
    check_packed_len(modulus, len, bytes.len())?;
    check_padding(modulus, len, bytes)?;
    if modulus.is_power_of_two() {
        return Ok(());
    }
    let mut piece = ModularVec::zeros(modulus, PIECE.min(len));
    for start in (0..len).step_by(PIECE) {
        let count = PIECE.min(len - start);
        unpack_from(bytes, start, modulus, piece.place().part(0, count));
        check_unpacked(modulus, piece.lanes().part(0, count), start)?;
    }
    Ok(())
}

/// Adds the residues from index `first` on, a multiple of 8, to all of `block`. [`check`] has accepted the bytes.
pub(crate) fn add_checked(bytes: &[u8], first: usize, block: &mut ModularVec) {
    let (modulus, len) = (block.modulus(), block.len());
    let mut piece = ModularVec::zeros(modulus, PIECE.min(len));
    for start in (0..len).step_by(PIECE) {
        let count = PIECE.min(len - start);
        unpack_from(bytes, first + start, modulus, piece.place().part(0, count));
        block.add_checked_at(start, piece.lanes().part(0, count));
    }
}

/// Refuses bits after the last of `len` elements.
fn check_padding(modulus: Modulus, len: usize, bytes: &[u8]) -> Result<()> {
    let used = (len as u128 * u128::from(modulus.bits()) % 8) as u32;
    if let (1.., Some(last)) = (used, bytes.last())
        && last >> used != 0
    {
        let bit = used + (last >> used).trailing_zeros();
        return Err(AggregationError::Padding {
            byte: bytes.len() - 1,
            bit,
        });
    }
    Ok(())
}

/// Unpacks as many elements as there is place for, from the element `first` on, a multiple of [`GROUP`].
fn unpack_from(bytes: &[u8], first: usize, modulus: Modulus, place: Place<'_>) {
    let bits = modulus.bits();
    let bytes = &bytes[first / GROUP * bits as usize..];
    match place {
        Place::Narrow(lanes) => unpack_lanes(bytes, bits, lanes, unpack_narrow),
        Place::Wide(lanes) if bits <= SINGLE_WORD => unpack_lanes(bytes, bits, lanes, unpack_wide),
        Place::Wide(lanes) => unpack_lanes(bytes, bits, lanes, unpack_widest),
    }
}

/// Refuses unpacked elements that are no residues; `start` is the index of the first one.
fn check_unpacked(modulus: Modulus, lanes: Lanes<'_>, start: usize) -> Result<()> {
    // Any word of `bits` bits is a residue of a power of two.
    match lanes {
        _ if modulus.is_power_of_two() => Ok(()),
        Lanes::Narrow(lanes) => check_residues(modulus, lanes, start),
        Lanes::Wide(lanes) => check_residues(modulus, lanes, start),
    }
}

fn check_packed_len(modulus: Modulus, len: usize, got: usize) -> Result<()> {
    check_len("bytes of a packed vector", packed_len(modulus, len)?, got)
}

/// Bytes past its own that a kernel may touch for a group: the rest of the last word that it writes or reads.
const OVERHANG: usize = 16;

/// Runs `kernel` over all groups whose overhang is inside `bytes`, then over copies of the others.
fn pack_lanes<L: Copy + Default>(lanes: &[L], bits: u32, bytes: &mut [u8], kernel: fn(&[L], u32, &mut [u8])) {
    let width = bits as usize;
    let inside = (bytes.len().saturating_sub(OVERHANG) / width).min(lanes.len() / GROUP);
    let (now, later) = lanes.split_at(inside * GROUP);
    kernel(now, bits, bytes);
    for (group, out) in later.chunks(GROUP).zip(bytes[inside * width..].chunks_mut(width)) {
        let (mut elements, mut padded) = ([L::default(); GROUP], [0; 64 + OVERHANG]);
        elements[..group.len()].copy_from_slice(group);
        kernel(&elements, bits, &mut padded);
        out.copy_from_slice(&padded[..out.len()]);
    }
}

/// The way back of [`pack_lanes`].
fn unpack_lanes<L: Copy + Default>(
    bytes: &[u8],
    bits: u32,
    lanes: &mut [L],
    kernel: fn(&[u8], u32, &mut [L]),
) {
    let width = bits as usize;
    let inside = (bytes.len().saturating_sub(OVERHANG) / width).min(lanes.len() / GROUP);
    let (now, later) = lanes.split_at_mut(inside * GROUP);
    kernel(bytes, bits, now);
    for (out, group) in later.chunks_mut(GROUP).zip(bytes[inside * width..].chunks(width)) {
        let (mut elements, mut padded) = ([L::default(); GROUP], [0; 64 + OVERHANG]);
        padded[..group.len()].copy_from_slice(group);
        kernel(&padded, bits, &mut elements);
        out.copy_from_slice(&elements[..out.len()]);
    }
}

/// Defines the two kernels of one kind of lane: whole groups, through words of one type.
macro_rules! kernels {
    ($pack:ident, $unpack:ident, $lane:ty, $word:ty) => {
        vectorised! {
            fn $pack(lanes: &[$lane], bits: u32, bytes: &mut [u8]) {
                const BYTES: usize = size_of::<$word>();
                for (index, group) in lanes.as_chunks::<GROUP>().0.iter().enumerate() {
                    let out = &mut bytes[index * bits as usize..][..bits as usize + OVERHANG];
                    // Whole bytes leave the word after every element; the zeros stored behind them are overwritten by the
                    // next element or group.
                    let (mut word, mut filled, mut byte): ($word, u32, usize) = (0, 0, 0);
                    for &element in group {
                        word |= <$word>::from(element) << filled;
                        if let Some(to) = out.get_mut(byte..byte + BYTES) {
                            to.copy_from_slice(&word.to_le_bytes());
                        }
                        filled += bits;
                        byte += (filled / 8) as usize;
                        word >>= filled & !7;
                        filled %= 8;
                    }
                }
            }
        }
        vectorised! {
            fn $unpack(bytes: &[u8], bits: u32, lanes: &mut [$lane]) {
                const BYTES: usize = size_of::<$word>();
                let mask = <$word>::MAX >> (<$word>::BITS - bits);
                for (index, group) in lanes.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
                    let from = &bytes[index * bits as usize..][..bits as usize + OVERHANG];
                    for (place, element) in group.iter_mut().enumerate() {
                        let bit = place * bits as usize;
                        let mut word = [0; BYTES];
                        if let Some(from) = from.get(bit / 8..bit / 8 + BYTES) {
                            word.copy_from_slice(from);
                        }
                        *element = (<$word>::from_le_bytes(word) >> (bit % 8) & mask) as $lane;
                    }
                }
            }
        }
    };
}

kernels!(pack_narrow, unpack_narrow, u32, u64);
kernels!(pack_wide, unpack_wide, u64, u64);
kernels!(pack_widest, unpack_widest, u64, u128);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, bit by bit.
    fn reference(values: &[u64], bits: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; (values.len() * bits as usize).div_ceil(8)];
        for (i, value) in values.iter().enumerate() {
            for j in 0..bits as usize {
                let bit = i * bits as usize + j;
                bytes[bit / 8] |= ((value >> j & 1) as u8) << (bit % 8);
            }
        }
        bytes
    }

    #[test]
    fn every_width_is_packed_as_the_reference_says() {
        let mut state = 1u64;
        let mut word = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        for bits in 1..=62 {
            // A power of two, and where there is one a modulus of the same width that is none.
            for m in [1u64 << bits, (1u64 << bits) - 1] {
                let Ok(modulus) = Modulus::new(m).map_err(|_| ()) else {
                    continue;
                };
                for len in [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 257] {
                    let values: Vec<u64> = (0..len)
                        .map(|i| if i % 5 == 0 { m - 1 } else { word() % m })
                        .collect();
                    let vector = ModularVec::from_residues(modulus, &values).unwrap();
                    let bytes = pack(&vector).unwrap();
                    assert_eq!(bytes, reference(&values, modulus.bits()), "{m} {len}");
                    assert!(
                        unpack(modulus, len, &bytes).unwrap().iter().eq(values),
                        "{m} {len}"
                    );
                }
            }
        }
    }

    #[test]
    fn lengths_are_exact() {
        let modulus = Modulus::new(1000).unwrap();
        let bytes = [0; 8];
        for (len, right) in [(0, 0), (1, 2), (4, 5), (5, 7), (6, 8)] {
            for got in 0..bytes.len() {
                assert_eq!(
                    unpack(modulus, len, &bytes[..got]).is_ok(),
                    got == right,
                    "{len} {got}"
                );
            }
        }
        let message = unpack(modulus, 4, &bytes).unwrap_err().to_string();
        assert_eq!(message, "bytes of a packed vector: expected 5 values, got 8");
        // Refused before anything is allocated.
        assert!(unpack(modulus, usize::MAX, &bytes).is_err());
        let mut short = [0; 4];
        let vector = ModularVec::zeros(modulus, 4);
        assert!(pack_into(&vector, &mut short).is_err());
    }

    #[test]
    fn what_no_vector_is_packed_to() {
        for m in [1000u64, (1 << 40) - 5, (1 << 60) - 5] {
            let modulus = Modulus::new(m).unwrap();
            let bits = modulus.bits();
            for bad in [0, 3, 8, 29] {
                let mut values = vec![0u64; 30];
                values[bad] = m;
                let message = unpack(modulus, 30, &reference(&values, bits))
                    .unwrap_err()
                    .to_string();
                assert_eq!(
                    message,
                    format!("element at index {bad} is not below the modulus {m}")
                );
            }
        }
        let modulus = Modulus::new(1000).unwrap();
        for bit in 2..8 {
            let mut bytes = vec![0; 7];
            bytes[6] = 1 << bit;
            let message = unpack(modulus, 5, &bytes).unwrap_err().to_string();
            assert!(message.contains(&format!("bit {bit} of byte 6")), "{message}");
        }
        let mut vector = ModularVec::from_residues(modulus, &[1u32; 5]).unwrap();
        assert!(unpack_into(&[255; 7], &mut vector).is_err());
        assert!(vector.iter().all(|x| x == 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_the_only_encoding(
            m in prop_oneof![2u64..=70_000, 2u64..=Modulus::MAX], len in 0usize..40,
            bytes in prop::collection::vec(any::<u8>(), 0..330),
        ) {
            let modulus = Modulus::new(m).unwrap();
            let expected = packed_len(modulus, len).unwrap();
            let bytes = &bytes[..bytes.len().min(expected)];
            if let Ok(vector) = unpack(modulus, len, bytes) {
                prop_assert_eq!(pack(&vector).unwrap(), bytes);
            }
        }
    }
}
