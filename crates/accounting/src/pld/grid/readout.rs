//! Deltas and epsilons of a distribution on a grid.

use super::{GridError, GridPld};

/// Sums from one loss upwards, by which a delta between two points is one product. No sum cancels.
struct Sums {
    /// Probability of this loss and all higher ones.
    mass: Vec<f64>,
    /// Delta at this loss, less the probability of an infinite loss.
    delta: Vec<f64>,
}

impl GridPld {
    fn sums(&self) -> Sums {
        let points = self.probabilities.len();
        let (mut mass, mut delta) = (vec![0.0; points], vec![0.0; points]);
        let stays = (-self.step).exp();
        let gains = -(-self.step).exp_m1();
        let (mut above, mut at) = (0.0, 0.0);
        for point in (0..points).rev() {
            at = gains * above + stays * at;
            above += self.probabilities[point];
            mass[point] = above;
            delta[point] = at;
        }
        Sums { mass, delta }
    }

    fn loss(&self, point: usize) -> f64 {
        self.step * (self.lower + point as i64) as f64
    }

    /// Delta at `epsilon`, which may be negative or infinite.
    #[must_use]
    pub fn delta(&self, epsilon: f64) -> f64 {
        self.deltas(&[epsilon])[0]
    }

    /// Delta at each epsilon.
    #[must_use]
    pub fn deltas(&self, epsilons: &[f64]) -> Vec<f64> {
        let sums = self.sums();
        let at = |epsilon: &f64| (self.infinity + self.finite_part(&sums, *epsilon)).min(1.0);
        epsilons.iter().map(at).collect()
    }

    /// Delta without the probability of an infinite loss.
    fn finite_part(&self, sums: &Sums, epsilon: f64) -> f64 {
        let points = sums.mass.len();
        if points == 0 || epsilon >= self.loss(points - 1) {
            return 0.0;
        }
        let place = (epsilon / self.step - self.lower as f64).ceil().max(0.0);
        let mut point = (place as usize).min(points - 1);
        // The division may have rounded over a point.
        if self.loss(point) < epsilon {
            point += 1;
        } else if point > 0 && self.loss(point - 1) >= epsilon {
            point -= 1;
        }
        let rest = epsilon - self.loss(point);
        -rest.exp_m1() * sums.mass[point] + rest.exp() * sums.delta[point]
    }

    /// The smallest epsilon at `delta`: minus infinity where every epsilon holds, infinity where none does.
    #[must_use]
    pub fn epsilon(&self, delta: f64) -> f64 {
        let left = delta - self.infinity;
        if left < 0.0 || delta.is_nan() {
            return f64::INFINITY;
        }
        let sums = self.sums();
        let Some(mut point) = sums.mass.len().checked_sub(1) else {
            return f64::NEG_INFINITY;
        };
        while point > 0 && sums.delta[point - 1] <= left {
            point -= 1;
        }
        let (mass, at) = (sums.mass[point], sums.delta[point]);
        if left >= mass {
            return f64::NEG_INFINITY;
        }
        // Between two points `left = mass - e^rest (mass - at)`.
        self.loss(point) + (-(left - at) / (mass - at)).ln_1p()
    }

    /// Delta at `epsilon` of this release and `other` together, without their composition.
    ///
    /// # Errors
    /// Distributions that are not alike.
    pub fn delta_of_composition(&self, other: &Self, epsilon: f64) -> Result<f64, GridError> {
        self.check_alike(other)?;
        let sums = other.sums();
        let mut delta = self.infinity + other.infinity - self.infinity * other.infinity;
        for (point, probability) in self.probabilities.iter().enumerate() {
            if *probability > 0.0 {
                delta += probability * other.finite_part(&sums, epsilon - self.loss(point));
            }
        }
        Ok(delta.min(1.0))
    }
}
