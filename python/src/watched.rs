//! Long work on a thread of ours, while the caller's thread delivers callbacks and looks for signals.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_data::{Progress, Stage};
use undertone_run::Observer;
use undertone_run_directory::metrics::{EvaluationRecord, RoundRecord, StartRecord};

use crate::threads::pool_of;

/// The caller looks for signals this often.
const SLICE: Duration = Duration::from_millis(50);

/// Sends the events of the work to the caller, and tells the work when to stop.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    events: Sender<(&'static str, Value)>,
}

impl Watch {
    /// Becomes `true` where the work is to stop.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    fn send(&self, kind: &'static str, record: Value) {
        // A caller that has gone away reads no events.
        let _ = self.events.send((kind, record));
    }
}

impl Progress for Watch {
    fn update(&self, stage: Stage, done: u64, total: Option<u64>) {
        self.on_corpus(&stage.to_string(), done, total);
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Observer for Watch {
    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn on_corpus(&self, stage: &str, done: u64, total: Option<u64>) {
        self.send("corpus", json!({ "stage": stage, "done": done, "total": total }));
    }

    fn on_start(&self, start: &StartRecord, planned: Option<&GuaranteeRecord>, resumed_at: u64) {
        self.send(
            "start",
            json!({ "start": start, "planned": planned, "resumed_at": resumed_at }),
        );
    }

    fn on_round(&self, round: &RoundRecord) {
        self.send("round", json!(round));
    }

    fn on_evaluation(&self, evaluation: &EvaluationRecord) {
        self.send("evaluation", json!(evaluation));
    }
}

/// The result of watched work.
pub(crate) struct Done<T> {
    pub(crate) result: T,
    /// The exception of a signal or of a callback, which the work was stopped for.
    pub(crate) interrupt: Option<PyErr>,
}

/// Runs `work` on `threads` threads (by default those of the module). `on_event`, if there is one, is called on this thread.
///
/// # Errors
/// Threads that cannot be started. A panic of the work goes on here.
pub(crate) fn watched<T: Send + 'static>(
    py: Python<'_>,
    threads: Option<NonZeroUsize>,
    on_event: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch, usize) -> T + Send + 'static,
) -> PyResult<Done<T>> {
    let failed =
        |error: &dyn std::fmt::Display| PyRuntimeError::new_err(format!("cannot start the threads: {error}"));
    let pool = pool_of(threads).map_err(|error| failed(&error))?;
    let (sender, receiver) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let watch = Watch {
        stop: stop.clone(),
        events: sender,
    };
    let size = pool.current_num_threads();
    let worker = std::thread::Builder::new()
        .name("undertone-run".to_owned())
        .spawn(move || pool.install(|| work(&watch, size)))
        .map_err(|error| failed(&error))?;
    let receiver = Mutex::new(receiver);
    let mut interrupt: Option<PyErr> = None;
    loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SLICE)
        });
        let delivered = match received {
            Ok((kind, record)) if interrupt.is_none() => deliver(on_event, kind, &record),
            Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(()),
            // The worker has dropped its end.
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if interrupt.is_none()
            && let Err(error) = delivered.and_then(|()| py.check_signals())
        {
            stop.store(true, Ordering::Relaxed);
            interrupt = Some(error);
        }
    }
    match py.detach(|| worker.join()) {
        Ok(result) => Ok(Done { result, interrupt }),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn deliver(on_event: Option<&Bound<'_, PyAny>>, kind: &str, record: &Value) -> PyResult<()> {
    match on_event {
        Some(on_event) => on_event.call1((kind, record.to_string())).map(|_| ()),
        None => Ok(()),
    }
}
