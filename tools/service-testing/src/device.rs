//! A device that trains on its text.

use std::sync::Arc;

use undertone_device::{Action, Ended, Event, Machine, Memory, Outcome, Setup, Transport as _, Watch};
use undertone_fleet::InProcess;
use undertone_protocol::Signer;
use zeroize::Zeroizing;

use crate::fleet::users;
use crate::keys::{certificate, enrolment, keys};

/// A device of a world, with the memory that outlives its sessions.
pub struct Device {
    /// The rows that the device has written.
    pub memory: Memory,
    /// The ends of its sessions, in their order.
    pub ends: Vec<Ended>,
    key: Signer,
    setup: Arc<Setup>,
    way: InProcess,
    examples: Vec<Vec<u32>>,
    machine: Option<Machine>,
    event: Event,
    wake: u64,
    seed: u64,
}

impl Device {
    /// The devices of so many subjects, each enrolled through the routes of the service.
    pub(crate) fn enrolled(number: usize, setup: &Arc<Setup>, way: &InProcess) -> Vec<Self> {
        let users = users(number).into_iter().zip(0..);
        users
            .map(|(examples, user)| Self::enrol(user, examples, setup.clone(), way.clone()))
            .collect()
    }

    fn enrol(user: u8, examples: Vec<Vec<u32>>, setup: Arc<Setup>, mut way: InProcess) -> Self {
        let key = Signer::from_seed(&[100 + user; 32]);
        let reply = way.send(&enrolment(&keys(), &key, &[user; 32])).unwrap();
        assert_eq!(reply.status, 200);
        Self {
            memory: Memory {
                certificate: certificate(&reply.body),
                training_examples: examples.len() as u64,
                ..Memory::default()
            },
            ends: Vec::new(),
            key,
            setup,
            way,
            examples,
            machine: None,
            event: Event::Wake,
            wake: 0,
            seed: u64::from(user),
        }
    }

    /// Lets the device go on until it sleeps.
    pub fn step(&mut self, now: u64) {
        while self.wake <= now {
            self.event = self.act(now);
        }
    }

    /// One action, and the event that follows from it.
    fn act(&mut self, now: u64) -> Event {
        let mut machine = self.machine.take().unwrap_or_else(|| {
            self.seed += 1000;
            let mut seed = Zeroizing::new([0; 32]);
            seed[..8].copy_from_slice(&self.seed.to_le_bytes());
            Machine::new(self.setup.clone(), self.memory.clone(), self.key.clone(), &seed)
        });
        let event = match machine.step(now, std::mem::replace(&mut self.event, Event::Wake)) {
            Action::Http(mut request) => {
                request.target = request.target.replace("wait=25", "wait=0");
                Event::Reply(self.way.send(&request).unwrap())
            }
            Action::Train(job) => {
                let examples: Vec<&[u32]> = self.examples.iter().map(Vec::as_slice).collect();
                Event::Trained(job.run_tokens(&examples, &Watch::new(60_000)))
            }
            Action::Persist(_) => Event::Persisted,
            Action::SleepUntil(until) => {
                self.wake = until;
                Event::Wake
            }
            Action::Done(Outcome { ended, wake_ms, .. }) => {
                self.memory = machine.memory().clone();
                self.ends.push(ended);
                self.wake = wake_ms.max(now + 1);
                return Event::Wake;
            }
        };
        self.machine = Some(machine);
        event
    }
}
