//! A server under clients that say anything: any bytes as any message, phases closed at any time.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{
    AdvertiseKeys, Consistency, MaskedInput, Message, ShareKeys, UnmaskShares,
};
use undertone_secagg::{Client, Context, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust};

#[derive(Debug, Arbitrary)]
enum Step {
    /// Any bytes as a message of their kind.
    Raw(Vec<u8>),
    /// The honest next message of a client, with bytes of it changed.
    Honest { client: u8, at: u16, xor: u8, twice: bool },
    Close,
    Ask { index: u32 },
}

fn session() -> (Server, Vec<(Client, [u8; 32])>, ChaCha20Rng, Vec<Vec<u8>>) {
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
    let server = Server::new(context, Trust::Anyone).unwrap();
    let (mut clients, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let identity = SigningIdentity::generate(&mut rng);
        let public = identity.public();
        let (client, message) = Client::join_simulation(identity, context, &mut rng);
        keys.push(message.encode());
        clients.push((client, public));
    }
    (server, clients, rng, keys)
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

fuzz_target!(|steps: Vec<Step>| {
    let (mut server, mut clients, mut rng, keys) = session();
    for step in steps.into_iter().take(24) {
        match step {
            Step::Raw(bytes) => receive(&mut server, &bytes),
            Step::Honest { client, at, xor, twice } => {
                let place = usize::from(client) % 3;
                let (machine, public) = &mut clients[place];
                let mut vector = ModularVec::zeros(Modulus::new(1000).unwrap(), 2);
                let next = server.index_of(public).and_then(|index| {
                    server
                        .roster(index)
                        .and_then(|m| machine.receive_roster(&m, &mut rng).map(|m| m.encode()))
                        .or_else(|_| {
                            server
                                .relayed_shares(index)
                                .and_then(|m| machine.receive_shares(&m, &mut vector).map(|m| m.encode()))
                        })
                        .or_else(|_| server.survivors().and_then(|m| machine.receive_survivors(&m).map(|m| m.encode())))
                        .or_else(|_| server.unmask(index).and_then(|m| machine.receive_unmask(&m).map(|m| m.encode())))
                        .ok()
                });
                let mut bytes = next.unwrap_or_else(|| keys[place].clone());
                let len = bytes.len();
                bytes[usize::from(at) % len] ^= xor;
                receive(&mut server, &bytes);
                if twice {
                    receive(&mut server, &bytes);
                }
            }
            Step::Close => {
                let _ = server
                    .close_keys(|n| Topology::full(n, n.div_ceil(2)), &mut rng)
                    .or_else(|_| server.close_shares())
                    .or_else(|_| server.close_inputs())
                    .or_else(|_| server.close_signatures())
                    .or_else(|_| server.finish().map(drop));
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
