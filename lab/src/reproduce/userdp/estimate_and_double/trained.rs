//! A model that was pre-trained, and the gradients of users at it.

use std::path::Path;

use undertone_coordinator::random::Randomness;
use undertone_data::{Corpus, NoProgress, Split};
use undertone_run::pretrain::{PretrainFile, pretrain};
use undertone_run::{RunFile, RunOptions, Silent};
use undertone_run_directory::files::names::MODEL_FILE;
use undertone_run_directory::initial_model::starting_parameters;
use undertone_studies::advise::probe::Probe;

use crate::reproduce::{Conditions, ReproduceError};

/// Users whose gradients are measured ([UserDP] section 6).
const PROBED: usize = 128;

/// Gradient norms and what they are of.
#[derive(Debug)]
pub(super) struct Measured {
    /// The name of the corpus of the measurement.
    pub(super) corpus: String,
    /// Users to sample from.
    pub(super) users: u64,
    /// `L(2^k)`, up to the largest group.
    pub(super) norms: Vec<f64>,
}

/// The corpora and how long to pre-train.
struct Plan {
    private: String,
    public: String,
    model: &'static str,
    steps: u32,
    name: &'static str,
}

impl Plan {
    fn new(conditions: &Conditions<'_>) -> Self {
        let Some(data) = conditions.data() else {
            return Self {
                private: r#"source = { kind = "synthetic", users = 3000, words = 200 }"#.to_owned(),
                public: r#"source = { kind = "synthetic", users = 400, words = 200 }"#.to_owned(),
                model: "family = \"dplm\"\nembed = 16\nhidden = 24",
                steps: 150,
                name: "the built-in population (pre-trained on its first 400 users)",
            };
        };
        let (file, steps, name) = if conditions.slow() {
            ("commits.parquet", 2000, "commit messages")
        } else {
            ("commits-small.parquet", 300, "commit messages, the small file")
        };
        let path = |file: &str| toml_text(&data.join(file));
        let vocabulary = format!(
            "vocabulary = {{ kind = \"public_corpus\", path = {}, size = 2000 }}",
            path("public-docs.parquet")
        );
        Self {
            private: format!(
                "source = {{ kind = \"parquet\", path = {}, time = \"timestamp\", split = \"split\" }}\n{vocabulary}",
                path(file)
            ),
            public: format!(
                "source = {{ kind = \"parquet\", path = {}, user = \"doc_id\" }}\n{vocabulary}\n\
                 split = {{ kind = \"held_out_users\", validation = 0.1, test = 0.0 }}",
                path("public-docs.parquet")
            ),
            model: "family = \"dplm\"\nembed = 48\nhidden = 96",
            steps,
            name,
        }
    }
}

/// A path as a TOML string.
fn toml_text(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

impl Measured {
    /// `largest` is a power of two.
    pub(super) fn new(conditions: &Conditions<'_>, largest: u64) -> Result<Self, ReproduceError> {
        let plan = Plan::new(conditions);
        let folder = tempfile::tempdir().map_err(|error| ReproduceError::folder(&error))?;
        let write = |name: &str, text: String| -> Result<_, ReproduceError> {
            let path = folder.path().join(name);
            std::fs::write(&path, text).map_err(|error| ReproduceError::folder(&error))?;
            Ok(path)
        };
        let Plan {
            private,
            public,
            model,
            steps,
            name,
        } = plan;
        let threads = rayon::current_num_threads();
        let public = write(
            "public.toml",
            format!(
                "name = \"public\"\nseed = 5\nsteps = {steps}\n[data]\n{public}\n[model]\n{model}\n[training]\nbatch_size = 64\n\
                 optimizer = {{ kind = \"adam\" }}\nlearning_rate = 0.004\nwarm_up_steps = 20\n[evaluation]\nevery = {steps}\n\
                 max_tokens = 2000\n"
            ),
        )?;
        let options = RunOptions {
            out: folder.path().to_owned(),
            threads,
            resume: false,
        };
        pretrain(&PretrainFile::read(&public, &[])?, &options, &Silent)?;
        let private = write(
            "private.toml",
            format!(
                "name = \"private\"\nrounds = 1\n[data]\n{private}\n[model]\n{model}\n[cohort]\nsampling = \"poisson\"\n\
                 users_per_round = 32\n[user_update]\nalgorithm = \"uls\"\ngroup_size = 1\n[clip]\nkind = \"flat\"\nnorm = 1.0\n"
            ),
        )?;
        let file = RunFile::read(&private, &[])?;
        let corpus = Corpus::open(&file.config.data, &file.base, folder.path(), &NoProgress)
            .map_err(undertone_run::RunError::from)?;
        let model = file.config.task.model.build(corpus.vocab().len())?;
        let start = folder.path().join("public").join(MODEL_FILE);
        let randomness = Randomness::seeded(1);
        let parameters = starting_parameters(
            &file.config.task.model,
            Some(&start),
            folder.path(),
            model.as_ref(),
            corpus.vocab(),
            &randomness,
        )
        .map_err(undertone_run::RunError::from)?;
        let users = corpus.partition(Split::Train);
        let mut probe = Probe::new(model.as_ref(), &parameters, &users, PROBED, &randomness, threads)?;
        let norms = (0..=largest.ilog2())
            .map(|doublings| probe.median_norm(1 << doublings, &|| ()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            corpus: format!("{name}, {} users", users.num_users()),
            users: users.num_users() as u64,
            norms,
        })
    }
}
