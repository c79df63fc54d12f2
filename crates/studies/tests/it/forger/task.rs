//! A task of the service, whose rounds are made by hand as a service makes them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_aggregation::BoundedSum;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{CloseError, RunHead, Trained};
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::{AbandonReason, AbandonedAttempt, EndReason, Issuer, LedgerMode};
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::source::{Diagnostics, Gathered, Participants, RoundSum};
use undertone_coordinator::task::Seeding;
use undertone_models::SequenceModel;
use undertone_run_directory::metrics::MetricsLine;
use undertone_run_directory::task::{self, TaskExport};

const TASK: &str = r#"
name = "kept"
rounds = 4
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 2, hidden = 3 }
cohort = { sampling = "check_in", users_per_round = 6, population = 500 }
participation = { min_sep = 3, max_part = 2 }
privacy = { noise_multiplier = 4.0, delta = 1e-5, mechanism = { kind = "tree" } }
user_update = { batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
service = { group = { target = 4, min = 3 }, identity = "attested" }
"#;

const POPULATION: &str = "keyboard-xx";
const ISSUER: [u8; 32] = [7; 32];

/// The directory of a task that has ended.
pub(crate) fn exported(out: &Path) -> PathBuf {
    let file = task::parse(TASK, Path::new("task.toml"), Seeding::Refused).unwrap();
    let words: Vec<u8> = (0..9)
        .flat_map(|word| format!("word{word}\n").into_bytes())
        .collect();
    let vocabulary = undertone_vocabulary::parse_words(Path::new("vocab.txt"), &words).unwrap();
    let plan = task::new_plan(&file, None, vocabulary.len(), &[], POPULATION).unwrap();
    let mechanism = task::mechanism_json(&plan).unwrap();
    let id = file.id(POPULATION).unwrap();
    let genesis = task::genesis(&id, mechanism.as_deref(), &words, &[]).unwrap();
    let model: Arc<dyn SequenceModel> = Arc::from(file.task.model.build(vocabulary.len()).unwrap());
    let entropy = |round: u64| RoundEntropy::fresh([round as u8 + 1; 32]);
    let trained = Trained {
        parameters: model.initial_params(3),
        optimizer: ServerOptimizer::new(file.task.server, model.layout(), file.task.rounds),
        identity: ModelIdentity::new(model.as_ref()),
        model: model.clone(),
    };
    let mut head = RunHead::new(&file.task, plan.clone(), Some(trained), &genesis, &entropy(100)).unwrap();
    let start = task::start_record(&file, &plan, vocabulary.len()).unwrap();
    let mut metrics = vec![serde_json::to_vec(&MetricsLine::Start(start)).unwrap()];
    let mut ledger = Vec::new();
    for round in 0..file.task.rounds {
        let opened = head.open(None).unwrap();
        let sum = BoundedSum::new(opened.bound().clone());
        for _ in 0..5 {
            sum.add(&vec![0.01; opened.bound().layout().len()], 1.0).unwrap();
        }
        let gathered = Gathered {
            sum: RoundSum::Users { sum, bits: None },
            who: participants(round),
            lane: None,
            diagnostics: Diagnostics::default(),
        };
        let next = head
            .close(opened, gathered, &entropy(round), &mut |_| ())
            .map_err(CloseError::why)
            .unwrap();
        let record = MetricsLine::Round(task::round_record(&next, 12.5));
        metrics.push(serde_json::to_vec(&record).unwrap());
        ledger.push(next.line);
        head = next.head;
    }
    let parameters = head.parameters().to_vec();
    ledger.push(
        head.end(EndReason::Completed, Vec::new(), Some(issuer()))
            .unwrap()
            .0,
    );
    let folder = out.join("exported");
    let export = TaskExport {
        file: &file,
        population: POPULATION,
        issuers: &[ISSUER],
        vocabulary: &words,
        plan: &plan,
        mechanism: mechanism.as_deref(),
        trainings: &[],
        ledger: &ledger,
        metrics: &metrics,
        model: Some((model.as_ref(), &parameters)),
    };
    export.write(&folder).unwrap();
    folder
}

fn issuer() -> Issuer {
    Issuer::new(&ISSUER, &[ISSUER])
}

/// Five users in the sum, of whom the first was in the sum three rounds before, one lost, and every second time an attempt before.
fn participants(round: u64) -> Participants {
    let own = 10 * round;
    let first = if round >= 3 { own - 30 } else { own };
    let attempt = AbandonedAttempt {
        attempt: 0,
        reason: AbandonReason::Few,
        participants: [own + 6, own + 7].map(ParticipantId::new).to_vec(),
        row_spent: false,
    };
    Participants {
        names: [own + 4, own + 3, own + 2, own + 1, first]
            .map(ParticipantId::new)
            .to_vec(),
        lost: vec![ParticipantId::new(own + 5)],
        attempts: if round % 2 == 1 { vec![attempt] } else { Vec::new() },
        mode: Some(LedgerMode::Service),
        issuer: Some(issuer()),
        ..Participants::default()
    }
}
