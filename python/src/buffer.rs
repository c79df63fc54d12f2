//! Memory of other libraries, read and written in place, and memory that is handed to them.
//!
//! Input is any object of the buffer protocol (`array`, `memoryview`, numpy) or of DLPack (torch, jax) on the CPU. Output is
//! [`Array`], which speaks both protocols.
//!
//! This file and `table.rs` hold the only unsafe code of the package. Other threads of Python may change a buffer while it
//! is used. So nothing that a privacy bound rests on is read from a buffer twice: [`read`] copies it first.

#![allow(unsafe_code, reason = "the buffer protocol and DLPack hand out raw pointers")]

mod array;
mod dlpack;

use std::ptr::NonNull;

use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

pub(crate) use array::Array;
use dlpack::Tensor;

/// A kind of number that buffers hold.
pub(crate) trait Number: pyo3::buffer::Element + Default {
    /// Name in messages and in numpy.
    const NAME: &'static str;
    /// Code and bits in DLPack.
    const DLPACK: (u8, u8);
}

impl Number for f32 {
    const NAME: &'static str = "float32";
    const DLPACK: (u8, u8) = (2, 32);
}

impl Number for f64 {
    const NAME: &'static str = "float64";
    const DLPACK: (u8, u8) = (2, 64);
}

impl Number for i64 {
    const NAME: &'static str = "int64";
    const DLPACK: (u8, u8) = (0, 64);
}

/// A contiguous stretch of numbers that another object owns, kept alive while this exists.
pub(crate) struct View<T> {
    start: NonNull<T>,
    len: usize,
    /// Released when the view is dropped.
    _owner: Owner,
}

#[expect(dead_code, reason = "held for its drop alone")]
enum Owner {
    Buffer(PyUntypedBuffer),
    Tensor(Tensor),
}

// SAFETY: the pointer stays valid on any thread while the owner lives, and both owners may be dropped on any thread:
// PyO3's buffer attaches to the interpreter to release itself, and so does `Tensor`.
unsafe impl<T: Send> Send for View<T> {}

impl<T: Number> View<T> {
    /// The writable numbers of `object`, in place.
    ///
    /// # Errors
    /// `TypeError` naming `name` and what is wrong: not a buffer, other numbers, not contiguous, read-only, not on the CPU.
    pub(crate) fn writable(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        Self::new(object, name, true)
    }

    fn new(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Self> {
        let wrong = |found: String| {
            let can = if writable { ", writable" } else { "" };
            PyTypeError::new_err(format!(
                "{name}: expected a contiguous{can} {} buffer on the CPU, got {found}",
                T::NAME
            ))
        };
        // SAFETY: a call of the C API with a live object.
        let has_buffer = unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1;
        if has_buffer {
            let buffer = PyUntypedBuffer::get(object)?;
            let format = buffer.format().to_string_lossy().into_owned();
            // PyO3 looks at the address of the numbers, and an empty buffer may have any.
            if buffer.item_count() == 0 && T::is_compatible_format(buffer.format()) {
                return Ok(Self {
                    start: NonNull::dangling(),
                    len: 0,
                    _owner: Owner::Buffer(buffer),
                });
            }
            let Ok(typed) = buffer.as_typed::<T>() else {
                return Err(wrong(format!("numbers of format '{format}'")));
            };
            let start = contiguous(typed).ok_or_else(|| wrong("strided memory".to_owned()))?;
            if writable && buffer.readonly() {
                return Err(wrong("read-only memory".to_owned()));
            }
            return Ok(Self {
                start,
                len: buffer.item_count(),
                _owner: Owner::Buffer(buffer),
            });
        }
        if !object.hasattr("__dlpack__")? {
            let kind = object.get_type().name()?.to_string();
            return Err(wrong(format!("an object of type '{kind}'")));
        }
        let tensor = Tensor::of(object, writable).map_err(|error| match error {
            dlpack::Error::Python(error) => error,
            dlpack::Error::Unfit(found) => wrong(found),
        })?;
        let (start, len) = tensor.numbers(T::DLPACK).map_err(wrong)?;
        Ok(Self {
            start: start.cast(),
            len,
            _owner: Owner::Tensor(tensor),
        })
    }

    /// The numbers, for one thread of Rust at a time.
    pub(crate) fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: the protocols promise `len` numbers of this type at `start`, aligned, until the owner is released. No
        // other reference of Rust points there, as a view lends them through a unique borrow. A thread of Python that
        // writes there meanwhile spoils numbers, as with every library that releases the GIL; no value is invalid.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// The start of contiguous, aligned numbers.
fn contiguous<T: Number>(buffer: &PyBuffer<T>) -> Option<NonNull<T>> {
    let start: NonNull<T> = buffer.as_slice_ptr()?.cast();
    start.is_aligned().then_some(start)
}

/// A copy of the numbers of `object`.
///
/// # Errors
/// As [`View::writable`], but for memory that is read-only.
pub(crate) fn read<T: Number>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<T>> {
    let view = View::<T>::new(object, name, false)?;
    let mut copy = vec![T::default(); view.len];
    // SAFETY: as in `as_mut`; the copy is memory of its own.
    unsafe {
        view.start
            .as_ptr()
            .copy_to_nonoverlapping(copy.as_mut_ptr(), view.len);
    };
    Ok(copy)
}

/// A copy of whole numbers: of a buffer of int64 or int32, or of a sequence of Python's integers.
///
/// # Errors
/// As [`read`]; for sequences, the errors of converting their items.
pub(crate) fn read_integers(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<i64>> {
    if object.is_instance_of::<pyo3::types::PyList>() || object.is_instance_of::<pyo3::types::PyTuple>() {
        return object.extract();
    }
    read::<i64>(object, name)
}
