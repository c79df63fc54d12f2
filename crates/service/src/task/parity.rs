//! Parity tests: a task of the service that repeats a seeded simulation.

use std::path::Path;

use undertone_coordinator::task::TaskFile;
use undertone_protocol::Digest32;
use undertone_store::{Blobs, Store, TaskId};

use crate::error::{Result, ServiceError};
use crate::keys::Keys;
use crate::task;

/// The values that a parity test takes from its simulation, beside the seed in its task file.
///
/// With them, and with devices that train the simulated cohorts with the simulated seeds, each round gives the parameters of the
/// simulation, bit by bit. PRIVACY: everything then follows from the seed, so the users must be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity {
    /// The seed of the rotations, of `undertone_run::source::secagg::rotation_seed`. Other tasks make it from
    /// their identifier.
    pub rotations: Digest32,
}

/// Creates the task of a parity test as a draft. All else is as in [`task::create`].
///
/// # Errors
/// [`ServiceError::Value`] for a file without a seed; the errors of [`task::create`].
pub fn create(
    file: &TaskFile,
    base: &Path,
    population: &str,
    keys: &Keys,
    store: &dyn Store,
    blobs: &dyn Blobs,
    parity: Parity,
) -> Result<TaskId> {
    if file.seed.is_none() {
        return Err(ServiceError::Value {
            key: "seed".to_owned(),
            expected: "the seed of the simulation".to_owned(),
            got: "none".to_owned(),
        });
    }
    task::create_with(file, base, population, keys, store, blobs, Some(parity.rotations))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undertone_coordinator::task::Seeding;
    use undertone_store::{ManualClock, Memory, MemoryBlobs};

    use super::*;
    use crate::task::Task;

    const TASK: &str = r#"
name = "parity"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 9, population = 100 }
participation = { min_sep = 2, max_part = 1 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "tree" } }
aggregation = { sum = "secagg", encoding = { kind = "rotated_rounding", scale = 10000.0 }, min_clients = 6, max_clients = 24 }

[service]
over_selection = 1.0
group = { target = 9, min = 6 }
deadlines = { select = "60s", report = "120s", attempt = "300s" }
identity = "dev"
"#;

    /// Creates the task with this seed, and loads it as a restarted service does.
    fn loaded(seed: Option<u64>, parity: Option<Parity>) -> Result<Task> {
        let text = match seed {
            Some(seed) => format!("seed = {seed}\n{TASK}"),
            None => TASK.to_owned(),
        };
        let seeding = match seed {
            Some(_) => Seeding::ParityTest,
            None => Seeding::Refused,
        };
        let file = undertone_run_directory::task::parse(&text, Path::new("task.toml"), seeding)?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), "the\nof\nand\n").unwrap();
        let store = Memory::new(Arc::new(ManualClock::at(1)));
        let (blobs, keys) = (MemoryBlobs::new(), Keys::from_root([7; 32]));
        let id = match parity {
            Some(parity) => create(&file, folder.path(), "people", &keys, &store, &blobs, parity),
            None => task::create(&file, folder.path(), "people", &keys, &store, &blobs),
        }?;
        Task::load(&store.task(id)?, &blobs, &keys)
    }

    #[test]
    fn the_rotations_of_a_simulation_come_back_with_the_task() {
        let of_simulation = Parity { rotations: [3; 32] };
        let key = |task: &Task| task.rotations.id().unwrap();
        let with = loaded(Some(5), Some(of_simulation)).unwrap();
        let without = loaded(Some(5), None).unwrap();
        assert_eq!(
            key(&with),
            undertone_mechanisms::NoiseKey::from_bytes([3; 32]).id().unwrap()
        );
        assert_ne!(key(&with), key(&without));
        // Devices read them from the plan.
        assert!(with.plan.windows(32).any(|bytes| bytes == [3; 32]));
        assert!(!without.plan.windows(32).any(|bytes| bytes == [3; 32]));
    }

    #[test]
    fn a_task_without_a_seed_repeats_no_simulation() {
        let error = loaded(None, Some(Parity { rotations: [3; 32] }))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "seed must be the seed of the simulation, got none");
    }
}
