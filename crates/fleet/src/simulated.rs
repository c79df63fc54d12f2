//! A simulated device between its steps.

use std::sync::{Mutex, MutexGuard, PoisonError};

use undertone_device::{Event, Machine, Memory, Participation, Request};
use undertone_protocol::Signer;
use zeroize::Zeroizing;

use crate::config::FleetConfig;
use crate::faults::Vanish;
use crate::malice::{Forger, Malice};
use crate::seeds::Seed;
use crate::statistics::{RoundName, Tally};

/// One device: its key, its memory and its session.
pub(crate) struct Simulated {
    pub(crate) number: usize,
    pub(crate) subject: usize,
    pub(crate) signer: Signer,
    pub(crate) malice: Option<Malice>,
    state: Mutex<State>,
}

/// The part of a device that changes.
pub(crate) struct State {
    /// The durable memory: every row that a machine wrote, also where the device vanished afterwards.
    pub(crate) memory: Memory,
    /// Number of sessions that have begun.
    pub(crate) sessions: u64,
    /// The session, while no worker steps it.
    pub(crate) running: Option<Box<Session>>,
}

/// A running session.
pub(crate) struct Session {
    pub(crate) machine: Machine,
    pub(crate) number: u64,
    /// Number of requests that the machine has made.
    pub(crate) requests: u64,
    /// The event that the machine waits for.
    pub(crate) event: Option<Event>,
    /// A request that a fault keeps back.
    pub(crate) held: Option<Request>,
    pub(crate) vanish: Option<Vanish>,
    pub(crate) forger: Option<Forger>,
    pub(crate) round: Option<RoundName>,
    pub(crate) tally: Tally,
    /// `true` once the machine knows that it must stop.
    pub(crate) stopped: bool,
}

impl Simulated {
    /// A device that has never been used.
    pub(crate) fn new(config: &FleetConfig, number: usize, memory: Memory) -> Self {
        let key = Zeroizing::new(Seed(config.seed).bytes("device key", &[number as u64]));
        Self {
            number,
            subject: config.subject(number),
            signer: Signer::from_seed(&key),
            malice: config.malice(number),
            state: Mutex::new(State {
                memory,
                sessions: 0,
                running: None,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One participation, as the device itself remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The number of the device.
    pub device: usize,
    /// The number of its subject.
    pub subject: usize,
    /// The way in which the device breaks the protocol.
    pub malice: Option<Malice>,
    /// The participation.
    pub participation: Participation,
}
