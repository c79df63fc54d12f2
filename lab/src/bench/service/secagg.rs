//! A secure sum of real clients over sockets, beside the same session in one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use serde_json::json;
use undertone_device::{
    Action, Bytes, Ended, Event, HttpTransport, Limits, Machine, Memory, Neighbours, PolicyFloors, Request,
    Row, Setup, Transport,
};
use undertone_protocol::{Digest32, TrustedKeys, Verdict};
use undertone_secagg::Floors;
use undertone_service::keys::Keys;
use zeroize::Zeroizing;

use super::Sizes;
use super::host::Server;
use super::load::{Devices, now_ms};
use super::needs::Needs;
use super::physical;
use super::requests::difference;
use super::table::{Figure, rounded};
use super::tasks::{Model, POPULATION, Task};
use crate::bench::secagg::in_one_process;
use crate::bench::usage::cpu_time;

/// The length of the clients' vectors.
const PARAMETERS: u64 = 1_000_000;

/// Devices per client of the secure sum.
const DEVICES_PER_CLIENT: u64 = 100;

/// The settings of devices that trust this service, and refuse no plan for its weakness: nobody's text is in them.
pub(super) fn setup(keys: &Keys) -> anyhow::Result<Setup> {
    Ok(Setup {
        population: POPULATION.to_owned(),
        board_keys: TrustedKeys::new([keys.board().public()]),
        task_keys: TrustedKeys::new([keys.plans().public()]),
        issuers: TrustedKeys::new([keys.issuer().public()]),
        floors: PolicyFloors {
            min_goal: 2,
            min_group: 2,
            max_epsilon: 1e6,
            require_secagg: false,
            population_rho: 1e6,
            secagg: Floors::COMPILED.with_clients(2, 2)?,
            neighbours: Neighbours::Anyone,
            ..PolicyFloors::COMPILED
        },
        limits: Limits {
            down_bytes: 1 << 30,
            up_bytes: 1 << 30,
            ..Limits::default()
        },
        client_version: 1,
        evidence: Vec::new(),
    })
}

/// The blobs that all clients share, so that each is loaded once.
type Blobs = Mutex<BTreeMap<Digest32, Bytes>>;

/// One client with its machine.
struct Client {
    machine: Machine,
    /// `true` if it leaves after its shares.
    lost: bool,
}

/// The path of a request, without its query.
fn path(request: &Request) -> &str {
    request.target.split('?').next().unwrap_or_default()
}

impl Client {
    /// Plays the session to its end, from the first join on together with all others. The clocks are read between the two waits
    /// at `ready`, while nobody works.
    fn play(&mut self, url: &str, blobs: &Blobs, ready: &Barrier) -> anyhow::Result<Ended> {
        let transport = HttpTransport::new(url);
        let mut waited = false;
        let mut wait = || {
            if !std::mem::replace(&mut waited, true) {
                ready.wait();
                ready.wait();
            }
        };
        let ended = transport.map(|mut transport| self.run(&mut transport, blobs, &mut wait));
        // Also a client that failed must not keep the others waiting.
        wait();
        Ok(ended?)
    }

    fn run(&mut self, transport: &mut HttpTransport, blobs: &Blobs, wait: &mut dyn FnMut()) -> Ended {
        let (mut event, mut shared) = (Event::Wake, false);
        loop {
            event = match self.machine.step(now_ms(), event) {
                Action::Http(request) if self.lost && shared && path(&request).ends_with("/next") => {
                    shared = false;
                    Event::Stopped
                }
                Action::Http(request) => {
                    if path(&request).ends_with("/join") {
                        wait();
                    }
                    shared |= path(&request).ends_with("/shares");
                    let known = request
                        .blob
                        .and_then(|digest| locked(blobs).get(&digest).cloned());
                    match known {
                        Some(bytes) => Event::Cached(bytes),
                        None => transport.send(&request).map_or(Event::NetworkLost, Event::Reply),
                    }
                }
                Action::Persist(row) => {
                    if let Row::Blob { digest, bytes } = row {
                        locked(blobs).insert(digest, bytes);
                    }
                    Event::Persisted
                }
                Action::Train(job) => Event::Trained(job.run_with(|update, norm| {
                    let value = norm / (update.len() as f64).sqrt();
                    update.fill(value as f32);
                })),
                Action::SleepUntil(until) => {
                    std::thread::sleep(Duration::from_millis(until.saturating_sub(now_ms()).max(1)));
                    Event::Wake
                }
                Action::Done(outcome) => return outcome.ended,
            };
        }
    }
}

fn locked(blobs: &Blobs) -> std::sync::MutexGuard<'_, BTreeMap<Digest32, Bytes>> {
    blobs.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn run(sizes: &Sizes) -> anyhow::Result<()> {
    let number = (sizes.devices / DEVICES_PER_CLIENT).max(10);
    let lost = number / 10;
    let model = Model::of(sizes.parameters(PARAMETERS))?;
    Needs {
        memory: (400 << 20) + (number + 60) * 8 * model.parameters,
        disk: (64 << 20) + 200 * model.parameters,
    }
    .check(&sizes.folder)?;
    let folder = sizes.temporary()?;
    let task = Task {
        lost: Some(lost),
        ..Task::plain(model.clone(), number)
    };
    let devices = Devices::new(folder.path(), task.create(folder.path())?)?;
    let server = Server::start(folder.path(), false)?;
    let setup = Arc::new(setup(&Keys::open(folder.path())?)?);
    devices.until_open(&server.place)?;
    let mut clients: Vec<Client> = (0..number)
        .map(|client| {
            let device = devices.device(client);
            let memory = Memory {
                certificate: Some(device.certificate),
                training_examples: 100,
                ..Memory::default()
            };
            let mut seed = Zeroizing::new([5; 32]);
            seed[..8].copy_from_slice(&client.to_le_bytes());
            Client {
                machine: Machine::new(setup.clone(), memory, device.signer, &seed),
                lost: client >= number - lost,
            }
        })
        .collect();
    let (ready, blobs, url) = (Barrier::new(clients.len() + 1), Blobs::default(), server.url());
    let clients_cpu = || cpu_time().map(|time| time.as_secs_f64());
    let (ends, seconds, server_cpu, own_cpu) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let handles: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let (ready, blobs, url) = (&ready, &blobs, url.as_str());
                scope.spawn(move || client.play(url, blobs, ready))
            })
            .collect();
        ready.wait();
        let (started, before, own) = (Instant::now(), server.cpu_seconds(), clients_cpu());
        ready.wait();
        let mut ends = Vec::new();
        for handle in handles {
            ends.push(handle.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        let seconds = started.elapsed().as_secs_f64();
        let server_cpu = difference(server.cpu_seconds(), before);
        Ok((ends, seconds, server_cpu, difference(clients_cpu(), own)))
    })?;
    let in_sum = Ended::Reported(Some(Verdict::Included));
    let included = ends.iter().filter(|ended| **ended == in_sum).count() as u64;
    ensure!(
        included == number - lost,
        "{} clients in the sum were expected, got {included}: {ends:?}",
        number - lost
    );
    let alone = in_one_process(u32::try_from(number)?, u32::try_from(lost)?, model.parameters)?;
    let more = json!({
        "clients": number, "lost": lost, "parameters": model.parameters,
        "server_peak_mb": server.memory().map(|memory| rounded(memory.peak)),
    });
    let figures = [
        ("secagg-server", "core-s", server_cpu, alone.server),
        ("secagg-clients", "core-s", own_cpu, alone.clients),
        (
            "secagg",
            "s",
            Some(seconds),
            (alone.server + alone.clients) / physical::cores() as f64,
        ),
    ];
    for (item, unit, value, limit) in figures {
        let figure = Figure {
            item,
            unit,
            value: value.context("this system does not tell CPU time")?,
            limit,
            limit_is: "the machines of clients and server, called in one process",
        };
        figure.print(&more);
    }
    server.stop()
}
