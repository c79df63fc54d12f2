//! A server under clients that say anything: any bytes as any message, phases closed at any time, and inputs that are dropped or
//! committed late. The sum is that of the survivors, or there is none.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{
    AdvertiseKeys, Consistency, MaskedInput, MaskedInputRef, Message, ShareKeys, UnmaskShares,
};
use undertone_secagg::{
    AddedInput, Certificate, Client, Context, Digest32, Server, SigningIdentity, Terms, ThreatModel,
    Topology, Trust, UploadId, Vouch,
};

#[derive(Debug, Arbitrary)]
enum Step {
    /// Any bytes as a message of their kind.
    Raw(Vec<u8>),
    /// The honest next message of a client, with bytes of it changed.
    Honest {
        client: u8,
        at: u16,
        xor: u8,
        twice: bool,
        until: Until,
    },
    /// Commits an input that was added before.
    Commit,
    Close,
    Ask {
        index: u32,
    },
}

/// The point at which a worker stops that adds an input.
#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
enum Until {
    Admitted,
    Added,
    Held,
    Committed,
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

fn session(certified_session: bool) -> (Server, Vec<(Client, [u8; 32])>, ChaCha20Rng, Vec<Vec<u8>>) {
    let context = Context {
        run: [0; 32],
        round: 0,
        attempt: 0,
        shard: 0,
        plan_digest: [0; 32],
        model_digest: [0; 32],
        terms: Terms::new(2, 1000, ThreatModel::Active).unwrap(),
    };
    let mut rng = ChaCha20Rng::from_seed([0; 32]);
    let trust = if certified_session {
        Trust::Issuer(Arc::new(Backwards))
    } else {
        Trust::Anyone
    };
    let server = Server::new(context, trust).unwrap();
    let (mut clients, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let identity = SigningIdentity::generate(&mut rng);
        let identity = if certified_session {
            certified(identity)
        } else {
            identity
        };
        let public = identity.public();
        let (client, message) = Client::join_simulation(identity, context, &mut rng);
        keys.push(message.encode());
        clients.push((client, public));
    }
    (server, clients, rng, keys)
}

/// An input on its way into the sum, in steps.
fn add(server: &mut Server, held: &mut Vec<AddedInput>, bytes: &[u8], until: Until) {
    let Ok(input) = MaskedInputRef::decode(bytes) else {
        return;
    };
    let Ok(ticket) = server.admit_input(
        &input.session,
        input.index,
        UploadId([bytes[bytes.len() - 1]; 32]),
    ) else {
        return;
    };
    if until == Until::Admitted {
        return;
    }
    if let Ok(added) = ticket.add_packed(input.packed) {
        match until {
            Until::Held => held.push(added),
            Until::Committed => drop(server.commit_input(added)),
            Until::Admitted | Until::Added => {}
        }
    }
}

fn receive(server: &mut Server, bytes: &[u8]) {
    let _ = match bytes.get(1) {
        Some(&AdvertiseKeys::KIND) => AdvertiseKeys::decode(bytes).and_then(|m| server.receive_keys(&m)),
        Some(&ShareKeys::KIND) => ShareKeys::decode(bytes).and_then(|m| server.receive_shares(&m)),
        Some(&MaskedInput::KIND) => MaskedInput::decode(bytes).and_then(|m| server.receive_input(&m)),
        Some(&Consistency::KIND) => Consistency::decode(bytes).and_then(|m| server.receive_consistency(&m)),
        Some(&UnmaskShares::KIND) => UnmaskShares::decode(bytes).and_then(|m| server.receive_unmask(&m)),
        _ => Ok(()),
    };
}

fuzz_target!(|input: (bool, Vec<Step>)| {
    let (certified_session, steps) = input;
    let (mut server, mut clients, mut rng, keys) = session(certified_session);
    let (mut held, mut honest) = (Vec::new(), true);
    for step in steps.into_iter().take(24) {
        match step {
            Step::Raw(bytes) => {
                honest &= bytes.get(1) != Some(&MaskedInput::KIND);
                receive(&mut server, &bytes);
            }
            Step::Honest {
                client,
                at,
                xor,
                twice,
                until,
            } => {
                let place = usize::from(client) % 3;
                let (machine, public) = &mut clients[place];
                let mut vector = ModularVec::from_residues(Modulus::new(1000).unwrap(), &[1u32, 1]).unwrap();
                let next = server.index_of(public).and_then(|index| {
                    server
                        .roster(index)
                        .and_then(|m| machine.receive_roster(&m, &mut rng).map(|m| m.encode()))
                        .or_else(|_| {
                            server
                                .relayed_shares(index)
                                .and_then(|m| machine.receive_shares(&m, &mut vector).map(|m| m.encode()))
                        })
                        .or_else(|_| {
                            server
                                .survivors()
                                .and_then(|m| machine.receive_survivors(&m).map(|m| m.encode()))
                        })
                        .or_else(|_| {
                            server
                                .unmask(index)
                                .and_then(|m| machine.receive_unmask(&m).map(|m| m.encode()))
                        })
                        .ok()
                });
                let mut bytes = next.unwrap_or_else(|| keys[place].clone());
                let len = bytes.len();
                bytes[usize::from(at) % len] ^= xor;
                if bytes[1] == MaskedInput::KIND {
                    // A client that lies about its vector changes the sum, and nobody can tell.
                    honest &= xor == 0;
                    add(&mut server, &mut held, &bytes, until);
                } else {
                    receive(&mut server, &bytes);
                }
                if twice {
                    receive(&mut server, &bytes);
                }
            }
            Step::Commit => {
                let _ = held.pop().map(|added| server.commit_input(added));
            }
            Step::Close => {
                let _ = server
                    .close_keys(|n| Topology::full(n, n.div_ceil(2)), &mut rng)
                    .or_else(|_| server.close_shares())
                    .or_else(|_| server.close_inputs())
                    .or_else(|_| server.close_signatures())
                    .or_else(|_| {
                        server.finish().map(|outcome| {
                            let count = u64::from(outcome.included.count());
                            assert!(
                                !honest || outcome.sum.iter().all(|x| x == count),
                                "a sum over others"
                            );
                        })
                    });
            }
            Step::Ask { index } => {
                let _ = server.roster(index);
                let _ = server.relayed_shares(index);
                let _ = server.unmask(index);
                let _ = server.missing();
            }
        }
    }
});
