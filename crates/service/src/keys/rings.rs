//! The keys that are replaced while a service lives, each in its generations.
//!
//! A key is added as the next one, which every process and every app comes to know. Then it is used, and the one before is retired:
//! known, and no longer used. Then that one is dropped. So no process and no device ever meets a key that it does not know.

use std::fmt;
use std::str::FromStr;

use undertone_protocol::{Digest32, Signer};
use zeroize::{Zeroize as _, Zeroizing};

use super::{Root, random};
use crate::error::{Result, ServiceError};

/// A purpose whose key can be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The sealing of the state of the noise.
    State,
    /// The signatures of plans, which apps trust.
    Plans,
    /// The certificates of devices, which apps and the service trust.
    Issuer,
}

impl Purpose {
    /// All of them, in the order of the file.
    pub const ALL: [Self; 3] = [Self::State, Self::Plans, Self::Issuer];

    /// The name, as operators write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Plans => "plans",
            Self::Issuer => "issuer",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Purpose {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|purpose| purpose.name() == text);
        found.ok_or_else(|| refused("the purpose of a key", "state, plans or issuer", text))
    }
}

/// The place of a key in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyStage {
    /// Trusted, and not used yet.
    Next,
    /// Used.
    Current,
    /// Trusted, and no longer used.
    Retired,
    /// Known by its public half alone, for what it signed.
    Dropped,
}

impl KeyStage {
    /// The name, as operators read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Current => "current",
            Self::Retired => "retired",
            Self::Dropped => "dropped",
        }
    }
}

/// A key with its stage.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) stage: KeyStage,
    /// The begin of the stage, in milliseconds since 1970.
    pub(super) since: u64,
    /// The secret; the public half of a dropped key. `None` for the first key, which follows from the root of the file.
    pub(super) bytes: Option<Zeroizing<[u8; 32]>>,
}

/// The bytes of a generation in the file: purpose, stage, a mark of the first key, time, secret.
const ENTRY: usize = 3 + 8 + 32;

/// The generations of each purpose.
#[derive(Clone)]
pub(super) struct Rings([Vec<Generation>; 3]);

fn refused(key: &str, expected: &str, got: &str) -> ServiceError {
    ServiceError::Value {
        key: key.to_owned(),
        expected: expected.to_owned(),
        got: got.chars().take(40).collect(),
    }
}

impl Rings {
    /// The keys that follow from the root alone.
    pub(super) fn first() -> Self {
        Self(std::array::from_fn(|_| {
            vec![Generation {
                stage: KeyStage::Current,
                since: 0,
                bytes: None,
            }]
        }))
    }

    /// `true` while no key was ever replaced.
    pub(super) fn is_first(&self) -> bool {
        self.0.iter().all(|ring| ring.len() == 1)
    }

    pub(super) fn of(&self, purpose: Purpose) -> &[Generation] {
        &self.0[purpose as usize]
    }

    /// Reads the generations behind the root in the file; `None` for bytes that this program did not write.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rings = Self(Default::default());
        let (entries, rest) = bytes.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return None;
        }
        for entry in entries {
            let ring = rings.0.get_mut(usize::from(entry[0]))?;
            let stage = match entry[1] {
                0 => KeyStage::Next,
                1 => KeyStage::Current,
                2 => KeyStage::Retired,
                3 => KeyStage::Dropped,
                _ => return None,
            };
            let bytes = match entry[2] {
                0 => Some(Zeroizing::new(*entry.last_chunk()?)),
                1 => None,
                _ => return None,
            };
            ring.push(Generation {
                stage,
                since: u64::from_le_bytes(entry[3..11].try_into().ok()?),
                bytes,
            });
        }
        let count = |ring: &[Generation], stage| ring.iter().filter(|found| found.stage == stage).count();
        let whole = rings.0.iter().all(|ring| {
            count(ring, KeyStage::Current) == 1
                && count(ring, KeyStage::Next) <= 1
                && count(ring, KeyStage::Retired) <= 1
        });
        whole.then_some(rings)
    }

    pub(super) fn write(&self, bytes: &mut Zeroizing<Vec<u8>>) {
        for (purpose, ring) in (0u8..).zip(&self.0) {
            for generation in ring {
                let mut entry = [0; ENTRY];
                entry[..2].copy_from_slice(&[purpose, generation.stage as u8]);
                entry[2] = u8::from(generation.bytes.is_none());
                entry[3..11].copy_from_slice(&generation.since.to_le_bytes());
                if let Some(secret) = &generation.bytes {
                    entry[11..].copy_from_slice(&secret[..]);
                }
                bytes.extend_from_slice(&entry);
                entry.zeroize();
            }
        }
    }

    fn at(&self, purpose: Purpose, stage: KeyStage) -> Option<&Generation> {
        self.of(purpose).iter().find(|found| found.stage == stage)
    }

    /// The begin of a stage of a purpose; `None` where no key has it.
    pub(super) fn since(&self, purpose: Purpose, stage: KeyStage) -> Option<u64> {
        self.at(purpose, stage).map(|found| found.since)
    }

    /// Adds a fresh key as the next one.
    pub(super) fn add(&mut self, purpose: Purpose, now: u64) -> Result<()> {
        for (stage, what) in [
            (
                KeyStage::Next,
                "no next key; `undertone identity rotate` with the step `use` makes it the current one",
            ),
            (
                KeyStage::Retired,
                "no retired key; `undertone identity rotate` with the step `drop` drops it",
            ),
        ] {
            if self.at(purpose, stage).is_some() {
                // Two keys are trusted at a time, not three.
                return Err(refused(&format!("the keys of {purpose}"), what, "one"));
            }
        }
        self.0[purpose as usize].push(Generation {
            stage: KeyStage::Next,
            since: now,
            bytes: Some(Zeroizing::new(random()?)),
        });
        Ok(())
    }

    /// Makes the next key the current one, and retires the one before.
    pub(super) fn use_next(&mut self, purpose: Purpose, now: u64) -> Result<()> {
        if self.at(purpose, KeyStage::Next).is_none() {
            return Err(refused(
                &format!("the keys of {purpose}"),
                "a next key, which the step `add` of `undertone identity rotate` makes",
                "none",
            ));
        }
        for generation in &mut self.0[purpose as usize] {
            let stage = match generation.stage {
                KeyStage::Next => KeyStage::Current,
                KeyStage::Current => KeyStage::Retired,
                KeyStage::Retired | KeyStage::Dropped => continue,
            };
            (generation.stage, generation.since) = (stage, now);
        }
        Ok(())
    }

    /// Drops the retired key: its secret is gone, and its public half stays for what it signed.
    pub(super) fn drop_retired(&mut self, purpose: Purpose, root: &Root, now: u64) -> Result<()> {
        let ring = &mut self.0[purpose as usize];
        let place = ring.iter().position(|found| found.stage == KeyStage::Retired);
        let Some(place) = place else {
            return Err(refused(
                &format!("the keys of {purpose}"),
                "a retired key",
                "none",
            ));
        };
        match purpose {
            Purpose::State => drop(ring.remove(place)),
            Purpose::Plans | Purpose::Issuer => {
                let public = root.signer(purpose, &ring[place]).map(|signer| signer.public());
                let generation = &mut ring[place];
                (generation.stage, generation.since) = (KeyStage::Dropped, now);
                generation.bytes = public.map(Zeroizing::new);
            }
        }
        Ok(())
    }
}

impl Root {
    /// The secret of a generation for its purpose.
    fn secret<'a>(&'a self, generation: &'a Generation) -> &'a [u8; 32] {
        generation.bytes.as_deref().unwrap_or(&self.0)
    }

    /// The key of a generation for one use.
    pub(super) fn key_of(
        &self,
        generation: &Generation,
        purpose: &str,
        parts: &[&[u8]],
    ) -> Zeroizing<[u8; 32]> {
        super::derived(self.secret(generation), purpose, parts)
    }

    /// The signing key of a generation; `None` for a dropped one.
    pub(super) fn signer(&self, purpose: Purpose, generation: &Generation) -> Option<Signer> {
        if generation.stage == KeyStage::Dropped {
            return None;
        }
        Some(Signer::from_seed(&self.key_of(generation, purpose.name(), &[])))
    }

    /// The public half of a generation.
    pub(super) fn public(&self, purpose: Purpose, generation: &Generation) -> Digest32 {
        match self.signer(purpose, generation) {
            Some(signer) => signer.public(),
            None => *self.secret(generation),
        }
    }
}
