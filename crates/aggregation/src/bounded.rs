//! The bound on one contribution, and a sum that enforces it on whatever it adds.

mod gpu;

use std::num::NonZeroU32;
use std::sync::Arc;

use undertone_mechanisms::RawSum;

use crate::clip::{ClipReport, Clipping, Scalings};
use crate::error::{AggregationError, Result};
use crate::layout::{Block, ParamLayout};
use crate::sum::FixedPointSum;
use crate::weight::check_weight;

pub use gpu::{Factor, GpuPart, GpuSum, GpuUnits};

/// The treatment of an update that holds infinities or NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    /// The update counts as the zero vector. Private runs need this, because whether a run fails must not depend on the text of
    /// one user.
    Zero,
    /// The update is an error. Runs without privacy use this.
    Refuse,
}

/// The outcome of adding one contribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Added {
    /// The contribution kept to the bound and was added unchanged.
    Whole {
        /// L2 norm of the contribution.
        norm: f64,
    },
    /// The contribution was shortened to the bound.
    Clipped {
        /// L2 norm of the contribution before it was shortened.
        norm: f64,
    },
    /// The contribution was not finite and counts as zero.
    Discarded,
}

impl ClipReport {
    fn added(self) -> Added {
        let Self { norm, clipped } = self;
        if clipped {
            Added::Clipped { norm }
        } else {
            Added::Whole { norm }
        }
    }
}

impl Added {
    /// The L2 norm before clipping, and whether clipping changed the contribution. A discarded one has norm 0.
    #[must_use]
    pub fn report(self) -> ClipReport {
        let (norm, clipped) = match self {
            Self::Whole { norm } => (norm, false),
            Self::Clipped { norm } => (norm, true),
            Self::Discarded => (0.0, false),
        };
        ClipReport { norm, clipped }
    }
}

/// The bound on one contribution to a sum.
///
/// # Guarantee
/// After [`enforce`](Self::enforce) the L2 norm of the contribution, in exact arithmetic over its `f32` values, is at most
/// [`Clipping::bound`]. This holds for any input, also from code that is wrong or hostile. Without clipping there is no bound.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use undertone_aggregation::{Added, Bound, Clipping, NonFinite, ParamLayout};
/// let layout = Arc::new(ParamLayout::with_tensor_groups(vec![("w".into(), vec![2])])?);
/// let bound = Bound::new(layout, Clipping::Flat { clip_norm: 2.5 }, NonFinite::Zero);
/// let mut update = [3.0, 4.0];
/// assert_eq!(bound.enforce(&mut update)?, Added::Clipped { norm: 5.0 });
/// let mut broken = [f32::NAN, 1.0];
/// assert_eq!(bound.enforce(&mut broken)?, Added::Discarded);
/// assert_eq!(broken, [0.0, 0.0]);
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    layout: Arc<ParamLayout>,
    clipping: Clipping,
    non_finite: NonFinite,
}

impl Bound {
    /// A bound for updates of this layout. Clip norms are checked where they are used.
    #[must_use]
    pub fn new(layout: Arc<ParamLayout>, clipping: Clipping, non_finite: NonFinite) -> Self {
        Self {
            layout,
            clipping,
            non_finite,
        }
    }

    /// The layout of the updates.
    #[must_use]
    pub fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    /// The clip norms.
    #[must_use]
    pub fn clipping(&self) -> &Clipping {
        &self.clipping
    }

    /// The treatment of updates that are not finite.
    #[must_use]
    pub fn non_finite(&self) -> NonFinite {
        self.non_finite
    }

    /// The blocks of parameters that are bounded together, group after group. Without clipping there is one group of all.
    #[must_use]
    pub fn groups(&self) -> Vec<Vec<Block>> {
        self.clipping.blocks(&self.layout)
    }

    /// Clips a contribution in place, for encoders, which need floats. [`BoundedSum`] clips by a rule of its own, in integers.
    ///
    /// # Errors
    /// A wrong length; clip norms outside their range; with [`NonFinite::Refuse`] values that are not finite.
    pub fn enforce(&self, update: &mut [f32]) -> Result<Added> {
        let clipped = self.clipping.clip(&self.layout, update);
        let added = self.unless_discarded(clipped)?;
        if added.is_none() {
            update.fill(0.0);
        }
        Ok(added.map_or(Added::Discarded, ClipReport::added))
    }

    /// The result of clipping, or nothing if the contribution was not finite and counts as zero.
    fn unless_discarded<T>(&self, clipped: Result<T>) -> Result<Option<T>> {
        match clipped {
            // PRIVACY: a map of this contribution alone, with norm 0, so the sensitivity is unchanged.
            Err(AggregationError::NotFinite { .. }) if self.non_finite == NonFinite::Zero => Ok(None),
            clipped => clipped.map(Some),
        }
    }
}

/// A sum of weighted contributions in fixed point that bounds each of them before it adds it.
///
/// Several threads may add at once. Integer addition commutes, so the result does not depend on their order.
///
/// # Guarantee
/// One contribution of weight `w` moves the sum by at most `w` times [`Clipping::bound`], in exact arithmetic and whatever the
/// caller adds. A sum from which an addition failed is never released. Contributions that a GPU adds are an exception: their
/// bound holds if the GPU computes what its kernels say, see [`add_on_gpu`](Self::add_on_gpu).
///
/// The rule for the values `g` under a clip norm `S`: `q = trunc(g 2^40)`, `N` is the sum of `q^2`, and `L = floor(S 2^40)`. The
/// factor is `f = floor(w min(2^30, floor(2^30 L / ceil(sqrt N))))`, and the sum takes `r = trunc(q f / 2^30)` in steps of `2^-40`.
/// All of these are integers, so `|r| <= |q| f / 2^30` and `f sqrt N <= 2^30 w L` hold exactly. Together they give
/// `sum r^2 <= (w L)^2`. Values that reach `2^22` are first divided by a common power of two.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use undertone_aggregation::{Bound, BoundedSum, Clipping, NonFinite, ParamLayout};
/// let layout = Arc::new(ParamLayout::with_tensor_groups(vec![("w".into(), vec![2])])?);
/// let sum = BoundedSum::new(Bound::new(layout, Clipping::Flat { clip_norm: 1.0 }, NonFinite::Zero));
/// sum.add(&[30.0, 40.0], 1.0)?; // counts as (0.6, 0.8)
/// sum.add(&[0.5, 0.0], 0.5)?;
/// let raw = sum.into_raw()?; // readable only through a mechanism
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
///
/// A sum cannot be printed:
/// ```compile_fail,E0277
/// # use undertone_aggregation::BoundedSum;
/// fn show(sum: &BoundedSum) {
///     println!("{sum:?}");
/// }
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct BoundedSum {
    sum: FixedPointSum,
    bound: Bound,
}

impl BoundedSum {
    /// An empty sum.
    #[must_use]
    pub fn new(bound: Bound) -> Self {
        Self {
            sum: FixedPointSum::new(bound.layout.len()),
            bound,
        }
    }

    /// Adds `weight` times a contribution, clipped. The weight must lie in `[0, 1]` and is truncated to a multiple of `2^-28`. A
    /// discarded contribution adds nothing but its weight. One longer than `2^30` clip norms may add nothing else, too.
    ///
    /// # Errors
    /// Nothing is added after a wrong length, a weight outside `[0, 1]`, clip norms outside their range, or values that are not
    /// finite with [`NonFinite::Refuse`]. Values that reach `2^22` are an error where no clip norm below `2^22` shortens them.
    /// [`AggregationError::SumOverflow`] if the sum leaves its range: the sum is then lost.
    pub fn add(&self, update: &[f32], weight: f64) -> Result<Added> {
        self.measure(update, weight)?.add()
    }

    /// Computes the norm of a contribution and the factor by which the sum would take it. Nothing is added yet: a caller that
    /// refuses long contributions looks at the norm first, which then costs no pass of its own.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add), but for those of the addition itself.
    pub fn measure<'a>(&'a self, update: &'a [f32], weight: f64) -> Result<Measured<'a>> {
        self.measure_by(&self.bound.clipping, update, weight)
    }

    fn measure_by<'a>(&'a self, clipping: &Clipping, update: &'a [f32], weight: f64) -> Result<Measured<'a>> {
        check_weight(weight)?;
        let scalings = clipping.scalings(&self.bound.layout, update, weight);
        Ok(Measured {
            sum: self,
            update,
            weight,
            kept: self.bound.unless_discarded(scalings)?,
            clips: *clipping != Clipping::None,
        })
    }

    /// Adds a sum of the clipped gradients of several examples, as example-level sampling makes it in microbatches.
    ///
    /// # Guarantee
    /// The sum enforces `examples` times the clip norm. The bound on each single example rests on the code that clipped it.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add), and [`AggregationError::GroupCount`] for clipping by layers.
    pub fn add_examples(&self, update: &[f32], examples: NonZeroU32) -> Result<Added> {
        let clipping = match &self.bound.clipping {
            Clipping::None => Clipping::None,
            Clipping::Flat { clip_norm } => Clipping::Flat {
                // Rounded down, so that the product never exceeds the exact one.
                clip_norm: (f64::from(examples.get()) * clip_norm).next_down(),
            },
            Clipping::PerLayer { clip_norms } => {
                return Err(AggregationError::GroupCount {
                    expected: 1,
                    got: clip_norms.len(),
                });
            }
        };
        self.measure_by(&clipping, update, 1.0)?.add()
    }

    /// The bound that the sum enforces.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Replaces the sum of this process by that of all `processes` of a run. `all_reduce` adds slices of equal length up over
    /// them, place by place; every process calls this once.
    ///
    /// PRIVACY: what goes through `all_reduce` is a sum without noise. It has to stay among the processes of the run.
    ///
    /// # Errors
    /// [`AggregationError::SumOverflow`] if this sum is so large that the sum of all may leave its range;
    /// [`AggregationError::Poisoned`] if an addition failed half-way: nothing is exchanged then. The errors of `all_reduce`.
    pub fn combine<E: From<AggregationError>>(
        &mut self,
        processes: usize,
        all_reduce: impl FnMut(&mut [i64]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.sum.combine(processes, all_reduce)
    }

    /// Ends the summation.
    ///
    /// # Errors
    /// [`AggregationError::Poisoned`] if an addition failed half-way, so that the sum is not what was added.
    pub fn into_raw(self) -> Result<RawSum> {
        self.sum.into_raw()
    }
}

/// A contribution whose norm is known, on its way into the sum that has measured it.
#[must_use = "a contribution is added by `add` alone"]
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it reaches an update and a sum"
)]
pub struct Measured<'a> {
    sum: &'a BoundedSum,
    update: &'a [f32],
    weight: f64,
    /// `None` for a contribution that is not finite and counts as zero.
    kept: Option<(ClipReport, Scalings)>,
    clips: bool,
}

impl Measured<'_> {
    /// The L2 norm of the contribution; `None` for one that is not finite and counts as zero.
    #[must_use]
    pub fn norm(&self) -> Option<f64> {
        self.kept.as_ref().map(|(report, _)| report.norm)
    }

    /// Adds the contribution, shortened to the bound of the sum.
    ///
    /// # Errors
    /// Values that reach `2^22` where nothing is clipped: nothing is added then. [`AggregationError::SumOverflow`] if the sum leaves
    /// its range: the sum is then lost.
    pub fn add(self) -> Result<Added> {
        let sum = &self.sum.sum;
        let Some((report, scalings)) = self.kept else {
            sum.add_clipped(self.update, self.weight, &[])?;
            return Ok(Added::Discarded);
        };
        match self.clips {
            false => sum.add(self.update, self.weight)?,
            true => sum.add_clipped(self.update, self.weight, &scalings)?,
        }
        Ok(report.added())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Block, ClipGroup};
    use crate::weight::truncate_weight;
    use proptest::prelude::*;

    fn layout(len: usize) -> Arc<ParamLayout> {
        let parts = vec![("a".into(), vec![len / 2]), ("b".into(), vec![len - len / 2])];
        Arc::new(ParamLayout::with_tensor_groups(parts).unwrap())
    }

    fn bounded(len: usize, clipping: Clipping, non_finite: NonFinite) -> BoundedSum {
        BoundedSum::new(Bound::new(layout(len), clipping, non_finite))
    }

    /// Any update at all: every bit pattern of every coordinate.
    fn updates(len: usize) -> impl Strategy<Value = Vec<f32>> {
        let wild = any::<u32>().prop_map(f32::from_bits);
        let tame = (-1000.0..1000.0f32).boxed();
        let value = prop_oneof![3 => tame, 1 => wild.boxed()];
        prop::collection::vec(value, len)
    }

    /// Clip norms `k 2^-20`, so that their squares are exact integers in steps of the sum.
    fn clip_norms() -> impl Strategy<Value = u64> {
        1..(1u64 << 30)
    }

    fn norm(k: u64) -> f64 {
        k as f64 / f64::from(1 << 20)
    }

    /// The squared norm of the sum, exactly, in units of `2^-80`: steps of the sum are `2^-40`.
    fn square(steps: &[i64]) -> u128 {
        steps
            .iter()
            .map(|&step| u128::from(step.unsigned_abs()).pow(2))
            .sum()
    }

    proptest! {
        /// Whatever a trainer delivers, and however its deliveries are split into threads, one contribution moves the sum by at
        /// most its weight times the clip norm.
        #[test]
        fn one_contribution_moves_the_sum_by_at_most_the_bound(update in updates(6), k in clip_norms(), weight in 0.0..=1.0f64) {
            let clipping = Clipping::Flat { clip_norm: norm(k) };
            let sum = bounded(6, clipping, NonFinite::Zero);
            let finite = update.iter().all(|value| value.is_finite());
            let added = sum.add(&update, weight).unwrap();
            prop_assert!(finite || added == Added::Discarded);
            let steps = sum.sum.into_steps();
            // |sum| <= w S with w = n 2^-28 and S = k 2^-20: squares in units of 2^-96 and steps in 2^-80.
            let n = (truncate_weight(weight) * f64::from(1 << 28)) as u128;
            let limit = (n * u128::from(k)).pow(2);
            let moved = square(&steps);
            prop_assert!(moved.checked_mul(1 << 16).is_some_and(|moved| moved <= limit), "{moved} {limit}");
        }

        #[test]
        fn each_layer_keeps_its_own_bound(update in updates(6), first in clip_norms(), second in clip_norms()) {
            let clipping = Clipping::PerLayer { clip_norms: vec![norm(first), norm(second)] };
            let sum = bounded(6, clipping, NonFinite::Zero);
            sum.add(&update, 1.0).unwrap();
            let steps = sum.sum.into_steps();
            for (steps, k) in [(&steps[..3], first), (&steps[3..], second)] {
                // k 2^-20 is k 2^20 steps.
                prop_assert!(square(steps) <= u128::from(k << 20).pow(2));
            }
        }

        #[test]
        fn the_threads_do_not_matter(all in prop::collection::vec(updates(5), 1..8), k in clip_norms()) {
            let new = || bounded(5, Clipping::Flat { clip_norm: norm(k) }, NonFinite::Zero);
            let (one, many) = (new(), new());
            for update in &all {
                one.add(update, 0.5).unwrap();
            }
            std::thread::scope(|scope| {
                for update in &all {
                    let many = &many;
                    scope.spawn(move || many.add(update, 0.5).map(drop));
                }
            });
            prop_assert_eq!(one.sum.into_steps(), many.sum.into_steps());
        }
    }

    #[test]
    fn finite_values_of_any_size_are_clipped() {
        let sum = |clip_norm| bounded(2, Clipping::Flat { clip_norm }, NonFinite::Refuse);
        let clipped = sum(5.0);
        let added = clipped.add(&[f32::MAX, -f32::MAX], 1.0).unwrap();
        assert!(matches!(added, Added::Clipped { norm } if norm > 4e38));
        let each = 12.5f64.sqrt();
        for (step, expected) in clipped.sum.into_steps().into_iter().zip([each, -each]) {
            // The factor is about 900 steps of 2^-30.
            let ratio = step as f64 * 2f64.powi(-40) / expected;
            assert!((0.998..=1.0).contains(&ratio), "{ratio}");
        }
        // A bound that the sum cannot hold does not shorten what is within it.
        let refused = sum(1e8).add(&[1e7, 0.0], 1.0);
        assert!(matches!(
            refused,
            Err(AggregationError::SumOverflow { index: 0, .. })
        ));
        let clipped = sum(1e8).add(&[1e9, 0.0], 1.0);
        assert!(matches!(clipped, Err(AggregationError::SumOverflow { .. })));
    }

    #[test]
    fn what_keeps_to_the_bound_is_added_as_without_clipping() {
        let update = [0.3, -1.7, 1e-7, -3e-9, 0.0, 1e-20];
        let add = |clipping, weight| {
            let sum = bounded(6, clipping, NonFinite::Zero);
            let added = sum.add(&update, weight).unwrap();
            assert!(matches!(added, Added::Whole { .. }));
            sum.sum.into_steps()
        };
        let flat = || Clipping::Flat { clip_norm: 2.0 };
        assert_eq!(add(flat(), 1.0), add(Clipping::None, 1.0));
        // Values are truncated once more before a weight below one: a step at most.
        for (clipped, plain) in add(flat(), 0.7).into_iter().zip(add(Clipping::None, 0.7)) {
            assert!(plain.abs_diff(clipped) <= 1 && clipped.unsigned_abs() <= plain.unsigned_abs());
        }
    }

    #[test]
    fn interleaved_layers_are_scaled_apart() {
        let rows = 100_000;
        let column = |name: &str, offset| ClipGroup {
            name: name.into(),
            blocks: vec![Block {
                offset,
                rows,
                row_stride: 3,
                cols: 1 + offset,
            }],
        };
        let tensors = vec![("m".into(), vec![rows, 3])];
        let layout = ParamLayout::new(tensors, vec![column("a", 0), column("b", 1)]).unwrap();
        let update: Vec<f32> = (0..3 * rows).map(|i| ((i * 7919) % 2003) as f32 - 1e3).collect();
        let clip_norms = vec![1.0, 2000.0];
        let bound = Bound::new(
            Arc::new(layout),
            Clipping::PerLayer { clip_norms },
            NonFinite::Zero,
        );
        let sum = BoundedSum::new(bound);
        sum.add(&update, 0.5).unwrap();
        let steps = sum.sum.into_steps();
        for (clip_norm, columns) in [(1.0, 0..1), (2000.0, 1..3)] {
            let places: Vec<usize> = (0..3 * rows).filter(|i| columns.contains(&(i % 3))).collect();
            let part: Vec<f32> = places.iter().map(|&i| update[i]).collect();
            let alone = bounded(part.len(), Clipping::Flat { clip_norm }, NonFinite::Zero);
            alone.add(&part, 0.5).unwrap();
            let alone = alone.sum.into_steps();
            assert!(places.iter().zip(alone).all(|(&i, step)| steps[i] == step));
        }
    }

    #[test]
    fn a_microbatch_is_bounded_by_its_number_of_examples() {
        let bound = Bound::new(layout(2), Clipping::Flat { clip_norm: 0.5 }, NonFinite::Zero);
        let sum = BoundedSum::new(bound.clone());
        let three = NonZeroU32::new(3).unwrap();
        let whole = sum.add_examples(&[0.75, 1.0], three).unwrap();
        assert!(matches!(whole, Added::Whole { .. }), "{whole:?}");
        let clipped = sum.add_examples(&[900.0, 1200.0], three).unwrap();
        assert!(matches!(clipped, Added::Clipped { norm } if (norm - 1500.0).abs() < 1e-9));
        let layers = Clipping::PerLayer {
            clip_norms: vec![1.0, 1.0],
        };
        let refused = BoundedSum::new(Bound {
            clipping: layers,
            ..bound
        })
        .add_examples(&[0.0, 0.0], three);
        assert!(matches!(refused, Err(AggregationError::GroupCount { .. })));
    }

    #[test]
    fn contributions_that_are_not_finite_are_zero_or_refused() {
        let add = |non_finite, update: [f32; 2]| {
            let sum = bounded(2, Clipping::Flat { clip_norm: 1.0 }, non_finite);
            let added = sum.add(&update, 1.0);
            (added, sum.sum.into_steps())
        };
        for broken in [[f32::NAN, 0.0], [0.0, f32::INFINITY]] {
            let (added, steps) = add(NonFinite::Zero, broken);
            assert_eq!((added.unwrap(), steps), (Added::Discarded, vec![0, 0]));
            let (added, steps) = add(NonFinite::Refuse, broken);
            assert!(matches!(added, Err(AggregationError::NotFinite { .. })));
            assert_eq!(steps, [0, 0]);
        }
        let sum = bounded(2, Clipping::None, NonFinite::Zero);
        assert!(matches!(
            sum.add(&[0.0; 3], 1.0),
            Err(AggregationError::Length { .. })
        ));
    }
}
