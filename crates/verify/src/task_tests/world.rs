//! A task with a small model, and its rounds made by hand as a service makes them.

use std::path::Path;
use std::sync::Arc;

use undertone_aggregation::BoundedSum;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{CloseError, Next, Opened, RunHead, Trained};
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::{
    AbandonReason, AbandonedAttempt, EndReason, Issuer, LedgerMode, PrivacyReport,
};
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::source::{Diagnostics, Gathered, Participants, RoundSum};
use undertone_coordinator::task::{LedgerPlace, Seeding, TaskFile, TaskPurpose};
use undertone_mechanisms::NoiseKey;
use undertone_models::SequenceModel;

use undertone_run_directory::error::Result;
use undertone_run_directory::initial_model::Training;
use undertone_run_directory::metrics::MetricsLine;
use undertone_run_directory::task::{self, TaskExport};

pub(super) const PLAIN: &str = r#"
name = "plain"
rounds = 6
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 6, population = 500 }
participation = { min_sep = 3, max_part = 2 }
privacy = { noise_multiplier = 4.0, delta = 1e-5, mechanism = { kind = "tree" } }
user_update = { batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
service = { group = { target = 4, min = 3 }, identity = "certificate" }
"#;

pub(super) const SECURE: &str = r#"
name = "secure"
rounds = 6
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 6, population = 500 }
participation = { min_sep = 3, max_part = 2 }
privacy = { noise_multiplier = 4.0, delta = 1e-5, mechanism = { kind = "blt", buffers = 2 } }
user_update = { batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
aggregation = { sum = "secagg", encoding = { kind = "rotated_rounding", scale = 1e4 }, min_clients = 4, max_clients = 8 }
service = { group = { target = 4, min = 3 }, identity = "attested" }
"#;

pub(super) const EVALUATION: &str = r#"
kind = "evaluate"
of = "plain"
name = "accuracy"
rounds = 6
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 6, population = 500 }
participation = { min_sep = 3, max_part = 2 }
privacy = { noise_multiplier = 3.0, delta = 1e-5, mechanism = { kind = "independent" } }
service = { group = { target = 4, min = 3 }, identity = "dev" }
"#;

const POPULATION: &str = "keyboard-en";
const ISSUERS: [[u8; 32]; 1] = [[7; 32]];
/// Users in a release.
const INCLUDED: u64 = 5;

/// A task before its first round.
pub(super) struct World {
    pub(super) file: TaskFile,
    words: Vec<u8>,
    plan: PrivacyPlan,
    mechanism: Option<Vec<u8>>,
    genesis: String,
    trainings: Vec<Training>,
    model: Arc<dyn SequenceModel>,
}

/// A task that has ended.
pub(super) struct Made<'a> {
    world: &'a World,
    pub(super) ledger: Vec<Vec<u8>>,
    pub(super) metrics: Vec<Vec<u8>>,
    parameters: Vec<f32>,
    epsilons: Vec<f64>,
}

impl World {
    pub(super) fn new(text: &str) -> Self {
        Self::changed(text, &[])
    }

    /// The task with `key = value` changes.
    pub(super) fn changed(text: &str, changes: &[(&str, &str)]) -> Self {
        let overrides: Vec<_> = changes
            .iter()
            .map(|(key, value)| format!("{key}={value}").parse().unwrap())
            .collect();
        let file: TaskFile =
            undertone_run_directory::config::parse_as(text, Path::new("task.toml"), &overrides).unwrap();
        let seeding = match file.seed {
            Some(_) => Seeding::ParityTest,
            None => Seeding::Refused,
        };
        file.validate(seeding).unwrap();
        let trainings = match &file.purpose {
            TaskPurpose::Train {
                initial_model: Some(_),
            } => vec![Training::Undescribed {}],
            _ => Vec::new(),
        };
        let words: Vec<u8> = (0..17)
            .flat_map(|word| format!("word{word}\n").into_bytes())
            .collect();
        let vocabulary = undertone_vocabulary::parse_words(Path::new("vocab.txt"), &words).unwrap();
        let plan = task::new_plan(&file, None, vocabulary.len(), &trainings, POPULATION).unwrap();
        let mechanism = task::mechanism_json(&plan).unwrap();
        let id = file.id(POPULATION).unwrap();
        Self {
            genesis: task::genesis(&id, mechanism.as_deref(), &words, &trainings).unwrap(),
            model: Arc::from(file.task.model.build(vocabulary.len()).unwrap()),
            file,
            words,
            plan,
            mechanism,
            trainings,
        }
    }

    /// The task after all of its rounds.
    pub(super) fn completed(&self) -> Made<'_> {
        self.made(self.file.task.rounds, EndReason::Completed)
    }

    /// The task after so many rounds. A second attempt makes every second one, and one that ends early ends with an attempt.
    pub(super) fn made(&self, rounds: u64, reason: EndReason) -> Made<'_> {
        let entropy = |round: u64| RoundEntropy::fresh([round as u8 + 1; 32]);
        let mut head = self.head(&entropy(100));
        let vocab_len = undertone_vocabulary::parse_words(Path::new("vocab.txt"), &self.words)
            .unwrap()
            .len();
        let start = task::start_record(&self.file, &self.plan, vocab_len).unwrap();
        let mut made = Made {
            world: self,
            ledger: Vec::new(),
            metrics: vec![serde_json::to_vec(&MetricsLine::Start(start)).unwrap()],
            parameters: Vec::new(),
            epsilons: Vec::new(),
        };
        for round in 0..rounds {
            let opened = head.open(None).unwrap();
            let sum = self.sum(&head, &opened);
            let gathered = Gathered {
                sum,
                who: self.who(round),
                lane: None,
                diagnostics: Diagnostics::default(),
            };
            let next: Next = head
                .close(opened, gathered, &entropy(round), &mut |_| ())
                .map_err(CloseError::why)
                .unwrap();
            let record = task::round_record(&next, 12.5);
            made.metrics
                .push(serde_json::to_vec(&MetricsLine::Round(record)).unwrap());
            made.epsilons.push(next.head.epsilon().unwrap().unwrap());
            made.ledger.push(next.line);
            head = next.head;
        }
        made.parameters = head.parameters().to_vec();
        let last = match reason {
            EndReason::Completed => Vec::new(),
            EndReason::Stopped | EndReason::Starved => vec![self.attempt(0, &[990, 980])],
        };
        made.ledger
            .push(head.end(reason, last, self.issuer(rounds)).unwrap().0);
        made
    }

    fn head(&self, first: &RoundEntropy) -> RunHead {
        let model = self.model.clone();
        let trained = match self.file.purpose {
            TaskPurpose::Evaluate { .. } => None,
            TaskPurpose::Train { .. } => Some(Trained {
                parameters: model.initial_params(3),
                optimizer: ServerOptimizer::new(self.file.task.server, model.layout(), self.file.task.rounds),
                identity: ModelIdentity::new(model.as_ref()),
                model,
            }),
        };
        RunHead::new(&self.file.task, self.plan.clone(), trained, &self.genesis, first).unwrap()
    }

    fn sum(&self, head: &RunHead, opened: &Opened) -> RoundSum {
        let dim = opened.bound().layout().len();
        if let Some(encoding) = head.plan().encoding() {
            let rotations = NoiseKey::from_bytes([6; 32]);
            let round = encoding.for_round(&rotations, opened.round()).unwrap();
            let mut residues = encoding.zeros();
            for user in 0..INCLUDED {
                let key = NoiseKey::from_bytes([user as u8; 32]);
                round
                    .encoder()
                    .encode(&vec![0.01; dim], 1.0, &key, &mut residues)
                    .unwrap();
            }
            return RoundSum::Modular {
                residues,
                included: INCLUDED,
                rotations,
            };
        }
        let sum = BoundedSum::new(opened.bound().clone());
        for _ in 0..INCLUDED {
            sum.add(&vec![0.01; dim], 1.0).unwrap();
        }
        RoundSum::Users { sum, bits: None }
    }

    /// Five users in the sum, of whom the first was in the sum three rounds before, one lost, and every second time two attempts.
    fn who(&self, round: u64) -> Participants {
        let survivors = self.file.task.aggregation.as_ref().map(|_| INCLUDED);
        if self.file.service.ledger == LedgerPlace::Device {
            return Participants {
                unnamed: Some(INCLUDED),
                survivors,
                issuer: self.issuer(round),
                mode: Some(LedgerMode::DeviceLedger),
                ..Participants::default()
            };
        }
        let own = 10 * round;
        let first = if round >= 3 { own - 30 } else { own };
        // Out of order, as they came.
        let included = [own + 4, own + 3, own + 2, own + 1, first];
        Participants {
            names: included.map(ParticipantId::new).to_vec(),
            lost: vec![ParticipantId::new(own + 5)],
            attempts: match round % 2 {
                0 => Vec::new(),
                _ => vec![self.attempt(0, &[own + 7, own + 6]), self.attempt(1, &[own + 8])],
            },
            survivors,
            issuer: self.issuer(round),
            mode: Some(match self.file.seed {
                Some(_) => LedgerMode::ParityTest,
                None => LedgerMode::Service,
            }),
            ..Participants::default()
        }
    }

    /// The issuer, whose key is replaced before the fourth round.
    fn issuer(&self, round: u64) -> Option<Issuer> {
        let keys: &[[u8; 32]] = match round {
            0..3 => &[ISSUERS[0]],
            _ => &[[8; 32], ISSUERS[0]],
        };
        let vouched = self.file.service.identity != undertone_coordinator::task::IdentityLevel::Dev;
        vouched.then(|| Issuer::new(&ISSUERS[0], keys))
    }

    fn attempt(&self, number: u32, users: &[u64]) -> AbandonedAttempt {
        AbandonedAttempt {
            attempt: number,
            reason: AbandonReason::Few,
            participants: users.iter().map(|&user| ParticipantId::new(user)).collect(),
            row_spent: false,
        }
    }
}

impl Made<'_> {
    pub(super) fn export(&self, folder: &Path) -> Result<PrivacyReport> {
        let world = self.world;
        let dev = world.file.service.identity == undertone_coordinator::task::IdentityLevel::Dev;
        TaskExport {
            file: &world.file,
            population: POPULATION,
            issuers: if dev { &[] } else { &ISSUERS },
            vocabulary: &world.words,
            plan: &world.plan,
            mechanism: world.mechanism.as_deref(),
            trainings: &world.trainings,
            ledger: &self.ledger,
            metrics: &self.metrics,
            model: match world.file.purpose {
                TaskPurpose::Train { .. } => Some((world.model.as_ref(), &self.parameters)),
                TaskPurpose::Evaluate { .. } => None,
            },
        }
        .write(folder)
    }

    /// States the running epsilon, times a factor, in the record of a round.
    pub(super) fn state_epsilon(&mut self, round: usize, factor: f64) {
        let line = &mut self.metrics[round + 1];
        let mut record: serde_json::Value = serde_json::from_slice(line).unwrap();
        record["epsilon"] = (self.epsilons[round] * factor).into();
        *line = serde_json::to_vec(&record).unwrap();
    }
}
