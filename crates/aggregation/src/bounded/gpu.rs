//! Contributions whose updates lie in the memory of a GPU: it adds them by factors that are computed here.

use std::ops::Range;

use super::{Added, Bound, BoundedSum, NonFinite};
use crate::clip::{ClipReport, Clipping, ExactNorm, Limbs, Scaling};
use crate::error::{AggregationError, Result, check_len, setting};
use crate::layout::Block;
use crate::sum::{UPDATE_LIMIT, steps_of_weight};
use crate::weight::check_weight;
use crate::wiped::Wiped;

/// The largest magnitude that the places of a GPU's sum may reach.
const SUM_ROOM: u128 = 1 << 62;

/// The updates of several units in the memory of a GPU. A unit is a user or one example.
///
/// The groups of a unit are those of [`Bound::groups`], in their order. The rule is that of [`BoundedSum`]: the GPU computes `N`
/// and adds `r`, and the host computes `f`. All of them are integers, so the GPU gives the bits that the host would give.
pub trait GpuPart: Send {
    /// The number of units.
    fn units(&self) -> usize;

    /// The number of values in an update.
    fn parameters(&self) -> usize;

    /// Computes the exact norms: unit after unit, and the groups of each in their order.
    ///
    /// # Errors
    /// The GPU failed.
    fn norms(&mut self) -> Result<Vec<Limbs>>;

    /// Copies the update of a unit to the host.
    ///
    /// # Errors
    /// No such unit, a wrong length, or the GPU failed.
    fn update(&mut self, unit: usize, into: &mut [f32]) -> Result<()>;

    /// Adds the updates, scaled by the factors of their units, to the sum in the memory of the GPU.
    ///
    /// # Errors
    /// Factors of another number of units or groups, or the GPU failed.
    fn add(&mut self, factors: &[Factor]) -> Result<()>;

    /// Brings the sum to the host, and sets that of the GPU to zeros.
    ///
    /// # Errors
    /// The GPU failed.
    fn take(&mut self) -> Result<GpuSum>;

    /// Lends memory of the host for one update, so that a part need not take it anew. It may be empty.
    fn lend(&mut self) -> Wiped<f32> {
        Wiped::default()
    }

    /// Takes back the memory that it lent.
    fn take_back(&mut self, update: Wiped<f32>) {
        drop(update);
    }

    /// Takes back the memory of a sum that is merged.
    fn take_back_sum(&mut self, sum: GpuSum) {
        drop(sum);
    }
}

/// A sum that a GPU computed, in steps of `2^-40`. It can only be merged into a [`BoundedSum`], and is cleared when it is dropped.
///
/// ```compile_fail,E0277
/// # use undertone_aggregation::GpuSum;
/// fn show(sum: &GpuSum) {
///     println!("{sum:?}");
/// }
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct GpuSum(Wiped<i64>);

impl GpuSum {
    /// The values that a GPU delivered.
    #[must_use]
    pub fn new(values: Vec<i64>) -> Self {
        Self(values.into())
    }

    /// Takes a copy of other values in the memory of those before.
    pub fn copy_from(&mut self, values: &[i64]) {
        self.0.clear();
        self.0.extend_from_slice(values);
    }

    /// Lets a GPU write so many values in the memory of those before, which are zero then.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn fill<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [i64]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.0.clear();
        self.0.resize(len, 0);
        write(self.0.as_mut_slice())
    }
}

/// The factors of one unit, from its exact norms.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    weight: i64,
    report: Option<ClipReport>,
    groups: Vec<GroupFactor>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct GroupFactor {
    factor: u32,
    halvings: u32,
    /// No value has a larger magnitude after scaling.
    reach: u128,
}

impl Factor {
    /// The factor `f` of each group, and the number of times that the values of the unit are divided by two before they become integers.
    ///
    /// A factor of zero adds nothing. The factor of a unit that is not finite is zero in each group.
    #[must_use]
    pub fn groups(&self) -> Vec<(u32, u32)> {
        let numbers = |group: &GroupFactor| (group.factor, group.halvings);
        self.groups.iter().map(numbers).collect()
    }

    /// The outcome for the unit, once the sum of the GPU is merged. Its norm is that of `q`, rounded.
    #[must_use]
    pub fn added(&self) -> Added {
        self.report.map_or(Added::Discarded, ClipReport::added)
    }
}

/// The units of a sum that a GPU computes: their weight together, and the largest magnitude that they can give to its places.
///
/// A caller whose GPU adds the units of a round one after the other counts each of them here, before the GPU adds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuUnits {
    units: usize,
    weight: i64,
    /// Largest magnitude that the units can give to the places of each group.
    reach: Vec<u128>,
    /// The places of the groups, each with the index of its group.
    spans: Vec<(Range<usize>, usize)>,
}

impl GpuUnits {
    /// No units yet, of a sum with this bound.
    #[must_use]
    pub fn none(bound: &Bound) -> Self {
        let groups = bound.groups();
        let of_group = |(group, blocks): (usize, &Vec<Block>)| {
            let spans: Vec<_> = blocks.iter().flat_map(Block::spans).collect();
            spans.into_iter().map(move |span| (span, group))
        };
        Self {
            units: 0,
            weight: 0,
            reach: vec![0; groups.len()],
            spans: groups.iter().enumerate().flat_map(of_group).collect(),
        }
    }

    /// The number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// Counts a unit that the GPU will add by these factors.
    ///
    /// # Errors
    /// Factors of other groups; [`AggregationError::SumOverflow`] for units that could leave the range of the sum together. The unit
    /// is not counted then, and the GPU must not add it.
    pub fn count(&mut self, factor: &Factor) -> Result<()> {
        check_len("factors of a unit", self.reach.len(), factor.groups.len())?;
        let sums = self.reach.iter().zip(&factor.groups);
        let reach: Vec<u128> = sums.map(|(sum, group)| sum.saturating_add(group.reach)).collect();
        if let Some(group) = reach.iter().position(|&reach| reach > SUM_ROOM) {
            let first = self.spans.iter().find(|(_, of)| *of == group);
            return Err(overflow(first.map_or(0, |(span, _)| span.start)));
        }
        self.reach = reach;
        self.units += 1;
        self.weight = self.weight.saturating_add(factor.weight);
        Ok(())
    }

    fn count_all(&mut self, factors: &[Factor]) -> Result<()> {
        factors.iter().try_for_each(|factor| self.count(factor))
    }
}

impl BoundedSum {
    /// Computes the factors of a unit from the norms of its groups, under a weight in `[0, 1]`.
    ///
    /// # Guarantee
    /// If the norms are those of the unit's values, the values scaled by these factors have a norm of at most the weight times
    /// [`Clipping::bound`], in exact arithmetic.
    ///
    /// # Errors
    /// A wrong number of norms; norms that no values have; a weight outside `[0, 1]`; no clipping at all, because a GPU adds only
    /// what it bounds. [`AggregationError::NotFiniteOnGpu`] with [`NonFinite::Refuse`]. Values that reach `2^22` are an error
    /// where no clip norm below `2^22` shortens them.
    pub fn factor(&self, norms: &[Limbs], weight: f64) -> Result<Factor> {
        check_weight(weight)?;
        let Bound {
            layout,
            clipping,
            non_finite,
        } = &self.bound;
        if *clipping == Clipping::None {
            let expected = "set, because a GPU adds only what it bounds";
            return Err(setting("clip_norm", expected, f64::INFINITY));
        }
        let bounds = clipping.bounds(layout)?;
        check_len("norms of a unit", bounds.len(), norms.len())?;
        let blocks = clipping.blocks(layout);
        if (norms.iter().zip(&blocks)).any(|(norm, blocks)| !norm.fits(blocks.iter().map(Block::len).sum())) {
            return Err(AggregationError::GpuNorm { unit: 0 });
        }
        let weight_steps = steps_of_weight(weight);
        let norms: Vec<ExactNorm> = norms.iter().map(ExactNorm::of_limbs).collect();
        if norms.iter().any(|norm| !norm.is_finite()) {
            if *non_finite == NonFinite::Refuse {
                return Err(AggregationError::NotFiniteOnGpu);
            }
            let nothing = GroupFactor {
                factor: 0,
                halvings: 0,
                reach: 0,
            };
            return Ok(Factor {
                weight: weight_steps,
                // PRIVACY: as on the host, the unit counts as zero, and keeps its weight.
                report: None,
                groups: vec![nothing; norms.len()],
            });
        }
        let (mut square, mut clipped, mut groups) = (0.0, false, Vec::with_capacity(norms.len()));
        for ((norm, bound), blocks) in norms.iter().zip(bounds).zip(&blocks) {
            let scaling = Scaling::of_norm(norm, bound, weight);
            if bound >= UPDATE_LIMIT && scaling.leaves_range() {
                return Err(overflow(blocks.first().map_or(0, |block| block.offset)));
            }
            square += norm.square();
            clipped |= scaling.shortens();
            let (factor, halvings) = scaling.numbers();
            let reach = scaling.reach(norm);
            groups.push(GroupFactor {
                factor,
                halvings,
                reach,
            });
        }
        let norm = square.sqrt();
        Ok(Factor {
            weight: weight_steps,
            report: Some(ClipReport { norm, clipped }),
            groups,
        })
    }

    /// Adds a sum that a GPU computed by these factors, one for each of its units.
    ///
    /// # Guarantee
    /// The sum of the GPU is refused if a value of it is larger than its units can make it.
    ///
    /// # Errors
    /// A wrong length; factors of other groups; units that could leave the range of the sum together;
    /// [`AggregationError::GpuSum`] for a value that is too large. Nothing is added then. [`AggregationError::SumOverflow`] if
    /// this sum leaves its range: it is then lost.
    pub fn merge_gpu(&self, sum: &GpuSum, factors: &[Factor]) -> Result<()> {
        check_len("sum of the GPU", self.bound.layout.len(), sum.0.len())?;
        self.merge_part(0, sum, &self.reach(factors)?)
    }

    /// Adds a part of the sum that a GPU computed of units that were counted one by one, from place `first` on. The weight of the
    /// units comes with the part that begins at place 0.
    ///
    /// # Guarantee
    /// The part is refused if a value of it is larger than the units can make it.
    ///
    /// # Errors
    /// A part that does not lie in the sum; units of other groups; [`AggregationError::GpuSum`] for a value that is too large.
    /// Nothing is added then. [`AggregationError::SumOverflow`] if this sum leaves its range: it is then lost.
    pub fn merge_part(&self, first: usize, part: &GpuSum, units: &GpuUnits) -> Result<()> {
        let values = &part.0;
        check_len(
            "groups of the GPU's units",
            self.bound.groups().len(),
            units.reach.len(),
        )?;
        let end = first.saturating_add(values.len());
        for (span, group) in &units.spans {
            let (from, to) = (span.start.max(first), span.end.min(end));
            if from >= to {
                continue;
            }
            let too_large = |value: &i64| u128::from(value.unsigned_abs()) > units.reach[*group];
            if let Some(place) = values[from - first..to - first].iter().position(too_large) {
                return Err(AggregationError::GpuSum { index: from + place });
            }
        }
        let weight = if first == 0 { units.weight } else { 0 };
        self.sum.merge_part(first, values, weight)
    }

    /// Computes the norms of an update again, which a GPU has measured.
    ///
    /// # Errors
    /// A wrong length; a wrong number of norms; [`AggregationError::GpuNorm`] if a norm differs.
    pub fn check_norms(&self, norms: &[Limbs], update: &[f32]) -> Result<()> {
        let groups = self.bound.groups();
        check_len("update", self.bound.layout.len(), update.len())?;
        check_len("norms of a unit", groups.len(), norms.len())?;
        match is_norm(norms, &groups, update) {
            true => Ok(()),
            false => Err(AggregationError::GpuNorm { unit: 0 }),
        }
    }

    /// Adds the units of a part of a GPU, whose weights lie in `[0, 1]`, and returns the outcome for each.
    ///
    /// The updates of the `audited` units are copied to the host, which computes their norms again. Without clipping the host
    /// copies and adds every update, because a GPU adds only what it bounds.
    ///
    /// # Guarantee
    /// Each unit moves the sum by at most its weight times [`Clipping::bound`], in exact arithmetic, if the GPU computes what
    /// its kernels say. The audit and the check of the sum detect some GPUs that do not.
    ///
    /// # Errors
    /// [`AggregationError::GpuNorm`] if a norm of an audited unit is wrong; the errors of [`factor`](Self::factor), of
    /// [`merge_gpu`](Self::merge_gpu) and of the GPU; a wrong number of weights or an audited unit that is not there.
    pub fn add_on_gpu(
        &self,
        part: &mut dyn GpuPart,
        weights: &[f64],
        audited: &[usize],
    ) -> Result<Vec<Added>> {
        let mut kept = GpuUnits::none(&self.bound);
        let added = self.keep_on_gpu(part, weights, audited, &mut kept)?;
        self.merge_kept(part, &mut kept)?;
        Ok(added)
    }

    /// Adds the units of a part as [`add_on_gpu`](Self::add_on_gpu) does, but leaves their sum in the memory of the GPU.
    ///
    /// `kept` counts the units whose sum is there. A caller begins with [`GpuUnits::none`], calls this for each part, and ends with
    /// [`merge_kept`](Self::merge_kept). The sum is merged earlier where more units could leave its range.
    ///
    /// # Errors
    /// The errors of [`add_on_gpu`](Self::add_on_gpu).
    pub fn keep_on_gpu(
        &self,
        part: &mut dyn GpuPart,
        weights: &[f64],
        audited: &[usize],
        kept: &mut GpuUnits,
    ) -> Result<Vec<Added>> {
        let units = part.units();
        check_len("weights of the GPU's units", units, weights.len())?;
        check_len(
            "values of the GPU's updates",
            self.bound.layout.len(),
            part.parameters(),
        )?;
        weights.iter().try_for_each(|&weight| check_weight(weight))?;
        if let Some(&unit) = audited.iter().find(|&&unit| unit >= units) {
            return Err(setting("audited", "below the number of units", unit as f64));
        }
        let mut update = part.lend();
        let copy = |part: &mut dyn GpuPart, unit: usize, update: &mut Wiped<f32>| {
            update.resize(self.bound.layout.len(), 0.0);
            part.update(unit, update)
        };
        if self.bound.clipping == Clipping::None {
            let add = |(unit, &weight)| {
                copy(part, unit, &mut update)?;
                self.add(&update, weight)
            };
            return weights.iter().enumerate().map(add).collect();
        }
        let groups = self.bound.groups();
        let norms = part.norms()?;
        check_len("norms of the GPU", units * groups.len(), norms.len())?;
        let of_unit = |unit: usize| &norms[unit * groups.len()..(unit + 1) * groups.len()];
        for &unit in audited {
            copy(part, unit, &mut update)?;
            if !is_norm(of_unit(unit), &groups, &update) {
                return Err(AggregationError::GpuNorm { unit });
            }
        }
        let mut factors = Vec::with_capacity(units);
        for (unit, &weight) in weights.iter().enumerate() {
            let factor = self.factor(of_unit(unit), weight);
            factors.push(match factor {
                Err(AggregationError::GpuNorm { .. }) => {
                    return Err(AggregationError::GpuNorm { unit });
                }
                Err(error) => {
                    // The host names the value, as it does for an update of its own.
                    copy(part, unit, &mut update)?;
                    return Err(self.measure(&update, weight).err().unwrap_or(error));
                }
                Ok(factor) => factor,
            });
        }
        // Before the GPU adds anything: its sum has no other check of its range.
        if kept.clone().count_all(&factors).is_err() {
            self.merge_kept(part, kept)?;
        }
        kept.count_all(&factors)?;
        part.add(&factors)?;
        part.take_back(update);
        Ok(factors.iter().map(Factor::added).collect())
    }

    /// Merges the sum that a GPU keeps of these units, and sets both to zero. Without units nothing is asked of the GPU.
    ///
    /// # Errors
    /// The errors of [`merge_gpu`](Self::merge_gpu) and of the GPU.
    pub fn merge_kept(&self, part: &mut dyn GpuPart, kept: &mut GpuUnits) -> Result<()> {
        let units = std::mem::replace(kept, GpuUnits::none(&self.bound));
        if units.units == 0 {
            return Ok(());
        }
        let sum = part.take()?;
        check_len("sum of the GPU", self.bound.layout.len(), sum.0.len())?;
        self.merge_part(0, &sum, &units)?;
        part.take_back_sum(sum);
        Ok(())
    }

    /// Counts the units of these factors.
    fn reach(&self, factors: &[Factor]) -> Result<GpuUnits> {
        let mut units = GpuUnits::none(&self.bound);
        units.count_all(factors)?;
        Ok(units)
    }
}

/// Returns `true` if these are the norms of the update.
fn is_norm(norms: &[Limbs], groups: &[Vec<Block>], update: &[f32]) -> bool {
    norms.iter().zip(groups).all(|(norm, blocks)| {
        let spans: Vec<_> = blocks.iter().flat_map(Block::spans).collect();
        let (gpu, host) = (ExactNorm::of_limbs(norm), ExactNorm::of(update, &spans));
        let both_discard = !gpu.is_finite() && !host.is_finite();
        both_discard || gpu == host
    })
}

/// The error of a group, from this place on, whose values leave the range of the sum.
fn overflow(index: usize) -> AggregationError {
    AggregationError::SumOverflow {
        index,
        limit: UPDATE_LIMIT,
    }
}

#[cfg(test)]
mod tests;
