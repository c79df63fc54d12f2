//! Numbers that leave for Python: one dimension, aligned to 64 bytes.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PySlice};

use super::{Number, dlpack};

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The kind of an array's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F32,
    F64,
    I64,
}

/// Numbers in one dimension, for numpy, torch, jax and every other reader of the buffer protocol or DLPack.
///
/// `numpy.asarray(array)` and `torch.from_dlpack(array)` share its memory: nothing is copied. Without either, `list(array)`
/// gives Python's numbers.
///
/// Examples
/// --------
/// >>> import undertone_dp as udp
/// >>> array = next(iter(udp.PoissonUsers(5, 1.0, rounds=1)))
/// >>> list(array), array.dtype
/// ([0, 1, 2, 3, 4], 'int64')
/// >>> memoryview(array).nbytes
/// 40
#[pyclass(frozen, sequence, module = "undertone_dp")]
pub(crate) struct Array {
    lines: UnsafeCell<Box<[Line]>>,
    len: usize,
    kind: Kind,
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
}

// SAFETY: once an array exists, Rust only reads single numbers of it, through raw pointers and while attached to the
// interpreter. A caller that writes does so through the buffers that were handed out, under the rules of Python's threads.
unsafe impl Sync for Array {}
// SAFETY: the memory is owned and has no tie to a thread.
unsafe impl Send for Array {}

/// Kinds of numbers that an array can hold.
pub(crate) trait Stored: Number {
    #[doc(hidden)]
    const KIND: u8;
}

impl Stored for f32 {
    const KIND: u8 = 0;
}

impl Stored for f64 {
    const KIND: u8 = 1;
}

impl Stored for i64 {
    const KIND: u8 = 2;
}

impl Array {
    /// An array of `len` zeros that `fill` fills.
    pub(crate) fn filled<T: Stored, E>(
        len: usize,
        fill: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let kind = match T::KIND {
            0 => Kind::F32,
            1 => Kind::F64,
            _ => Kind::I64,
        };
        let size = size_of::<T>();
        let mut lines = vec![Line([0; 64]); (len * size).div_ceil(64)].into_boxed_slice();
        // SAFETY: the lines hold at least `len` numbers, are aligned to more than a number, are initialised, and every
        // pattern of bits is one of these numbers.
        fill(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), len) })?;
        Ok(Self {
            lines: UnsafeCell::new(lines),
            len,
            kind,
            shape: [len as ffi::Py_ssize_t],
            strides: [size as ffi::Py_ssize_t],
        })
    }

    /// An array of these numbers.
    pub(crate) fn of<T: Stored>(numbers: &[T]) -> Self {
        let copied = Self::filled(numbers.len(), |own: &mut [T]| {
            own.copy_from_slice(numbers);
            Ok::<(), std::convert::Infallible>(())
        });
        match copied {
            Ok(array) => array,
            Err(never) => match never {},
        }
    }

    fn start(&self) -> *mut c_void {
        // SAFETY: the box itself is never replaced, so reading its pointer races with nothing.
        unsafe { (*self.lines.get()).as_mut_ptr().cast() }
    }

    fn item(&self, py: Python<'_>, index: usize) -> PyResult<Py<PyAny>> {
        let start = self.start();
        // SAFETY: callers keep `index` below `len`; the numbers are aligned and initialised.
        unsafe {
            Ok(match self.kind {
                Kind::F32 => f64::from(start.cast::<f32>().add(index).read())
                    .into_pyobject(py)?
                    .into_any()
                    .unbind(),
                Kind::F64 => start
                    .cast::<f64>()
                    .add(index)
                    .read()
                    .into_pyobject(py)?
                    .into_any()
                    .unbind(),
                Kind::I64 => start
                    .cast::<i64>()
                    .add(index)
                    .read()
                    .into_pyobject(py)?
                    .into_any()
                    .unbind(),
            })
        }
    }

    fn dlpack_kind(&self) -> (u8, u8) {
        match self.kind {
            Kind::F32 => f32::DLPACK,
            Kind::F64 => f64::DLPACK,
            Kind::I64 => i64::DLPACK,
        }
    }
}

#[pymethods]
impl Array {
    /// Name of the numbers' type: `float32`, `float64` or `int64`.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.kind {
            Kind::F32 => f32::NAME,
            Kind::F64 => f64::NAME,
            Kind::I64 => i64::NAME,
        }
    }

    /// The numbers as a list of Python's numbers.
    fn tolist(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        (0..self.len).map(|index| self.item(py, index)).collect()
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.tolist(py)?.into_pyobject(py)?.try_iter()
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let places = slice.indices(self.len as isize)?;
            let place = |step: usize| (places.start + places.step * step as isize) as usize;
            let items: Vec<_> = (0..places.slicelength)
                .map(|step| self.item(py, place(step)))
                .collect::<PyResult<_>>()?;
            return Ok(items.into_pyobject(py)?.into_any().unbind());
        }
        let index: isize = index.extract()?;
        let place = if index < 0 {
            index + self.len as isize
        } else {
            index
        };
        match usize::try_from(place).ok().filter(|place| *place < self.len) {
            Some(place) => self.item(py, place),
            None => Err(PyIndexError::new_err(format!(
                "index {index} of an array of {} numbers",
                self.len
            ))),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        const SHOWN: usize = 6;
        let shown =
            (0..self.len.min(SHOWN)).map(|index| Ok(self.item(py, index)?.bind(py).repr()?.to_string()));
        let mut text = shown.collect::<PyResult<Vec<_>>>()?.join(", ");
        if self.len > SHOWN {
            text.push_str(", ...");
        }
        Ok(format!("<Array of {} {}: {text}>", self.len, self.dtype()))
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        let kind = match self.kind {
            Kind::F32 => "<f4",
            Kind::F64 => "<f8",
            Kind::I64 => "<i8",
        };
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.len,))?;
        interface.set_item("typestr", kind)?;
        interface.set_item("data", (self.start().addr(), false))?;
        Ok(interface)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version);
        if dl_device.is_some_and(|(kind, _)| kind != 1) || copy == Some(true) {
            return Err(PyBufferError::new_err(
                "an Array is handed out on the CPU and without a copy",
            ));
        }
        let array = slf.get();
        dlpack::hand_out(slf.as_any(), array.start(), array.len, array.dlpack_kind())
    }

    #[expect(clippy::unused_self, reason = "a method, by the protocol")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// SAFETY: `view` is the interpreter's, to be filled; what it points to lives as long as `obj`, the array.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let array = slf.get();
        let format = match array.kind {
            Kind::F32 => c"f",
            Kind::F64 => c"d",
            Kind::I64 => c"q",
        };
        let asked = |flag: c_int| flags & flag == flag;
        // SAFETY: as above; shape, strides and the start are never moved or freed while the array lives.
        unsafe {
            (*view).buf = array.start();
            (*view).len = array.shape[0] * array.strides[0];
            (*view).readonly = 0;
            (*view).itemsize = array.strides[0];
            (*view).format = if asked(ffi::PyBUF_FORMAT) {
                format.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).ndim = 1;
            (*view).shape = array.shape.as_ptr().cast_mut();
            (*view).strides = if asked(ffi::PyBUF_STRIDES) {
                array.strides.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}
