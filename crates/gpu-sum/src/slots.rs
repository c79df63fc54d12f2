//! Slots for the updates of units in the memory of a machine, and the part of a bounded sum that they are.

use bytemuck::{cast_slice, cast_slice_mut};
use undertone_aggregation::{AggregationError, Block, Bound, Factor, GpuPart, GpuSum, Limbs, Wiped};

use crate::error::{Result, ensure};
use crate::machine::{Machine, Span};

/// The largest number of slots: a grid of CUDA has no more rows.
const MAX_SLOTS: usize = 65_535;

/// Slots of one size in the memory of a machine. Each holds the update of one unit, or is idle.
///
/// The first units are in use, up to [`set_units`](Self::set_units). Kernels never read an idle slot. The memory is set to zeros when
/// the slots are dropped.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it reaches updates and a sum without noise"
)]
pub struct UnitSlots<M: Machine> {
    machine: M,
    len: usize,
    slots: usize,
    units: usize,
    groups: Vec<Vec<Block>>,
    values: M::Memory<u32>,
    found: M::Memory<u32>,
    limbs: M::Memory<u64>,
    factors: M::Memory<u32>,
    sum: M::Memory<u64>,
    /// Memory of the host for one update and for the sum. It is used again, because new memory of this size costs more than its use.
    update: Wiped<f32>,
    merged: GpuSum,
}

impl<M: Machine> UnitSlots<M> {
    /// Takes memory for so many slots of updates that keep to a bound, and for their sum.
    ///
    /// # Errors
    /// No slots or more than 65,535; `2^32` parameters or more; the machine has no room or failed.
    pub fn new(machine: M, bound: &Bound, slots: usize) -> Result<Self> {
        let (len, groups) = (bound.layout().len(), bound.groups());
        let holds = (1..=MAX_SLOTS).contains(&slots);
        ensure(holds, "slots", || format!("from 1 to {MAX_SLOTS}"), slots)?;
        let holds = len <= u32::MAX as usize;
        ensure(holds, "parameters", || "fewer than 2^32".to_owned(), len)?;
        let all = slots.saturating_mul(len);
        ensure(
            all <= isize::MAX as usize / 4,
            "values in all slots",
            || "room in memory".to_owned(),
            all,
        )?;
        let places = slots * groups.len();
        Ok(Self {
            len,
            slots,
            units: slots,
            values: machine.zeros::<u32>(all)?,
            found: machine.zeros::<u32>(places)?,
            limbs: machine.zeros::<u64>(4 * places)?,
            factors: machine.zeros::<u32>(2 * places)?,
            sum: machine.zeros::<u64>(len)?,
            update: Wiped::default(),
            merged: GpuSum::new(Vec::new()),
            groups,
            machine,
        })
    }

    /// `true` if the slots hold updates that keep to this bound: they have its clip groups, whatever the clip norms are.
    #[must_use]
    pub fn fits(&self, bound: &Bound) -> bool {
        self.len == bound.layout().len() && self.groups == bound.groups()
    }

    /// The number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Says how many units there are: they are in the first slots, and the other slots are idle.
    ///
    /// # Errors
    /// More units than slots.
    pub fn set_units(&mut self, units: usize) -> Result<()> {
        let slots = self.slots;
        ensure(
            units <= slots,
            "units",
            || format!("at most {slots}, one per slot"),
            units,
        )?;
        self.units = units;
        Ok(())
    }

    /// Copies an update of the host into a slot.
    ///
    /// # Errors
    /// No such slot, a wrong length, or the machine failed.
    pub fn write(&mut self, slot: usize, update: &[f32]) -> Result<()> {
        self.check(slot, update.len())?;
        self.machine
            .write::<u32>(&mut self.values, slot * self.len, cast_slice(update))
    }

    /// The memory of the updates, slot after slot, as the bits of `f32` values. An engine on the GPU writes them here.
    pub fn values_mut(&mut self) -> (&M, &mut M::Memory<u32>) {
        (&self.machine, &mut self.values)
    }

    /// Adds the scaled updates of all units to the sum in the memory of the machine, where it stays until [`take`](Self::take).
    ///
    /// A caller that adds several parts before it takes their sum merges it with the factors of all of them.
    ///
    /// # Errors
    /// Factors of another number of units or groups, or the machine failed.
    pub fn add(&mut self, factors: &[Factor]) -> Result<()> {
        let units = self.units;
        ensure(
            factors.len() == units,
            "factors",
            || format!("{units}, one per unit"),
            factors.len(),
        )?;
        let mut words = Vec::with_capacity(2 * units * self.groups.len());
        for factor in factors {
            let groups = factor.groups();
            let expected = self.groups.len();
            let holds = groups.len() == expected;
            ensure(holds, "groups of a factor", || expected.to_string(), groups.len())?;
            words.extend(
                groups
                    .into_iter()
                    .flat_map(|(factor, halvings)| [factor, halvings]),
            );
        }
        self.machine.write::<u32>(&mut self.factors, 0, &words)?;
        for span in self.spans() {
            self.machine
                .add_bounded(span, &self.values, &self.factors, &mut self.sum)?;
        }
        Ok(())
    }

    /// Brings the sum to the host and sets that of the machine to zeros.
    ///
    /// # Errors
    /// The machine failed.
    pub fn take(&mut self) -> Result<GpuSum> {
        let mut sum = std::mem::replace(&mut self.merged, GpuSum::new(Vec::new()));
        sum.fill(self.len, |values| {
            self.machine.read::<u64>(&self.sum, 0, cast_slice_mut(values))
        })?;
        self.machine.clear::<u64>(&mut self.sum)?;
        Ok(sum)
    }

    /// Computes the norm of each group of each unit.
    fn measure(&mut self) -> Result<Vec<Limbs>> {
        self.machine.clear::<u32>(&mut self.found)?;
        self.machine.clear::<u64>(&mut self.limbs)?;
        let spans = self.spans();
        for &span in &spans {
            self.machine.largest(span, &self.values, &mut self.found)?;
        }
        for &span in &spans {
            self.machine
                .squares(span, &self.values, &self.found, &mut self.limbs)?;
        }
        let places = self.units * self.groups.len();
        let (mut found, mut limbs) = (vec![0u32; places], vec![0u64; 4 * places]);
        self.machine.read::<u32>(&self.found, 0, &mut found)?;
        self.machine.read::<u64>(&self.limbs, 0, &mut limbs)?;
        let sums = limbs.as_chunks::<4>().0;
        let norm = |(largest, &sums)| Limbs { largest, sums };
        Ok(found.into_iter().zip(sums).map(norm).collect())
    }

    fn spans(&self) -> Vec<Span> {
        let span = |(group, block): (usize, &Block)| {
            // A block without gaps is one row.
            let (cols, row_stride) = match block.row_stride == block.cols || block.rows == 1 {
                true => (block.len(), block.len()),
                false => (block.cols, block.row_stride),
            };
            Span {
                slot_len: self.len as u64,
                offset: block.offset as u64,
                cols: cols as u64,
                row_stride: row_stride as u64,
                count: block.len() as u64,
                slots: self.units as u32,
                groups: self.groups.len() as u32,
                group: group as u32,
                unused: 0,
            }
        };
        let groups = self.groups.iter().enumerate();
        let blocks = groups.flat_map(|(group, blocks)| blocks.iter().map(move |block| (group, block)));
        match self.units {
            0 => Vec::new(),
            _ => blocks.map(span).collect(),
        }
    }

    fn check(&self, slot: usize, len: usize) -> Result<()> {
        let slots = self.slots;
        ensure(slot < slots, "slot", || format!("below {slots}"), slot)?;
        let expected = self.len;
        ensure(
            len == expected,
            "values of an update",
            || expected.to_string(),
            len,
        )
    }
}

impl<M: Machine> Drop for UnitSlots<M> {
    fn drop(&mut self) {
        // Nothing can be done about a machine that has failed.
        drop(self.machine.clear::<u32>(&mut self.values));
        drop(self.machine.clear::<u64>(&mut self.sum));
    }
}

impl<M: Machine> GpuPart for UnitSlots<M> {
    fn units(&self) -> usize {
        self.units
    }

    fn parameters(&self) -> usize {
        self.len
    }

    fn norms(&mut self) -> Result<Vec<Limbs>, AggregationError> {
        Ok(self.measure()?)
    }

    fn update(&mut self, unit: usize, into: &mut [f32]) -> Result<(), AggregationError> {
        let units = self.units;
        ensure(unit < units, "unit", || format!("below {units}"), unit)?;
        self.check(unit, into.len())?;
        let at = unit * self.len;
        Ok(self.machine.read::<u32>(&self.values, at, cast_slice_mut(into))?)
    }

    fn add(&mut self, factors: &[Factor]) -> Result<(), AggregationError> {
        Ok(Self::add(self, factors)?)
    }

    fn take(&mut self) -> Result<GpuSum, AggregationError> {
        Ok(Self::take(self)?)
    }

    fn lend(&mut self) -> Wiped<f32> {
        std::mem::take(&mut self.update)
    }

    fn take_back(&mut self, update: Wiped<f32>) {
        self.update = update;
    }

    fn take_back_sum(&mut self, sum: GpuSum) {
        self.merged = sum;
    }
}
