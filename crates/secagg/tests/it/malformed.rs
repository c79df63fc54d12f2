//! Attacks with malformed rosters, keys and vectors, by their number in docs/design/secure-aggregation.md.

use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{AdvertiseKeys, MaskedInput, RelayedShares, SealedShares, ShareKeys};
use undertone_secagg::{Client, ClientPhase, Params, SecAggError, Server, SigningIdentity, Topology, Trust};

use crate::harness::{self, Lab, PLAIN, context, everybody, forge, lab, refused};

#[test]
fn attack_09_malformed_rosters_are_refused() {
    let mut rng = harness::rng(9);
    let mut refuse = |name: &str, change: &dyn Fn(&mut undertone_secagg::message::Roster, &Lab)| {
        let mut lab = lab(PLAIN, 9, 4, 3);
        let mut roster = lab.roster(3);
        change(&mut roster, &lab);
        assert!(
            lab.clients[3].receive_roster(&roster, &mut rng).is_err(),
            "{name}"
        );
        assert_eq!(lab.clients[3].phase(), ClientPhase::Aborted, "{name}");
    };
    refuse("not me", &|roster, _| roster.index = 4);
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
    refuse("a neighbour too few", &|roster, _| drop(roster.neighbours.pop()));
    refuse("no neighbours", &|roster, _| roster.neighbours.clear());
    refuse("a neighbour of somebody else", &|roster, lab| {
        roster.neighbours[0] = lab
            .roster(4)
            .neighbours
            .iter()
            .find(|n| n.index == 6)
            .unwrap()
            .clone();
    });
    refuse("another root", &|roster, _| roster.root[0] ^= 1);
    refuse("another key", &|roster, _| {
        roster.neighbours[2].entry.masking_key[0] ^= 1;
    });
    refuse("another signature", &|roster, _| {
        roster.neighbours[2].entry.signature[0] ^= 1;
    });
    refuse("another place of a neighbour", &|roster, _| {
        roster.neighbours[2].index += 1;
    });
    refuse("another graph", &|roster, _| {
        roster.params = Params::new(*roster.params.terms(), Topology::new(9, 2, 1).unwrap()).unwrap();
    });
    // Keys that force the agreed secret, and a second encoding of an honest key: at the server, and in an otherwise perfect
    // roster of a server that lets them pass.
    let honest = context(20, 1000, PLAIN);
    let topology = Topology::full(3, 2).unwrap();
    let public = |secret: u8| {
        let secret = x25519_dalek::StaticSecret::from([secret; 32]);
        x25519_dalek::PublicKey::from(&secret).to_bytes()
    };
    let mut flipped = public(7);
    flipped[31] |= 0x80;
    for (sealing, masking, which) in [
        ([0; 32], public(9), "sealing"),
        (public(9), [0; 32], "masking"),
        (flipped, public(9), "sealing"),
        (public(9), flipped, "masking"),
    ] {
        let bad = forge::entry(&[1; 32], &honest, sealing, masking);
        let keys = AdvertiseKeys {
            context: honest.digest(),
            entry: bad.clone(),
        };
        let error = Server::new(honest, Trust::Anyone).unwrap().receive_keys(&keys);
        assert_eq!(error, Err(SecAggError::Key { index: 0, which }));
        let (mut client, own) =
            Client::join_simulation(SigningIdentity::from_seed(&[2; 32]), honest, &mut rng);
        let (mut other, theirs) =
            Client::join_simulation(SigningIdentity::from_seed(&[3; 32]), honest, &mut rng);
        let forged = forge::Forged::new(vec![Some(own.entry), Some(bad), Some(theirs.entry)]);
        let params = Params::new(honest.terms, topology).unwrap();
        let shared = client.receive_roster(&forged.roster(params, 0), &mut rng);
        let Ok(shared) = shared else {
            assert_eq!(shared.err(), Some(SecAggError::Key { index: 1, which }));
            continue;
        };
        // A masking key is agreed with later: the vector is refused then, and stays as it was.
        assert_eq!((which, masking), ("masking", [0; 32]));
        let theirs = other.receive_roster(&forged.roster(params, 2), &mut rng).unwrap();
        let sealed = |index: u32, from: &ShareKeys| SealedShares {
            index,
            sealed: from.shares[0].sealed,
        };
        let relayed = RelayedShares {
            session: shared.session,
            index: 0,
            shares: vec![sealed(1, &theirs), sealed(2, &theirs)],
        };
        let mut vector = harness::vector(&honest, &mut rng);
        let kept: Vec<u64> = vector.iter().collect();
        let error = client.receive_shares(&relayed, &mut vector).err();
        assert!(error.is_some() && vector.iter().eq(kept), "{error:?}");
    }
    // A client cannot join twice, nor with another's keys.
    let mut server = Server::new(honest, Trust::Anyone).unwrap();
    let identity = SigningIdentity::generate(&mut rng);
    let mut join = |identity: &SigningIdentity| Client::join_simulation(identity.clone(), honest, &mut rng).1;
    let (one, two, mut copy) = (
        join(&identity),
        join(&identity),
        join(&SigningIdentity::from_seed(&[3; 32])),
    );
    server.receive_keys(&one).unwrap();
    server.receive_keys(&one).unwrap();
    assert_eq!(server.joined(), 1, "the same message again is a retry");
    refused(server.receive_keys(&two), "has already committed");
    copy.entry.masking_key = one.entry.masking_key;
    refused(server.receive_keys(&copy), "have the same masking key");
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
    for mut wrong in [
        ModularVec::zeros(Modulus::new(1000).unwrap(), 19),
        ModularVec::zeros(Modulus::new(999).unwrap(), 20),
    ] {
        let mut lab = self::lab(PLAIN, 6, 5, 3).shared(everybody);
        refused(
            lab.mask_vector(1, &mut wrong),
            "expected a vector of 20 elements modulo 1000",
        );
    }
    // The cap on clients, for which the modulus was sized.
    let mut capped = context(20, 1000, PLAIN);
    capped.terms = capped.terms.with_clients(2, 3).unwrap();
    let mut server = Server::new(capped, Trust::Anyone).unwrap();
    let mut rng = harness::rng(10);
    let mut join = || Client::join_simulation(SigningIdentity::generate(&mut rng), capped, &mut rng).1;
    for _ in 0..3 {
        server.receive_keys(&join()).unwrap();
    }
    assert_eq!(server.receive_keys(&join()), Err(SecAggError::TooMany { max: 3 }));
}
