//! Attacks of clients that want a session to fail, by their number in docs/design/secure-aggregation.md.

use undertone_secagg::message::{Message, UnmaskShares};
use undertone_secagg::{
    Client, Culprit, Floors, SecAggError, Server, ServerPhase, SigningIdentity, Topology,
};

use crate::harness::{self, ACTIVE, PLAIN, context, everybody, lab, listed, refused};

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
    lab.answers((0..12).filter(|index| *index != 4), |index, answer| match index {
        1 => spoiled(&answer, &[2, 4]),
        7 => spoiled(&answer, &[4]),
        _ => answer,
    });
    let outcome = lab.server.finish().unwrap();
    assert!(outcome.sum.iter().eq(lab.expected()));
    let culprit = |index, about| Culprit { index, about };
    assert_eq!(outcome.culprits, [culprit(1, 2), culprit(1, 4), culprit(7, 4)]);
}

#[test]
fn attack_12_too_many_false_shares_release_nothing() {
    let mut lab = lab(PLAIN, 6, 5, 4).shared(everybody).uploaded(everybody);
    lab.answers(0..6, |index, answer| match index {
        0..3 => spoiled(&answer, &[5]),
        _ => answer,
    });
    refused(lab.server.finish(), "a retry must exclude client 5");
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
    refused(
        lab.server.receive_unmask(&other),
        "client 0 gave a share of the wrong kind",
    );
    lab.server.receive_unmask(&answer).unwrap();
}

#[test]
fn attack_12_sealed_shares_that_do_not_open_cost_one_share_not_a_client() {
    // The share for client 0 does not open.
    let mut lab = lab(PLAIN, 6, 5, 3)
        .shared_by(2, |message| message.shares[0].sealed[0] ^= 1)
        .uploaded(everybody);
    for index in 0..6 {
        let answer = lab.answer(index).unwrap();
        assert_eq!(answer.shares.len(), if index == 0 { 4 } else { 5 });
        lab.server.receive_unmask(&answer).unwrap();
    }
    assert!(lab.server.finish().unwrap().sum.iter().eq(lab.expected()));
}

#[test]
fn attack_12_a_liar_about_everybody_is_found_and_the_sum_is_exact() {
    // Three of forty lie about all their neighbours, of whom two are lost: half of the surplus shares may be false.
    let mut lab = lab(PLAIN, 40, 39, 26)
        .shared(everybody)
        .uploaded(|index| index != 9 && index != 21);
    let everyone: Vec<u32> = (0..40).collect();
    let there = (0..40).filter(|index| *index != 9 && *index != 21);
    lab.answers(there, |index, answer| match index {
        0 | 5 | 30 => spoiled(&answer, &everyone),
        _ => answer,
    });
    let outcome = lab.server.finish().unwrap();
    assert!(outcome.sum.iter().eq(lab.expected()));
    let mut liars: Vec<u32> = outcome.culprits.iter().map(|culprit| culprit.index).collect();
    liars.dedup();
    assert_eq!(liars, [0, 5, 30]);
}

#[test]
fn attack_19_an_outsider_does_not_end_a_session_of_listed_clients() {
    let mut rng = harness::rng(19);
    let mut context = context(4, 1000, ACTIVE);
    context.terms = context.terms.with_clients(20, 1000).unwrap();
    let identities: Vec<SigningIdentity> = (0..30).map(|_| SigningIdentity::generate(&mut rng)).collect();
    let floors = Floors::COMPILED
        .with_clients(30, 20)
        .unwrap()
        .with_trust(listed(&identities))
        .unwrap();
    let mut server = Server::new(context, listed(&identities)).unwrap();
    let outsider = SigningIdentity::generate(&mut rng);
    let (_, keys) = Client::join(outsider, context, floors.clone(), &mut rng);
    refused(server.receive_keys(&keys), "not on the list of known devices");
    let mut clients = Vec::new();
    for identity in identities {
        let public = identity.public();
        let (client, keys) = Client::join(identity, context, floors.clone(), &mut rng);
        server.receive_keys(&keys).unwrap();
        clients.push((client, public));
    }
    assert_eq!(server.joined(), 30);
    let (_, keys) = Client::join(SigningIdentity::generate(&mut rng), context, floors, &mut rng);
    assert!(server.receive_keys(&keys).is_err());
    server.close_keys(|n| Topology::full(n, 20), &mut rng).unwrap();
    for (client, public) in &mut clients {
        let roster = server.roster(server.index_of(public).unwrap()).unwrap();
        assert!(client.receive_roster(&roster, &mut rng).is_ok());
    }
}

#[test]
fn attack_19_an_insider_with_a_false_commitment_is_named_and_a_retry_without_it_succeeds() {
    let mut lab = lab(PLAIN, 24, 23, 13)
        .shared_by(17, |message| message.commitment[0] ^= 1)
        .uploaded(everybody);
    lab.answered(0..24);
    assert!(lab.server.missing().is_empty());
    let error = lab.server.finish().unwrap_err();
    assert_eq!(error, SecAggError::Unrecoverable { exclude: vec![17] });
    assert_eq!(
        error.to_string(),
        "the masks of some clients cannot be removed; a retry must exclude client 17"
    );
    assert_eq!(lab.server.phase(), ServerPhase::Aborted);
}

#[test]
fn attack_19_an_insider_whose_shares_open_for_nobody_is_named() {
    let mut lab = lab(PLAIN, 12, 11, 7)
        .shared_by(4, |message| {
            message.shares.iter_mut().for_each(|shares| shares.sealed[0] ^= 1);
        })
        .uploaded(everybody);
    lab.answered(0..12);
    assert_eq!(lab.server.missing(), [4]);
    assert_eq!(
        lab.server.finish().unwrap_err(),
        SecAggError::Unrecoverable { exclude: vec![4] }
    );
}

#[test]
fn attack_19_finishing_too_early_costs_nothing() {
    let mut lab = lab(PLAIN, 8, 7, 5).shared(everybody).uploaded(|index| index != 3);
    let everyone: Vec<u32> = (0..8).collect();
    for index in [0, 1, 2, 4] {
        let answer = lab.answer(index).unwrap();
        lab.server.receive_unmask(&answer).unwrap();
        assert_eq!(lab.server.missing(), everyone);
    }
    refused(lab.server.finish(), "expected at least 5 clients");
    assert_eq!(lab.server.phase(), ServerPhase::Unmask);
    // Five shares about the lost client and about those who have not answered; the others lack their own.
    lab.answered([5]);
    assert_eq!(lab.server.missing(), [0, 1, 2, 4, 5]);
    assert!(lab.server.finish().is_err());
    lab.answered([6]);
    assert!(lab.server.missing().is_empty());
    assert!(lab.server.finish().unwrap().sum.iter().eq(lab.expected()));
}

#[test]
fn attack_19_false_shares_do_not_end_a_session_that_still_awaits_answers() {
    // Six of seven shares about client 7 have come, two of them false; with the seventh, five true ones open it.
    let mut lab = lab(PLAIN, 8, 7, 5).shared(everybody).uploaded(everybody);
    lab.answers(0..6, |index, answer| match index {
        0..2 => spoiled(&answer, &[7]),
        _ => answer,
    });
    assert_eq!(
        lab.server.finish().unwrap_err(),
        SecAggError::Unrecoverable { exclude: vec![7] }
    );
    assert_eq!(lab.server.phase(), ServerPhase::Unmask);
    lab.answered(6..8);
    let outcome = lab.server.finish().unwrap();
    assert!(outcome.sum.iter().eq(lab.expected()));
    // Two of seven where five open a secret: too many to tell the liars from the honest, so nobody is accused.
    assert!(outcome.culprits.is_empty());
}

#[test]
fn attack_19_a_signature_counts_in_its_own_neighbourhood_only() {
    // A ring of 24 with 4 neighbours each, 3 to open a secret. The clients of one half sign: twelve signatures, four times
    // the threshold. But nobody in the other half is shown three, so their secrets would stay shut.
    let mut lab = lab(ACTIVE, 24, 4, 3).shared(everybody).uploaded(everybody);
    for index in 0..12 {
        let signature = lab.sign(index).unwrap();
        lab.server.receive_consistency(&signature).unwrap();
    }
    refused(
        lab.server.close_signatures(),
        "expected at least 3 clients, got 0",
    );
    assert_eq!(lab.server.phase(), ServerPhase::Aborted);
    // One silent client costs nobody anything.
    let mut lab = self::lab(ACTIVE, 24, 4, 3)
        .shared(everybody)
        .uploaded(everybody)
        .signed(|index| index != 7);
    lab.answered((0..24).filter(|index| *index != 7));
    assert!(lab.server.finish().unwrap().sum.iter().eq(lab.expected()));
}
