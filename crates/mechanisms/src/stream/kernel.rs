//! The loops over coordinates. No fused multiply-add and sums of a fixed order: the same bits on every machine.

use undertone_simd::vectorised;

/// Rounds whose sums over a long history are made in one pass.
pub(crate) const LOOK_AHEAD: usize = 16;

/// Earlier vectors that a pass over the look-ahead sums takes in at once.
const AGES: usize = 8;

/// Coordinates that a pass takes at once: what it reads again stays in the first cache.
const STRIP: usize = 256;

/// The loops of one element type.
macro_rules! kernels {
    ($module:ident, $number:ty) => {
        pub(crate) mod $module {
            use super::*;

            vectorised! {
                /// `values *= factor`.
                pub(crate) fn scale(values: &mut [$number], factor: $number) {
                    values.iter_mut().for_each(|value| *value *= factor);
                }
            }

            vectorised! {
                /// `sum += factor * values`.
                pub(crate) fn add_scaled(sum: &mut [$number], factor: $number, values: &[$number]) {
                    for (sum, value) in sum.iter_mut().zip(values) {
                        *sum += factor * value;
                    }
                }
            }

            /// `sums[r] += sum_a weights[a][r] history[a]` for the [`LOOK_AHEAD`] sums, which follow one another.
            ///
            /// A history is read once for all rounds of the look-ahead: long ones live in memory, not in a cache.
            pub(crate) fn look_ahead(
                sums: &mut [$number],
                history: &[&[$number]],
                weights: &[[$number; LOOK_AHEAD]],
            ) {
                let length = sums.len() / LOOK_AHEAD;
                for begin in (0..length).step_by(STRIP) {
                    let strip = begin..length.min(begin + STRIP);
                    let (groups, rest) = history.as_chunks::<AGES>();
                    let (group_weights, rest_weights) = weights.as_chunks::<AGES>();
                    for (group, weights) in groups.iter().zip(group_weights) {
                        let group = group.map(|values| &values[strip.clone()]);
                        for r in 0..LOOK_AHEAD {
                            let weights = weights.map(|weights| weights[r]);
                            ages(&mut sums[r * length..][strip.clone()], &group, &weights);
                        }
                    }
                    for (values, weights) in rest.iter().zip(rest_weights) {
                        for (r, weight) in weights.iter().enumerate() {
                            add_scaled(
                                &mut sums[r * length..][strip.clone()],
                                *weight,
                                &values[strip.clone()],
                            );
                        }
                    }
                }
            }

            vectorised! {
                /// A few earlier vectors into one sum, one after another.
                fn ages(sum: &mut [$number], history: &[&[$number]; AGES], weights: &[$number; AGES]) {
                    let length = sum.len();
                    let history = history.map(|values| &values[..length]);
                    for (place, sum) in sum.iter_mut().enumerate() {
                        let mut total = *sum;
                        for age in 0..AGES {
                            total += weights[age] * history[age][place];
                        }
                        *sum = total;
                    }
                }
            }
        }
    };
}

kernels!(single, f32);
kernels!(double, f64);

/// One round of buffers: `values` holds `z` and receives `y`; `state` holds the buffers one after another.
///
/// One pass over the state in memory: a strip of each buffer is read for the output, and updated while it is at hand.
pub(crate) fn buffers(values: &mut [f32], state: &mut [f32], output: &[f32], complement: &[f32]) {
    let length = values.len();
    for (index, strip) in values.chunks_mut(STRIP).enumerate() {
        let begin = index * STRIP;
        for (j, &weight) in output.iter().enumerate() {
            single::add_scaled(strip, -weight, &state[j * length + begin..][..strip.len()]);
        }
        for (j, &complement) in complement.iter().enumerate() {
            decay(&mut state[j * length + begin..][..strip.len()], complement, strip);
        }
    }
}

vectorised! {
    /// `state <- state - complement * state + values`.
    ///
    /// A decay near 1 is known by its complement: `1 - complement` in `f32` would be wrong by up to `3e-8` in the same
    /// direction in every round, the rounding of the difference is not.
    fn decay(state: &mut [f32], complement: f32, values: &[f32]) {
        for (state, value) in state.iter_mut().zip(values) {
            *state = (*state - complement * *state) + value;
        }
    }
}

vectorised! {
    /// Joins two estimates of a tree: `newest` becomes Honaker's estimate of the parent, `removed` gains the left child's.
    pub(crate) fn join(newest: &mut [f32], removed: &mut [f32], left: &[f32], node: &[f32], weight: f32) {
        for (((newest, removed), left), node) in newest.iter_mut().zip(removed).zip(left).zip(node) {
            let children = left + *newest;
            *removed += left;
            *newest = children + weight * (node - children);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ahead_is_a_matrix_product() {
        let length = 2 * STRIP + 5;
        let history: Vec<Vec<f64>> = (0..2 * AGES + 3)
            .map(|a| (0..length).map(|c| ((a * 31 + c * 7) as f64).sin()).collect())
            .collect();
        let weights: Vec<[f64; LOOK_AHEAD]> = (0..history.len())
            .map(|a| std::array::from_fn(|r| ((a * 5 + r * 3) as f64).cos()))
            .collect();
        let mut sums = vec![0.25; LOOK_AHEAD * length];
        let views: Vec<&[f64]> = history.iter().map(Vec::as_slice).collect();
        double::look_ahead(&mut sums, &views, &weights);
        for r in 0..LOOK_AHEAD {
            for c in 0..length {
                let exact = (0..history.len()).fold(0.25, |sum, a| sum + weights[a][r] * history[a][c]);
                assert_eq!(sums[r * length + c], exact);
            }
        }
    }
}
