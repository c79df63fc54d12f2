//! Tasks and their models, in the sizes that the items ask for.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_models::ModelSpec;
use undertone_protocol::TaskState;
use undertone_service::data_folder;
use undertone_service::room::Shared;
use undertone_service::task::create;
use undertone_store::TaskId;

/// The population of all tasks.
pub(super) const POPULATION: &str = "bench";

/// The norm to which updates are clipped.
pub(super) const CLIP_NORM: f64 = 0.5;

/// Words that every vocabulary has beside those of its file.
const SPECIAL: usize = 3;

/// A model by its number of parameters.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// The value of the key `model` in a task file.
    pub(super) toml: String,
    pub(super) words: usize,
    pub(super) parameters: u64,
}

impl Model {
    /// A tied LSTM with a vocabulary that makes its number of parameters the nearest one below `parameters`.
    pub(super) fn of(parameters: u64) -> anyhow::Result<Self> {
        let (embed, hidden) = match parameters {
            1_000_000.. => (96, 256),
            10_000.. => (16, 16),
            _ => (4, 4),
        };
        let spec = ModelSpec::Dplm {
            embed,
            hidden,
            unit_norm: true,
        };
        let length = |words: usize| -> anyhow::Result<u64> { Ok(spec.layout(words + SPECIAL)?.len() as u64) };
        let (one, two) = (length(16)?, length(17)?);
        let more = parameters.saturating_sub(one) / (two - one);
        let words = 16 + usize::try_from(more)?;
        Ok(Self {
            toml: format!("{{ family = \"dplm\", embed = {embed}, hidden = {hidden} }}"),
            words,
            parameters: length(words)?,
        })
    }

    /// The next-word LSTM of the StackOverflow experiments.
    pub(super) fn stackoverflow() -> anyhow::Result<Self> {
        let spec = ModelSpec::StackOverflow {
            embed: 96,
            hidden: 670,
        };
        let words = 10_000;
        Ok(Self {
            toml: "{ family = \"stackoverflow\" }".to_owned(),
            words,
            parameters: spec.layout(words + SPECIAL)?.len() as u64,
        })
    }

    /// Bytes of an update or of the parameters.
    pub(super) fn bytes(&self) -> u64 {
        4 * self.parameters
    }

    fn vocabulary(&self) -> String {
        (0..self.words).fold(String::new(), |mut text, word| {
            // Writing into a string does not fail.
            let _ = writeln!(text, "w{word}");
            text
        })
    }
}

/// A task.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) model: Model,
    /// The words of the vocabulary, one per line; those of the model's number where there are none.
    pub(super) words: Option<String>,
    pub(super) rounds: u64,
    /// Number of reports that end a round, and of devices that are assigned.
    pub(super) goal: u64,
    pub(super) min_sep: u64,
    pub(super) max_part: u64,
    /// The clients of one secure sum that may be lost; a plain sum without it.
    pub(super) lost: Option<u64>,
}

impl Task {
    /// A task with a plain sum and this number of reports per round. A device takes part once.
    pub(super) fn plain(model: Model, goal: u64) -> Self {
        Self {
            model,
            words: None,
            rounds: 20,
            goal,
            min_sep: 20,
            max_part: 1,
            lost: None,
        }
    }

    /// The tables that a task file and a run file share.
    pub(super) fn tables(&self) -> String {
        let Self {
            model,
            rounds,
            min_sep,
            max_part,
            ..
        } = self;
        format!(
            "name = \"bench\"\nrounds = {rounds}\nmodel = {}\n\
             participation = {{ min_sep = {min_sep}, max_part = {max_part} }}\n\
             user_update = {{ algorithm = \"fedavg\", learning_rate = 0.5, batch_size = 16, epochs = 1 }}\n\
             clip = {{ kind = \"flat\", norm = {CLIP_NORM} }}\n\
             privacy = {{ noise_multiplier = 2.0, delta = 1e-7, mechanism = {{ kind = \"blt\", buffers = 4 }} }}\n\
             server = {{ optimizer = {{ kind = \"sgd\" }}, learning_rate = 1.0 }}\n",
            model.toml
        )
    }

    fn text(&self) -> String {
        let goal = self.goal;
        let aggregation = self.lost.map_or_else(String::new, |lost| {
            format!(
                "aggregation = {{ sum = \"secagg\", encoding = {{ kind = \"rotated_rounding\", scale = 10000.0 }}, \
                 min_clients = {}, max_clients = {goal} }}\n",
                goal - lost
            )
        });
        let least = self.lost.map_or(2, |lost| goal - lost);
        format!(
            "vocabulary = {{ kind = \"file\", path = \"vocab.txt\" }}\n\
             cohort = {{ sampling = \"check_in\", users_per_round = {goal}, population = 1000000 }}\n{}{aggregation}\n\
             [service]\nover_selection = 1.0\ngroup = {{ target = {goal}, min = {least} }}\n\
             deadlines = {{ select = \"3600s\", report = \"3600s\", lobby = \"600s\", keys = \"600s\", shares = \"600s\", \
             upload = \"600s\", unmask = \"600s\", attempt = \"7200s\" }}\n\
             eligibility = {{ min_examples = 1, max_examples = 64, timer = \"1s\" }}\n\
             budget = {{ cpu = \"600s\", upload_kbps_min = 1 }}\n\
             identity = \"dev\"\npace = {{ checkins_per_needed = 3.0, min_interval = \"1s\" }}\n",
            self.tables()
        )
    }

    fn file(&self) -> anyhow::Result<TaskFile> {
        let file =
            undertone_run_directory::task::parse(&self.text(), Path::new("bench.toml"), Seeding::Refused);
        file.context("the task of the benchmark")
    }

    /// Creates the task in a service and activates it.
    pub(super) fn create_in(&self, shared: &Shared) -> anyhow::Result<TaskId> {
        let base = tempfile::tempdir()?;
        let words = self.words.clone().unwrap_or_else(|| self.model.vocabulary());
        std::fs::write(base.path().join("vocab.txt"), words)?;
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let task = create(&self.file()?, base.path(), POPULATION, &shared.keys, store, blobs)?;
        store.set_state(task, TaskState::Draft, TaskState::Active, "bench", "")?;
        Ok(task)
    }

    /// Creates the task in a data folder, which a server opens later.
    pub(super) fn create(&self, folder: &Path) -> anyhow::Result<TaskId> {
        let shared = data_folder::open(folder, None)?;
        self.create_in(&shared)
    }
}
