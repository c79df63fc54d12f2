use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use undertone_aggregation::ModularVec;
use undertone_secagg::message::{RelayedShares, Roster, Survivors, Unmask};
use undertone_secagg::{Client, SigningIdentity, Terms, ThreatModel};

use super::*;
use lab::*;

mod inputs;
mod lab;

impl Group {
    /// The phase of the group.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The context of the group.
    fn context(&self) -> &Context {
        &self.context
    }

    /// The set of survivors; `None` before it is fixed.
    fn fixed(&self) -> Option<FixedSet> {
        self.fixed
    }

    /// Adds the masked vector of a device on this thread, as packed residues. The first commit of a session counts, and any later one
    /// gets its answer.
    ///
    /// # Errors
    /// The errors of the three steps. Nothing is added then.
    pub(crate) fn input(&mut self, session: SessionId, packed: &[u8]) -> Result<Accepted, Refusal> {
        match self.admit_input(session, packed.len() as u64)? {
            Input::Before => Ok(Accepted::Before),
            Input::Add(ticket) => {
                let added = ticket.add_packed(packed)?;
                self.commit_input(added)?;
                Ok(Accepted::Now)
            }
        }
    }
}

/// The phases of a session in their order, with the point at which a silent device is lost.
fn phases(threat_model: ThreatModel) -> Vec<(Phase, Option<LostAt>)> {
    let mut phases = vec![
        (Phase::Keys, Some(LostAt::Keys)),
        (Phase::Shares, Some(LostAt::Shares)),
        (Phase::Inputs, Some(LostAt::Uploading)),
    ];
    if threat_model == ACTIVE {
        phases.push((Phase::Signatures, None));
    }
    phases.push((Phase::Unmask, None));
    phases
}

/// Loses the first `gone` of 20 devices at a point: before the join, at the roll-call, before shares, upload, signature, answer.
fn drop_outs(threat_model: ThreatModel, point: Option<Phase>, gone: usize) {
    let all = 0..20;
    let mut lab = Lab::new(threat_model, 20, 10);
    let mut there = all.clone();
    if point == Some(Phase::Lobby) {
        there = gone..20;
    }
    lab.join(there.clone());
    lab.close(Phase::Lobby);
    let mut expected_lost = Vec::new();
    let mut included: Vec<usize> = there.clone().collect();
    for (phase, lost) in phases(threat_model) {
        assert_eq!(lab.group.phase(), phase, "{:?}", lab.last);
        if point == Some(phase) {
            there = gone..20;
            if let Some(lost) = lost {
                expected_lost = (0..gone).map(|place| (session(place), lost)).collect();
                included = (gone..20).collect();
            }
        }
        // A survivor that did not sign answers no request either.
        lab.phase(there.clone());
    }
    assert_eq!(lab.lost, expected_lost, "{threat_model:?} {point:?} {gone}");
    lab.assert_sum(&included);
}

#[test]
#[ignore = "slow"]
fn drop_outs_at_any_point_leave_the_sum_of_the_included() {
    for threat_model in [PLAIN, ACTIVE] {
        drop_outs(threat_model, None, 0);
        let points = [Phase::Lobby].into_iter();
        for point in points.chain(phases(threat_model).into_iter().map(|(phase, _)| phase)) {
            // 5, 10 and 30 percent.
            for gone in [1, 2, 6] {
                drop_outs(threat_model, Some(point), gone);
            }
        }
    }
}

#[test]
fn a_group_of_199_with_a_minimum_of_200_has_no_sum() {
    let mut lab = Lab::new(PLAIN, 199, 200);
    lab.join(0..199);
    lab.close(Phase::Lobby);
    let Some(Change::Failed {
        at,
        why,
        lost,
        exclude,
    }) = &lab.last
    else {
        panic!("{:?}", lab.last);
    };
    assert_eq!((*at, lost.len(), exclude.len()), (Phase::Lobby, 199, 0));
    assert_eq!(
        why.to_string(),
        "devices in the lobby: expected at least 200 clients, got 199; nothing is released"
    );
    assert!(lost.iter().all(|(_, at)| *at == LostAt::Lobby));
    assert_eq!(lab.group.next(session(3), Phase::Lobby), Err(Refusal::Gone));
    assert_eq!(lab.group.seal().err(), Some(Refusal::Gone));
}

#[test]
fn every_phase_refuses_to_go_on_below_the_minimum() {
    for (failing, point) in [
        (Phase::Keys, LostAt::Keys),
        (Phase::Shares, LostAt::Shares),
        (Phase::Inputs, LostAt::Uploading),
    ] {
        let mut lab = Lab::new(ACTIVE, 12, 10);
        lab.join(0..12);
        lab.close(Phase::Lobby);
        while lab.group.phase() != failing {
            lab.phase(0..12);
        }
        lab.phase(0..9);
        let Some(Change::Failed { at, lost, .. }) = &lab.last else {
            panic!("{:?}", lab.last);
        };
        assert_eq!((*at, lost.len()), (failing, 12));
        assert_eq!(
            lost.iter().filter(|(_, at)| *at == point).count(),
            if failing == Phase::Inputs { 3 } else { 12 }
        );
        assert!(lab.group.fixed().is_none());
    }
}

#[test]
fn too_few_answers_fail_the_group_and_all_who_reported_are_lost() {
    let mut lab = Lab::new(PLAIN, 10, 5);
    lab.join(0..10);
    lab.close(Phase::Lobby);
    (0..3).for_each(|_| lab.phase(0..10));
    lab.phase(0..4);
    let Some(Change::Failed { at, lost, .. }) = &lab.last else {
        panic!("{:?}", lab.last);
    };
    assert_eq!(*at, Phase::Unmask);
    assert!(lost.len() == 10 && lost.iter().all(|(_, at)| *at == LostAt::Reported));
    assert_eq!(lab.group.seal().err(), Some(Refusal::Gone));
}

#[test]
fn a_device_that_left_the_lobby_is_not_in_the_roster() {
    let mut lab = Lab::new(PLAIN, 8, 4);
    lab.join(0..8);
    assert_eq!(lab.group.lose(session(2)), Some(LostAt::Lobby));
    assert_eq!(lab.group.lose(session(2)), None);
    assert_eq!(lab.group.next(session(2), Phase::Lobby), Err(Refusal::Gone));
    lab.close(Phase::Lobby);
    lab.phase([0, 1, 3, 4, 5, 6]);
    assert_eq!(lab.lost, [(session(7), LostAt::Keys)]);
    let roster = Roster::decode(&lab.mail(0)).unwrap();
    assert_eq!(roster.params.topology().clients(), 6);
    (0..3).for_each(|_| lab.phase([0, 1, 3, 4, 5, 6]));
    lab.assert_sum(&[0, 1, 3, 4, 5, 6]);
}

#[test]
fn the_set_of_survivors_is_fixed_once() {
    let mut lab = Lab::new(ACTIVE, 8, 4);
    lab.join(0..8);
    lab.close(Phase::Lobby);
    lab.phase(0..8);
    lab.phase(0..8);
    let late = lab.answer(7);
    assert_eq!(lab.group.fixed(), None);
    lab.phase(0..7);
    let fixed = lab.group.fixed().unwrap();
    assert_eq!(fixed.size, 7);
    assert_eq!(digest_of(&lab.mail(0)), fixed.digest);
    assert_eq!(lab.group.input(session(7), &late), Err(Refusal::Gone));
    assert_eq!(lab.group.close(Phase::Inputs, &mut lab.rng), None);
    lab.phase(0..7);
    lab.phase(0..7);
    assert_eq!(lab.group.fixed(), Some(fixed));
    lab.assert_sum(&[0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn nobody_waits_for_a_device_that_left() {
    let mut lab = Lab::new(ACTIVE, 8, 4);
    lab.join(0..8);
    lab.close(Phase::Lobby);
    (0..3).for_each(|_| lab.phase(0..8));
    // Its vector is in the sum, so it is not lost; but the phase ends without its signature.
    assert_eq!(lab.group.lose(session(0)), None);
    for place in 1..8 {
        let answer = lab.answer(place);
        lab.send(place, &answer).unwrap();
    }
    assert_eq!(lab.group.phase(), Phase::Unmask);
    for place in 1..8 {
        let answer = lab.answer(place);
        lab.send(place, &answer).unwrap();
    }
    lab.assert_sum(&[0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn sessions_subjects_and_keys_join_once() {
    let mut lab = Lab::new(PLAIN, 4, 2);
    lab.join(0..2);
    let keys: Vec<Vec<u8>> = lab.devices.iter().map(|device| device.keys.clone()).collect();
    let mut join = |place: usize, user: u64, keys: &[u8]| {
        let joined = lab
            .group
            .join(session(place), ParticipantId::new(1000 + user), keys);
        joined.map_err(|refusal| refusal.code())
    };
    use undertone_protocol::Code;
    assert_eq!(join(0, 0, &keys[0]), Ok(Accepted::Before));
    assert_eq!(join(0, 0, &keys[2]), Err(Code::Conflict));
    assert_eq!(
        join(2, 0, &keys[2]),
        Err(Code::Conflict),
        "the subject of session 0"
    );
    assert_eq!(join(2, 2, &keys[0]), Err(Code::Conflict), "the keys of session 0");
    assert_eq!(join(2, 2, &keys[2][1..]), Err(Code::Malformed));
    let mut unsigned = keys[2].clone();
    let last = unsigned.len() - 1;
    unsigned[last] ^= 1;
    assert_eq!(join(2, 2, &unsigned), Err(Code::BadSignature));
    let other = Lab::of_shard(PLAIN, 4, 2, 1);
    assert_eq!(
        join(2, 2, &other.devices[2].keys),
        Err(Code::Conflict),
        "another shard"
    );
    assert_eq!(join(2, 2, &keys[2]), Ok(Accepted::Now));
    assert_eq!(join(3, 3, &keys[3]), Ok(Accepted::Now));
    assert_eq!(join(4, 4, &keys[3]), Err(Code::Late), "no place");
    lab.close(Phase::Lobby);
    let late = lab.group.join(session(5), ParticipantId::new(1), &keys[3]);
    assert_eq!(late, Err(Refusal::Late));
    assert_eq!(
        lab.group.join(session(0), ParticipantId::new(1000), &keys[0]),
        Ok(Accepted::Before)
    );
}

#[test]
fn an_unknown_identity_is_refused() {
    let lab = Lab::new(PLAIN, 4, 2);
    let context = *lab.group.context();
    let graph = GraphChoice::Full {
        threshold_percent: 60,
    };
    let mut group = Group::new(context, Trust::Nobody, graph, 4).unwrap();
    let device = &lab.devices[0];
    let refused = group.join(device.session, device.user, &device.keys);
    assert!(matches!(refused, Err(Refusal::Identity(_))), "{refused:?}");
    assert!(Group::new(context, Trust::Anyone, graph, 1).is_err());
    assert!(Group::new(context, Trust::Anyone, graph, 301).is_err());
}

#[test]
fn a_false_share_is_worked_around_and_its_giver_named() {
    let mut lab = Lab::new(PLAIN, 10, 5);
    lab.join(0..10);
    lab.close(Phase::Lobby);
    (0..3).for_each(|_| lab.phase(0..10));
    let mut answers: Vec<Vec<u8>> = (0..10).map(|place| lab.answer(place)).collect();
    // After the head, the count, and the index and kind of the first share stand its limbs.
    answers[3][2 + 36 + 4 + 5] ^= 1;
    for (place, answer) in answers.iter().enumerate() {
        assert_eq!(lab.send(place, answer), Ok(Accepted::Now));
    }
    let sum = lab
        .group
        .seal()
        .unwrap_or_else(|refusal| panic!("{refusal}: {:?}", lab.last));
    assert_eq!(sum.sum.iter().collect::<Vec<_>>(), [1; 10]);
    assert_eq!(sum.culprits.len(), 1);
    assert_eq!(sum.culprits[0].session, session(3));
}

#[test]
fn a_device_reads_its_mail_as_often_as_it_likes_and_nothing_after_its_answer() {
    let mut lab = Lab::new(PLAIN, 4, 2);
    let stranger = lab.group.next(session(9), Phase::Lobby);
    assert!(matches!(stranger, Err(Refusal::OutOfTurn(_))));
    lab.join(0..4);
    assert_eq!(lab.group.next(session(0), Phase::Lobby), Ok(Step::Wait));
    lab.close(Phase::Lobby);
    lab.phase(0..4);
    let mail = lab.mail(0);
    assert_eq!(lab.mail(0), mail);
    // A device that has handled the roster waits for a later phase.
    assert_eq!(lab.group.next(session(0), Phase::Shares), Ok(Step::Wait));
    let answer = lab.answer(0);
    lab.send(0, &answer).unwrap();
    assert_eq!(lab.group.next(session(0), Phase::Lobby), Ok(Step::Wait));
    lab.phase(1..4);
    (0..2).for_each(|_| lab.phase(0..4));
    assert_eq!(lab.group.next(session(0), Phase::Unmask), Ok(Step::Done));
    // A repeated message is welcome after its phase, too.
    assert_eq!(lab.group.receive(session(0), &answer), Ok(Accepted::Before));
    lab.assert_sum(&[0, 1, 2, 3]);
}

#[test]
fn an_aborted_group_gives_no_sum() {
    let mut lab = Lab::new(PLAIN, 4, 2);
    lab.join(0..4);
    lab.close(Phase::Lobby);
    (0..4).for_each(|_| lab.phase(0..4));
    assert_eq!(lab.group.phase(), Phase::Summed);
    lab.group.abort();
    assert_eq!(lab.group.seal().err(), Some(Refusal::Gone));
    let mut lab = Lab::new(PLAIN, 4, 2);
    assert!(matches!(lab.group.seal().err(), Some(Refusal::OutOfTurn(_))));
    lab.group.abort();
    assert_eq!(lab.group.phase(), Phase::Failed);
}

/// Faults of a transport: messages come in any order, cut, twice, from another session, changed, and some after their phase.
fn faulty(threat_model: ThreatModel, seed: u64) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut below = move |range: usize| (rng.next_u64() % range as u64) as usize;
    let mut lab = Lab::new(threat_model, 8, 4);
    let foreign = Lab::of_shard(threat_model, 8, 4, 1);
    lab.join(0..8);
    lab.close(Phase::Lobby);
    let mut there: Vec<usize> = (0..8).collect();
    let mut included = there.clone();
    let mut delayed = Vec::new();
    for (phase, lost) in phases(threat_model) {
        assert_eq!(lab.group.phase(), phase);
        let mut answers: Vec<(usize, Vec<u8>)> =
            there.iter().map(|place| (*place, lab.answer(*place))).collect();
        for last in (1..answers.len()).rev() {
            answers.swap(last, below(last + 1));
        }
        // One device in eight is late in each of the first three phases.
        if lost.is_some() && phase != Phase::Keys && below(2) == 0 {
            let (place, answer) = answers.swap_remove(below(answers.len()));
            delayed.push((place, phase, answer));
            there.retain(|other| *other != place);
            included.retain(|other| *other != place);
        }
        for (place, answer) in &answers {
            if phase == Phase::Keys {
                continue;
            }
            for cut in [0, 1, 2, 37, answer.len() / 2, answer.len() - 1] {
                let cut = cut.min(answer.len() - 1);
                assert!(
                    lab.send(*place, &answer[..cut]).is_err(),
                    "{phase:?} cut at {cut}"
                );
            }
            assert!(
                lab.send(*place, &[&answer[..], &[0]].concat()).is_err(),
                "{phase:?} longer"
            );
            if phase != Phase::Inputs {
                // A masked vector names nobody; every other message does.
                for other in there.iter().filter(|other| *other != place) {
                    assert!(lab.send(*other, answer).is_err(), "{phase:?} of another session");
                }
                assert!(lab.send(*place, &foreign.devices[*place].keys).is_err());
            }
            assert_eq!(lab.send(*place, answer), Ok(Accepted::Now), "{phase:?}");
            let again = match phase {
                Phase::Inputs => lab.group.input(session(*place), answer),
                _ => lab.group.receive(session(*place), answer),
            };
            assert_eq!(again, Ok(Accepted::Before), "{phase:?}");
            let mut changed = answer.clone();
            changed[answer.len() - 1] ^= 1;
            match phase {
                // The first commit counts, and later ones get its answer.
                Phase::Inputs => {
                    assert_eq!(lab.group.input(session(*place), &changed), Ok(Accepted::Before));
                }
                _ => {
                    let refused = lab.group.receive(session(*place), &changed);
                    assert!(
                        matches!(refused, Err(Refusal::Conflict(_))),
                        "{phase:?} {refused:?}"
                    );
                }
            }
        }
        lab.close(phase);
        for (place, phase, answer) in &delayed {
            let late = match phase {
                Phase::Inputs => lab.group.input(session(*place), answer),
                _ => lab.group.receive(session(*place), answer),
            };
            assert_eq!(late, Err(Refusal::Gone), "{phase:?}");
        }
    }
    assert_eq!(lab.lost.len(), delayed.len());
    lab.assert_sum(&included);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    #[ignore = "slow"]
    fn faults_of_the_transport_leave_the_sum_of_the_included(seed: u64, active: bool) {
        faulty(if active { ACTIVE } else { PLAIN }, seed);
    }

    #[test]
    fn any_bytes_in_any_phase_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), phase in 0..4usize, kind in 0..11u8) {
        let mut lab = Lab::new(PLAIN, 4, 2);
        lab.join(0..3);
        let device = lab.devices[3].user;
        prop_assert!(lab.group.join(session(3), device, &bytes).is_err());
        lab.close(Phase::Lobby);
        for _ in 0..phase {
            lab.phase(0..3);
        }
        let framed = [&[1, kind][..], &bytes].concat();
        // Any bytes of the length of a masked vector are one.
        let vector = lab.group.input_bytes().expect("a length") as usize;
        prop_assume!(bytes.len() != vector && framed.len() != vector);
        for message in [&bytes, &framed] {
            prop_assert!(lab.group.receive(session(0), message).is_err());
            prop_assert!(lab.group.receive(session(7), message).is_err());
            let input = lab.group.input(session(0), message);
            prop_assert!(input.is_err() || input == Ok(Accepted::Before));
        }
        while !lab.group.phase().is_end() {
            lab.phase(0..3);
        }
        lab.assert_sum(&[0, 1, 2]);
    }
}
