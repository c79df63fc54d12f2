//! The losses of different pairs, added on a common lattice.

use super::buffers::Buffer;
use super::compose::{self, Allowance, MAX_POINTS, Wrapped};
use super::discretize::{Atom, Bound};
use super::lattice::{Lattice, WHOLE};

/// The composed releases of one pair.
pub(super) struct Summand {
    pub(super) lattice: Lattice,
    /// True if all losses lie on the lattice by themselves, so that none was rounded.
    pub(super) whole: bool,
}

impl Summand {
    /// The one value of the loss needs no lattice.
    fn is_point(&self) -> bool {
        self.lattice.masses.len() == 1
    }

    /// The losses on a lattice of distance `step`, whose points some of them may be already.
    fn on(self, bound: Bound, step: f64) -> Lattice {
        let is_point = self.is_point();
        let lattice = self.lattice;
        if is_point || lattice.step == step {
            return Lattice { step, ..lattice };
        }
        let apart = multiple(lattice.step, step);
        if let Some(apart) = apart.filter(|_| self.whole) {
            return spread(&lattice, step, apart);
        }
        let atoms: Vec<Atom> = lattice.atoms().collect();
        let anchor = if self.whole { lattice.origin } else { 0.0 };
        Lattice::new(bound, &atoms, lattice.tilt, (step, anchor), WHOLE).0
    }
}

/// The sum of the losses of `summands`.
///
/// Losses that were rounded stay on the coarsest of their lattices. Losses on a lattice of their own may lie far apart: a
/// common lattice as coarse as theirs would round all others. So it divides the widest of their gaps, into parts no longer
/// than the steps of the others, or than `finest` where no losses were rounded and no lattice holds them all.
pub(super) fn combine(
    bound: Bound,
    summands: Vec<Summand>,
    finest: f64,
    allowance: Allowance,
    wrapped: &mut Wrapped,
) -> Option<Lattice> {
    if summands.len() < 2 {
        return summands.into_iter().next().map(|summand| summand.lattice);
    }
    let step = common_step(&summands, finest);
    let mut parts = summands.into_iter().map(|summand| summand.on(bound, step));
    let mut total = parts.next()?;
    for part in parts {
        // The window holds both supports whole: nothing wraps.
        let bottom = total.origin + part.origin;
        let points = (total.masses.len() + part.masses.len()) as f64;
        total = compose::convolve(&total, &part, bottom, bottom + points * step);
        trim(&mut total, allowance, wrapped);
    }
    Some(total)
}

/// The distance of the lattice on which the losses are added.
fn common_step(summands: &[Summand], finest: f64) -> f64 {
    let steps = |whole: bool| {
        let summands = summands
            .iter()
            .filter(move |summand| summand.whole == whole && !summand.is_point());
        summands.map(|summand| summand.lattice.step)
    };
    let (gap, rounded) = (steps(true).fold(0.0, f64::max), steps(false).fold(0.0, f64::max));
    if gap <= rounded {
        return if rounded > 0.0 { rounded } else { 1.0 };
    }
    // A step below this asks for more points than a transform has.
    let spread: f64 = summands
        .iter()
        .map(|summand| summand.lattice.step * summand.lattice.masses.len() as f64)
        .sum();
    let min = spread / (0.9 * MAX_POINTS);
    if rounded == 0.0 {
        let holds =
            |summand: &Summand, step| summand.is_point() || multiple(summand.lattice.step, step).is_some();
        let holds_all = |step: &f64| summands.iter().all(|summand| holds(summand, *step));
        let parts = (1..=64).map(|parts| gap / f64::from(parts));
        if let Some(exact) = parts.filter(|step| *step >= min).find(holds_all) {
            return exact;
        }
    }
    let max = if rounded > 0.0 { rounded } else { finest };
    gap / (gap / max.max(min)).ceil()
}

/// The quotient of the distance `gap` and `step`, where it is a whole number up to rounding.
fn multiple(gap: f64, step: f64) -> Option<usize> {
    let ratio = gap / step;
    let whole = ratio.round();
    // PRIVACY: no more than rounding moves a loss, because the losses of a multiple are not split.
    (whole >= 1.0 && (ratio - whole).abs() <= 1e-14 * whole).then_some(whole as usize)
}

/// These losses on a finer lattice, each of them the `apart`-th point of a lattice of distance `step` from the last.
fn spread(lattice: &Lattice, step: f64, apart: usize) -> Lattice {
    let mut masses = Buffer::zeros(lattice.masses.len() * apart);
    for (index, mass) in lattice.masses.iter().enumerate() {
        masses[index * apart] = *mass;
    }
    Lattice {
        tilt: lattice.tilt,
        origin: lattice.origin,
        step,
        masses,
        log_scale: lattice.log_scale,
    }
}

/// Cuts the ends of a lattice that hold next to nothing.
fn trim(lattice: &mut Lattice, allowance: Allowance, wrapped: &mut Wrapped) {
    let spare = allowance.log_tilted_mass.exp();
    let mut below = 0.0;
    let first = lattice.masses.iter().position(|mass| {
        below += mass;
        below > spare
    });
    if let Some(first) = first.filter(|first| *first > 0) {
        // PRIVACY: dropped, and counted as what an upper bound may lack. (Moving it up with its tilted mass would lose
        // real mass.)
        let dropped: f64 = lattice.masses[..first].iter().sum();
        lattice.origin += first as f64 * lattice.step;
        lattice.masses.keep(first, lattice.masses.len());
        wrapped.left_out += dropped;
    }
    let log_mass =
        |index: usize, mass: f64| mass.ln() + lattice.log_scale - lattice.tilt * lattice.loss(index);
    let mut keep = lattice.masses.len();
    let mut above = 0.0;
    while keep > 1 {
        let here = log_mass(keep - 1, lattice.masses[keep - 1]).exp();
        if above + here > allowance.log_mass.exp() || lattice.masses[keep - 1] > spare {
            break;
        }
        above += here;
        keep -= 1;
    }
    lattice.masses.keep(0, keep);
    wrapped.above += above;
}

#[cfg(test)]
mod tests {
    use super::super::composition::Composition;
    use super::super::mixture::GaussianMixtures;
    use super::super::pair::Pair;
    use crate::discrete::{self, Outcomes};
    use crate::special::ln_normal_cdf;
    use proptest::prelude::*;

    /// The largest distance of the bounds, relative to the largest loss.
    const GAP: f64 = 2e-3;

    /// The losses of a composition of outcomes with their masses under `P`, listed one by one.
    fn enumerated(parts: &[(Outcomes, u64)], reversed: bool) -> Vec<(f64, f64)> {
        let mut sums = vec![(0.0, 1.0)];
        for (outcomes, count) in parts {
            let outcomes = if reversed {
                outcomes.reversed()
            } else {
                outcomes.clone()
            };
            for _ in 0..*count {
                let each = outcomes
                    .log_p
                    .iter()
                    .zip(&outcomes.log_q)
                    .filter(|(p, _)| p.is_finite());
                let each: Vec<(f64, f64)> = each.map(|(p, q)| (p - q, p.exp())).collect();
                let mut next: Vec<(f64, f64)> = sums
                    .iter()
                    .flat_map(|(loss, mass)| each.iter().map(move |(more, p)| (loss + more, mass * p)))
                    .collect();
                next.sort_by(|a, b| a.0.total_cmp(&b.0));
                next.dedup_by(|later, first| {
                    let same = later.0 - first.0 < 1e-12;
                    first.1 += if same { later.1 } else { 0.0 };
                    same
                });
                sums = next;
            }
        }
        sums
    }

    fn delta(losses: &[(f64, f64)], epsilon: f64) -> f64 {
        let above = losses.iter().filter(|(loss, _)| *loss > epsilon);
        above.map(|(loss, mass)| -mass * (epsilon - loss).exp_m1()).sum()
    }

    fn largest(losses: &[Vec<(f64, f64)>; 2]) -> f64 {
        let ends = losses.iter().flatten().map(|(loss, _)| *loss);
        ends.fold(0.0, f64::max)
    }

    fn composition(parts: &[(Outcomes, u64)]) -> Composition {
        let mut composition = Composition::default();
        for (outcomes, count) in parts {
            composition.push(Pair::Outcomes(outcomes.clone()), *count);
        }
        composition
    }

    fn laplace(parameter: f64, sensitivity: u64) -> Outcomes {
        discrete::laplace::outcomes(parameter, sensitivity, -80.0).unwrap()
    }

    fn any_outcomes() -> impl Strategy<Value = Outcomes> {
        let parameter = (0.03f64.ln()..2f64.ln()).prop_map(f64::exp);
        prop_oneof![
            (parameter, 1u64..4).prop_map(|(parameter, sensitivity)| laplace(parameter, sensitivity)),
            (0.02f64..0.9, 2u64..5).prop_map(|(noise, buckets)| {
                discrete::randomized_response::outcomes(buckets, noise).unwrap()
            }),
        ]
    }

    /// One release whose losses fill an interval, with its divergence in closed form, for every real epsilon.
    fn smooth() -> impl Strategy<Value = (Pair, fn(f64, f64) -> f64, f64)> {
        let size = (0.01f64.ln()..1f64.ln()).prop_map(f64::exp);
        (0..3, size).prop_map(|(kind, size)| match kind {
            0 => {
                let (sampling_probability, scale) = (1.0, size.recip());
                let pair = Pair::Laplace {
                    sampling_probability,
                    scale,
                };
                (pair, laplace_delta as fn(f64, f64) -> f64, size)
            }
            1 => (Pair::BoundedRange(size), bounded_range_delta as _, size),
            _ => {
                let mixtures = GaussianMixtures::new(size.recip(), &[(1.0, 1.0)], &[(0.0, 1.0)]);
                (Pair::Mixtures(mixtures), gaussian_delta as _, size)
            }
        })
    }

    fn laplace_delta(end: f64, epsilon: f64) -> f64 {
        -((epsilon - end) / 2.0).min(epsilon).min(0.0).exp_m1()
    }

    fn bounded_range_delta(end: f64, epsilon: f64) -> f64 {
        if epsilon <= -end {
            return -epsilon.exp_m1();
        }
        let above = -((epsilon - end) / 2.0).min(0.0).exp_m1();
        above * above / -(-end).exp_m1()
    }

    fn gaussian_delta(shift: f64, epsilon: f64) -> f64 {
        let (p, q) = (shift / 2.0 - epsilon / shift, -shift / 2.0 - epsilon / shift);
        ln_normal_cdf(p).exp() - (epsilon + ln_normal_cdf(q)).exp()
    }

    /// The windows of a composition must reach the ends of the losses: mass that they cut off loosens both bounds.
    #[test]
    #[ignore = "slow"]
    fn a_small_bounded_range_is_bounded_closely_from_both_sides() {
        for size in [0.01, 0.1, 3.0] {
            for log_delta in [-8.0, -14.0, -20.0] {
                let mut alone = Composition::default();
                alone.push(Pair::BoundedRange(size), 1);
                let (low, high) = check(&alone, log_delta, |epsilon| bounded_range_delta(size, epsilon));
                assert!(high - low <= 2e-4 * size, "{size} {log_delta}: {low} {high}");
                let answer = discrete::randomized_response::outcomes(2, 0.98).unwrap();
                let losses = enumerated(&[(answer.clone(), 1)], false);
                let mut both = composition(&[(answer, 1)]);
                both.push(Pair::BoundedRange(size), 1);
                let (low, high) = check(&both, log_delta, |epsilon| {
                    let parts = losses.iter();
                    parts
                        .map(|(loss, mass)| mass * bounded_range_delta(size, epsilon - loss))
                        .sum()
                });
                assert!(high - low <= 5e-4 * high, "{size} {log_delta}: {low} {high}");
            }
        }
    }

    fn check(composition: &Composition, log_delta: f64, exact: impl Fn(f64) -> f64) -> (f64, f64) {
        let (low, high) = composition.bounds(log_delta);
        // The listed losses are rounded, too.
        let (wanted, slack, rounding) = (log_delta.exp(), 1e-9, 1e-13);
        assert!(low <= high);
        assert!(exact(high * (1.0 + rounding)) <= wanted * (1.0 + slack), "{high}");
        assert!(
            low == 0.0 || exact(low * (1.0 - rounding)) >= wanted * (1.0 - slack),
            "{low}"
        );
        (low, high)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        #[test]
        #[ignore = "slow"]
        fn sums_of_different_lattices_bound_the_enumeration(
            parts in prop::collection::vec((any_outcomes(), 1u64..4), 2..4),
            log_delta in -18f64..-1.0,
        ) {
            let losses = [enumerated(&parts, false), enumerated(&parts, true)];
            let exact = |epsilon: f64| delta(&losses[0], epsilon).max(delta(&losses[1], epsilon));
            let (low, high) = check(&composition(&parts), log_delta, exact);
            prop_assert!(high - low <= GAP * largest(&losses), "{low} {high}");
        }

        #[test]
        #[ignore = "slow"]
        fn smooth_losses_beside_a_lattice_bound_the_closed_form(
            parts in prop::collection::vec((any_outcomes(), 1u64..4), 1..3),
            (pair, divergence, size) in smooth(),
            log_delta in -18f64..-1.0,
        ) {
            let losses = [enumerated(&parts, false), enumerated(&parts, true)];
            let of = |losses: &[(f64, f64)], epsilon: f64| -> f64 {
                losses.iter().map(|(loss, mass)| mass * divergence(size, epsilon - loss)).sum()
            };
            let exact = |epsilon: f64| of(&losses[0], epsilon).max(of(&losses[1], epsilon));
            let mut composition = composition(&parts);
            composition.push(pair.clone(), 1);
            let (low, high) = check(&composition, log_delta, exact);
            prop_assert!(high - low <= GAP * (largest(&losses) + size), "{low} {high}");
        }
    }
}
