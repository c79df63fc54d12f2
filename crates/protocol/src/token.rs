//! The token of a session: sealed claims that any process of the service opens without a look-up.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use zeroize::Zeroizing;

use crate::error::{ProtocolError, Result};

/// The content of a session token.
///
/// PRIVACY: it names a pseudonym, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it names a participant")]
pub struct SessionClaims {
    /// The session.
    pub session: [u8; 16],
    /// The pseudonym of the subject in the task.
    pub pseudonym: u64,
    /// The attempt, by its number in the store.
    pub attempt: u64,
    /// The shard of the attempt.
    pub shard: u32,
    /// The end of the token, in milliseconds since 1970.
    pub expires_ms: u64,
}

const NONCE: usize = 12;
const TAG: usize = 16;
const CLAIMS: usize = 16 + 8 + 8 + 4 + 8;
/// Bytes of a token.
const TOKEN: usize = NONCE + CLAIMS + TAG;
const LABEL: &[u8] = b"undertone/1/session-token\0";

/// The key of the tokens of one process. It lives in memory only, so a restart ends all sessions.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a secret key must not be printable"
)]
pub struct TokenKey(Aes256Gcm);

impl TokenKey {
    /// The key of 32 secret bytes of the operating system.
    #[must_use]
    pub fn new(bytes: &Zeroizing<[u8; 32]>) -> Self {
        Self(Aes256Gcm::new((&**bytes).into()))
    }

    /// Seals claims. No two calls may have the same nonce: 12 bytes of the operating system each time.
    ///
    /// # Errors
    /// [`ProtocolError::Token`] where the cipher refuses, which it does not for claims of this length.
    pub fn seal(&self, claims: &SessionClaims, nonce: [u8; NONCE]) -> Result<Vec<u8>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(CLAIMS));
        plain.extend_from_slice(&claims.session);
        plain.extend_from_slice(&claims.pseudonym.to_le_bytes());
        plain.extend_from_slice(&claims.attempt.to_le_bytes());
        plain.extend_from_slice(&claims.shard.to_le_bytes());
        plain.extend_from_slice(&claims.expires_ms.to_le_bytes());
        let tag = self
            .0
            .encrypt_inout_detached(&Nonce::from(nonce), LABEL, plain.as_mut_slice().into())
            .map_err(|_| ProtocolError::Token)?;
        Ok([&nonce[..], &plain, &tag].concat())
    }

    /// Opens a token.
    ///
    /// # Errors
    /// [`ProtocolError::Token`] for a foreign, changed or damaged token; [`ProtocolError::Expired`] after its end.
    pub fn open(&self, token: &[u8], now_ms: u64) -> Result<SessionClaims> {
        if token.len() != TOKEN {
            return Err(ProtocolError::Token);
        }
        let mut rest = token;
        let nonce: [u8; NONCE] = take(&mut rest)?;
        let mut plain = Zeroizing::new(take::<CLAIMS>(&mut rest)?);
        let tag = Tag::from(take::<TAG>(&mut rest)?);
        self.0
            .decrypt_inout_detached(&Nonce::from(nonce), LABEL, plain.as_mut_slice().into(), &tag)
            .map_err(|_| ProtocolError::Token)?;
        let mut rest = &plain[..];
        let claims = SessionClaims {
            session: take(&mut rest)?,
            pseudonym: u64::from_le_bytes(take(&mut rest)?),
            attempt: u64::from_le_bytes(take(&mut rest)?),
            shard: u32::from_le_bytes(take(&mut rest)?),
            expires_ms: u64::from_le_bytes(take(&mut rest)?),
        };
        if now_ms >= claims.expires_ms {
            return Err(ProtocolError::Expired {
                name: "the session token",
                from: 0,
                to: claims.expires_ms,
                now: now_ms,
            });
        }
        Ok(claims)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>().ok_or(ProtocolError::Token)?;
    *rest = after;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_only_unchanged_in_time_and_with_its_key() {
        let key = TokenKey::new(&Zeroizing::new([1; 32]));
        let claims = SessionClaims {
            session: [7; 16],
            pseudonym: u64::MAX - 1,
            attempt: 3,
            shard: 2,
            expires_ms: 1000,
        };
        let token = key.seal(&claims, [5; 12]).unwrap();
        assert_eq!(token.len(), TOKEN);
        assert!(key.open(&token, 999).is_ok_and(|opened| opened == claims));
        assert!(matches!(
            key.open(&token, 1000),
            Err(ProtocolError::Expired { .. })
        ));
        let other = TokenKey::new(&Zeroizing::new([2; 32]));
        assert!(matches!(other.open(&token, 0), Err(ProtocolError::Token)));
        for place in 0..token.len() {
            let mut changed = token.clone();
            changed[place] ^= 1;
            assert!(
                matches!(key.open(&changed, 0), Err(ProtocolError::Token)),
                "byte {place}"
            );
        }
        for length in 0..token.len() {
            assert!(matches!(key.open(&token[..length], 0), Err(ProtocolError::Token)));
        }
    }
}
