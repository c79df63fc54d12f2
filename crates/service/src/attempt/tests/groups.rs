//! An attempt, its groups and its sessions under virtual time, with devices that run the client's side of the secure sum.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use undertone_aggregation::{ModularVec, Modulus};
use undertone_coordinator::participation::ParticipantId;
use undertone_secagg::message::{Message, RelayedShares, Roster, Survivors, Unmask};
use undertone_secagg::{Client, Context, GraphChoice, SigningIdentity, Terms, ThreatModel, Trust};
use undertone_store::{AbandonReason, AttemptState, Millis, SessionId};

use crate::attempt::group::{Change, Group, GroupSum, Phase, Step};
use crate::attempt::session::{LostAt, Sessions, Stage};
use crate::attempt::{Attempt, Deadlines, Effect, Event, PhaseLimits, Settings};

const DEVICES: usize = 24;
const MODULUS: u64 = 100;
const SECOND: Millis = 1000;

/// The phases in which a device may fall silent.
const LIVE: [Phase; 6] = [
    Phase::Lobby,
    Phase::Keys,
    Phase::Shares,
    Phase::Inputs,
    Phase::Signatures,
    Phase::Unmask,
];

struct Device {
    shard: u32,
    client: Client,
    keys: Vec<u8>,
    /// The phase in which it falls silent.
    silent_from: Option<Phase>,
    /// The last phase whose message it has handled.
    after: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Join(usize),
    Poll(usize),
    Wake,
}

struct World {
    now: Millis,
    attempt: Attempt,
    groups: Vec<Group>,
    sessions: Sessions,
    devices: Vec<Device>,
    actions: BinaryHeap<Reverse<(Millis, Action)>>,
    rng: ChaCha20Rng,
    released: bool,
    abandoned: Option<AbandonReason>,
    lost: BTreeSet<SessionId>,
}

fn session(device: usize) -> SessionId {
    SessionId([device as u8; 16])
}

impl World {
    /// An attempt for 24 devices in two groups, each of which must have six, and both together 15.
    fn new(threat_model: ThreatModel, percent: u64, seed: u64) -> Self {
        let limits = PhaseLimits {
            lobby: 60 * SECOND,
            keys: 20 * SECOND,
            shares: 20 * SECOND,
            upload: 120 * SECOND,
            unmask: 20 * SECOND,
        };
        let until = Deadlines {
            select: 600 * SECOND,
            report: 1200 * SECOND,
            attempt: 3600 * SECOND,
        };
        let settings = Settings::groups(DEVICES as u32, 12, 6, 15, limits, until).unwrap();
        let (attempt, effects) = Attempt::new(settings, 0);
        let context = |shard| Context {
            run: [1; 32],
            round: 2,
            attempt: 3,
            shard,
            plan_digest: [5; 32],
            model_digest: [6; 32],
            terms: Terms::new(DEVICES as u64, MODULUS, threat_model)
                .and_then(|terms| terms.with_clients(6, DEVICES as u32))
                .unwrap(),
        };
        let graph = GraphChoice::Full {
            threshold_percent: 60,
        };
        let group = |shard| Group::new(context(shard), Trust::Anyone, graph, settings.places(shard)).unwrap();
        let mut world = Self {
            now: 0,
            attempt,
            groups: (0..2).map(group).collect(),
            sessions: Sessions::new(),
            devices: Vec::new(),
            actions: BinaryHeap::new(),
            rng: ChaCha20Rng::seed_from_u64(seed),
            released: false,
            abandoned: None,
            lost: BTreeSet::new(),
        };
        world.apply(effects);
        for place in 0..DEVICES {
            let shard = world.attempt.place(world.rng.next_u64()).unwrap();
            let identity = SigningIdentity::generate(&mut world.rng);
            let (client, keys) = Client::join_simulation(identity, context(shard), &mut world.rng);
            let silent_from =
                (world.rng.next_u64() % 100 < percent).then(|| LIVE[(world.rng.next_u64() % 6) as usize]);
            world.devices.push(Device {
                shard,
                client,
                keys: keys.encode(),
                silent_from,
                after: Phase::Lobby,
            });
            let session = session(place);
            assert!(world.sessions.assign(session, 900 * SECOND));
            world.event(Event::Slot { session, shard });
            let trained = world.rng.next_u64() % (120 * SECOND);
            world.actions.push(Reverse((trained, Action::Join(place))));
        }
        world
    }

    fn event(&mut self, event: Event) {
        let effects = self.attempt.on(self.now, event);
        self.apply(effects);
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::CloseLobby(shard) => self.close(shard, Phase::Lobby),
                Effect::ClosePhase { shard, phase } => self.close(shard, phase),
                Effect::WakeAt(at) => self.actions.push(Reverse((at, Action::Wake))),
                Effect::Release => self.released = true,
                Effect::Abandon(reason) => {
                    self.abandoned = Some(reason);
                    self.groups.iter_mut().for_each(Group::abort);
                }
                Effect::OfferSlots(_) | Effect::CloseSelection => {}
            }
        }
    }

    fn close(&mut self, shard: u32, phase: Phase) {
        let change = self.groups[shard as usize].close(phase, &mut self.rng);
        self.changed(shard, change);
    }

    fn changed(&mut self, shard: u32, change: Option<Change>) {
        let Some(change) = change else { return };
        if let Change::Entered { lost, .. } | Change::Failed { lost, .. } = &change {
            for (session, at) in lost {
                self.lose(*session, *at);
            }
        }
        if let Change::Entered { .. } = &change {
            for place in (0..DEVICES).filter(|place| self.devices[*place].shard == shard) {
                let open = self.sessions.get_mut(session(place)).unwrap();
                if open.end().is_none() && open.stage() >= Stage::Ready {
                    let later = self.now + self.rng.next_u64() % (15 * SECOND);
                    self.actions.push(Reverse((later, Action::Poll(place))));
                }
            }
        }
        let (lost, event) = match &change {
            Change::Entered { phase, lost } => (&lost[..], Event::GroupEntered { shard, phase: *phase }),
            Change::Summed { included } => {
                let included = *included;
                (&[][..], Event::GroupSummed { shard, included })
            }
            // The failure takes all sessions of the group along.
            Change::Failed { at, .. } => (&[][..], Event::GroupFailed { shard, at: *at }),
        };
        for (session, at) in lost {
            self.event(Event::Lost(*session, *at));
        }
        self.event(event);
    }

    fn lose(&mut self, session: SessionId, at: LostAt) {
        let open = self.sessions.get_mut(session).unwrap();
        assert!(open.lose().is_some());
        open.lost_in_group(at);
        assert!(self.lost.insert(session));
    }

    fn join(&mut self, place: usize) {
        let device = &self.devices[place];
        if device.silent_from == Some(Phase::Lobby) {
            return;
        }
        let shard = device.shard;
        let user = ParticipantId::new(place as u64);
        let group = &mut self.groups[shard as usize];
        if group.join(session(place), user, &device.keys).is_err() {
            // The lobby has closed, so the device sends nothing.
            self.lose(session(place), LostAt::Assigned);
            self.event(Event::Lost(session(place), LostAt::Assigned));
        } else {
            self.sessions
                .get_mut(session(place))
                .unwrap()
                .reach(Stage::Ready)
                .unwrap();
            self.event(Event::Ready(session(place)));
        }
    }

    fn poll(&mut self, place: usize) {
        let device = &mut self.devices[place];
        let group = &mut self.groups[device.shard as usize];
        let phase = group.phase();
        if device.silent_from.is_some_and(|silent| phase >= silent) || phase <= device.after {
            return;
        }
        let shard = device.shard;
        let Ok(step) = group.next(session(place), device.after) else {
            return;
        };
        if let Step::Message(mail) = step {
            device.after = phase;
            let client = &mut device.client;
            match phase {
                Phase::Shares => {
                    let shares = client.receive_roster(&Roster::decode(&mail).unwrap(), &mut self.rng);
                    group.receive(session(place), &shares.unwrap().encode()).unwrap();
                }
                Phase::Inputs => {
                    let mut vector = vec![0u64; DEVICES];
                    vector[place] = 1;
                    let modulus = Modulus::new(MODULUS).unwrap();
                    let mut vector = ModularVec::from_residues(modulus, &vector).unwrap();
                    let relayed = RelayedShares::decode(&mail).unwrap();
                    // A device with too few neighbours left gives up by itself.
                    let Ok(input) = client.receive_shares(&relayed, &mut vector) else {
                        return;
                    };
                    group.input(session(place), &input.packed).unwrap();
                    self.sessions
                        .get_mut(session(place))
                        .unwrap()
                        .reach(Stage::Reported)
                        .unwrap();
                    self.event(Event::Reported(session(place)));
                }
                Phase::Signatures => {
                    let Ok(signature) = client.receive_survivors(&Survivors::decode(&mail).unwrap()) else {
                        return;
                    };
                    group.receive(session(place), &signature.encode()).unwrap();
                }
                Phase::Unmask => {
                    let Ok(answer) = client.receive_unmask(&Unmask::decode(&mail).unwrap()) else {
                        return;
                    };
                    group.receive(session(place), &answer.encode()).unwrap();
                }
                other => panic!("mail in {other:?}"),
            }
        }
        let change = self.groups[shard as usize].advance(&mut self.rng);
        self.changed(shard, change);
    }

    /// Runs until the attempt is releasing or has ended.
    fn run(&mut self) {
        while matches!(
            self.attempt.state(),
            AttemptState::Selecting | AttemptState::Reporting
        ) {
            let Reverse((at, action)) = self.actions.pop().unwrap();
            self.now = self.now.max(at);
            for (session, at) in self.sessions.expire(self.now) {
                assert!(self.lost.insert(session));
                if self.groups.iter_mut().all(|group| group.lose(session).is_none()) {
                    assert!(!at.counts(), "a session that has joined is lost with its group");
                }
                self.event(Event::Lost(session, at));
            }
            match action {
                Action::Join(place) => self.join(place),
                Action::Poll(place) => self.poll(place),
                Action::Wake => self.event(Event::Tick),
            }
        }
    }
}

fn simulate(threat_model: ThreatModel, percent: u64, seed: u64) -> Option<usize> {
    let mut world = World::new(threat_model, percent, seed);
    world.run();
    assert!(world.now <= 3600 * SECOND, "{seed}");
    let counts = world.attempt.counts();
    if !world.released {
        assert!(matches!(
            world.abandoned,
            Some(AbandonReason::Few | AbandonReason::Protocol)
        ));
        assert!(world.groups.iter_mut().all(|group| group.seal().is_err()));
        return None;
    }
    let sums: Vec<GroupSum> = world
        .groups
        .iter_mut()
        .filter_map(|group| group.seal().ok())
        .collect();
    let all = GroupSum::merge(sums).unwrap_or_else(|error| panic!("{error}"));
    let included: BTreeSet<SessionId> = all.included.iter().map(|one| one.session).collect();
    assert_eq!(included.len(), counts.summed as usize);
    assert!(included.len() >= 15);
    // Each place of the sum is one where its device is included: nobody counts twice, and nobody is missing.
    for (place, value) in all.sum.iter().enumerate() {
        assert_eq!(
            value,
            u64::from(included.contains(&session(place))),
            "{seed} {place}"
        );
    }
    for (id, state) in world.sessions.iter() {
        // From the join on, a device that is not in the sum is lost, and counts all the same.
        assert_eq!(
            world.lost.contains(&id),
            state.end().is_some(),
            "{seed}: {state:?}"
        );
        assert!(
            state.end().is_some() || included.contains(&id) == state.counts(),
            "{seed}: {state:?}"
        );
        assert!(
            state.end().is_none() || !included.contains(&id),
            "{seed}: {state:?}"
        );
    }
    assert_eq!(counts.assigned, counts.open + counts.reported + counts.lost);
    Some(included.len())
}

#[test]
#[ignore = "slow"]
fn an_attempt_without_drop_outs_releases() {
    for threat_model in [ThreatModel::HonestButCurious, ThreatModel::Active] {
        // All devices are trained within two minutes, and a lobby waits one minute from its minimum on: some come too late.
        let included: Vec<_> = (0..6).map(|seed| simulate(threat_model, 0, seed)).collect();
        assert!(included.iter().all(Option::is_some), "{included:?}");
    }
}

#[test]
#[ignore = "slow"]
fn drop_outs_end_in_a_right_sum_or_in_none() {
    for threat_model in [ThreatModel::HonestButCurious, ThreatModel::Active] {
        for (percent, seeds) in [(5, 8), (10, 8), (30, 12)] {
            let ends: Vec<_> = (0..seeds)
                .map(|seed| simulate(threat_model, percent, 100 * percent + seed))
                .collect();
            let released = ends.iter().flatten().count();
            assert!(percent > 10 || released > 0, "{percent} {ends:?}");
        }
    }
}

#[test]
fn an_attempt_whose_devices_are_silent_is_abandoned_in_time() {
    for seed in 0..4 {
        assert_eq!(simulate(ThreatModel::Active, 100, seed), None);
    }
}
