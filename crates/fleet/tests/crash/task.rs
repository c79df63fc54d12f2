//! The task that is crashed, its data folder, and the fleet of its devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_device::{Limits, Neighbours, PolicyFloors, Setup};
use undertone_fleet::{Enrolment, FleetConfig};
use undertone_protocol::{TaskState, TrustedKeys};
use undertone_secagg::Floors;
use undertone_service::data_folder::{BLOBS, DATABASE, SERVER};
use undertone_service::identity::Invitation;
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::task::create;
use undertone_store::{Clock, FolderBlobs, ManualClock, Postgres, Sqlite, Store, TaskId};

/// The time at which virtual clocks begin.
pub(crate) const START: u64 = 1_800_000_000_000;

/// The population of every task here.
pub(crate) const PEOPLE: &str = "people";

const WORDS: &str = "the\nof\nand\nto\nin\na\nis\nthat\nfor\nit\n";

/// The size of a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rounds: u64,
    pub(crate) users_per_round: u64,
    pub(crate) min_sep: u64,
    pub(crate) max_part: u64,
    /// The rate of the server. A rate near the largest number leaves no finite parameters, so rounds are quarantined.
    pub(crate) rate: f64,
    /// `true` for deadlines of some seconds, under the clock of the machine.
    pub(crate) quick: bool,
    /// `true` for sums of groups that the service cannot take apart.
    pub(crate) secure: bool,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            rounds: 3,
            users_per_round: 8,
            min_sep: 2,
            max_part: 2,
            rate: 1.0,
            quick: false,
            secure: false,
        }
    }
}

impl Size {
    fn text(self) -> String {
        let Self {
            rounds,
            users_per_round,
            min_sep,
            max_part,
            rate,
            quick,
            secure,
        } = self;
        let (select, report, attempt) = if quick { (5, 8, 25) } else { (60, 120, 300) };
        let (noise, aggregation, deadlines) = match secure {
            false => (8.0, "", ""),
            true => (
                2.0,
                r#"aggregation = { sum = "secagg", encoding = { kind = "rotated_rounding", scale = 10000.0 }, min_clients = 6, max_clients = 24 }"#,
                r#"lobby = "5s", keys = "10s", shares = "10s", upload = "30s", unmask = "10s", "#,
            ),
        };
        let group = if secure { 7 } else { 4 };
        format!(
            r#"
name = "words"
rounds = {rounds}
vocabulary = {{ kind = "file", path = "vocab.txt" }}
model = {{ family = "cifg", cells = 6, embedding = 4, projection = 4 }}
cohort = {{ sampling = "check_in", users_per_round = {users_per_round}, population = 1000 }}
participation = {{ min_sep = {min_sep}, max_part = {max_part} }}
user_update = {{ algorithm = "fedavg", learning_rate = 0.5, batch_size = 2, epochs = 1 }}
clip = {{ kind = "flat", norm = 0.5 }}
privacy = {{ noise_multiplier = {noise:?}, delta = 1e-6, mechanism = {{ kind = "blt", buffers = 2 }} }}
server = {{ optimizer = {{ kind = "sgd" }}, learning_rate = {rate:e} }}
{aggregation}

[service]
over_selection = 1.5
group = {{ target = {group}, min = 4 }}
deadlines = {{ select = "{select}s", report = "{report}s", {deadlines}attempt = "{attempt}s" }}
eligibility = {{ min_examples = 1, max_examples = 16, timer = "1s" }}
identity = "certificate"
pace = {{ checkins_per_needed = 3.0, min_interval = "1s" }}
"#
        )
    }
}

/// A folder in memory where the machine has one: a killed process needs no disk.
pub(crate) fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// The data folder in the folder of a test.
pub(crate) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// The folder of the witness in the folder of a test.
pub(crate) fn witness(folder: &Path) -> PathBuf {
    folder.join("witness")
}

/// Opens the data folder of a test by a clock. `process` is the name of the process.
pub(crate) fn open(folder: &Path, clock: Arc<dyn Clock>, process: &str) -> Shared {
    let data = data(folder);
    undertone_run_directory::files::secret_folder(&data).unwrap();
    fs::create_dir_all(witness(folder)).unwrap();
    // A folder that names a server goes by the clock of that server.
    let store: Arc<dyn Store> = match fs::read_to_string(data.join(SERVER)) {
        Ok(url) => Arc::new(Postgres::open(&url).unwrap()),
        Err(_) => Arc::new(Sqlite::with_clock(&data.join(DATABASE), clock).unwrap()),
    };
    Shared {
        store,
        blobs: Arc::new(FolderBlobs::open(&data.join(BLOBS)).unwrap()),
        keys: Keys::open(&data).unwrap(),
        process: process.to_owned(),
        witness: Some(witness(folder)),
    }
}

/// A data folder with one active task that nobody has led. Each play gets a copy.
pub(crate) struct Template {
    folder: tempfile::TempDir,
    pub(crate) task: TaskId,
    pub(crate) size: Size,
}

impl Template {
    pub(crate) fn new(size: Size) -> Self {
        let folder = temporary();
        let shared = open(folder.path(), Arc::new(ManualClock::at(START)), "local");
        let task = create_task(&shared, size);
        drop(shared);
        Self { folder, task, size }
    }

    /// A folder of its own for one play.
    pub(crate) fn copy(&self) -> tempfile::TempDir {
        let copy = temporary();
        copy_folder(self.folder.path(), copy.path());
        copy
    }
}

/// Creates the task in a store, and activates it.
pub(crate) fn create_task(shared: &Shared, size: Size) -> TaskId {
    let words = tempfile::tempdir().unwrap();
    fs::write(words.path().join("vocab.txt"), WORDS).unwrap();
    let file: TaskFile =
        undertone_run_directory::task::parse(&size.text(), Path::new("task.toml"), Seeding::Refused).unwrap();
    let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
    let task = create(&file, words.path(), PEOPLE, &shared.keys, store, blobs).unwrap();
    store
        .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
        .unwrap();
    task
}

/// Copies a folder with everything in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The settings of a fleet whose devices trust the keys of a data folder.
pub(crate) fn fleet_config(folder: &Path, devices: usize, invited_until: u64) -> FleetConfig {
    let keys = Keys::open(&data(folder)).unwrap();
    let setup = Setup {
        population: PEOPLE.to_owned(),
        board_keys: TrustedKeys::new([keys.board().public()]),
        task_keys: TrustedKeys::new([keys.plans().public()]),
        issuers: TrustedKeys::new([keys.issuer().public()]),
        floors: PolicyFloors {
            min_goal: 2,
            min_group: 2,
            max_epsilon: 100.0,
            require_secagg: false,
            population_rho: 1000.0,
            secagg: Floors::COMPILED.with_clients(4, 4).unwrap(),
            neighbours: Neighbours::Certified,
            ..PolicyFloors::COMPILED
        },
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    };
    let invitation = Arc::new(move |_, name: &undertone_protocol::Digest32| {
        Invitation::new(*name, invited_until).text(&keys, PEOPLE)
    });
    FleetConfig {
        enrolment: Enrolment::Invitations(invitation),
        ..FleetConfig::new(Arc::new(setup), devices)
    }
}

/// The texts of users.
pub(crate) fn users(number: usize) -> Vec<Vec<Vec<u32>>> {
    let example = |user: u32, place: u32| vec![3 + (user + place) % 8, 4, 5, 1];
    (0..number as u32)
        .map(|user| (0..8).map(|place| example(user, place)).collect())
        .collect()
}

/// A number that follows from others, for choices of a test.
pub(crate) fn drawn(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mut mixed = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
