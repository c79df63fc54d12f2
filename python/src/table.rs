//! Tables of Arrow: those of other libraries, taken over without a copy, and those that are handed to them.
//!
//! A stream of Arrow's C interface is the only way in and out. `buffer.rs` and this file hold the only unsafe code of the
//! package.

#![allow(unsafe_code, reason = "Arrow's C interface hands out raw pointers")]

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::ffi::c_str;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyCapsule, PyDict, PyList};
use serde_json::{Map, Value};
use undertone_data::DataError;

use crate::run_error::of_data;

/// The name of a capsule that holds a stream of Arrow's C interface.
const STREAM: &std::ffi::CStr = c_str!("arrow_array_stream");

/// Takes over the stream of an object with `__arrow_c_stream__`. Its arrays are not checked here.
///
/// # Errors
/// `TypeError` for an object without a stream; the errors of the object; a capsule that holds no stream or a used one.
pub(crate) fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| {
        PyTypeError::new_err("table: expected a capsule from __arrow_c_stream__, got something else")
    })?;
    let pointer = capsule
        .pointer_checked(Some(STREAM))
        .map_err(|_| PyTypeError::new_err("table: expected a capsule of the name arrow_array_stream"))?;
    // SAFETY: Arrow's PyCapsule interface promises that a capsule of this name points to an `ArrowArrayStream` that lives as
    // long as the capsule, which is borrowed here. `from_raw` moves the stream out and leaves a released one behind, so the
    // capsule's destructor releases nothing twice. The interpreter is attached, so no other thread takes the same capsule.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) };
    RecordBatchStreamReader::try_new(stream).map_err(|error| {
        of_data(&DataError::BadTable {
            column: String::new(),
            detail: error.to_string(),
        })
    })
}

/// Columns of equal length, for every library that reads Arrow.
///
/// `polars.DataFrame(table)` and `pyarrow.table(table)` share its memory. Without either, `column` gives Python's values.
///
/// >>> import undertone_dp as udp
/// >>> table = udp.Table.of({"user": ["ann", "bob"], "number": [1, None]})
/// >>> len(table), table.columns, table.column("number")
/// (2, ['user', 'number'], [1, None])
#[pyclass(frozen, module = "undertone_dp")]
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) batch: RecordBatch,
}

#[pymethods]
impl Table {
    /// The table of these columns: equally long lists of strings, integers, floats or truth values; `None` is a missing value.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Table.of({"text": ["two words"]}).columns
    /// ['text']
    #[staticmethod]
    fn of(columns: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut arrays: Vec<(String, ArrayRef)> = Vec::new();
        for (name, values) in columns {
            let name: String = name
                .extract()
                .map_err(|_| PyTypeError::new_err("columns: expected names that are strings"))?;
            let values = values.try_iter().and_then(Iterator::collect::<PyResult<Vec<_>>>);
            let values =
                values.map_err(|_| PyTypeError::new_err(format!("columns[{name:?}]: expected a list")))?;
            let array = column(&name, &values)?;
            if let Some((first, other)) = arrays.first()
                && other.len() != array.len()
            {
                return Err(PyValueError::new_err(format!(
                    "columns[{name:?}]: expected {} values, as in columns[{first:?}], got {}",
                    other.len(),
                    array.len()
                )));
            }
            arrays.push((name, array));
        }
        Self::new(arrays)
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let schema = self.batch.schema();
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The values of a column as a list.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Table.of({"x": [1.5, 2.5]}).column("x")
    /// [1.5, 2.5]
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let array = self.batch.column_by_name(name).ok_or_else(|| {
            PyKeyError::new_err(format!(
                "no column {name:?}; the columns are {:?}",
                self.columns()
            ))
        })?;
        let list = PyList::empty(py);
        for row in 0..array.len() {
            list.append(value(py, array, row)?)?;
        }
        Ok(list)
    }

    /// The table as a `pandas.DataFrame`; it needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let table = slf.py().import("pyarrow")?.call_method1("table", (slf,))?;
        table.call_method0("to_pandas")
    }

    /// The table as a `polars.DataFrame`; it needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Table of {} rows: {}>",
            self.batch.num_rows(),
            self.columns().join(", ")
        )
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        const SHOWN: usize = 20;
        let escape = |text: &str| {
            text.replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
        };
        let mut html = "<table><tr>".to_owned();
        for name in self.columns() {
            html += &format!("<th>{}</th>", escape(&name));
        }
        html += "</tr>";
        for row in 0..self.batch.num_rows().min(SHOWN) {
            html += "<tr>";
            for array in self.batch.columns() {
                let shown = value(py, array, row)?.bind(py).str()?.to_string();
                html += &format!("<td>{}</td>", escape(&shown));
            }
            html += "</tr>";
        }
        Ok(format!("{html}</table><p>{} rows</p>", self.batch.num_rows()))
    }

    /// The table as a stream of Arrow's C interface, in a capsule.
    ///
    /// >>> import undertone_dp as udp
    /// >>> type(udp.Table.of({"x": [1]}).__arrow_c_stream__()).__name__
    /// 'PyCapsule'
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the wish.
        let _ = requested_schema;
        let reader = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        // The capsule owns the stream, and drops it. A reader that took it over left a released one behind.
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }
}

impl Table {
    fn new(arrays: Vec<(String, ArrayRef)>) -> PyResult<Self> {
        let field = |(name, array): &(String, ArrayRef)| Field::new(name, array.data_type().clone(), true);
        let schema = Schema::new(arrays.iter().map(field).collect::<Vec<_>>());
        let rows = arrays.first().map_or(0, |(_, array)| array.len());
        let batch = RecordBatch::try_new_with_options(
            Arc::new(schema),
            arrays.into_iter().map(|(_, array)| array).collect(),
            &arrow_array::RecordBatchOptions::new().with_row_count(Some(rows)),
        );
        let batch = batch.map_err(|error| PyValueError::new_err(format!("columns: {error}")))?;
        Ok(Self { batch })
    }

    /// The table of these records. Tables in them are columns of their own with a dotted name, lists are lists of numbers.
    pub(crate) fn of_records(records: Vec<Value>) -> PyResult<Self> {
        let rows = records.len();
        let mut names: Vec<String> = Vec::new();
        let mut columns: Map<String, Value> = Map::new();
        for (row, record) in records.into_iter().enumerate() {
            let mut flat = Vec::new();
            flatten("", record, &mut flat);
            for (name, value) in flat {
                let column = columns.entry(name.clone()).or_insert_with(|| {
                    names.push(name);
                    Value::Array(vec![Value::Null; rows])
                });
                if let Some(place) = column.get_mut(row) {
                    *place = value;
                }
            }
        }
        let arrays = names.into_iter().filter_map(|name| {
            let Some(Value::Array(values)) = columns.remove(&name) else {
                return None;
            };
            let array = json_column(&values);
            Some((name, array))
        });
        Self::new(arrays.collect())
    }
}

/// The leaves of a record, with dotted names.
fn flatten(name: &str, value: Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() {
                    field
                } else {
                    format!("{name}.{field}")
                };
                flatten(&name, value, leaves);
            }
        }
        leaf => leaves.push((name.to_owned(), leaf)),
    }
}

fn json_column(values: &[Value]) -> ArrayRef {
    let all = |fits: fn(&Value) -> bool| values.iter().all(|value| value.is_null() || fits(value));
    let empty = values.iter().all(Value::is_null);
    if !empty && all(Value::is_boolean) {
        let mut builder = BooleanBuilder::new();
        values
            .iter()
            .for_each(|value| builder.append_option(value.as_bool()));
        return Arc::new(builder.finish());
    }
    if !empty && all(Value::is_i64) {
        let mut builder = Int64Builder::new();
        values
            .iter()
            .for_each(|value| builder.append_option(value.as_i64()));
        return Arc::new(builder.finish());
    }
    if empty || all(Value::is_number) {
        let mut builder = Float64Builder::new();
        values
            .iter()
            .for_each(|value| builder.append_option(value.as_f64()));
        return Arc::new(builder.finish());
    }
    let numbers = |value: &Value| {
        value
            .as_array()
            .is_some_and(|items| items.iter().all(Value::is_number))
    };
    if values.iter().all(|value| value.is_null() || numbers(value)) {
        let mut builder = ListBuilder::new(Float64Builder::new());
        for value in values {
            builder.append_option(value.as_array().map(|items| items.iter().map(Value::as_f64)));
        }
        return Arc::new(builder.finish());
    }
    let mut builder = StringBuilder::new();
    for value in values {
        builder.append_option(match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        });
    }
    Arc::new(builder.finish())
}

/// A column of Python's values, whose kind the first value that is not `None` decides.
fn column(name: &str, values: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    use pyo3::types::{PyBool, PyFloat, PyInt};
    let wrong = |row: usize, expected: &str| {
        let got = values[row]
            .get_type()
            .name()
            .map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "columns[{name:?}][{row}]: expected {expected}, got {got}"
        ))
    };
    let filled = values.iter().filter(|value| !value.is_none());
    let kinds: Vec<&Bound<'_, PyAny>> = filled.collect();
    let every =
        |test: &dyn Fn(&Bound<'_, PyAny>) -> bool| !kinds.is_empty() && kinds.iter().all(|value| test(value));
    if every(&|value| value.is_instance_of::<PyBool>()) {
        let mut builder = BooleanBuilder::new();
        for value in values {
            builder.append_option(value.extract::<Option<bool>>()?);
        }
        return Ok(Arc::new(builder.finish()));
    }
    if every(&|value| value.is_instance_of::<PyInt>()) {
        let mut builder = Int64Builder::new();
        for (row, value) in values.iter().enumerate() {
            builder.append_option(
                value
                    .extract::<Option<i64>>()
                    .map_err(|_| wrong(row, "an integer of 64 bits"))?,
            );
        }
        return Ok(Arc::new(builder.finish()));
    }
    if every(&|value| value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>()) {
        let mut builder = Float64Builder::new();
        for value in values {
            builder.append_option(value.extract::<Option<f64>>()?);
        }
        return Ok(Arc::new(builder.finish()));
    }
    let mut builder = StringBuilder::new();
    for (row, value) in values.iter().enumerate() {
        builder.append_option(
            value
                .extract::<Option<String>>()
                .map_err(|_| wrong(row, "strings alone, or integers alone, or floats alone"))?,
        );
    }
    Ok(Arc::new(builder.finish()))
}

/// One value of a column as one of Python's. Tables of this package hold these kinds of columns alone.
fn value(py: Python<'_>, array: &ArrayRef, row: usize) -> PyResult<Py<PyAny>> {
    if array.is_null(row) {
        return Ok(py.None());
    }
    let object = match array.data_type() {
        DataType::Boolean => {
            return Ok(array
                .as_boolean()
                .value(row)
                .into_pyobject(py)?
                .to_owned()
                .into_any()
                .unbind());
        }
        DataType::Int64 => array
            .as_primitive::<Int64Type>()
            .value(row)
            .into_pyobject(py)?
            .into_any(),
        DataType::Float64 => array
            .as_primitive::<Float64Type>()
            .value(row)
            .into_pyobject(py)?
            .into_any(),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let list = PyList::empty(py);
            for item in 0..items.len() {
                list.append(value(py, &items, item)?)?;
            }
            list.into_any()
        }
        _ => array.as_string::<i32>().value(row).into_pyobject(py)?.into_any(),
    };
    Ok(object.unbind())
}

/// The table of records in JSON, one per item of the array `text`.
#[pyfunction]
pub(crate) fn _records(text: &str) -> PyResult<Table> {
    let records =
        serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("records: {error}")))?;
    Table::of_records(records)
}
