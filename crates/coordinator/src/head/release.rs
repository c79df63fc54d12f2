//! The release of a round, taken apart.

use undertone_mechanisms::NoisedAverage;

/// The released values of a round; an abandoned round has none.
pub(super) struct Release {
    /// The average of the model's coordinates.
    pub(super) model: Option<NoisedAverage>,
    /// The mean of the users' bits, with adaptive clipping.
    pub(super) bit: Option<f64>,
    /// The values of the lane of an audit, with its bits behind them.
    pub(super) lane: Option<Vec<f32>>,
}

impl Release {
    /// Takes averages apart: the model has the first `columns` of `average` and the users the first of `bits`; the lane has what is behind
    /// them.
    pub(super) fn of(
        mut average: Option<NoisedAverage>,
        mut bits: Option<NoisedAverage>,
        columns: usize,
    ) -> Self {
        let mut lane = average.as_mut().and_then(|average| average.split_off(columns));
        if let (Some(lane), Some(bits)) = (&mut lane, &mut bits) {
            lane.extend(bits.split_off(1).unwrap_or_default());
        }
        Self {
            model: average,
            bit: bits.and_then(|bits| bits.values().first().copied().map(f64::from)),
            lane,
        }
    }

    /// The L2 norm of the model's average; 0 without one.
    pub(super) fn norm(&self) -> f64 {
        self.model.as_ref().map_or(0.0, |model| match model.digest() {
            Some(digest) => digest.norm,
            None => norm_of(model.values()),
        })
    }
}

fn norm_of(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&value| f64::from(value).powi(2));
    squares.sum::<f64>().sqrt()
}
