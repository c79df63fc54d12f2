//! The kernels of products against sums that are added term by term.

use undertone_gpu_sum::{Emulator, Machine};

use crate::call::{Array, Call, Kernel, OTHER_PRODUCTS, PRODUCT, PRODUCT_OF_FEW, header, place, product};
use crate::call::{THREADS, product_kernel};
use crate::{Trainer, TrainingMemory};

/// Numbers of several magnitudes and both signs, from a seed.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let magnitude = 2f32.powi((state >> 28) as i32 - 8);
            magnitude * ((state >> 8 & 0xffff) as f32 / 32768.0 - 1.0)
        })
        .collect()
}

/// An array in the workspace, by rows or turned.
fn array(at: usize, rows: usize, cols: usize, turned: bool) -> Array {
    let (row, col) = if turned { (1, rows) } else { (cols, 1) };
    Array {
        at: at as u64,
        row: row as u32,
        col: col as u32,
        place: place::ROOM,
        shift: 0,
    }
}

/// The results of a kernel of products, and those of one sum after another.
fn both(
    kernel: Kernel,
    machine: &Emulator,
    [rows, cols, depth]: [usize; 3],
    (left_turned, right_turned): (bool, bool),
    mode: u32,
) -> (Vec<u32>, Vec<u32>) {
    let (left, right, before) = (rows * depth, depth * cols, rows * cols);
    let mut room = values(left + right + before + cols, (rows + 3 * cols + 7 * depth) as u32);
    let call = Call {
        rows: rows as u32,
        cols: cols as u32,
        depth: depth as u32,
        mode,
        factor: -0.37,
        a: array(0, rows, depth, left_turned),
        b: array(left, depth, cols, right_turned),
        c: array(left + right, rows, cols, false),
        d: array(left + right + before, 1, cols, false),
        ..Call::default()
    };
    let at = |array: &Array, row: usize, col: usize| {
        array.at as usize + row * array.row as usize + col * array.col as usize
    };
    let mut expected = Vec::with_capacity(before);
    for row in 0..rows {
        for col in 0..cols {
            let mut sum = 0.0f32;
            for k in 0..depth {
                sum = room[at(&call.a, row, k)].mul_add(room[at(&call.b, k, col)], sum);
            }
            let (old, of_col) = (room[at(&call.c, row, col)], room[at(&call.d, 0, col)]);
            expected.push(match mode {
                product::SET => sum,
                product::ADD => old + sum,
                product::SET_AND_ADD_ROW => sum + of_col,
                product::SET_AND_SCALE_COLUMNS => sum * of_col,
                _ => call.factor.mul_add(sum, old),
            });
        }
    }
    let mut table = vec![0u32; header::WORDS];
    table[header::ROWS] = 1;
    let mut parameters = vec![0u32];
    let mut words: Vec<u32> = room.drain(..).map(f32::to_bits).collect();
    let memory = TrainingMemory {
        parameters: &mut parameters,
        room: &mut words,
        table: &table,
    };
    machine.run(kernel, THREADS, 1, &call, memory).unwrap();
    let mut results = vec![0u32; before];
    machine.read::<u32>(&words, left + right, &mut results).unwrap();
    (results, expected.into_iter().map(f32::to_bits).collect())
}

#[test]
#[ignore = "slow"]
fn a_product_adds_its_terms_in_their_order_in_every_tile() {
    let extents = [
        [1, 1, 1],
        [16, 32, 64],
        [17, 33, 65],
        [64, 128, 16],
        [65, 129, 17],
        [48, 96, 15],
        [97, 200, 40],
        [3, 300, 7],
        [130, 5, 70],
    ];
    let grids = [Emulator::default(), Emulator::new(5, 8, 3).unwrap()];
    for (kernel, _) in [PRODUCT, PRODUCT_OF_FEW].into_iter().chain(OTHER_PRODUCTS) {
        for (number, extent) in extents.into_iter().enumerate() {
            for turned in [(false, false), (true, false), (false, true), (true, true)] {
                for mode in product::SET..=product::ADD_SCALED {
                    let (got, expected) = both(kernel, &grids[number % 2], extent, turned, mode);
                    assert!(got == expected, "{kernel:?} {extent:?} {turned:?} {mode}");
                }
            }
        }
    }
}

#[test]
fn the_kernel_of_a_product_has_few_empty_places() {
    for (rows, cols, kernel, tiles) in [
        (16, 2010, Kernel::ProductOfFew, 63),
        (320, 10_000, Kernel::Product, 395),
        (320, 96, Kernel::ProductNarrow, 5),
        (96, 10_000, Kernel::ProductLow, 158),
    ] {
        assert_eq!(product_kernel(rows, cols), (kernel, tiles), "{rows} x {cols}");
    }
}
