//! A run in several processes is a run in one. Here the processes are threads; `.ci/mpi` starts real ones.

use std::sync::{Arc, Barrier, Mutex};

use undertone_run::pretrain::{PretrainFile, pretrain};
use undertone_run::ranks::Ranks;
use undertone_run::{Result, RunFile, Silent};
use undertone_run_directory::files::names::{LEDGER_FILE, METRICS_FILE, MODEL_FILE, REPLAYS_FILE};

use crate::support::{config, options};

/// Changes of the base run file.
const RUN: [&str; 5] = [
    "name=ranks",
    "rounds=4",
    "cohort.users_per_round=20",
    "data.source.users=120",
    "evaluation={every=2,max_tokens=300,final_max_tokens=300}",
];

/// The state that all threads of a run share.
#[derive(Debug)]
struct World {
    size: usize,
    barrier: Barrier,
    values: Mutex<Vec<i64>>,
    bytes: Mutex<Vec<u8>>,
}

impl World {
    /// A world of `size` processes, of which `started` wait for one another.
    fn new(size: usize, started: usize) -> Arc<Self> {
        Arc::new(Self {
            size,
            barrier: Barrier::new(started),
            values: Mutex::default(),
            bytes: Mutex::default(),
        })
    }
}

#[derive(Debug)]
struct Thread {
    rank: usize,
    world: Arc<World>,
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.world.size
    }

    fn all_reduce(&self, values: &mut [i64]) -> Result<()> {
        {
            let mut sum = self.world.values.lock().expect("a lock");
            sum.resize(values.len(), 0);
            sum.iter_mut()
                .zip(&*values)
                .for_each(|(sum, value)| *sum += value);
        }
        self.world.barrier.wait();
        values.copy_from_slice(&self.world.values.lock().expect("a lock"));
        // Nobody may start the next sum before everybody has read this one.
        if self.world.barrier.wait().is_leader() {
            self.world.values.lock().expect("a lock").clear();
        }
        self.world.barrier.wait();
        Ok(())
    }

    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<()> {
        if self.rank == from {
            self.world.bytes.lock().expect("a lock").clone_from(bytes);
        }
        self.world.barrier.wait();
        bytes.clone_from(&self.world.bytes.lock().expect("a lock"));
        self.world.barrier.wait();
        Ok(())
    }
}

fn file(changes: &[&str]) -> RunFile {
    RunFile::new(config(&[&RUN, changes].concat()), ".")
}

/// Model, ledger, statistics of training and replays of a run in this number of processes.
fn trained(file: &RunFile, size: usize) -> (Vec<u8>, Vec<u8>, Vec<String>, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (world, options) = (World::new(size, size), options(folder.path()));
    std::thread::scope(|scope| {
        for rank in 1..size {
            let (options, world) = (&options, world.clone());
            scope.spawn(move || {
                undertone_run::train_as_follower(options, &Thread { rank, world }).expect("a follower");
            });
        }
        undertone_run::train_as_leader(file, &options, &Thread { rank: 0, world }, &Silent).expect("a run");
    });
    let read = |name| std::fs::read(folder.path().join("ranks").join(name)).expect("a file");
    let statistics = read(METRICS_FILE)
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok())
        .map(|line| {
            ["train_loss", "cohort_weight", "tokens", "update_norms"]
                .map(|key| line[key].to_string())
                .join(" ")
        })
        .collect();
    let replays = std::fs::read(folder.path().join("ranks").join(REPLAYS_FILE)).ok();
    (read(MODEL_FILE), read(LEDGER_FILE), statistics, replays)
}

#[test]
#[ignore = "slow"]
fn several_processes_make_the_model_of_one() {
    let uls = [
        r#"user_update={ algorithm = "uls", group_size = 3 }"#,
        r#"privacy.accountant="pld""#,
    ];
    let els = [
        r#"user_update={ algorithm = "els", group_size = 3, batch_size = 4 }"#,
        r#"cohort={ sampling = "poisson", examples_per_round = 30 }"#,
        r#"privacy.accountant="pld""#,
    ];
    let adaptive = [
        r#"clip={ kind = "adaptive", initial_norm = 1.0, bit_noise_std = 3.0 }"#,
        r#"cohort={ sampling = "shuffled_epochs", users_per_round = 20 }"#,
        r#"privacy.mechanism={ kind = "tree", restarts = { first = 2, every = 2 } }"#,
        "privacy.noise_multiplier=4.0",
        "user_update.clip_every_step=false",
    ];
    // The replays of a run make its sums again in all of its processes.
    let audited = ["audit={ lane = 10, noise_probe = 4, replay_every = 2, holdback = 0.3 }"];
    for changes in [&[][..], &uls, &els, &adaptive] {
        let file = file(&[changes, &audited].concat());
        let one = trained(&file, 1);
        assert!(one.2.iter().any(|line| !line.contains("null")), "{:?}", one.2);
        let replays = String::from_utf8(one.3.clone().expect("replays")).expect("text");
        assert!(replays.contains("R1") && !replays.contains("R5"), "{replays}");
        for size in [2, 3] {
            assert!(one == trained(&file, size), "{changes:?} on {size}");
        }
    }
}

/// Every process reads what adapters are added to for itself.
#[test]
#[ignore = "slow"]
fn adapters_are_trained_by_several_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = r#"family = "transformer", layers = 1, width = 8, heads = 2, context = 16"#;
    let public = format!(
        "name = \"public\"\nsteps = 2\nmodel = {{ {model} }}\n[data]\nmax_sentence_tokens = 15\n\
         source = {{ kind = \"synthetic\", users = 120, words = 40 }}\n[training]\nbatch_size = 4\nlearning_rate = 0.1\n"
    );
    let path = folder.path().join("public.toml");
    std::fs::write(&path, public).expect("a file");
    let options = options(folder.path());
    let public = PretrainFile::read(&path, &[]).expect("a file");
    pretrain(&public, &options, &Silent).expect("a public model");
    let mut file = file(&[
        &format!("model={{ {model}, lora = {{ rank = 2, alpha = 4.0 }} }}"),
        r#"initial_model="public/model.safetensors""#,
        "data.max_sentence_tokens=15",
        r#"user_update={ algorithm = "uls", group_size = 3 }"#,
    ]);
    file.base = folder.path().to_owned();
    let one = trained(&file, 1);
    assert!(one == trained(&file, 2));
}

#[test]
fn secure_sums_stay_in_one_process() {
    let file = file(&[
        r#"aggregation={ sum = "plain", encoding = { kind = "identity" }, min_clients = 2, max_clients = 60 }"#,
        r#"cohort.sampling="fixed_size""#,
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let (world, options) = (World::new(2, 1), options(folder.path()));
    let refused = undertone_run::train_as_leader(&file, &options, &Thread { rank: 0, world }, &Silent)
        .expect_err("a refusal");
    assert!(refused.to_string().contains("`aggregation`"), "{refused}");
}
