//! Softmax over blocks of attention scores in which a query sees itself and what stands before it.

use super::isa::kernel;
use super::softmax::row_maximum_body;
use super::vector::dot_body;

kernel! {
    /// Softmax of `scale` times the scores. Row `i` of the block is query `first + i` and sees keys `0..=first + i`;
    /// probabilities of the keys behind it, up to `cols`, are zero. Rows are `stride` apart.
    pub(crate) fn causal_softmax<FUSED>(block: &mut [T], stride: usize, cols: usize, first: usize, scale: T) {
        for (i, row) in block.chunks_exact_mut(stride).enumerate() {
            let row = &mut row[..cols];
            // Whole rows are computed: a masked lane costs less than a loop of its own length.
            row[first + i + 1..].fill(T::LOWEST);
            let maximum = row_maximum_body::<T, FUSED>(row);
            let (whole, rest) = row.as_chunks_mut::<16>();
            let mut sums = [T::ZERO; 16];
            for values in whole {
                for j in 0..16 {
                    values[j] = ((values[j] - maximum) * scale).exponential_of_negative::<FUSED>();
                    sums[j] += values[j];
                }
            }
            for (j, value) in rest.iter_mut().enumerate() {
                *value = ((*value - maximum) * scale).exponential_of_negative::<FUSED>();
                sums[j] += *value;
            }
            let mut sum = T::ZERO;
            for value in sums {
                sum += value;
            }
            let inverse = T::ONE / sum;
            row[first + i + 1..].fill(T::ZERO);
            for value in &mut row[..=first + i] {
                *value *= inverse;
            }
        }
    }
}

kernel! {
    /// Backward of [`causal_softmax`]: turns gradients of probabilities into gradients of scores,
    /// `scale p (g - p . g)`, in place.
    pub(crate) fn causal_softmax_backward<FUSED>(
        gradients: &mut [T],
        probabilities: &[T],
        stride: usize,
        cols: usize,
        scale: T,
    ) {
        let lines = gradients
            .chunks_exact_mut(stride)
            .zip(probabilities.chunks_exact(stride));
        for (gradients, probabilities) in lines {
            let (gradients, probabilities) = (&mut gradients[..cols], &probabilities[..cols]);
            let along = dot_body::<T, FUSED>(gradients, probabilities);
            for (g, &p) in gradients.iter_mut().zip(probabilities) {
                *g = scale * p * (*g - along);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;

    /// Rows that follow a row do not change its bits, nor do the places that it does not see. Decoding relies on it.
    #[test]
    fn a_row_alone_and_among_others_has_the_same_bits() {
        let (rows, first) = (9, 20);
        let cols = first + rows;
        // Scores far apart, so that most exponentials underflow, and near each other.
        for spread in [1.0, 300.0] {
            let scores: Vec<f32> = (0..rows * cols)
                .map(|i| (i as f32 * 1.7).sin() * spread)
                .collect();
            for isa in Isa::available() {
                let mut together = scores.clone();
                causal_softmax(isa, &mut together, cols, cols, first, 0.7);
                for row in 0..rows {
                    let seen = first + row + 1;
                    let mut alone = scores[row * cols..][..seen].to_vec();
                    causal_softmax(isa, &mut alone, seen, seen, seen - 1, 0.7);
                    let bits =
                        |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    assert_eq!(
                        bits(&together[row * cols..][..seen]),
                        bits(&alone),
                        "{isa:?} {row}"
                    );
                    assert!(
                        together[row * cols..][..cols][seen..]
                            .iter()
                            .all(|&value| value == 0.0)
                    );
                }
            }
        }
    }
}
