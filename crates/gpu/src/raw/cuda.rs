//! The kernels on an NVIDIA GPU.

use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};
use undertone_aggregation::AggregationError;
use undertone_gpu_sum::{Cuda, GpuError};
use undertone_local::LocalError;

use crate::call::{Call, Kernel, THREADS};
use crate::machine::{Trainer, TrainingMemory};
use crate::self_test;

/// The source of the kernels, in C, as NVRTC compiles it.
const KERNELS: &str = concat!(
    include_str!("../../kernels/common.c"),
    include_str!("../../kernels/products.c"),
    include_str!("../../kernels/recurrent.c"),
);

/// The most blocks per slot. The bits of a result do not depend on it.
const MAX_BLOCKS: u64 = 4096;

// SAFETY: the layout is that of the struct in `kernels/common.c`, and every bit pattern of its fields is valid.
unsafe impl DeviceRepr for Call {}

/// Opens a GPU by its number, compiles the kernels of the sum and of local training for it, and tests both.
///
/// # Errors
/// The driver or its compiler NVRTC is not installed, is too old or failed; there is no such GPU; the kernels gave wrong results.
pub fn open(ordinal: usize) -> Result<Cuda, LocalError> {
    let of_gpu = |error: GpuError| LocalError::from(AggregationError::from(error));
    let mut cuda = Cuda::open(ordinal).map_err(of_gpu)?;
    let names: Vec<&'static str> = Kernel::ALL.iter().map(|kernel| kernel.name()).collect();
    cuda.add_kernels(KERNELS, "training.c", &names).map_err(of_gpu)?;
    self_test(&cuda)?;
    Ok(cuda)
}

impl Trainer for Cuda {
    fn run(
        &self,
        kernel: Kernel,
        threads: u64,
        slots: u32,
        call: &Call,
        memory: TrainingMemory<'_, Self>,
    ) -> Result<(), GpuError> {
        let blocks = threads.div_ceil(THREADS).clamp(1, MAX_BLOCKS);
        let grid = LaunchConfig {
            grid_dim: (blocks as u32, slots, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let function = self.kernel(kernel.name())?;
        let TrainingMemory {
            parameters,
            room,
            table,
        } = memory;
        let mut launch = self.stream().launch_builder(function);
        launch.arg(parameters).arg(room).arg(table).arg(call);
        // SAFETY: the arguments are those of every kernel in their order. The arrays of the call lie in this memory, because `Recurrent`
        // makes every call from the `Room` that the memory was taken for, and `Table` checks every token and row in the table.
        let launched = unsafe { launch.launch(grid) };
        launched.map(drop).map_err(|error| GpuError::Driver {
            action: "a kernel of local training",
            reason: format!("{}: {error}", kernel.name()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without the library fails this test if `UNDERTONE_REQUIRE_NVRTC` is set.
    #[test]
    fn the_kernels_compile_where_the_compiler_is_installed() {
        match Cuda::compile(super::KERNELS, "training.c") {
            Ok(kernels) => {
                let text = kernels.to_src();
                for kernel in Kernel::ALL {
                    let entry = format!(".entry {}(", kernel.name());
                    assert!(text.contains(&entry), "{entry}");
                }
                // No approximate function, and nothing that flushes small numbers.
                for word in ["approx", ".ftz", "call "] {
                    assert!(!text.contains(word), "{word}");
                }
            }
            Err(error) => {
                assert!(std::env::var_os("UNDERTONE_REQUIRE_NVRTC").is_none(), "{error}");
                assert!(matches!(error, GpuError::NoLibrary { .. }), "{error}");
            }
        }
    }
}
