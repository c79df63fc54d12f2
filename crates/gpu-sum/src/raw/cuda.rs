//! The kernels on an NVIDIA GPU, by the libraries of its driver, which are loaded when the program runs.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};

use crate::error::{GpuError, Result, ensure};
use crate::machine::{Machine, Span, Word};
use crate::self_test::self_test;

/// The source of the kernels, in C, as NVRTC compiles it.
const KERNELS: &str = include_str!("../../kernels/bound.c");

/// The version of CUDA whose interface the bindings have.
const DRIVER: i32 = 13_000;

/// The oldest architecture. A driver translates its code for every later one, and the kernels use nothing that is newer.
const ARCHITECTURE: &str = "compute_80";

/// Threads of a block, as in `kernels/bound.c`.
const THREADS: u32 = 256;

/// The most blocks per slot. It does not depend on the GPU, and neither do the integers depend on it.
const MAX_BLOCKS: u64 = 1024;

// SAFETY: the layout is that of the struct in `kernels/bound.c`, and every bit pattern of its integers is valid.
unsafe impl DeviceRepr for Span {}

/// An NVIDIA GPU.
#[derive(Clone)]
pub struct Cuda {
    stream: Arc<CudaStream>,
    largest: CudaFunction,
    squares: CudaFunction,
    add_bounded: CudaFunction,
    /// Kernels of other crates.
    others: HashMap<&'static str, CudaFunction>,
    name: String,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Cuda {
    /// Opens a GPU by its number, compiles the kernels for it, and tests them against known answers.
    ///
    /// # Errors
    /// The driver or its compiler NVRTC is not installed, is too old or failed; there is no such GPU; the kernels gave wrong integers.
    pub fn open(ordinal: usize) -> Result<Self> {
        guarded("the start of the GPU", || {
            let cuda = Self::open_unguarded(ordinal)?;
            self_test(&cuda)?;
            Ok(cuda)
        })
    }

    /// The name of the GPU, from its driver.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue of the GPU's work. What is put into it runs in order.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Compiles more kernels from their source in C, for [`kernel`](Self::kernel). A product and a sum are not fused unless the source
    /// says so.
    ///
    /// # Errors
    /// NVRTC refused the source, or the source has no kernel of one of these names.
    pub fn add_kernels(&mut self, source: &str, file: &str, names: &[&'static str]) -> Result<()> {
        let (stream, others) = (&self.stream, &mut self.others);
        guarded("the loading of kernels", || {
            let kernels = Self::compile(source, file)?;
            let loaded = stream.context().load_module(kernels);
            let module = driver("the loading of the kernels", loaded)?;
            for &name in names {
                let function = driver("the look-up of a kernel", module.load_function(name))?;
                others.insert(name, function);
            }
            Ok(())
        })
    }

    /// A kernel that [`add_kernels`](Self::add_kernels) loaded.
    ///
    /// # Errors
    /// It was not loaded.
    pub fn kernel(&self, name: &str) -> Result<&CudaFunction> {
        self.others.get(name).ok_or_else(|| GpuError::Driver {
            action: "the look-up of a kernel",
            reason: format!("`{name}` was not loaded"),
        })
    }

    fn open_unguarded(ordinal: usize) -> Result<Self> {
        // SAFETY: this loads the library and unloads it again. Its name is the fixed one of the driver.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(GpuError::NoLibrary {
                library: "libcuda",
                package: "the NVIDIA driver",
            });
        }
        let mut got = 0;
        // SAFETY: the library is there, and the call writes one integer.
        let status = unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut got) };
        driver("the question for the driver's version", status.result())?;
        if got < DRIVER {
            return Err(GpuError::OldDriver {
                expected: DRIVER,
                got,
            });
        }
        driver("the start of the driver", cudarc::driver::result::init())?;
        let found = driver("the count of the GPUs", CudaContext::device_count())?;
        if i32::try_from(ordinal).map_or(true, |ordinal| ordinal >= found) {
            return Err(GpuError::NoGpu { ordinal, found });
        }
        let kernels = Self::compile(KERNELS, "bound.c")?;
        let context = driver("the context of the GPU", CudaContext::new(ordinal))?;
        let module = driver("the loading of the kernels", context.load_module(kernels))?;
        let function = |name| driver("the look-up of a kernel", module.load_function(name));
        Ok(Self {
            largest: function("largest")?,
            squares: function("squares")?,
            add_bounded: function("add_bounded")?,
            others: HashMap::new(),
            stream: context.default_stream(),
            name: driver("the question for the GPU's name", context.name())?,
        })
    }

    /// Compiles kernels. This needs NVRTC, and neither a driver nor a GPU.
    ///
    /// # Errors
    /// NVRTC is not installed, or it refused the source.
    pub fn compile(source: &str, file: &str) -> Result<Ptx> {
        // SAFETY: this loads the library and unloads it again. Its name is the fixed one of NVRTC.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return Err(GpuError::NoLibrary {
                library: "libnvrtc",
                package: "the package nvidia-cuda-nvrtc of CUDA 13",
            });
        }
        let options = CompileOptions {
            arch: Some(ARCHITECTURE),
            fmad: Some(false),
            name: Some(file.to_owned()),
            ..CompileOptions::default()
        };
        compile_ptx_with_opts(source, options).map_err(|error| GpuError::Compile {
            reason: match error {
                CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
                error => error.to_string(),
            },
        })
    }

    fn grid(span: Span, slots: u32) -> LaunchConfig {
        let blocks = span.count.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS);
        LaunchConfig {
            grid_dim: (blocks as u32, slots, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        }
    }
}

/// Turns a panic of the bindings into an error: they panic where the driver lacks a function.
fn guarded<T>(action: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let reason = text.unwrap_or_else(|| "the bindings of the driver panicked".to_owned());
        Err(GpuError::Driver { action, reason })
    })
}

fn driver<T>(action: &'static str, result: Result<T, cudarc::driver::DriverError>) -> Result<T> {
    result.map_err(|error| GpuError::Driver {
        action,
        reason: error.to_string(),
    })
}

fn holds<T>(what: &'static str, memory: &CudaSlice<T>, needed: usize) -> Result<()> {
    let expected = || format!("at least {needed} words");
    ensure(memory.len() >= needed, what, expected, memory.len())
}

fn part(what: &'static str, len: usize, at: usize, words: usize) -> Result<std::ops::Range<usize>> {
    let end = at.saturating_add(words);
    ensure(end <= len, what, || format!("an end within {len} words"), end)?;
    Ok(at..end)
}

impl Machine for Cuda {
    type Memory<T: Word> = CudaSlice<T>;

    fn zeros<T: Word>(&self, len: usize) -> Result<CudaSlice<T>> {
        driver(
            "the allocation of memory on the GPU",
            self.stream.alloc_zeros(len),
        )
    }

    fn clear<T: Word>(&self, memory: &mut CudaSlice<T>) -> Result<()> {
        driver(
            "the clearing of memory on the GPU",
            self.stream.memset_zeros(memory),
        )
    }

    fn write<T: Word>(&self, memory: &mut CudaSlice<T>, at: usize, words: &[T]) -> Result<()> {
        let part = part("a copy to the GPU", memory.len(), at, words.len())?;
        if words.is_empty() {
            return Ok(());
        }
        let copied = self.stream.memcpy_htod(words, &mut memory.slice_mut(part));
        driver("a copy to the GPU", copied)?;
        // The words may be gone after this call.
        driver("a copy to the GPU", self.stream.synchronize())
    }

    fn read<T: Word>(&self, memory: &CudaSlice<T>, at: usize, into: &mut [T]) -> Result<()> {
        let part = part("a copy from the GPU", memory.len(), at, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        let copied = self.stream.memcpy_dtoh(&memory.slice(part), into);
        driver("a copy from the GPU", copied)?;
        driver("a copy from the GPU", self.stream.synchronize())
    }

    fn largest(&self, span: Span, values: &CudaSlice<u32>, found: &mut CudaSlice<u32>) -> Result<()> {
        let needs = span.needs_checked()?;
        holds("values", values, needs.values)?;
        holds("found", found, needs.groups)?;
        let mut launch = self.stream.launch_builder(&self.largest);
        launch.arg(values).arg(&span).arg(found);
        // SAFETY: the arguments are those of the kernel in their order, and the memory is as large as it needs, which was checked.
        let launched = unsafe { launch.launch(Self::grid(span, span.slots)) };
        driver("the kernel `largest`", launched).map(drop)
    }

    fn squares(
        &self,
        span: Span,
        values: &CudaSlice<u32>,
        found: &CudaSlice<u32>,
        limbs: &mut CudaSlice<u64>,
    ) -> Result<()> {
        let needs = span.needs_checked()?;
        holds("values", values, needs.values)?;
        holds("found", found, needs.groups)?;
        holds("limbs", limbs, 4 * needs.groups)?;
        let mut launch = self.stream.launch_builder(&self.squares);
        launch.arg(values).arg(&span).arg(found).arg(limbs);
        // SAFETY: the arguments are those of the kernel in their order, and the memory is as large as it needs, which was checked.
        let launched = unsafe { launch.launch(Self::grid(span, span.slots)) };
        driver("the kernel `squares`", launched).map(drop)
    }

    fn add_bounded(
        &self,
        span: Span,
        values: &CudaSlice<u32>,
        factors: &CudaSlice<u32>,
        sum: &mut CudaSlice<u64>,
    ) -> Result<()> {
        let needs = span.needs_checked()?;
        holds("values", values, needs.values)?;
        holds("factors", factors, 2 * needs.groups)?;
        holds("sum", sum, needs.sum)?;
        let mut launch = self.stream.launch_builder(&self.add_bounded);
        launch.arg(values).arg(&span).arg(factors).arg(sum);
        // SAFETY: the arguments are those of the kernel in their order, and the memory is as large as it needs, which was checked.
        let launched = unsafe { launch.launch(Self::grid(span, 1)) };
        driver("the kernel `add_bounded`", launched).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without the library fails this test if `UNDERTONE_REQUIRE_NVRTC` is set.
    #[test]
    fn the_kernels_compile_where_the_compiler_is_installed() {
        match Cuda::compile(KERNELS, "bound.c") {
            Ok(kernels) => {
                let text = kernels.to_src();
                for kernel in ["largest", "squares", "add_bounded"] {
                    assert!(text.contains(&format!(".entry {kernel}(")), "{kernel}");
                }
                // Floats are read as their bits.
                assert!(!text.contains(".f32") && !text.contains(".f64"));
            }
            Err(error) => {
                assert!(std::env::var_os("UNDERTONE_REQUIRE_NVRTC").is_none(), "{error}");
                let expected = "libnvrtc cannot be loaded: install the package nvidia-cuda-nvrtc of CUDA 13";
                assert!(error.to_string().starts_with(expected), "{error}");
            }
        }
    }

    #[test]
    fn a_panic_of_the_bindings_is_an_error() {
        let error = guarded::<()>("the start of the GPU", || panic!("no symbol {}", 7)).unwrap_err();
        assert_eq!(error.to_string(), "the start of the GPU failed: no symbol 7");
    }
}
