/// Finds the epsilon at which a hockey-stick divergence reaches delta, from outcomes in order of falling loss.
///
/// On its way down from one loss to the next the divergence grows by sums of positive terms alone, so that no
/// digit is lost where many losses lie close together. All masses are in units of delta.
#[derive(Debug)]
pub(crate) struct Descent {
    /// Loss of the last outcome; `+inf` before the first finite one.
    loss: f64,
    /// Divergence at `epsilon = loss`.
    divergence: f64,
    /// `e^loss` times the probability under `Q` of all outcomes so far.
    weight: f64,
}

impl Descent {
    /// `unbounded` is mass of infinite loss.
    pub(crate) fn new(unbounded: f64) -> Self {
        Self {
            loss: f64::INFINITY,
            divergence: unbounded,
            weight: 0.0,
        }
    }

    /// Adds an outcome of `mass` under `P`. Returns the root if it lies between this loss and the last one.
    pub(crate) fn push(&mut self, loss: f64, mass: f64) -> Option<f64> {
        if loss == f64::INFINITY {
            self.divergence += mass;
        } else {
            if let Some(epsilon) = self.root_above(loss.max(0.0)) {
                return Some(epsilon);
            }
            let step = loss - self.loss;
            if self.weight > 0.0 && step < 0.0 {
                self.divergence -= self.weight * step.exp_m1();
                self.weight *= step.exp();
            }
            self.weight += mass;
            self.loss = loss;
        }
        // PRIVACY: mass of infinite loss beyond delta leaves no finite epsilon.
        (self.loss == f64::INFINITY && self.divergence > 1.0).then_some(f64::INFINITY)
    }

    /// The root after the last outcome.
    pub(crate) fn finish(&self) -> f64 {
        self.root_above(0.0).unwrap_or(0.0)
    }

    /// The root if it lies in `[floor, loss]`; `floor` itself if it is 0 and the root lies below.
    fn root_above(&self, floor: f64) -> Option<f64> {
        if self.loss == f64::INFINITY {
            return (self.divergence > 1.0).then_some(f64::INFINITY);
        }
        let at_floor = self.divergence - self.weight * (floor - self.loss).exp_m1();
        if self.loss <= floor {
            // Only reached at floor 0: every outcome from here on has a negative loss.
            return (floor == 0.0).then_some(0.0);
        }
        if at_floor >= 1.0 {
            let share = (1.0 - self.divergence) / self.weight;
            return Some((self.loss + (-share).ln_1p()).clamp(floor, self.loss));
        }
        (floor == 0.0).then_some(0.0)
    }
}
