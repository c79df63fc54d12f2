//! Adafactor: second moments of matrices as one number per row and one per column.

use std::ops::Range;

use undertone_aggregation::{ParamLayout, TensorSpec};

/// The factored tensors and the constants of Adafactor.
///
/// # Source
/// Shazeer, Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (ICML 2018), Algorithms 4 and 5 with
/// update clipping (section 6) and `beta2_t = 1 - t^-decay_exponent` (section 7.2); no relative step size (section 8), no
/// first moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Adafactor {
    tensors: Vec<Tensor>,
    decay_exponent: f64,
    epsilon: f64,
    clipping_threshold: f64,
}

#[derive(Debug, Clone, PartialEq)]
struct Tensor {
    range: Range<usize>,
    /// Rows and columns of a matrix; `None` where every element has a second moment of its own.
    factored: Option<(usize, usize)>,
}

impl Tensor {
    fn of(tensor: &TensorSpec) -> Self {
        Self {
            range: tensor.range(),
            factored: match tensor.shape[..] {
                [rows, columns] if rows > 1 && columns > 1 => Some((rows, columns)),
                _ => None,
            },
        }
    }

    fn moments(&self) -> usize {
        self.factored
            .map_or(self.range.len(), |(rows, columns)| rows + columns)
    }
}

impl Adafactor {
    pub(super) fn new(
        layout: &ParamLayout,
        decay_exponent: f64,
        epsilon: f64,
        clipping_threshold: f64,
    ) -> Self {
        Self {
            tensors: layout.tensors().iter().map(Tensor::of).collect(),
            decay_exponent,
            epsilon,
            clipping_threshold,
        }
    }

    /// Number of values that are kept between steps.
    pub(super) fn moments(&self) -> usize {
        self.tensors.iter().map(Tensor::moments).sum()
    }

    /// Makes step `step`, counted from 1.
    pub(super) fn step(
        &self,
        step: u64,
        rate: f64,
        average: &[f32],
        moments: &mut [f32],
        parameters: &mut [f32],
    ) {
        let beta = 1.0 - (step as f64).powf(-self.decay_exponent);
        let mut rest = moments;
        for tensor in &self.tensors {
            let (moments, after) = rest.split_at_mut(tensor.moments());
            rest = after;
            let average = &average[tensor.range.clone()];
            let parameters = &mut parameters[tensor.range.clone()];
            match tensor.factored {
                Some((rows, columns)) => {
                    let (of_rows, of_columns) = moments.split_at_mut(rows);
                    self.observe_matrix(beta, average, of_rows, of_columns);
                    let total: f64 = of_rows.iter().map(|&moment| f64::from(moment)).sum();
                    // V = R C / sum R.
                    let by_row: Vec<f64> = of_rows
                        .iter()
                        .map(|&moment| (total / f64::from(moment)).sqrt())
                        .collect();
                    let by_column: Vec<f64> = of_columns
                        .iter()
                        .map(|&moment| f64::from(moment).sqrt().recip())
                        .collect();
                    let factor = |place: usize| by_row[place / columns] * by_column[place % columns];
                    self.apply(rate, average, &factor, parameters);
                }
                None => {
                    for (moment, &value) in moments.iter_mut().zip(average) {
                        let square = f64::from(value).powi(2) + self.epsilon;
                        *moment = (beta * f64::from(*moment) + (1.0 - beta) * square) as f32;
                    }
                    let factor = |place: usize| f64::from(moments[place]).sqrt().recip();
                    self.apply(rate, average, &factor, parameters);
                }
            }
        }
    }

    /// `R` and `C`: decaying sums of the squares in each row and column.
    fn observe_matrix(&self, beta: f64, average: &[f32], of_rows: &mut [f32], of_columns: &mut [f32]) {
        let mut columns = vec![0.0; of_columns.len()];
        for (row, values) in of_rows.iter_mut().zip(average.chunks_exact(columns.len())) {
            let mut sum = 0.0;
            for (column, &value) in columns.iter_mut().zip(values) {
                let square = f64::from(value).powi(2) + self.epsilon;
                sum += square;
                *column += square;
            }
            *row = (beta * f64::from(*row) + (1.0 - beta) * sum) as f32;
        }
        for (moment, sum) in of_columns.iter_mut().zip(columns) {
            *moment = (beta * f64::from(*moment) + (1.0 - beta) * sum) as f32;
        }
    }

    /// `X += rate * U / max(1, RMS(U) / d)` with `U` the average times `factor`.
    fn apply(&self, rate: f64, average: &[f32], factor: &dyn Fn(usize) -> f64, parameters: &mut [f32]) {
        let scaled = |place: usize| f64::from(average[place]) * factor(place);
        let squares: f64 = (0..average.len()).map(|place| scaled(place).powi(2)).sum();
        let root_mean_square = (squares / average.len() as f64).sqrt();
        let rate = rate / (root_mean_square / self.clipping_threshold).max(1.0);
        for (place, parameter) in parameters.iter_mut().enumerate() {
            *parameter += (rate * scaled(place)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 2 x 2 matrix and a vector of two.
    fn adafactor(clipping_threshold: f64) -> Adafactor {
        let layout =
            ParamLayout::with_tensor_groups(vec![("w".into(), vec![2, 2]), ("b".into(), vec![2])]).unwrap();
        Adafactor::new(&layout, 0.8, 1e-30, clipping_threshold)
    }

    /// Moments and parameters after a step from zero.
    fn first_step(adafactor: &Adafactor, rate: f64) -> (Vec<f32>, [f32; 6]) {
        let (mut moments, mut parameters) = (vec![0.0; 6], [0.0; 6]);
        let average = [1.0, 2.0, 3.0, 4.0, 5.0, -0.5];
        adafactor.step(1, rate, &average, &mut moments, &mut parameters);
        (moments, parameters)
    }

    fn check(got: &[f32], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, want) in got.iter().zip(expected) {
            assert!((f64::from(*got) / want - 1.0).abs() < 1e-6, "{got} != {want}");
        }
    }

    /// The formulas of the paper by hand: R = (5, 25), C = (10, 20), sum 30; V = R C / 30.
    #[test]
    fn the_first_step_is_the_one_computed_by_hand() {
        let adafactor = adafactor(1e9);
        assert_eq!(adafactor.moments(), 4 + 2);
        let (moments, parameters) = first_step(&adafactor, 0.1);
        check(&moments, &[5.0, 25.0, 10.0, 20.0, 25.0, 0.25]);
        let u = |g: f64, row: f64, column: f64| 0.1 * g / (row * column / 30.0).sqrt();
        let expected = [
            u(1.0, 5.0, 10.0),
            u(2.0, 5.0, 20.0),
            u(3.0, 25.0, 10.0),
            u(4.0, 25.0, 20.0),
            0.1,
            -0.1,
        ];
        check(&parameters, &expected);
    }

    /// beta2 of the second step is 1 - 2^-0.8.
    #[test]
    fn second_moments_decay_as_in_the_paper() {
        let adafactor = adafactor(1e9);
        let (mut moments, mut parameters) = first_step(&adafactor, 0.1);
        let before = parameters;
        adafactor.step(
            2,
            0.1,
            &[2.0, 0.0, 0.0, 1.0, 1.0, 1.0],
            &mut moments,
            &mut parameters,
        );
        let beta = 1.0 - 2f64.powf(-0.8);
        let mixed = |old: f64, new: f64| beta * old + (1.0 - beta) * new;
        let expected = [
            mixed(5.0, 4.0),
            mixed(25.0, 1.0),
            mixed(10.0, 4.0),
            mixed(20.0, 1.0),
            mixed(25.0, 1.0),
            mixed(0.25, 1.0),
        ];
        check(&moments, &expected);
        let moved = f64::from(parameters[0]) - f64::from(before[0]);
        let total = expected[0] + expected[1];
        let want = 0.1 * 2.0 / (expected[0] * expected[2] / total).sqrt();
        assert!((moved / want - 1.0).abs() < 1e-5, "{moved} {want}");
    }

    /// A tensor's update has a root mean square of at most d times the rate.
    #[test]
    fn updates_are_clipped_tensor_by_tensor() {
        let adafactor = adafactor(0.5);
        let (mut moments, mut parameters) = first_step(&adafactor, 1.0);
        let rms = |values: &[f32]| (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
        assert!((rms(&parameters[..4]) - 0.5).abs() < 1e-6 && (rms(&parameters[4..]) - 0.5).abs() < 1e-6);
        let still = parameters;
        adafactor.step(2, 1.0, &[0.0; 6], &mut moments, &mut parameters);
        assert_eq!(parameters, still, "no gradient, no step");
    }
}
