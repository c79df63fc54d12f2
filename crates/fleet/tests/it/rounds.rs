//! Rounds of real devices with a real service: ends and exports.

mod on_postgres;
mod world;

use std::collections::BTreeSet;

use undertone_device::Ended;
use undertone_protocol::{Code, TaskState, Verdict};
use undertone_service::identity::Identity;

use undertone_service::room::ReleasedScores;

use world::{EVALUATION, PLAIN, SECURE, SimDevice, World};

#[test]
fn a_plain_task_ends_and_its_export_verifies() {
    let mut world = World::new(PLAIN, 30, Identity::Certificate);
    world.run_until_round(3);
    world.step();
    let store = world.service.shared().store.clone();
    assert_eq!(store.task(world.task).unwrap().state, TaskState::Completed);
    // Each device's own memory agrees with the ledger: nobody more often than twice, nor in two rounds running.
    let ledger = store.ledger(world.task, 0).unwrap();
    assert_eq!(ledger.len(), 4);
    for device in &world.devices {
        let rounds: Vec<u64> = device.memory.participations.iter().map(|row| row.round).collect();
        assert!(
            rounds.len() <= 2 && rounds.windows(2).all(|pair| pair[1] >= pair[0] + 2),
            "{rounds:?}"
        );
    }
    let included = |device: &SimDevice| {
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
    let text = SECURE.replace("identity = \"dev\"", "identity = \"certificate\"");
    let mut world = World::new(&text, 40, Identity::Certificate);
    world.run_until_round(2);
    world.step();
    world.exports();
}

#[test]
#[ignore = "slow"]
fn a_task_of_secure_sums_ends_and_its_export_verifies() {
    let mut world = World::new(SECURE, 40, Identity::Dev);
    world.run_until_round(2);
    world.step();
    let state = world.service.shared().store.task(world.task).unwrap().state;
    assert_eq!(state, TaskState::Completed);
    world.exports();
}

/// An evaluation with hardly any noise: its rates are those of the devices.
#[test]
fn an_evaluation_measures_the_released_model_on_withheld_text() {
    let mut world = World::new(PLAIN, 30, Identity::Certificate);
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
    world.exports_after_the_end();
}
