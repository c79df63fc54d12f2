//! A coarse look at the losses: which tilt and which range of losses a composition needs.

use crate::special::LogSum;

/// A point of a quadrature rule over the outcomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) loss: f64,
    /// `ln` of the weight under `P`.
    pub(crate) log_p: f64,
    /// Change of the loss per unit of the outcome; 0 for atoms.
    pub(crate) slope: f64,
}

/// The cumulant function of the loss of one release, `K(s) = ln E_P e^{s L}`.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    nodes: Vec<Node>,
}

/// `K'`, `K''` and the mean squared slope under the tilted distribution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    pub(crate) squared_slope: f64,
}

impl Probe {
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        Self { nodes }
    }

    /// The probe of the pair `(Q, P)`.
    pub(crate) fn reversed(&self) -> Self {
        let reverse = |node: &Node| Node {
            loss: -node.loss,
            log_p: node.log_p - node.loss,
            slope: node.slope,
        };
        Self {
            nodes: self.nodes.iter().map(reverse).collect(),
        }
    }

    pub(crate) fn cumulant(&self, tilt: f64) -> f64 {
        let exponent = |node: &Node| node.log_p + tilt * node.loss;
        let peak = self.nodes.iter().map(exponent).fold(f64::NEG_INFINITY, f64::max);
        // Near zero the cumulant is a small difference: sum e^{sL} - 1 instead of e^{sL}.
        let reach = self
            .nodes
            .iter()
            .map(|node| (tilt * node.loss).abs())
            .fold(0.0, f64::max);
        if reach < 0.5 {
            let rise: f64 = self
                .nodes
                .iter()
                .map(|node| node.log_p.exp() * (tilt * node.loss).exp_m1())
                .sum();
            return rise.ln_1p();
        }
        let sum: f64 = self.nodes.iter().map(|node| (exponent(node) - peak).exp()).sum();
        peak + sum.ln()
    }

    pub(crate) fn moments(&self, tilt: f64) -> Moments {
        let mut log_total = LogSum::new();
        self.nodes
            .iter()
            .for_each(|node| log_total.add(node.log_p + tilt * node.loss));
        let log_total = log_total.get();
        let weight = |node: &Node| (node.log_p + tilt * node.loss - log_total).exp();
        let mean: f64 = self.nodes.iter().map(|node| weight(node) * node.loss).sum();
        let (mut variance, mut squared_slope) = (0.0, 0.0);
        for node in &self.nodes {
            let weight = weight(node);
            variance += weight * (node.loss - mean) * (node.loss - mean);
            squared_slope += weight * node.slope * node.slope;
        }
        Moments {
            mean,
            variance,
            squared_slope,
        }
    }

    /// The largest and the smallest loss.
    pub(crate) fn reach(&self) -> (f64, f64) {
        let fold =
            |start, pick: fn(f64, f64) -> f64| self.nodes.iter().map(|node| node.loss).fold(start, pick);
        (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
    }
}

/// Cumulants around a tilt, from which Chernoff bounds on the sum of any number of losses are read.
#[derive(Debug, Clone)]
pub(crate) struct Tails {
    tilt: f64,
    /// Pairs of a tilt `>= self.tilt` and its cumulant.
    above: Vec<(f64, f64)>,
    /// Pairs of a tilt `< self.tilt` and its cumulant.
    below: Vec<(f64, f64)>,
    cumulant: f64,
    reach: (f64, f64),
    /// What being put on lattices adds: to the cumulant of a release, per squared distance from the tilt.
    spread: f64,
}

impl Tails {
    /// Looks at distances from `tilt` that matter for sums of 1 to `count` losses.
    pub(crate) fn new(probe: &Probe, tilt: f64, count: f64, variance: f64) -> Self {
        const POINTS: i32 = 40;
        let deviation = variance.sqrt();
        let (least, most) = (0.3 / (deviation * count.sqrt()), 100.0 / deviation);
        let distance = |point: i32| least * (most / least).powf(f64::from(point) / f64::from(POINTS));
        let at = |tilt: f64| (tilt, probe.cumulant(tilt));
        Self {
            tilt,
            above: (0..=POINTS).map(|point| at(tilt + distance(point))).collect(),
            below: (0..=POINTS).map(|point| at(tilt - distance(point))).collect(),
            cumulant: probe.cumulant(tilt),
            reach: probe.reach(),
            spread: 0.0,
        }
    }

    /// For losses that are put on a lattice of distance `step`, and on a coarser one at each further of `levels`: a
    /// release's loss moves by at most three steps in all, and its variance grows by a quarter of a squared step at
    /// each level.
    pub(crate) fn on_lattices(mut self, step: f64, levels: u32) -> Self {
        self.spread = 0.125 * f64::from(levels) * step * step;
        self.reach = (self.reach.0 - 3.0 * step, self.reach.1 + 3.0 * step);
        self
    }

    /// A range of the sum of `count` losses: the mass of `P` above it is at most `e^log_mass`, the tilted mass
    /// above it and below it at most `e^log_tilted_mass` each.
    pub(crate) fn range(&self, count: f64, log_mass: f64, log_tilted_mass: f64) -> (f64, f64) {
        let cumulant = |&(tilt, cumulant): &(f64, f64)| {
            let distance = tilt - self.tilt;
            count * (cumulant + self.spread * distance * distance)
        };
        let here = (self.tilt, self.cumulant);
        let top = self
            .above
            .iter()
            .chain([&here])
            .filter(|(tilt, _)| *tilt > 0.0)
            .map(|point| (cumulant(point) - log_mass) / point.0)
            .fold(count * self.reach.1, f64::min);
        let change = |point: &(f64, f64)| cumulant(point) - cumulant(&here) - log_tilted_mass;
        let tilted_top = self
            .above
            .iter()
            .map(|point| change(point) / (point.0 - self.tilt))
            .fold(count * self.reach.1, f64::min);
        let top = top.max(tilted_top);
        let bottom = self
            .below
            .iter()
            .map(|point| change(point) / (point.0 - self.tilt))
            .fold(count * self.reach.0, f64::max);
        (bottom, top.max(bottom))
    }
}
