//! Bounding the norm of an update: flat, or layer by layer.

mod exact;
mod kernel;
mod norm;

use std::ops::Range;

use crate::error::{AggregationError, Result, check_len, ensure};
use crate::layout::{Block, ParamLayout};
use crate::sum::{UPDATE_LIMIT, out_of_range};

pub(crate) use exact::Scaling;
pub(crate) use norm::ExactNorm;
pub use norm::Limbs;

/// The bound on the norm of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum Clipping {
    /// Not at all; no sensitivity bound holds.
    None,
    /// The whole update at once: `D min(1, S / |D|)`.
    Flat {
        /// The bound `S` on the L2 norm.
        clip_norm: f64,
    },
    /// Each clip group of the layout to its own bound.
    PerLayer {
        /// The bounds `S_j`, in the order of [`ParamLayout::groups`].
        clip_norms: Vec<f64>,
    },
}

/// The spans of an update with their scalings.
pub(crate) type Scalings = Vec<(Range<usize>, Scaling)>;

/// The result of clipping one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipReport {
    /// L2 norm of the whole update before clipping.
    pub norm: f64,
    /// `true` if the update was scaled down.
    pub clipped: bool,
}

impl Clipping {
    /// Per-layer clipping of `groups` groups with equal bounds `S / sqrt(groups)`.
    ///
    /// Like every clip norm, these are checked where they are used.
    ///
    /// # Source
    /// \[DPLM\] section 2.2, `S_j = S / sqrt(m)`.
    #[must_use]
    pub fn per_layer_equal(clip_norm: f64, groups: usize) -> Self {
        // Rounded down by two units in the last place, so that the exact total does not exceed `clip_norm`.
        let each = clip_norm / (groups as f64).sqrt() * (1.0 - 2.0 * f64::EPSILON);
        Self::PerLayer {
            clip_norms: vec![each; groups],
        }
    }

    /// The bound on the norm of a clipped update: `S`, or `sqrt(sum S_j^2)`; `None` without clipping.
    #[must_use]
    pub fn bound(&self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Flat { clip_norm } => Some(*clip_norm),
            // Rounded up: the sensitivity must not be understated by the rounding of this sum.
            Self::PerLayer { clip_norms } => {
                let slack = 1.0 + (clip_norms.len() + 2) as f64 * f64::EPSILON;
                Some(clip_norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt() * slack)
            }
        }
    }

    /// Projects parameters back around their start: `theta <- theta0 + Clip(theta - theta0)`.
    ///
    /// Bit-identical where nothing needs clipping. Otherwise the norm of the result is short of the bound by a relative
    /// `2^-21`, and a coordinate may be nearer to `theta0` by up to one unit in the last place of the parameter.
    ///
    /// # Guarantee
    /// The L2 norm of `theta - theta0`, taken in exact arithmetic over the resulting `f32` values, is at most
    /// [`bound`](Self::bound) (per group for per-layer clipping).
    ///
    /// # Errors
    /// Lengths that do not match the layout, values that are not finite or would have to be clipped from a norm above
    /// `1e37`, clip norms outside `[1e-100, 1e100]`. `theta` may have been
    /// clipped in part when a value is not finite.
    ///
    /// # Source
    /// \[DPLM\] Algorithm 1, `UserUpdateFedAvg`.
    ///
    /// # Example
    /// ```
    /// use undertone_aggregation::{Clipping, ParamLayout};
    /// let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![2])])?;
    /// let mut theta = [1.0 + 3.0, 1.0 + 4.0];
    /// let report = Clipping::Flat { clip_norm: 2.5 }.project(&layout, &[1.0, 1.0], &mut theta)?;
    /// assert!((report.norm - 5.0).abs() < 1e-12 && report.clipped);
    /// assert!((theta[0] - 2.5).abs() < 1e-5 && (theta[1] - 3.0).abs() < 1e-5);
    /// # Ok::<(), undertone_aggregation::AggregationError>(())
    /// ```
    pub fn project(&self, layout: &ParamLayout, theta0: &[f32], theta: &mut [f32]) -> Result<ClipReport> {
        check_len("theta0", layout.len(), theta0.len())?;
        check_len("theta", layout.len(), theta.len())?;
        self.apply(layout, theta, Some(theta0))
    }

    /// Clips an update in place: `delta <- Clip(delta)`.
    ///
    /// Bit-identical where nothing needs clipping.
    ///
    /// # Guarantee
    /// The L2 norm of `delta`, taken in exact arithmetic over the resulting `f32` values, is at most
    /// [`bound`](Self::bound) (per group for per-layer clipping).
    ///
    /// # Errors
    /// As for [`project`](Self::project).
    pub fn clip(&self, layout: &ParamLayout, delta: &mut [f32]) -> Result<ClipReport> {
        check_len("update", layout.len(), delta.len())?;
        self.apply(layout, delta, None)
    }

    fn apply(&self, layout: &ParamLayout, x: &mut [f32], origin: Option<&[f32]>) -> Result<ClipReport> {
        let (mut total, mut clipped) = (0.0, false);
        for (spans, bound) in self.groups(layout)? {
            let (square, this) = clip(x, origin, &spans, bound)?;
            total += square;
            clipped |= this;
        }
        Ok(ClipReport {
            norm: total.sqrt(),
            clipped,
        })
    }

    /// The scalings by which a sum adds an update clipped, in increasing order of their spans. Empty without clipping.
    ///
    /// # Errors
    /// The errors of [`clip`](Self::clip), but finite values of any size can be clipped. Values that reach `2^22` are an error if
    /// they keep to a bound that reaches it, too.
    pub(crate) fn scalings(
        &self,
        layout: &ParamLayout,
        update: &[f32],
        weight: f64,
    ) -> Result<(ClipReport, Scalings)> {
        check_len("update", layout.len(), update.len())?;
        let displacement = Displacement {
            x: update,
            origin: None,
        };
        let (mut total, mut clipped, mut scalings) = (0.0, false, Vec::new());
        for (spans, bound) in self.groups(layout)? {
            let square = displacement.finite_square(&spans)?;
            total += square;
            if bound == f64::INFINITY {
                continue;
            }
            let len = spans.iter().map(Range::len).sum();
            let slack = kernel::slack(len) + spans.len() as f64 * f64::EPSILON;
            let short = Scaling::of_short(square, slack, bound, weight);
            let scaling =
                short.unwrap_or_else(|| Scaling::of_norm(&ExactNorm::of(update, &spans), bound, weight));
            if bound >= UPDATE_LIMIT && scaling.leaves_range() {
                return Err(out_of_range(update));
            }
            clipped |= scaling.shortens();
            scalings.extend(spans.into_iter().map(|span| (span, scaling)));
        }
        scalings.sort_unstable_by_key(|(span, _)| span.start);
        let norm = total.sqrt();
        Ok((ClipReport { norm, clipped }, scalings))
    }

    /// The bounds, one for each group of [`blocks`](Self::blocks); an infinite one without clipping.
    pub(crate) fn bounds(&self, layout: &ParamLayout) -> Result<Vec<f64>> {
        let bounds = match self {
            Self::None => return Ok(vec![f64::INFINITY]),
            Self::Flat { clip_norm } => vec![*clip_norm],
            Self::PerLayer { clip_norms } => clip_norms.clone(),
        };
        let expected = self.blocks(layout).len();
        if bounds.len() != expected {
            let got = bounds.len();
            return Err(AggregationError::GroupCount { expected, got });
        }
        bounds.iter().try_for_each(|&bound| check_norm(bound))?;
        Ok(bounds)
    }

    /// The blocks of the parameters that are bounded together.
    pub(crate) fn blocks(&self, layout: &ParamLayout) -> Vec<Vec<Block>> {
        match self {
            Self::None | Self::Flat { .. } => vec![vec![Block::contiguous(0..layout.len())]],
            Self::PerLayer { .. } => layout.groups().iter().map(|group| group.blocks.clone()).collect(),
        }
    }

    /// The spans of the parameters that are bounded together, and their bound. Without clipping it is infinite.
    fn groups(&self, layout: &ParamLayout) -> Result<Vec<(Vec<Range<usize>>, f64)>> {
        let bounds = self.bounds(layout)?;
        let spans = |blocks: Vec<Block>| blocks.iter().flat_map(Block::spans).collect();
        Ok(self.blocks(layout).into_iter().map(spans).zip(bounds).collect())
    }
}

fn check_norm(norm: f64) -> Result<()> {
    // Bounds whose squares leave the range of f64 cannot be compared; nobody clips there.
    let holds = (1e-100..=1e100).contains(&norm);
    ensure(holds, "clip_norm", "positive, between 1e-100 and 1e100", norm).map(drop)
}

/// Clips `x - origin`, or `x` itself, over the spans; the squared norm before, and whether it was clipped to `bound`.
fn clip(x: &mut [f32], origin: Option<&[f32]>, spans: &[Range<usize>], bound: f64) -> Result<(f64, bool)> {
    let displacement = Displacement { x, origin };
    let square = displacement.finite_square(spans)?;
    let len = spans.iter().map(Range::len).sum();
    let slack = kernel::slack(len) + spans.len() as f64 * f64::EPSILON;
    let limit = bound * bound;
    // PRIVACY: the computed square is off by a relative error below `slack`. Clear of the bound it decides; within
    // the error of the bound a slower, more precise sum does.
    if square <= limit * (1.0 - slack)
        || square <= limit * (1.0 + slack) && displacement.is_within(spans, bound)
    {
        return Ok((square, false));
    }
    // Differences of values up to this magnitude stay finite in f32.
    if square.sqrt() > 1e37 {
        return Err(displacement.not_finite(spans));
    }
    let factor = bound / square.sqrt() * (1.0 - slack - kernel::SHRINK_SLACK);
    let factor = (factor as f32).next_down().max(0.0);
    for span in spans {
        let x = &mut x[span.clone()];
        match origin {
            Some(origin) => kernel::shrink_toward(x, &origin[span.clone()], factor),
            None => kernel::shrink(x, factor),
        }
    }
    Ok((square, true))
}

/// The vector `x - origin`, or `x` itself.
struct Displacement<'a> {
    x: &'a [f32],
    origin: Option<&'a [f32]>,
}

impl Displacement<'_> {
    fn finite_square(&self, spans: &[Range<usize>]) -> Result<f64> {
        let square = |span: &Range<usize>| match self.origin {
            Some(origin) => kernel::squared_distance(&self.x[span.clone()], &origin[span.clone()]),
            None => kernel::squared_norm(&self.x[span.clone()]),
        };
        let total: f64 = spans.iter().map(square).sum();
        if total.is_finite() {
            Ok(total)
        } else {
            Err(self.not_finite(spans))
        }
    }

    fn is_within(&self, spans: &[Range<usize>], bound: f64) -> bool {
        let pair = |i: usize| (self.x[i], self.origin.map_or(0.0, |origin| origin[i]));
        kernel::is_within(spans.iter().cloned().flatten().map(pair), bound)
    }

    /// Names the value that is not finite, or else the coordinate that moved furthest.
    fn not_finite(&self, spans: &[Range<usize>]) -> AggregationError {
        let origin = |i: usize| self.origin.map_or(0.0, |origin| origin[i]);
        let indices = || spans.iter().cloned().flatten();
        let distance = |i: usize| (f64::from(self.x[i]) - f64::from(origin(i))).abs();
        let (what, index) = if let Some(index) = indices().find(|&i| !self.x[i].is_finite()) {
            ("update", index)
        } else if let Some(index) = indices().find(|&i| !origin(i).is_finite()) {
            ("theta0", index)
        } else {
            let furthest = indices().max_by(|&a, &b| distance(a).total_cmp(&distance(b)));
            ("square of the update", furthest.unwrap_or_default())
        };
        AggregationError::NotFinite { what, index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_message;
    use crate::layout::{Block, ClipGroup};
    use proptest::prelude::*;

    /// Three groups over ten values, one of them strided.
    fn layout() -> ParamLayout {
        let column = |offset| Block {
            offset,
            rows: 3,
            row_stride: 2,
            cols: 1,
        };
        let group = |name: &str, blocks: &[Block]| ClipGroup {
            name: name.into(),
            blocks: blocks.to_vec(),
        };
        let tensors = vec![("m".into(), vec![3, 2]), ("b".into(), vec![4])];
        let (even, odd) = (group("even", &[column(0)]), group("odd", &[column(1)]));
        let b = group("b", &[Block::contiguous(6..10)]);
        ParamLayout::new(tensors, vec![even, odd, b]).unwrap()
    }

    /// `2^80 sum (x - o)^2` exactly: the values that the tests draw are multiples of `2^-40`.
    fn exact_square(pairs: impl Iterator<Item = (f32, f32)>) -> i128 {
        let integer = |x: f32| {
            let scaled = f64::from(x) * 2f64.powi(40);
            assert_eq!(scaled.fract(), 0.0);
            scaled as i128
        };
        pairs.map(|(x, o)| (integer(x) - integer(o)).pow(2)).sum()
    }

    /// `2^80 bound^2` for bounds that are multiples of `2^-30`.
    fn exact_limit(bound: f64) -> i128 {
        let scaled = (bound * 2f64.powi(30)).floor() as i128;
        assert_eq!(
            scaled as f64,
            bound * 2f64.powi(30),
            "tests use bounds of few bits"
        );
        scaled.pow(2) << 20
    }

    proptest! {
        #[test]
        fn projected_norm_is_within_the_bound(
            origin in prop::collection::vec(-512i32..512, 10),
            step in prop::collection::vec(-4096i32..4096, 10),
            bound_units in 1i32..4096,
            fine in 0u32..12,
        ) {
            let layout = layout();
            // Coarse origins against fine steps: the rounding of theta is large next to the step.
            let theta0: Vec<f32> = origin.iter().map(|&o| o as f32 / 64.0).collect();
            let unit = 0.5f32.powi(fine as i32);
            let start: Vec<f32> = theta0.iter().zip(&step).map(|(o, &s)| o + s as f32 / 1024.0 * unit).collect();
            let bound = f64::from(bound_units) / 1024.0 * f64::from(unit);
            let clipping = Clipping::Flat { clip_norm: bound };
            let mut theta = start.clone();
            let report = clipping.project(&layout, &theta0, &mut theta).unwrap();
            let square = |theta: &[f32]| exact_square(theta.iter().copied().zip(theta0.iter().copied()));
            let needed = square(&start) > exact_limit(bound);
            prop_assert_eq!(report.clipped, needed);
            if needed {
                // The grid of exact_square is 2^-40; what clipping produced may be finer, so bound it in f64 instead.
                let norm = theta.iter().zip(&theta0).map(|(t, o)| (f64::from(*t) - f64::from(*o)).powi(2)).sum::<f64>().sqrt();
                prop_assert!(norm <= bound, "{norm} > {bound}");
                let rounding = theta.iter().map(|t| f64::from(t.abs()) * 1.2e-7).sum::<f64>();
                prop_assert!(norm >= bound * (1.0 - 1e-6) - rounding, "{norm} is far below {bound}");
            } else {
                prop_assert_eq!(theta, start);
            }
        }

        #[test]
        fn clipped_norm_is_within_the_bound_in_exact_arithmetic(
            bits in prop::collection::vec((-(1i32 << 24)..(1 << 24), 0i32..8), 10),
            bound_units in 1i64..(1 << 30),
        ) {
            let layout = layout();
            let start: Vec<f32> = bits.iter().map(|&(m, e)| m as f32 * 0.5f32.powi(24 + e)).collect();
            let bound = bound_units as f64 / 2f64.powi(30);
            let mut delta = start.clone();
            let report = Clipping::Flat { clip_norm: bound }.clip(&layout, &mut delta).unwrap();
            // Exact wherever the result is a multiple of 2^-60, which is nearly always.
            let integer = |x: f32| {
                let scaled = f64::from(x) * 2f64.powi(60);
                (scaled.fract() == 0.0).then_some(scaled as i128)
            };
            let square: Option<i128> = delta.iter().map(|&x| integer(x)?.checked_mul(integer(x)?)).sum();
            if let Some(square) = square {
                let limit = i128::from(bound_units).pow(2) << 60;
                prop_assert!(square <= limit);
            }
            prop_assert_eq!(report.clipped, delta != start);
        }

        #[test]
        fn layers_keep_their_bounds(values in prop::collection::vec(-1000i32..1000, 10), bound in 1u32..2000) {
            let layout = layout();
            let start: Vec<f32> = values.iter().map(|&v| v as f32 / 256.0).collect();
            let clipping = Clipping::per_layer_equal(f64::from(bound) / 256.0, 3);
            let Clipping::PerLayer { clip_norms } = &clipping else { unreachable!() };
            let mut delta = start.clone();
            clipping.clip(&layout, &mut delta).unwrap();
            for (indices, norm) in [([0, 2, 4].as_slice(), clip_norms[0]), (&[1, 3, 5], clip_norms[1]), (&[6, 7, 8, 9], clip_norms[2])] {
                let square = |x: &[f32]| indices.iter().map(|&i| f64::from(x[i]).powi(2)).sum::<f64>();
                prop_assert!(square(&delta).sqrt() <= norm);
                if square(&start).sqrt() < norm * (1.0 - 1e-12) {
                    prop_assert!(indices.iter().all(|&i| delta[i] == start[i]));
                } else {
                    prop_assert!(square(&delta).sqrt() >= norm * (1.0 - 2e-6));
                }
            }
        }
    }

    #[test]
    fn a_long_vector_keeps_the_bound_and_its_direction() {
        let len = 300_001;
        let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![len])]).unwrap();
        let theta0: Vec<f32> = (0..len)
            .map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0)
            .collect();
        let start: Vec<f32> = theta0
            .iter()
            .enumerate()
            .map(|(i, o)| o + ((i * 104_729) % 997) as f32 * 1e-6)
            .collect();
        let mut theta = start.clone();
        let clipping = Clipping::Flat { clip_norm: 0.125 };
        let report = clipping.project(&layout, &theta0, &mut theta).unwrap();
        assert!(report.clipped);
        let pairs = || theta.iter().copied().zip(theta0.iter().copied());
        assert!(kernel::is_within(pairs(), 0.125));
        assert!(!kernel::is_within(pairs(), 0.125 * (1.0 - 1e-3)));
        let again = clipping.project(&layout, &theta0, &mut theta).unwrap();
        assert!(!again.clipped, "projection is idempotent");
    }

    #[test]
    fn at_the_bound_nothing_changes() {
        let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![2])]).unwrap();
        let check = |clipping: Clipping, clipped: bool| {
            let mut delta = [3.0, 4.0];
            let report = clipping.clip(&layout, &mut delta).unwrap();
            assert_eq!(report, ClipReport { norm: 5.0, clipped });
            assert_eq!(delta == [3.0, 4.0], !clipped);
        };
        let flat = |clip_norm| Clipping::Flat { clip_norm };
        check(flat(5.0), false);
        check(flat(5.0f64.next_up()), false);
        check(flat(5.0f64.next_down()), true);
        check(flat(1.0), true);
        check(Clipping::None, false);
    }

    fn check(clipping: &Clipping, theta0: &[f32], theta: &[f32], expected: &str) {
        let mut theta = theta.to_vec();
        check_message(clipping.project(&layout(), theta0, &mut theta), expected);
    }

    #[test]
    fn bad_updates_and_clip_norms_are_refused() {
        let flat = |clip_norm| Clipping::Flat { clip_norm };
        let layers = Clipping::per_layer_equal;
        let (zeros, mut with_nan, mut with_infinity) = ([0.0; 10], [0.0; 10], [1.0; 10]);
        with_nan[7] = f32::NAN;
        with_infinity[2] = f32::INFINITY;
        check(&flat(1.0), &[-3e38; 10], &[3e38; 10], "square of the update");
        check(&flat(1.0), &with_nan, &zeros, "theta0: value at index 7");
        let lengths = "theta0: expected 10 values, got 9";
        check(&flat(1.0), &zeros[..9], &zeros, lengths);
        for (clipping, theta, expected) in [
            (flat(1.0), &[3e36; 10][..], "ok"),
            (flat(1.0), &with_nan, "update: value at index 7 is not finite"),
            (Clipping::None, &with_infinity, "update: value at index 2"),
            (layers(1.0, 3), &with_nan, "update: value at index 7"),
            (flat(1.0), &[0.0; 11], "theta: expected 10 values, got 11"),
            (flat(-1.0), &zeros, "clip_norm must be positive"),
            (flat(f64::NAN), &zeros, "clip_norm must be positive"),
            (flat(f64::INFINITY), &zeros, "clip_norm must be positive"),
            (layers(1.0, 2), &zeros, "3 clip groups, got 2"),
            (layers(0.0, 3), &zeros, "clip_norm must be positive"),
            (layers(1.0, 0), &zeros, "3 clip groups, got 0"),
        ] {
            check(&clipping, &zeros, theta, expected);
        }
    }

    #[test]
    fn the_bound_is_the_norm_of_all_clip_norms() {
        assert_eq!(Clipping::None.bound(), None);
        assert_eq!(Clipping::Flat { clip_norm: 0.8 }.bound(), Some(0.8));
        for m in 1..40 {
            let bound = Clipping::per_layer_equal(0.8, m).bound().unwrap();
            assert!((bound / 0.8 - 1.0).abs() < 1e-13);
        }
        let given = Clipping::PerLayer {
            clip_norms: vec![3.0, 4.0],
        }
        .bound()
        .unwrap();
        assert!((5.0..5.0 + 1e-12).contains(&given));
    }
}
