//! Masked vectors that are added beside each other.

use std::sync::Mutex;

use super::*;
use crate::attempt::group::input::InputTicket;

/// A group whose devices have shared, and the masked vectors of all of them.
fn masked(threat_model: ThreatModel, devices: usize, least: u32) -> (Lab, Vec<Vec<u8>>) {
    let mut lab = Lab::new(threat_model, devices, least);
    lab.join(0..devices);
    lab.close(Phase::Lobby);
    (0..2).for_each(|_| lab.phase(0..devices));
    assert_eq!(lab.group.phase(), Phase::Inputs);
    let vectors = (0..devices).map(|place| lab.answer(place)).collect();
    (lab, vectors)
}

fn ticket(lab: &mut Lab, place: usize, vector: &[u8]) -> InputTicket {
    match lab.group.admit_input(session(place), vector.len() as u64) {
        Ok(Input::Add(ticket)) => ticket,
        Ok(Input::Before) => panic!("device {place} has sent before"),
        Err(refusal) => panic!("device {place}: {refusal}"),
    }
}

fn refused(lab: &mut Lab, place: usize, vector: &[u8]) -> Option<Refusal> {
    lab.group.admit_input(session(place), vector.len() as u64).err()
}

fn added(ticket: InputTicket, vector: &[u8]) -> AddedVector {
    ticket
        .add_packed(vector)
        .unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Unmasks by these devices, and compares the sum with that of the included.
fn ends(mut lab: Lab, there: &[usize], included: &[usize]) {
    while !lab.group.phase().is_end() {
        lab.phase(there.iter().copied());
    }
    lab.assert_sum(included);
}

/// Adds all vectors on so many threads, in the order of the seed.
fn beside_each_other(threat_model: ThreatModel, threads: usize, seed: u64) {
    let (mut lab, vectors) = masked(threat_model, 12, 6);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..12).collect();
    for last in (1..12).rev() {
        order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
    let group = Mutex::new(&mut lab.group);
    std::thread::scope(|scope| {
        for part in order.chunks(12 / threads) {
            let (group, vectors) = (&group, &vectors);
            scope.spawn(move || {
                for &place in part {
                    let vector = &vectors[place];
                    let admitted = group
                        .lock()
                        .unwrap()
                        .admit_input(session(place), vector.len() as u64);
                    let Ok(Input::Add(ticket)) = admitted else {
                        panic!("device {place}")
                    };
                    let vector = added(ticket, vector);
                    group.lock().unwrap().commit_input(vector).unwrap();
                }
            });
        }
    });
    lab.advance();
    let all: Vec<usize> = (0..12).collect();
    ends(lab, &all, &all);
}

#[test]
#[ignore = "slow"]
fn vectors_added_in_any_order_on_any_number_of_threads_give_one_sum() {
    for threat_model in [PLAIN, ACTIVE] {
        for threads in [1, 3, 12] {
            for seed in 0..4 {
                beside_each_other(threat_model, threads, seed);
            }
        }
    }
}

#[test]
fn a_second_request_is_refused_as_busy_while_the_vector_of_its_session_is_added() {
    let (mut lab, vectors) = masked(PLAIN, 6, 3);
    let first = ticket(&mut lab, 0, &vectors[0]);
    assert_eq!(refused(&mut lab, 0, &vectors[0]), Some(Refusal::Busy));
    let first = added(first, &vectors[0]);
    assert_eq!(refused(&mut lab, 0, &vectors[0]), Some(Refusal::Busy));
    lab.group.commit_input(first).unwrap();
    let again = lab.group.admit_input(session(0), vectors[0].len() as u64);
    assert!(matches!(again, Ok(Input::Before)));
    // A ticket that is dropped, and one whose vector is refused, free the place.
    drop(ticket(&mut lab, 1, &vectors[1]));
    let bad = vec![255; vectors[1].len()];
    let refusal = ticket(&mut lab, 1, &bad).add_packed(&bad).err();
    assert!(
        matches!(refusal, Some(Refusal::Range { .. })),
        "{:?}",
        refusal.map(|refusal| refusal.code())
    );
    for (place, vector) in vectors.iter().enumerate().skip(1) {
        assert_eq!(lab.group.input(session(place), vector), Ok(Accepted::Now));
    }
    lab.advance();
    ends(lab, &[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_inputs_close_with_the_last_vector_in_flight_and_take_no_other() {
    for threat_model in [PLAIN, ACTIVE] {
        let (mut lab, vectors) = masked(threat_model, 8, 4);
        for (place, vector) in vectors.iter().enumerate().take(5) {
            lab.group.input(session(place), vector).unwrap();
        }
        let (one, other) = (ticket(&mut lab, 5, &vectors[5]), ticket(&mut lab, 6, &vectors[6]));
        lab.close(Phase::Inputs);
        lab.advance();
        assert_eq!(lab.group.phase(), Phase::Inputs);
        assert_eq!(refused(&mut lab, 7, &vectors[7]), Some(Refusal::Gone));
        assert_eq!(refused(&mut lab, 5, &vectors[5]), Some(Refusal::Busy));
        let one = added(one, &vectors[5]);
        lab.advance();
        assert_eq!(lab.group.phase(), Phase::Inputs);
        lab.group.commit_input(one).unwrap();
        lab.advance();
        assert_eq!(lab.group.phase(), Phase::Inputs);
        // The last ticket comes back without its vector.
        drop(other);
        lab.advance();
        assert!(lab.group.phase() > Phase::Inputs);
        assert_eq!(
            lab.lost,
            [(session(6), LostAt::Uploading), (session(7), LostAt::Uploading)]
        );
        let there = [0, 1, 2, 3, 4, 5];
        ends(lab, &there, &there);
    }
}

#[test]
fn a_device_that_leaves_while_its_vector_is_added_is_in_the_sum_or_lost_at_the_close() {
    let (mut lab, vectors) = masked(PLAIN, 6, 3);
    let (stays, fails) = (ticket(&mut lab, 0, &vectors[0]), ticket(&mut lab, 1, &vectors[1]));
    assert_eq!(lab.group.lose(session(0)), None);
    assert_eq!(lab.group.lose(session(1)), None);
    let stays = added(stays, &vectors[0]);
    lab.group.commit_input(stays).unwrap();
    assert!(fails.add_packed(&[255; 3]).is_err());
    for (place, vector) in vectors.iter().enumerate().skip(2) {
        lab.group.input(session(place), vector).unwrap();
    }
    lab.advance();
    assert_eq!(lab.lost, [(session(1), LostAt::Uploading)]);
    ends(lab, &[2, 3, 4, 5], &[0, 2, 3, 4, 5]);
}

#[test]
fn a_vector_that_is_added_and_not_committed_fails_its_group() {
    let (mut lab, vectors) = masked(PLAIN, 8, 4);
    for (place, vector) in vectors.iter().enumerate().take(6) {
        lab.group.input(session(place), vector).unwrap();
    }
    let lost = ticket(&mut lab, 6, &vectors[6]);
    drop(added(lost, &vectors[6]));
    assert_eq!(
        lab.group.input(session(7), &vectors[7]),
        Err(Refusal::Gone),
        "the sum is lost"
    );
    lab.advance();
    let Some(Change::Failed { at, lost, .. }) = &lab.last else {
        panic!("{:?}", lab.last);
    };
    assert_eq!((*at, lost.len()), (Phase::Inputs, 8));
    assert_eq!(lab.group.seal().err(), Some(Refusal::Gone));
}

#[test]
fn a_group_that_has_ended_takes_no_vector_that_was_on_its_way() {
    let (mut lab, vectors) = masked(PLAIN, 6, 3);
    let ticketed = ticket(&mut lab, 0, &vectors[0]);
    let other = ticket(&mut lab, 1, &vectors[1]);
    let other = added(other, &vectors[1]);
    lab.group.abort();
    assert!(ticketed.add_packed(&vectors[0]).is_err());
    assert_eq!(lab.group.commit_input(other), Err(Refusal::Gone));
    assert_eq!(lab.group.phase(), Phase::Failed);
}

/// Threads send, repeat, drop and spoil vectors, and the phase is closed somewhere in between.
fn in_disorder(seed: u64) {
    let (mut lab, vectors) = masked(PLAIN, 10, 2);
    let shared = Mutex::new((&mut lab.group, Vec::new()));
    let bad = vec![255; vectors[0].len()];
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (shared, vectors, bad) = (&shared, &vectors, &bad);
            scope.spawn(move || {
                let mut rng = ChaCha20Rng::seed_from_u64(seed ^ (thread << 60));
                for _ in 0..30 {
                    let (place, conduct) = ((rng.next_u64() % 10) as usize, rng.next_u64() % 8);
                    let vector = if conduct == 0 { bad } else { &vectors[place] };
                    let length = vector.len() as u64;
                    let admitted = shared.lock().unwrap().0.admit_input(session(place), length);
                    let Ok(Input::Add(ticket)) = admitted else {
                        continue;
                    };
                    if conduct == 1 {
                        continue;
                    }
                    let Ok(vector) = ticket.add_packed(vector) else {
                        assert_eq!(conduct, 0);
                        continue;
                    };
                    let mut shared = shared.lock().unwrap();
                    shared.0.commit_input(vector).unwrap();
                    shared.1.push(place);
                    if shared.1.len() == 8 {
                        let mut rng = ChaCha20Rng::seed_from_u64(seed);
                        // Some of the four may be adding: the phase ends after them.
                        let _ = shared.0.close(Phase::Inputs, &mut rng);
                    }
                }
            });
        }
    });
    let (_, mut included) = shared.into_inner().unwrap();
    included.sort_unstable();
    assert!(included.len() >= 8 && included.windows(2).all(|pair| pair[0] < pair[1]));
    lab.advance();
    assert!(lab.group.phase() > Phase::Inputs);
    ends(lab, &included, &included);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    #[ignore = "slow"]
    fn vectors_sent_repeated_dropped_and_spoilt_leave_the_sum_of_the_committed(seed: u64) {
        in_disorder(seed);
    }
}
