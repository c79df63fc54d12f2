//! A coarse look at the losses: which tilt and which range of losses a composition needs.

use crate::special::{LogSum, ln_1p_exp, log_gap_of_loss};

/// A point of a quadrature rule over the outcomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) loss: f64,
    /// `ln` of the weight under `P`.
    pub(crate) log_p: f64,
    /// Change of the loss per unit of the outcome; 0 for atoms.
    pub(crate) slope: f64,
    /// Distance of the dots that were connected around the loss; 0 where the loss is exact.
    pub(crate) width: f64,
}

impl Node {
    /// `ln` of the weight under `P`, tilted. Connected dots raise every cumulant but those at tilts from -1 to 0, which they lower by
    /// `|tilt (tilt + 1)| width^2 / 8` at most: `t K(1) - K(t)` of two losses, whose variance is `width^2 / 4` at most under every tilt.
    fn exponent(&self, tilt: f64) -> f64 {
        let concave = (-tilt * (tilt + 1.0)).max(0.0);
        self.log_p + tilt * self.loss + 0.125 * concave * self.width * self.width
    }
}

/// The cumulant function of the loss of one release, `K(s) = ln E_P e^{s L}`.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    nodes: Vec<Node>,
    /// True for losses that are a small part of all: their mass is not near 1.
    is_rare: bool,
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
        Self {
            nodes,
            is_rare: false,
        }
    }

    /// The probe of the pair `(Q, P)`.
    pub(crate) fn reversed(&self) -> Self {
        let reverse = |node: &Node| Node {
            loss: -node.loss,
            log_p: node.log_p - node.loss,
            ..*node
        };
        Self {
            nodes: self.nodes.iter().map(reverse).collect(),
            is_rare: self.is_rare,
        }
    }

    pub(crate) fn cumulant(&self, tilt: f64) -> f64 {
        let exponent = |node: &Node| node.exponent(tilt);
        let peak = self.nodes.iter().map(exponent).fold(f64::NEG_INFINITY, f64::max);
        // Near zero the cumulant is a small difference: sum e^{sL} - 1 instead of e^{sL}.
        let largest = self
            .nodes
            .iter()
            .map(|node| (tilt * node.loss).abs())
            .fold(0.0, f64::max);
        if largest < 0.5 && !self.is_rare {
            let rise: f64 = self
                .nodes
                .iter()
                .map(|node| node.log_p.exp() * (node.exponent(tilt) - node.log_p).exp_m1())
                .sum();
            return rise.ln_1p();
        }
        let sum: f64 = self.nodes.iter().map(|node| (exponent(node) - peak).exp()).sum();
        peak + sum.ln()
    }

    /// An upper bound on the Renyi divergence at `order` (> 1), but for the error of the quadrature.
    pub(crate) fn renyi(&self, order: f64) -> f64 {
        let mut sum = LogSum::new();
        // An atom without a loss adds nothing; a point of a quadrature may have lost its loss to rounding.
        for node in self
            .nodes
            .iter()
            .filter(|node| node.loss != 0.0 || node.slope != 0.0)
        {
            sum.add(node.log_p - node.loss + log_gap_of_loss(node.loss, order));
        }
        ln_1p_exp(sum.get()) / (order - 1.0)
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

    /// The lowest threshold such that the losses above it have a mass of at most `max_mass`, with that mass; `None` where no
    /// losses are that rare.
    pub(crate) fn rare_above(&self, max_mass: f64) -> Option<(f64, f64)> {
        let mut nodes: Vec<&Node> = self.nodes.iter().collect();
        nodes.sort_by(|a, b| b.loss.total_cmp(&a.loss));
        let mut mass = 0.0;
        for pair in nodes.windows(2) {
            let more = mass + pair[0].log_p.exp();
            if more > max_mass {
                return (mass > 0.0).then_some((pair[0].loss, mass));
            }
            mass = more;
        }
        None
    }

    /// The losses up to `threshold`, and those above it. Each side takes one node of the other: a rule for a whole
    /// integral errs by less than that when it is cut, and both are to be no less than the truth.
    pub(crate) fn parted(&self, threshold: f64) -> (Self, Self) {
        let mut nodes = self.nodes.clone();
        nodes.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        let cut = nodes.partition_point(|node| node.loss <= threshold);
        let bulk = nodes[..(cut + 1).min(nodes.len())].to_vec();
        let rare = nodes[cut.saturating_sub(1)..].to_vec();
        let rare = Self {
            nodes: rare,
            is_rare: true,
        };
        (Self::new(bulk), rare)
    }

    /// The largest and the smallest loss.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let fold =
            |start, pick: fn(f64, f64) -> f64| self.nodes.iter().map(|node| node.loss).fold(start, pick);
        (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
    }
}

/// Cumulants around a tilt, from which Chernoff bounds on the sum of any number of losses are read.
#[derive(Debug, Clone)]
pub(crate) struct Tails {
    tilt: f64,
    /// Tilts `>= self.tilt`.
    above: Vec<Cumulants>,
    /// Tilts `< self.tilt`.
    below: Vec<Cumulants>,
    here: Cumulants,
    ends: (f64, f64),
    rare_ends: (f64, f64),
    /// Increase of a release's cumulant by the rounding to lattices, per squared distance from the tilt.
    spread: f64,
    /// Maximum amount by which the loss of one release was rounded down.
    rounding: f64,
}

/// Cumulants of a bulk loss and of a rare one at a tilt.
#[derive(Debug, Clone, Copy)]
struct Cumulants {
    tilt: f64,
    bulk: f64,
    rare: f64,
}

/// A sum of losses: how many of them, and `ln` of a factor on its mass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) bulk: f64,
    pub(crate) rare: f64,
    pub(crate) log_ways: f64,
}

impl Sum {
    /// A sum of bulk losses.
    pub(crate) fn of(count: f64) -> Self {
        Self {
            bulk: count,
            rare: 0.0,
            log_ways: 0.0,
        }
    }
}

impl Tails {
    /// Looks at distances from `tilt` that matter for sums of 1 to `count` losses, of which a few may be rare ones.
    pub(crate) fn new(bulk: &Probe, rare: Option<&Probe>, tilt: f64, count: f64, variance: f64) -> Self {
        const POINTS: i32 = 32;
        const FAR: f64 = 0.1;
        const MOST_FAR: i32 = 96;
        let deviation = variance.sqrt();
        let (lowest, highest) = (0.3 / (deviation * count.sqrt()), 100.0 / deviation);
        let distance = |point: i32| lowest * (highest / lowest).powf(f64::from(point) / f64::from(POINTS));
        // Rare losses far beyond the deviation of a sum are cut off at distances that suit them.
        let (low, high) = bulk.ends();
        let farthest = low.abs().max(high.abs());
        let far = (FAR * lowest * farthest).ln() * f64::from(POINTS) / (highest / lowest).ln();
        let first = -(far.clamp(0.0, f64::from(MOST_FAR)).ceil() as i32);
        let at = |tilt: f64| Cumulants {
            tilt,
            bulk: bulk.cumulant(tilt),
            rare: rare.map_or(f64::NEG_INFINITY, |rare| rare.cumulant(tilt)),
        };
        Self {
            tilt,
            above: (first..=POINTS).map(|point| at(tilt + distance(point))).collect(),
            below: (first..=POINTS).map(|point| at(tilt - distance(point))).collect(),
            here: at(tilt),
            ends: bulk.ends(),
            rare_ends: rare.map_or((0.0, 0.0), Probe::ends),
            spread: 0.0,
            rounding: 0.0,
        }
    }

    /// Tails of losses that are put on a lattice of distance `step`, and on a coarser one at each further of `levels`. A release's loss
    /// moves by at most three steps in all, and its variance grows by a quarter of a squared step at each level.
    pub(crate) fn on_lattices(mut self, step: f64, levels: u32) -> Self {
        self.spread = 0.125 * f64::from(levels) * step * step;
        self.ends = (self.ends.0 - 3.0 * step, self.ends.1 + 3.0 * step);
        self
    }

    /// Tails of sums that end on a lattice of distance `step`, on which a few losses are put directly.
    pub(crate) fn ending_on(mut self, step: f64, few: f64, count: f64) -> Self {
        self.spread += 0.125 * few / count * step * step;
        self.ends = (self.ends.0 - step, self.ends.1 + step);
        self.rare_ends = (self.rare_ends.0 - step, self.rare_ends.1 + step);
        self
    }

    /// Tails of losses that were rounded down by `rounding` at most.
    pub(crate) fn rounded_down(self, rounding: f64) -> Self {
        Self { rounding, ..self }
    }

    /// Increase of a release's cumulant by the rounding to lattices, per squared tilt.
    pub(crate) fn spread(&self) -> f64 {
        self.spread
    }

    /// The range of the rare losses of one release.
    pub(crate) fn rare_width(&self) -> f64 {
        self.rare_ends.1 - self.rare_ends.0
    }

    /// A range of a sum of losses: the mass of `P` above it is at most `e^log_mass`, the tilted mass
    /// above it and below it at most `e^log_tilted_mass` each, relative to all of it.
    pub(crate) fn range(&self, sum: Sum, log_mass: f64, log_tilted_mass: f64) -> (f64, f64) {
        let cumulant = |at: &Cumulants| {
            let distance = at.tilt - self.tilt;
            let rare = if sum.rare > 0.0 { sum.rare * at.rare } else { 0.0 };
            sum.bulk * at.bulk + rare + (sum.bulk + sum.rare) * self.spread * distance * distance
        };
        let ends = |end: fn(&(f64, f64)) -> f64| sum.bulk * end(&self.ends) + sum.rare * end(&self.rare_ends);
        let (lowest, highest) = (ends(|ends| ends.0), ends(|ends| ends.1));
        let top = self
            .above
            .iter()
            .chain([&self.here])
            .filter(|at| at.tilt > 0.0)
            .map(|at| (cumulant(at) + sum.log_ways - log_mass) / at.tilt)
            .fold(highest, f64::min);
        let here = cumulant(&self.here);
        let change = |at: &Cumulants| (cumulant(at) - here - log_tilted_mass) / (at.tilt - self.tilt);
        let tilted_top = self.above.iter().map(change).fold(highest, f64::min);
        let top = top.max(tilted_top);
        let bottom = self.below.iter().map(change).fold(lowest, f64::max);
        // PRIVACY: what was rounded down further than the window reaches would come back at its upper end.
        let bottom = bottom - (sum.bulk + sum.rare) * self.rounding;
        (bottom, top.max(bottom))
    }
}
