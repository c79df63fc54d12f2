//! The self-test of a machine: its kernels against integers that the host computes by plain arithmetic of 128 bits.

use crate::error::{GpuError, Result};
use crate::machine::{Machine, Span};

/// Values of a test in each slot: three rows of 700, and gaps of 5 between them that no kernel may touch.
const ROWS: usize = 3;
const COLS: usize = 700;
const STRIDE: usize = 705;
const SLOT: usize = 2130;
const OFFSET: usize = 11;

/// Floats at the ends of every rule: zeros, subnormals, one step of the grid and less, the largest `q` without halving, and the
/// largest floats.
const EDGES: [f32; 14] = [
    0.0,
    -0.0,
    1e-45,
    -1.1e-38,
    f32::MIN_POSITIVE,
    9.094_947e-13,
    -9.094_946e-13,
    1.818_989_4e-12,
    -4_194_303.8,
    4_194_304.0,
    1.000_000_1,
    -0.333_333_34,
    f32::MAX,
    -f32::MAX,
];

/// Runs each kernel of a machine on known inputs, and compares all words with the integers of the host.
///
/// Slots hold ordinary values, values up to the edge of the grid, values up to the largest float, and values that are not finite.
/// The machine of a GPU does this when it is opened.
///
/// # Errors
/// [`GpuError::SelfTest`] names the first kernel whose integers are wrong. The errors of the machine.
///
/// # Example
/// ```
/// undertone_gpu_sum::self_test(&undertone_gpu_sum::Emulator::default())?;
/// # Ok::<(), undertone_gpu_sum::GpuError>(())
/// ```
pub fn self_test<M: Machine>(machine: &M) -> Result<()> {
    let slots: Vec<Vec<f32>> = [6, 10, EDGES.len()].map(slot).into();
    let mut broken = slot(EDGES.len());
    broken[OFFSET + STRIDE + 3] = f32::NAN;
    broken[OFFSET + 2 * STRIDE] = f32::NEG_INFINITY;
    let slots = [slots, vec![broken]].concat();
    let span = Span {
        slot_len: SLOT as u64,
        offset: OFFSET as u64,
        cols: COLS as u64,
        row_stride: STRIDE as u64,
        count: (ROWS * COLS) as u64,
        slots: slots.len() as u32,
        groups: 2,
        group: 1,
        unused: 0,
    };
    let bits: Vec<u32> = slots.iter().flatten().map(|value| value.to_bits()).collect();
    let mut values = machine.zeros::<u32>(bits.len())?;
    machine.write(&mut values, 0, &bits)?;
    let places = 2 * slots.len();

    let expected: Vec<u32> = slots.iter().flat_map(|slot| [0, largest(slot)]).collect();
    let mut found = machine.zeros::<u32>(places)?;
    machine.largest(span, &values, &mut found)?;
    let mut got = vec![u32::MAX; places];
    machine.read(&found, 0, &mut got)?;
    same("largest", &expected, &got)?;

    // What is there is added to, in the group of the span alone.
    let start: Vec<u64> = (0..4 * places as u64).collect();
    let mut limbs = machine.zeros::<u64>(4 * places)?;
    machine.write(&mut limbs, 0, &start)?;
    machine.squares(span, &values, &found, &mut limbs)?;
    let mut expected = start;
    for (place, slot) in slots.iter().enumerate() {
        let halvings = halvings(largest(slot));
        for at in at_places() {
            let square = u128::from(magnitude(slot[at], halvings)).pow(2);
            for digit in 0..4 {
                expected[4 * (2 * place + 1) + digit] += (square >> (32 * digit)) as u64 & 0xffff_ffff;
            }
        }
    }
    let mut got = vec![u64::MAX; 4 * places];
    machine.read(&limbs, 0, &mut got)?;
    same("squares", &expected, &got)?;

    // The slot that is not finite has a factor of zero, as the host gives it.
    let factors = [1 << 30, 999_999_937, 3, 0];
    let halvings: Vec<u32> = slots.iter().map(|slot| halvings(largest(slot))).collect();
    let words: Vec<u32> = (0..slots.len())
        .flat_map(|slot| [7, 7, factors[slot], halvings[slot]])
        .collect();
    let mut on_machine = machine.zeros::<u32>(words.len())?;
    machine.write(&mut on_machine, 0, &words)?;
    let start: Vec<u64> = (0..SLOT as u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    let mut sum = machine.zeros::<u64>(SLOT)?;
    machine.write(&mut sum, 0, &start)?;
    machine.add_bounded(span, &values, &on_machine, &mut sum)?;
    let mut expected = start;
    for (slot, (&factor, &halvings)) in slots.iter().zip(factors.iter().zip(&halvings)) {
        for at in at_places().filter(|_| factor > 0) {
            expected[at] = expected[at].wrapping_add(scaled(slot[at], factor, halvings) as u64);
        }
    }
    let mut got = vec![u64::MAX; SLOT];
    machine.read(&sum, 0, &mut got)?;
    same("add_bounded", &expected, &got)
}

/// Values that repeat the first edges, with gaps of NaN between the rows. Their mantissas differ from place to place.
fn slot(edges: usize) -> Vec<f32> {
    let mut slot = vec![f32::NAN; SLOT];
    for (i, at) in at_places().enumerate() {
        let edge = EDGES[i % edges];
        // Some low bits of the edge change, and never its exponent.
        let mixed = (i as u32).wrapping_mul(0x9e37_79b1) >> 12 & 0x7f_ffff;
        slot[at] = match i % 3 {
            0 => edge,
            _ => f32::from_bits(edge.to_bits() & !0x7f_ffff | mixed),
        };
    }
    slot
}

/// The places of the span in a slot.
fn at_places() -> impl Iterator<Item = usize> {
    (0..ROWS).flat_map(|row| (0..COLS).map(move |col| OFFSET + row * STRIDE + col))
}

fn largest(slot: &[f32]) -> u32 {
    let bits = at_places().map(|at| slot[at].to_bits() & 0x7fff_ffff);
    bits.max().unwrap_or_default()
}

fn halvings(largest: u32) -> u32 {
    (largest >> 23).saturating_sub(148)
}

/// `floor(|value| 2^(40 - halvings))`, from mantissa and exponent.
fn magnitude(value: f32, halvings: u32) -> u64 {
    let bits = value.to_bits() & 0x7fff_ffff;
    let (exponent, fraction) = (bits >> 23, u128::from(bits & 0x7f_ffff));
    let (mantissa, exponent) = match exponent {
        0 => (fraction, 1),
        _ => (fraction | 1 << 23, exponent),
    };
    // The value is mantissa 2^(exponent - 150).
    let shift = exponent as i32 - 150 + 40 - halvings as i32;
    match shift {
        0.. => (mantissa << shift) as u64,
        _ => mantissa.checked_shr(shift.unsigned_abs()).unwrap_or(0) as u64,
    }
}

/// `trunc(q f / 2^30)`.
fn scaled(value: f32, factor: u32, halvings: u32) -> i64 {
    let length = (u128::from(magnitude(value, halvings)) * u128::from(factor)) >> 30;
    let length = length as i64;
    if value.is_sign_negative() { -length } else { length }
}

fn same<T: PartialEq>(kernel: &'static str, expected: &[T], got: &[T]) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(GpuError::SelfTest { kernel }),
    }
}
