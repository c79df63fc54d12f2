//! The attacks of docs/SECAGG.md, one test each, by their number there.

#![allow(clippy::unwrap_used)]

mod harness;

use std::collections::BTreeSet;
use std::sync::Arc;

use harness::{Lab, context};
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{
    AdvertiseKeys, GivenShare, MaskedInput, Message, Survivors, Unmask, UnmaskShares,
};
use undertone_secagg::{
    Client, ClientPhase, Context, Culprit, Floors, Identity, Members, Params, SecAggError, Server,
    ServerPhase, Setting, Terms, Topology, Trust,
};

const PLAIN: Setting = Setting::HonestButCurious;
const ACTIVE: Setting = Setting::Active;

fn lab(setting: Setting, n: u32, k: u32, t: u32) -> Lab {
    Lab::joined(context(20, 1000, setting), Topology::new(n, k, t).unwrap(), 11)
}

fn everybody(_: u32) -> bool {
    true
}

/// Which neighbours an answer gives a seed's share of, and which a masking key's.
fn kinds(answer: &UnmaskShares) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut seeds, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for (about, share) in &answer.shares {
        match share {
            GivenShare::Seed(_) => seeds.insert(*about),
            GivenShare::MaskingKey(_) => keys.insert(*about),
        };
    }
    (seeds, keys)
}

/// The same request with other survivors.
fn claiming(request: &Unmask, holds: impl Fn(u32) -> bool) -> Unmask {
    let survivors = Members::of(request.survivors.clients(), holds);
    Unmask {
        survivors,
        ..request.clone()
    }
}

#[test]
fn attack_01_lies_about_survivors_never_buy_both_kinds_of_share() {
    // Honest but curious: the first request is answered, with one kind about each, and no second one is.
    let mut lab = lab(PLAIN, 8, 7, 4).shared(everybody).uploaded(everybody);
    let request = lab.request(0);
    let lie = claiming(&request, |index| index != 5);
    let truth = lab.clients[0].receive_unmask(&request).unwrap();
    let (seeds, keys) = kinds(&truth);
    assert!(seeds.is_disjoint(&keys) && seeds.contains(&5));
    let again = lab.clients[0].receive_unmask(&lie);
    assert!(matches!(
        again,
        Err(SecAggError::ClientPhase {
            phase: ClientPhase::Done,
            ..
        })
    ));
    // A client that is told first that 5 is lost gives the other kind, and only that.
    let (seeds, keys) = kinds(
        &lab.clients[1]
            .receive_unmask(&claiming(&request, |index| index != 5))
            .unwrap(),
    );
    assert!(keys.contains(&5) && !seeds.contains(&5));

    // Active: two sets of survivors cannot both be signed, and a set that was not signed by the threshold is refused.
    let mut lab = self::lab(ACTIVE, 8, 7, 5)
        .shared(everybody)
        .uploaded(everybody)
        .signed(everybody);
    let request = lab.request(0);
    let lie = claiming(&request, |index| index != 5);
    let refused = lab.clients[0].receive_unmask(&lie);
    assert!(matches!(refused, Err(SecAggError::Survivors { .. })));
    assert_eq!(lab.clients[0].phase(), ClientPhase::Aborted);
    let survivors = Survivors {
        session: lie.session,
        survivors: lie.survivors,
    };
    assert!(matches!(
        lab.clients[1].receive_survivors(&survivors),
        Err(SecAggError::ClientPhase { .. })
    ));
    let mut few = lab.request(2);
    few.signatures.truncate(4);
    assert!(matches!(
        lab.clients[2].receive_unmask(&few),
        Err(SecAggError::TooFew {
            needed: 5,
            got: 4,
            ..
        })
    ));
    let mut forged = lab.request(3);
    forged.signatures[0].1[5] ^= 1;
    assert!(matches!(
        lab.clients[3].receive_unmask(&forged),
        Err(SecAggError::Signature { .. })
    ));
    let mut swapped = lab.request(4);
    swapped.signatures[0].1 = swapped.signatures[1].1;
    assert!(matches!(
        lab.clients[4].receive_unmask(&swapped),
        Err(SecAggError::Signature { .. })
    ));
}

#[test]
fn attack_01_half_the_neighbours_on_each_side_is_refused_before_it_starts() {
    let active = context(20, 1000, ACTIVE).terms;
    assert!(Params::new(active, Topology::new(8, 6, 3).unwrap()).is_err());
    assert!(Params::new(active, Topology::new(8, 6, 4).unwrap()).is_ok());
}

#[test]
fn attack_02_masks_are_never_used_twice() {
    // Within a session a second vector never meets the masks of the first.
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody);
    let relayed = lab.relayed(2);
    let (first, _) = lab.mask(2).unwrap();
    let mut other = harness::vector(&lab.context, &mut lab.rng);
    let kept: Vec<u64> = other.iter().collect();
    assert!(lab.clients[2].receive_shares(&relayed, &mut other).is_err());
    assert!(other.iter().eq(kept), "a refused vector is untouched");
    // The server commits to the first bytes: the same again is a retry and adds nothing, others are refused.
    lab.server.receive_input(&first).unwrap();
    lab.server.receive_input(&first).unwrap();
    let mut second = first.clone();
    second.packed[0] ^= 1;
    assert_eq!(
        lab.server.receive_input(&second),
        Err(SecAggError::Committed {
            message: "masked input",
            index: 2
        })
    );
    // Over attempts: another attempt is another session, and the same vector leaves as other bytes.
    let again = Context {
        attempt: 4,
        ..context(20, 1000, PLAIN)
    };
    let mut again = Lab::joined(again, Topology::new(6, 5, 3).unwrap(), 11).shared(everybody);
    assert_ne!(again.server.session(), lab.server.session());
    let masked: Vec<_> = (0..6).map(|index| again.mask(index).unwrap().0.packed).collect();
    assert!(masked.iter().all(|packed| *packed != first.packed));
    // Keys are fresh even where nothing else changes.
    let identity = Identity::from_seed(&[1; 32]);
    let mut rng = harness::rng(0);
    let mut join = || {
        Client::join(
            identity.clone(),
            context(20, 1000, PLAIN),
            Floors::SIMULATION,
            Trust::Anyone,
            &mut rng,
        )
        .1
    };
    let (one, two) = (join(), join());
    assert_ne!(one.entry.masking_key, two.entry.masking_key);
    assert_ne!(one.entry.sealing_key, two.entry.sealing_key);
}

/// That the whole key counts is the known answer in `mask.rs`; here that masked vectors of one session are unrelated.
#[test]
fn attack_03_masks_are_of_full_strength() {
    let lab = Lab::joined(context(4096, 1 << 32, PLAIN), Topology::full(3, 2).unwrap(), 5).shared(everybody);
    let mut lab = lab;
    let mut words = BTreeSet::new();
    for index in 0..3 {
        let mut zero = ModularVec::zeros(Modulus::new(1 << 32).unwrap(), 4096);
        let relayed = lab.relayed(index);
        lab.clients[index as usize]
            .receive_shares(&relayed, &mut zero)
            .unwrap();
        words.extend(zero.iter());
    }
    // 12,288 words of 32 bits: 17.6 pairs are expected to coincide; 70 or more have probability below 1e-18.
    assert!(words.len() > 12_288 - 70, "{}", words.len());
}

#[test]
fn attack_04_small_cohorts_are_refused_by_clients_and_server() {
    let refused = |floors: Floors, survivors: u32, n: u32, k: u32, t: u32| {
        let mut context = context(20, 1000, PLAIN);
        context.terms = context.terms.with_clients(survivors, 1000).unwrap();
        let mut lab = Lab::with(context, Topology::new(n, k, t).unwrap(), floors, 3);
        let error = lab.share(0).err();
        assert!(error.is_none() || lab.clients[0].phase() == ClientPhase::Aborted);
        matches!(error, Some(SecAggError::Floor { .. }))
    };
    let floors = Floors {
        min_clients: 10,
        min_survivors: 5,
        min_neighbours: 4,
        ..Floors::SIMULATION
    };
    assert!(!refused(floors, 5, 10, 4, 3));
    assert!(refused(floors, 5, 9, 4, 3), "too few clients");
    assert!(refused(floors, 4, 10, 4, 3), "too low a floor of survivors");
    assert!(refused(floors, 5, 10, 3, 3), "too few neighbours");
    assert!(
        refused(
            Floors {
                corrupt_percent: 75,
                ..floors
            },
            5,
            10,
            4,
            3
        ),
        "too low a threshold"
    );
    assert!(
        refused(
            Floors {
                active: true,
                ..floors
            },
            5,
            10,
            4,
            3
        ),
        "no signatures"
    );
    // The server: below its own floor nothing is released, at any point, and the sum is gone.
    let mut context = context(20, 1000, PLAIN);
    context.terms = context.terms.with_clients(5, 1000).unwrap();
    let lab = Lab::joined(context, Topology::full(6, 3).unwrap(), 1).shared(everybody);
    let mut lab = lab;
    for index in 0..4 {
        let (input, _) = lab.mask(index).unwrap();
        lab.server.receive_input(&input).unwrap();
    }
    let error = lab.server.close_inputs();
    assert!(matches!(
        error,
        Err(SecAggError::TooFew {
            what: "survivors",
            needed: 5,
            got: 4
        })
    ));
    assert_eq!(lab.server.phase(), ServerPhase::Aborted);
    assert!(lab.server.unmask(0).is_err() && lab.server.finish().is_err());
}

#[test]
fn attack_04_a_client_refuses_to_unmask_a_sum_over_few() {
    let mut context = context(20, 1000, PLAIN);
    context.terms = context.terms.with_clients(2, 1000).unwrap();
    let floors = Floors {
        min_survivors: 2,
        ..Floors::SIMULATION
    };
    let mut lab = Lab::with(context, Topology::new(8, 7, 3).unwrap(), floors, 2)
        .shared(everybody)
        .uploaded(everybody);
    let request = lab.request(0);
    // Three of eight would do for the threshold without this one.
    let error = lab.clients[0]
        .receive_unmask(&claiming(&request, |index| index < 3))
        .err();
    assert!(matches!(
        error,
        Some(SecAggError::TooFew {
            what: "survivors among the neighbours",
            ..
        })
    ));
}

#[test]
fn attack_05_invented_clients_are_refused_where_identities_are_known() {
    let mut rng = harness::rng(5);
    let context = context(20, 1000, PLAIN);
    let identities: Vec<Identity> = (0..5).map(|_| Identity::generate(&mut rng)).collect();
    let known: BTreeSet<_> = identities[..4].iter().map(Identity::public).collect();
    let trust = Trust::Listed(Arc::new(known));
    let mut server = Server::new(context).unwrap();
    let mut clients = Vec::new();
    for identity in &identities {
        let (client, keys) = Client::join(
            identity.clone(),
            context,
            Floors::SIMULATION,
            trust.clone(),
            &mut rng,
        );
        server.receive_keys(&keys).unwrap();
        clients.push((client, identity.public()));
    }
    server.close_keys(|n| Topology::full(n, 3), &mut rng).unwrap();
    let (client, public) = &mut clients[0];
    let roster = server.roster(server.index_of(public).unwrap()).unwrap();
    assert!(matches!(
        client.receive_roster(&roster, &mut rng),
        Err(SecAggError::UnknownIdentity { .. })
    ));
}

#[test]
fn attack_06_messages_of_another_session_are_refused() {
    let old = lab(PLAIN, 6, 5, 3).shared(everybody);
    let later = Context {
        attempt: 9,
        ..context(20, 1000, PLAIN)
    };
    let mut new = Lab::joined(later, Topology::new(6, 5, 3).unwrap(), 12);
    // R0: the old keys, signed for the old attempt, whether or not the digest in front is forged.
    let mut server = Server::new(later).unwrap();
    assert!(matches!(
        server.receive_keys(&old.keys[0]),
        Err(SecAggError::Session { .. })
    ));
    let forged = AdvertiseKeys {
        context: later.digest(),
        ..old.keys[0].clone()
    };
    assert!(matches!(
        server.receive_keys(&forged),
        Err(SecAggError::Signature { .. })
    ));
    // R1: a roster of the old attempt.
    assert!(
        new.clients[0]
            .receive_roster(&old.roster(0), &mut harness::rng(0))
            .is_err()
    );
    // R2: shares of the old session under the new one's name do not open.
    let mut new = Lab::joined(later, Topology::new(6, 5, 3).unwrap(), 12).shared(everybody);
    let mut relayed = old.relayed(0);
    let mut input = harness::vector(&new.context, &mut new.rng);
    let kept: Vec<u64> = input.iter().collect();
    relayed.session = new.server.session().unwrap();
    let error = new.clients[0].receive_shares(&relayed, &mut input).err();
    assert!(matches!(error, Some(SecAggError::TooFew { got: 0, .. })));
    assert!(input.iter().eq(kept));
    assert!(matches!(
        new.clients[1].receive_shares(&old.relayed(1), &mut input).err(),
        Some(SecAggError::Session { .. })
    ));
    // R3 and R2.5: requests of the old session.
    let mut new = Lab::joined(later, Topology::new(6, 5, 3).unwrap(), 12)
        .shared(everybody)
        .uploaded(everybody);
    let old = old.uploaded(everybody);
    assert!(matches!(
        new.clients[0].receive_unmask(&old.request(0)).err(),
        Some(SecAggError::Session { .. })
    ));
}

#[test]
fn attack_07_two_models_are_two_sessions() {
    // The server serves client 0 another model: it and the others sign different contexts and cannot meet.
    let honest = context(20, 1000, PLAIN);
    let crafted = Context {
        model_digest: [66; 32],
        ..honest
    };
    let mut rng = harness::rng(7);
    let (_, keys) = Client::join(
        Identity::generate(&mut rng),
        crafted,
        Floors::SIMULATION,
        Trust::Anyone,
        &mut rng,
    );
    let mut server = Server::new(honest).unwrap();
    assert!(matches!(
        server.receive_keys(&keys),
        Err(SecAggError::Session { .. })
    ));
    // A server that passes the keys off as signed for the honest context is found out by every neighbour.
    let mut lab = lab(PLAIN, 5, 4, 3);
    let mut roster = lab.roster(0);
    roster.neighbours[0].entry = keys.entry;
    assert!(lab.clients[0].receive_roster(&roster, &mut rng).is_err());
    // And masks that did get through would not cancel: the session's name is in every key.
    let topology = Topology::new(5, 4, 3).unwrap();
    assert_ne!(
        honest.session(&topology, &[0; 32]),
        crafted.session(&topology, &[0; 32])
    );
}

#[test]
fn attack_08_another_plan_or_other_terms_are_another_session() {
    let honest = context(20, 1000, PLAIN);
    let mut rng = harness::rng(8);
    let server = || Server::new(honest).unwrap();
    for context in [
        Context {
            plan_digest: [9; 32],
            ..honest
        },
        Context {
            terms: Terms::new(21, 1000, PLAIN).unwrap(),
            ..honest
        },
        Context {
            terms: Terms::new(20, 1001, PLAIN).unwrap(),
            ..honest
        },
        Context {
            terms: honest.terms.with_clients(3, 1000).unwrap(),
            ..honest
        },
    ] {
        let identity = Identity::generate(&mut rng);
        let (_, keys) = Client::join(identity, context, Floors::SIMULATION, Trust::Anyone, &mut rng);
        assert!(server().receive_keys(&keys).is_err());
    }
    // The server changes the terms after the clients joined.
    let mut lab = lab(PLAIN, 5, 4, 3);
    let mut roster = lab.roster(0);
    roster.params = Params::new(Terms::new(20, 999, PLAIN).unwrap(), *roster.params.topology()).unwrap();
    assert!(matches!(
        lab.clients[0].receive_roster(&roster, &mut rng),
        Err(SecAggError::Session { .. })
    ));
}

#[test]
fn attack_09_malformed_rosters_are_refused() {
    let mut rng = harness::rng(9);
    let mut refuse = |name: &str, change: &dyn Fn(&mut undertone_secagg::message::Roster, &Lab)| {
        let mut lab = lab(PLAIN, 9, 4, 3);
        let mut roster = lab.roster(3);
        change(&mut roster, &lab);
        let error = lab.clients[3].receive_roster(&roster, &mut rng).err();
        assert!(error.is_some(), "{name}");
        assert_eq!(lab.clients[3].phase(), ClientPhase::Aborted, "{name}");
        error.unwrap()
    };
    refuse("not me", &|roster, _| {
        roster.index = 4;
    });
    refuse("somebody else's place", &|roster, lab| {
        let other = lab.roster(4);
        (roster.index, roster.path, roster.neighbours) = (other.index, other.path, other.neighbours);
    });
    refuse("me as my neighbour", &|roster, lab| {
        roster.neighbours[0].entry = lab.keys[3].entry.clone();
    });
    refuse("one client twice", &|roster, _| {
        roster.neighbours[1].entry = roster.neighbours[0].entry.clone();
    });
    refuse("a neighbour too few", &|roster, _| {
        roster.neighbours.pop();
    });
    refuse("no neighbours", &|roster, _| {
        roster.neighbours.clear();
    });
    refuse("a neighbour of somebody else", &|roster, lab| {
        roster.neighbours[0] = lab
            .roster(4)
            .neighbours
            .iter()
            .find(|n| n.index == 6)
            .unwrap()
            .clone();
    });
    refuse("another root", &|roster, _| {
        roster.root[0] ^= 1;
    });
    refuse("another key", &|roster, _| {
        roster.neighbours[2].entry.masking_key[0] ^= 1;
    });
    refuse("another signature", &|roster, _| {
        roster.neighbours[2].entry.signature[0] ^= 1;
    });
    refuse("another graph", &|roster, _| {
        roster.params = Params::new(*roster.params.terms(), Topology::new(9, 2, 1).unwrap()).unwrap();
    });
    // Keys that force the agreed secret, at the server and in an otherwise perfect roster.
    let honest = context(20, 1000, PLAIN);
    let mut small = lab(PLAIN, 9, 4, 3).keys[0].clone();
    small.entry.masking_key = [0; 32];
    let error = Server::new(honest).unwrap().receive_keys(&small);
    assert!(matches!(error, Err(SecAggError::Key { which: "masking", .. })));
    // A client cannot join twice, nor with another's keys.
    let mut server = Server::new(honest).unwrap();
    let identity = Identity::generate(&mut rng);
    let mut join = |identity: &Identity| {
        Client::join(
            identity.clone(),
            honest,
            Floors::SIMULATION,
            Trust::Anyone,
            &mut rng,
        )
        .1
    };
    let (one, two, mut copy) = (
        join(&identity),
        join(&identity),
        join(&Identity::from_seed(&[3; 32])),
    );
    server.receive_keys(&one).unwrap();
    server.receive_keys(&one).unwrap();
    assert_eq!(server.joined(), 1, "the same message again is a retry");
    assert!(matches!(
        server.receive_keys(&two),
        Err(SecAggError::Committed { .. })
    ));
    copy.entry.masking_key = one.entry.masking_key;
    assert!(matches!(
        server.receive_keys(&copy),
        Err(SecAggError::DuplicateKey { .. })
    ));
    // Parameters out of the client's range: see attack 4 for the floors; here the cost.
    let narrow = Floors {
        max_neighbours: 3,
        ..Floors::SIMULATION
    };
    let mut lab = Lab::with(honest, Topology::new(9, 4, 3).unwrap(), narrow, 1);
    assert!(matches!(
        lab.share(0),
        Err(SecAggError::Floor {
            expected: "at most",
            ..
        })
    ));
}

#[test]
fn attack_10_vectors_of_the_wrong_shape_are_refused() {
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody);
    let (good, _) = lab.mask(0).unwrap();
    let with = |packed: Vec<u8>| MaskedInput {
        packed,
        ..good.clone()
    };
    let mut longer = good.packed.clone();
    longer.push(0);
    assert!(lab.server.receive_input(&with(longer)).is_err());
    assert!(
        lab.server
            .receive_input(&with(good.packed[1..].to_vec()))
            .is_err()
    );
    assert!(
        lab.server
            .receive_input(&with(vec![255; good.packed.len()]))
            .is_err(),
        "1023 is not below 1000"
    );
    assert!(
        lab.server
            .receive_input(&MaskedInput {
                index: 6,
                ..good.clone()
            })
            .is_err()
    );
    // None of them was added, and none stands in the way.
    lab.server.receive_input(&good).unwrap();
    // A client is not talked into another shape either.
    for wrong in [
        ModularVec::zeros(Modulus::new(1000).unwrap(), 19),
        ModularVec::zeros(Modulus::new(999).unwrap(), 20),
    ] {
        let mut lab = self::lab(PLAIN, 6, 5, 3).shared(everybody);
        let (relayed, mut wrong) = (lab.relayed(1), wrong);
        let error = lab.clients[1].receive_shares(&relayed, &mut wrong).err();
        assert!(matches!(error, Some(SecAggError::Vector { .. })));
    }
    // The cap on clients, for which the modulus was sized.
    let mut capped = context(20, 1000, PLAIN);
    capped.terms = capped.terms.with_clients(2, 3).unwrap();
    let mut server = Server::new(capped).unwrap();
    let mut rng = harness::rng(10);
    let mut join = || {
        Client::join(
            Identity::generate(&mut rng),
            capped,
            Floors::SIMULATION,
            Trust::Anyone,
            &mut rng,
        )
        .1
    };
    for _ in 0..3 {
        server.receive_keys(&join()).unwrap();
    }
    assert_eq!(
        server.receive_keys(&join()),
        Err(SecAggError::TooMany { most: 3 })
    );
}

/// What no server can see, stated as a fact: a client that adds M - 1 to an element is a client that takes 1 away.
#[test]
fn attack_11_a_lying_client_changes_the_sum_by_what_it_sent_and_no_more() {
    let mut lab = lab(PLAIN, 5, 4, 3).shared(everybody).uploaded(everybody);
    for index in 0..5 {
        let answer = lab.answer(index).unwrap();
        lab.server.receive_unmask(&answer).unwrap();
    }
    let outcome = lab.server.finish().unwrap();
    assert!(outcome.sum.iter().eq(lab.expected()));
}

/// An answer whose share about each of `about` is changed.
fn spoiled(answer: &UnmaskShares, about: &[u32]) -> UnmaskShares {
    let mut bytes = answer.encode();
    let (head, entry) = (2 + 32 + 4 + 4, 4 + 1 + 40);
    for (place, (index, _)) in answer.shares.iter().enumerate() {
        if about.contains(index) {
            bytes[head + place * entry + 5] ^= 1;
        }
    }
    UnmaskShares::decode(&bytes).unwrap()
}

#[test]
fn attack_12_false_shares_are_worked_around_and_their_givers_named() {
    let mut lab = lab(PLAIN, 12, 11, 6)
        .shared(everybody)
        .uploaded(|index| index != 4);
    for index in (0..12).filter(|index| *index != 4) {
        let mut answer = lab.answer(index).unwrap();
        if index == 1 {
            answer = spoiled(&answer, &[2, 4]);
        }
        if index == 7 {
            answer = spoiled(&answer, &[4]);
        }
        lab.server.receive_unmask(&answer).unwrap();
    }
    let outcome = lab.server.finish().unwrap();
    assert!(outcome.sum.iter().eq(lab.expected()));
    let culprit = |index, about| Culprit { index, about };
    assert_eq!(outcome.culprits, [culprit(1, 2), culprit(1, 4), culprit(7, 4)]);
}

#[test]
fn attack_12_too_many_false_shares_release_nothing() {
    let mut lab = lab(PLAIN, 6, 5, 4).shared(everybody).uploaded(everybody);
    for index in 0..6 {
        let answer = lab.answer(index).unwrap();
        let answer = if index < 3 { spoiled(&answer, &[5]) } else { answer };
        lab.server.receive_unmask(&answer).unwrap();
    }
    assert!(matches!(
        lab.server.finish(),
        Err(SecAggError::Unrecoverable { index: 5, .. })
    ));
    assert_eq!(lab.server.phase(), ServerPhase::Aborted);
    assert!(lab.server.finish().is_err());
}

#[test]
fn attack_12_a_share_of_the_wrong_kind_is_not_even_kept() {
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody).uploaded(everybody);
    let answer = lab.answer(0).unwrap();
    let mut bytes = answer.encode();
    bytes[2 + 32 + 4 + 4 + 4] ^= 1; // the kind of the first share
    let other = UnmaskShares::decode(&bytes).unwrap();
    assert!(matches!(
        lab.server.receive_unmask(&other),
        Err(SecAggError::ShareKind { index: 0, .. })
    ));
    lab.server.receive_unmask(&answer).unwrap();
}

#[test]
fn attack_12_sealed_shares_that_do_not_open_cost_one_share_not_a_client() {
    let mut lab = lab(PLAIN, 6, 5, 3);
    for index in 0..6 {
        let mut message = lab.share(index).unwrap();
        if index == 2 {
            message.shares[0].sealed[0] ^= 1; // for client 0
        }
        lab.server.receive_shares(&message).unwrap();
    }
    lab.server.close_shares().unwrap();
    let mut lab = lab.uploaded(everybody);
    for index in 0..6 {
        let answer = lab.answer(index).unwrap();
        assert_eq!(answer.shares.len(), if index == 0 { 4 } else { 5 });
        lab.server.receive_unmask(&answer).unwrap();
    }
    assert!(lab.server.finish().unwrap().sum.iter().eq(lab.expected()));
}

#[test]
fn attack_13_late_uploads_are_refused() {
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody);
    let (late, _) = lab.mask(5).unwrap();
    let mut lab = lab.uploaded(|index| index < 5);
    assert!(matches!(
        lab.server.receive_input(&late),
        Err(SecAggError::ServerPhase {
            phase: ServerPhase::Unmask,
            ..
        })
    ));
    assert!(
        lab.server.close_inputs().is_err(),
        "the set of survivors is written once"
    );
    assert!(!lab.server.survivors().unwrap().survivors.contains(5));
    let answer = lab.clients[5].receive_unmask(&lab.server.unmask(0).unwrap());
    assert!(answer.is_err(), "a client that was left out gives nothing away");
}

#[test]
fn attack_14_sizes_do_not_depend_on_what_is_in_them() {
    let mut sizes = BTreeSet::new();
    for fill in [0u32, 1, 999] {
        let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody);
        for index in 0..6 {
            let mut input = ModularVec::from_residues(Modulus::new(1000).unwrap(), &[fill; 20]).unwrap();
            let relayed = lab.relayed(index);
            sizes.insert(
                lab.clients[index as usize]
                    .receive_shares(&relayed, &mut input)
                    .unwrap()
                    .encode()
                    .len(),
            );
        }
    }
    assert_eq!(sizes.len(), 1);
}

#[test]
fn attack_15_errors_and_debug_output_hold_no_element() {
    let mut lab = lab(PLAIN, 5, 4, 3).shared(everybody);
    let (mut input, _) = lab.mask(0).unwrap();
    input.packed = vec![255; input.packed.len()];
    let error = lab.server.receive_input(&input).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("1023"), "{text}");
    let mut lab = self::lab(PLAIN, 5, 4, 3).shared(everybody).uploaded(everybody);
    for index in 0..5 {
        let answer = lab.answer(index).unwrap();
        lab.server.receive_unmask(&answer).unwrap();
    }
    let outcome = format!("{:?}", lab.server.finish().unwrap().sum);
    assert_eq!(outcome, "ModularVec { modulus: 1000, len: 20, .. }");
}

/// That secret types have no `Debug` is in their doctests; here that a finished or failed machine holds nothing.
#[test]
fn attack_16_machines_forget() {
    let mut lab = lab(PLAIN, 5, 4, 3).shared(everybody).uploaded(everybody);
    lab.answer(0).unwrap();
    assert_eq!(
        (lab.clients[0].phase(), lab.clients[0].identity()),
        (ClientPhase::Done, None)
    );
    let wrong = claiming(&lab.request(1), |_| false);
    assert!(lab.clients[1].receive_unmask(&wrong).is_err());
    assert_eq!(
        (lab.clients[1].phase(), lab.clients[1].identity()),
        (ClientPhase::Aborted, None)
    );
    assert!(lab.answer(1).is_err());
}

#[test]
fn attack_17_one_sum_a_session_over_one_set() {
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody).uploaded(|index| index < 5);
    for index in 0..5 {
        let answer = lab.answer(index).unwrap();
        lab.server.receive_unmask(&answer).unwrap();
    }
    lab.server.finish().unwrap();
    assert!(matches!(
        lab.server.finish(),
        Err(SecAggError::ServerPhase {
            phase: ServerPhase::Done,
            ..
        })
    ));
    assert!(lab.server.unmask(0).is_err());
    // The clients would not help with a sum over another subset either: they have answered.
    let session = lab.server.session().unwrap();
    for index in 0..5u32 {
        let request = Unmask {
            session,
            survivors: Members::of(6, |i| i < 4),
            signatures: Vec::new(),
        };
        assert!(lab.clients[index as usize].receive_unmask(&request).is_err());
    }
}
