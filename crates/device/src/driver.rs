//! The blocking driver of a session: it carries out the actions of a machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::conditions::{Conditions, Stop};
use crate::database::Database;
use crate::error::{DeviceError, Result};
use crate::examples::{ExampleStore, TEXTS_PER_EXAMPLE};
use crate::floors::Limits;
use crate::held::{HeldRow, NamedRelease};
use crate::job::{Job, JobError, Trained};
use crate::keystore::KeyStore;
use crate::machine::{Action, Event, Machine, Outcome, load_model};
use crate::memory::Row;
use crate::plan::Purpose;
use crate::watch::Watch;
use crate::wire::{Reply, Request};
use undertone_protocol::{Blob, Digest32};

/// The time between two looks at the host during a training.
const LOOK: Duration = Duration::from_millis(10);

/// The longest sleep between two looks at the host, in milliseconds.
const NAP_MS: u64 = 1000;

/// A request without a usable reply. It may have reached the service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NetworkLost(pub String);

/// The way to the service: HTTP, or a host's own stack.
pub trait Transport {
    /// Sends a request once and waits for its reply. A status of failure is a reply too.
    ///
    /// # Errors
    /// [`NetworkLost`] where no whole reply came, or one above [`Request::max_reply`].
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost>;
}

/// The clock of a device. It has no time zone, so every rule of a device is in UTC.
pub trait Clock: Send {
    /// The present, in milliseconds since 1970.
    fn now_ms(&self) -> u64;

    /// Sleeps for so many milliseconds.
    fn sleep(&self, ms: u64);
}

/// The clock of the system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Everything that a session works with beside its machine.
pub(crate) struct Host<'a> {
    pub(crate) database: &'a Database,
    pub(crate) keystore: &'a mut dyn KeyStore,
    pub(crate) examples: ExampleStore<'a>,
    pub(crate) cache_bytes: u64,
    pub(crate) limits: Limits,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) conditions: &'a dyn Conditions,
    pub(crate) stop: &'a Stop,
}

impl Host<'_> {
    /// Runs a session to its end.
    pub(crate) fn drive(&mut self, machine: &mut Machine, transport: &mut dyn Transport) -> Result<Outcome> {
        let battery = self.conditions.battery_percent();
        let mut stopped = false;
        let mut event = Event::Wake;
        let (mut reached, mut confirmed) = (None, None);
        loop {
            let action = machine.step(self.clock.now_ms(), event);
            if let Some(now_ms) = machine.confirmed_ms().filter(|_| confirmed.is_none()) {
                confirmed = Some(now_ms);
                self.database.confirm(now_ms)?;
                self.examples.confirm(now_ms)?;
            }
            if reached != Some(machine.stage()) {
                reached = Some(machine.stage());
                self.conditions.reached(machine.stage());
            }
            // The message that the device leaves may be sent after the stop, and nothing else.
            let stop_now = !stopped && self.must_stop(battery);
            event = match action {
                Action::Done(outcome) => return Ok(outcome),
                Action::Persist(row) => {
                    let written = self.database.persist(&row, self.keystore, self.cache_bytes);
                    match (written, &row) {
                        // Without its cache a device loads a blob again the next time.
                        (Err(error), Row::Blob { .. }) => tracing::warn!(%error, "a blob was not kept"),
                        (written, _) => written?,
                    }
                    Event::Persisted
                }
                _ if stop_now => {
                    stopped = true;
                    Event::Stopped
                }
                Action::Http(request) => self.send(&request, transport)?,
                Action::Train(job) => {
                    if let Err(error) = self.database.hold(&job, self.clock.now_ms()) {
                        // Without the row the device cannot predict with this model, and trains all the same.
                        tracing::warn!(%error, "the model of a session was not noted");
                    }
                    Event::Trained(self.train(*job, battery)?)
                }
                Action::SleepUntil(until) => {
                    let now = self.clock.now_ms();
                    self.clock.sleep(until.saturating_sub(now).clamp(1, NAP_MS));
                    Event::Wake
                }
            };
        }
    }

    /// Loads the releases that the board of a session names for predictions, of tasks whose model the device holds.
    pub(crate) fn follow(&self, named: &[NamedRelease], transport: &mut dyn Transport) -> Result<()> {
        for row in self.database.held()? {
            let Some(release) = named.iter().find(|release| release.task == row.task) else {
                continue;
            };
            // Without a pin the model of the next session takes the place of the one that was pinned.
            let Some((model, round)) = &release.pinned else {
                continue;
            };
            let digest = model.digest()?;
            if self.load(model, &digest, transport)? {
                self.database.put_held(&HeldRow {
                    round: *round,
                    model: digest,
                    ..row
                })?;
            }
        }
        Ok(())
    }

    /// Puts a model into the cache; `false` where it did not come.
    fn load(&self, model: &Blob, digest: &Digest32, transport: &mut dyn Transport) -> Result<bool> {
        if self.database.blob(digest)?.is_some() {
            return Ok(true);
        }
        if model.length > self.limits.down_bytes {
            return Ok(false);
        }
        let loaded = load_model(model, |request| {
            let may = !self.must_stop(None);
            may.then(|| transport.send(request).ok()).flatten()
        });
        let refused = |refusal| DeviceError::value("the pinned model", "the bytes of its digest", refusal);
        let Some(bytes) = loaded.map_err(refused)? else {
            return Ok(false);
        };
        self.database.keep_blob(digest, &bytes, self.cache_bytes)?;
        Ok(true)
    }

    fn must_stop(&self, battery: Option<f32>) -> bool {
        let used = match (battery, self.conditions.battery_percent()) {
            (Some(before), Some(now)) => before - now,
            _ => 0.0,
        };
        self.stop.is_requested()
            || self.conditions.unmet().is_some()
            || used > self.limits.battery_percent as f32
    }

    fn send(&self, request: &Request, transport: &mut dyn Transport) -> Result<Event> {
        if let Some(digest) = &request.blob
            && let Some(bytes) = self.database.blob(digest)?
        {
            return Ok(Event::Cached(bytes.into()));
        }
        Ok(match transport.send(request) {
            Ok(reply) => Event::Reply(reply),
            Err(error) => {
                tracing::debug!(%error, method = request.method.name(), "no reply");
                Event::NetworkLost
            }
        })
    }

    /// Trains on a thread of its own, and looks at the host meanwhile.
    fn train(&self, job: Job, battery: Option<f32>) -> Result<Result<Trained, JobError>> {
        let withheld = matches!(job.purpose(), Purpose::Evaluate { .. });
        let wanted = job.max_examples().saturating_mul(TEXTS_PER_EXAMPLE);
        let texts = self.examples.texts(withheld, wanted)?;
        let watch = Watch::new(job.cpu_ms().min(self.limits.cpu_ms));
        let trained = std::thread::scope(|scope| {
            let training = scope.spawn(|| job.run(&texts, &watch));
            while !training.is_finished() {
                std::thread::sleep(LOOK);
                if self.must_stop(battery) {
                    watch.stop();
                }
            }
            // A panic of the training reports nothing, as a stop does.
            training.join().unwrap_or(Err(JobError::Stopped))
        });
        self.database.set_number("cpu_ms", watch.used_ms())?;
        Ok(trained)
    }
}
