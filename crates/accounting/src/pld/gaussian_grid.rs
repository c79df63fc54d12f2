//! A pair of Gaussian mixtures as atoms: cells of neighbouring outcomes, and what each of them weighs.

use super::discretize::{Atoms, Bound};
use super::mixture::{Edge, GaussianMixtures, SMALL, Scaled, excess};
use super::pair::Resolution;

/// Gauss-Legendre on `[0, 1]`: nodes with weights.
const TWO: [(f64, f64); 2] = [(0.211_324_865_405_187_1, 0.5), (0.788_675_134_594_812_9, 0.5)];
const THREE: [(f64, f64); 3] = [
    (0.112_701_665_379_258_3, 5.0 / 18.0),
    (0.5, 8.0 / 18.0),
    (0.887_298_334_620_741_7, 5.0 / 18.0),
];
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
/// Up to so many standard deviations two nodes are as good as three in a panel, at most one part in 1e12 off: both
/// densities are mixtures of Gaussians, whatever the loss does.
const NARROW: f64 = 0.005;
/// The width of a far cell relative to its distance.
const WIDENING: f64 = 1.0 / 512.0;
/// No panel is wider.
const PANEL: f64 = 0.08;
/// Largest distance between the exponents of summed densities and the unit of the sum.
const REACH: f64 = 200.0;

/// Masses of `P` so far at the next atom, in units of `e^log_unit`.
struct Pending {
    mass: f64,
    log_unit: f64,
}

impl Pending {
    fn in_units_of(&self, log_unit: f64) -> f64 {
        if self.mass == 0.0 || self.log_unit == log_unit {
            return self.mass;
        }
        self.mass * (self.log_unit - log_unit).exp()
    }
}

/// The mass of a cell in units of `e^log_unit`, and how the loss rises in it (see [`Atoms::push_cell`]).
struct Cell {
    mass: f64,
    log_unit: f64,
    rise: f64,
}

impl Cell {
    fn log_mass(&self) -> f64 {
        self.mass.ln() + self.log_unit
    }
}

impl Resolution {
    /// The steps that a cell of rare losses spans beyond the first: both its masses are kept, so that its width adds to delta only where a sum
    /// comes near epsilon, from as far away.
    fn more_steps(&self, loss: f64) -> f64 {
        let distance = (loss - self.far.1).max(self.far.0 - loss).max(0.0);
        (WIDENING * distance / self.rare_step).floor()
    }
}

impl GaussianMixtures {
    /// The pair as atoms.
    ///
    /// Cells of an upper bound span a step of the lattice to come, from point to point, or the width of the resolution,
    /// where that is more. Cells of a lower bound, one outcome each, end half way between two points, so that the
    /// outcome lies near one. Rare losses have a cell for each step in either case.
    pub(crate) fn atoms(&self, bound: Bound, resolution: &Resolution) -> Atoms {
        let mut atoms = Atoms::default();
        let intervals = self.intervals(resolution.log_tail);
        for &(left, right) in &intervals {
            let last = self.edge(right);
            let mut edge = self.edge(left);
            let mut pending = Pending {
                mass: 0.0,
                log_unit: f64::NEG_INFINITY,
            };
            while edge.x < right {
                let end = self.end_of_cell(bound, resolution, edge, last);
                let cell = self.cell(edge, end, pending.log_unit);
                match bound {
                    // Both masses of the cell on its two ends: the chord between two points of the hockey-stick curve
                    // (connect the dots), which lies above it.
                    Bound::Upper => {
                        let mass = pending.in_units_of(cell.log_unit) + cell.mass * (1.0 - cell.rise);
                        atoms.push(edge.loss, mass.ln() + cell.log_unit);
                        pending = Pending {
                            mass: cell.mass * cell.rise,
                            log_unit: cell.log_unit,
                        };
                    }
                    Bound::Lower => {
                        atoms.push_cell(bound, edge.loss, end.loss, cell.log_mass(), cell.rise);
                        pending.log_unit = cell.log_unit;
                    }
                }
                edge = end;
            }
            atoms.push(last.loss, pending.mass.ln() + pending.log_unit);
        }
        if bound == Bound::Upper {
            // PRIVACY: what was cut off counts as lost, whole.
            (atoms.infinite_p, atoms.infinite_q) = self.outside(&intervals);
        }
        atoms
    }

    /// End of the cell that begins at `edge`.
    fn end_of_cell(&self, bound: Bound, resolution: &Resolution, edge: Edge, last: Edge) -> Edge {
        let Resolution { width, bulk, .. } = *resolution;
        let rare = edge.loss < bulk.0 || edge.loss >= bulk.1;
        // A cell narrower than a step ends on a point: then it is not rounded again. (With a margin: cells of a plain
        // Gaussian are all as wide as a step.)
        if bound == Bound::Upper && !rare && width * edge.slope > 1.001 * resolution.step {
            let x = edge.x + width;
            let end = if x < last.x { self.edge(x) } else { last };
            return if end.loss > bulk.1 {
                self.inverse(bulk.1, edge.x, (edge.x, end.x))
            } else {
                end
            };
        }
        let step = if rare {
            resolution.rare_step
        } else {
            resolution.step
        };
        let offset = match bound {
            Bound::Upper => 0.0,
            Bound::Lower => 0.5,
        };
        // The next end: the first point past this one.
        let points = edge.loss / step - offset;
        // A loss that is a point up to rounding counts as one, or the cell would have no width.
        let mut point = (points + 1e-9 + 4.0 * f64::EPSILON * points.abs()).floor() + 1.0;
        // Outcomes merged over several steps round down by up to one: only where that hardly ever happens.
        let decisive = edge.loss >= resolution.decisive.0 && edge.loss <= resolution.decisive.1;
        if bound == Bound::Lower && !rare && !decisive {
            let widest = self.edge((edge.x + width).min(last.x));
            point = point.max((widest.loss / step - offset).floor());
        }
        if rare {
            point += resolution.more_steps(edge.loss);
        }
        let mut loss = (point + offset) * step;
        if edge.loss < bulk.0 {
            // A wide cell of rare losses does not reach into the bulk.
            loss = loss.min(bulk.0);
        } else if edge.loss < bulk.1 {
            // Nor does a cell of the bulk reach into them, which would count much of its mass as rare.
            loss = loss.min(bulk.1);
        }
        if loss >= last.loss {
            return last;
        }
        let step = (loss - edge.loss) / edge.slope;
        // To second order, where that is little; not where the slope vanishes.
        let bend = 0.5 * edge.curvature / edge.slope * step;
        let start = if bend.abs() < 0.25 {
            edge.x + step * (1.0 - bend)
        } else {
            edge.x + step
        };
        self.inverse(loss, start, (edge.x, last.x))
    }

    /// Integrates both densities between `from` and `to`; in units of `e^log_unit`, if that is a good unit.
    fn cell(&self, from: Edge, to: Edge, log_unit: f64) -> Cell {
        let panels = ((to.x - from.x) / PANEL).ceil().max(1.0);
        let width = (to.x - from.x) / panels;
        let nodes: &[(f64, f64)] = if width <= NARROW { &TWO } else { &THREE };
        let small = from.loss.abs() < SMALL && to.loss.abs() < SMALL;
        let shrink = from.loss.exp_m1();
        let (mut log_unit, mut mass, mut rise) = (log_unit, 0.0, 0.0);
        for panel in 0..panels as u64 {
            for (node, weight) in nodes {
                let x = from.x + width * (panel as f64 + node);
                // `P - e^from_loss Q` over the density of N(0, 1), and `P` over it, in units of e^scale.
                let (scale, p, above) = if small {
                    // Without cancellation: both ratios minus one are known precisely.
                    let (high, low) = (excess(&self.high, x).value, excess(&self.low, x).value);
                    (0.0, 1.0 + high, high - low - shrink * (1.0 + low))
                } else {
                    let (high, low) = (Scaled::new(&self.high, x), Scaled::new(&self.low, x));
                    // Rounded, as the loss is, by a few ulps of the exponents: no more than the ends of the cell are.
                    let q = (from.loss + low.peak - high.peak).exp() * low.sum;
                    (high.peak, high.sum, high.sum - q)
                };
                let exponent = scale - 0.5 * x * x;
                let fresh = mass == 0.0 && exponent < log_unit - REACH;
                if fresh || exponent > log_unit + REACH {
                    let shrunk = if fresh { 0.0 } else { (log_unit - exponent).exp() };
                    (mass, rise, log_unit) = (mass * shrunk, rise * shrunk, exponent);
                }
                let density = weight * (exponent - log_unit).exp();
                mass += density * p;
                rise += density * above;
            }
        }
        let full = -(from.loss - to.loss).exp_m1();
        Cell {
            mass: mass * width * FRAC_1_SQRT_2PI,
            log_unit,
            rise: if full > 0.0 && mass > 0.0 {
                (rise / mass / full).clamp(0.0, 1.0)
            } else {
                0.5
            },
        }
    }
}
