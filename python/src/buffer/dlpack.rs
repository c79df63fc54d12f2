//! Tensors of other libraries by DLPack, with and without a version.
//!
//! # Source
//! dlpack.h 1.0 and the Python specification of the data interchange protocol (2023.12).

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

const CPU: i32 = 1;
/// Memory of the host that a CUDA device can read.
const CUDA_HOST: i32 = 3;
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;
const LEGACY: (&CStr, &CStr) = (c"dltensor", c"used_dltensor");
const VERSIONED: (&CStr, &CStr) = (c"dltensor_versioned", c"used_dltensor_versioned");
/// Major version whose layout is the one below.
const MAJOR: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Described {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Described,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Described,
}

/// A tensor that its producer handed over: freed by the producer's deleter.
pub(super) struct Tensor(Handle);

enum Handle {
    Legacy(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

// SAFETY: DLPack lets the consumer call the deleter on any thread; `drop` attaches to the interpreter first, which the
// producers that free objects of Python need.
unsafe impl Send for Tensor {}

/// A tensor that cannot be used.
pub(super) enum Error {
    Python(PyErr),
    /// An object that is refused, with the reason in words.
    Unfit(String),
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Tensor {
    /// The memory of `object`, which has a method `__dlpack__`.
    pub(super) fn of(object: &Bound<'_, PyAny>, writable: bool) -> Result<Self, Error> {
        let (device, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        if device != CPU && device != CUDA_HOST {
            let name = match device {
                2 => "CUDA",
                8 => "Metal",
                10 => "ROCm",
                _ => "another",
            };
            return Err(Error::Unfit(format!("memory of {name} device {number}")));
        }
        // Tensors of torch that record gradients hand over nothing; without the record the memory is the same.
        let detached = match object.getattr_opt("requires_grad")? {
            Some(records) if records.is_truthy()? => Some(object.call_method0("detach")?),
            _ => None,
        };
        let object = detached.as_ref().unwrap_or(object);
        let tensor = Self::from_capsule(&capsule(object)?)?;
        match &tensor.0 {
            Handle::Versioned(managed) => {
                // SAFETY: the capsule was valid, and its tensor is ours until the deleter is called.
                let flags = unsafe { managed.as_ref() }.flags;
                if writable && flags & READ_ONLY != 0 {
                    return Err(Error::Unfit("read-only memory".to_owned()));
                }
                if writable && flags & COPIED != 0 {
                    return Err(Error::Unfit("a copy of the memory".to_owned()));
                }
            }
            // The old form does not say whether memory may be written to: torch's may.
            Handle::Legacy(_) if writable => {
                let module: String = object.get_type().getattr("__module__")?.extract()?;
                if module.split('.').next() != Some("torch") {
                    return Err(Error::Unfit(
                        "memory whose DLPack version does not say that it can be written to".to_owned(),
                    ));
                }
            }
            Handle::Legacy(_) => {}
        }
        Ok(tensor)
    }

    fn from_capsule(capsule: &Bound<'_, PyAny>) -> Result<Self, Error> {
        let pointer = |(name, used): (&CStr, &CStr)| -> Option<NonNull<c_void>> {
            // SAFETY: calls of the C API with a live object and static names. Renaming tells the producer that the tensor
            // has an owner now, as the protocol demands.
            unsafe {
                if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
                    return None;
                }
                let pointer = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))?;
                (ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) == 0).then_some(pointer)
            }
        };
        if let Some(managed) = pointer(VERSIONED) {
            let tensor = Self(Handle::Versioned(managed.cast()));
            // SAFETY: the first fields of every version are `major` and `minor`, and up to `deleter` no version differs.
            let major = unsafe { managed.cast::<ManagedVersioned>().as_ref() }.major;
            if major != MAJOR {
                return Err(Error::Unfit(format!("DLPack of version {major}")));
            }
            return Ok(tensor);
        }
        match pointer(LEGACY) {
            Some(managed) => Ok(Self(Handle::Legacy(managed.cast()))),
            None => Err(PyTypeError::new_err("__dlpack__ returned no capsule of a tensor").into()),
        }
    }

    fn described(&self) -> &Described {
        // SAFETY: the tensor is ours until the deleter is called, which `drop` alone does.
        match &self.0 {
            Handle::Legacy(managed) => unsafe { &managed.as_ref().tensor },
            Handle::Versioned(managed) => unsafe { &managed.as_ref().tensor },
        }
    }

    /// The start and the number of the tensor's numbers, if they are of this kind, contiguous and aligned; else what was
    /// found.
    pub(super) fn numbers(&self, kind: (u8, u8)) -> Result<(NonNull<c_void>, usize), String> {
        let tensor = self.described();
        let DataType { code, bits, lanes } = tensor.dtype;
        if ((code, bits), lanes) != (kind, 1) {
            let name = match code {
                0 => "int",
                1 => "uint",
                2 => "float",
                4 => "bfloat",
                5 => "complex",
                6 => "bool",
                _ => "unknown numbers of ",
            };
            return Err(format!("{name}{bits}"));
        }
        let ndim = usize::try_from(tensor.ndim).map_err(|_| "a negative number of dimensions".to_owned())?;
        let mut count = 1usize;
        // From the last dimension to the first, each stride is the product of the sizes behind it.
        for axis in (0..ndim).rev() {
            // SAFETY: the protocol promises `ndim` sizes, and as many strides unless the pointer is null.
            let (size, stride) = unsafe {
                let stride = (!tensor.strides.is_null()).then(|| *tensor.strides.add(axis));
                (*tensor.shape.add(axis), stride)
            };
            if size > 1 && stride.is_some_and(|stride| usize::try_from(stride) != Ok(count)) {
                return Err("strided memory".to_owned());
            }
            let size = usize::try_from(size).map_err(|_| "a negative size".to_owned())?;
            count = count.checked_mul(size).ok_or("more numbers than memory holds")?;
        }
        let bytes = usize::from(bits / 8);
        if count == 0 {
            return Ok((NonNull::<u64>::dangling().cast(), 0));
        }
        // SAFETY: the offset stays within the allocation of the tensor, by the protocol.
        let start = unsafe { tensor.data.cast::<u8>().add(tensor.byte_offset as usize) };
        match NonNull::new(start) {
            Some(start) if start.addr().get() % bytes == 0 => Ok((start.cast(), count)),
            _ => Err("memory that is not aligned".to_owned()),
        }
    }
}

/// The capsule of `object`, versioned where the object knows versions, and never of a copy where it can say so.
fn capsule<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("max_version", (MAJOR, 0))?;
    options.set_item("copy", false)?;
    match object.call_method("__dlpack__", (), Some(&options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__"),
        capsule => capsule,
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: called once, as the tensor has one owner; the producer's deleter frees what it allocated.
            unsafe {
                match self.0 {
                    Handle::Legacy(managed) => {
                        if let Some(deleter) = managed.as_ref().deleter {
                            deleter(managed.as_ptr());
                        }
                    }
                    Handle::Versioned(managed) => {
                        if let Some(deleter) = managed.as_ref().deleter {
                            deleter(managed.as_ptr());
                        }
                    }
                }
            }
        });
    }
}

/// A tensor of one dimension that an [`Array`](super::Array) hands out, in a capsule without a version.
pub(super) struct Handed {
    managed: Managed,
    shape: i64,
    /// Keeps the memory alive.
    _owner: Py<PyAny>,
}

/// A capsule of `len` numbers at `start`, which `owner` keeps alive.
pub(super) fn hand_out<'py>(
    owner: &Bound<'py, PyAny>,
    start: *mut c_void,
    len: usize,
    (code, bits): (u8, u8),
) -> PyResult<Bound<'py, PyAny>> {
    unsafe extern "C" fn delete(managed: *mut Managed) {
        Python::attach(|_| {
            // SAFETY: `manager` is the box that `hand_out` leaked, and the protocol calls the deleter once.
            drop(unsafe { Box::from_raw((*managed).manager.cast::<Handed>()) });
        });
    }
    unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
        // SAFETY: called by the interpreter with the capsule that dies. A consumer renames the capsule, and then frees the
        // tensor itself.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule, LEGACY.0.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(capsule, LEGACY.0.as_ptr());
                delete(managed.cast());
            }
        }
    }
    let mut handed = Box::new(Handed {
        managed: Managed {
            tensor: Described {
                data: start,
                device: Device { kind: CPU, id: 0 },
                ndim: 1,
                dtype: DataType { code, bits, lanes: 1 },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
            manager: std::ptr::null_mut(),
            deleter: Some(delete),
        },
        shape: len as i64,
        _owner: owner.clone().unbind(),
    });
    handed.managed.tensor.shape = &raw mut handed.shape;
    let handed = Box::into_raw(handed);
    // SAFETY: the box lives until `delete` is called, by the capsule or by its consumer.
    unsafe {
        (*handed).managed.manager = handed.cast();
        let managed = &raw mut (*handed).managed;
        let capsule = ffi::PyCapsule_New(managed.cast(), LEGACY.0.as_ptr(), Some(release));
        if capsule.is_null() {
            drop(Box::from_raw(handed));
        }
        Bound::from_owned_ptr_or_err(owner.py(), capsule)
    }
}
