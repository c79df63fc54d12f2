//! Devices that break the protocol in every known way, against the real service over its routes (test 18 of the design).
//!
//! | claim | shown by |
//! |---|---|
//! | a plain sum moves by at most `C / m` per malicious device | the released model, less the honest one-hot updates |
//! | the honest updates are in a secure sum once each | the same, for kinds whose vectors are no poison |
//! | no group is kept waiting beyond its deadline | the age of every attempt, at every turn |
//! | culprits are named | the warnings of the service |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_coordinator::record::{LedgerEntry, LedgerLine};
use undertone_fleet::{Fleet, FleetConfig, InProcess, Malice, Malicious, Updates};
use undertone_protocol::TaskState;
use undertone_service::server::Service;
use undertone_service_testing::{START, evidence, fleet_clock, heard, keys, shared};
use undertone_store::{ManualClock, Store as _};

use super::durable::Durable;
use super::template::{Rules, Sum, Template};

const DEVICES: usize = 60;

/// The deadline of an attempt, and the step of the fleet's clock.
const ATTEMPT: u64 = 90_000;
const STEP: u64 = 500;

/// The end of a play.
struct Played {
    entry: LedgerEntry,
    /// The released update, in units of `C / m`.
    moved: Vec<f64>,
    /// The subjects in the sum.
    included: BTreeSet<usize>,
    malicious: BTreeSet<usize>,
    warnings: Vec<String>,
    refusals: Vec<String>,
}

/// Two rounds of this kind of sum with a part of malicious devices. The first of them is looked at.
fn play(template: &Template, kind: Malice, fraction: f64, seed: u64) -> Played {
    let case = format!("{:?}, {}", template.rules.sum, kind.name());
    let manual = ManualClock::at(START);
    let durable = Arc::new(Durable::new(template.stores(&manual, |_| ())));
    let shared = shared(durable.clone(), durable.clone(), "test");
    let service = Arc::new(Service::new(shared, template.rules.identity()).unwrap());
    service.tick().unwrap();
    let config = FleetConfig {
        seed,
        clock: fleet_clock(move |now| manual.set(now)),
        enrolment: evidence(keys(), template.rules.identity()),
        max_pause_ms: 5_000,
        updates: Updates::OneHot,
        malicious: vec![Malicious { fraction, kind }],
        ..FleetConfig::new(template.setup.clone(), DEVICES)
    };
    let users: Vec<Vec<Vec<u32>>> = vec![vec![vec![3, 1]; 4]; DEVICES];
    let fleet = Fleet::new(config, users, InProcess::new(service.clone()).unwrap()).unwrap();
    fleet.enrol().unwrap();
    let (id, started) = (template.new_task.id, Instant::now());
    let (_, warnings) = heard(|| {
        fleet
            .run_until(|| {
                service.tick().unwrap();
                let age = service.room(id).map_or(0, |room| room.attempt_age());
                assert!(age <= ATTEMPT + STEP, "{case}: an attempt is {age} ms old");
                assert!(
                    started.elapsed() < Duration::from_secs(300),
                    "{case}: {:#?}",
                    fleet.statistics()
                );
                durable.task(id).unwrap().state != TaskState::Active
            })
            .unwrap()
    });
    let state = durable.task(id).unwrap().state;
    assert_eq!(
        state,
        TaskState::Completed,
        "{case}: {} {:#?}",
        durable.last_note(),
        fleet.statistics()
    );
    let lines = durable.ledger(id, 0).unwrap();
    let LedgerLine::Round(entry) = LedgerLine::read(&lines[0]).unwrap() else {
        panic!("{case}: the first line is that of a round");
    };
    let release = durable.releases()[0].attempt;
    let after = template.parameters(&durable.models(release)[0]);
    let moved = template.sum(0, &template.initial(), &after);
    let issuer = keys().issuer().public();
    let names = fleet.subject_names();
    let pseudonyms = names.iter().map(|name| keys().pseudonym(id, &issuer, name));
    let pseudonyms: Vec<_> = pseudonyms.collect();
    let rows = fleet.participations();
    let included = entry.participants.iter().map(|user| {
        let device = |row: &&undertone_fleet::Remembered| pseudonyms[row.device] == *user;
        rows.iter().find(device).unwrap().subject
    });
    let malicious = fleet
        .malice()
        .into_iter()
        .enumerate()
        .filter(|(_, malice)| malice.is_some());
    Played {
        moved,
        included: included.collect(),
        malicious: malicious.map(|(device, _)| device).collect(),
        entry: *entry,
        warnings: warnings.iter().map(|fields| format!("{fields:?}")).collect(),
        refusals: fleet.statistics().total.ends.into_keys().collect(),
    }
}

fn template(sum: Sum) -> Template {
    let rules = Rules {
        cells: 5,
        sum,
        ..Rules::plain(2, 16, 8, 1, 1)
    };
    let template = Template::new(rules, vec![0]);
    assert!(template.length() > DEVICES, "each subject has a coordinate");
    template
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
#[ignore = "slow"]
fn no_malicious_device_moves_a_plain_sum_by_more_than_the_bound() {
    let template = template(Sum::Plain);
    let rounding = 0.01;
    for (place, kind) in Malice::ALL.into_iter().enumerate() {
        let played = play(&template, kind, 0.25, 20 + place as u64);
        let mut rest = played.moved.clone();
        for subject in played.included.difference(&played.malicious) {
            rest[*subject] -= 1.0;
        }
        let evil = played.included.intersection(&played.malicious).count();
        let rest = norm(&rest);
        println!(
            "{}: {evil} in the sum of {}, which move it by {rest:.2} C/m",
            kind.name(),
            played.included.len()
        );
        assert!(
            rest <= evil as f64 + rounding,
            "{}: {rest} by {evil} devices",
            kind.name()
        );
        assert_eq!(
            played.included.len(),
            played.entry.participants.len(),
            "each subject once"
        );
        assert!(!played.malicious.is_empty() && played.included.len() >= 8);
        let refused: &[&str] = match kind {
            Malice::OverNorm | Malice::Nan | Malice::Residues => &["lost_norm"],
            Malice::WrongLength => &["lost_range"],
            Malice::ReplayedCertificate => &["rejected_bad_signature"],
            _ => &[],
        };
        for end in refused {
            assert!(
                played.refusals.iter().any(|refusal| refusal == end),
                "{}: {:?}",
                kind.name(),
                played.refusals
            );
            assert_eq!(evil, 0, "{}", kind.name());
        }
    }
}

/// Kinds whose devices put other vectors into a secure sum than encoded updates: they can move any coordinate.
fn poisons(kind: Malice) -> bool {
    matches!(
        kind,
        Malice::OverNorm | Malice::Inflated | Malice::Nan | Malice::Residues | Malice::HalfModulus
    )
}

fn secure(sum: Sum) {
    let template = template(sum);
    let rounding = 0.01;
    for (place, kind) in Malice::ALL.into_iter().enumerate() {
        let played = play(&template, kind, 0.1, 40 + place as u64);
        assert!(
            played.moved.iter().all(|value| value.is_finite()),
            "{}",
            kind.name()
        );
        let false_shares = played
            .warnings
            .iter()
            .filter(|text| text.contains("a share was false"))
            .count();
        println!(
            "{}: {} in the sum, {} false shares named, attempts before: {}",
            kind.name(),
            played.included.len(),
            false_shares,
            played.entry.attempts.len()
        );
        if kind == Malice::FalseShares {
            // Only the first shares up to the threshold are used, so a play may use no false one. The seeds are fixed.
            let seeds = (1..4).map(|more| 40 + place as u64 + 100 * more);
            let named = |seed| {
                let played = play(&template, kind, 0.1, seed);
                played
                    .warnings
                    .iter()
                    .any(|text| text.contains("a share was false"))
            };
            assert!(
                false_shares > 0 || seeds.into_iter().any(named),
                "{:?}",
                played.warnings
            );
        } else {
            assert_eq!(false_shares, 0, "{}: {:?}", kind.name(), played.warnings);
        }
        if !poisons(kind) {
            let mut rest = played.moved.clone();
            played.included.iter().for_each(|subject| rest[*subject] -= 1.0);
            assert!(norm(&rest) <= rounding, "{}: {}", kind.name(), norm(&rest));
        }
        assert_eq!(
            played.included.len(),
            played.entry.participants.len(),
            "each subject once"
        );
    }
}

#[test]
#[ignore = "slow"]
fn no_malicious_device_stalls_a_secure_sum_of_a_curious_server() {
    secure(Sum::Curious { group: 12 });
}

#[test]
#[ignore = "slow"]
fn no_malicious_device_stalls_a_secure_sum_of_a_lying_server() {
    secure(Sum::Active { group: 12 });
}
