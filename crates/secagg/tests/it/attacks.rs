//! The attacks of docs/design/secure-aggregation.md by their number there. Those that floors stop are in `floors.rs`, those with malformed
//! messages in `malformed.rs`, those on a session's end in `availability.rs`, those on memory in `memory.rs`.

use std::collections::BTreeSet;

use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{
    AdvertiseKeys, GivenShare, MaskedInput, Message, Survivors, Unmask, UnmaskShares,
};
use undertone_secagg::{
    Client, ClientPhase, Context, Members, Params, SecAggError, Server, SigningIdentity, Terms, ThreatModel,
    Topology, Trust,
};

use crate::harness::{self, ACTIVE, Lab, PLAIN, context, everybody, lab, refused};

/// The neighbours of whose seed an answer gives a share, and those of whose masking key it gives one.
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

/// A request that names other survivors.
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
    refused(
        lab.clients[0].receive_unmask(&lie),
        "request to unmask does not belong to phase Done",
    );
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
    refused(
        lab.clients[0].receive_unmask(&lie),
        "the set of survivors contradicts",
    );
    assert_eq!(lab.clients[0].phase(), ClientPhase::Aborted);
    let survivors = Survivors {
        session: lie.session,
        survivors: lie.survivors,
    };
    refused(
        lab.clients[1].receive_survivors(&survivors),
        "survivors does not belong to phase Unmask",
    );
    let mut few = lab.request(2);
    few.signatures.truncate(4);
    refused(
        lab.clients[2].receive_unmask(&few),
        "expected at least 5 clients, got 4",
    );
    let mut forged = lab.request(3);
    forged.signatures[0].1[5] ^= 1;
    refused(
        lab.clients[3].receive_unmask(&forged),
        "its signature of the set of survivors is not valid",
    );
    let mut swapped = lab.request(4);
    swapped.signatures[0].1 = swapped.signatures[1].1;
    refused(
        lab.clients[4].receive_unmask(&swapped),
        "its signature of the set of survivors is not valid",
    );
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
    // Over attempts: all else equal, the same vector of the same client leaves as unrelated bytes. Of 4096 words below 2^32
    // two in the same place coincide with probability 1e-6 in all.
    let masked = |attempt| {
        let context = Context {
            attempt,
            ..context(4096, 1 << 32, PLAIN)
        };
        let mut lab = Lab::joined(context, Topology::full(3, 2).unwrap(), 11).shared(everybody);
        let index = lab
            .server
            .index_of(&SigningIdentity::generate(&mut harness::rng(11)).public())
            .unwrap();
        let modulus = Modulus::new(1 << 32).unwrap();
        let mut vector = ModularVec::from_residues(modulus, &[77u32; 4096]).unwrap();
        lab.mask_vector(index, &mut vector).unwrap();
        (lab.server.session(), vector.iter().collect::<Vec<u64>>())
    };
    let (one, two) = (masked(3), masked(4));
    assert_ne!(one.0, two.0, "another attempt is another session");
    assert!(one.1.iter().zip(&two.1).all(|(one, two)| one != two));
    // Keys are fresh even where nothing else changes.
    let identity = SigningIdentity::from_seed(&[1; 32]);
    let mut rng = harness::rng(0);
    let mut join = || Client::join_simulation(identity.clone(), context(20, 1000, PLAIN), &mut rng).1;
    let (one, two) = (join(), join());
    assert_ne!(one.entry.masking_key, two.entry.masking_key);
    assert_ne!(one.entry.sealing_key, two.entry.sealing_key);
}

/// Masked vectors of one session are unrelated. That the whole key counts is shown by the known answer in `mask.rs`.
#[test]
fn attack_03_masks_are_of_full_strength() {
    let topology = Topology::full(3, 2).unwrap();
    let mut lab = Lab::joined(context(4096, 1 << 32, PLAIN), topology, 5).shared(everybody);
    let mut words = BTreeSet::new();
    for index in 0..3 {
        let mut zero = ModularVec::zeros(Modulus::new(1 << 32).unwrap(), 4096);
        lab.mask_vector(index, &mut zero).unwrap();
        words.extend(zero.iter());
    }
    // 12,288 words of 32 bits: 17.6 pairs are expected to coincide; 70 or more have probability below 1e-18.
    assert!(words.len() > 12_288 - 70, "{}", words.len());
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
    let mut server = Server::new(later, Trust::Anyone).unwrap();
    refused(
        server.receive_keys(&old.keys[0]),
        "keys belongs to a different session",
    );
    let forged = AdvertiseKeys {
        context: later.digest(),
        ..old.keys[0].clone()
    };
    refused(
        server.receive_keys(&forged),
        "its signature of its keys is not valid",
    );
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
    refused(new.clients[0].receive_shares(&relayed, &mut input), "got 0");
    assert!(input.iter().eq(kept));
    refused(
        new.clients[1].receive_shares(&old.relayed(1), &mut input),
        "relayed shares belongs to a different session",
    );
    // R2.5: survivors of the old session, to be signed once more.
    let active = |attempt| {
        let context = Context {
            attempt,
            ..context(20, 1000, ACTIVE)
        };
        Lab::joined(context, Topology::new(6, 5, 3).unwrap(), 12)
            .shared(everybody)
            .uploaded(everybody)
    };
    let (first, mut second) = (active(3), active(9));
    refused(
        second.clients[0].receive_survivors(&first.server.survivors().unwrap()),
        "survivors belongs to a different session",
    );
    // R3: requests of the old session.
    let mut new = Lab::joined(later, Topology::new(6, 5, 3).unwrap(), 12)
        .shared(everybody)
        .uploaded(everybody);
    let old = old.uploaded(everybody);
    refused(
        new.clients[0].receive_unmask(&old.request(0)),
        "request to unmask belongs to a different session",
    );
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
    let (_, keys) = Client::join_simulation(SigningIdentity::generate(&mut rng), crafted, &mut rng);
    let mut server = Server::new(honest, Trust::Anyone).unwrap();
    refused(server.receive_keys(&keys), "keys belongs to a different session");
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
    let server = || Server::new(honest, Trust::Anyone).unwrap();
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
        let identity = SigningIdentity::generate(&mut rng);
        let (_, keys) = Client::join_simulation(identity, context, &mut rng);
        assert!(server().receive_keys(&keys).is_err());
    }
    // The server changes the terms after the clients joined.
    let mut lab = lab(PLAIN, 5, 4, 3);
    let mut roster = lab.roster(0);
    roster.params = Params::new(Terms::new(20, 999, PLAIN).unwrap(), *roster.params.topology()).unwrap();
    refused(
        lab.clients[0].receive_roster(&roster, &mut rng),
        "roster belongs to a different session",
    );
}

/// No server can see that a client adds M - 1 to an element instead of taking 1 away.
#[test]
fn attack_11_a_lying_client_changes_the_sum_by_what_it_sent_and_no_more() {
    let sum = |lie: Option<u64>| {
        let mut lab = lab(PLAIN, 5, 4, 3).shared(everybody);
        let mut expected = vec![0u64; 20];
        for index in 0..5 {
            let mut vector = harness::vector(&lab.context, &mut harness::rng(index.into()));
            let mut sent: Vec<u64> = vector.iter().collect();
            // The liar's vector is no encoding of anything: every element is M - 1, or another constant.
            if let (2, Some(lie)) = (index, lie) {
                sent = vec![lie; 20];
                vector = ModularVec::from_residues(Modulus::new(1000).unwrap(), &sent).unwrap();
            }
            for (sum, x) in expected.iter_mut().zip(&sent) {
                *sum = (*sum + x) % 1000;
            }
            lab.upload(index, &mut vector);
        }
        lab.server.close_inputs().unwrap();
        lab.answered(0..5);
        let outcome = lab.server.finish().unwrap();
        assert!(outcome.culprits.is_empty(), "nobody notices");
        let sum: Vec<u64> = outcome.sum.iter().collect();
        assert_eq!(sum, expected);
        sum
    };
    let honest: Vec<u64> = harness::vector(&context(20, 1000, PLAIN), &mut harness::rng(2))
        .iter()
        .collect();
    let truth = sum(None);
    for lie in [999, 500, 0] {
        let lied = sum(Some(lie));
        let moved = truth
            .iter()
            .zip(&honest)
            .map(|(sum, own)| (sum + 1000 - own + lie) % 1000);
        assert!(moved.eq(lied), "the sum moves by the lie less the honest vector");
    }
}

#[test]
fn attack_13_late_uploads_are_refused() {
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody);
    let (late, _) = lab.mask(5).unwrap();
    let mut lab = lab.uploaded(|index| index < 5);
    refused(lab.server.receive_input(&late), "does not belong to phase Unmask");
    assert!(
        lab.server.close_inputs().is_err(),
        "the set of survivors is written once"
    );
    assert!(!lab.server.survivors().unwrap().survivors.contains(5));
    let answer = lab.clients[5].receive_unmask(&lab.server.unmask(0).unwrap());
    assert!(answer.is_err(), "a client that was left out gives nothing away");
}

/// Sizes alone: that the arithmetic has no branch on a secret is by construction, and not measured here.
#[test]
fn attack_14_no_message_has_a_size_that_depends_on_a_vector() {
    // Of every message that every client sends, by round.
    let sizes = |threat_model: ThreatModel, modulus: u64, fill: &dyn Fn(u64) -> u64| {
        let mut lab = Lab::joined(
            context(20, modulus, threat_model),
            Topology::new(6, 5, 3).unwrap(),
            11,
        )
        .shared(everybody);
        let mut sizes = Vec::new();
        for index in 0..6 {
            let residues: Vec<u64> = (0..20).map(|place| fill(place) % modulus).collect();
            let mut input = ModularVec::from_residues(Modulus::new(modulus).unwrap(), &residues).unwrap();
            sizes.push(lab.upload(index, &mut input).encode().len());
        }
        lab.server.close_inputs().unwrap();
        if threat_model == ACTIVE {
            for index in 0..6 {
                let signature = lab.sign(index).unwrap();
                sizes.push(signature.encode().len());
                lab.server.receive_consistency(&signature).unwrap();
            }
            lab.server.close_signatures().unwrap();
        }
        for index in 0..6 {
            sizes.push(lab.answer(index).unwrap().encode().len());
        }
        sizes
    };
    for threat_model in [PLAIN, ACTIVE] {
        for modulus in [2, 1000, 1 << 20, (1 << 61) + 1] {
            let zeros = sizes(threat_model, modulus, &|_| 0);
            assert_eq!(zeros, sizes(threat_model, modulus, &|_| modulus - 1));
            assert_eq!(
                zeros,
                sizes(threat_model, modulus, &|place| place
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15))
            );
        }
    }
}

#[test]
fn attack_15_no_error_and_no_debug_output_holds_an_element() {
    // Elements that show in any text: 19 digits, or their bytes in hexadecimal.
    const ELEMENT: u64 = 0x1234_5678_9abc_def0;
    let modulus = Modulus::new(1 << 61).unwrap();
    let make = |threat_model| {
        Lab::joined(
            context(20, 1 << 61, threat_model),
            Topology::new(5, 4, 3).unwrap(),
            11,
        )
    };
    let vector = || ModularVec::from_residues(modulus, &[ELEMENT; 20]).unwrap();
    let mut texts = Vec::new();
    let mut note = |what: &str, error: Option<SecAggError>| {
        let error = error.unwrap_or_else(|| panic!("{what} is no error"));
        texts.push(format!("{what}: {error} {error:?}"));
    };
    let mut lab = make(ACTIVE).shared(everybody);
    // The client holds the vector while it refuses the message that asks for it.
    let mut relayed = lab.relayed(0);
    relayed.shares.truncate(2);
    note(
        "few shares",
        lab.clients[0].receive_shares(&relayed, &mut vector()).err(),
    );
    note(
        "twice",
        lab.clients[0].receive_shares(&relayed, &mut vector()).err(),
    );
    let mut relayed = lab.relayed(1);
    relayed.shares[0].index = 1;
    note(
        "a stranger",
        lab.clients[1].receive_shares(&relayed, &mut vector()).err(),
    );
    let mut wide = ModularVec::from_residues(Modulus::new(1 << 62).unwrap(), &[ELEMENT; 20]).unwrap();
    note("another modulus", lab.mask_vector(2, &mut wide).err());
    // The server refuses vectors of residues in the clear, as a client without masks would send them.
    let session = lab.server.session().unwrap();
    let packed = vector().iter().flat_map(u64::to_le_bytes).collect();
    let clear = MaskedInput {
        session,
        index: 3,
        packed,
    };
    note("another length", lab.server.receive_input(&clear).err());
    let (good, _) = lab.mask(3).unwrap();
    lab.server.receive_input(&good).unwrap();
    let mut other = good.clone();
    other.packed[0] ^= 1;
    note("another vector", lab.server.receive_input(&other).err());
    note("few survivors", lab.server.close_inputs().err());
    // A residue above an odd modulus is refused without being named.
    let mut lab = self::lab(PLAIN, 5, 4, 3).shared(everybody);
    let (mut input, _) = lab.mask(0).unwrap();
    input.packed = vec![255; input.packed.len()];
    let error = lab.server.receive_input(&input).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("1023"), "{error:?}");
    // The sum.
    let mut lab = make(PLAIN).shared(everybody);
    for index in 0..5 {
        lab.upload(index, &mut vector());
    }
    lab.server.close_inputs().unwrap();
    lab.answered(0..5);
    let outcome = lab.server.finish().unwrap();
    texts.push(format!("{outcome:?} {:?}", vector()));
    let sum = outcome.sum.iter().next().unwrap();
    for text in texts {
        for element in [ELEMENT, sum] {
            let hex = format!("{element:x}");
            let found = text.contains(&element.to_string()) || text.to_lowercase().contains(&hex);
            assert!(!found, "{text}");
        }
    }
}

#[test]
fn attack_17_one_sum_a_session_over_one_set() {
    let mut lab = lab(PLAIN, 6, 5, 3).shared(everybody).uploaded(|index| index < 5);
    lab.answered(0..5);
    lab.server.finish().unwrap();
    refused(lab.server.finish(), "does not belong to phase Done");
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
