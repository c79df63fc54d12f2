//! A quasi-Newton minimiser in a box, for functions of a few variables that cost microseconds.
//!
//! Full BFGS: at thirty variables or fewer its matrix is smaller than the history of a limited-memory method, and it
//! needs fewer evaluations.

/// Iterations of one descent.
const MAX_ITERATIONS: usize = 300;

/// Evaluations of one line search.
const MAX_TRIALS: usize = 25;

/// Longest step in one variable; a box of softplus arguments has its structure at this scale.
const LONGEST_STEP: f64 = 4.0;

/// Relative decrease that counts as none, and how often in a row ends the descent.
const NO_DECREASE: (f64, u32) = (1e-12, 3);

/// Projected gradient at which a point is a minimum.
const FLAT: f64 = 1e-10;

/// Moves `point` to a local minimum within `|x_i| <= bound` and returns the value there.
///
/// `value_and_gradient(point, gradient)` returns the value and writes the gradient. A value that is not a number ends a
/// line search as a large one would.
///
/// The letters of the formulas: `x` is the point, `f` the function, `g` its gradient, `H` the estimate of the inverse Hessian, `d` the
/// direction of a step and `l` its length in units of `d`.
pub(crate) fn minimise(
    point: &mut [f64],
    bound: f64,
    mut value_and_gradient: impl FnMut(&[f64], &mut [f64]) -> f64,
) -> f64 {
    let size = point.len();
    let clamp = |x: f64| x.clamp(-bound, bound);
    point.iter_mut().for_each(|x| *x = clamp(*x));
    let mut gradient = vec![0.0; size];
    let mut value = value_and_gradient(point, &mut gradient);
    let mut inverse_hessian = Identity::new(size);
    let (mut trial, mut trial_gradient) = (vec![0.0; size], vec![0.0; size]);
    let (mut direction, mut step, mut change) = (vec![0.0; size], vec![0.0; size], vec![0.0; size]);
    let mut idle = 0;
    // d = -H g in the free variables, and x' = clamp(x + l d)
    // A length l is sought with f(x') <= f(x) + 1e-4 g . (x' - x) and g(x') . d >= 0.9 g . d.
    // H = V^T H V + s s^T / (s . c), with s = x' - x, c = g(x') - g and V = 1 - c s^T / (s . c)
    for _ in 0..MAX_ITERATIONS {
        let free: Vec<bool> = point
            .iter()
            .zip(&gradient)
            .map(|(x, slope)| !((*x >= bound && *slope < 0.0) || (*x <= -bound && *slope > 0.0)))
            .collect();
        let steepest = gradient.iter().zip(&free).filter(|(_, free)| **free);
        if steepest.fold(0.0f64, |largest, (slope, _)| largest.max(slope.abs())) < FLAT {
            break;
        }
        let mut slope = inverse_hessian.direction(&gradient, &free, &mut direction);
        if slope.is_nan() || slope >= 0.0 {
            inverse_hessian = Identity::new(size);
            slope = inverse_hessian.direction(&gradient, &free, &mut direction);
        }
        let longest = direction.iter().fold(0.0f64, |longest, d| longest.max(d.abs()));
        if longest > LONGEST_STEP {
            direction.iter_mut().for_each(|d| *d *= LONGEST_STEP / longest);
            slope *= LONGEST_STEP / longest;
        }
        // Weak Wolfe conditions by bisection and doubling.
        let (mut length, mut low, mut high) = (1.0, 0.0, f64::INFINITY);
        let mut found = f64::INFINITY;
        for _ in 0..MAX_TRIALS {
            for i in 0..size {
                trial[i] = clamp(point[i] + length * direction[i]);
            }
            found = value_and_gradient(&trial, &mut trial_gradient);
            let descent: f64 = (0..size).map(|i| gradient[i] * (trial[i] - point[i])).sum();
            if found.is_nan() || found > value + 1e-4 * descent {
                high = length;
            } else if dot(&trial_gradient, &direction) < 0.9 * slope && trial != point {
                low = length;
                if length * longest.min(LONGEST_STEP) >= LONGEST_STEP {
                    break;
                }
            } else {
                break;
            }
            length = if high.is_finite() {
                0.5 * (low + high)
            } else {
                2.0 * low
            };
        }
        if found.is_nan() || found > value {
            break;
        }
        for i in 0..size {
            step[i] = trial[i] - point[i];
            change[i] = trial_gradient[i] - gradient[i];
        }
        inverse_hessian.update(&step, &change);
        idle = if value - found <= NO_DECREASE.0 * value.abs().max(1e-3) {
            idle + 1
        } else {
            0
        };
        point.copy_from_slice(&trial);
        gradient.copy_from_slice(&trial_gradient);
        value = found;
        if idle >= NO_DECREASE.1 {
            break;
        }
    }
    value
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// The estimate of the inverse Hessian, from the identity on.
struct Identity {
    size: usize,
    entries: Vec<f64>,
    fresh: bool,
    product: Vec<f64>,
}

impl Identity {
    fn new(size: usize) -> Self {
        let entries = (0..size * size)
            .map(|index| if index % (size + 1) == 0 { 1.0 } else { 0.0 })
            .collect();
        Self {
            size,
            entries,
            fresh: true,
            product: vec![0.0; size],
        }
    }

    /// Minus the estimate times the gradient, over the free variables; the slope along it.
    fn direction(&self, gradient: &[f64], free: &[bool], direction: &mut [f64]) -> f64 {
        let mut slope = 0.0;
        for (i, row) in self.entries.chunks_exact(self.size).enumerate() {
            let terms = row.iter().zip(gradient).zip(free).filter(|(_, free)| **free);
            direction[i] = if free[i] {
                -terms.map(|((entry, g), _)| entry * g).sum::<f64>()
            } else {
                0.0
            };
            slope += direction[i] * gradient[i];
        }
        slope
    }

    fn update(&mut self, step: &[f64], change: &[f64]) {
        let curvature = dot(step, change);
        let scale = dot(change, change);
        if curvature <= 1e-14 * (dot(step, step) * scale).sqrt() || scale == 0.0 {
            return;
        }
        if self.fresh {
            self.entries
                .iter_mut()
                .for_each(|entry| *entry *= curvature / scale);
            self.fresh = false;
        }
        for (product, row) in self.product.iter_mut().zip(self.entries.chunks_exact(self.size)) {
            *product = dot(row, change);
        }
        let factor = (1.0 + dot(change, &self.product) / curvature) / curvature;
        for i in 0..self.size {
            for j in 0..self.size {
                self.entries[i * self.size + j] += factor * step[i] * step[j]
                    - (step[i] * self.product[j] + self.product[i] * step[j]) / curvature;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curved_valley_takes_few_evaluations() {
        let mut evaluations = 0;
        let mut point = [-1.2, 1.0, -1.2, 1.0];
        let value = minimise(&mut point, 32.0, |x, gradient| {
            evaluations += 1;
            gradient.fill(0.0);
            let mut value = 0.0;
            for i in [0, 2] {
                let (a, b) = (1.0 - x[i], x[i + 1] - x[i] * x[i]);
                value += a * a + 100.0 * b * b;
                gradient[i] = -2.0 * a - 400.0 * x[i] * b;
                gradient[i + 1] = 200.0 * b;
            }
            value
        });
        assert!(
            value < 1e-15 && point.iter().all(|x| (x - 1.0).abs() < 1e-6),
            "{value} {point:?}"
        );
        assert!(evaluations < 200, "{evaluations}");
    }

    #[test]
    fn a_minimum_on_the_border_is_found() {
        let mut point = [0.0, 0.0];
        let value = minimise(&mut point, 2.0, |x, gradient| {
            gradient[0] = 2.0 * (x[0] - 5.0) + x[1];
            gradient[1] = 2.0 * (x[1] - 0.5) + x[0];
            (x[0] - 5.0).powi(2) + (x[1] - 0.5).powi(2) + x[0] * x[1]
        });
        assert!(
            point[0] == 2.0 && (point[1] + 0.5).abs() < 1e-6,
            "{point:?} {value}"
        );
    }
}
