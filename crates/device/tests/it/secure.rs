//! Sessions in a secure sum, with the real server of `undertone-secagg`.

use std::collections::BTreeSet;
use std::sync::Arc;

use undertone_device::{Ended, Issuers, Method, Neighbours, PolicyFloors, Progress, Refusal, Row};
use undertone_protocol::{Plan, Signer, SumMode, TrustedKeys, Verdict};
use undertone_secagg::message::{AdvertiseKeys, Message, Roster, Survivors, Unmask};
use undertone_secagg::{Members, SecAggError, Trust};

use crate::harness::{
    self, Driven, POPULATION, START, Service, floors, issuer, memory, plan, run, run_one,
    session_certificate, session_public, setup, update,
};

const DEVICES: usize = 5;

/// Devices that accept neighbours with a certificate alone.
fn certified() -> PolicyFloors {
    PolicyFloors {
        neighbours: Neighbours::Certified,
        ..floors()
    }
}

fn issuers() -> Trust {
    Trust::Issuer(Arc::new(Issuers {
        keys: TrustedKeys::new([issuer().public()]),
        population: POPULATION.to_owned(),
        now_ms: START,
    }))
}

fn service(plan: Plan) -> Service {
    let mut service = Service::new(plan);
    service.open_sum(DEVICES, issuers());
    service
}

fn devices(floors: &PolicyFloors) -> Vec<Driven> {
    (0..DEVICES)
        .map(|number| Driven::new(number, floors.clone()))
        .collect()
}

const REPORTED: Ended = Ended::Reported(Some(Verdict::Included));

/// A device that is done early asks for the verdict of the others a few times, and then sleeps without it.
fn all_reported(ended: &[Ended], place: &str) {
    let reported = |ended: &Ended| matches!(ended, Ended::Reported(_));
    assert!(ended.iter().all(reported), "{place}: {ended:?}");
}

#[test]
fn the_secure_sum_is_the_sum_of_the_plain_updates() {
    let mut secure = service(plan(SumMode::Secagg));
    let mut members = devices(&certified());
    assert_eq!(run(&mut secure, &mut members), vec![REPORTED; DEVICES]);
    let sum = secure.sum();

    let mut plain = Service::new(plan(SumMode::Plain));
    let mut members_of_plain = devices(&certified());
    run(&mut plain, &mut members_of_plain);
    let mut expected = vec![0f64; sum.len()];
    for upload in plain.uploads.values() {
        for (total, value) in expected.iter_mut().zip(update(upload)) {
            *total += f64::from(value);
        }
    }
    let norm = expected.iter().map(|value| value * value).sum::<f64>().sqrt();
    assert!(norm > 0.01, "{norm}");
    for (got, expected) in sum.iter().zip(&expected) {
        assert!((got - expected).abs() < 1e-6, "{got} {expected}");
    }
    for member in &members {
        // One session key is used up, and every device remembers its part.
        assert_eq!(member.machine.memory().stock.len(), 1);
        let taken = &member.machine.memory().participations[0];
        assert_eq!(taken.progress, Progress::Ended(Verdict::Included));
    }
}

#[test]
fn masked_uploads_differ_from_the_residues_and_from_each_other() {
    let mut secure = service(plan(SumMode::Secagg));
    run(&mut secure, &mut devices(&certified()));
    let uploads: Vec<&Vec<u8>> = secure.uploads.values().map(|upload| &upload.bytes).collect();
    let distinct: BTreeSet<&[u8]> = uploads.iter().map(|bytes| &bytes[..]).collect();
    assert_eq!(distinct.len(), DEVICES);
    // A masked vector has about as many ones as zeros; an update in fixed point has mostly zeros, or the ones of small negative numbers.
    for bytes in uploads {
        let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        let fraction = f64::from(ones) / (8 * bytes.len()) as f64;
        assert!((0.45..0.55).contains(&fraction), "{fraction}");
    }
}

#[test]
#[ignore = "slow"]
fn a_lost_request_or_reply_at_any_step_gives_the_same_sum() {
    let mut honest = service(plan(SumMode::Secagg));
    let mut members = devices(&certified());
    run(&mut honest, &mut members);
    let expected = honest.sum();
    let messages: BTreeSet<&str> = honest.messages.keys().map(|(_, call)| *call).collect();
    assert_eq!(
        messages,
        BTreeSet::from(["commit", "consistency", "join", "shares", "unmask"])
    );
    // Polls repeat, so later requests than these are of the same kinds.
    let requests = members[0].requests;
    for number in 0..requests {
        for (before, strict) in [(true, false), (false, false), (false, true)] {
            let mut service = service(plan(SumMode::Secagg));
            // A strict service refuses the repeat of a message that it has, once the phase is over.
            service.strict = strict;
            let mut members = devices(&certified());
            members[0].lose = Some((number, before));
            let place = format!("request {number}, lost before the service: {before}, strict: {strict}");
            all_reported(&run(&mut service, &mut members), &place);
            assert_eq!(service.sum(), expected, "{place}");
            assert_eq!(members[0].participations().len(), 1, "{place}");
        }
    }
}

#[test]
fn a_device_with_no_session_keys_asks_for_some_and_spends_one() {
    let mut secure = service(plan(SumMode::Secagg));
    let mut members = devices(&certified());
    let mut empty = memory(0);
    empty.stock.clear();
    members[0] = Driven::with_memory(0, setup(certified()), empty);
    all_reported(&run(&mut secure, &mut members), "no keys");
    let stock: Vec<usize> = members[0]
        .rows
        .iter()
        .filter_map(|row| match row {
            Row::Stock(keys) => Some(keys.len()),
            _ => None,
        })
        .collect();
    assert_eq!(stock, [8]);
    assert_eq!(members[0].machine.memory().stock.len(), 7);
}

/// The refusals of devices whose server lies. Nothing but keys has left a device then.
fn refusals(service: &mut Service, floors: &PolicyFloors) -> Vec<Refusal> {
    let mut members = devices(floors);
    let ended = run(service, &mut members);
    assert_eq!(service.upload_bytes(), 0);
    ended
        .into_iter()
        .map(|ended| match ended {
            Ended::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn invented_clients_are_refused() {
    let mut service = service(plan(SumMode::Secagg));
    // The server puts a key of its own in the place of one neighbour, with the certificate of the real one.
    service.lies.next = Some(Box::new(|message| {
        if let Ok(mut roster) = Roster::decode(message) {
            roster.neighbours[0].entry.identity = Signer::from_seed(&[66; 32]).public();
            *message = roster.encode();
        }
    }));
    for refusal in refusals(&mut service, &certified()) {
        assert!(
            matches!(refusal, Refusal::SecAgg(SecAggError::Certificate { .. })),
            "{refusal}"
        );
    }
}

#[test]
fn a_roster_of_keys_that_another_issuer_certified_is_refused() {
    let stranger = Signer::from_seed(&[98; 32]);
    let mut plan = plan(SumMode::Secagg);
    let both = vec![issuer().public().to_vec(), stranger.public().to_vec()];
    plan.aggregation.as_mut().unwrap().issuers = both;
    let mut service = Service::new(plan);
    service.open_sum(DEVICES, Trust::Anyone);
    let mut members = devices(&certified());
    // The plan names both issuers; the app of the other devices trusts one, and so do they.
    let mut memory = memory(0);
    let public = session_public(0);
    memory.stock[0].certificate = session_certificate(&stranger, POPULATION, &public);
    members[0] = Driven::with_memory(0, setup(certified()), memory);
    let ended = run(&mut service, &mut members);
    assert_eq!(service.upload_bytes(), 0);
    for ended in &ended[1..] {
        assert!(
            matches!(
                ended,
                Ended::Refused(Refusal::SecAgg(SecAggError::Certificate { .. }))
            ),
            "{ended:?}"
        );
    }
}

#[test]
fn a_plan_whose_issuers_the_app_does_not_trust_is_refused_before_any_key_leaves() {
    for issuers in [vec![Signer::from_seed(&[98; 32]).public().to_vec()], Vec::new()] {
        let mut plan = plan(SumMode::Secagg);
        plan.aggregation.as_mut().unwrap().issuers = issuers;
        let mut service = Service::new(plan);
        let mut device = Driven::new(0, certified());
        let ended = run_one(&mut service, &mut device);
        let Ended::Refused(refusal) = ended else {
            panic!("{ended:?}");
        };
        assert!(refusal.to_string().contains("aggregation.issuers"), "{refusal}");
        assert!(service.messages.is_empty() && !device.has_taken_part());
    }
}

#[test]
fn a_group_below_the_floors_of_the_device_gives_no_vector() {
    // The signed plan allows the group of five that has come, and the device's own floor is six.
    let strict = PolicyFloors {
        secagg: undertone_secagg::Floors::COMPILED.with_clients(6, 4).unwrap(),
        ..certified()
    };
    let mut small = service(plan(SumMode::Secagg));
    for refusal in refusals(&mut small, &strict) {
        assert!(
            matches!(refusal, Refusal::SecAgg(SecAggError::Floor { .. })),
            "{refusal}"
        );
    }
    // A device whose floor for groups is above that of the plan refuses the plan, before any key leaves.
    let stricter = PolicyFloors {
        min_group: 5,
        ..certified()
    };
    let mut small = service(plan(SumMode::Secagg));
    for refusal in refusals(&mut small, &stricter) {
        assert!(refusal.to_string().contains("devices in a sum"), "{refusal}");
    }
    assert!(small.messages.is_empty());
}

#[test]
fn a_smaller_group_than_the_plan_says_is_refused_in_the_settings_and_in_the_roster() {
    // Least 200, and the server says 199: in the settings of the round.
    let mut plan = plan(SumMode::Secagg);
    let rule = plan.aggregation.as_mut().unwrap();
    (
        rule.min_clients,
        rule.max_clients,
        rule.group_min,
        rule.group_target,
    ) = (200, 300, 200, 300);
    plan.report_goal = 200;
    let encoding = undertone_aggregation::Encoding::new(
        undertone_aggregation::EncodingKind::Identity,
        undertone_aggregation::EncodingSize {
            dim: harness::dim(),
            clip_norm: harness::CLIP,
            min_clients: 200,
            max_clients: 300,
        },
    )
    .unwrap();
    rule.modulus = encoding.modulus().get();
    let mut service = Service::new(plan.clone());
    service.lies.assignment = Some(Box::new(|assignment| {
        assignment.settings.as_mut().unwrap().min_clients = 199;
    }));
    let ended = run_one(&mut service, &mut Driven::new(0, certified()));
    assert!(
        matches!(&ended, Ended::Refused(refusal) if refusal.to_string().contains("min_clients")),
        "{ended:?}"
    );
    // In the roster: one of 199 clients, whose terms are those of the device but for the floor.
    let mut service = Service::new(plan);
    let context = service.context();
    let terms = context.terms.with_clients(199, 300).unwrap();
    let topology = undertone_secagg::Topology::full(199, 130).unwrap();
    let roster = Roster {
        params: undertone_secagg::Params::new(terms, topology).unwrap(),
        root: [0; 32],
        index: 0,
        path: vec![[0; 32]; 8],
        neighbours: Vec::new(),
    };
    service.open_sum(2, issuers());
    service.lies.next = Some(Box::new(move |message| *message = roster.encode()));
    let mut device = Driven::new(0, certified());
    service.verdict = None;
    // The server hands the forged roster out as soon as the device has joined.
    service.force_message = true;
    let ended = run_one(&mut service, &mut device);
    assert!(
        matches!(
            ended,
            Ended::Refused(Refusal::SecAgg(SecAggError::Session { .. }))
        ),
        "{ended:?}"
    );
    assert_eq!(service.upload_bytes(), 0);
}

#[test]
fn plan_and_model_that_a_device_has_name_its_session() {
    let context_of = |service: &mut Service| {
        let mut device = Driven::new(0, certified());
        while service.messages.is_empty() {
            assert!(device.outcome.is_none());
            service.now += 100;
            device.turn(service);
        }
        let body = service.messages.values().next().unwrap();
        AdvertiseKeys::decode(body).unwrap().context
    };
    let mut honest = service(plan(SumMode::Secagg));
    let expected = honest.context().digest();
    assert_eq!(
        context_of(&mut honest),
        expected,
        "both compute it from bytes of their own"
    );
    // The same model but for one parameter, for this device alone.
    let mut service = service(plan(SumMode::Secagg));
    let mut other = harness::model_bytes();
    *other.last_mut().unwrap() ^= 1;
    let blob = undertone_protocol::Blob::of(&other);
    service.blobs.insert(blob.digest().unwrap(), other);
    service.lies.assignment = Some(Box::new(move |assignment| assignment.model = Some(blob.clone())));
    // The server of the sum refuses keys of another context, so this one only listens.
    service.deaf = true;
    assert_ne!(context_of(&mut service), expected);
}

#[test]
fn a_second_request_to_unmask_gets_no_second_answer() {
    let mut service = service(plan(SumMode::Secagg));
    service.repeat_unmask = true;
    let mut members = devices(&certified());
    let ended = run(&mut service, &mut members);
    assert!(
        ended.iter().all(|ended| matches!(ended, Ended::Reported(_))),
        "{ended:?}"
    );
    for session in service.uploads.keys() {
        let answers = service
            .log
            .iter()
            .filter(|(method, path, _)| {
                *method == Method::Post
                    && path.ends_with("/unmask")
                    && path.contains(&format!("{:02x}", session[0]))
            })
            .count();
        assert_eq!(answers, 1, "one request to unmask is answered");
    }
}

#[test]
fn a_request_to_unmask_other_survivors_than_those_signed_is_refused() {
    let mut service = service(plan(SumMode::Secagg));
    service.lies.next = Some(Box::new(|message| {
        if let Ok(mut unmask) = Unmask::decode(message) {
            unmask.survivors = Members::of(DEVICES as u32, |index| index != 0);
            *message = unmask.encode();
        }
    }));
    let mut members = devices(&certified());
    let ended = run(&mut service, &mut members);
    assert!(
        ended
            .iter()
            .all(|ended| matches!(ended, Ended::Refused(Refusal::SecAgg(_)))),
        "{ended:?}"
    );
    assert!(!service.messages.keys().any(|(_, call)| *call == "unmask"));
}

#[test]
fn survivors_without_this_device_are_not_signed() {
    let mut service = service(plan(SumMode::Secagg));
    service.lies.next = Some(Box::new(|message| {
        if let Ok(mut survivors) = Survivors::decode(message) {
            survivors.survivors = Members::of(DEVICES as u32, |_| false);
            *message = survivors.encode();
        }
    }));
    let mut members = devices(&certified());
    let ended = run(&mut service, &mut members);
    assert!(
        ended.iter().all(|ended| matches!(ended, Ended::Refused(_))),
        "{ended:?}"
    );
    assert!(!service.messages.keys().any(|(_, call)| *call == "consistency"));
}

#[test]
fn messages_that_are_cut_changed_or_of_another_phase_end_the_session_without_a_vector() {
    type Lie = fn(&mut Vec<u8>);
    let lies: [Lie; 6] = [
        Vec::clear,
        |message| message.truncate(message.len() / 2),
        |message| message.push(0),
        |message| message[0] = 9,
        |message| message[1] = 4,
        |message| message[40] ^= 1,
    ];
    for lie in lies {
        let mut service = service(plan(SumMode::Secagg));
        service.lies.next = Some(Box::new(lie));
        let refused = refusals(&mut service, &certified());
        assert_eq!(refused.len(), DEVICES);
    }
}

#[test]
fn listed_neighbours_and_simulated_ones_take_part_too() {
    let known = Arc::new((0..DEVICES).map(session_public).collect::<BTreeSet<_>>());
    let listed = PolicyFloors {
        neighbours: Neighbours::Listed(Arc::clone(&known)),
        ..floors()
    };
    let mut secure = service(plan(SumMode::Secagg));
    let ended = run(&mut secure, &mut devices(&listed));
    assert_eq!(ended, vec![REPORTED; DEVICES]);
    // One stranger, and nobody shares a secret.
    let others = Arc::new((1..=DEVICES).map(session_public).collect());
    let of_others = PolicyFloors {
        neighbours: Neighbours::Listed(others),
        ..floors()
    };
    let mut strange = service(plan(SumMode::Secagg));
    let mut members = devices(&of_others);
    let ended = run(&mut strange, &mut members);
    assert!(
        ended[1..].iter().all(|ended| matches!(ended, Ended::Refused(_))),
        "{ended:?}"
    );
    assert_eq!(strange.upload_bytes(), 0);
}

/// Devices that are lost at one point of the protocol, while the others go on.
#[test]
fn the_sum_of_the_others_is_right_when_one_device_is_stopped() {
    // The point is the first message that the stopped device no longer sends.
    for (point, survivors) in [("/shares", 4), ("/upload", 4), ("/unmask", 5)] {
        let stopped_at = |number: usize, lost: bool| {
            let mut service = service(plan(SumMode::Secagg));
            service.patience = true;
            let mut members = devices(&certified());
            if lost {
                members[number].mute = Some(point);
            }
            run(&mut service, &mut members);
            (service.sum(), members)
        };
        let (all, _) = stopped_at(1, false);
        let (sum, members) = stopped_at(1, true);
        // The device counts its participation whether its update is in the sum or not.
        assert_eq!(members[1].participations().len(), 1, "{point}");
        let distance: f64 = all
            .iter()
            .zip(&sum)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f64>()
            .sqrt();
        match survivors {
            5 => assert!(distance < 1e-9, "{point}: its update is in the sum"),
            _ => assert!(
                distance > 1e-3 && distance <= harness::CLIP,
                "{point}: one clipped update is missing, {distance}"
            ),
        }
    }
}

#[test]
fn rotated_and_rounded_updates_are_summed_too() {
    use undertone_aggregation::{Encoding, EncodingKind, EncodingSize};
    let size = EncodingSize {
        dim: harness::dim(),
        clip_norm: harness::CLIP,
        min_clients: 4,
        max_clients: 8,
    };
    let encoding = Encoding::new(EncodingKind::RotatedRounding { scale: 10_000.0 }, size)
        .and_then(|encoding| encoding.with_room_for_noise(2.0))
        .unwrap();
    let mut plan = plan(SumMode::Secagg);
    let rule = plan.aggregation.as_mut().unwrap();
    rule.encoding = r#"{"kind": "rotated_rounding", "scale": 10000.0}"#.to_owned();
    rule.modulus = encoding.modulus().get();
    rule.length = encoding.padded_dim() as u64;
    let mut service = service(plan);
    assert_eq!(
        run(&mut service, &mut devices(&certified())),
        vec![REPORTED; DEVICES]
    );
    let packed = undertone_aggregation::pack::packed_len(encoding.modulus(), encoding.padded_dim()).unwrap();
    for upload in service.uploads.values() {
        assert_eq!(upload.bytes.len(), packed);
    }
}

#[test]
fn evaluations_are_summed_securely() {
    use undertone_aggregation::{Encoding, EncodingKind, EncodingSize};
    let size = EncodingSize {
        dim: 3,
        clip_norm: 1.0,
        min_clients: 4,
        max_clients: 8,
    };
    let encoding = Encoding::new(EncodingKind::Identity, size).unwrap();
    let mut plan = harness::evaluation(SumMode::Secagg);
    plan.aggregation.as_mut().unwrap().modulus = encoding.modulus().get();
    let mut service = service(plan);
    assert_eq!(
        run(&mut service, &mut devices(&certified())),
        vec![REPORTED; DEVICES]
    );
}
