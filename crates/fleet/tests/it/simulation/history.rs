//! Histories: lists of things that happen to a service and its devices.

use proptest::prelude::*;
use undertone_service_testing::certificate;
use undertone_store::NewTask;

use super::checker::Facts;
use super::durable::Fault;
use super::template::{Template, enrolment};
use super::world::{Fate, Sent, World};

/// One thing that happens.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Everybody goes on for so many turns, with this many milliseconds after each.
    Go { turns: u8, pause: u16 },
    /// One device goes on for so many actions.
    Step { device: u8, actions: u8 },
    /// Time passes, and nobody does anything.
    Advance { ms: u32 },
    /// The service does what is due.
    Tick,
    /// The next request of a device meets this fate.
    Fate { device: u8, fate: Fate },
    /// A late request arrives: any of those that are on their way, so they arrive in any order.
    Deliver { which: u8 },
    /// A request is sent again by somebody who recorded it, as it was or under the path of another session.
    Replay { which: u8, into: Option<u8> },
    /// The newest process dies between two writes.
    Kill,
    /// A fault comes at a write to come.
    Arm { writes: u8, fault: Fault },
    /// All processes stop, and another one starts: it leads once the lease has ended, and the stopped ones are fenced.
    TakeOver,
    /// Stopped processes go on, and do not know what they missed.
    WakeStopped,
    /// Requests reach this process, counted from the newest.
    Route { to: u8 },
    /// The process of a device dies.
    Vanish { device: u8 },
    /// Time passes to the end of any attempt, or of any lease.
    Deadline,
    /// A device enrols again.
    Enrol { device: u8 },
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        2 => Just(Fate::LostBefore),
        4 => Just(Fate::LostAfter),
        3 => Just(Fate::Duplicated),
        3 => Just(Fate::Late),
        2 => (0..5u8).prop_map(Fate::Forged),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => any::<bool>().prop_map(|applied| Fault::Crash { applied }),
        1 => any::<bool>().prop_map(|applied| Fault::Unavailable { applied }),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (1..8u8, prop_oneof![Just(500u16), Just(1_500), Just(4_000)])
            .prop_map(|(turns, pause)| Op::Go { turns, pause }),
        14 => (any::<u8>(), 1..24u8).prop_map(|(device, actions)| Op::Step { device, actions }),
        6 => prop_oneof![Just(700u32), Just(5_000), Just(21_000)].prop_map(|ms| Op::Advance { ms }),
        3 => Just(Op::Tick),
        14 => (any::<u8>(), fate()).prop_map(|(device, fate)| Op::Fate { device, fate }),
        6 => any::<u8>().prop_map(|which| Op::Deliver { which }),
        6 => (any::<u8>(), prop::option::of(any::<u8>())).prop_map(|(which, into)| Op::Replay { which, into }),
        2 => Just(Op::Kill),
        5 => (0..40u8, fault()).prop_map(|(writes, fault)| Op::Arm { writes, fault }),
        1 => Just(Op::TakeOver),
        1 => Just(Op::WakeStopped),
        2 => (0..3u8).prop_map(|to| Op::Route { to }),
        5 => any::<u8>().prop_map(|device| Op::Vanish { device }),
        2 => Just(Op::Deadline),
        1 => any::<u8>().prop_map(|device| Op::Enrol { device }),
    ]
}

/// A list of things that happen.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 10..60)
}

impl World<'_> {
    pub(crate) fn apply(&mut self, op: &Op) {
        let device = |number: u8, all: usize| usize::from(number) % all;
        let all = self.devices.len();
        match op {
            Op::Go { turns, pause } => {
                // A secure sum has more phases.
                let factor = if self.template.task.is_secure() { 3 } else { 1 };
                for _ in 0..factor * *turns {
                    self.turn();
                    self.clock.advance(u64::from(*pause));
                }
            }
            Op::Step {
                device: number,
                actions,
            } => self.step(device(*number, all), usize::from(*actions)),
            Op::Advance { ms } => self.clock.advance(u64::from(*ms)),
            Op::Tick => self.tick(),
            Op::Fate { device: number, fate } => self.devices[device(*number, all)].fate = *fate,
            Op::Deliver { which } => {
                if !self.held.is_empty() {
                    let late = self.held.remove(usize::from(*which) % self.held.len());
                    self.carry(&late.request);
                    self.note("delivered late");
                }
            }
            Op::Replay { which, into } => self.replay(*which, *into),
            Op::Kill => self.kill(),
            Op::Arm { writes, fault } => {
                self.durable.arm(u32::from(*writes), *fault);
                self.note("armed");
            }
            Op::TakeOver => {
                if self.running() < 3 {
                    self.take_over();
                    self.note("take-over");
                }
            }
            Op::WakeStopped => self.wake_processes(),
            Op::Route { to } => self.route = usize::from(*to),
            Op::Vanish { device: number } => self.vanish(device(*number, all)),
            Op::Deadline => {
                self.clock.advance(91_000);
                self.tick();
            }
            Op::Enrol { device: number } => self.enrol_again(device(*number, all)),
        }
    }

    fn replay(&mut self, which: u8, into: Option<u8>) {
        let of_sessions = |sent: &&Sent| into.is_none() || sent.request.target.starts_with("/v1/agg/0/");
        let known: Vec<&Sent> = self.sent.iter().filter(of_sessions).collect();
        let Some(sent) = known.get(usize::from(which) % known.len().max(1)) else {
            return;
        };
        let Sent { device, mut request } = (*sent).clone();
        if let Some(into) = into {
            let other = usize::from(into) % self.devices.len();
            let theirs = self.devices[other].session.clone();
            let own = request
                .target
                .strip_prefix("/v1/agg/0/")
                .and_then(|path| path.split('/').next());
            let own = own.map(|session| format!("/v1/agg/0/{session}"));
            let (Some(own), Some(theirs)) = (own, theirs) else {
                return;
            };
            if other == device {
                return;
            }
            request.target = request.target.replace(&own, &theirs);
            self.note("replay into another session");
        } else {
            self.note("replay");
        }
        self.carry(&request);
    }

    fn enrol_again(&mut self, number: usize) {
        let subject = self.devices[number].subject;
        let request = enrolment(number, subject);
        if let Some(reply) = self.carry(&request)
            && let Some(certificate) = certificate(&reply.body)
        {
            self.devices[number].memory.certificate = Some(certificate);
            self.note("enrolled again");
        }
    }

    /// Ends all faults: one process leads the task, and what was committed is published.
    pub(crate) fn heal(&mut self) {
        self.durable.disarm();
        while self.running() > 0 {
            self.kill();
        }
        self.clock.advance(91_000);
        self.start();
        self.tick();
    }
}

/// Plays a history, and returns the claims that do not hold after it.
pub(crate) fn play<'t>(
    template: &'t Template,
    ops: &[Op],
    rules: impl FnOnce(&mut NewTask),
) -> (Vec<String>, World<'t>) {
    let mut world = World::changed(template, rules, |_| ());
    for op in ops {
        world.apply(op);
    }
    world.heal();
    let released = world.round();
    let facts = Facts::of(&world);
    let mut violations = facts.violations();
    if world.state() == undertone_protocol::TaskState::Halted {
        violations.push(format!("the task is halted: {}", world.durable.last_note()));
    }
    *world.happened.entry("released rounds").or_default() += released;
    let named = facts
        .rounds
        .iter()
        .map(|round| round.everyone.len() - round.included.len());
    *world.happened.entry("counted and not in a sum").or_default() += named.sum::<usize>() as u64;
    (violations, world)
}
