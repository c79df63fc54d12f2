//! Decays of a BLT and of its inverse as one descending chain, with every constraint in its construction.
//!
//! `1 > theta_1 > theta_hat_1 > theta_2 > ...`: decays are `e^-lambda` and the chain of `lambda` ascends from 0 by
//! positive steps `softplus(v)`. All differences of decays are products of `1 - e^-(gap)`, so nothing cancels, however
//! near decays are to each other or to 1, and all scales come out positive.

/// Most buffers that an optimiser handles.
pub(super) const MAX_BUFFERS: usize = 16;

/// Bound on the arguments of softplus: steps from 1.3e-14 to 32.
pub(super) const BOUND: f64 = 32.0;

pub(super) const SIZE: usize = 2 * MAX_BUFFERS + 1;

/// Place 0 of a chain is the pole of the prefix sum, `lambda = 0`; odd places hold the decays, even ones the inverse's.
pub(super) type Places = [f64; SIZE];

/// The chain at one point, with what differentiates it.
pub(super) struct Interlaced {
    pub(super) buffers: usize,
    /// `lambda`, ascending.
    pub(super) logs: Places,
    /// `d lambda_a / d v_m` for all `a > m`.
    slopes: Places,
    /// `[a][b]`, `a < b`: `1 - e^-(lambda_b - lambda_a)`.
    gaps: [Places; SIZE],
}

fn softplus(v: f64) -> f64 {
    v.max(0.0) + (-v.abs()).exp().ln_1p()
}

/// The argument of softplus for a step, within the bound.
pub(super) fn argument(step: f64) -> f64 {
    (step + (-(-step).exp_m1()).ln()).clamp(-BOUND, BOUND)
}

impl Interlaced {
    /// Creates a chain from two arguments per buffer.
    pub(super) fn new(arguments: &[f64]) -> Self {
        let places = arguments.len() + 1;
        let mut chain = Self {
            buffers: arguments.len() / 2,
            logs: [0.0; SIZE],
            slopes: [0.0; SIZE],
            gaps: [[0.0; SIZE]; SIZE],
        };
        let mut steps = [0.0; SIZE];
        for (m, v) in arguments.iter().enumerate() {
            steps[m] = softplus(*v);
            chain.logs[m + 1] = chain.logs[m] + steps[m];
            chain.slopes[m] = 1.0 / (1.0 + (-v).exp());
        }
        for a in 0..places {
            // Gaps as sums of steps, not differences of sums: a step may be far below the spacing of numbers there.
            let mut gap = 0.0;
            for b in a + 1..places {
                gap += steps[b - 1];
                chain.gaps[a][b] = -(-gap).exp_m1();
            }
        }
        chain
    }

    pub(super) fn places(&self) -> usize {
        2 * self.buffers + 1
    }

    /// Complement `1 - e^-lambda` of a place.
    pub(super) fn complement(&self, place: usize) -> f64 {
        self.gaps[0][place]
    }

    /// Residues of `prod (1 - zero x) / prod (1 - pole x)`, whose poles are at places `first, first + 2, ...` and whose
    /// zeros are at the places after them.
    pub(super) fn residues(&self, first: usize) -> Places {
        let mut residues = [0.0; SIZE];
        for pole in (first..self.places()).step_by(2) {
            // A zero and a pole at a time, so that partial products stay in range.
            let mut residue = 1.0;
            for other in pole + 1..self.places() {
                let gap = self.gaps[pole][other];
                residue = if (other - first) % 2 == 1 {
                    residue * gap
                } else {
                    residue / gap
                };
            }
            let mut exponent = 0.0;
            for other in (first..pole).rev() {
                let gap = self.gaps[other][pole];
                if (other - first) % 2 == 1 {
                    residue *= gap;
                    exponent -= self.logs[other];
                } else {
                    residue /= gap;
                    exponent += self.logs[other];
                }
            }
            residues[pole] = residue * exponent.exp();
        }
        residues
    }

    /// Adds to `by_log` what a gradient with respect to the logarithms of [`Interlaced::residues`] means for the chain.
    pub(super) fn pull_back(&self, first: usize, by_residue: &Places, by_log: &mut Places) {
        for pole in (first..self.places()).step_by(2) {
            let weight = by_residue[pole];
            let mut own = 0.0;
            for other in (first..self.places()).filter(|other| *other != pole) {
                let slope = if other > pole {
                    let gap = self.gaps[pole][other];
                    (1.0 - gap) / gap
                } else {
                    -1.0 / self.gaps[other][pole]
                };
                let term = if (other - first) % 2 == 1 {
                    weight * slope
                } else {
                    -weight * slope
                };
                by_log[other] += term;
                own -= term;
            }
            by_log[pole] += own;
        }
    }

    /// The gradient with respect to the arguments.
    pub(super) fn by_argument(&self, by_log: &Places, gradient: &mut [f64]) {
        let mut sum = 0.0;
        for m in (0..gradient.len()).rev() {
            sum += by_log[m + 1];
            gradient[m] = self.slopes[m] * sum;
        }
    }

    /// Complements of the decays, and output scales.
    pub(super) fn parameters(&self) -> (Vec<f64>, Vec<f64>) {
        let residues = self.residues(1);
        (1..self.places())
            .step_by(2)
            .map(|place| {
                (
                    self.complement(place),
                    residues[place] * (-self.logs[place]).exp(),
                )
            })
            .unzip()
    }
}

/// Arguments of a chain of logarithms, ascending from above 0.
pub(super) fn arguments(logs: &[f64]) -> Vec<f64> {
    let mut before = 0.0;
    logs.iter()
        .map(|log| {
            let step = log - before;
            before = *log;
            argument(step)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blt::pair::output_scales;

    #[test]
    fn parameters_match_those_by_pairs() {
        let arguments = [-5.0, -1.0, 0.3, 2.0, -20.0, 1.5];
        let chain = Interlaced::new(&arguments);
        let decay = |place: usize| (-chain.logs[place]).exp();
        let (theta, theta_hat): (Vec<f64>, Vec<f64>) =
            (0..3).map(|i| (decay(2 * i + 1), decay(2 * i + 2))).unzip();
        let (omega, omega_hat) = output_scales(&theta, &theta_hat).unwrap();
        let (complements, scales) = chain.parameters();
        let error = chain.residues(0);
        for i in 0..3 {
            assert!((1.0 - complements[i] - theta[i]).abs() < 1e-15);
            assert!((scales[i] / omega[i] - 1.0).abs() < 1e-6, "{scales:?} {omega:?}");
            let scale = -error[2 * i + 2] * chain.complement(2 * i + 2);
            assert!((scale / omega_hat[i] - 1.0).abs() < 1e-6, "{scale} {omega_hat:?}");
        }
        for (m, v) in arguments.iter().enumerate() {
            let got = super::arguments(&chain.logs[1..7])[m];
            assert!((got - v).abs() < 1e-6, "{got} {v}");
        }
    }
}
