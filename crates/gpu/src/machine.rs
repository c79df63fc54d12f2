//! The seam between local training and the machine that runs its kernels.

use undertone_gpu_sum::{GpuError, Machine};

use crate::call::{Call, Kernel};

/// A machine that runs the kernels of local training, and those of the sum. Calls take effect in their order.
pub trait Trainer: Machine {
    /// Runs a kernel for the first slots.
    ///
    /// `threads` is the number of results of a slot that the kernel computes at most; more threads would be idle, and fewer give the
    /// same bits.
    ///
    /// # Errors
    /// The machine failed.
    fn run(
        &self,
        kernel: Kernel,
        threads: u64,
        slots: u32,
        call: &Call,
        memory: TrainingMemory<'_, Self>,
    ) -> Result<(), GpuError>
    where
        Self: Sized;
}

/// The memory that the kernels of local training reach. [`Call`] says where its arrays lie.
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds text and updates")]
pub struct TrainingMemory<'a, M: Machine> {
    /// The parameters of each slot, as the bits of `f32` values.
    pub(crate) parameters: &'a mut M::Memory<u32>,
    /// The workspaces of the slots, and what they share behind them, as the bits of `f32` values.
    pub(crate) room: &'a mut M::Memory<u32>,
    /// The tokens of the present local step, and where they are.
    pub(crate) table: &'a M::Memory<u32>,
}

impl<'a, M: Machine> TrainingMemory<'a, M> {
    /// The memory as that of a machine that wraps this one.
    #[must_use]
    pub fn of<N: Machine>(self) -> TrainingMemory<'a, N>
    where
        M: Machine<Memory<u32> = N::Memory<u32>>,
    {
        TrainingMemory {
            parameters: self.parameters,
            room: self.room,
            table: self.table,
        }
    }
}
