//! The units of a round that a GPU of the other program measures and adds up, by the rule of
//! [`BoundedSum`](undertone_aggregation::BoundedSum).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use undertone_aggregation::{AggregationError, Block, Bound, Clipping, Factor, GpuSum, GpuUnits, Limbs};

use super::{PIECE, Round};
use crate::error::{Result, RunError};

const AWAITS_A_UNIT: RunError = RunError::Session(
    "has an open round with a unit that a GPU has measured: expected its norms before the next unit and before the release",
);
const AWAITS_THE_SUM: RunError = RunError::Session(
    "has an open round with units on a GPU: expected all parts of their sum before the release",
);
const AWAITS_THE_AUDIT: RunError = RunError::Session(
    "has an open round with a unit on a GPU whose norm has to be audited before the release",
);
const NOTHING_TO_AUDIT: RunError =
    RunError::Session("has no unit on a GPU to audit: expected one that was chosen and has contributed");
const FAULTY: RunError = RunError::Session(
    "has an open round whose GPU gave a wrong norm or sum: it is not released; make the session anew with resume",
);

/// The refusal of a unit after the sum.
const SUM_WAS_TAKEN: &str = "the sum of the GPU was taken before";

/// The units of a round that a GPU adds.
pub(super) struct OnGpu {
    state: Mutex<State>,
    /// The unit whose norms the host computes again.
    audited: Option<usize>,
    /// `true` after a norm or a sum that the GPU got wrong.
    faulty: AtomicBool,
}

struct State {
    units: GpuUnits,
    /// The unit that the GPU has measured, from its announcement to its norms.
    announced: Option<usize>,
    /// The number of places of the sum that were merged.
    merged: usize,
    /// The norms of the audited unit, from its contribution to its audit.
    awaits_audit: Option<Vec<Limbs>>,
}

impl OnGpu {
    /// No units yet. A random number chooses which of the `units` of the round is audited.
    pub(super) fn new(bound: &Bound, units: usize, random: u64) -> Self {
        Self {
            state: Mutex::new(State {
                units: GpuUnits::none(bound),
                announced: None,
                merged: 0,
                awaits_audit: None,
            }),
            audited: (units > 0).then(|| (random % units as u64) as usize),
            faulty: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing changes it before it can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<()> {
        match self.faulty.load(Ordering::Acquire) {
            true => Err(FAULTY),
            false => Ok(()),
        }
    }

    /// The error, after which the round is never released if the GPU is at fault.
    fn failed(&self, error: AggregationError, unit: usize) -> RunError {
        let error = match error {
            AggregationError::GpuNorm { .. } => AggregationError::GpuNorm { unit },
            other => other,
        };
        if matches!(
            error,
            AggregationError::GpuNorm { .. } | AggregationError::GpuSum { .. }
        ) {
            self.faulty.store(true, Ordering::Release);
        }
        error.into()
    }
}

impl Round {
    /// The spans of the values that are bounded together, group after group. `None` without clipping, because a GPU adds only
    /// what it bounds.
    #[must_use]
    pub fn gpu_groups(&self) -> Option<Vec<Vec<Range<usize>>>> {
        let bound = self.opened.bound();
        let spans = |blocks: &Vec<Block>| blocks.iter().flat_map(Block::spans).collect();
        (*bound.clipping() != Clipping::None).then(|| bound.groups().iter().map(spans).collect())
    }

    /// `true` for the unit whose norms the host computes again. One unit of each round is chosen at random.
    #[must_use]
    pub fn audits(&self, unit: usize) -> bool {
        self.gpu.audited == Some(unit)
    }

    /// Announces a unit whose norms a GPU still computes, so that the caller can go on before they are there. The round is not
    /// released before [`add_on_gpu`](Self::add_on_gpu) has them.
    ///
    /// # Errors
    /// The unit is refused as [`add_on_gpu`](Self::add_on_gpu) would refuse it, or another one is announced. Nothing is announced
    /// then.
    pub fn announce(&self, unit: usize) -> Result<()> {
        let (taken, gpu) = (self.unit(unit)?, &self.gpu);
        gpu.check()?;
        if taken.load(Ordering::Acquire) {
            return Err(self.refused(unit, "it has contributed before"));
        }
        let mut state = gpu.state();
        if state.merged > 0 {
            return Err(self.refused(unit, SUM_WAS_TAKEN));
        }
        if state.announced.is_some() {
            return Err(AWAITS_A_UNIT);
        }
        state.announced = Some(unit);
        Ok(())
    }

    /// Computes the factors by which a GPU adds the contribution of a unit, from the norms that it measured. A unit that is audited
    /// needs [`audit`](Self::audit) before the release, too.
    ///
    /// # Guarantee
    /// A unit contributes once. It moves the sum by no more than the clip norm, if the GPU computes what its program says.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add); [`AggregationError::GpuNorm`] for a norm that no update has, after which the round is not
    /// released; no clipping. The GPU must add nothing then.
    pub fn add_on_gpu(&self, unit: usize, norms: &[Limbs]) -> Result<Factor> {
        let (taken, gpu) = (self.unit(unit)?, &self.gpu);
        gpu.state().announced.take_if(|announced| *announced == unit);
        gpu.check()?;
        // PRIVACY: before the GPU adds anything. A contribution that came twice would move the sum twice.
        if taken.swap(true, Ordering::AcqRel) {
            return Err(self.refused(unit, "it has contributed before"));
        }
        let factor = self.factor(unit, norms);
        let factor = factor.inspect_err(|_| taken.store(false, Ordering::Release))?;
        self.add_bit(factor.added())?;
        Ok(factor)
    }

    fn factor(&self, unit: usize, norms: &[Limbs]) -> Result<Factor> {
        let gpu = &self.gpu;
        let factor = self.sum.factor(norms, 1.0);
        let factor = factor.map_err(|error| gpu.failed(error, unit))?;
        let mut state = gpu.state();
        if state.merged > 0 {
            return Err(self.refused(unit, SUM_WAS_TAKEN));
        }
        state.units.count(&factor)?;
        if self.audits(unit) {
            state.awaits_audit = Some(norms.to_vec());
        }
        Ok(factor)
    }

    /// Computes the norms of the audited unit again, from the contribution that the GPU measured. A caller may do this in another
    /// thread, at any time before the release.
    ///
    /// # Errors
    /// [`AggregationError::GpuNorm`] for a norm that the contribution does not have, after which the round is not released; an
    /// audited unit that has not contributed, or that was audited before; a wrong length.
    pub fn audit(&self, update: &[f32]) -> Result<()> {
        let gpu = &self.gpu;
        let norms = gpu.state().awaits_audit.clone();
        let (Some(norms), Some(unit)) = (norms, gpu.audited) else {
            return Err(NOTHING_TO_AUDIT);
        };
        let checked = self.sum.check_norms(&norms, update);
        checked.map_err(|error| gpu.failed(error, unit))?;
        gpu.state().awaits_audit = None;
        Ok(())
    }

    /// Takes the next part of the sum that the GPU computed of its units: the parts come in order, from the first place on. A
    /// GPU that added nothing delivers zeros. The values are copied before they are checked, so that another thread may write them.
    ///
    /// # Errors
    /// A part that is not the next one; a unit that is announced; [`AggregationError::GpuSum`] for a value that is larger than the
    /// units can make it, after which the round is not released.
    pub fn merge_gpu(&self, first: usize, part: &[i64]) -> Result<()> {
        let gpu = &self.gpu;
        gpu.check()?;
        let expected = self.opened.bound().layout().len();
        let end = first.saturating_add(part.len());
        let units = {
            let mut state = gpu.state();
            if first != state.merged || end > expected {
                let expected = format!(
                    "a part of {expected} places that begins at place {}",
                    state.merged
                );
                let got = format!("places {first} to {end}");
                return Err(RunError::value("sum", expected, got));
            }
            if state.announced.is_some() {
                return Err(AWAITS_A_UNIT);
            }
            // From here on no unit is counted, and an error leaves a sum that is not released.
            state.merged = end;
            state.units.clone()
        };
        let merge = |piece: &mut GpuSum, (place, values): (usize, &[i64])| {
            piece.copy_from(values);
            let merged = self.sum.merge_part(first + place * PIECE, piece, &units);
            merged.map_err(|error| gpu.failed(error, 0))
        };
        let pieces = part.par_chunks(PIECE).enumerate();
        pieces.try_for_each_init(|| GpuSum::new(Vec::with_capacity(PIECE)), merge)
    }

    /// Refuses to release a round with units on a GPU whose sum or audit is not there, or of a faulty GPU.
    pub(super) fn check_gpu(&self) -> Result<()> {
        self.gpu.check()?;
        let state = self.gpu.state();
        if state.announced.is_some() {
            return Err(AWAITS_A_UNIT);
        }
        if state.awaits_audit.is_some() {
            return Err(AWAITS_THE_AUDIT);
        }
        let none = state.merged == 0 && state.units.units() == 0;
        match none || state.merged == self.opened.bound().layout().len() {
            true => Ok(()),
            false => Err(AWAITS_THE_SUM),
        }
    }

    /// `true` if a sum of a GPU was merged.
    pub(super) fn summed_on_gpu(&self) -> bool {
        self.gpu.state().merged > 0
    }
}
