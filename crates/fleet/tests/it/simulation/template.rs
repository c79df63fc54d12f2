//! A task that is made once and played in many worlds, with the people and devices of its population.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_device::{Limits, Neighbours, PolicyFloors, Setup, enrolment_body};
use undertone_protocol::{
    Digest32, Enrol, Enrolled, Label, Signed, Signer, TaskState, TrustedKeys, digest_of, limits, read, write,
};
use undertone_secagg::Floors;
use undertone_service::identity::{Identity, Invitation};
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::{Task, create};
use undertone_store::{Blobs, ManualClock, Memory as MemoryStore, MemoryBlobs, NewTask, Store};

use super::checker::Facts;
use super::world::World;

/// The time at which every world begins, in milliseconds since 1970.
pub(crate) const START: u64 = 1_800_000_000_000;

/// The name of the population.
pub(crate) const PEOPLE: &str = "people";

const WORDS: &str = "the\nof\nand\nto\n";
const ROOT: [u8; 32] = [7; 32];

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
        let identity = match self.identity() {
            Identity::Dev => "dev",
            Identity::Certificate | Identity::Attested => "certificate",
        };
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
        format!(
            r#"
seed = {SEED}
name = "words"
rounds = {rounds}
vocabulary = {{ kind = "file", path = "vocab.txt" }}
model = {{ family = "cifg", cells = {cells}, embedding = {cells}, projection = {cells} }}
cohort = {{ sampling = "check_in", users_per_round = {goal}, population = 100 }}
participation = {{ min_sep = {min_sep}, max_part = {max_part} }}
user_update = {{ algorithm = "fedavg", learning_rate = 0.5, batch_size = 2, epochs = 1 }}
clip = {{ kind = "flat", norm = {CLIP_NORM} }}
privacy = {{ noise_multiplier = 2.0, delta = 1e-6, mechanism = {{ kind = "blt", buffers = 2 }} }}
server = {{ optimizer = {{ kind = "sgd" }}, learning_rate = 1.0 }}
{aggregation}

[service]
over_selection = {over_selection}
group = {{ target = {group}, min = {least} }}
deadlines = {{ select = "20s", report = "40s", lobby = "5s", keys = "6s", shares = "6s", upload = "12s", unmask = "6s", attempt = "90s" }}
eligibility = {{ min_examples = 1, max_examples = 16, timer = "{timer}s" }}
identity = "{identity}"
pace = {{ checkins_per_needed = 3.0, min_interval = "1s" }}
"#
        )
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

pub(crate) fn keys() -> Keys {
    Keys::from_root(ROOT)
}

/// The name of a subject.
pub(crate) fn name_of(subject: usize) -> Digest32 {
    digest_of(format!("subject {subject}").as_bytes())
}

/// The key of a device.
pub(crate) fn device_key(device: usize) -> Signer {
    Signer::from_seed(&digest_of(format!("device {device}").as_bytes()))
}

/// The body of an enrolment of a device for its subject.
pub(crate) fn enrolment(device: usize, subject: usize) -> Vec<u8> {
    let key = device_key(device);
    let invitation = Invitation::new(name_of(subject), START + 1_000_000_000).text(&keys(), PEOPLE);
    let mut enrol = Enrol {
        device_key: key.public().to_vec(),
        invitation,
        subject: name_of(subject).to_vec(),
        certificate: None,
        proof: Vec::new(),
    };
    enrol.proof = key.proof(Label::Enrolment, &enrolment_body(&enrol));
    write(&enrol)
}

/// The certificate in the reply to an enrolment.
pub(crate) fn certificate(reply: &[u8]) -> Option<Signed> {
    let enrolled: Enrolled = read("the reply", reply, limits::MAX_MESSAGE).ok()?;
    enrolled.certificate
}

fn setup(rules: &Rules) -> Arc<Setup> {
    let keys = keys();
    let floor = rules.floor.min(3) as u32;
    Arc::new(Setup {
        population: PEOPLE.to_owned(),
        board_keys: TrustedKeys::new([keys.board().public()]),
        task_keys: TrustedKeys::new([keys.plans().public()]),
        issuers: TrustedKeys::new([keys.issuer().public()]),
        floors: PolicyFloors {
            min_goal: 1,
            min_group: 1,
            max_epsilon: 1e6,
            require_secagg: false,
            population_rho: 1e6,
            secagg: Floors::COMPILED.with_clients(floor.max(2), floor.max(2)).unwrap(),
            neighbours: match rules.sum {
                Sum::Active { .. } => Neighbours::Certified,
                Sum::Plain | Sum::Curious { .. } => Neighbours::Anyone,
            },
            ..PolicyFloors::COMPILED
        },
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    })
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
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), WORDS).unwrap();
        let file: TaskFile =
            undertone_run_directory::task::parse(&rules.text(), Path::new("task.toml"), Seeding::ParityTest)
                .unwrap();
        let store = Arc::new(MemoryStore::new(Arc::new(ManualClock::at(START))));
        let blobs = Arc::new(MemoryBlobs::new());
        let id = create(
            &file,
            folder.path(),
            PEOPLE,
            &keys(),
            store.as_ref(),
            blobs.as_ref(),
        )
        .unwrap();
        let row = store.task(id).unwrap();
        let task = Task::load(&row, blobs.as_ref(), &keys()).unwrap();
        let mut digests = vec![row.task.plan, row.task.model, task.vocabulary];
        digests.extend(task.mechanism.as_ref().map(|json| digest_of(json)));
        let shared = Shared {
            store: store.clone(),
            blobs: blobs.clone(),
            keys: keys(),
            process: "template".to_owned(),
            witness: None,
        };
        let service = Service::new(shared, rules.identity()).unwrap();
        let certificates = subjects
            .iter()
            .enumerate()
            .map(|(device, subject)| {
                let reply = service.enrol(PEOPLE, &enrolment(device, *subject)).unwrap();
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
                .map(|digest| bytes_of(blobs.as_ref(), digest))
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

/// The bytes of a blob.
pub(crate) fn bytes_of(blobs: &dyn Blobs, digest: &Digest32) -> Vec<u8> {
    let mut bytes = Vec::new();
    blobs
        .get(digest, 0)
        .unwrap()
        .bytes
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}
