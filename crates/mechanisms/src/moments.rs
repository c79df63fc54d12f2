//! Covariances of a few numbers that evolve linearly with fresh noise: exact errors of streams with a small state.

/// The covariance of `size` correlated, centred numbers. All are 0 at first.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    size: usize,
    covariance: Vec<f64>,
}

impl Moments {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            covariance: vec![0.0; size * size],
        }
    }

    pub(crate) fn variance(&self, i: usize) -> f64 {
        self.covariance[i * (self.size + 1)]
    }

    /// `x_target <- sum c x_source + noise epsilon` with a fresh standard normal epsilon; `target` may be a source.
    pub(crate) fn assign(&mut self, target: usize, sources: &[(usize, f64)], noise: f64) {
        let size = self.size;
        let mut row: Vec<f64> = (0..size)
            .map(|k| {
                sources
                    .iter()
                    .map(|&(j, c)| c * self.covariance[j * size + k])
                    .sum()
            })
            .collect();
        row[target] = sources.iter().map(|&(j, c)| c * row[j]).sum::<f64>() + noise * noise;
        for (k, &value) in row.iter().enumerate() {
            self.covariance[target * size + k] = value;
            self.covariance[k * size + target] = value;
        }
    }
}
