//! Sessions whose identities an issuer certifies, and a server that invents clients in them: attack 20 of
//! docs/design/secure-aggregation.md.

use std::sync::Arc;

use undertone_secagg::message::{AdvertiseKeys, Message, Roster};
use undertone_secagg::{
    Certificate, Client, ClientPhase, Context, Digest32, Entry, Floors, MAX_CERTIFICATE_BYTES, Params,
    SecAggError, Server, SigningIdentity, Topology, Trust, Vouch,
};

use crate::harness::issuer::Issuer;
use crate::harness::{self, ACTIVE, Lab, context, forge, refused};

const CLIENTS: u32 = 7;

fn session_context() -> Context {
    let mut context = context(20, 1000, ACTIVE);
    context.terms = context.terms.with_clients(5, 100).unwrap();
    context
}

fn topology() -> Topology {
    Topology::full(CLIENTS, 5).unwrap()
}

fn floors(trust: Trust) -> Floors {
    let floors = Floors::COMPILED.with_clients(CLIENTS, 5).unwrap();
    floors.with_trust(trust).unwrap()
}

/// Devices that trust this issuer and hold its certificates, under a server that trusts it as well.
fn certified(issuer: &Arc<Issuer>) -> Lab {
    certified_under(issuer, floors(issuer.trust()))
}

fn certified_under(issuer: &Arc<Issuer>, floors: Floors) -> Lab {
    let demands = |all: &mut [SigningIdentity]| {
        for identity in all {
            *identity = issuer.enrol(identity.clone());
        }
        (issuer.trust(), Some(floors))
    };
    Lab::with(session_context(), topology(), demands, 20)
}

#[test]
fn certified_devices_that_share_no_list_complete_a_session() {
    let mut lab = certified(&Issuer::new(1))
        .shared(|index| index != 6)
        .uploaded(|index| index < 6)
        .signed(everybody_but_the_last);
    lab.answered(0..6);
    let expected = lab.expected();
    let outcome = lab.server.finish().unwrap();
    assert!(outcome.sum.iter().eq(expected) && outcome.included.count() == 6);
}

fn everybody_but_the_last(index: u32) -> bool {
    index < 6
}

/// The forged entry of an invented client with any keys, signed for the session.
fn invented(seed: u8, certificate: Option<Certificate>) -> Entry {
    let mut rng = harness::rng(seed.into());
    let mut key = || forge::agreement_key(&mut rng);
    let entry = forge::entry(&[seed; 32], &session_context(), key(), key());
    Entry { certificate, ..entry }
}

/// The answer of an honest certified device to a perfect roster of certified clients, of whom one is `invented`.
fn beside(issuer: &Arc<Issuer>, invented: Entry) -> Result<(), SecAggError> {
    let mut rng = harness::rng(2);
    let mut entries = Vec::new();
    let mut victim = None;
    for place in 0..CLIENTS - 1 {
        let identity = issuer.enrol(SigningIdentity::generate(&mut rng));
        let (client, keys) = Client::join(identity, session_context(), floors(issuer.trust()), &mut rng);
        entries.push(Some(keys.entry));
        if place == 2 {
            victim = Some(client);
        }
    }
    entries.push(Some(invented));
    let params = Params::new(session_context().terms, topology()).unwrap();
    let roster = forge::Forged::new(entries).roster(params, 2);
    // As it arrives.
    let roster = Roster::decode(&roster.encode()).unwrap();
    let mut victim = victim.unwrap();
    let answer = victim.receive_roster(&roster, &mut rng).map(drop);
    let after = if answer.is_ok() {
        ClientPhase::Shares
    } else {
        ClientPhase::Aborted
    };
    assert_eq!(victim.phase(), after);
    answer
}

#[test]
fn attack_20_a_server_that_invents_clients_finds_no_certificate_for_them() {
    let (issuer, stranger) = (Issuer::new(1), Issuer::new(2));
    let honest = SigningIdentity::from_seed(&[9; 32]).public();
    let own = |seed: u8| SigningIdentity::from_seed(&[seed; 32]).public();
    let mut changed = issuer.certify(&own(8)).as_bytes().to_vec();
    changed[7] ^= 1;
    let short = issuer.certify(&own(8)).as_bytes()[..63].to_vec();
    let long = [issuer.certify(&own(8)).as_bytes(), &[0]].concat();
    let bytes = |bytes: &[u8]| Some(Certificate::new(bytes).unwrap());
    for (name, certificate) in [
        (
            "the certificate of an honest client",
            Some(issuer.certify(&honest)),
        ),
        (
            "a certificate of an issuer that nobody trusts",
            Some(stranger.certify(&own(8))),
        ),
        ("a changed certificate", bytes(&changed)),
        ("a certificate cut short", bytes(&short)),
        ("a certificate that goes on", bytes(&long)),
        ("any bytes", bytes(&[7; MAX_CERTIFICATE_BYTES])),
    ] {
        let answer = beside(&issuer, invented(8, certificate));
        let got = "a certificate that does not vouch for it";
        assert_eq!(answer, Err(SecAggError::Certificate { index: 6, got }), "{name}");
    }
    let got = "no certificate";
    assert_eq!(
        beside(&issuer, invented(8, None)),
        Err(SecAggError::Certificate { index: 6, got })
    );
    // An honest client's identity with its own certificate, but with keys that the server made.
    let mut stolen = invented(8, Some(issuer.certify(&honest)));
    stolen.identity = honest;
    refused(beside(&issuer, stolen), "its signature of its keys");
    // The limit of the claim: an issuer that colludes certifies invented clients, and no device can tell.
    assert_eq!(
        beside(&issuer, invented(8, Some(issuer.certify(&own(8))))),
        Ok(())
    );
}

#[test]
fn attack_20_a_server_cannot_change_a_certificate_in_the_roster() {
    // Each vouches for its identity, and still the neighbours see the one that the client advertised.
    struct Always;
    impl Vouch for Always {
        fn vouches(&self, _: &Digest32, _: &[u8]) -> bool {
            true
        }
    }
    let demands = |all: &mut [SigningIdentity]| {
        for identity in all {
            *identity = identity.clone().with_certificate(Certificate::new(&[1]).unwrap());
        }
        (Trust::Anyone, Some(floors(Trust::Issuer(Arc::new(Always)))))
    };
    let make = || Lab::with(session_context(), topology(), demands, 20);
    let bytes = |bytes: &[u8]| Some(Certificate::new(bytes).unwrap());
    for certificate in [None, bytes(&[2]), bytes(&[1, 0])] {
        let mut lab = make();
        let mut roster = lab.roster(3);
        let neighbour = &mut roster.neighbours[4];
        let index = neighbour.index;
        let expected = match certificate {
            Some(_) => SecAggError::NotInRoster { index },
            None => SecAggError::Certificate {
                index,
                got: "no certificate",
            },
        };
        neighbour.entry.certificate = certificate;
        let answer = lab.clients[3].receive_roster(&roster, &mut lab.rng);
        assert_eq!(answer.map(drop), Err(expected));
    }
    let mut lab = make();
    // A client whose own certificate the server left out of the tree does not find itself.
    let entries: Vec<Option<Entry>> = lab
        .keys
        .iter()
        .map(|keys| {
            let mut entry = keys.entry.clone();
            if entry == lab.keys[0].entry {
                entry.certificate = None;
            }
            Some(entry)
        })
        .collect();
    let params = Params::new(session_context().terms, topology()).unwrap();
    let roster = forge::Forged::new(entries).roster(params, 0);
    let answer = lab.clients[0].receive_roster(&roster, &mut lab.rng);
    assert_eq!(answer.map(drop), Err(SecAggError::NotMe { index: 0 }));
}

#[test]
fn the_server_admits_certified_identities_only_and_each_once() {
    let issuer = Issuer::new(1);
    let mut rng = harness::rng(3);
    let mut server = Server::new(session_context(), issuer.trust()).unwrap();
    let mut join = |identity: &SigningIdentity| {
        Client::join(
            identity.clone(),
            session_context(),
            floors(issuer.trust()),
            &mut rng,
        )
        .1
    };
    let plain = SigningIdentity::from_seed(&[4; 32]);
    let known = issuer.enrol(plain.clone());
    let borrowed = SigningIdentity::from_seed(&[5; 32]).with_certificate(issuer.certify(&plain.public()));
    refused(server.receive_keys(&join(&plain)), "got no certificate");
    refused(
        server.receive_keys(&join(&borrowed)),
        "got a certificate that does not vouch for it",
    );
    assert_eq!(server.joined(), 0);
    let keys = join(&known);
    server.receive_keys(&keys).unwrap();
    // A repeat is welcome and costs no check. The same session key with other agreement keys is refused, and so is another
    // certificate beside the same keys.
    let checks = issuer.checks();
    server.receive_keys(&keys).unwrap();
    refused(
        server.receive_keys(&join(&known)),
        "already committed to a different keys",
    );
    let mut other = keys.clone();
    other.entry.certificate = None;
    refused(
        server.receive_keys(&other),
        "already committed to a different keys",
    );
    assert_eq!((server.joined(), issuer.checks()), (1, checks));
    // An invented client with a key of an honest one.
    let mut copy = join(&issuer.enrol(SigningIdentity::from_seed(&[6; 32])));
    copy.entry.sealing_key = keys.entry.sealing_key;
    refused(server.receive_keys(&copy), "have the same sealing key");
}

#[test]
fn floors_take_an_issuer_for_trust_and_still_refuse_anyone() {
    let issuer = Issuer::new(1);
    assert!(Floors::COMPILED.with_trust(issuer.trust()).is_ok());
    refused(
        Floors::COMPILED.with_trust(Trust::Anyone),
        "a list of known identities or an issuer",
    );
    // The other floors hold under an issuer too.
    let lax = floors(issuer.trust()).with_clients(CLIENTS + 1, 5).unwrap();
    refused(
        certified_under(&issuer, lax).share(0),
        "the number of clients whose keys this client checks",
    );
    assert_eq!(format!("{:?}", issuer.trust()), "Issuer(..)");
}

#[test]
fn a_session_without_certificates_has_the_messages_that_it_always_had() {
    let mut rng = harness::rng(4);
    let identity = SigningIdentity::from_seed(&[4; 32]);
    let mut encoded = |identity: SigningIdentity| {
        Client::join_simulation(identity, session_context(), &mut rng)
            .1
            .encode()
    };
    assert_eq!(encoded(identity.clone()).len(), 194);
    for len in [1, 64, 230, MAX_CERTIFICATE_BYTES] {
        let certificate = Certificate::new(&vec![9; len]).unwrap();
        assert_eq!(
            encoded(identity.clone().with_certificate(certificate)).len(),
            194 + 2 + len
        );
    }
    let plain = harness::lab(ACTIVE, 9, 4, 4).roster(3).encode().len();
    assert_eq!(plain, 2 + 38 + 32 + 4 + 4 * 32 + 4 + 4 * (4 + 160 + 4 * 32));
    let lab = certified(&Issuer::new(1));
    let k = CLIENTS as usize - 1;
    let expected = 2 + 38 + 32 + 4 + 3 * 32 + 4 + k * (4 + 160 + 3 * 32) + k * (2 + 64);
    assert_eq!(lab.roster(0).encode().len(), expected);
}

#[test]
fn certificates_have_one_encoding_and_a_bounded_length() {
    let lab = certified(&Issuer::new(1));
    let keys = lab.keys[0].encode();
    assert_eq!(AdvertiseKeys::decode(&keys).unwrap(), lab.keys[0]);
    let body = keys[..194].to_vec();
    let with = |len: u16, bytes: usize| {
        let certificate = vec![7; bytes];
        [&body[..], &len.to_le_bytes(), &certificate].concat()
    };
    let decoded = |bytes: &[u8]| AdvertiseKeys::decode(bytes);
    assert!(decoded(&body).unwrap().entry.certificate.is_none());
    assert!(decoded(&with(512, 512)).is_ok() && decoded(&with(1, 1)).is_ok());
    refused(decoded(&with(0, 0)), "empty certificates only");
    refused(decoded(&with(513, 513)), "above 512 bytes");
    refused(decoded(&with(u16::MAX, 1)), "above 512 bytes");
    refused(decoded(&with(9, 8)), "ends too early");
    refused(decoded(&with(9, 10)), "goes on after its end");
    refused(decoded(&[&body[..], &[1]].concat()), "ends too early");
    // A roster: some entries may be without one, but not all.
    let mut roster = lab.roster(0);
    for (place, neighbour) in roster.neighbours.iter_mut().enumerate() {
        if place != 2 {
            neighbour.entry.certificate = None;
        }
    }
    let bytes = roster.encode();
    assert_eq!(Roster::decode(&bytes).unwrap(), roster);
    let without = bytes.len() - 64 - 2 * roster.neighbours.len();
    let mut empty = bytes[..without].to_vec();
    roster.neighbours[2].entry.certificate = None;
    assert_eq!(roster.encode(), empty);
    empty.resize(without + 2 * roster.neighbours.len(), 0);
    refused(Roster::decode(&empty), "empty certificates only");
    for end in without + 1..bytes.len() {
        assert!(Roster::decode(&bytes[..end]).is_err(), "{end}");
    }
}
