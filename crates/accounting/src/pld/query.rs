//! Epsilon at a delta and delta at an epsilon of composed pairs.

use std::cell::{Cell, OnceCell};

use super::composition::{COARSE, Composition, Solve};
use super::convolve::Convolution;
use super::discretize::Bound;
use super::integrate_one::SingleRelease;
use super::pair::Pair;
use super::readout::{Readout, Total};
use super::tilt_search::{Direction, Outline};
use crate::special::LogSum;

/// Relative accuracy of epsilon aimed at: of the upper bound, and of the lower bound.
pub(crate) const ACCURACY: f64 = 8e-7;
const LOWER: f64 = 4e-7;
/// Up to so many releases of several pairs are composed in one level, and an upper bound is finer by this factor.
const FEW_RELEASES: u64 = 24;
const FINER: f64 = 16.0;
/// A lower bound looks at so many releases at most. Each one is rounded down, so the windows of more would outgrow the longest transform.
const MAX_LOWER_RELEASES: u64 = 1 << 34;

/// The largest loss of all releases of a part, in either direction.
fn largest((pair, count): &(Pair, u64)) -> f64 {
    *count as f64 * pair.max_loss(false).max(pair.max_loss(true)).max(0.0)
}

impl Composition {
    /// The sum of the largest losses: the epsilon of basic composition, at delta zero (`+inf` where none is finite).
    fn pure_epsilon(&self) -> f64 {
        // Above the sum by more than its rounding errors.
        self.parts.iter().map(largest).sum::<f64>() * (1.0 + 1e-14)
    }

    /// The pure epsilon of one direction.
    fn pure_epsilon_of(&self, reversed: bool) -> f64 {
        let largest = |(pair, count): &(Pair, u64)| *count as f64 * pair.max_loss(reversed).max(0.0);
        self.parts.iter().map(largest).sum::<f64>() * (1.0 + 1e-14)
    }

    /// The pure epsilon of the parts that have one, and the other parts; `None` where there are no parts of both kinds.
    fn beside_pure(&self) -> Option<(f64, Self)> {
        let (pure, rest): (Vec<_>, Vec<_>) = self
            .parts
            .iter()
            .cloned()
            .partition(|part| largest(part).is_finite());
        let (pure, rest) = (Self { parts: pure }, Self { parts: rest });
        let both = !pure.parts.is_empty() && !rest.parts.is_empty();
        both.then(|| (pure.pure_epsilon(), rest))
    }

    /// Relative accuracy of an upper bound on epsilon.
    fn accuracy(&self) -> f64 {
        let releases = self
            .parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(part.1));
        if self.parts.len() > 1 && releases <= FEW_RELEASES {
            ACCURACY / FINER
        } else {
            ACCURACY
        }
    }

    /// The smallest epsilon at `e^log_delta` (`+inf` where none holds).
    pub(crate) fn epsilon(&self, bound: Bound, log_delta: f64) -> f64 {
        if let Some(single) = self.single_mixture() {
            return single.epsilon(log_delta);
        }
        match (bound, self.fewer()) {
            (Bound::Upper, _) if self.log_delta_of_each() <= log_delta => 0.0,
            (Bound::Upper, _) => {
                let answer = self.answer(bound, Solve::LogDelta(log_delta));
                self.or_zero(answer.min(self.pure_epsilon()), log_delta)
            }
            (Bound::Lower, Some(fewer)) => fewer.answer(bound, Solve::LogDelta(log_delta)),
            (Bound::Lower, None) => self.answer(bound, Solve::LogDelta(log_delta)),
        }
    }

    /// `ln` of the sum of the deltas of all releases at epsilon 0, each alone: the distance in total variation is subadditive. No lattice is
    /// as good where losses are rare and large. 0 where some pair has no closed form.
    fn log_delta_of_each(&self) -> f64 {
        let mut sum = LogSum::new();
        for (pair, count) in &self.parts {
            let Pair::Mixtures(mixtures) = pair else {
                return 0.0;
            };
            sum.add((*count as f64).ln() + SingleRelease(mixtures).log_delta(0.0));
        }
        (sum.get() + 1e-14).min(0.0)
    }

    /// An upper bound on epsilon, or 0 where it is so small that the rounding to lattices may have made it, and a finer look at delta says
    /// so.
    fn or_zero(&self, epsilon: f64, log_delta: f64) -> f64 {
        // Delta falls by no more than epsilon between 0 and epsilon; the lattice of the other direction may add many times as much.
        const ROUNDING: f64 = 100.0;
        let is_rounding = epsilon > 0.0 && epsilon < ROUNDING * log_delta.exp();
        if is_rounding && self.log_delta(Bound::Upper, 0.0) <= log_delta {
            0.0
        } else {
            epsilon
        }
    }

    /// Some of the releases, where all are too many for a lower bound: the others spend nothing less than nothing.
    fn fewer(&self) -> Option<Self> {
        let releases: u128 = self.parts.iter().map(|(_, count)| u128::from(*count)).sum();
        if releases <= u128::from(MAX_LOWER_RELEASES) {
            return None;
        }
        let share =
            |count: u64| (u128::from(count) * u128::from(MAX_LOWER_RELEASES) / releases).max(1) as u64;
        let parts = self
            .parts
            .iter()
            .map(|(pair, count)| (pair.clone(), share(*count)));
        Some(Self {
            parts: parts.collect(),
        })
    }

    /// An upper bound on epsilon of another relative accuracy. By how much it is too large is nearly in proportion.
    pub(crate) fn rough_epsilon(&self, accuracy: f64, log_delta: f64) -> f64 {
        if let Some(single) = self.single_mixture() {
            return single.epsilon(log_delta);
        }
        let rough = Looked::new(self, Solve::LogDelta(log_delta)).rough_upper(accuracy);
        rough.min(self.pure_epsilon())
    }

    /// `ln` of the smallest delta at `epsilon`.
    pub(crate) fn log_delta(&self, bound: Bound, epsilon: f64) -> f64 {
        if let Some(single) = self.single_mixture() {
            return single.log_delta(epsilon);
        }
        if epsilon >= self.pure_epsilon() {
            return f64::NEG_INFINITY;
        }
        let most = match bound {
            Bound::Upper if epsilon == 0.0 => self.log_delta_of_each(),
            Bound::Upper | Bound::Lower => 0.0,
        };
        self.answer(bound, Solve::Epsilon(epsilon)).min(most)
    }

    /// Composes once, for the losses that decide at `epsilon`, and gives `read` the curve that is found: `ln` of an upper bound on delta
    /// at any epsilon. It is as tight as [`log_delta`](Self::log_delta) at that one.
    pub(crate) fn near<T>(&self, epsilon: f64, read: impl FnOnce(&dyn Fn(f64) -> f64) -> T) -> T {
        if let Some(single) = self.single_mixture() {
            return read(&|epsilon| single.log_delta(epsilon));
        }
        let looked = Looked::new(self, Solve::Epsilon(epsilon));
        let first = looked.total(0);
        let coarse = self.total(&looked.directions[1], Bound::Upper, COARSE);
        let second = OnceCell::new();
        let (first, coarse) = (Readout::new(&first), Readout::new(&coarse));
        let pure = self.pure_epsilon();
        read(&|epsilon| {
            if epsilon >= pure {
                return f64::NEG_INFINITY;
            }
            let answer = first.log_delta(epsilon);
            // As in `Looked::larger`: a coarse bound settles the other direction wherever it is the smaller one.
            let other = coarse.log_delta(epsilon);
            let answer = if other <= answer {
                answer
            } else {
                let second = second.get_or_init(|| looked.total(1));
                answer.max(other.min(second.log_delta(epsilon)))
            };
            answer.min(0.0)
        })
    }

    /// One release alone is integrated, not composed: exact on both sides.
    fn single_mixture(&self) -> Option<SingleRelease<'_>> {
        match self.parts.as_slice() {
            [(Pair::Mixtures(mixtures), 1)] => Some(SingleRelease(mixtures)),
            _ => None,
        }
    }

    /// A lower and an upper bound on epsilon at `e^log_delta`: both start from the same look at the two directions.
    pub(crate) fn bounds(&self, log_delta: f64) -> (f64, f64) {
        if let Some(single) = self.single_mixture() {
            let exact = single.epsilon(log_delta);
            return (exact, exact);
        }
        let target = Solve::LogDelta(log_delta);
        let looked = Looked::new(self, target);
        let upper = looked.upper(self.accuracy()).min(self.pure_epsilon());
        let upper = if self.log_delta_of_each() <= log_delta {
            0.0
        } else {
            self.or_zero(upper, log_delta)
        };
        match self.fewer() {
            Some(fewer) => (fewer.answer(Bound::Lower, target), upper),
            None => (looked.lower(), upper),
        }
    }

    fn answer(&self, bound: Bound, target: Solve) -> f64 {
        let looked = Looked::new(self, target);
        // At epsilon 0 nothing but the width of the losses sets the scale, and calibration asks for the root of delta there.
        let finer = if matches!(target, Solve::Epsilon(0.0)) {
            FINER
        } else {
            1.0
        };
        match bound {
            Bound::Upper => looked.upper(self.accuracy() / finer),
            Bound::Lower => looked.lower(),
        }
    }

    /// The two directions, the one first that looks less private.
    fn directions(&self, target: Solve) -> [Direction; 2] {
        let mut directions = [self.look(false, target), self.look(true, target)];
        let weight = |direction: &Direction| match target {
            Solve::LogDelta(_) => direction.epsilon,
            Solve::Epsilon(_) => direction.log_delta,
        };
        directions.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        directions
    }

    /// The convolution of the parts that `outline` describes.
    pub(super) fn convolution<'a>(
        &'a self,
        direction: &'a Direction,
        outline: &'a Outline,
        bound: Bound,
        accuracy: f64,
    ) -> Convolution<'a> {
        Convolution {
            parts: &self.parts,
            direction,
            outline,
            bound,
            accuracy,
            slope: direction.steepness,
            log_tail: self.log_tail(direction.log_delta),
            forget: false,
        }
    }

    pub(super) fn total(&self, direction: &Direction, bound: Bound, accuracy: f64) -> Total {
        let outline = direction.outline();
        self.convolution(direction, &outline, bound, accuracy).total()
    }

    /// The bound of one direction, and true if rounding errors of the transforms are what decides it.
    fn resolve(&self, direction: &Direction, bound: Bound, accuracy: f64, target: Solve) -> (f64, bool) {
        let outline = direction.outline();
        let mut convolution = self.convolution(direction, &outline, bound, accuracy);
        let total = convolution.total();
        let whole = total.answer(target);
        match bound {
            Bound::Upper => {
                let is_noisy = total.is_noisy_at(whole, target);
                let finer = self.finer(&mut convolution, &total, whole, target);
                (whole.min(finer), is_noisy)
            }
            // Where rare losses decide, forgetting all about the others costs less than rounding them.
            Bound::Lower if outline.parted.iter().any(|part| part.rare.is_some()) || !whole.is_finite() => {
                convolution.forget = true;
                (whole.max(convolution.total().answer(target)), false)
            }
            Bound::Lower => (whole, false),
        }
    }

    /// An upper bound on lattices that suit the fall of delta at an answer, where single losses make it fall faster than was assumed. (`+inf`
    /// elsewhere.)
    fn finer(&self, convolution: &mut Convolution<'_>, total: &Total, answer: f64, target: Solve) -> f64 {
        /// The factor from which on it is worth its time, and the largest one: eight times as many points.
        const WORTH: f64 = 2.0;
        const MOST: f64 = 64.0;
        let is_single = |(pair, _): &(Pair, u64)| matches!(pair, Pair::Outcomes(_) | Pair::Laplace { .. });
        let is_asked = matches!(target, Solve::LogDelta(_)) && answer > 0.0 && answer.is_finite();
        if !is_asked || convolution.accuracy >= COARSE || !self.parts.iter().any(is_single) {
            return f64::INFINITY;
        }
        let apart = convolution.accuracy * answer;
        let fall = (total.log_delta(answer) - total.log_delta(answer + apart)) / apart;
        if fall.is_nan() || fall <= WORTH * convolution.slope {
            return f64::INFINITY;
        }
        convolution.slope = fall.min(MOST * convolution.slope);
        convolution.total().answer(target)
    }

    /// [`resolve`](Self::resolve) for an upper bound, again from its answer where rounding errors decide because it lies far below the losses
    /// that were taken to do so.
    fn resolve_upper(&self, direction: &Direction, accuracy: f64, target: Solve) -> (f64, bool) {
        /// More looks are not worth their time.
        const LOOKS: usize = 3;
        let mut direction = direction.clone();
        let (mut answer, mut is_noisy) = self.resolve(&direction, Bound::Upper, accuracy, target);
        for _ in 0..LOOKS {
            let off = (direction.epsilon - answer) * direction.tilt;
            let may_gain = is_noisy && off > 1.0 && answer > 0.0;
            if !may_gain || matches!(target, Solve::Epsilon(_)) {
                break;
            }
            direction.epsilon = answer;
            let (nearer, still) = self.resolve(&direction, Bound::Upper, accuracy, target);
            if nearer >= answer {
                break;
            }
            (answer, is_noisy) = (nearer, still);
        }
        (answer, is_noisy)
    }
}

/// The two directions of a composition at a target, each looked at once.
struct Looked<'a> {
    composition: &'a Composition,
    target: Solve,
    /// The direction first that looks less private.
    directions: [Direction; 2],
    /// Coarse upper bounds with closer looks.
    closer: [OnceCell<(f64, Direction)>; 2],
    /// A coarse upper bound of the second direction.
    second: OnceCell<f64>,
    /// True if rounding errors of the transforms are what decides an upper bound.
    is_noisy: Cell<bool>,
}

impl<'a> Looked<'a> {
    fn new(composition: &'a Composition, target: Solve) -> Self {
        Self {
            composition,
            target,
            directions: composition.directions(target),
            closer: Default::default(),
            second: OnceCell::new(),
            is_noisy: Cell::new(false),
        }
    }

    fn closer(&self, index: usize) -> &(f64, Direction) {
        self.closer[index].get_or_init(|| self.composition.closer(&self.directions[index], self.target))
    }

    /// The upper bound of one direction, at any epsilon.
    fn total(&self, index: usize) -> Total {
        let accuracy = self.composition.accuracy();
        self.composition
            .total(&self.closer(index).1, Bound::Upper, accuracy)
    }

    fn resolve(&self, index: usize, bound: Bound, accuracy: f64) -> f64 {
        let closer = &self.closer(index).1;
        let (resolved, is_noisy) = match bound {
            Bound::Upper => self.composition.resolve_upper(closer, accuracy, self.target),
            // Losses that are rounded down on a lattice as fine as upper bounds ask for would be too many.
            Bound::Lower => {
                let whole = closer.on_one_lattice();
                self.composition.resolve(&whole, bound, accuracy, self.target)
            }
        };
        if is_noisy {
            self.is_noisy.set(true);
        }
        resolved.min(self.pure(index))
    }

    fn upper(&self, accuracy: f64) -> f64 {
        let whole = self.larger(|index| {
            self.resolve(index, Bound::Upper, accuracy)
                .min(self.closer(index).0)
        });
        whole.min(self.beside_pure(whole))
    }

    /// An upper bound where rounding errors decide, or a first look says that it is the smaller one: the parts without a largest loss alone,
    /// beside the pure epsilon of the others. (`+inf` elsewhere.)
    ///
    /// PRIVACY: let `P = P1 x P2`, `Q = Q1 x Q2` with `P1 <= e^a Q1` everywhere. Then
    /// `(P1 P2 - e^(a + b) Q1 Q2)+ <= P1 (P2 - e^b Q2)+`, whose integral is the delta of the second pair at `b`.
    fn beside_pure(&self, whole: f64) -> f64 {
        let Some((pure, rest)) = self.composition.beside_pure() else {
            return f64::INFINITY;
        };
        let looks_smaller = || match self.target {
            Solve::LogDelta(_) => pure + rest.directions(self.target)[0].epsilon < whole,
            Solve::Epsilon(_) => false,
        };
        if !self.is_noisy.get() && !looks_smaller() {
            return f64::INFINITY;
        }
        match self.target {
            Solve::LogDelta(log_delta) => (pure + rest.epsilon(Bound::Upper, log_delta)).next_up(),
            Solve::Epsilon(epsilon) if epsilon > pure => {
                rest.log_delta(Bound::Upper, (epsilon - pure).next_down())
            }
            Solve::Epsilon(_) => f64::INFINITY,
        }
    }

    /// The answer of a direction that has a largest loss, where that is all that counts.
    fn pure(&self, index: usize) -> f64 {
        let pure = self.composition.pure_epsilon_of(self.directions[index].reversed);
        match self.target {
            Solve::LogDelta(_) => pure,
            Solve::Epsilon(epsilon) if epsilon >= pure => f64::NEG_INFINITY,
            Solve::Epsilon(_) => 0.0,
        }
    }

    /// The upper bound of this accuracy, even where the coarse one is smaller.
    fn rough_upper(&self, accuracy: f64) -> f64 {
        self.larger(|index| self.resolve(index, Bound::Upper, accuracy))
    }

    fn lower(&self) -> f64 {
        self.larger(|index| self.resolve(index, Bound::Lower, LOWER))
    }

    /// The larger of the bounds of the two directions.
    fn larger(&self, of: impl Fn(usize) -> f64) -> f64 {
        let answer = of(0);
        // At epsilon 0 delta is the distance in total variation, which is equal in both.
        if matches!(self.target, Solve::Epsilon(0.0)) {
            return answer;
        }
        // The other direction is usually the more private one by far: then its largest loss or a coarse bound settles it.
        if self.pure(1) <= answer {
            return answer;
        }
        let second = self.second.get_or_init(|| {
            let direction = &self.directions[1];
            self.composition
                .resolve(direction, Bound::Upper, COARSE, self.target)
                .0
        });
        if *second <= answer {
            answer
        } else {
            answer.max(of(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mixture::GaussianMixtures;
    use super::*;
    use crate::{NoiseMultiplier, gaussian};

    fn poisson(q: f64, z: f64, count: u64) -> Composition {
        let mut composition = Composition::default();
        let mixtures = GaussianMixtures::new(z, &[(0.0, 1.0 - q), (1.0, q)], &[(0.0, 1.0)]);
        composition.push(Pair::Mixtures(mixtures), count);
        composition
    }

    /// Nobody who leaves loses more than `-ln(1 - q)` per release.
    #[test]
    fn a_direction_with_a_largest_loss_costs_no_more() {
        for q in [1e-20, 1e-9, 0.3] {
            let all = poisson(q, 0.4, 7);
            let largest = all.pure_epsilon_of(true);
            assert!(largest >= 7.0 * q && largest <= -7.0 * (-q).ln_1p() * (1.0 + 1e-13));
            assert_eq!(all.pure_epsilon_of(false), f64::INFINITY);
            let Pair::Mixtures(mixtures) = &all.parts[0].0 else {
                unreachable!()
            };
            let at = |share: f64| mixtures.log_hockey_stick_reversed(share * largest / 7.0, -100.0);
            assert!(at(1.0) == f64::NEG_INFINITY && at(0.5) > q.ln() - 2.0, "{q}");
        }
    }

    /// The upper bound lies at most `slack`, relative, above the truth, and the lower bound at most `gap` below it.
    fn check(composition: &Composition, log_delta: f64, truth: f64, slack: f64, gap: f64) {
        let upper = composition.answer(Bound::Upper, Solve::LogDelta(log_delta));
        let lower = composition.answer(Bound::Lower, Solve::LogDelta(log_delta));
        assert!(
            upper >= truth * (1.0 - 1e-9) && upper <= truth * (1.0 + slack),
            "upper {upper}, truth {truth}"
        );
        assert!(
            lower <= truth && lower >= truth - gap,
            "lower {lower}, truth {truth}"
        );
        let back = composition.answer(Bound::Upper, Solve::Epsilon(upper));
        assert!(
            (back - log_delta).abs() < 2e-6 * log_delta.abs() + 5e-4,
            "delta {back}, target {log_delta}"
        );
    }

    #[test]
    #[ignore = "slow"]
    fn gaussians_composed_numerically_are_the_wider_gaussian() {
        for count in [1u64, 2, 15, 16, 17, 300] {
            for log_delta in [-7.0, -80.0, -500.0] {
                let z = NoiseMultiplier::new(7.0 / (count as f64).sqrt()).unwrap();
                let exact = gaussian::epsilon_at_log_delta(z, log_delta).unwrap().get();
                check(
                    &poisson(1.0, 7.0, count),
                    log_delta,
                    exact,
                    2e-6,
                    5e-5 * exact.max(1.0),
                );
            }
        }
    }

    /// Truths by inverting the cumulant generating function along a line in the complex plane (numpy).
    #[test]
    fn rare_large_losses_are_bounded_on_both_sides() {
        check(&poisson(0.001, 0.8, 10_000), 1e-18f64.ln(), 5.019_299, 5e-6, 1e-2);
    }

    /// One rare loss decides, and no tilt brings the mass there. Truths by the density of one and two rare losses beside a
    /// normal bulk (numpy).
    #[test]
    #[ignore = "slow"]
    fn a_single_large_loss_decides() {
        check(
            &poisson(2.405e-4, 1.2174, 93),
            1.27e-22f64.ln(),
            0.452_052,
            5e-6,
            1e-4,
        );
        check(
            &poisson(1e-6, 0.5, 1_000_000),
            1e-9f64.ln(),
            0.562_844,
            5e-5,
            1e-3,
        );
    }

    /// Losses so large that a lattice point, as a multiple of the step, is rounded by more than a billionth of a step.
    #[test]
    fn cells_without_width_keep_delta_close() {
        let log_delta = poisson(1e-6, 0.5, 1_000_000).log_delta(Bound::Upper, 0.563_214_440_391_461_3);
        assert!((log_delta.exp() / 9.963e-10 - 1.0).abs() < 1e-2, "{log_delta}");
    }

    /// Little noise: most releases tell nothing, a few tell very much, and half of the mass sits at the lowest loss.
    #[test]
    #[ignore = "slow"]
    fn a_spike_at_the_lowest_loss() {
        for (count, truth) in [
            (31, 59.321_088),
            (48, 67.646_565),
            (64, 74.231_778),
            (1000, 251.099_11),
        ] {
            check(
                &poisson(0.01, 0.2, count),
                1e-6f64.ln(),
                truth,
                2e-6,
                5e-3 * truth,
            );
        }
    }

    /// The truth is below 17.193 114 5 (dp-accounting 0.6.0 on a grid of 3e-5).
    #[test]
    fn few_releases_of_several_pairs_are_composed_more_accurately() {
        let mut composition = Composition::default();
        let mixture =
            |z: f64, high: &[(f64, f64)]| Pair::Mixtures(GaussianMixtures::new(z, high, &[(0.0, 1.0)]));
        composition.push(mixture(1.0, &[(0.0, 0.2), (1.0, 0.6), (2.0, 0.2)]), 3);
        composition.push(mixture(2.0, &[(0.0, 0.33), (2.0, 0.34), (3.0, 0.33)]), 2);
        let (low, high) = composition.bounds(1e-6f64.ln());
        assert!(low > 17.1925 && high < 17.193_115_8, "{low} {high}");
        let log_delta = composition.log_delta(Bound::Upper, high);
        assert!((log_delta - 1e-6f64.ln()).abs() < 1e-6, "{log_delta}");
    }

    #[test]
    #[ignore = "slow"]
    fn a_curve_composed_for_one_epsilon_bounds_delta_at_all_others() {
        let mut laplace = Composition::default();
        let scale = 4.0;
        laplace.push(
            Pair::Laplace {
                sampling_probability: 0.3,
                scale,
            },
            40,
        );
        for composition in [poisson(0.01, 1.0, 500), poisson(0.01, 0.2, 31), laplace] {
            for center in [0.05, 0.5, 2.0] {
                let own = composition.log_delta(Bound::Upper, center);
                composition.near(center, |log_delta| {
                    assert!((log_delta(center) - own).abs() < 1e-9, "{center}");
                    for epsilon in [0.0, 0.01, 0.1, 0.4, 1.0, 1.9, 3.0, 8.0] {
                        let lower = composition.log_delta(Bound::Lower, epsilon);
                        assert!(log_delta(epsilon) >= lower, "{center} {epsilon}");
                    }
                });
            }
        }
    }

    #[test]
    fn the_bounds_of_many_releases_with_large_losses_agree() {
        for (count, scale, log_delta) in [(10_000, 0.0239, -6.9), (15_329, 0.004_053, -4.6e-6)] {
            let mut laplace = Composition::default();
            let sampling_probability = 1.0;
            laplace.push(
                Pair::Laplace {
                    sampling_probability,
                    scale,
                },
                count,
            );
            let (low, high) = laplace.bounds(log_delta);
            assert!(low <= high && high <= low * (1.0 + 2e-5), "{count}: {low} {high}");
        }
    }

    /// Rounding of a transform may move a mass of more than delta, but no further than the largest loss.
    #[test]
    fn losses_far_below_delta_have_an_epsilon() {
        let mut last = 0.0;
        for count in [5, 9, 33, 63] {
            let (low, high) = poisson(5.5e-9, 17_000.0, count).bounds(2.3e-14f64.ln());
            assert!(
                low > last && low <= high && high <= low * 1.001,
                "{count}: {low} {high}"
            );
            last = high;
        }
    }

    /// Rare losses reach so far that a lattice of the distance of the others would have billions of points.
    #[test]
    #[ignore = "slow"]
    fn deltas_at_epsilon_0_add_up() {
        let rare = poisson(1e-15, 0.3028, 490);
        // The distance in total variation of one release without sampling is erf(1 / (2 sqrt(2) z)).
        let sum: f64 = 490.0 * 1e-15 * 0.901_313_473_807_344_3;
        let log_delta = rare.log_delta(Bound::Upper, 0.0);
        assert!(log_delta <= (1.000_001 * sum).ln(), "{log_delta}");
        assert_eq!(rare.epsilon(Bound::Upper, (1.01 * sum).ln()), 0.0);
        assert_eq!(rare.bounds((1.01 * sum).ln()).1, 0.0);
    }

    #[test]
    fn infinite_losses_spend_delta() {
        let mut composition = Composition::default();
        composition.push(
            Pair::Outcomes(crate::discrete::Outcomes {
                log_p: vec![0.9f64.ln(), 0.05f64.ln()],
                log_q: vec![0.05f64.ln(), 0.9f64.ln()],
                missing_p: 0.05,
                missing_q: 0.05,
            }),
            2,
        );
        let infinite: f64 = 1.0 - 0.95 * 0.95;
        let loss = 18f64.ln();
        // Two equal losses remain above ln 18.
        let above = 0.81 * (1.0 - (1.5 * loss - 2.0 * loss).exp());
        let want = (infinite + above).ln();
        let got = composition.log_delta(Bound::Upper, 1.5 * loss);
        assert!((got - want).abs() < 1e-8, "{got} {want}");
        assert_eq!(composition.epsilon(Bound::Upper, 0.09f64.ln()), f64::INFINITY);
    }
}
