//! The steps of simulated devices: a worker carries out the actions of a machine until it sleeps or ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use undertone_device::{
    Action, Ended, Event, Job, JobError, Machine, Outcome, Purpose, Request, Row, Shared, Trained, Transport,
    Watch,
};
use undertone_protocol::{CHECKSUM_HEADER, checksum_header, crc32c};
use zeroize::Zeroizing;

use crate::config::{FleetConfig, Updates};
use crate::enrol::enrol;
use crate::examples::{UserExamples, parted};
use crate::faults::{Fate, Point, Vanish};
use crate::malice::{Forger, Malice, set_header};
use crate::places::Places;
use crate::seeds::Seed;
use crate::simulated::{Session, Simulated};
use crate::statistics::{Counts, End, Tally};
use crate::steps::{Step, without_wait};

/// Everything that the sessions of a fleet share.
pub(crate) struct Host<'a> {
    pub(crate) config: FleetConfig,
    pub(crate) users: Box<dyn UserExamples + 'a>,
    pub(crate) devices: Vec<Simulated>,
    /// The work that devices share; `None` where each of them loads everything itself.
    pub(crate) shared: Option<Arc<Shared>>,
    pub(crate) counts: Mutex<Counts>,
    /// The trainings that may begin.
    pub(crate) places: Places,
}

/// The reason why a worker leaves a session.
enum Pause {
    /// The session goes on at this time.
    Until(u64),
    /// The session has ended.
    Done(Box<Outcome>),
    /// The device has vanished.
    Vanished(Vanish),
}

impl Host<'_> {
    fn seed(&self) -> Seed {
        Seed(self.config.seed)
    }

    /// Steps a device until it sleeps or its session ends. Returns the time of its next step; `None` if it never wakes again.
    pub(crate) fn step(
        &self,
        device: &Simulated,
        transport: &mut dyn Transport,
        stop: &AtomicBool,
    ) -> Option<u64> {
        let now = self.config.clock.now_ms();
        let running = device.lock().running.take();
        let mut session = match running {
            Some(session) => session,
            None => match self.config.availability.next(device.number, now)? {
                at if at > now => return Some(at),
                _ => self.begin(device),
            },
        };
        let pause = self.run(device, &mut session, transport, stop);
        let now = self.config.clock.now_ms();
        match pause {
            Pause::Until(until) => {
                device.lock().running = Some(session);
                Some(until)
            }
            Pause::Done(outcome) => {
                let mut wake = outcome
                    .wake_ms
                    .min(now.saturating_add(self.config.max_pause_ms))
                    .max(now.saturating_add(1));
                if outcome.ended != Ended::Unreachable {
                    device.lock().memory.window = Some(outcome.next_window);
                }
                if outcome.ended == Ended::NotEnrolled && self.renew(device, transport) {
                    wake = now.saturating_add(1);
                }
                self.end(*session, End::of(&outcome.ended));
                Some(wake)
            }
            Pause::Vanished(vanish) => {
                self.end(*session, End::vanished(vanish.at.name()));
                vanish.returns_after_ms.map(|ms| now.saturating_add(ms.max(1)))
            }
        }
    }

    /// Begins a session with the memory that the device has.
    fn begin(&self, device: &Simulated) -> Box<Session> {
        let (memory, number) = {
            let mut state = device.lock();
            state.sessions += 1;
            (state.memory.clone(), state.sessions)
        };
        let numbers = [device.number as u64, number];
        let seed = Zeroizing::new(self.seed().bytes("session", &numbers));
        let setup = self.config.setup.clone();
        let forger = device.malice.map(|malice| {
            let victim = &self.devices[(device.number + 1) % self.devices.len()];
            let stolen = match malice {
                Malice::ReplayedCertificate => victim.lock().memory.certificate.clone(),
                _ => None,
            };
            Forger::new(malice, device.signer.clone(), stolen)
        });
        let vanish = self.config.faults.vanishing(self.seed(), numbers[0], number);
        let machine = Machine::new(setup, memory, device.signer.clone(), &seed);
        Box::new(Session {
            machine: match &self.shared {
                Some(shared) => machine.sharing(Arc::clone(shared)),
                None => machine,
            },
            number,
            requests: 0,
            event: None,
            held: None,
            vanish: vanish.cloned(),
            forger,
            round: None,
            tally: Tally::default(),
            stopped: false,
        })
    }

    fn end(&self, session: Session, end: End) {
        tracing::debug!(end = %end.name, reason = end.reason.as_deref(), "a session ended");
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.add(session.round, session.tally, end);
    }

    /// Renews a certificate that has ended. A device that never had one stays without.
    fn renew(&self, device: &Simulated, transport: &mut dyn Transport) -> bool {
        if device.lock().memory.certificate.is_none() {
            return false;
        }
        match enrol(&self.config, device, transport) {
            Ok(certificate) => {
                device.lock().memory.certificate = Some(certificate);
                true
            }
            Err(reason) => {
                tracing::warn!(reason, "a certificate could not be renewed");
                false
            }
        }
    }

    /// Carries out the actions of a machine.
    fn run(
        &self,
        device: &Simulated,
        session: &mut Session,
        transport: &mut dyn Transport,
        stop: &AtomicBool,
    ) -> Pause {
        loop {
            let now = self.config.clock.now_ms();
            if stop.load(Ordering::Relaxed) {
                return Pause::Until(now);
            }
            if let Some(request) = session.held.take() {
                match send(session, &request, Fate::Delivered, transport) {
                    Ok(event) => session.event = Some(event),
                    Err(vanish) => return Pause::Vanished(vanish),
                }
                continue;
            }
            let event = session.event.take().unwrap_or(Event::Wake);
            let action = session.machine.step(now, event);
            let available = || self.config.availability.next(device.number, now) == Some(now);
            session.event = Some(match action {
                Action::Done(outcome) => return Pause::Done(Box::new(outcome)),
                Action::Persist(row) => {
                    self.persist(device, session, &row);
                    Event::Persisted
                }
                _ if !session.stopped && !available() => {
                    session.stopped = true;
                    Event::Stopped
                }
                Action::SleepUntil(until) => return Pause::Until(until.max(now.saturating_add(1))),
                Action::Train(job) => Event::Trained(self.train(device, session, *job)),
                Action::Http(request) => match self.request(device, session, request, transport) {
                    Ok(Some(event)) => event,
                    Ok(None) => continue,
                    Err(pause) => return pause,
                },
            });
        }
    }

    /// Writes a row into the memory that outlives the session.
    fn persist(&self, device: &Simulated, session: &mut Session, row: &Row) {
        match row {
            // Devices that share their work have kept it.
            Row::Blob { .. } => {}
            row => {
                if let Row::Head { task, round, .. } = row {
                    session.round = Some((*task, *round));
                }
                device.lock().memory.apply(row);
            }
        }
    }

    /// Sends a request, unless a fault keeps it back. `Ok(None)` asks for one more turn.
    fn request(
        &self,
        device: &Simulated,
        session: &mut Session,
        mut request: Request,
        transport: &mut dyn Transport,
    ) -> Result<Option<Event>, Pause> {
        let now = self.config.clock.now_ms();
        let step = Step::of(&request);
        without_wait(&mut request);
        if let Some(forger) = &mut session.forger {
            if let Some(first) = forger.before(step, &request) {
                session.tally.requests += 1;
                session.tally.up_bytes += first.body.len() as u64;
                // The device acts on the reply to its second request.
                let _ = transport.send(&first);
            }
            forger.request(step, &mut request, now);
        }
        if let Some(vanish) = &session.vanish {
            match (vanish.at, step) {
                (Point::BeforeJoin, Step::Join) | (Point::BeforeUnmask, Step::Unmask) => {
                    return Err(Pause::Vanished(vanish.clone()));
                }
                (Point::BeforeShares, Step::Answer) if request.target.ends_with("/shares") => {
                    return Err(Pause::Vanished(vanish.clone()));
                }
                (Point::MidUpload, Step::Upload) => {
                    let vanish = vanish.clone();
                    let half = request.body.len() / 2;
                    request.body.truncate(half);
                    let checksum = checksum_header(crc32c(0, &request.body));
                    set_header(&mut request, CHECKSUM_HEADER, checksum);
                    // The reply reaches nobody.
                    let _ = send(session, &request, Fate::Delivered, transport);
                    return Err(Pause::Vanished(vanish));
                }
                _ => {}
            }
        }
        let numbers = (device.number as u64, session.number, session.requests);
        session.requests += 1;
        let fate = self
            .config
            .faults
            .fate(self.seed(), numbers.0, numbers.1, numbers.2);
        if let Some(name) = fate.name() {
            session.tally.fault(name);
        }
        if let Fate::Delayed { ms } = fate {
            session.held = Some(request);
            return Err(Pause::Until(now.saturating_add(ms)));
        }
        match send(session, &request, fate, transport) {
            Ok(event) => Ok(Some(event)),
            Err(vanish) => Err(Pause::Vanished(vanish)),
        }
    }

    /// Computes the update of a device.
    fn train(&self, device: &Simulated, session: &mut Session, job: Job) -> Result<Trained, JobError> {
        let _place = self.places.take();
        let started = Instant::now();
        let (subject, round) = (device.subject as u64, job.round());
        let trained = match self.config.updates {
            Updates::Train => {
                let job = match &self.config.seeds_of {
                    Some(seeds) => job.with_seeds(seeds(round, subject)),
                    None => job,
                };
                let all = self.users.examples(device.subject);
                let (training, withheld) = parted(all, self.config.withhold_one_in);
                let examples = match job.purpose() {
                    Purpose::Train => training,
                    Purpose::Evaluate { .. } => withheld,
                };
                let watch = Watch::new(job.cpu_ms().min(self.config.setup.limits.cpu_ms));
                job.run_tokens(&examples, &watch)
            }
            Updates::Synthetic => {
                let seed = self.seed();
                job.run_with(|update, norm| synthetic(seed, [subject, round], update, norm))
            }
            Updates::OneHot => job.run_with(|update, norm| {
                let length = update.len().max(1);
                if let Some(value) = update.get_mut(device.subject % length) {
                    *value = norm as f32;
                }
            }),
        };
        session.tally.trainings += 1;
        session.tally.training_seconds += started.elapsed().as_secs_f64();
        trained
    }
}

/// Sends a request once or twice. An error says that the device vanishes after it.
fn send(
    session: &mut Session,
    request: &Request,
    fate: Fate,
    transport: &mut dyn Transport,
) -> Result<Event, Vanish> {
    if fate == Fate::LostBefore {
        return Ok(Event::NetworkLost);
    }
    let step = Step::of(request);
    let mut once = || {
        session.tally.requests += 1;
        session.tally.up_bytes += request.body.len() as u64;
        let reply = transport.send(request).ok();
        session.tally.down_bytes += reply.as_ref().map_or(0, |reply| reply.body.len() as u64);
        reply
    };
    let mut reply = once();
    if fate == Fate::Duplicated {
        reply = once();
    }
    let Some(mut reply) = reply else {
        return Ok(Event::NetworkLost);
    };
    if let Some(vanish) = &session.vanish
        && reply.is_success()
        && matches!(
            (vanish.at, step),
            (Point::AfterJoin, Step::Join) | (Point::AfterCommit, Step::Commit)
        )
    {
        return Err(vanish.clone());
    }
    if fate == Fate::LostAfter {
        return Ok(Event::NetworkLost);
    }
    if let Some(forger) = &mut session.forger {
        forger.reply(step, &mut reply);
    }
    Ok(Event::Reply(reply))
}

/// A vector of the given norm, whose direction follows from the seed and the numbers.
fn synthetic(seed: Seed, numbers: [u64; 2], update: &mut [f32], norm: f64) {
    let key = seed.bytes("synthetic", &numbers);
    let mut word = u64::from_le_bytes(key[..8].try_into().unwrap_or_default());
    let mut square = 0.0f64;
    for value in update.iter_mut() {
        // SplitMix64: the values need no secrecy, and hashing each of them would be slow.
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((mixed ^ (mixed >> 31)) >> 11) as f64 * (-53f64).exp2();
        *value = (2.0 * unit - 1.0) as f32;
        square += f64::from(*value).powi(2);
    }
    if square > 0.0 {
        let scale = norm / square.sqrt();
        for value in update {
            *value = (f64::from(*value) * scale) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_updates_have_the_clip_norm_and_differ_by_subject_and_round() {
        let make = |numbers| {
            let mut update = vec![0.0; 1000];
            synthetic(Seed(3), numbers, &mut update, 0.25);
            update
        };
        let norm = |update: &[f32]| -> f64 {
            update
                .iter()
                .map(|&value| f64::from(value).powi(2))
                .sum::<f64>()
                .sqrt()
        };
        let first = make([1, 2]);
        assert!((norm(&first) - 0.25).abs() < 1e-6);
        assert_eq!(first, make([1, 2]));
        let dot: f64 = make([2, 2])
            .iter()
            .zip(&first)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum();
        assert!(dot.abs() < 0.2 * 0.0625, "{dot}");
        assert_ne!(first, make([1, 3]));
    }
}
