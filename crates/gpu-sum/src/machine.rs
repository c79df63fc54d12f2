//! The seam between the slots of updates and the machine that runs the kernels.

use bytemuck::Pod;

use crate::error::{GpuError, Result};

/// An integer that kernels read and write: `u32` or `u64`.
#[cfg(not(feature = "cuda"))]
pub trait Word: Pod + Send + Sync {}

/// An integer that kernels read and write: `u32` or `u64`.
#[cfg(feature = "cuda")]
pub trait Word: Pod + Send + Sync + cudarc::driver::DeviceRepr + cudarc::driver::ValidAsZeroBits {}

impl Word for u32 {}
impl Word for u64 {}

/// One block of parameters in all slots, as the kernels read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// Values from one slot to the next.
    pub slot_len: u64,
    /// The first value of the block in a slot.
    pub offset: u64,
    /// Values in a row of the block.
    pub cols: u64,
    /// Values from one row to the next.
    pub row_stride: u64,
    /// Values in all rows, fewer than `2^32`.
    pub count: u64,
    /// Slots in use.
    pub slots: u32,
    /// Groups of each slot.
    pub groups: u32,
    /// The group of the block.
    pub group: u32,
    /// Zero.
    pub unused: u32,
}

/// A machine that runs the kernels of this crate. Calls take effect in their order.
///
/// The memory that is handed to a kernel holds what the span says: `slots * slot_len` values, one word of `found` for each group of
/// each slot, four of `limbs`, two of `factors`, and `slot_len` words of `sum`. [`UnitSlots`](crate::UnitSlots) keeps to this.
pub trait Machine: Send {
    /// Memory of the machine.
    type Memory<T: Word>: Send;

    /// Takes memory that holds zeros.
    ///
    /// # Errors
    /// There is no room, or the machine failed.
    fn zeros<T: Word>(&self, len: usize) -> Result<Self::Memory<T>>;

    /// Sets memory to zeros.
    ///
    /// # Errors
    /// The machine failed.
    fn clear<T: Word>(&self, memory: &mut Self::Memory<T>) -> Result<()>;

    /// Copies words of the host to a place of the memory.
    ///
    /// # Errors
    /// The words reach past the memory, or the machine failed.
    fn write<T: Word>(&self, memory: &mut Self::Memory<T>, at: usize, words: &[T]) -> Result<()>;

    /// Copies words from a place of the memory to the host, and waits for them.
    ///
    /// # Errors
    /// The words reach past the memory, or the machine failed.
    fn read<T: Word>(&self, memory: &Self::Memory<T>, at: usize, into: &mut [T]) -> Result<()>;

    /// Runs the kernel `largest`: raises `found` to the largest magnitude in each slot.
    ///
    /// # Errors
    /// The memory is too small for the span, or the machine failed.
    fn largest(&self, span: Span, values: &Self::Memory<u32>, found: &mut Self::Memory<u32>) -> Result<()>;

    /// Runs the kernel `squares`: adds the digits of the squares in each slot to `limbs`.
    ///
    /// # Errors
    /// The memory is too small for the span, or the machine failed.
    fn squares(
        &self,
        span: Span,
        values: &Self::Memory<u32>,
        found: &Self::Memory<u32>,
        limbs: &mut Self::Memory<u64>,
    ) -> Result<()>;

    /// Runs the kernel `add_bounded`: adds the scaled values of all slots to `sum`.
    ///
    /// # Errors
    /// The memory is too small for the span, or the machine failed.
    fn add_bounded(
        &self,
        span: Span,
        values: &Self::Memory<u32>,
        factors: &Self::Memory<u32>,
        sum: &mut Self::Memory<u64>,
    ) -> Result<()>;
}

impl Span {
    /// The memory that the kernels reach: values, words of `found`, and words of `sum`. `None` for a span that is no block of a slot.
    pub(crate) fn needs(&self) -> Option<Needs> {
        let rows = self.count.checked_div(self.cols)?;
        let in_rows = rows.checked_mul(self.cols)? == self.count;
        let last = rows.checked_sub(1)?.checked_mul(self.row_stride)?;
        let end = last.checked_add(self.offset)?.checked_add(self.cols)?;
        // Rows that overlap would give a place of the sum to two threads.
        let apart = rows == 1 || self.row_stride >= self.cols;
        let fits = end <= self.slot_len && self.count <= u64::from(u32::MAX) && self.group < self.groups;
        let places = u64::from(self.slots).checked_mul(u64::from(self.groups))?;
        let values = u64::from(self.slots).checked_mul(self.slot_len)?;
        (in_rows && apart && fits).then_some(Needs {
            values: usize::try_from(values).ok()?,
            groups: usize::try_from(places).ok()?,
            sum: usize::try_from(self.slot_len).ok()?,
        })
    }
}

/// Lengths of memory.
pub(crate) struct Needs {
    pub(crate) values: usize,
    pub(crate) groups: usize,
    pub(crate) sum: usize,
}

impl Span {
    /// The memory that the kernels reach.
    ///
    /// # Errors
    /// A span that is no block of a slot.
    pub(crate) fn needs_checked(&self) -> Result<Needs> {
        self.needs().ok_or_else(|| GpuError::Shape {
            what: "values of a span",
            expected: format!("whole rows within a slot of {} values", self.slot_len),
            got: self.count as usize,
        })
    }
}
