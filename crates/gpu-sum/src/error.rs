//! Errors of a GPU.

use undertone_aggregation::AggregationError;

/// Result of this crate's functions.
pub type Result<T, E = GpuError> = std::result::Result<T, E>;

/// The reason why a GPU cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A library that is loaded when the program runs is not installed, or not where the system looks for it.
    #[error("{library} cannot be loaded: install {package}, or name its folder in LD_LIBRARY_PATH")]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// The package that holds it.
        package: &'static str,
    },
    /// The driver is older than the bindings.
    #[error(
        "the NVIDIA driver is too old: expected one for CUDA {expected} or later, got one for CUDA {got}"
    )]
    OldDriver {
        /// The version that the bindings need, as `1000 major + 10 minor`.
        expected: i32,
        /// The version of the driver, in the same form.
        got: i32,
    },
    /// There is no GPU of this number.
    #[error("there is no GPU number {ordinal}: the driver counts {found}, and numbers begin at 0")]
    NoGpu {
        /// The number asked for.
        ordinal: usize,
        /// The number of GPUs.
        found: i32,
    },
    /// The kernels could not be compiled.
    #[error("the kernels could not be compiled: {reason}")]
    Compile {
        /// The report of the compiler.
        reason: String,
    },
    /// A call of the driver failed.
    #[error("{action} failed: {reason}")]
    Driver {
        /// The call, as a noun.
        action: &'static str,
        /// The report of the driver.
        reason: String,
    },
    /// A kernel gave other results than the known ones.
    #[error("the self-test of `{kernel}` gave wrong results, so the GPU or its driver is faulty")]
    SelfTest {
        /// The kernel.
        kernel: &'static str,
    },
    /// A number of units, values or factors does not fit the slots.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// The number that does not fit.
        what: &'static str,
        /// A description of a usable value.
        expected: String,
        /// The value received.
        got: usize,
    },
}

impl From<GpuError> for AggregationError {
    fn from(error: GpuError) -> Self {
        Self::Gpu {
            reason: error.to_string(),
        }
    }
}

/// Refuses a number that does not fit.
pub(crate) fn ensure(
    holds: bool,
    what: &'static str,
    expected: impl FnOnce() -> String,
    got: usize,
) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(GpuError::Shape {
            what,
            expected: expected(),
            got,
        }),
    }
}
