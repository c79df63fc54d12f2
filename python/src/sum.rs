//! Bounds on updates, and secure sums of a whole session in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use undertone_aggregation::{self as aggregation, Clipping, ModularVec, NonFinite};
use undertone_secagg::assurance::Assumptions;
use undertone_secagg::{
    Context, DropOut, GraphChoice, SecAggPlus, SecureSum, SumRequest, Terms, ThreatModel,
};

use crate::buffer::{Array, View, read, read_integers};
use crate::clip_report::ClipReport;
use crate::count;
use crate::run_error::{of_aggregation, of_secagg};
use crate::threads::install;

/// The names, shapes and places of tensors in a flat update. Each tensor is a group of its own for clipping per tensor.
///
/// >>> import undertone_dp as udp
/// >>> layout = udp.ParamLayout({"w": (2, 3), "b": (3,)})
/// >>> len(layout), layout.tensors
/// (9, {'w': (2, 3), 'b': (3,)})
#[pyclass(frozen, eq, module = "undertone_dp")]
#[derive(Debug, PartialEq)]
pub(crate) struct ParamLayout {
    inner: Arc<aggregation::ParamLayout>,
}

#[pymethods]
impl ParamLayout {
    #[new]
    fn new(tensors: &Bound<'_, PyMapping>) -> PyResult<Self> {
        let mut all: Vec<(String, Vec<usize>)> = Vec::new();
        for item in tensors.items()?.iter() {
            all.push(item.extract().map_err(|_| {
                PyTypeError::new_err("tensors: expected names with shapes, such as {'w': (2, 3)}")
            })?);
        }
        let inner =
            aggregation::ParamLayout::with_tensor_groups(all).map_err(|error| of_aggregation(&error))?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The shapes of the tensors by their names, in the order of the update.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tensors = PyDict::new(py);
        for tensor in self.inner.tensors() {
            tensors.set_item(&tensor.name, pyo3::types::PyTuple::new(py, &tensor.shape)?)?;
        }
        Ok(tensors)
    }

    /// The first and the last-but-one place of a tensor in the update.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.ParamLayout({"w": (2, 3), "b": (3,)}).range("b")
    /// range(6, 9)
    fn range<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let range = self
            .inner
            .range(name)
            .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(format!("no tensor {name:?}")))?;
        py.import("builtins")?
            .getattr("range")?
            .call1((range.start, range.end))
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("ParamLayout({})", self.tensors(py)?.repr()?))
    }
}

/// Shortens an update in place to an L2 norm of at most `norm`: the whole update, or with a layout each tensor to `norm / sqrt(tensors)`.
///
/// `update` is a contiguous, writable float32 buffer. The result is computed on a copy and then written back. A sum must not rest on it:
/// another thread can change the buffer afterwards.
///
/// >>> import array
/// >>> import undertone_dp as udp
/// >>> update = array.array("f", [3.0, 4.0])
/// >>> udp.clip(update, 2.5)
/// ClipReport(norm=5.0, clipped=True, discarded=False)
/// >>> [round(value, 3) for value in update]
/// [1.5, 2.0]
#[pyfunction]
#[pyo3(signature = (update, norm, layout=None))]
pub(crate) fn clip(
    py: Python<'_>,
    update: &Bound<'_, PyAny>,
    norm: f64,
    layout: Option<&ParamLayout>,
) -> PyResult<ClipReport> {
    let mut out = View::<f32>::writable(update, "update")?;
    let mut copy: Vec<f32> = read(update, "update")?;
    let (layout, clipping) = match layout {
        Some(layout) => {
            let layout = layout.inner.clone();
            let groups = layout.groups().len();
            (layout, Clipping::per_layer_equal(norm, groups))
        }
        None if copy.is_empty() => {
            return Err(PyValueError::new_err(
                "update: expected at least one number, got none",
            ));
        }
        None => {
            let whole = vec![("update".to_owned(), vec![copy.len()])];
            let layout = aggregation::ParamLayout::with_tensor_groups(whole);
            (
                Arc::new(layout.map_err(|error| of_aggregation(&error))?),
                Clipping::Flat { clip_norm: norm },
            )
        }
    };
    let bound = aggregation::Bound::new(layout, clipping, NonFinite::Refuse);
    let added = py
        .detach(|| bound.enforce(&mut copy))
        .map_err(|error| of_aggregation(&error))?;
    out.as_mut().copy_from_slice(&copy);
    Ok(ClipReport::of(added))
}

/// The largest number of a client that the sum of `clients` numbers of `bits` bits holds.
fn limit(bits: u32, clients: usize) -> i64 {
    ((1_i64 << (bits - 1)) - 1) / clients.max(1) as i64
}

/// Sums the clients' whole numbers by SecAgg+, with the machines of every client and of the server in this process.
///
/// `vectors` has one int64 buffer per client. Clients in `dropped` are lost before they upload: their vectors are not in the sum. The sum is
/// exact: a number that could make it wrap around modulo `2**bits` is refused. `neighbours` and `threshold` choose the graph; by
/// default every client is a neighbour of every other, and more than half of the neighbours open a secret.
///
/// Nobody hides anything from anybody inside one process, and the sum has no noise: it is no private release.
///
/// >>> import array
/// >>> import undertone_dp as udp
/// >>> vectors = {number: array.array("q", [number, -1]) for number in range(5)}
/// >>> list(udp.secagg.sum(vectors, dropped=[4]))
/// [6, -4]
#[pyfunction]
#[pyo3(signature = (vectors, *, bits=32, neighbours=None, threshold=None, dropped=None))]
pub(crate) fn _secagg_sum(
    py: Python<'_>,
    vectors: &Bound<'_, PyMapping>,
    #[pyo3(from_py_with = count::bits)] bits: u32,
    #[pyo3(from_py_with = count::neighbours)] neighbours: Option<u32>,
    #[pyo3(from_py_with = count::threshold)] threshold: Option<u32>,
    dropped: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    if !(8..=62).contains(&bits) {
        return Err(PyValueError::new_err(format!(
            "bits: expected 8 to 62, got {bits}"
        )));
    }
    let mut clients: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for item in vectors.items()?.iter() {
        let (client, vector): (i64, Bound<'_, PyAny>) = item.extract()?;
        clients.insert(client, read_integers(&vector, &format!("vectors[{client}]"))?);
    }
    let mut lost: BTreeSet<i64> = BTreeSet::new();
    if let Some(dropped) = dropped {
        for client in dropped.try_iter()? {
            lost.insert(client?.extract()?);
        }
    }
    if let Some(stranger) = lost.iter().find(|client| !clients.contains_key(client)) {
        return Err(PyValueError::new_err(format!(
            "dropped: expected clients of `vectors`, got {stranger}"
        )));
    }
    let length = clients.values().next().map_or(0, Vec::len);
    let largest = limit(bits, clients.len());
    for (client, vector) in &clients {
        if vector.len() != length {
            let got = vector.len();
            let message =
                format!("vectors[{client}]: expected {length} numbers, as of the first client, got {got}");
            return Err(PyValueError::new_err(message));
        }
        if let Some(number) = vector
            .iter()
            .find(|number| !(-largest..=largest).contains(*number))
        {
            let message = format!(
                "vectors[{client}]: expected numbers from -{largest} to {largest}, so that the sum of {} clients fits {bits} bits, got {number}",
                clients.len()
            );
            return Err(PyValueError::new_err(message));
        }
    }
    let names: Vec<i64> = clients.keys().copied().collect();
    let vectors: Vec<Vec<i64>> = clients.into_values().collect();
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| PyValueError::new_err(format!("the operating system gives no entropy: {error}")))?;
    let sum = py.detach(|| {
        let count = u32::try_from(vectors.len()).unwrap_or(u32::MAX);
        let size = 1_u64 << bits;
        let terms = Terms::new(length as u64, size, ThreatModel::HonestButCurious)
            .and_then(|terms| terms.with_clients(2, count.max(2)))
            .map_err(|error| of_secagg(&error))?;
        let graph = match (neighbours, threshold) {
            (None, None) => GraphChoice::Full {
                threshold_percent: 51,
            },
            (neighbours, threshold) => {
                let neighbours = neighbours.unwrap_or(count.saturating_sub(1));
                GraphChoice::Regular {
                    neighbours,
                    threshold: threshold.unwrap_or(neighbours / 2 + 1),
                }
            }
        };
        let request = SumRequest {
            context: Context {
                run: seed,
                round: 0,
                attempt: 0,
                shard: 0,
                plan_digest: [0; 32],
                model_digest: [0; 32],
                terms,
            },
            clients: count,
            input: &|client, into| {
                let residue = |number: &i64| number.rem_euclid(1_i64 << bits).cast_unsigned();
                let residues: Vec<u64> = vectors[client as usize].iter().map(residue).collect();
                *into = ModularVec::from_residues(into.modulus(), &residues)?;
                Ok(())
            },
            drop_out: &|client| {
                lost.contains(&names[client as usize])
                    .then_some(DropOut::BeforeInput)
            },
            finished: &|_| (),
        };
        let mut random = ChaCha20Rng::from_seed(seed);
        install(|| SecAggPlus::simulation(graph).sum(&request, &mut random))
            .map_err(|error| of_secagg(&error))
    })?;
    let half = 1_u64 << (bits - 1);
    let centred = |residue: u64| match residue < half {
        true => residue.cast_signed(),
        false => residue.cast_signed() - (1_i64 << bits),
    };
    let numbers: Vec<i64> = sum.sum.iter().map(centred).collect();
    Ok(Array::of(&numbers))
}

/// The sparsest graph over `clients` that keeps the promise: neighbours, threshold, and the bits of privacy on it.
#[pyfunction]
pub(crate) fn _secagg_parameters(
    py: Python<'_>,
    #[pyo3(from_py_with = count::clients)] clients: u32,
    drop_out_rate: f64,
    corrupt_rate: f64,
    active: bool,
) -> PyResult<(u32, u32, f64, f64)> {
    let model = match active {
        true => ThreatModel::Active,
        false => ThreatModel::HonestButCurious,
    };
    py.detach(|| {
        let found = Assumptions::new(drop_out_rate, corrupt_rate, model)
            .and_then(|assumptions| Ok((assumptions, assumptions.topology(clients)?)));
        let (assumptions, topology) = found.map_err(|error| of_secagg(&error))?;
        let assurance = assumptions.assurance(&topology);
        Ok((
            topology.neighbours(),
            topology.threshold(),
            -assurance.privacy(),
            -assurance.shut,
        ))
    })
}

/// Adds the classes and functions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ParamLayout>()?;
    module.add_class::<ClipReport>()?;
    module.add_function(wrap_pyfunction!(clip, module)?)?;
    module.add_function(wrap_pyfunction!(_secagg_sum, module)?)?;
    module.add_function(wrap_pyfunction!(_secagg_parameters, module)?)
}
