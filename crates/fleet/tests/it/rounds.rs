//! Rounds of real devices with a real service: ends and exports.

mod on_postgres;

use std::collections::BTreeSet;

use undertone_device::Ended;
use undertone_protocol::{Code, TaskState, Verdict};
use undertone_service::room::ReleasedScores;
use undertone_service_testing::{Device, World, changed, secure};

const EVALUATION: &str = r#"
kind = "evaluate"
of = "words"
loss_cap = 10.0
name = "words-accuracy"
rounds = 1
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 1, max_part = 1 }
privacy = { noise_multiplier = 1.0, delta = 1e-6, mechanism = { kind = "blt", buffers = 2 } }

[service]
over_selection = 1.5
group = { target = 4, min = 4 }
deadlines = { select = "60s", report = "120s", attempt = "300s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

/// A task of secure sums whose devices name their subjects themselves.
fn self_asserted() -> String {
    changed(&secure(), "service.identity = \"dev\"")
}

#[test]
fn a_plain_task_ends_and_its_export_verifies() {
    let mut world = World::new().devices(30).start();
    world.run_until_round(3);
    world.step();
    assert_eq!(world.state(), TaskState::Completed);
    // Each device's own memory agrees with the ledger: nobody more often than twice, nor in two rounds running.
    assert_eq!(world.ledger().len(), 4);
    world.keeps_apart(2, 2);
    let included = |device: &Device| {
        device
            .ends
            .iter()
            .filter(|end| matches!(end, Ended::Reported(Some(Verdict::Included))))
            .count()
    };
    assert!(world.devices.iter().map(included).sum::<usize>() > 0);
    let refused: BTreeSet<String> = world
        .devices
        .iter()
        .flat_map(|device| &device.ends)
        .filter(|end| {
            matches!(
                end,
                Ended::Refused(_) | Ended::Lost(Code::Malformed, _) | Ended::NotTrained(_)
            )
        })
        .map(|end| format!("{end:?}"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    world.exports();
}

#[test]
#[ignore = "slow"]
fn a_task_of_certified_secure_sums_ends_and_its_export_verifies() {
    let mut world = World::new().task(&secure()).devices(40).start();
    world.run_until_round(2);
    world.step();
    world.exports();
}

#[test]
#[ignore = "slow"]
fn a_task_of_secure_sums_ends_and_its_export_verifies() {
    let mut world = World::new().task(&self_asserted()).devices(40).start();
    world.run_until_round(2);
    world.step();
    assert_eq!(world.state(), TaskState::Completed);
    world.exports();
}

/// An evaluation with hardly any noise: its rates are those of the devices.
#[test]
fn an_evaluation_measures_the_released_model_on_withheld_text() {
    let mut world = World::new().devices(30).start();
    world.run_until_round(3);
    world.step();
    let trained = world.released();
    world.evaluate(EVALUATION);
    world.run_until_round(1);
    let rates: ReleasedScores = serde_json::from_slice(&world.released()).unwrap();
    let digest: String = undertone_protocol::digest_of(&trained)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(rates.model, digest);
    assert!(rates.included >= 8 && rates.standard_error < 0.5);
    let sigmas = 6.0 * rates.standard_error;
    // Six standard deviations: a false alarm comes once in 10^8 runs.
    for rate in [rates.top1, rates.in_vocabulary_top1] {
        assert!((-sigmas..=1.0 + sigmas).contains(&rate), "{rates:?}");
    }
    // The model has seen this text three times at most, so its loss is near that of a uniform guess over 13 ids.
    assert!(
        (rates.capped_loss - 13f64.ln()).abs() < 1.0 + 10.0 * sigmas,
        "{rates:?}"
    );
    world.step();
    world.exports();
}
