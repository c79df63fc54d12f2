use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_protocol::{Label, TaskState, digest_of, write};
use undertone_service::test_world::{Kind as Store, World};
use undertone_store::{NewAttempt, Release};

use super::*;

const EVALUATION: &str = r#"
kind = "evaluate"
of = "words"
loss_cap = 10.0
name = "words-accuracy"
rounds = 2
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 1, max_part = 2 }
privacy = { noise_multiplier = 1.0, delta = 1e-6, mechanism = { kind = "tree" } }

[service]
group = { target = 4, min = 4 }
"#;

fn dashboard(world: &World) -> Dashboard {
    Dashboard::new(
        world.service.clone(),
        "unused".into(),
        [0; 32],
        Arc::default(),
        Arc::default(),
    )
}

/// Commits and publishes a release of a task with this model.
fn release(world: &World, task: TaskId, model: &[u8], line: &[u8]) {
    let shared = world.service.shared();
    let row = shared.store.task(task).unwrap();
    let lease = shared.store.lease(task, "test", 60_000).unwrap().unwrap();
    let attempt = NewAttempt {
        round: row.head_round,
        target: 8,
        select_until: u64::MAX / 4,
        report_until: u64::MAX / 4,
    };
    let attempt = shared.store.open_attempt(&lease, &attempt).unwrap();
    shared.store.reserve(&lease, attempt, 4).unwrap();
    let metrics =
        br#"{"kind":"round","round":0,"cohort_size":4,"cohort_weight":4.0,"clip_norm":1.0,"release_norm":1.0,
        "noise_std":0.5,"signal_to_noise":null,"epsilon":null,"seconds":2.5}"#;
    let first = 4 * row.head_round;
    let release = Release {
        attempt,
        round: row.head_round,
        included: (first..first + 4).map(ParticipantId::new).collect(),
        lost: Vec::new(),
        line: line.to_vec(),
        digest: hex(&digest_of(line)),
        previous: row.chain,
        model: shared.blobs.put(&mut &model[..]).unwrap().digest,
        state: None,
        noise_key: None,
        metrics: metrics.to_vec(),
    };
    shared.store.commit_release(&lease, &release).unwrap();
    let head = Head {
        task: task.0.to_vec(),
        round: row.head_round + 1,
        model_sha256: release.model.to_vec(),
        ..Head::default()
    };
    let signed = shared.keys.head(task).sign(Label::Head, write(&head));
    shared
        .blobs
        .create_head(task, row.head_round + 1, &write(&signed))
        .unwrap();
    shared.store.published(task, row.head_round + 1).unwrap();
    shared.store.hand_back(lease).unwrap();
}

#[test]
fn a_private_evaluation_stands_at_the_round_of_the_model_that_it_measured_with_its_error() {
    let world = World::new(Store::Memory, 4);
    let shared = world.service.shared();
    let training = world.room.task().id;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vocab.txt"), "word0\nword1\nword2\nword3\n").unwrap();
    let file: TaskFile =
        undertone_run_directory::task::parse(EVALUATION, Path::new("task.toml"), Seeding::Refused).unwrap();
    let id = undertone_service::task::create(
        &file,
        folder.path(),
        "people",
        &shared.keys,
        shared.store.as_ref(),
        shared.blobs.as_ref(),
    )
    .unwrap();
    shared
        .store
        .set_state(id, TaskState::Draft, TaskState::Active, "test", "")
        .unwrap();
    let before = shared.store.task(training).unwrap().task.model;
    world.service.close();
    release(&world, training, b"a trained model", b"line 1");
    let after = shared.store.task(training).unwrap().head_model;
    for (model, top1, line) in [(before, 0.125, &b"line 2"[..]), (after, 0.25, &b"line 3"[..])] {
        let rates = ReleasedScores {
            model: hex(&model),
            included: 4,
            top1,
            capped_loss: 3.5,
            in_vocabulary_top1: 0.5,
            standard_error: 0.0625,
        };
        release(&world, id, &serde_json::to_vec(&rates).unwrap(), line);
    }
    let shown = dashboard(&world);
    for (task, own) in [(training, false), (id, true)] {
        let view = ModelView::of(&shown, &task.to_string()).unwrap();
        let [one] = &view.evaluations[..] else {
            panic!("{} evaluations", view.evaluations.len())
        };
        assert_eq!((one.name.as_str(), one.own), ("words-accuracy", own));
        let points: Vec<_> = one
            .points
            .iter()
            .map(|point| (point.round, point.evaluation, point.top1, point.standard_error))
            .collect();
        assert_eq!(points, [(Some(0), 0, 0.125, 0.0625), (Some(1), 1, 0.25, 0.0625)]);
    }
    assert_eq!(ModelView::of(&shown, "words").unwrap().rounds.len(), 1);
}
