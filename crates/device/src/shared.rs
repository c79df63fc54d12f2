//! Work that the devices of one process do once: blobs whose digests were checked, vocabularies and models that were read from them,
//! and the memory of trainings that are over.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_aggregation::ParamLayout;
use undertone_models::{
    Decoder, ModelError, SequenceBatch, SequenceModel, SequenceWeights, SequenceWorker, StateMode, StepStats,
};
use undertone_protocol::Digest32;

use crate::error::Refusal;
use crate::plan::Prepared;
use crate::wire::Bytes;

/// The devices of one process load, check and read each blob once.
///
/// PRIVACY: buffers of trainings pass from one device to the next. They are for devices of one owner, as in a simulation, and not for
/// people who share a machine.
///
/// # Guarantee
/// A blob is found under its digest only after a device has compared it with that digest. Every device still checks the signature of
/// the plan, its floors and its settings.
pub struct Shared {
    blobs: Cache<Digest32, Bytes>,
    prepared: Cache<(Digest32, u64), Arc<Prepared>>,
    models: Cache<(Digest32, Digest32), Arc<Ready>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Keeps about this many bytes of blobs, and as many of models that were read. The newest of each stays, whatever its size.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            blobs: Cache::new(bytes),
            prepared: Cache::new(bytes),
            models: Cache::new(bytes),
        }
    }

    /// A blob whose digest was checked, if it has this length.
    pub(crate) fn blob(&self, digest: &Digest32, length: u64) -> Option<Bytes> {
        let blob = self.blobs.get(digest)?;
        (blob.len() as u64 == length).then_some(blob)
    }

    /// Keeps a blob under its digest, which the caller has checked.
    pub(crate) fn keep(&self, digest: Digest32, bytes: &Bytes) {
        self.blobs.put(digest, Arc::clone(bytes), bytes.len());
    }

    /// The vocabulary of a plan with this digest, read by `read` if no device has read it under this limit of bytes.
    pub(crate) fn prepared(
        &self,
        plan: Digest32,
        max_bytes: u64,
        read: impl FnOnce() -> Result<Prepared, Refusal>,
    ) -> Result<Arc<Prepared>, Refusal> {
        self.prepared.find_or_make((plan, max_bytes), || {
            let made = read()?;
            // A word and its places in the tables.
            let bytes = 100 * made.vocab.len();
            Ok((Arc::new(made), bytes))
        })
    }

    /// The model with this digest under a plan, read by `read` if no device has read it.
    pub(crate) fn model(
        &self,
        plan: Digest32,
        model: Digest32,
        read: impl FnOnce() -> Result<(Box<dyn SequenceModel>, Vec<f32>), Refusal>,
    ) -> Result<Arc<Ready>, Refusal> {
        self.models.find_or_make((plan, model), || {
            let (model, theta) = read()?;
            let bytes = 4 * (theta.len() + model.frozen().len());
            let pool = Some(Arc::default());
            Ok((Arc::new(Ready { model, theta, pool }), bytes))
        })
    }
}

/// A value that one thread makes while others wait for it.
type Cell<V> = Arc<Mutex<Option<V>>>;

struct Entry<K, V> {
    key: K,
    cell: Cell<V>,
    bytes: usize,
}

/// Values by their keys. Those that were not used for longest leave first.
struct Cache<K, V> {
    limit: usize,
    entries: Mutex<Vec<Entry<K, V>>>,
}

impl<K: PartialEq + Copy, V: Clone> Cache<K, V> {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            entries: Mutex::default(),
        }
    }

    fn get(&self, key: &K) -> Option<V> {
        let cell = Self::use_of(&mut lock(&self.entries), key)?;
        lock(&cell).clone()
    }

    fn put(&self, key: K, value: V, bytes: usize) {
        let mut entries = lock(&self.entries);
        if Self::use_of(&mut entries, &key).is_none() {
            let cell = Arc::new(Mutex::new(Some(value)));
            entries.push(Entry { key, cell, bytes });
            self.shrink(&mut entries);
        }
    }

    /// The cell of a key, which is the last one that was used from now on.
    fn use_of(entries: &mut [Entry<K, V>], key: &K) -> Option<Cell<V>> {
        let place = entries.iter().position(|entry| entry.key == *key)?;
        entries[place..].rotate_left(1);
        entries.last().map(|entry| entry.cell.clone())
    }

    fn shrink(&self, entries: &mut Vec<Entry<K, V>>) {
        while entries.len() > 1 && entries.iter().map(|entry| entry.bytes).sum::<usize>() > self.limit {
            drop(entries.remove(0));
        }
    }

    /// The value of a key. Where there is none, one thread makes it, and others wait for that.
    fn find_or_make<E>(&self, key: K, make: impl FnOnce() -> Result<(V, usize), E>) -> Result<V, E> {
        let cell = {
            let mut entries = lock(&self.entries);
            match Self::use_of(&mut entries, &key) {
                Some(cell) => cell,
                None => {
                    let cell = Cell::default();
                    entries.push(Entry {
                        key,
                        cell: Arc::clone(&cell),
                        bytes: 0,
                    });
                    cell
                }
            }
        };
        let mut value = lock(&cell);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        let (made, bytes) = make()?;
        *value = Some(made.clone());
        drop(value);
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.cell, &cell)) {
            entry.bytes = bytes;
        }
        self.shrink(&mut entries);
        Ok(made)
    }
}

/// A model that was read, with its parameters.
pub(crate) struct Ready {
    pub(crate) model: Box<dyn SequenceModel>,
    pub(crate) theta: Vec<f32>,
    /// The workers of trainings that are over; `None` where each training has its own.
    pub(crate) pool: Option<Arc<Pool>>,
}

impl SequenceModel for Ready {
    fn layout(&self) -> &ParamLayout {
        self.model.layout()
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn initial_params(&self, seed: u64) -> Vec<f32> {
        self.model.initial_params(seed)
    }

    fn frozen(&self) -> &[f32] {
        self.model.frozen()
    }

    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker> {
        let Some(pool) = &self.pool else {
            return self.model.worker(max_sequences, max_rows);
        };
        let mut idle = lock(&pool.0);
        let fits = |kept: &Kept| kept.max_sequences >= max_sequences && kept.max_rows >= max_rows;
        let kept = match idle.iter().position(fits) {
            Some(place) => idle.swap_remove(place),
            None => {
                // One of the idle ones leaves, so there are never more of them than trainings at one time.
                let smaller = idle.pop();
                drop(idle);
                let (sequences, rows) = smaller.map_or((0, 0), |kept| (kept.max_sequences, kept.max_rows));
                let (max_sequences, max_rows) = (max_sequences.max(sequences), max_rows.max(rows));
                Kept {
                    max_sequences,
                    max_rows,
                    worker: self.model.worker(max_sequences, max_rows),
                }
            }
        };
        Box::new(PooledWorker {
            kept: Some(kept),
            pool: Arc::clone(pool),
        })
    }

    fn decoder(&self, params: &[f32], sequences: usize) -> Result<Box<dyn Decoder>, ModelError> {
        self.model.decoder(params, sequences)
    }

    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>> {
        self.model.check_worker(max_sequences, max_rows)
    }
}

/// Workers that no training uses.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Kept>>);

/// A worker with the size that it was made for.
struct Kept {
    max_sequences: usize,
    max_rows: usize,
    worker: Box<dyn SequenceWorker>,
}

/// A worker that goes back to its pool.
struct PooledWorker {
    /// `None` once it is dropped.
    kept: Option<Kept>,
    pool: Arc<Pool>,
}

impl Drop for PooledWorker {
    fn drop(&mut self) {
        if let Some(mut kept) = take(&mut self.kept) {
            kept.worker.reset_state();
            lock(&self.pool.0).push(kept);
        }
    }
}

impl PooledWorker {
    fn worker(&mut self) -> Result<&mut dyn SequenceWorker, ModelError> {
        match &mut self.kept {
            Some(kept) => Ok(kept.worker.as_mut()),
            None => Err(ModelError::NoBase),
        }
    }
}

impl SequenceWorker for PooledWorker {
    fn reset_state(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.worker.reset_state();
        }
    }

    fn sgd_step(
        &mut self,
        params: &mut [f32],
        batch: &SequenceBatch<'_>,
        learning_rate: f32,
        state: StateMode,
    ) -> Result<StepStats, ModelError> {
        self.worker()?.sgd_step(params, batch, learning_rate, state)
    }

    fn gradient(
        &mut self,
        params: &[f32],
        batch: &SequenceBatch<'_>,
        grad: &mut [f32],
    ) -> Result<StepStats, ModelError> {
        self.worker()?.gradient(params, batch, grad)
    }

    fn weighted_gradient(
        &mut self,
        params: &[f32],
        batch: &SequenceBatch<'_>,
        weights: SequenceWeights<'_, f32>,
        sum: &mut [f32],
        norms: &mut [f32],
    ) -> Result<StepStats, ModelError> {
        self.worker()?
            .weighted_gradient(params, batch, weights, sum, norms)
    }

    fn evaluate(
        &mut self,
        params: &[f32],
        batch: &SequenceBatch<'_>,
        state: StateMode,
        sink: &mut dyn FnMut(usize, &[f32], f32),
    ) -> Result<(), ModelError> {
        self.worker()?.evaluate(params, batch, state, sink)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use undertone_models::ModelSpec;

    use super::*;

    #[test]
    fn the_blobs_that_nobody_used_for_longest_leave_first_and_the_newest_stays() {
        let shared = Shared::new(1000);
        let large: Bytes = vec![0; 500].into();
        let there = |number| shared.blob(&[number; 32], 500).is_some();
        for number in 0..4 {
            shared.keep([number; 32], &large);
            shared.keep([number; 32], &large);
            // The first one is in use.
            assert!(there(0));
        }
        assert_eq!([0, 1, 2, 3].map(there), [true, false, false, true]);
        assert!(shared.blob(&[3; 32], 499).is_none(), "another length");
        shared.keep([9; 32], &vec![0; 5000].into());
        let last = [0, 3, 9].map(|number| shared.blobs.get(&[number; 32]).is_some());
        assert_eq!(last, [false, false, true]);
    }

    #[test]
    fn a_value_is_made_once_for_all_threads_and_again_after_a_failure() {
        let cache: Cache<u32, u32> = Cache::new(10);
        let made = AtomicUsize::new(0);
        assert_eq!(cache.find_or_make(1, || Err::<(u32, usize), u8>(3)), Err(3));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let value = cache.find_or_make(1, || {
                        made.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(5));
                        Ok::<_, u8>((7, 1))
                    });
                    assert_eq!(value, Ok(7));
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn a_worker_serves_the_next_training_if_it_is_large_enough() {
        let spec = ModelSpec::Dplm {
            embed: 4,
            hidden: 5,
            unit_norm: true,
        };
        let model = spec.build(10).unwrap();
        let theta = model.initial_params(1);
        let pool: Arc<Pool> = Arc::default();
        let ready = Ready {
            model,
            theta,
            pool: Some(pool.clone()),
        };
        let sizes = || -> Vec<(usize, usize)> {
            let idle = lock(&pool.0);
            idle.iter()
                .map(|kept| (kept.max_sequences, kept.max_rows))
                .collect()
        };
        drop(ready.worker(2, 20));
        assert_eq!(sizes(), [(2, 20)]);
        let small = ready.worker(1, 10);
        assert_eq!(sizes(), []);
        let other = ready.worker(1, 10);
        drop((small, other));
        assert_eq!(sizes(), [(2, 20), (1, 10)]);
        // The larger one takes the place of one that is too small.
        drop(ready.worker(3, 15));
        assert_eq!(sizes(), [(2, 20), (3, 15)]);
    }
}
