//! The protocol, run by both machines in one process.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_chacha::ChaCha20Rng;
use rand_core::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use undertone_aggregation::{AggregationError, ModularVec, Modulus};
use zeroize::Zeroizing;

use super::{DropOut, Phase, SecureSum, SumOutcome, SumRequest, Traffic};
use crate::assurance::Assumptions;
use crate::client::Client;
use crate::context::labelled;
use crate::error::{Result, SecAggError};
use crate::keys::{SigningIdentity, Trust};
use crate::message::Message;
use crate::server::{Culprit, Outcome, Server, UploadId};
use crate::terms::{ThreatModel, Topology};

/// The rule that chooses the graph from the number of clients that joined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GraphChoice {
    /// The full graph. The threshold is this percentage of the neighbours, rounded up.
    Full {
        /// 1 to 100.
        threshold_percent: u32,
    },
    /// A graph for this many clients, or the full one where fewer joined.
    Regular {
        /// Neighbours of each client, k; one more where an odd number of clients joined and k is odd.
        neighbours: u32,
        /// Shares that open a secret, t.
        threshold: u32,
    },
    /// The sparsest graph that holds under these assumptions, found anew for those who joined.
    Assumed(Assumptions),
}

impl GraphChoice {
    /// The graph over `clients`.
    ///
    /// # Errors
    /// As [`Topology::new`]; [`SecAggError::Infeasible`] where assumptions allow no graph.
    pub fn topology(&self, clients: u32) -> Result<Topology> {
        match *self {
            Self::Full { threshold_percent } => {
                let neighbours = u64::from(clients.saturating_sub(1));
                let threshold = (neighbours * u64::from(threshold_percent)).div_ceil(100);
                Topology::full(clients, u32::try_from(threshold).unwrap_or(u32::MAX))
            }
            Self::Regular {
                neighbours,
                threshold,
            } if neighbours >= clients => Topology::full(clients, threshold.min(clients.saturating_sub(1))),
            Self::Regular {
                neighbours,
                threshold,
            } => Topology::new(clients, neighbours + (neighbours % 2) * (clients % 2), threshold),
            Self::Assumed(assumptions) => assumptions.topology(clients),
        }
    }
}

/// \[SecAgg+\] in one process, with client and server machines and every message as bytes.
///
/// # Guarantee
/// Inside one process there is nobody to hide anything from, so its clients demand nothing
/// ([`Client::join_simulation`]). Between processes the machines give what [`Client`] and [`Server`] say; this runs the same
/// machines.
#[derive(Debug, Clone)]
pub struct SecAggPlus {
    graph: GraphChoice,
}

impl SecAggPlus {
    /// A simulation over this graph.
    #[must_use]
    pub fn simulation(graph: GraphChoice) -> Self {
        Self { graph }
    }
}

impl SecureSum for SecAggPlus {
    fn sum(&self, request: &SumRequest<'_>, rng: &mut dyn CryptoRng) -> Result<SumOutcome> {
        let mut session = Session::join(self, request, rng)?;
        session.share()?;
        session.upload()?;
        session.sign()?;
        session.unmask()?;
        let Outcome {
            sum,
            included,
            culprits,
        } = session.server.finish()?;
        (request.finished)(Phase::Sum);
        let culprits = numbered(&culprits, &session.numbers);
        let mut included: Vec<u32> = session
            .devices
            .iter()
            .filter(|device| included.contains(device.index))
            .map(|device| device.number)
            .collect();
        included.sort_unstable();
        Ok(SumOutcome {
            sum,
            included,
            culprits,
            traffic: session.traffic,
        })
    }
}

/// The culprits as numbered in the request; `numbers` are by place in the roster.
fn numbered(culprits: &[Culprit], numbers: &[u32]) -> Vec<Culprit> {
    let number = |place: u32| numbers[place as usize];
    let mut culprits: Vec<Culprit> = culprits
        .iter()
        .map(|culprit| Culprit {
            index: number(culprit.index),
            about: number(culprit.about),
        })
        .collect();
    culprits.sort_unstable();
    culprits
}

/// A client with its own generator.
struct Device {
    /// Place in the request.
    number: u32,
    /// Place in the roster.
    index: u32,
    machine: Client,
    rng: ChaCha20Rng,
    drop_out: Option<DropOut>,
}

impl Device {
    /// A client with fewer neighbours left than it demands has ended the session for itself: it is lost from here on.
    fn unless_alone<M>(&mut self, at: DropOut, answer: Result<M>) -> Result<Option<M>> {
        match answer {
            Err(SecAggError::TooFew { .. }) => {
                self.drop_out = Some(at);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }
}

struct Session<'a> {
    request: &'a SumRequest<'a>,
    server: Server,
    /// Clients that are still there, and those lost whose vectors are in the sum.
    devices: Vec<Device>,
    /// Number of each client in the request, by place in the roster.
    numbers: Vec<u32>,
    traffic: Vec<(Phase, Traffic)>,
}

/// Bytes in both directions, counted from all threads.
#[derive(Default)]
struct Meter {
    up: AtomicU64,
    down: AtomicU64,
}

impl Meter {
    /// A message on its way up, as it arrives.
    fn up<M: Message>(&self, message: &M) -> Result<M> {
        sent(message, &self.up)
    }

    /// A message on its way down, as it arrives.
    fn down<M: Message>(&self, message: &M) -> Result<M> {
        sent(message, &self.down)
    }
}

fn sent<M: Message>(message: &M, counter: &AtomicU64) -> Result<M> {
    let bytes = message.encode();
    counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    M::decode(&bytes)
}

impl<'a> Session<'a> {
    fn join(backend: &SecAggPlus, request: &'a SumRequest<'a>, rng: &mut dyn CryptoRng) -> Result<Self> {
        let mut server = Server::new(request.context, Trust::Anyone)?;
        let meter = Meter::default();
        let (mut seeds, context) = (Vec::new(), request.context.digest());
        for number in 0..request.clients {
            let mut drawn = Zeroizing::new([0; 32]);
            rng.fill_bytes(drawn.as_mut());
            // A generator that starts again, as a seeded one does, still makes other keys for another session.
            let seed = Zeroizing::new(labelled("simulated device", &[&context, drawn.as_ref()]));
            if (request.drop_out)(number) != Some(DropOut::BeforeKeys) {
                seeds.push((number, seed));
            }
        }
        let joined: Vec<_> = seeds
            .into_par_iter()
            .map(|(number, seed)| {
                let mut rng = ChaCha20Rng::from_seed(*seed);
                let identity = SigningIdentity::generate(&mut rng);
                let public = identity.public();
                let (machine, keys) = Client::join_simulation(identity, request.context, &mut rng);
                let device = Device {
                    number,
                    index: 0,
                    machine,
                    rng,
                    drop_out: (request.drop_out)(number),
                };
                (device, public, keys)
            })
            .collect();
        for (_, _, keys) in &joined {
            server.receive_keys(&meter.up(keys)?)?;
        }
        server.close_keys(|clients| backend.graph.topology(clients), &mut &mut *rng)?;
        let mut devices = Vec::with_capacity(joined.len());
        let mut numbers = vec![0; joined.len()];
        for (mut device, public, _) in joined {
            if let Some(index) = server.index_of(&public) {
                device.index = index;
                numbers[index as usize] = device.number;
                devices.push(device);
            }
        }
        let mut session = Self {
            request,
            server,
            devices,
            numbers,
            traffic: Vec::new(),
        };
        session.finished(Phase::Keys, &meter);
        Ok(session)
    }

    fn finished(&mut self, phase: Phase, meter: &Meter) {
        let traffic = Traffic {
            up: meter.up.load(Ordering::Relaxed),
            down: meter.down.load(Ordering::Relaxed),
        };
        self.traffic.push((phase, traffic));
        (self.request.finished)(phase);
    }

    fn lose(&mut self, at: DropOut) {
        self.devices.retain(|device| device.drop_out != Some(at));
    }

    fn share(&mut self) -> Result<()> {
        self.lose(DropOut::BeforeShares);
        let (meter, server) = (Meter::default(), Mutex::new(&mut self.server));
        self.devices.par_iter_mut().try_for_each(|device| {
            let roster = lock(&server)?.roster(device.index)?;
            let shares = device
                .machine
                .receive_roster(&meter.down(&roster)?, &mut device.rng)?;
            lock(&server)?.receive_shares(&meter.up(&shares)?)
        })?;
        self.server.close_shares()?;
        self.finished(Phase::Shares, &meter);
        Ok(())
    }

    fn upload(&mut self) -> Result<()> {
        self.lose(DropOut::BeforeInput);
        let terms = &self.request.context.terms;
        let (modulus, len) = (
            Modulus::new(terms.modulus())?,
            usize::try_from(terms.length()).unwrap_or(usize::MAX),
        );
        let (meter, server, request) = (Meter::default(), Mutex::new(&mut self.server), self.request);
        self.devices.par_iter_mut().try_for_each_init(
            || ModularVec::zeros(modulus, len),
            |vector, device| {
                vector.clear();
                (request.input)(device.number, vector)?;
                let shares = lock(&server)?.relayed_shares(device.index)?;
                let input = device.machine.receive_shares(&meter.down(&shares)?, vector);
                let Some(input) = device.unless_alone(DropOut::BeforeInput, input)? else {
                    return Ok(());
                };
                let input = meter.up(&input)?;
                // A simulated device uploads once, so one name serves all.
                let ticket = lock(&server)?.admit_input(&input.session, input.index, UploadId([0; 32]))?;
                let added = ticket.add_packed(&input.packed)?;
                lock(&server)?.commit_input(added)
            },
        )?;
        self.lose(DropOut::BeforeInput);
        self.server.close_inputs()?;
        self.finished(Phase::Inputs, &meter);
        Ok(())
    }

    fn sign(&mut self) -> Result<()> {
        if self.request.context.terms.threat_model() != ThreatModel::Active {
            return Ok(());
        }
        let (meter, server) = (Meter::default(), Mutex::new(&mut self.server));
        self.devices
            .par_iter_mut()
            .filter(|device| device.drop_out.is_none())
            .try_for_each(|device| {
                let survivors = lock(&server)?.survivors()?;
                let signature = device.machine.receive_survivors(&meter.down(&survivors)?)?;
                lock(&server)?.receive_consistency(&meter.up(&signature)?)
            })?;
        self.server.close_signatures()?;
        self.finished(Phase::Signatures, &meter);
        Ok(())
    }

    fn unmask(&mut self) -> Result<()> {
        let (meter, server) = (Meter::default(), Mutex::new(&mut self.server));
        self.devices
            .par_iter_mut()
            .filter(|device| device.drop_out.is_none())
            .try_for_each(|device| {
                let request = lock(&server)?.unmask(device.index)?;
                let shares = device.machine.receive_unmask(&meter.down(&request)?)?;
                lock(&server)?.receive_unmask(&meter.up(&shares)?)
            })?;
        self.finished(Phase::Unmask, &meter);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> Result<std::sync::MutexGuard<'_, T>> {
    Ok(mutex.lock().map_err(|_| AggregationError::Poisoned)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn culprits_are_named_as_in_the_request() {
        let culprit = |index, about| Culprit { index, about };
        let named = numbered(&[culprit(0, 2), culprit(3, 1)], &[9, 4, 7, 2]);
        assert_eq!(named, [culprit(2, 4), culprit(9, 7)]);
    }

    #[test]
    fn graphs_for_any_number_that_joined() {
        let regular = GraphChoice::Regular {
            neighbours: 7,
            threshold: 4,
        };
        for (joined, neighbours, threshold) in
            [(20, 7, 4), (21, 8, 4), (8, 7, 4), (7, 6, 4), (4, 3, 3), (2, 1, 1)]
        {
            let topology = regular.topology(joined).unwrap();
            assert_eq!(
                (topology.neighbours(), topology.threshold()),
                (neighbours, threshold),
                "{joined}"
            );
        }
        let full = GraphChoice::Full {
            threshold_percent: 67,
        };
        assert_eq!(full.topology(100).unwrap(), Topology::full(100, 67).unwrap());
        assert!(full.topology(1).is_err() && regular.topology(0).is_err());
        let assumptions = Assumptions::new(0.1, 0.1, ThreatModel::HonestButCurious).unwrap();
        let found = GraphChoice::Assumed(assumptions);
        for joined in [20, 1000] {
            assert_eq!(
                found.topology(joined).unwrap(),
                assumptions.topology(joined).unwrap()
            );
        }
        assert!(GraphChoice::Full { threshold_percent: 0 }.topology(9).is_err());
    }
}
