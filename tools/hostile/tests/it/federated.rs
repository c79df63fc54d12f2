//! Mutated messages, plans, certificates, task files and uploads of the federated service: each is accepted or refused, and no reader
//! panics or breaks a promise.

use undertone_hostile::federated::{TARGETS, fuzz, honest};
use undertone_hostile::mutant;

/// Inputs of all targets together; more where `UNDERTONE_INPUTS` says so.
const INPUTS: u64 = 100_000;

#[test]
fn honest_inputs_of_the_service_are_accepted() {
    for target in TARGETS {
        for (place, (_, bytes)) in honest(target).iter().enumerate() {
            assert!(fuzz(target, bytes), "{target} {place}");
        }
    }
}

#[test]
#[ignore = "slow"]
fn no_mutated_input_of_the_service_does_more_than_be_refused() {
    let inputs = std::env::var("UNDERTONE_INPUTS")
        .ok()
        .and_then(|inputs| inputs.parse().ok());
    let each = inputs.unwrap_or(INPUTS) / TARGETS.len() as u64;
    for target in TARGETS {
        let honest = honest(target);
        let started = std::time::Instant::now();
        let mut accepted = 0;
        for index in 0..each {
            let (syntax, bytes) = &honest[(index % honest.len() as u64) as usize];
            accepted += u64::from(fuzz(target, &mutant(*syntax, bytes, 22, index)));
        }
        println!(
            "{target}: {each} inputs, {accepted} accepted, {:.1} s",
            started.elapsed().as_secs_f64()
        );
        // Mutations that are all refused at once reach nothing.
        assert!(
            accepted > each / 100 && accepted < each,
            "{target}: {accepted} of {each} accepted"
        );
    }
}
