//! The fleet: its devices, the queue of their wakings and the threads that step them.

#[cfg(test)]
mod tests;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use undertone_device::{Memory, Shared};

use crate::config::FleetConfig;
use crate::enrol::enrol;
use crate::error::{FleetError, Result};
use crate::examples::{UserExamples, parted};
use crate::places::Places;
use crate::queue::Queue;
use crate::seeds::Seed;
use crate::session::Host;
use crate::simulated::{Remembered, Simulated};
use crate::statistics::{Counts, Statistics};
use crate::transport::Transports;

/// The longest time between two looks at the caller's condition.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of blobs, and of models that were read, which devices share beyond the newest.
const SHARED: usize = 64 << 20;

/// The reason why [`Fleet::run_until`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The caller's condition holds.
    Done,
    /// No device ever wakes again: all have vanished, or are never available again.
    NobodyLeft,
}

/// The wakings of all devices, and the number of devices that workers step now.
#[derive(Default)]
struct Waking {
    queue: Queue,
    stepping: usize,
}

/// Simulated devices of one population.
///
/// Each device is a real [`Machine`](undertone_device::Machine) with its keys, its memory and the examples of one user. Worker threads
/// take devices in the order in which they wake, and step each until it sleeps. Polls ask for an answer at once and are repeated
/// after a sleep, so a waiting device holds no thread.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the keys of all devices"
)]
pub struct Fleet<'a> {
    host: Host<'a>,
    transports: Box<dyn Transports + 'a>,
    waking: Mutex<Waking>,
    changed: Condvar,
    /// Held while threads run, so that a device is stepped by one thread at a time.
    running: Mutex<()>,
}

/// Ends the threads of a run, also where the caller's condition panics.
struct Ending<'s> {
    stop: &'s AtomicBool,
    changed: &'s Condvar,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }
}

impl<'a> Fleet<'a> {
    /// A fleet over the users of a corpus, with no device enrolled.
    ///
    /// # Errors
    /// [`FleetError::Value`] naming the setting that is not usable.
    pub fn new(
        config: FleetConfig,
        users: impl UserExamples + 'a,
        transports: impl Transports + 'a,
    ) -> Result<Self> {
        config.validate(users.num_users())?;
        let seed = Seed(config.seed);
        let shared = config.share_blobs;
        let now = config.clock.now_ms();
        let mut queue = Queue::default();
        let mut devices = Vec::with_capacity(config.devices);
        for number in 0..config.devices {
            let all = users.examples(config.subject(number));
            let (training, withheld) = parted(all, config.withhold_one_in);
            let memory = Memory {
                training_examples: training.len() as u64,
                withheld_examples: withheld.len() as u64,
                ..Memory::default()
            };
            devices.push(Simulated::new(&config, number, memory));
            let offset = seed.below("start", &[number as u64], config.start_spread_ms);
            queue.push(now.saturating_add(offset), number);
        }
        Ok(Self {
            host: Host {
                places: Places::new(config.trainings),
                config,
                users: Box::new(users),
                devices,
                shared: shared.then(|| Arc::new(Shared::new(SHARED))),
                counts: Mutex::new(Counts::default()),
            },
            transports: Box::new(transports),
            waking: Mutex::new(Waking { queue, stepping: 0 }),
            changed: Condvar::new(),
            running: Mutex::new(()),
        })
    }

    /// Enrols all devices that have no certificate, on all threads.
    ///
    /// # Errors
    /// [`FleetError::Enrolment`] naming the first device without success; a connection that cannot be made.
    pub fn enrol(&self) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = |worker| -> Result<()> {
            let mut transport = self.transports.open(worker)?;
            while let Some(device) = self.host.devices.get(next.fetch_add(1, Ordering::SeqCst)) {
                if device.lock().memory.certificate.is_some() {
                    continue;
                }
                match enrol(&self.host.config, device, transport.as_mut()) {
                    Ok(certificate) => device.lock().memory.certificate = Some(certificate),
                    Err(reason) => {
                        // The other workers find no device any more.
                        next.store(self.host.devices.len(), Ordering::SeqCst);
                        let device = device.number;
                        return Err(FleetError::Enrolment { device, reason });
                    }
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.host.config.workers)
                .map(|worker| scope.spawn(move || work(worker)))
                .collect();
            let results: Vec<Result<()>> = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect();
            results.into_iter().collect()
        })
    }

    /// Runs all devices until `done` returns `true`. Sessions that run then pause, and go on with the next call.
    ///
    /// `done` is called on the caller's thread, many times per second and before each move of a virtual clock; it may do work of the service.
    /// A step that runs when `done` returns `true` is finished first: a request, or a local training.
    ///
    /// # Errors
    /// A connection that cannot be made.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) -> Result<RunEnd> {
        let _alone = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ending = Ending {
                stop: &stop,
                changed: &self.changed,
            };
            let workers: Vec<_> = (0..self.host.config.workers)
                .map(|worker| {
                    let stop = &stop;
                    scope.spawn(move || self.work(worker, stop))
                })
                .collect();
            let mut looked = None;
            let end = loop {
                let next = self.next_if_asleep();
                let due = looked.is_none_or(|at: Instant| at.elapsed() >= LOOK);
                if (due || next.is_some()) && done() {
                    break RunEnd::Done;
                }
                if due {
                    looked = Some(Instant::now());
                }
                // A worker ends before the stop only by an error or a panic.
                if workers.iter().any(ScopedJoinHandle::is_finished) || next == Some(None) {
                    break RunEnd::NobodyLeft;
                }
                match next.flatten() {
                    Some(next) if self.host.config.clock.skip_to(next) => self.changed.notify_all(),
                    _ => self.wait(next.is_some()),
                }
            };
            drop(ending);
            for worker in workers {
                worker.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            Ok(end)
        })
    }

    /// The participations of all devices, as the devices remember them: by device, then in their order.
    ///
    /// They are a second source of truth beside the ledger. A participation counts from before its first byte was sent.
    #[must_use]
    pub fn participations(&self) -> Vec<Remembered> {
        let mut all = Vec::new();
        for device in &self.host.devices {
            let rows = device.lock().memory.participations.clone();
            all.extend(rows.into_iter().map(|participation| Remembered {
                device: device.number,
                subject: device.subject,
                malice: device.malice,
                participation,
            }));
        }
        all
    }

    /// The counts of all sessions that have ended.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let counts = self.host.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.statistics()
    }

    /// Number of devices that have a certificate.
    #[cfg(test)]
    fn enrolled(&self) -> usize {
        let enrolled = |device: &&Simulated| device.lock().memory.certificate.is_some();
        self.host.devices.iter().filter(enrolled).count()
    }

    /// The public keys of the devices, in their order.
    #[must_use]
    pub fn device_keys(&self) -> Vec<undertone_protocol::Digest32> {
        let keys = self.host.devices.iter().map(|device| device.signer.public());
        keys.collect()
    }

    /// The ways in which the devices break the protocol, in the order of the devices.
    #[must_use]
    pub fn malice(&self) -> Vec<Option<crate::malice::Malice>> {
        self.host.devices.iter().map(|device| device.malice).collect()
    }

    /// The names of the subjects of the devices, in the order of the devices.
    #[must_use]
    pub fn subject_names(&self) -> Vec<undertone_protocol::Digest32> {
        let config = &self.host.config;
        let names = self
            .host
            .devices
            .iter()
            .map(|device| config.subject_name(device.subject));
        names.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waking> {
        self.waking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the next waking if all devices sleep now. `Some(None)` says that none of them ever wakes.
    fn next_if_asleep(&self) -> Option<Option<u64>> {
        let waking = self.lock();
        self.asleep(&waking).then(|| waking.queue.next_ms())
    }

    fn asleep(&self, waking: &Waking) -> bool {
        let now = self.host.config.clock.now_ms();
        waking.stepping == 0 && waking.queue.next_ms().is_none_or(|next| next > now)
    }

    /// Waits for a change, but not where all devices fell asleep after the caller had seen them awake.
    fn wait(&self, seen_asleep: bool) {
        let waking = self.lock();
        if seen_asleep || !self.asleep(&waking) {
            drop(self.changed.wait_timeout(waking, LOOK));
        }
    }

    /// Steps devices until the run stops.
    fn work(&self, worker: usize, stop: &AtomicBool) -> Result<()> {
        let mut transport = self.transports.open(worker)?;
        while let Some(number) = self.next_device(stop) {
            let device = &self.host.devices[number];
            let wake = self.host.step(device, transport.as_mut(), stop);
            let mut waking = self.lock();
            waking.stepping -= 1;
            if let Some(wake) = wake {
                waking.queue.push(wake, number);
            }
            drop(waking);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits for the next device that wakes; `None` once the run stops.
    fn next_device(&self, stop: &AtomicBool) -> Option<usize> {
        let mut waking = self.lock();
        loop {
            if stop.load(Ordering::SeqCst) {
                return None;
            }
            if let Some(device) = waking.queue.pop_due(self.host.config.clock.now_ms()) {
                waking.stepping += 1;
                return Some(device);
            }
            let nap = self.nap(&waking);
            let waited = self.changed.wait_timeout(waking, nap);
            waking = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The time until the next waking, and at most the time between two looks.
    fn nap(&self, waking: &Waking) -> Duration {
        let now = self.host.config.clock.now_ms();
        let next = waking.queue.next_ms().unwrap_or(u64::MAX);
        Duration::from_millis(next.saturating_sub(now).max(1)).min(LOOK)
    }
}
