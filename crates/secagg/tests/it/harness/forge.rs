//! Forgeries of a lying server: entries with any keys, rosters over any leaves. This module shares no code with the crate.

use ed25519_dalek::{Signer, SigningKey};
use rand_core::Rng;
use sha2::{Digest, Sha256};
use undertone_secagg::message::{Neighbour, Roster};
use undertone_secagg::{Context, Digest32, Entry, Members, Params, SessionId, Topology};

pub(crate) fn labelled(label: &str, parts: &[&[u8]]) -> Digest32 {
    let mut hash = Sha256::new();
    for part in [b"undertone/secagg/1".as_slice(), label.as_bytes()]
        .iter()
        .chain(parts)
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// An X25519 key of a secret that nobody keeps.
pub(crate) fn agreement_key(rng: &mut impl Rng) -> Digest32 {
    let mut secret = [0; 32];
    rng.fill_bytes(&mut secret);
    x25519_dalek::PublicKey::from(&x25519_dalek::StaticSecret::from(secret)).to_bytes()
}

/// The entry of the identity with this seed, for any two keys, signed for the context.
pub(crate) fn entry(seed: &[u8; 32], context: &Context, sealing: Digest32, masking: Digest32) -> Entry {
    let key = SigningKey::from_bytes(seed);
    let identity = key.verifying_key().to_bytes();
    let signed = labelled("signed keys", &[&context.digest(), &identity, &sealing, &masking]);
    Entry {
        identity,
        sealing_key: sealing,
        masking_key: masking,
        signature: key.sign(&signed).to_bytes(),
        certificate: None,
    }
}

/// The signature of a set of survivors by the identity with this seed.
pub(crate) fn signature(seed: &[u8; 32], session: &SessionId, survivors: &Members) -> [u8; 64] {
    let n = survivors.clients();
    let mut bits = vec![0u8; n.div_ceil(8) as usize];
    survivors
        .iter()
        .for_each(|index| bits[index as usize / 8] |= 1 << (index % 8));
    let signed = labelled("survivors", &[session.as_bytes(), &n.to_le_bytes(), &bits]);
    SigningKey::from_bytes(seed).sign(&signed).to_bytes()
}

/// The neighbours of a client on the ring.
pub(crate) fn neighbours(topology: Topology, index: u32) -> impl Iterator<Item = u32> {
    let (n, k) = (topology.clients(), topology.neighbours());
    let near = (1..=k / 2).flat_map(move |step| [(index + step) % n, (index + n - step) % n]);
    let opposite = (k % 2 == 1).then_some((index + n / 2) % n);
    near.chain(opposite)
}

/// A tree over any leaves; a place without an entry has zeros in it.
pub(crate) struct Forged {
    levels: Vec<Vec<Digest32>>,
    entries: Vec<Option<Entry>>,
}

impl Forged {
    pub(crate) fn new(entries: Vec<Option<Entry>>) -> Self {
        let leaf = |(index, entry): (u32, &Option<Entry>)| {
            entry.as_ref().map_or([0; 32], |entry| {
                let bytes = [
                    &entry.identity[..],
                    &entry.sealing_key,
                    &entry.masking_key,
                    &entry.signature,
                ]
                .concat();
                let (index, certificate) = (index.to_le_bytes(), entry.certificate.as_ref());
                match certificate {
                    Some(certificate) => labelled("leaf", &[&index, &bytes, certificate.as_bytes()]),
                    None => labelled("leaf", &[&index, &bytes]),
                }
            })
        };
        let mut level: Vec<Digest32> = (0..).zip(&entries).map(leaf).collect();
        level.resize(level.len().next_power_of_two(), [0; 32]);
        let mut levels = vec![level];
        while levels[levels.len() - 1].len() > 1 {
            let below = &levels[levels.len() - 1];
            levels.push(
                below
                    .chunks(2)
                    .map(|pair| labelled("node", &[&pair[0], &pair[1]]))
                    .collect(),
            );
        }
        Self { levels, entries }
    }

    fn path(&self, index: u32) -> Vec<Digest32> {
        let below = &self.levels[..self.levels.len() - 1];
        (0..)
            .zip(below)
            .map(|(depth, level)| level[(index as usize >> depth) ^ 1])
            .collect()
    }

    /// The roster for the client at `index`: as an honest server would write it, over these leaves.
    pub(crate) fn roster(&self, params: Params, index: u32) -> Roster {
        let n = params.topology().clients();
        let mut places: Vec<u32> = neighbours(*params.topology(), index).collect();
        places.sort_unstable();
        let neighbour = |place: u32| Neighbour {
            index: place,
            entry: self.entries[place as usize].clone().unwrap(),
            path: self.path(place),
        };
        let top = self.levels[self.levels.len() - 1][0];
        Roster {
            params,
            root: labelled("root", &[&n.to_le_bytes(), &top]),
            index,
            path: self.path(index),
            neighbours: places.into_iter().map(neighbour).collect(),
        }
    }
}
