//! Devices without training: their keys and certificates, and the requests of a session as prepared bytes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use undertone_protocol::{
    Abort, Assignment, CHECKSUM_HEADER, Certificate, CheckIn, CheckInReply, Code, Commit, Label, Next,
    Offset, RequestSignature, SIGNATURE_HEADER, Signed, Signer, check_in_reply, checksum_header, crc32c,
    limits, next, read, write,
};
use undertone_service::keys::Keys;
use undertone_store::TaskId;

use super::client::{Connection, Place, head};
use super::tasks::{CLIP_NORM, POPULATION};

/// The longest wait for a round to open.
const SOON: Duration = Duration::from_secs(120);

/// The present, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One device with its certificate.
pub(super) struct Device {
    pub(super) signer: Signer,
    pub(super) certificate: Signed,
}

/// The devices of a service, each a subject of its own.
pub(super) struct Devices {
    issuer: Signer,
    task: TaskId,
}

impl Devices {
    /// The devices of the service in this data folder. They get their certificates from its keys, without a request.
    pub(super) fn new(folder: &Path, task: TaskId) -> anyhow::Result<Self> {
        Ok(Self {
            issuer: Keys::open(folder)?.issuer(),
            task,
        })
    }

    /// The device of a number.
    pub(super) fn device(&self, number: u64) -> Device {
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        let signer = Signer::from_seed(&seed);
        let now = now_ms();
        let certificate = Certificate {
            population: POPULATION.to_owned(),
            subject: seed.to_vec(),
            device_key: signer.public().to_vec(),
            not_before_ms: now - 60_000,
            not_after_ms: now + limits::MAX_CERTIFICATE_LIFE.as_millis() as u64 - 60_000,
        };
        Device {
            certificate: self.issuer.sign(Label::Certificate, write(&certificate)),
            signer,
        }
    }

    /// A check-in as it travels. `checkin` is its number, and `late` the time by which its clock is behind, in milliseconds.
    pub(super) fn check_in(&self, device: &Device, checkin: u128, late: u64) -> Vec<u8> {
        let body = write(&CheckIn {
            checkin: checkin.to_le_bytes().to_vec(),
            eligible: vec![self.task.0.to_vec()],
            client_version: 1,
            certificate: Some(device.certificate.clone()),
            evidence: Vec::new(),
        });
        let path = format!("/v1/p/{POPULATION}/check-in");
        let signature = RequestSignature::new(&device.signer, now_ms() - late, "POST", &path, &body);
        let mut request = head(
            "POST",
            &path,
            &[(SIGNATURE_HEADER, &signature.header())],
            body.len(),
        );
        request.extend_from_slice(&body);
        request
    }

    /// The check-ins of these devices, prepared on all cores.
    pub(super) fn check_ins(&self, numbers: std::ops::Range<u64>, salt: u64, late: u64) -> Vec<Vec<u8>> {
        use rayon::prelude::*;
        numbers
            .into_par_iter()
            .map(|number| {
                let checkin = u128::from(number) | u128::from(salt) << 64;
                self.check_in(&self.device(number), checkin, late)
            })
            .collect()
    }

    /// Waits until the task has an open attempt: the assignment of a device that checks in again and again.
    pub(super) fn first(
        &self,
        connection: &mut Connection,
        number: u64,
        after_round: Option<u64>,
    ) -> anyhow::Result<Session> {
        let (device, started) = (self.device(number), Instant::now());
        for checkin in 0.. {
            let salted = u128::from(number) | (u128::from(u64::MAX - checkin) << 64);
            let request = self.check_in(&device, salted, 0);
            let reply = connection.exchange(&request, &[])?;
            if reply.status == 200 {
                let session = Session::read(reply.body)?;
                ensure!(
                    after_round.is_none_or(|round| session.assignment.round > round),
                    "an assignment to round {}, which was over",
                    session.assignment.round
                );
                return Ok(session);
            }
            let problem = reply.problem()?;
            let later = matches!(problem.code(), Code::NoTask | Code::Full);
            if !later || started.elapsed() > SOON {
                bail!(
                    "no assignment: {}: {}",
                    problem.code().as_str_name(),
                    problem.message
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("no assignment")
    }

    /// Waits until the task has an open attempt. The device that saw it gives its place back.
    pub(super) fn until_open(&self, place: &Place) -> anyhow::Result<()> {
        let mut connection = Connection::open(place)?;
        let session = self.first(&mut connection, u64::MAX, None)?;
        let abort = write(&Abort {
            code: Code::NotEligible.into(),
        });
        let head = session.head("POST", "abort", &[], abort.len());
        connection.exchange(&head, &abort)?.success()?;
        Ok(())
    }
}

/// The session of a device that was assigned.
pub(super) struct Session {
    pub(super) assignment: Assignment,
    base: String,
    token: String,
}

impl Session {
    /// Reads the reply to a check-in.
    pub(super) fn read(body: &[u8]) -> anyhow::Result<Self> {
        let reply: CheckInReply = read("the reply to the check-in", body, limits::MAX_MESSAGE)?;
        let Some(check_in_reply::Reply::Assignment(assignment)) = reply.reply else {
            bail!("a reply without an assignment");
        };
        Ok(Self {
            base: format!("{}/{}", assignment.aggregator, hex(&assignment.session)),
            token: format!("Bearer {}", hex(&assignment.token)),
            assignment,
        })
    }

    fn head(&self, method: &str, path: &str, more: &[(&str, &str)], length: usize) -> Vec<u8> {
        let mut headers = vec![("authorization", self.token.as_str())];
        headers.extend_from_slice(more);
        head(method, &format!("{}/{path}", self.base), &headers, length)
    }

    /// Joins the sum and sends the update, chunk by chunk, and commits it.
    pub(super) fn report(&self, connection: &mut Connection, update: &Update) -> anyhow::Result<()> {
        let reply = connection.exchange(&self.head("POST", "join", &[], 0), &[])?;
        let next: Next = read("the next step", reply.success()?, limits::MAX_MESSAGE)?;
        let Some(next::Step::Upload(grant)) = next.step else {
            bail!("an upload grant was expected, got {next:?}");
        };
        ensure!(
            grant.length == update.bytes.len() as u64,
            "an update of {} bytes was expected, got one of {}",
            grant.length,
            update.bytes.len()
        );
        let mut offset = 0;
        for (chunk, checksum) in &update.chunks {
            let part = &update.bytes[chunk.clone()];
            let path = format!("upload?offset={offset}");
            let request = self.head("PUT", &path, &[(CHECKSUM_HEADER, checksum)], part.len());
            let reply = connection.exchange(&request, part)?;
            let reply: Offset = read("the offset", reply.success()?, limits::MAX_MESSAGE)?;
            offset = chunk.end as u64;
            ensure!(
                reply.offset == offset,
                "the service has {} bytes, not {offset}",
                reply.offset
            );
        }
        let commit = write(&Commit {
            length: update.bytes.len() as u64,
            crc32c: update.crc32c,
            weight: 1.0,
            below: None,
        });
        let reply = connection.exchange(&self.head("POST", "commit", &[], commit.len()), &commit)?;
        let next: Next = read("the next step", reply.success()?, limits::MAX_MESSAGE)?;
        match next.step {
            Some(next::Step::Wait(_)) => Ok(()),
            other => bail!("the update was not taken: {other:?}"),
        }
    }
}

/// The update that all devices send, cut into chunks with their checksums.
pub(super) struct Update {
    bytes: Vec<u8>,
    chunks: Vec<(std::ops::Range<usize>, String)>,
    crc32c: u32,
}

impl Update {
    /// An update of the clip norm in which all coordinates are the same.
    pub(super) fn new(parameters: u64) -> Self {
        let value = (CLIP_NORM / (parameters as f64).sqrt()) as f32;
        let bytes = value.to_le_bytes().repeat(parameters as usize);
        let chunks = (0..bytes.len())
            .step_by(limits::MAX_CHUNK)
            .map(|start| {
                let chunk = start..bytes.len().min(start + limits::MAX_CHUNK);
                let checksum = checksum_header(crc32c(0, &bytes[chunk.clone()]));
                (chunk, checksum)
            })
            .collect();
        Self {
            chunks,
            crc32c: crc32c(0, &bytes),
            bytes,
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> impl Iterator<Item = &std::ops::Range<usize>> {
        self.chunks.iter().map(|(chunk, _)| chunk)
    }
}

/// The calls that were made, and the seconds from the first to the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub(super) calls: usize,
    pub(super) seconds: f64,
}

impl Spread {
    /// Calls per second.
    pub(super) fn rate(self) -> f64 {
        self.calls as f64 / self.seconds
    }
}

/// A measurement that ends by its number of requests.
pub(super) const NO_END: Duration = Duration::from_secs(7200);

/// Assigns this number of devices of a new task: the first alone, the others on so many connections to these places in turn.
pub(super) fn assign_all(
    places: &[Place],
    devices: &Devices,
    number: u64,
    connections: usize,
) -> anyhow::Result<(Vec<Session>, Spread)> {
    let first = devices.first(&mut Connection::open(&places[0])?, 0, None)?;
    let requests = devices.check_ins(1..number, 1, 0);
    let slots: Vec<OnceLock<Session>> = requests.iter().map(|_| OnceLock::new()).collect();
    let assign = |connection: &mut Connection, number: usize| {
        let session = Session::read(connection.exchange(&requests[number], &[])?.success()?)?;
        // Each number is called once.
        let _ = slots[number].set(session);
        Ok(())
    };
    let done = spread_over(places, connections, requests.len(), NO_END, assign)?;
    let others = slots.into_iter().filter_map(OnceLock::into_inner);
    Ok((std::iter::once(first).chain(others).collect(), done))
}

/// Uploads the update of every session, on so many connections to these places in turn.
pub(super) fn report_all(
    places: &[Place],
    sessions: &[Session],
    update: &Update,
    connections: usize,
) -> anyhow::Result<Spread> {
    let report = |connection: &mut Connection, number: usize| sessions[number].report(connection, update);
    spread_over(places, connections, sessions.len(), NO_END, report)
}

/// Makes `count` calls of `work` on this number of connections. No call begins after `until`, counted from the first one.
pub(super) fn spread(
    place: &Place,
    connections: usize,
    count: usize,
    until: Duration,
    work: impl Fn(&mut Connection, usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Spread> {
    spread_over(std::slice::from_ref(place), connections, count, until, work)
}

/// Makes calls as [`spread`] does, on connections that go to these places in turn.
pub(super) fn spread_over(
    places: &[Place],
    connections: usize,
    count: usize,
    until: Duration,
    work: impl Fn(&mut Connection, usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Spread> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (ready, failed) = (Barrier::new(connections + 1), AtomicBool::new(false));
    let first = Mutex::new(None);
    let caller = &|place: &Place| {
        let opened = Connection::open(place);
        ready.wait();
        let started = Instant::now();
        let run = || -> anyhow::Result<()> {
            let mut connection = opened?;
            while !failed.load(Ordering::Relaxed) && started.elapsed() < until {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                work(&mut connection, number).with_context(|| format!("device {number}"))?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        if let Err(error) = run() {
            failed.store(true, Ordering::Relaxed);
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    };
    let started = std::thread::scope(|scope| {
        for place in places.iter().cycle().take(connections) {
            scope.spawn(move || caller(place));
        }
        ready.wait();
        // The scope ends when the last thread has ended.
        Instant::now()
    });
    let seconds = started.elapsed().as_secs_f64();
    match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(Spread {
            calls: done.into_inner(),
            seconds,
        }),
    }
}
