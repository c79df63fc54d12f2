//! The kernels on the processor, one thread after another.

use undertone_gpu_sum::{Emulator, GpuError};

use crate::call::emulated::{Place, function};
use crate::call::{Call, Kernel};
use crate::machine::{Trainer, TrainingMemory};

impl Trainer for Emulator {
    fn run(
        &self,
        kernel: Kernel,
        _: u64,
        slots: u32,
        call: &Call,
        memory: TrainingMemory<'_, Self>,
    ) -> Result<(), GpuError> {
        let (parameters, room) = (memory.parameters.as_mut_ptr(), memory.room.as_mut_ptr());
        let run = function(kernel);
        for slot in 0..slots {
            for (first, stride) in self.threads() {
                let place = Place {
                    first,
                    stride,
                    slot,
                    backwards: u32::from(self.runs_backwards()),
                };
                // SAFETY: the arrays of the call lie in this memory, because `Recurrent` makes every call from the `Room` that the
                // memory was taken for, and `Table` checks every token and row that stands in the table. All bit patterns are
                // floats. One thread runs at a time.
                unsafe {
                    run(
                        &raw const place,
                        parameters.cast(),
                        room.cast(),
                        memory.table.as_ptr(),
                        *call,
                    );
                }
            }
        }
        Ok(())
    }
}
