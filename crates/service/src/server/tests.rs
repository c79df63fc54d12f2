//! Check-ins of devices that were revoked, and of people who left.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_protocol::{Enrol, Label, Signer};
use undertone_store::Departure;

use super::*;
use crate::identity::Invitation;
use crate::identity::attest::NoAttestor;
use crate::identity::person::PersonLimits;
use crate::metrics;
use crate::test_world::{Kind, World};

const POPULATION: &str = "people";
const PATH: &str = "/v1/p/people/check-in";

/// The certificate of a device, which the store does not learn of.
fn certificate(world: &World, device: u8, subject: Digest32) -> Signed {
    let shared = world.service.shared();
    let issuer = Issuer::new(&shared.keys, POPULATION, world.service.identity());
    let (certificate, _) = issuer
        .enrol(&enrolment(world, device, subject), shared.store.now())
        .unwrap();
    certificate
}

fn enrolment(world: &World, device: u8, subject: Digest32) -> Enrol {
    let shared = world.service.shared();
    let signer = Signer::from_seed(&[device; 32]);
    let mut enrol = Enrol {
        device_key: signer.public().to_vec(),
        invitation: Invitation::new(subject, shared.store.now() + DAY).text(&shared.keys, POPULATION),
        ..Enrol::default()
    };
    enrol.proof = signer.proof(Label::Enrolment, &write(&enrol));
    enrol
}

/// Checks a device in: the code of the refusal, and none for a place.
fn check_in(world: &World, device: u8, certificate: &Signed, checkin: u8, eligible: bool) -> Option<Code> {
    let task = eligible.then(|| world.room.task().id.0.to_vec());
    let body = write(&CheckIn {
        checkin: vec![checkin; 16],
        eligible: task.into_iter().collect(),
        client_version: 1,
        certificate: Some(certificate.clone()),
        evidence: Vec::new(),
    });
    let signer = Signer::from_seed(&[device; 32]);
    let signature = RequestSignature::new(&signer, world.clock_now(), "POST", PATH, &body).header();
    let answer = world.service.check_in(POPULATION, &signature, PATH, &body);
    answer.err().map(|problem| problem.code())
}

fn key(device: u8) -> Digest32 {
    Signer::from_seed(&[device; 32]).public()
}

fn person(world: &World, subject: Digest32) -> Digest32 {
    let keys = &world.service.shared().keys;
    keys.person(POPULATION, &keys.issuer_name(), &subject)
}

#[test]
fn an_admitted_check_in_asks_the_store_nothing_apart() {
    let world = World::new(Kind::Sqlite, 20);
    // Figures are shown from ten on.
    for device in 1..=20 {
        let certificate = certificate(&world, device, [device; 32]);
        assert_eq!(check_in(&world, device, &certificate, device, true), None);
    }
    let shown = || metrics::text(&metrics::shown(world.service.metrics(), &BTreeMap::new()));
    assert!(shown().contains("\"admit\""), "{}", shown());
    assert!(!shown().contains("\"membership\""), "{}", shown());
    // Those that no task is asked for are asked for apart.
    for device in 1..=20 {
        let certificate = certificate(&world, device, [device; 32]);
        let refused = check_in(&world, device, &certificate, 100 + device, false);
        assert_eq!(refused, Some(Code::NoTask));
    }
    assert!(shown().contains("\"membership\""), "{}", shown());
}

#[test]
fn a_revoked_device_does_not_keep_the_other_devices_of_its_person_waiting() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let world = World::new(kind, 4);
        let rules = Admissions::new(Arc::new(NoAttestor)).with_person_limits(PersonLimits::default());
        world.service.admit_by(rules);
        let subject = [5; 32];
        let certificates = [1, 2].map(|device| {
            let body = write(&enrolment(&world, device, subject));
            world.service.enrol(POPULATION, &body).unwrap();
            certificate(&world, device, subject)
        });
        world.service.shared().store.revoke(&key(1), "operator").unwrap();
        let free = world.room.need();
        for checkin in 1..4 {
            let refused = check_in(&world, 1, &certificates[0], checkin, true);
            assert_eq!(refused, Some(Code::Revoked));
        }
        assert_eq!(world.room.need(), free);
        // The clock stands, so a check-in that was noted would be one too soon.
        assert_eq!(check_in(&world, 2, &certificates[1], 9, true), None);
        let early = check_in(&world, 2, &certificates[1], 10, true);
        assert_eq!(early, Some(Code::TooSoon));
    }
}

#[test]
fn a_departure_stands_above_every_other_refusal() {
    let old =
        "eligibility = { min_examples = 1, max_examples = 8, timer = \"1h\", min_client_version = 9 }\n";
    for kind in [Kind::Memory, Kind::Sqlite] {
        for (more, eligible, closed, other) in [
            ("", true, false, None),
            ("", false, false, Some(Code::NoTask)),
            (old, true, false, Some(Code::Upgrade)),
            ("", true, true, Some(Code::Busy)),
        ] {
            let world = World::with(kind, 4, more);
            let certificates = [1, 2, 3, 4].map(|device| certificate(&world, device, [device; 32]));
            let body = write(&enrolment(&world, 3, [3; 32]));
            world.service.enrol(POPULATION, &body).unwrap();
            let store = &world.service.shared().store;
            for (subject, how) in [(1, Departure::Left), (2, Departure::Revoked)] {
                let person = person(&world, [subject; 32]);
                store.depart(POPULATION, &person, how, "operator").unwrap();
            }
            store.revoke(&key(3), "operator").unwrap();
            world.service.closed.store(closed, Ordering::Release);
            let answer = |device: u8| {
                let certificate = &certificates[usize::from(device) - 1];
                check_in(&world, device, certificate, device, eligible)
            };
            let answers = [1, 2, 3, 4].map(answer);
            let gone = [Code::TooOften, Code::Revoked, Code::Revoked].map(Some);
            assert_eq!(answers, [gone[0], gone[1], gone[2], other], "{kind:?}");
        }
    }
}
