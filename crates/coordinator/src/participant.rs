//! Pseudonyms of users in ledgers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// A user's name in one run's ledger: 64 bits, written as 16 hexadecimal digits.
///
/// Two of `N` users share a name with probability below `N^2 / 2^65`: 3e-8 for a million users. Their participations are
/// then counted as one user's, so the observed schema has a smaller separation and more participations than any user
/// really has: the guarantee that is computed from it is worse than the true one, never better. Where both stand in one
/// round, that round is refused as if a user took part twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParticipantId(u64);

impl ParticipantId {
    /// The name with this number, as [`ParticipantId::get`] gives it.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number whose hexadecimal digits the ledger shows.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a pseudonym.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a pseudonym of 16 lower-case hexadecimal digits, got {0:?}")]
pub struct NotAParticipantId(String);

impl FromStr for ParticipantId {
    type Err = NotAParticipantId;

    fn from_str(text: &str) -> Result<Self, NotAParticipantId> {
        // One way to write it, so that equal text is equal users.
        let digits = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match u64::from_str_radix(text, 16) {
            Ok(number) if digits => Ok(Self(number)),
            _ => Err(NotAParticipantId(text.chars().take(32).collect())),
        }
    }
}

impl Serialize for ParticipantId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ParticipantId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The salt of a run's pseudonyms, which makes them differ from those of other runs.
///
/// PRIVACY: a reader of the ledger who knows the salt can try all user indices and learn which user took part when. The salt
/// belongs beside the training data, not beside the ledger.
#[derive(Clone)]
pub struct Salt([u8; 32]);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

impl Salt {
    /// The salt of random bytes that were drawn for this alone.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The name of a user: the first eight bytes of `SHA-256(salt || user)`, the index as eight little-endian bytes.
    #[must_use]
    pub fn pseudonym(&self, user: u64) -> ParticipantId {
        let digest: [u8; 32] = Sha256::new()
            .chain_update(self.0)
            .chain_update(user.to_le_bytes())
            .finalize()
            .into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        ParticipantId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The names of some users, in order of the names.
    ///
    /// PRIVACY: in the order of the users, a round's list would show which of two users has the smaller index.
    #[must_use]
    pub fn cohort(&self, users: impl IntoIterator<Item = u64>) -> Vec<ParticipantId> {
        let mut cohort: Vec<ParticipantId> = users.into_iter().map(|user| self.pseudonym(user)).collect();
        cohort.sort_unstable();
        cohort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pseudonym_is_the_first_bytes_of_the_salted_hash() {
        // Python: sha256(bytes(32) + (5).to_bytes(8, 'little')).hexdigest()[:16]
        let salt = Salt::from_bytes([0; 32]);
        assert_eq!(salt.pseudonym(5).to_string(), "162681eb2d1c81fc");
        assert_ne!(salt.pseudonym(6), salt.pseudonym(5));
        assert_ne!(Salt::from_bytes([1; 32]).pseudonym(5), salt.pseudonym(5));
        assert_eq!(format!("{salt:?}"), "Salt(..)");
        let cohort = salt.cohort(0..50);
        assert!(cohort.is_sorted() && cohort.contains(&salt.pseudonym(49)));
    }

    #[test]
    fn text_round_trips_and_nothing_else_is_read() {
        let name = ParticipantId::new(0xab);
        assert_eq!(name.to_string(), "00000000000000ab");
        assert_eq!("00000000000000ab".parse(), Ok(name));
        let json = serde_json::to_string(&[name]).unwrap();
        assert_eq!(json, r#"["00000000000000ab"]"#);
        assert_eq!(serde_json::from_str::<[ParticipantId; 1]>(&json).unwrap(), [name]);
        for bad in [
            "",
            "ab",
            "00000000000000AB",
            "+0000000000000ab",
            "00000000000000abc",
            "zzzzzzzzzzzzzzzz",
        ] {
            let error = bad.parse::<ParticipantId>().unwrap_err().to_string();
            assert!(error.contains("16 lower-case hexadecimal digits"), "{error}");
        }
        assert!(serde_json::from_str::<ParticipantId>("7").is_err());
    }
}
