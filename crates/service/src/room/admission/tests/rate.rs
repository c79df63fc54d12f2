//! The number of assignments per second, which this prints.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use undertone_protocol::{CheckIn, Enrol, Enrolled, Label, RequestSignature, Signer, limits, read, write};

use crate::identity::Invitation;
use crate::test_world::{Kind, World, checkin, member};

/// Admits as many devices as there are places, on this many threads, and returns the rate per second.
fn rate(kind: Kind, goal: u32, threads: u32) -> f64 {
    let world = World::new(kind, goal);
    let next = AtomicU32::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let device = next.fetch_add(1, Ordering::Relaxed);
                    if device >= world.places {
                        return;
                    }
                    let admitted = world
                        .room
                        .admit(&member(device), checkin(device, 0), &world.token);
                    assert!(admitted.is_ok(), "device {device}: {:?}", admitted.err());
                }
            });
        }
    });
    f64::from(world.places) / begun.elapsed().as_secs_f64()
}

/// A check-in as it travels: its signature and its body.
fn signed(world: &World, device: u32) -> (String, Vec<u8>) {
    let (shared, keys) = (world.service.shared(), &world.service.shared().keys);
    let now = shared.store.now();
    let member = member(device);
    let signer = Signer::from_seed(&member.device);
    let unsigned = Enrol {
        device_key: signer.public().to_vec(),
        invitation: Invitation::new(member.subject, now + 1000).text(keys, "people"),
        subject: Vec::new(),
        certificate: None,
        proof: Vec::new(),
    };
    let proof = signer.proof(Label::Enrolment, &write(&unsigned));
    let enrolled = world
        .service
        .enrol("people", &write(&Enrol { proof, ..unsigned }));
    let enrolled: Enrolled = read("the reply", &enrolled.unwrap(), limits::MAX_MESSAGE).unwrap();
    let body = write(&CheckIn {
        checkin: checkin(device, 0).to_vec(),
        eligible: vec![world.room.task().id.0.to_vec()],
        client_version: 1,
        certificate: enrolled.certificate,
        evidence: Vec::new(),
    });
    let signature = RequestSignature::new(&signer, now, "POST", PATH, &body);
    (signature.header(), body)
}

/// The path of a check-in.
const PATH: &str = "/v1/p/people/check-in";

/// Checks so many devices in on this many threads, with their signatures, and returns the rates of assignments and of refusals.
fn rates_with_signatures(kind: Kind, goal: u32, threads: u32) -> [f64; 2] {
    let world = World::new(kind, goal);
    let requests: Vec<_> = (0..2 * world.places)
        .map(|device| signed(&world, device))
        .collect();
    let (admitted, refused) = requests.split_at(world.places as usize);
    [(admitted, true), (refused, false)].map(|(requests, succeeds)| {
        let next = AtomicU32::new(0);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((signature, body)) =
                        requests.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                    {
                        let answer = world.service.check_in("people", signature, PATH, body);
                        assert_eq!(answer.is_ok(), succeeds, "{:?}", answer.err());
                    }
                });
            }
        });
        requests.len() as f64 / begun.elapsed().as_secs_f64()
    })
}

/// Prints check-ins per second, with signatures: `cargo test -p undertone-service check_ins_per_second_are_printed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, of half a minute"]
fn check_ins_per_second_are_printed() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for threads in [1, 64] {
            let [admitted, refused] = rates_with_signatures(kind, 4000, threads);
            println!("{kind:?}, {threads} threads: {admitted:.0} assignments/s, {refused:.0} refusals/s");
        }
    }
}

/// Prints assignments per second, without the signatures of the devices: `cargo test -p undertone-service assignments_per_second_are_printed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, of half a minute"]
fn assignments_per_second_are_printed() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for threads in [1, 8, 64, 256] {
            let rate = rate(kind, 8000, threads);
            println!("{kind:?}, {threads} threads: {rate:.0} assignments/s");
        }
    }
}
