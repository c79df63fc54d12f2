//! Coarse products of small integers. No sum of them is rounded, so the order in which tensor cores add does not matter.

use undertone_gpu_sum::{Emulator, GpuError};

use crate::call::{Array, Call, Kernel, THREADS, header, place, product};
use crate::machine::{Trainer, TrainingMemory};

/// A kernel with its arguments, and the number of values in the workspace.
type Case = (Kernel, Call, usize);

/// Lengths of the sequences of the attention's test: less than a tile, a tile and a row, and two tiles.
const LENGTHS: [u32; 3] = [5, 129, 200];

/// An array by rows, or turned.
fn array(at: u32, rows: u32, cols: u32, turned: bool) -> Array {
    let (row, col) = if turned { (1, rows) } else { (cols, 1) };
    Array {
        at: at.into(),
        row,
        col,
        place: place::ROOM,
        shift: 0,
    }
}

/// Products of different sizes, of both factors by rows and turned.
fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, [rows, cols, depth]) in [[130, 141, 40], [64, 64, 16], [77, 9, 83], [3, 260, 7]]
        .into_iter()
        .enumerate()
    {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for kernel in [Kernel::ProductCoarse, Kernel::ProductCoarseNarrow] {
                let (left, right) = (rows * depth, depth * cols);
                let call = Call {
                    rows,
                    cols,
                    depth,
                    mode: [product::SET, product::ADD, product::SET_AND_ADD_ROW][number % 3],
                    a: array(0, rows, depth, turned[0]),
                    b: array(left, depth, cols, turned[1]),
                    c: array(left + right, rows, cols, false),
                    d: array(left + right + rows * cols, 1, cols, false),
                    ..Call::default()
                };
                cases.push((kernel, call, (left + right + rows * cols + cols) as usize));
            }
        }
    }
    cases
}

/// Scores and their products, and gradients in spans of rows.
fn of_sequences() -> Vec<Case> {
    let (rows, longest) = (LENGTHS.iter().sum::<u32>(), 200);
    let [heads, group, width] = [4, 2, 20];
    let (queries, keys, scores) = (
        rows * heads * width,
        rows * heads / group * width,
        heads * rows * longest,
    );
    let call = Call {
        rows: longest,
        cols: rows,
        depth: width,
        heads,
        sequences: group,
        mode: product::SET,
        ..Call::default()
    };
    let of_queries = |at| array(at, rows, heads * width, false);
    let of_keys = |at| array(at, rows, heads / group * width, false);
    let of_scores = |at| array(at, heads * rows, longest, false);
    let scores_case = Call {
        a: of_queries(0),
        b: of_keys(queries),
        c: of_scores(queries + keys),
        ..call
    };
    let mix = Call {
        a: of_scores(0),
        b: of_keys(scores),
        c: of_queries(scores + keys),
        ..call
    };
    let keys_case = Call {
        a: of_scores(0),
        b: of_queries(scores),
        c: of_keys(scores + queries),
        ..call
    };
    let (left, right, spans) = (rows * 30, rows * 133, 4);
    let in_spans = Call {
        rows: 30,
        cols: 133,
        depth: spans,
        a: array(0, rows, 30, false).turned(),
        b: array(left, rows, 133, false),
        c: array(left + right, 30 * spans, 133, false),
        ..Call::default()
    };
    let all = (queries + keys + scores) as usize;
    vec![
        (Kernel::ScoresOfHeadsCoarse, scores_case, all),
        (Kernel::MixOfHeadsCoarse, mix, all),
        (Kernel::KeysOfHeadsCoarse, keys_case, all),
        (
            Kernel::ProductOfSpansCoarse,
            in_spans,
            (left + right + 30 * spans * 133) as usize,
        ),
    ]
}

/// One slot with the sequences of the test.
fn table() -> Vec<u32> {
    let mut words = vec![0; header::WORDS];
    words[header::ROWS] = LENGTHS.iter().sum();
    words[header::SEQUENCES] = LENGTHS.len() as u32;
    words[header::STARTS] = words.len() as u32;
    let mut start = 0;
    words.push(start);
    for length in LENGTHS {
        start += length;
        words.push(start);
    }
    words
}

/// The workspace after a kernel has run on integers from -8 to 8.
fn results<M: Trainer>(machine: &M, (kernel, call, len): &Case) -> Result<Vec<u32>, GpuError> {
    let mut state = *len as u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % 17) as f32 - 8.0
    };
    let mut words: Vec<u32> = (0..*len).map(|_| draw().to_bits()).collect();
    let table = table();
    let (mut room, mut parameters) = (machine.zeros::<u32>(*len)?, machine.zeros::<u32>(2)?);
    let mut of_table = machine.zeros::<u32>(table.len())?;
    machine.write::<u32>(&mut room, 0, &words)?;
    machine.write::<u32>(&mut of_table, 0, &table)?;
    let memory = TrainingMemory {
        parameters: &mut parameters,
        room: &mut room,
        table: &of_table,
    };
    machine.run(*kernel, 8 * THREADS, 1, call, memory)?;
    machine.read::<u32>(&room, 0, &mut words)?;
    Ok(words)
}

/// Runs the kernels of coarse products on a machine and on the emulator.
///
/// # Errors
/// [`GpuError::SelfTest`] for a bit that differs; the errors of the machine.
pub(super) fn test<M: Trainer>(machine: &M) -> Result<(), GpuError> {
    for case in products().iter().chain(&of_sequences()) {
        if results(machine, case)? != results(&Emulator::default(), case)? {
            let kernel = "a coarse product";
            return Err(GpuError::SelfTest { kernel });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The emulator's coarse products are those of whole numbers, term by term.
    #[test]
    fn a_coarse_product_of_integers_is_exact() {
        for case in products() {
            let (_, call, len) = case;
            let before = {
                let nothing = Call { rows: 0, ..call };
                results(&Emulator::default(), &(Kernel::ProductCoarse, nothing, len)).unwrap()
            };
            let value = |array: &Array, row: u32, col: u32| {
                let at = array.at as usize + (row * array.row + col * array.col) as usize;
                f32::from_bits(before[at]) as i64
            };
            let after = results(&Emulator::default(), &case).unwrap();
            for row in 0..call.rows {
                for col in 0..call.cols {
                    let sum: i64 = (0..call.depth)
                        .map(|k| value(&call.a, row, k) * value(&call.b, k, col))
                        .sum();
                    let plus = match call.mode {
                        product::ADD => value(&call.c, row, col),
                        product::SET_AND_ADD_ROW => value(&call.d, 0, col),
                        _ => 0,
                    };
                    let at = (call.c.at + u64::from(row * call.cols + col)) as usize;
                    assert_eq!(f32::from_bits(after[at]), (sum + plus) as f32);
                }
            }
        }
    }
}
