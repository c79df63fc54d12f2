//! The list of who takes part, as entries under one Merkle root.
//!
//! A client sees its neighbours' entries with their paths; the root is in the session's name, so two clients of one session
//! were shown parts of one list, at the places that the graph prescribes.

use crate::certificate::Certificate;
use crate::context::{Digest32, labelled};
use crate::error::{Result, SecAggError};
use crate::keys::{PublicKey, VerifyingKey, signed_keys};

/// A client's keys for one session, signed by its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Ed25519 key of the client's identity.
    pub identity: Digest32,
    /// X25519 key for the shares that the client receives.
    pub sealing_key: Digest32,
    /// X25519 key of the client's pairwise masks.
    pub masking_key: Digest32,
    /// Ed25519 signature of context and both keys.
    pub signature: [u8; 64],
    /// The certificate of `identity`, in sessions whose clients trust an issuer.
    pub certificate: Option<Certificate>,
}

impl Entry {
    pub(crate) const BYTES: usize = 3 * 32 + 64;

    /// All but the certificate, which lies apart in messages.
    pub(crate) fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(&self.identity);
        bytes[32..64].copy_from_slice(&self.sealing_key);
        bytes[64..96].copy_from_slice(&self.masking_key);
        bytes[96..].copy_from_slice(&self.signature);
        bytes
    }

    /// The entry without a certificate.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let part = |start: usize| {
            let mut part = [0; 32];
            part.copy_from_slice(&bytes[start..start + 32]);
            part
        };
        let mut signature = [0; 64];
        signature.copy_from_slice(&bytes[96..]);
        Self {
            identity: part(0),
            sealing_key: part(32),
            masking_key: part(64),
            signature,
            certificate: None,
        }
    }

    /// Both keys can agree on a secret; `index` is for the error.
    pub(crate) fn check_keys(&self, index: u32) -> Result<()> {
        self.check_each(index, PublicKey::is_acceptable)
    }

    /// Both keys are the one encoding of their points; `index` is for the error. A client checks no more before it agrees
    /// on secrets with them, because the agreement itself refuses points of small order.
    pub(crate) fn check_encodings(&self, index: u32) -> Result<()> {
        self.check_each(index, PublicKey::is_canonical)
    }

    fn check_each(&self, index: u32, holds: impl Fn(&Digest32) -> bool) -> Result<()> {
        for (which, key) in [("sealing", &self.sealing_key), ("masking", &self.masking_key)] {
            if !holds(key) {
                return Err(SecAggError::Key { index, which });
            }
        }
        Ok(())
    }

    /// The identity signed both keys for this context; `index` is for the error.
    pub(crate) fn check_signature(&self, index: u32, context: &Digest32) -> Result<()> {
        let identity = VerifyingKey::new(&self.identity).ok_or(SecAggError::key(index, "identity"))?;
        let signed = signed_keys(context, &self.identity, &self.sealing_key, &self.masking_key);
        if identity.verifies(&signed, &self.signature) {
            Ok(())
        } else {
            Err(SecAggError::signature(index, "its keys"))
        }
    }
}

/// No two of `entries` share an identity or a key.
pub(crate) fn check_distinct(entries: &[(u32, &Entry)]) -> Result<()> {
    let mut seen = std::collections::BTreeMap::new();
    for (second, entry) in entries {
        let keys = [
            ("identity", entry.identity),
            ("sealing", entry.sealing_key),
            ("masking", entry.masking_key),
        ];
        for (which, key) in keys {
            if let Some(first) = seen.insert((which, key), *second) {
                return Err(SecAggError::DuplicateKey {
                    first,
                    second: *second,
                    which,
                });
            }
        }
    }
    Ok(())
}

/// Hashes on a path from an entry of `clients` to the root.
pub(crate) fn path_len(clients: u32) -> usize {
    clients.next_power_of_two().trailing_zeros() as usize
}

fn leaf(index: u32, entry: &Entry) -> Digest32 {
    let (index, bytes) = (index.to_le_bytes(), entry.to_bytes());
    match &entry.certificate {
        None => labelled("leaf", &[&index, &bytes]),
        Some(certificate) => labelled("leaf", &[&index, &bytes, certificate.as_bytes()]),
    }
}

fn node(left: &Digest32, right: &Digest32) -> Digest32 {
    labelled("node", &[left, right])
}

/// The root names the number of entries too, so that no place past the last one can be shown.
fn root(clients: u32, top: &Digest32) -> Digest32 {
    labelled("root", &[&clients.to_le_bytes(), top])
}

/// The hashes of all levels, the leaves first, filled up with zeros to a power of two.
pub(crate) struct Tree {
    levels: Vec<Vec<Digest32>>,
    root: Digest32,
}

impl Tree {
    pub(crate) fn new(entries: &[Entry]) -> Self {
        let mut level: Vec<Digest32> = entries
            .iter()
            .zip(0..)
            .map(|(entry, index)| leaf(index, entry))
            .collect();
        level.resize(entries.len().next_power_of_two(), [0; 32]);
        let mut levels = vec![level];
        while let Some(last) = levels.last().filter(|level| level.len() > 1) {
            let above = last
                .as_chunks::<2>()
                .0
                .iter()
                .map(|[left, right]| node(left, right))
                .collect();
            levels.push(above);
        }
        let top = levels
            .last()
            .and_then(|level| level.first())
            .copied()
            .unwrap_or_default();
        Self {
            root: root(entries.len() as u32, &top),
            levels,
        }
    }

    pub(crate) fn root(&self) -> &Digest32 {
        &self.root
    }

    /// The siblings on the way from `index` to the root.
    pub(crate) fn path(&self, index: u32) -> Vec<Digest32> {
        let below_top = self.levels.len() - 1;
        self.levels[..below_top]
            .iter()
            .zip(0..)
            .map(|(level, depth)| level[(index as usize >> depth) ^ 1])
            .collect()
    }
}

/// Returns `true` if `entry` stands at `index` of the `clients` under the root `expected`.
pub(crate) fn is_under(
    expected: &Digest32,
    clients: u32,
    index: u32,
    entry: &Entry,
    path: &[Digest32],
) -> bool {
    let mut hash = leaf(index, entry);
    for (depth, sibling) in path.iter().enumerate() {
        hash = if index >> depth & 1 == 0 {
            node(&hash, sibling)
        } else {
            node(sibling, &hash)
        };
    }
    index < clients && path.len() == path_len(clients) && root(clients, &hash) == *expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seed: u8) -> Entry {
        Entry {
            identity: [seed; 32],
            sealing_key: [seed ^ 128; 32],
            masking_key: [seed ^ 64; 32],
            signature: [seed; 64],
            certificate: None,
        }
    }

    #[test]
    fn only_an_entry_at_its_place_is_under_the_root() {
        for n in [1u32, 2, 3, 7, 8, 9] {
            let entries: Vec<Entry> = (0..n as u8).map(entry).collect();
            let tree = Tree::new(&entries);
            for (index, entry) in (0..).zip(&entries) {
                let path = tree.path(index);
                assert!(is_under(tree.root(), n, index, entry, &path));
                assert!(!is_under(tree.root(), n + 1, index, entry, &path));
                for other in (0..n).filter(|other| *other != index) {
                    assert!(!is_under(tree.root(), n, other, entry, &path));
                    assert!(!is_under(tree.root(), n, index, &entries[other as usize], &path));
                }
                assert!(path.is_empty() || !is_under(tree.root(), n, index, entry, &path[1..]));
                assert_eq!(Entry::from_bytes(&entry.to_bytes()), *entry);
            }
        }
    }

    #[test]
    fn no_key_appears_twice_in_a_roster() {
        let (one, two, mut three) = (entry(1), entry(2), entry(3));
        assert_eq!(check_distinct(&[(0, &one), (1, &two), (2, &three)]), Ok(()));
        three.masking_key = one.masking_key;
        let error = check_distinct(&[(0, &one), (1, &two), (2, &three)]).unwrap_err();
        assert_eq!(
            error,
            SecAggError::DuplicateKey {
                first: 0,
                second: 2,
                which: "masking"
            }
        );
    }
}
