//! A client under a server that says anything, starting from what an honest one would say.
//!
//! Each instruction takes an honest message of some phase and overwrites some of its bytes before the client sees it. Clients of
//! a certified session have floors and trust an issuer; the others are those of a simulation.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{GivenShare, Message, RelayedShares, Roster, Survivors, Unmask};
use undertone_secagg::{
    Certificate, Client, Context, Digest32, Entry, Floors, Server, SigningIdentity, Terms, ThreatModel,
    Topology, Trust, Vouch,
};

const CLIENTS: u32 = 3;

#[derive(Debug, Arbitrary)]
enum Step {
    Roster { client: u8, of: u8, patch: Patch },
    Relayed { client: u8, of: u8, patch: Patch },
    Survivors { client: u8, patch: Patch },
    Unmask { client: u8, of: u8, patch: Patch },
    CloseShares,
    CloseInputs,
    CloseSignatures,
}

#[derive(Debug, Arbitrary)]
struct Patch {
    at: u16,
    bytes: Vec<u8>,
}

/// The message with the patch over it; none where that is no message.
fn patched<M: Message>(message: Option<M>, patch: &Patch) -> Option<M> {
    let mut bytes = message.map(|message| message.encode()).unwrap_or_default();
    let end = (usize::from(patch.at) + patch.bytes.len()).max(bytes.len());
    bytes.resize(end, 0);
    bytes[usize::from(patch.at)..][..patch.bytes.len()].copy_from_slice(&patch.bytes);
    M::decode(&bytes).ok()
}

/// An issuer whose certificate of an identity is the identity, backwards.
struct Backwards;

impl Vouch for Backwards {
    fn vouches(&self, identity: &Digest32, certificate: &[u8]) -> bool {
        identity.iter().rev().eq(certificate)
    }
}

fn certified(identity: SigningIdentity) -> SigningIdentity {
    let certificate: Vec<u8> = identity.public().into_iter().rev().collect();
    identity.with_certificate(Certificate::new(&certificate).unwrap())
}

fuzz_target!(|input: (bool, bool, Vec<Step>)| {
    let (active, certified_session, steps) = input;
    let active = active || certified_session;
    let issuer = Trust::Issuer(Arc::new(Backwards));
    let floors = Floors::COMPILED
        .with_clients(3, 2)
        .unwrap()
        .with_trust(issuer)
        .unwrap();
    let threat_model = if active {
        ThreatModel::Active
    } else {
        ThreatModel::HonestButCurious
    };
    let context = Context {
        run: [0; 32],
        round: 0,
        attempt: 0,
        shard: 0,
        plan_digest: [0; 32],
        model_digest: [0; 32],
        terms: Terms::new(2, 1000, threat_model).unwrap(),
    };
    let mut rng = ChaCha20Rng::from_seed([0; 32]);
    let mut server = Server::new(context, Trust::Anyone).unwrap();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let identity = SigningIdentity::generate(&mut rng);
        let public = identity.public();
        let (client, keys) = if certified_session {
            Client::join(certified(identity), context, floors.clone(), &mut rng)
        } else {
            Client::join_simulation(identity, context, &mut rng)
        };
        server.receive_keys(&keys).unwrap();
        clients.push((client, public));
    }
    server.close_keys(|n| Topology::full(n, 2), &mut rng).unwrap();
    clients.sort_by_key(|(_, public)| server.index_of(public));
    let mut given: BTreeMap<(u32, u32), bool> = BTreeMap::new();
    for step in steps.into_iter().take(24) {
        match step {
            Step::Roster { client, of, patch } => {
                let message: Option<Roster> = patched(server.roster(u32::from(of) % CLIENTS).ok(), &patch);
                let client = &mut clients[usize::from(client) % 3].0;
                if let Some(message) = message
                    && let Ok(shares) = client.receive_roster(&message, &mut rng)
                {
                    let vouched = |entry: &Entry| {
                        let certificate = entry.certificate.as_ref();
                        certificate.is_some_and(|certificate| {
                            Backwards.vouches(&entry.identity, certificate.as_bytes())
                        })
                    };
                    let all = message
                        .neighbours
                        .iter()
                        .all(|neighbour| vouched(&neighbour.entry));
                    assert!(
                        all || !certified_session,
                        "an accepted neighbour without a certificate"
                    );
                    let _ = server.receive_shares(&shares);
                }
            }
            Step::Relayed { client, of, patch } => {
                let message: Option<RelayedShares> =
                    patched(server.relayed_shares(u32::from(of) % CLIENTS).ok(), &patch);
                let mut vector = ModularVec::zeros(Modulus::new(1000).unwrap(), 2);
                let client = &mut clients[usize::from(client) % 3].0;
                if let Some(Ok(input)) = message.map(|message| client.receive_shares(&message, &mut vector)) {
                    let _ = server.receive_input(&input);
                }
            }
            Step::Survivors { client, patch } => {
                let message: Option<Survivors> = patched(server.survivors().ok(), &patch);
                let client = &mut clients[usize::from(client) % 3].0;
                if let Some(Ok(signature)) = message.map(|message| client.receive_survivors(&message)) {
                    let _ = server.receive_consistency(&signature);
                }
            }
            Step::Unmask { client, of, patch } => {
                let message: Option<Unmask> = patched(server.unmask(u32::from(of) % CLIENTS).ok(), &patch);
                let client = &mut clients[usize::from(client) % 3].0;
                if let Some(Ok(answer)) = message.map(|message| client.receive_unmask(&message)) {
                    for (about, share) in &answer.shares {
                        let kind = matches!(share, GivenShare::Seed(_));
                        let first = *given.entry((answer.index, *about)).or_insert(kind);
                        assert_eq!(first, kind, "both kinds of share");
                    }
                    let _ = server.receive_unmask(&answer);
                }
            }
            Step::CloseShares => drop(server.close_shares()),
            Step::CloseInputs => drop(server.close_inputs()),
            Step::CloseSignatures => drop(server.close_signatures()),
        }
    }
    let _ = server.finish();
});
