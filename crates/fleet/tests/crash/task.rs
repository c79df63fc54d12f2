//! The task that is crashed, its data folder, and the fleet of its devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_device::PolicyFloors;
use undertone_fleet::FleetConfig;
use undertone_service::data_folder::{BLOBS, DATABASE, SERVER};
use undertone_service::identity::Identity;
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service_testing as testing;
use undertone_service_testing::{PLAIN, START, World, changed, floors};
use undertone_store::{Clock, FolderBlobs, ManualClock, Postgres, Sqlite, Store, TaskId};

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
        let (noise, text) = match secure {
            false => (8.0, PLAIN.to_owned()),
            true => (2.0, testing::secure()),
        };
        let changes = format!(
            r#"
rounds = {rounds}
cohort = {{ users_per_round = {users_per_round}, population = 1000 }}
participation = {{ min_sep = {min_sep}, max_part = {max_part} }}
privacy.noise_multiplier = {noise:?}
server.learning_rate = {rate:e}
service.deadlines = {{ select = "{select}s", report = "{report}s", attempt = "{attempt}s" }}
"#
        );
        changed(&text, &changes)
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
    World::new().task(&size.text()).create(shared)
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
pub(crate) fn fleet_config(folder: &Path, devices: usize) -> FleetConfig {
    let keys = Keys::open(&data(folder)).unwrap();
    let floors = PolicyFloors {
        population_rho: 1000.0,
        ..floors(Identity::Certificate)
    };
    testing::fleet_config(keys, floors, devices)
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
