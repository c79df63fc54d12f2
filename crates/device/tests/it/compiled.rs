//! A server that lies to devices with the floors of the released app: no vector, and no sum below the floor.

use std::sync::Arc;

use undertone_aggregation::{Encoding, EncodingKind, EncodingSize};
use undertone_device::{Ended, Issuers, PolicyFloors};
use undertone_protocol::{Plan, Signer, SumMode, TrustedKeys};
use undertone_secagg::message::{Message, Roster, Survivors, Unmask};
use undertone_secagg::{Members, Trust};

use crate::harness::{self, Driven, POPULATION, START, Service, dim, issuer, plan, run, run_one};

/// Devices of one group: two more than the floor of the app.
const DEVICES: usize = 52;

/// A plan that the released app follows, for groups of at least `least` devices.
fn strict(least: u32) -> Plan {
    let mut plan = plan(SumMode::Secagg);
    let rule = plan.aggregation.as_mut().unwrap();
    (rule.min_clients, rule.max_clients) = (least, 200);
    (rule.group_min, rule.group_target) = (least, 60);
    let size = EncodingSize {
        dim: dim(),
        clip_norm: harness::CLIP,
        min_clients: least.into(),
        max_clients: 200,
    };
    let encoding = Encoding::new(EncodingKind::Identity, size).unwrap();
    rule.modulus = encoding.modulus().get();
    plan.report_goal = 100;
    plan
}

fn service(plan: Plan) -> Service {
    let mut service = Service::new(plan);
    let trust = Trust::Issuer(Arc::new(Issuers {
        keys: TrustedKeys::new([issuer().public()]),
        population: POPULATION.to_owned(),
        now_ms: START,
    }));
    service.open_sum(DEVICES, trust);
    // Two thirds: with a quarter of the neighbours corrupt, more than five eighths must open a mask.
    service.set_threshold(DEVICES as u32 * 2 / 3 + 1);
    service
}

fn devices() -> Vec<Driven> {
    (0..DEVICES)
        .map(|number| Driven::new(number, PolicyFloors::COMPILED))
        .collect()
}

fn sent(service: &Service, call: &str) -> usize {
    service.messages.keys().filter(|(_, name)| *name == call).count()
}

/// The honest server is the control: devices with these floors do take part.
#[test]
#[ignore = "slow"]
fn an_honest_server_gets_the_vectors_of_devices_with_the_compiled_floors() {
    let mut service = service(strict(50));
    let mut members = devices();
    let ended = run(&mut service, &mut members);
    let reported = |ended: &Ended| matches!(ended, Ended::Reported(_));
    assert!(
        ended.iter().all(reported),
        "{:?}",
        ended.iter().find(|ended| !reported(ended))
    );
    assert_eq!(sent(&service, "unmask"), DEVICES);
}

#[test]
fn a_plan_for_groups_below_the_compiled_floor_gets_no_key() {
    let mut service = service(strict(49));
    let mut device = Driven::new(0, PolicyFloors::COMPILED);
    let ended = run_one(&mut service, &mut device);
    assert!(
        matches!(&ended, Ended::Refused(refusal) if refusal.to_string().contains("devices in a sum")),
        "{ended:?}"
    );
    assert!(service.messages.is_empty() && !device.has_taken_part());
}

/// The server puts itself in the place of every neighbour of a device.
#[test]
fn a_server_that_invents_the_clients_gets_no_vector() {
    let mut service = service(strict(50));
    service.lies.next = Some(Box::new(|message| {
        if let Ok(mut roster) = Roster::decode(message) {
            for (place, neighbour) in (0u8..).zip(&mut roster.neighbours) {
                neighbour.entry.identity = Signer::from_seed(&[place; 32]).public();
            }
            *message = roster.encode();
        }
    }));
    let mut members = devices();
    let ended = run(&mut service, &mut members);
    assert!(
        ended.iter().all(|ended| matches!(ended, Ended::Refused(_))),
        "{ended:?}"
    );
    assert_eq!((service.upload_bytes(), sent(&service, "shares")), (0, 0));
}

/// The server calls all but 29 devices lost, one fewer than the floor, to open the sum of those.
#[test]
#[ignore = "slow"]
fn a_server_that_lies_about_drop_outs_gets_no_signature_and_no_share() {
    let few = || Members::of(DEVICES as u32, |index| index < 29);
    let mut service = service(strict(50));
    service.lies.next = Some(Box::new(move |message| {
        if let Ok(mut survivors) = Survivors::decode(message) {
            survivors.survivors = few();
            *message = survivors.encode();
        } else if let Ok(mut unmask) = Unmask::decode(message) {
            unmask.survivors = few();
            *message = unmask.encode();
        }
    }));
    let mut members = devices();
    let ended = run(&mut service, &mut members);
    assert!(
        ended.iter().all(|ended| matches!(ended, Ended::Refused(_))),
        "{ended:?}"
    );
    assert_eq!((sent(&service, "consistency"), sent(&service, "unmask")), (0, 0));
}

/// Everybody has signed who is there, and the request to open names fewer.
#[test]
#[ignore = "slow"]
fn a_server_that_opens_another_set_than_the_signed_one_gets_no_share() {
    let mut service = service(strict(50));
    service.lies.next = Some(Box::new(|message| {
        if let Ok(mut unmask) = Unmask::decode(message) {
            unmask.survivors = Members::of(DEVICES as u32, |index| index < 50);
            *message = unmask.encode();
        }
    }));
    let mut members = devices();
    let ended = run(&mut service, &mut members);
    assert!(
        ended.iter().all(|ended| matches!(ended, Ended::Refused(_))),
        "{ended:?}"
    );
    assert_eq!(sent(&service, "consistency"), DEVICES);
    assert_eq!(sent(&service, "unmask"), 0);
}
