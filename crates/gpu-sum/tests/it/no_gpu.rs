//! A machine without a GPU gives an error that says what is missing, and never a panic.

use undertone_gpu_sum::{Cuda, GpuError};

#[test]
fn a_missing_driver_or_gpu_is_an_error_that_names_it() {
    // No machine has so many GPUs, so this fails wherever it runs.
    let error = Cuda::open(1_000_000).unwrap_err();
    let message = error.to_string();
    match error {
        GpuError::NoLibrary {
            library: "libcuda", ..
        } => {
            assert_eq!(
                message,
                "libcuda cannot be loaded: install the NVIDIA driver, or name its folder in LD_LIBRARY_PATH"
            );
        }
        GpuError::NoGpu { ordinal, .. } => assert_eq!(ordinal, 1_000_000),
        // A driver without any GPU refuses to start, and an old one is named.
        GpuError::Driver { .. } => {
            assert!(message.starts_with("the start of the driver failed"), "{message}");
        }
        GpuError::OldDriver { .. } => assert!(message.contains("too old"), "{message}"),
        error => panic!("{error}"),
    }
}
