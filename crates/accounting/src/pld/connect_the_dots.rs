//! Losses put on the points of a lattice, so that both `P` and `Q` keep their mass.

/// The split of a loss between two points of a tilted lattice: connect the dots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    tilt: f64,
    step: f64,
    /// `e^-step - 1`.
    fall: f64,
}

impl Sharing {
    pub(crate) fn new(tilt: f64, step: f64) -> Self {
        Self {
            tilt,
            step,
            fall: (-step).exp_m1(),
        }
    }

    /// The factors with which an atom `above` a lattice point adds to that point and to the next one.
    pub(crate) fn of(&self, above: f64) -> (f64, f64) {
        let right = (-above).exp_m1() / self.fall;
        let left = (1.0 - right).max(0.0);
        (
            left * (-self.tilt * above).exp(),
            right * (self.tilt * (self.step - above)).exp(),
        )
    }
}

/// The split of each point of a lattice between two points of the next coarser one: for each of the `ratio` points from
/// a coarse point on, the fraction that stays at that coarse point and the fraction that goes to the next.
pub(crate) struct PointSplit(pub(crate) Vec<(f64, f64)>);

impl PointSplit {
    /// Creates the split from points `step` apart to points `ratio` times as far apart.
    pub(crate) fn new(tilt: f64, step: f64, ratio: usize) -> Self {
        let sharing = Sharing::new(tilt, ratio as f64 * step);
        Self(
            (0..ratio)
                .map(|residue| sharing.of(residue as f64 * step))
                .collect(),
        )
    }
}
