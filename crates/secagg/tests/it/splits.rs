//! A server that tells different clients different survivors, with every signature that it can get, and with clients that
//! work with it: what all the others together then open.

use std::collections::BTreeMap;

use rand_chacha::ChaCha20Rng;
use undertone_secagg::message::{Survivors, Unmask};
use undertone_secagg::{Members, ThreatModel, Topology};

use crate::harness::forge::{self, neighbours};
use crate::harness::{self, Lab, below, context};
use crate::opened::Opened;

/// One session in which `parties` sets of survivors are told, each to an arc of the ring or to clients at random, and the
/// first `corrupt` of a random order work with the server. What is open in the end.
fn split(threat_model: ThreatModel, topology: Topology, corrupt: u32, seed: u64) -> Opened {
    let mut rng = harness::rng(seed);
    let n = topology.clients();
    let mut lab = Lab::joined(context(2, 1000, threat_model), topology, seed)
        .shared(|_| true)
        .uploaded(|_| true);
    let corrupt: Vec<u32> = pick(n, corrupt, &mut rng);
    let (arc, start) = (below(&mut rng, 2) == 0, below(&mut rng, n));
    let sets: Vec<Members> = (0..2 + below(&mut rng, 2))
        .map(|_| {
            let share = below(&mut rng, 40);
            Members::of(n, |index| {
                corrupt.contains(&index) || below(&mut rng, 100) >= share
            })
        })
        .collect();
    // Whom each client is told of: always with itself in the set, or it refuses at once.
    let told: Vec<usize> = (0..n)
        .map(|index| {
            let wanted = match arc {
                true => ((index + n - start) % n) as usize * sets.len() / n as usize,
                false => below(&mut rng, sets.len() as u32) as usize,
            };
            let others = (0..sets.len()).cycle().skip(wanted).take(sets.len());
            others
                .clone()
                .find(|set| sets[*set].contains(index))
                .unwrap_or(wanted)
        })
        .collect();
    let session = lab.server.session().unwrap();
    let mut signatures: Vec<BTreeMap<u32, [u8; 64]>> = vec![BTreeMap::new(); sets.len()];
    for index in 0..n {
        let set = told[index as usize];
        if corrupt.contains(&index) {
            // They sign everything, and are in every set, so that their signatures count.
            for (signatures, set) in signatures.iter_mut().zip(&sets) {
                signatures.insert(index, forge::signature(&lab.seeds[index as usize], &session, set));
            }
        } else if threat_model == ThreatModel::Active {
            let survivors = Survivors {
                session,
                survivors: sets[set].clone(),
            };
            if let Ok(signed) = lab.clients[index as usize].receive_survivors(&survivors) {
                signatures[set].insert(index, signed.signature);
            }
        }
    }
    let mut opened = Opened::new(topology);
    for index in (0..n).filter(|index| !corrupt.contains(index)) {
        let set = told[index as usize];
        let near: Vec<u32> = neighbours(topology, index).collect();
        let shown = signatures[set].iter();
        let shown = shown.filter(|(other, _)| near.contains(other) && sets[set].contains(**other));
        let request = Unmask {
            session,
            survivors: sets[set].clone(),
            signatures: match threat_model {
                ThreatModel::Active => shown.map(|(other, signature)| (*other, *signature)).collect(),
                ThreatModel::HonestButCurious => Vec::new(),
            },
        };
        if let Ok(answer) = lab.clients[index as usize].receive_unmask(&request) {
            opened.note(&sets[set], &answer);
        }
    }
    for index in corrupt {
        opened.corrupt(index, neighbours(topology, index));
    }
    opened
}

fn pick(n: u32, count: u32, rng: &mut ChaCha20Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..n).collect();
    (0..count)
        .map(|_| all.swap_remove(below(rng, all.len() as u32) as usize))
        .collect()
}

/// The most corrupt neighbours that a graph bears, `2 t > k + corrupt`: on these graphs no client can have more than there
/// are in the session.
fn bears(topology: Topology) -> u32 {
    2 * topology.threshold() - topology.neighbours() - 1
}

#[test]
#[ignore = "slow"]
fn no_split_of_an_active_session_opens_a_secret_twice_or_two_sums() {
    let (mut shares, mut disagreed) = (0, 0);
    for seed in 0..200 {
        let mut rng = harness::rng(1 << 32 | seed);
        let n = 8 + below(&mut rng, 17);
        let topology = match below(&mut rng, 3) {
            0 => Topology::full(n, (n - 1) / 2 + 1 + below(&mut rng, 3)).unwrap(),
            1 => Topology::new(n, 4, 3).unwrap(),
            _ => Topology::new(n, 6, 4 + below(&mut rng, 2)).unwrap(),
        };
        let corrupt = below(&mut rng, bears(topology) + 1);
        let opened = split(ThreatModel::Active, topology, corrupt, seed);
        opened.check();
        shares += u64::from(opened.shares() > 0);
        disagreed += u64::from(opened.sets() > 1);
    }
    println!("{shares} sessions with shares, {disagreed} with two sets");
    // The server is not so dull that nobody answers; on sparse graphs, far parts answer for different sets.
    assert!(
        shares > 50 && disagreed > 5,
        "{shares} sessions with shares, {disagreed} with two sets"
    );
}

/// The check above can fail: without signatures and with `2 t <= k`, the same server opens both secrets of some client.
#[test]
#[ignore = "slow"]
fn splits_of_honest_but_curious_sessions_open_secrets_twice() {
    let topology = Topology::new(16, 6, 2).unwrap();
    let opened = (0..20).filter(|seed| {
        let opened = split(ThreatModel::HonestButCurious, topology, 0, *seed);
        !opened.both().is_empty()
    });
    let opened = opened.count();
    assert!(opened > 10, "{opened} of 20");
}
