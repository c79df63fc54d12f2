//! Whatever arrives in whatever order: no machine panics, and all clients together open no secret twice.

use std::collections::BTreeMap;

use rand_chacha::ChaCha20Rng;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{
    Consistency, MaskedInput, Message, RelayedShares, Roster, ShareKeys, Survivors, Unmask, UnmaskShares,
};
use undertone_secagg::{Members, ThreatModel, Topology};

use crate::harness::{self, Lab, below, context};
use crate::opened::Opened;

/// Messages that were seen somewhere, to be sent anywhere.
#[derive(Default)]
struct Seen {
    rosters: Vec<Roster>,
    shares: Vec<ShareKeys>,
    relayed: Vec<RelayedShares>,
    inputs: Vec<MaskedInput>,
    survivors: Vec<Survivors>,
    signatures: Vec<Consistency>,
    requests: Vec<Unmask>,
    answers: Vec<UnmaskShares>,
}

fn pick<M: Clone>(messages: &[M], rng: &mut ChaCha20Rng) -> Option<M> {
    (!messages.is_empty()).then(|| messages[below(rng, messages.len() as u32) as usize].clone())
}

/// A message, now and then with one byte changed where that decodes.
fn perhaps_changed<M: Message>(message: M, rng: &mut ChaCha20Rng) -> M {
    if below(rng, 8) != 0 {
        return message;
    }
    let mut bytes = message.encode();
    let place = below(rng, bytes.len() as u32) as usize;
    bytes[place] ^= 1 << below(rng, 8);
    M::decode(&bytes).unwrap_or(message)
}

/// One adversary with one session of clients: `steps` messages of its choice. Counts those that a machine accepted.
fn play(seed: u64, steps: u32) -> (u64, u64) {
    let mut rng = harness::rng(seed);
    let threat_model = [ThreatModel::HonestButCurious, ThreatModel::Active][below(&mut rng, 2) as usize];
    let topology = match below(&mut rng, 2) {
        0 => {
            let n = 3 + below(&mut rng, 3);
            Topology::full(n, n.div_ceil(2)).unwrap()
        }
        _ => Topology::new(8 + below(&mut rng, 7), 4, 3).unwrap(),
    };
    let n = topology.clients();
    let mut lab = Lab::joined(context(3, 1000, threat_model), topology, seed);
    // Some rounds are honest, so that the others are reached often.
    let honest = below(&mut rng, 4);
    if honest > 0 {
        lab = lab.shared(|_| true);
    }
    if honest > 1 {
        lab = lab.uploaded(|_| true);
    }
    if honest > 2 && threat_model == ThreatModel::Active {
        lab = lab.signed(|_| true);
    }
    // The adversary is the server too: it asks honest machines for what they would send, whenever they would.
    let mut seen = Seen::default();
    let mut opened = Opened::new(topology);
    let mut accepted = 0;
    for _ in 0..steps {
        let client = below(&mut rng, n);
        let place = client as usize;
        let done = match below(&mut rng, 14) {
            0 => {
                seen.rosters.extend(lab.server.roster(client));
                pick(&seen.rosters, &mut rng).is_some_and(|roster| {
                    let answer =
                        lab.clients[place].receive_roster(&perhaps_changed(roster, &mut rng), &mut lab.rng);
                    answer.map(|answer| seen.shares.push(answer)).is_ok()
                })
            }
            1 | 2 => pick(&seen.shares, &mut rng).is_some_and(|shares| {
                lab.server
                    .receive_shares(&perhaps_changed(shares, &mut rng))
                    .is_ok()
            }),
            3 => below(&mut rng, 4) == 0 && lab.server.close_shares().is_ok(),
            4 | 5 => {
                seen.relayed.extend(lab.server.relayed_shares(client));
                pick(&seen.relayed, &mut rng).is_some_and(|relayed| {
                    let mut vector = ModularVec::zeros(Modulus::new(1000).unwrap(), 3);
                    let answer =
                        lab.clients[place].receive_shares(&perhaps_changed(relayed, &mut rng), &mut vector);
                    answer.map(|answer| seen.inputs.push(answer)).is_ok()
                })
            }
            6 | 7 => pick(&seen.inputs, &mut rng).is_some_and(|input| {
                lab.server
                    .receive_input(&perhaps_changed(input, &mut rng))
                    .is_ok()
            }),
            8 => below(&mut rng, 4) == 0 && lab.server.close_inputs().is_ok(),
            9 => {
                seen.survivors.extend(lab.server.survivors());
                if below(&mut rng, 2) == 0 {
                    seen.survivors.extend(forged_survivors(&lab, &mut rng));
                }
                pick(&seen.survivors, &mut rng).is_some_and(|survivors| {
                    let answer = lab.clients[place].receive_survivors(&survivors);
                    answer.map(|answer| seen.signatures.push(answer)).is_ok()
                })
            }
            10 => pick(&seen.signatures, &mut rng).is_some_and(|signature| {
                lab.server
                    .receive_consistency(&perhaps_changed(signature, &mut rng))
                    .is_ok()
            }),
            11 => {
                below(&mut rng, 4) == 0 && {
                    let closed = lab.server.close_signatures().is_ok();
                    closed || lab.server.finish().is_ok()
                }
            }
            12 => {
                seen.requests.extend(lab.server.unmask(client));
                seen.requests.extend(forged_request(&lab, &seen, &mut rng));
                pick(&seen.requests, &mut rng).is_some_and(|request| {
                    let request = perhaps_changed(request, &mut rng);
                    let answer = lab.clients[place].receive_unmask(&request);
                    answer
                        .map(|answer| {
                            opened.note(&request.survivors, &answer);
                            seen.answers.push(answer);
                        })
                        .is_ok()
                })
            }
            _ => pick(&seen.answers, &mut rng).is_some_and(|answer| {
                lab.server
                    .receive_unmask(&perhaps_changed(answer, &mut rng))
                    .is_ok()
            }),
        };
        accepted += u64::from(done);
    }
    if threat_model == ThreatModel::Active {
        opened.check();
    }
    (accepted, opened.shares())
}

fn some_members(n: u32, rng: &mut ChaCha20Rng) -> Members {
    let mut lost = below(rng, 1 << n);
    if below(rng, 2) == 0 {
        lost &= below(rng, 1 << n);
    }
    Members::of(n, |index| lost >> index & 1 == 0)
}

fn forged_survivors(lab: &Lab, rng: &mut ChaCha20Rng) -> Option<Survivors> {
    Some(Survivors {
        session: lab.server.session()?,
        survivors: some_members(lab.n(), rng),
    })
}

/// Any set of survivors, with whatever signatures there are of anything.
fn forged_request(lab: &Lab, seen: &Seen, rng: &mut ChaCha20Rng) -> Option<Unmask> {
    let mut signatures: BTreeMap<u32, [u8; 64]> = BTreeMap::new();
    for signature in &seen.signatures {
        if below(rng, 4) != 0 {
            signatures.insert(signature.index, signature.signature);
        }
    }
    let survivors = some_members(lab.n(), rng);
    Some(Unmask {
        session: lab.server.session()?,
        survivors,
        signatures: signatures.into_iter().collect(),
    })
}

fn sequences(first: u64, count: u64) {
    let played = (first..first + count).map(|seed| play(seed, 120));
    let (accepted, shares) = played.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    // The adversary is not so dull that nothing is ever accepted, or no share ever given.
    assert!(
        accepted > 4 * count && shares > count,
        "{count} sequences: {accepted} accepted, {shares} shares given"
    );
    println!(
        "{} messages in {count} sequences: {accepted} accepted, {shares} shares given",
        120 * count
    );
}

#[test]
#[ignore = "slow"]
fn random_sequences_of_messages_open_no_secret_twice() {
    sequences(0, 300);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "a million sequences take most of an hour"]
    fn a_million_random_sequences_open_no_secret_twice() {
        for part in 0..100 {
            sequences((1 << 20) + 10_000 * part, 10_000);
        }
    }
}

/// Every message of a session, and every one of its encodings with a byte changed, missing or added.
#[test]
fn decoders_take_canonical_bytes_only() {
    let mut lab = Lab::joined(
        context(5, 1000, ThreatModel::Active),
        Topology::full(5, 3).unwrap(),
        1,
    );
    let mut rng = harness::rng(2);
    canonical(&lab.keys[0].clone(), &mut rng);
    canonical(&lab.roster(0), &mut rng);
    for index in 0..5 {
        let message = lab.share(index).unwrap();
        canonical(&message, &mut rng);
        lab.server.receive_shares(&message).unwrap();
    }
    lab.server.close_shares().unwrap();
    canonical(&lab.relayed(0), &mut rng);
    let mut lab = lab.uploaded(|index| index != 3);
    canonical(&lab.server.survivors().unwrap(), &mut rng);
    for index in (0..5).filter(|index| *index != 3) {
        let message = lab.sign(index).unwrap();
        canonical(&message, &mut rng);
        lab.server.receive_consistency(&message).unwrap();
    }
    lab.server.close_signatures().unwrap();
    canonical(&lab.request(0), &mut rng);
    canonical(&lab.answer(0).unwrap(), &mut rng);
    let session = lab.server.session().unwrap();
    canonical(
        &MaskedInput {
            session,
            index: 3,
            packed: vec![7; 9],
        },
        &mut rng,
    );
}

/// The bytes decode to what encodes to them; of other bytes, only such as encode to themselves decode at all.
fn canonical<M: Message>(message: &M, rng: &mut ChaCha20Rng) {
    let bytes = message.encode();
    assert_eq!(M::decode(&bytes).ok().unwrap().encode(), bytes, "{}", M::NAME);
    for len in 0..bytes.len() {
        assert!(M::decode(&bytes[..len]).is_err(), "{} of {len} bytes", M::NAME);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(M::decode(&longer).is_err(), "{} and a byte", M::NAME);
    for place in 0..bytes.len() {
        let mut other = bytes.clone();
        other[place] ^= 1 << below(rng, 8);
        if let Ok(message) = M::decode(&other) {
            assert_eq!(message.encode(), other, "{} has two encodings", M::NAME);
        }
    }
}
