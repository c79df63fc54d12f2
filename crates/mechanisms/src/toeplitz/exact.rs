//! Inverse series in twice the precision, for tests.

/// A number as the unevaluated sum of two, good to some 30 digits: what the bounds are held against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Double(pub(crate) f64, f64);

impl Double {
    fn sum(x: f64, y: f64) -> Self {
        let sum = x + y;
        let from_y = sum - x;
        Self(sum, (x - (sum - from_y)) + (y - from_y))
    }

    fn plus(self, other: Self) -> Self {
        let Self(high, low) = Self::sum(self.0, other.0);
        Self::sum(high, low + self.1 + other.1)
    }

    fn times(self, factor: f64) -> Self {
        let high = self.0 * factor;
        Self::sum(high, self.0.mul_add(factor, -high) + self.1 * factor)
    }

    pub(crate) fn minus(self, value: f64) -> f64 {
        (self.0 - value) + self.1
    }
}

/// The inverse of a series that begins with one: to `1e-20` still where `f64` loses all but five digits.
pub(crate) fn inverse(series: &[f64], rounds: usize) -> Vec<Double> {
    assert_eq!(series[0], 1.0);
    let mut result = vec![Double(1.0, 0.0)];
    for i in 1..rounds {
        let terms = (1..series.len().min(i + 1)).map(|lag| result[i - lag].times(-series[lag]));
        let sum = terms.fold(Double(0.0, 0.0), Double::plus);
        result.push(sum);
    }
    result
}
