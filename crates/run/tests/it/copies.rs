//! Copies of a run with other users, which an audit with canaries that have text attacks: they have the noise of the run.

use undertone_audit::text::{check_copy, fix_rates};

use crate::support::{config, train};

const ESTIMATE: &str = "estimate={population=100000,users_per_round=100}";
const SCHEDULE: &str = "schedule=[{from_round=4,noise_multiplier=3.0},{from_round=7,clip_norm=0.2}]";
const WEIGHTS: [&str; 2] = [
    "user_update.weight_cap=5.0",
    "estimator={kind=\"fixed_denominator\",expected_weight=6.0}",
];

#[test]
#[ignore = "slow"]
fn a_copy_has_the_noise_of_its_run_and_is_refused_with_another() {
    let kinds: [&[&str]; 5] = [
        &[],
        &[SCHEDULE],
        &[ESTIMATE],
        &[ESTIMATE, SCHEDULE],
        &[ESTIMATE, WEIGHTS[0], WEIGHTS[1]],
    ];
    for changes in kinds {
        let (_runs, run) = train(&config(changes), 2);
        let more: Vec<&str> = changes.iter().copied().chain(["data.source.users=70"]).collect();
        let mut copy = config(&more);
        fix_rates(&run.run_dir, &mut copy.task).unwrap();
        assert_eq!(copy.task.estimate, None);
        let (_copies, copied) = train(&copy, 2);
        check_copy(&run.run_dir, &copied.run_dir).unwrap();
        // As it was before: the plan scales the noise of the ledger once more.
        if changes.contains(&ESTIMATE) {
            copy.task.estimate = config(changes).task.estimate;
            let (_others, other) = train(&copy, 2);
            let error = check_copy(&run.run_dir, &other.run_dir).unwrap_err().to_string();
            assert!(
                error.contains("round 0: expected the noise_multiplier"),
                "{changes:?}: {error}"
            );
        }
        // Without fixed rates, ten users more have another denominator.
        if !changes.contains(&WEIGHTS[0]) {
            let (_others, other) = train(&config(&more), 2);
            assert!(check_copy(&run.run_dir, &other.run_dir).is_err(), "{changes:?}");
        }
    }
}
