//! Limits of one person, invitations that are withdrawn, and people who are revoked.

use std::sync::Arc;

use undertone_protocol::{Code, Enrol, Label, Signer, write};
use undertone_service::identity::attest::{Admissions, NoAttestor};
use undertone_service::identity::person::PersonLimits;
use undertone_service::identity::{DAY, Identity, Invitation};

use super::super::{Answer, Operation};
use super::World;

/// Enrols a device by an invitation of a subject.
fn enrol(world: &World, device: u8, subject: u8) -> Option<Code> {
    let signer = Signer::from_seed(&[device; 32]);
    let mut enrol = Enrol {
        device_key: signer.public().to_vec(),
        invitation: invitation(world, subject),
        ..Enrol::default()
    };
    enrol.proof = signer.proof(Label::Enrolment, &write(&enrol));
    world
        .service
        .enrol("a", &write(&enrol))
        .err()
        .map(|problem| problem.code())
}

fn invitation(world: &World, subject: u8) -> String {
    let shared = world.service.shared();
    Invitation::new([subject; 32], shared.store.now() + DAY).text(&shared.keys, "a")
}

fn with_limits(devices: u32, enrolments: u32, per_day: u32) -> World {
    let world = World::new(Identity::Certificate);
    world.create("a").unwrap();
    let limits = PersonLimits {
        devices,
        enrolments,
        ..PersonLimits::default()
    };
    let rules = Admissions::new(Arc::new(NoAttestor))
        .with_limits(per_day, 3)
        .with_person_limits(limits);
    world.service.admit_by(rules);
    world
}

#[test]
fn one_invitation_enrols_a_limited_number_of_devices_and_leaves_the_day_to_others() {
    let world = with_limits(2, 3, 4);
    assert_eq!(enrol(&world, 1, 5), None);
    assert_eq!(enrol(&world, 2, 5), None);
    for device in 3..60 {
        assert_eq!(enrol(&world, device, 5), Some(Code::TooOften));
    }
    // A device that has a place enrols again, and others still have the day.
    assert_eq!(enrol(&world, 1, 5), None);
    assert_eq!(enrol(&world, 60, 6), None);
    assert_eq!(enrol(&world, 61, 7), None);
    assert_eq!(enrol(&world, 62, 8), Some(Code::TooOften), "the day is over");
}

#[test]
fn a_withdrawn_invitation_enrols_nobody_and_a_revoked_person_has_no_device() {
    let world = with_limits(5, 10, 100);
    assert_eq!(enrol(&world, 1, 5), None);
    let withdraw = Operation::Withdraw {
        population: "a".to_owned(),
        subject: invitation(&world, 5),
    };
    assert_eq!(world.perform(&withdraw).unwrap(), Answer::Departed(true));
    assert_eq!(world.perform(&withdraw).unwrap(), Answer::Departed(false));
    assert_eq!(enrol(&world, 2, 5), Some(Code::BadCertificate));
    assert_eq!(enrol(&world, 1, 5), None, "a device that it has enrolled goes on");
    let revoke = Operation::RevokePerson {
        population: "a".to_owned(),
        subject: invitation(&world, 5),
    };
    assert_eq!(world.perform(&revoke).unwrap(), Answer::Departed(true));
    for device in [1, 2] {
        assert_eq!(enrol(&world, device, 5), Some(Code::Revoked));
    }
    assert_eq!(enrol(&world, 3, 6), None);
}

#[test]
fn a_revoked_device_comes_back_by_no_key_of_the_same_invitation() {
    let world = with_limits(5, 10, 100);
    assert_eq!(enrol(&world, 1, 5), None);
    let key = Signer::from_seed(&[1; 32]).public();
    world
        .perform(&Operation::Revoke {
            device: undertone_service::identity::hex(&key),
        })
        .unwrap();
    assert_eq!(enrol(&world, 1, 5), Some(Code::Revoked));
    assert_eq!(enrol(&world, 2, 5), Some(Code::BadCertificate));
}
