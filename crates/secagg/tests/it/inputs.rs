//! Round 2 on many threads: the sum and the set of survivors agree, whatever is dropped, repeated or refused on the way.

use std::sync::Mutex;

use undertone_secagg::message::{MaskedInput, MaskedInputRef, Message};
use undertone_secagg::{
    AddedInput, Members, SecAggError, ServerPhase, SessionId, Ticket, Topology, UploadId,
};

use crate::harness::{self, ACTIVE, Lab, PLAIN, context, everybody, lab};

const UPLOAD: UploadId = UploadId([1; 32]);
const OTHER: UploadId = UploadId([2; 32]);

/// A session of `n` clients that have shared, and the masked inputs of all of them, none of which has arrived.
fn masked(n: u32) -> (Lab, Vec<MaskedInput>) {
    let mut lab = lab(PLAIN, n, n - 1, n / 2).shared(everybody);
    let mut inputs = Vec::new();
    for index in 0..n {
        let (input, plain) = lab.mask(index).unwrap();
        lab.inputs.push(plain);
        inputs.push(input);
    }
    (lab, inputs)
}

fn admit(lab: &mut Lab, input: &MaskedInput, upload: UploadId) -> Result<Ticket, SecAggError> {
    lab.server.admit_input(&input.session, input.index, upload)
}

fn add(lab: &mut Lab, input: &MaskedInput) -> AddedInput {
    admit(lab, input, UPLOAD)
        .unwrap()
        .add_packed(&input.packed)
        .unwrap()
}

/// The sum and the survivors at the end of a session that all survivors unmask.
fn finish(mut lab: Lab) -> (Vec<u64>, Members) {
    lab.server.close_inputs().unwrap();
    let survivors = lab.server.survivors();
    let indices: Vec<u32> = match survivors {
        Ok(survivors) => survivors.survivors.iter().collect(),
        Err(error) => panic!("{error}"),
    };
    lab.answered(indices);
    let outcome = lab.server.finish().unwrap();
    (outcome.sum.iter().collect(), outcome.included)
}

#[test]
fn inputs_added_by_many_threads_give_the_sum_of_those_added_one_by_one() {
    for (threat_model, modulus, length) in [(PLAIN, 1000, 70_000), (ACTIVE, 1 << 33, 40_000), (PLAIN, 2, 9)] {
        let make = || {
            let topology = Topology::full(9, 5).unwrap();
            Lab::joined(context(length, modulus, threat_model), topology, 7).shared(everybody)
        };
        let mut sums = Vec::new();
        for threads in [1, 4] {
            let mut lab = make();
            let inputs: Vec<MaskedInput> = (0..8).map(|index| lab.mask(index).unwrap().0).collect();
            let server = Mutex::new(&mut lab.server);
            std::thread::scope(|scope| {
                for part in inputs.chunks(8 / threads) {
                    let server = &server;
                    scope.spawn(move || {
                        for input in part.iter().rev() {
                            let bytes = input.encode();
                            let input = MaskedInputRef::decode(&bytes).unwrap();
                            let ticket = server
                                .lock()
                                .unwrap()
                                .admit_input(&input.session, input.index, UPLOAD)
                                .unwrap();
                            let added = ticket.add_packed(input.packed).unwrap();
                            server.lock().unwrap().commit_input(added).unwrap();
                        }
                    });
                }
            });
            lab.server.close_inputs().unwrap();
            if threat_model == ACTIVE {
                lab = lab.signed(|index| index < 8);
            }
            lab.answered(0..8);
            sums.push(lab.server.finish().unwrap().sum.iter().collect::<Vec<_>>());
        }
        let mut lab = make();
        for index in 0..8 {
            let (input, plain) = lab.mask(index).unwrap();
            lab.server.receive_input(&input).unwrap();
            lab.inputs.push(plain);
        }
        let expected = lab.expected();
        assert!(sums.iter().all(|sum| *sum == expected), "modulus {modulus}");
    }
}

#[test]
fn only_committed_inputs_survive() {
    let (mut lab, inputs) = masked(6);
    for input in &inputs[..4] {
        let added = add(&mut lab, input);
        assert_eq!(added.index(), input.index);
        lab.server.commit_input(added).unwrap();
    }
    // A ticket that is dropped before its bytes are added: the client is lost, the session is not.
    drop(admit(&mut lab, &inputs[4], UPLOAD).unwrap());
    lab.inputs.truncate(4);
    let expected = lab.expected();
    let (sum, included) = finish(lab);
    assert_eq!(sum, expected);
    assert!(included.iter().eq(0..4));
}

#[test]
fn a_repeat_of_the_committed_upload_adds_nothing_and_another_upload_is_refused() {
    let (mut lab, inputs) = masked(5);
    for input in &inputs {
        let added = add(&mut lab, input);
        lab.server.commit_input(added).unwrap();
    }
    let repeat = admit(&mut lab, &inputs[2], UPLOAD).unwrap();
    assert!(repeat.is_repeat() && repeat.index() == 2);
    let again = repeat.add_packed(&inputs[2].packed).unwrap();
    lab.server.commit_input(again).unwrap();
    // Dropped repeats lose nothing, and their bytes are not read.
    drop(admit(&mut lab, &inputs[2], UPLOAD).unwrap());
    drop(
        admit(&mut lab, &inputs[2], UPLOAD)
            .unwrap()
            .add_packed(&[])
            .unwrap(),
    );
    let error = admit(&mut lab, &inputs[2], OTHER).err();
    let message = "masked input";
    assert_eq!(error, Some(SecAggError::Committed { message, index: 2 }));
    let expected = lab.expected();
    assert_eq!(finish(lab).0, expected);
}

#[test]
fn a_client_has_one_ticket_at_a_time_and_a_refused_vector_frees_its_place() {
    let (mut lab, inputs) = masked(5);
    let ticket = admit(&mut lab, &inputs[0], UPLOAD).unwrap();
    for upload in [UPLOAD, OTHER] {
        let error = admit(&mut lab, &inputs[0], upload).err();
        assert_eq!(error, Some(SecAggError::Adding { index: 0 }));
    }
    // 1023 is not below 1000: the sum is as it was, and the next upload takes the place.
    let bad = vec![255; inputs[0].packed.len()];
    assert!(ticket.add_packed(&bad).is_err());
    let short = admit(&mut lab, &inputs[0], OTHER).unwrap();
    assert!(short.add_packed(&inputs[0].packed[1..]).is_err());
    for input in &inputs {
        let added = add(&mut lab, input);
        lab.server.commit_input(added).unwrap();
    }
    let expected = lab.expected();
    assert_eq!(finish(lab).0, expected);
}

#[test]
fn the_round_does_not_close_while_a_vector_is_being_added() {
    let (mut lab, inputs) = masked(5);
    for input in &inputs[..3] {
        lab.server.receive_input(input).unwrap();
    }
    let added = add(&mut lab, &inputs[3]);
    let ticket = admit(&mut lab, &inputs[4], UPLOAD).unwrap();
    let waits = |lab: &mut Lab, inputs| {
        assert_eq!(
            lab.server.close_inputs(),
            Err(SecAggError::StillAdding { inputs })
        );
        assert_eq!(lab.server.phase(), ServerPhase::Inputs);
    };
    waits(&mut lab, 2);
    lab.server.commit_input(added).unwrap();
    waits(&mut lab, 1);
    drop(ticket);
    lab.inputs.truncate(4);
    let expected = lab.expected();
    let (sum, included) = finish(lab);
    assert_eq!((sum, included.count()), (expected, 4));
}

#[test]
fn an_added_vector_without_its_commit_ends_the_session() {
    type Next = fn(&mut Lab, &MaskedInput) -> Result<(), SecAggError>;
    let next: [(&str, Next); 3] = [
        ("close", |lab, _| lab.server.close_inputs()),
        ("admit", |lab, input| admit(lab, input, UPLOAD).map(drop)),
        ("receive", |lab, input| lab.server.receive_input(input)),
    ];
    for (name, next) in next {
        let (mut lab, inputs) = masked(6);
        for input in &inputs[..4] {
            lab.server.receive_input(input).unwrap();
        }
        drop(add(&mut lab, &inputs[4]));
        assert_eq!(next(&mut lab, &inputs[5]), Err(SecAggError::InputLost), "{name}");
        assert_eq!(lab.server.phase(), ServerPhase::Aborted, "{name}");
        assert!(lab.server.unmask(0).is_err() && lab.server.finish().is_err());
    }
    // A vector that is in the sum beside a lost one is not committed either.
    let (mut lab, inputs) = masked(6);
    let (one, other) = (add(&mut lab, &inputs[0]), add(&mut lab, &inputs[1]));
    drop(one);
    assert_eq!(lab.server.commit_input(other), Err(SecAggError::InputLost));
    assert_eq!(lab.server.phase(), ServerPhase::Aborted);
}

#[test]
fn tickets_of_another_session_or_of_an_ended_one_commit_nothing() {
    let ((mut one, inputs), (mut other, _)) = (masked(5), masked(5));
    // Even two machines of one session, which have equal names, do not mix their sums.
    assert_eq!(one.server.session(), other.server.session());
    let added = add(&mut one, &inputs[0]);
    assert!(matches!(
        other.server.commit_input(added),
        Err(SecAggError::Session { .. })
    ));
    assert_eq!(one.server.close_inputs(), Err(SecAggError::InputLost));
    // An abort while tickets exist: nothing is added or committed afterwards.
    let ticket = admit(&mut other, &inputs[0], UPLOAD).unwrap();
    let added = add(&mut other, &inputs[1]);
    other.server.abort();
    assert!(ticket.add_packed(&inputs[0].packed).is_err());
    assert!(matches!(
        other.server.commit_input(added),
        Err(SecAggError::ServerPhase { .. })
    ));
}

#[test]
fn tickets_are_given_only_to_clients_that_shared_and_before_the_round_closes() {
    let mut lab = lab(PLAIN, 6, 5, 3);
    let session = lab.server.session().unwrap();
    let phase = |error| matches!(error, Some(SecAggError::ServerPhase { .. }));
    assert!(phase(lab.server.admit_input(&session, 0, UPLOAD).err()));
    let mut lab = lab.shared(|index| index != 5);
    for (index, session) in [(5, session), (6, session), (u32::MAX, session)] {
        let error = lab.server.admit_input(&session, index, UPLOAD).err();
        assert!(
            matches!(error, Some(SecAggError::Stranger { .. })),
            "{index}: {error:?}"
        );
    }
    let foreign: SessionId = harness::lab(ACTIVE, 6, 5, 4).server.session().unwrap();
    let error = lab.server.admit_input(&foreign, 0, UPLOAD).err();
    assert!(matches!(error, Some(SecAggError::Session { .. })), "{error:?}");
    let mut lab = lab.uploaded(|index| index < 4);
    assert!(phase(lab.server.admit_input(&session, 4, UPLOAD).err()));
    assert!(phase(lab.server.admit_input(&session, 0, UPLOAD).err()));
}

#[test]
fn an_input_read_in_place_is_the_one_that_is_decoded() {
    let (_, inputs) = masked(3);
    let bytes = inputs[1].encode();
    let read = MaskedInputRef::decode(&bytes).unwrap();
    assert_eq!(MaskedInput::decode(&bytes).unwrap(), inputs[1]);
    assert_eq!(
        (read.session, read.index, read.packed),
        (inputs[1].session, 1, &inputs[1].packed[..])
    );
    for end in 0..bytes.len() {
        assert_eq!(
            MaskedInputRef::decode(&bytes[..end]).err(),
            MaskedInput::decode(&bytes[..end]).err(),
            "{end}"
        );
        assert!(MaskedInputRef::decode(&bytes[..end]).is_err());
    }
    assert!(MaskedInputRef::decode(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn a_worker_that_panics_before_the_commit_ends_the_session() {
    fn sendable<T: Send + 'static>() {}
    sendable::<Ticket>();
    sendable::<AddedInput>();
    let (mut lab, inputs) = masked(5);
    let ticket = admit(&mut lab, &inputs[0], UPLOAD).unwrap();
    let packed = inputs[0].packed.clone();
    let panicked = std::thread::spawn(move || {
        let added = ticket.add_packed(&packed).unwrap();
        assert_eq!(added.index(), 9, "a worker that fails here");
    });
    assert!(panicked.join().is_err());
    assert_eq!(lab.server.close_inputs(), Err(SecAggError::InputLost));
}
