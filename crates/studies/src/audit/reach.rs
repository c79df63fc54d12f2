//! The reach of an attacker in rehearsals, as medians of seeded audits with 1,000 canaries each.

use undertone_coordinator::random::Randomness;
use undertone_coordinator::task::TaskConfig;

use super::lane::{LaneInputs, Size};
use super::mechanism::MechanismAudit;
use super::record::{ANY, Audit, Control, FDP, FINAL, ITERATES};

const AUDITS: u64 = 20;

fn task(more: &str) -> TaskConfig {
    let text = format!(
        r#"
        name = "rehearsed"
        model = {{ family = "dplm", embed = 4, hidden = 6 }}
        user_update = {{ algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }}
        clip = {{ kind = "flat", norm = 0.5 }}
        {more}"#
    );
    toml::from_str(&text).unwrap()
}

fn audits(task: &TaskConfig, control: Option<Control>, number: u64) -> Vec<Audit> {
    let audit = |seed: u64| {
        let mut passes = 0;
        let rehearsal = MechanismAudit {
            inputs: LaneInputs {
                task,
                strategy: None,
                users: 1000,
            },
            size: Size {
                canaries: 1000,
                probes: 16,
                directions: None,
                control,
            },
            config_sha256: "00",
            canaries: true,
        };
        let mut fresh = || {
            passes += 1;
            Ok(Randomness::seeded(1000 * passes + seed))
        };
        rehearsal.run(&mut fresh).unwrap()
    };
    (0..number).map(audit).collect()
}

/// The median over the audits of the bound of one estimator, over the claim.
fn reach(audits: &[Audit], adversary: &str, estimator: &str) -> f64 {
    let of = |audit: &Audit| {
        let mut bounds = audit.canaries.iter();
        let found = bounds.find(|bound| bound.adversary == adversary && bound.estimator == estimator);
        found.unwrap().epsilon_lower / audit.claim.as_ref().unwrap().epsilon
    };
    let mut all: Vec<f64> = audits.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// 1,000 rounds at a sampling probability of 0.01 and a noise multiplier of 1: a claim of 1.83 at 1e-5.
const POISSON: &str = r#"rounds = 1000
    cohort = { sampling = "poisson", sampling_probability = 0.01 }
    privacy = { noise_multiplier = 1.0, delta = 1e-5 }"#;

/// The floors are four fifths of the bounds that a simulation gave, because a median spreads.
fn poisson_canaries_reach_part_of_the_claim(number: u64) {
    let audits = audits(&task(POISSON), None, number);
    for (adversary, estimator, floor) in [
        (ITERATES, ANY, 0.2),
        (ITERATES, FDP, 0.3),
        (FINAL, ANY, 0.1),
        (FINAL, FDP, 0.13),
    ] {
        let got = reach(&audits, adversary, estimator);
        assert!(got >= floor && got < 1.0, "{adversary} {estimator}: {got}");
    }
    let secrets = |adversary: &str| {
        let bound = audits[0]
            .canaries
            .iter()
            .find(|bound| bound.adversary == adversary);
        bound.unwrap().unknown_to_attacker.join(", ")
    };
    assert_eq!(secrets(ITERATES), "coins, Poisson coins, noise key");
    assert_eq!(
        secrets(FINAL),
        "coins, Poisson coins, noise key, all models but the last"
    );
}

#[test]
#[ignore = "slow"]
fn poisson_canaries_show_part_of_the_claim_and_less_in_the_final_model() {
    poisson_canaries_reach_part_of_the_claim(3);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "a minute"]
    fn poisson_canaries_show_part_of_the_claim_in_twenty_audits() {
        poisson_canaries_reach_part_of_the_claim(AUDITS);
    }
}

/// The claim rests on the secrecy of the Poisson coins, so an attacker who knows them exceeds it: the instrument works.
#[test]
#[ignore = "slow"]
fn an_attacker_who_knows_the_poisson_coins_exceeds_the_claim() {
    let audits = audits(&task(POISSON), Some(Control::PoissonCoins), AUDITS);
    let exceeds = |audit: &&Audit| {
        let claim = audit.claim.as_ref().unwrap().epsilon;
        audit.canaries[0].headline && audit.canaries[0].epsilon_lower > claim
    };
    let beyond = audits.iter().filter(exceeds).count();
    assert!(beyond >= 19, "{beyond} of {AUDITS}");
    assert_eq!(audits[0].control, Some(Control::PoissonCoins));
    assert!((audits[0].statements.iter()).any(|text| text.contains("was told the rounds of each canary")));
    assert_eq!(audits[0].canaries[0].unknown_to_attacker, ["coins", "noise key"]);
}

fn schema(mechanism: &str) -> TaskConfig {
    task(&format!(
        r#"rounds = 204
        cohort = {{ sampling = "fixed_size", users_per_round = 25 }}
        participation = {{ min_sep = 34, max_part = 6 }}
        privacy = {{ noise_multiplier = 1.4, delta = 1e-5, mechanism = {mechanism} }}
        server = {{ optimizer = {{ kind = "sgd", momentum = 0.9 }} }}"#
    ))
}

/// Correlated noise cancels over the rounds, so that the final model tells nearly as much as all rounds.
#[test]
#[ignore = "slow"]
fn the_final_model_under_blt_noise_tells_half_of_what_all_rounds_tell() {
    let audits = audits(&schema(r#"{ kind = "blt", buffers = 3 }"#), None, AUDITS);
    let shift = |adversary| reach(&audits, adversary, "gaussian.shift");
    assert!(
        shift(FINAL) >= 0.5 * shift(ITERATES),
        "{} {}",
        shift(FINAL),
        shift(ITERATES)
    );
    assert!(shift(ITERATES) > 0.5, "{}", shift(ITERATES));
}

/// Independent noise adds up over all rounds, and a user is in few of them: the statement says how little can be shown.
#[test]
#[ignore = "slow"]
fn the_final_model_under_independent_noise_is_stated_to_tell_little() {
    let audits = audits(&schema(r#"{ kind = "independent" }"#), None, AUDITS);
    for audit in &audits {
        let claim = audit.claim.as_ref().unwrap().epsilon;
        let last = audit
            .canaries
            .iter()
            .find(|bound| bound.adversary == FINAL && bound.guesses.is_none());
        let most = last.unwrap().most_that_could_show.unwrap();
        assert!(most < 0.3 * claim, "{most} of {claim}");
        let stated =
            |text: &&String| text.starts_with("An attacker who sees the final model alone could show");
        assert_eq!(audit.statements.iter().filter(stated).count(), 1);
    }
}
