//! A task that is made once and played in many worlds, with the people and devices of its population.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_device::{Neighbours, PolicyFloors, Request, Setup};
use undertone_protocol::{Digest32, Signed, Signer, TaskState, digest_of};
use undertone_secagg::Floors;
use undertone_service::identity::Identity;
use undertone_service::server::Service;
use undertone_service::task::Task;
use undertone_service_testing as testing;
use undertone_service_testing::{PEOPLE, PLAIN, blob, certificate, changed, keys, loaded};
use undertone_store::{Blobs, ManualClock, Memory as MemoryStore, MemoryBlobs, NewTask, Store};

use super::checker::Facts;
use super::world::World;

const WORDS: &str = "the\nof\nand\nto\n";

/// The seed of the noise. With it the noise of a round is the same in every world, so a reference world shows it.
const SEED: u64 = 5;

/// The settings of a task of one-hot updates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) rounds: u64,
    pub(crate) goal: u64,
    pub(crate) over_selection: f64,
    /// The min number of devices in a release, and in a group.
    pub(crate) floor: u64,
    pub(crate) min_sep: u64,
    pub(crate) max_part: u64,
    pub(crate) sum: Sum,
    /// The timer of the devices, in seconds.
    pub(crate) timer: u64,
    /// The cells of the model: its size.
    pub(crate) cells: u64,
}

/// The kind of sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    Plain,
    /// A secure sum with a server that does not lie, in groups of so many devices.
    Curious {
        group: u64,
    },
    /// A secure sum with a server that may lie, in groups of so many devices.
    Active {
        group: u64,
    },
}

impl Rules {
    /// Rules of a plain sum without a timer worth mentioning.
    pub(crate) const fn plain(rounds: u64, goal: u64, floor: u64, min_sep: u64, max_part: u64) -> Self {
        Self {
            rounds,
            goal,
            over_selection: 1.5,
            floor,
            min_sep,
            max_part,
            sum: Sum::Plain,
            timer: 1,
            cells: 3,
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        match self.sum {
            Sum::Curious { .. } => Identity::Dev,
            Sum::Plain | Sum::Active { .. } => Identity::Certificate,
        }
    }

    fn text(&self) -> String {
        let Self {
            rounds,
            goal,
            over_selection,
            floor,
            min_sep,
            max_part,
            sum,
            timer,
            cells,
        } = *self;
        let sessions = (over_selection * goal as f64).ceil() as u64;
        let (group, aggregation) = match sum {
            Sum::Plain => (floor, String::new()),
            Sum::Curious { group } | Sum::Active { group } => (
                group,
                format!(
                    "aggregation = {{ sum = \"secagg\", encoding = {{ kind = \"rotated_rounding\", scale = 1000000.0 }}, \
                     min_clients = {floor}, max_clients = {sessions} }}"
                ),
            ),
        };
        let least = if sum == Sum::Plain {
            floor
        } else {
            floor.min(group * 2 / 3)
        };
        let changes = format!(
            r#"
seed = {SEED}
rounds = {rounds}
model = {{ cells = {cells}, embedding = {cells}, projection = {cells} }}
cohort.users_per_round = {goal}
participation = {{ min_sep = {min_sep}, max_part = {max_part} }}
clip.norm = {CLIP_NORM}
{aggregation}

[service]
over_selection = {over_selection}
group = {{ target = {group}, min = {least} }}
deadlines = {{ select = "20s", report = "40s", lobby = "5s", keys = "6s", shares = "6s", upload = "12s", unmask = "6s", attempt = "90s" }}
eligibility.timer = "{timer}s"
identity = "{}"
"#,
            self.identity().name()
        );
        changed(PLAIN, &changes)
    }
}

/// A task with its blobs, and the enrolled devices of its population.
pub(crate) struct Template {
    pub(crate) rules: Rules,
    pub(crate) new_task: NewTask,
    pub(crate) task: Task,
    pub(crate) setup: Arc<Setup>,
    /// The subject of each device.
    pub(crate) subjects: Vec<usize>,
    pub(crate) certificates: Vec<Signed>,
    /// The keys of the devices.
    pub(crate) signers: Vec<Signer>,
    /// The subject behind each pseudonym.
    pub(crate) pseudonyms: BTreeMap<ParticipantId, usize>,
    blobs: Vec<Vec<u8>>,
    /// The noise of each round, in updates.
    noise: Vec<Vec<f64>>,
}

/// The clip norm of all tasks.
const CLIP_NORM: f64 = 0.5;

/// The name of a subject.
pub(crate) fn name_of(subject: usize) -> Digest32 {
    digest_of(format!("subject {subject}").as_bytes())
}

/// The key of a device.
pub(crate) fn device_key(device: usize) -> Signer {
    Signer::from_seed(&digest_of(format!("device {device}").as_bytes()))
}

/// The enrolment of a device for its subject.
pub(crate) fn enrolment(device: usize, subject: usize) -> Request {
    testing::enrolment(&keys(), &device_key(device), &name_of(subject))
}

fn setup(rules: &Rules) -> Arc<Setup> {
    let floor = rules.floor.clamp(2, 3) as u32;
    let floors = PolicyFloors {
        min_goal: 1,
        min_group: 1,
        max_epsilon: 1e6,
        population_rho: 1e6,
        secagg: Floors::COMPILED.with_clients(floor, floor).unwrap(),
        neighbours: match rules.sum {
            Sum::Active { .. } => Neighbours::Certified,
            Sum::Plain | Sum::Curious { .. } => Neighbours::Anyone,
        },
        ..testing::floors(rules.identity())
    };
    testing::setup(&keys(), floors)
}

impl Template {
    /// The task of these rules, with a device for each number in `subjects`, which says whose it is.
    pub(crate) fn new(rules: Rules, subjects: Vec<usize>) -> Self {
        // Enough people for every round, each with one device.
        let sessions = (rules.over_selection * rules.goal as f64).ceil() as usize;
        let people = sessions * (rules.rounds as usize + 1);
        let reference = Self::without_noise(rules, (0..people).collect());
        let mut world = World::new(&reference);
        assert!(
            world.run_until(rules.rounds, 3000, 500),
            "the reference stands at {}",
            world.round()
        );
        let noise = Facts::of(&world).rounds.into_iter().map(|mut round| {
            round
                .included
                .iter()
                .for_each(|subject| round.sum[subject % reference.length()] -= 1.0);
            round.sum
        });
        let noise = noise.collect();
        drop(world);
        Self {
            noise,
            ..Self::without_noise(rules, subjects)
        }
    }

    /// The task, before the noise of its rounds is known: sums then include it.
    fn without_noise(rules: Rules, subjects: Vec<usize>) -> Self {
        let world = testing::World::new().task(&rules.text()).words(WORDS).seeded();
        let shared = world.shared("template");
        let id = world.draft(&shared);
        let row = shared.store.task(id).unwrap();
        let task = loaded(&shared, id);
        let mut digests = vec![row.task.plan, row.task.model, task.vocabulary];
        digests.extend(task.mechanism.as_ref().map(|json| digest_of(json)));
        let blobs = shared.blobs.clone();
        let service = Service::new(shared, rules.identity()).unwrap();
        let certificates = subjects
            .iter()
            .enumerate()
            .map(|(device, subject)| {
                let reply = service.enrol(PEOPLE, &enrolment(device, *subject).body).unwrap();
                certificate(&reply).unwrap()
            })
            .collect();
        let issuer = keys().issuer().public();
        let pseudonym = |subject: &usize| (keys().pseudonym(id, &issuer, &name_of(*subject)), *subject);
        Self {
            rules,
            new_task: row.task,
            setup: setup(&rules),
            pseudonyms: subjects.iter().map(pseudonym).collect(),
            certificates,
            signers: (0..subjects.len()).map(device_key).collect(),
            subjects,
            blobs: digests
                .iter()
                .map(|digest| blob(blobs.as_ref(), digest))
                .collect(),
            task,
            noise: Vec::new(),
        }
    }

    /// A store with this task, active, and the blobs of the task. `change` may weaken the rules that the store goes by.
    pub(crate) fn stores(
        &self,
        clock: &ManualClock,
        change: impl FnOnce(&mut NewTask),
    ) -> (MemoryStore, MemoryBlobs) {
        let store = MemoryStore::new(Arc::new(clock.clone()));
        let blobs = MemoryBlobs::new();
        for bytes in &self.blobs {
            blobs.put(&mut bytes.as_slice()).unwrap();
        }
        let mut task = self.new_task.clone();
        change(&mut task);
        store.create_task(&task).unwrap();
        store
            .set_state(task.id, TaskState::Draft, TaskState::Active, "test", "")
            .unwrap();
        (store, blobs)
    }

    /// The parameters in the bytes of a model.
    pub(crate) fn parameters(&self, model: &[u8]) -> Vec<f32> {
        self.task.trained(model).unwrap().parameters
    }

    /// The initial model.
    pub(crate) fn initial(&self) -> Vec<f32> {
        self.parameters(&self.blobs[1])
    }

    /// The sum of a round, in updates per coordinate: the change of the model without its noise.
    pub(crate) fn sum(&self, round: u64, before: &[f32], after: &[f32]) -> Vec<f64> {
        let unit = CLIP_NORM / self.rules.goal as f64;
        let noise = usize::try_from(round)
            .ok()
            .and_then(|round| self.noise.get(round));
        let moved = before
            .iter()
            .zip(after)
            .map(|(before, after)| f64::from(after - before) / unit);
        let noise = noise.into_iter().flatten().copied().chain(std::iter::repeat(0.0));
        moved.zip(noise).map(|(moved, noise)| moved - noise).collect()
    }

    /// Number of parameters.
    pub(crate) fn length(&self) -> usize {
        self.initial().len()
    }
}
