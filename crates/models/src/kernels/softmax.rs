//! Softmax over a transposed block of logits: one line per word, one lane per row of the batch, so that maxima and
//! sums over words are elementwise.

use super::isa::{Isa, kernel};
use crate::scalar::Scalar;

/// Lanes handled together: the maxima and sums of a strip stay in registers while its words stream by.
const STRIP: usize = 64;

kernel! {
    /// Multiplies the lines by `scale` and adds `bias` (each optional: empty means 1 or 0), and raises `maximum` to
    /// the largest logit of each lane.
    pub(crate) fn scale_and_maximum<FUSED>(
        block: &mut [T],
        stride: usize,
        scale: &[T],
        bias: &[T],
        maximum: &mut [T],
    ) {
        for (strip, maximum) in maximum[..stride].chunks_mut(STRIP).enumerate() {
            let mut top = [T::LOWEST; STRIP];
            let top = &mut top[..maximum.len()];
            top.copy_from_slice(maximum);
            for (word, line) in block.chunks_exact_mut(stride).enumerate() {
                let line = &mut line[strip * STRIP..][..top.len()];
                let factor = scale.get(word).copied().unwrap_or(T::ONE);
                let shift = bias.get(word).copied().unwrap_or(T::ZERO);
                for (logit, top) in line.iter_mut().zip(top.iter_mut()) {
                    *logit = logit.multiply_add::<FUSED>(factor, shift);
                    *top = logit.larger(*top);
                }
            }
            maximum.copy_from_slice(top);
        }
    }
}

kernel! {
    /// Replaces logits by `exp(logit - maximum)`, adds them up in `sum`, and stores them multiplied by `scale`
    /// (empty means 1).
    pub(crate) fn exponentials<FUSED>(
        block: &mut [T],
        stride: usize,
        scale: &[T],
        maximum: &[T],
        sum: &mut [T],
    ) {
        for (strip, sum) in sum[..stride].chunks_mut(STRIP).enumerate() {
            let maximum = &maximum[strip * STRIP..][..sum.len()];
            let mut total = [T::ZERO; STRIP];
            let total = &mut total[..sum.len()];
            for (word, line) in block.chunks_exact_mut(stride).enumerate() {
                let line = &mut line[strip * STRIP..][..total.len()];
                let factor = scale.get(word).copied().unwrap_or(T::ONE);
                for ((logit, total), &maximum) in line.iter_mut().zip(total.iter_mut()).zip(maximum) {
                    let value = (*logit - maximum).exponential_of_negative::<FUSED>();
                    *total += value;
                    *logit = value * factor;
                }
            }
            for (sum, &total) in sum.iter_mut().zip(total.iter()) {
                *sum += total;
            }
        }
    }
}

kernel! {
    /// Multiplies every line by `factor`, lane by lane.
    pub(crate) fn scale_lanes<FUSED>(block: &mut [T], stride: usize, factor: &[T]) {
        let factor = &factor[..stride];
        for line in block.chunks_exact_mut(stride) {
            for (value, &factor) in line.iter_mut().zip(factor) {
                *value *= factor;
            }
        }
    }
}

kernel! {
    /// The largest value of a row and the sum of exponentials relative to it.
    fn row_maximum<FUSED>(row: &[T]) -> T {
        row_maximum_body::<T, FUSED>(row)
    }
}

#[inline(always)]
pub(crate) fn row_maximum_body<T: Scalar, const FUSED: bool>(row: &[T]) -> T {
    let mut top = [T::LOWEST; 16];
    let (whole, rest) = row.as_chunks::<16>();
    for values in whole {
        for j in 0..16 {
            top[j] = values[j].larger(top[j]);
        }
    }
    let top = top.into_iter().fold(T::LOWEST, T::larger);
    rest.iter().fold(top, |top, &value| value.larger(top))
}

kernel! {
    /// Sum of `exp(value - maximum)` over a row.
    fn row_exponential_sum<FUSED>(row: &[T], maximum: T) -> T {
        let mut sums = [T::ZERO; 16];
        let (whole, rest) = row.as_chunks::<16>();
        for values in whole {
            for j in 0..16 {
                sums[j] += (values[j] - maximum).exponential_of_negative::<FUSED>();
            }
        }
        let mut sum = T::ZERO;
        for value in sums {
            sum += value;
        }
        for &value in rest {
            sum += (value - maximum).exponential_of_negative::<FUSED>();
        }
        sum
    }
}

/// Gives each row of logits with its log-normaliser to `sink`, numbered from `first` on; returns the first normaliser that is not
/// finite.
pub(crate) fn stream_rows<T: Scalar>(
    isa: Isa,
    rows: &[T],
    width: usize,
    first: usize,
    sink: &mut dyn FnMut(usize, &[T], T),
) -> Result<(), f64> {
    for (row, logits) in rows.chunks_exact(width).enumerate() {
        let maximum = row_maximum(isa, logits);
        let sum = row_exponential_sum(isa, logits, maximum);
        let log_normalizer = maximum.wide() + sum.wide().ln();
        if !log_normalizer.is_finite() {
            return Err(log_normalizer);
        }
        sink(first + row, logits, T::of(log_normalizer));
    }
    Ok(())
}
