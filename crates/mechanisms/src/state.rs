//! The saved state of a noise stream: versioned bytes that only the same mechanism, dimension and key continue.
//!
//! Layout, all numbers little-endian: magic (8 bytes), version (4), element (4), digest of what makes the noise (32), key id
//! (32), dimension, rounds made, round of the last restart, origin of the key (0 entropy, 1 an insecure seed), payload length
//! (8 each), payload, SHA-256 of all before (32).
//! The payload is the memory of the stream in the order in which it is stored; it is written and read in pieces, so a state
//! as large as the machine's memory needs no second copy.
//!
//! PRIVACY: the payload is noise that later rounds subtract again. A reader who has it together with the releases can
//! take some of the noise off: store it as the key is stored. The key itself is never in it, only a name of it.

use std::io::{Read, Write};

use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use crate::error::{MechanismError, Result};
use crate::sampler::uniform::{KeyOrigin, NoiseKey, Purpose};

const MAGIC: [u8; 8] = *b"UNDRTONE";

/// Version of the layout.
const VERSION: u32 = 2;

const HEADER: usize = 8 + 4 + 4 + 32 + 32 + 5 * 8;

/// Numbers that are converted at once.
const PIECE: usize = 8192;

/// A number that states are made of.
pub(crate) trait Stored: Copy + Zeroize {
    /// Tells the element types apart.
    const ELEMENT: u32;
    const BYTES: usize;
    fn put(self, bytes: &mut [u8]);
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! stored {
    ($number:ty, $element:literal, $bytes:literal) => {
        impl Stored for $number {
            const ELEMENT: u32 = $element;
            const BYTES: usize = $bytes;

            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &[u8]) -> Self {
                let mut array = [0; $bytes];
                array.copy_from_slice(bytes);
                <$number>::from_le_bytes(array)
            }
        }
    };
}

stored!(f32, 1, 4);
stored!(f64, 2, 8);
stored!(i64, 3, 8);

/// The header of a saved state, in front of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// Digest of everything that the noise depends on but the key and the dimension.
    digest: [u8; 32],
    key_id: [u8; 32],
    /// Origin of the key, and of the keys of the rounds before.
    key_origin: KeyOrigin,
    dim: u64,
    /// Rounds made.
    round: u64,
    /// The last round at which everything was forgotten.
    restarted: u64,
}

/// The part of a noise source that its saved states are compared with, and its progress.
pub(crate) struct Resumable {
    header: Header,
    /// Maximum number of rounds.
    rounds: u64,
}

impl Resumable {
    /// A source before its first round. `digest` covers everything that the noise depends on but the key and the dimension.
    pub(crate) fn new(digest: [u8; 32], key: &NoiseKey, dim: usize, rounds: usize) -> Result<Self> {
        Ok(Self {
            header: Header {
                digest,
                key_id: key_id(key)?,
                key_origin: key.origin(),
                dim: dim as u64,
                round: 0,
                restarted: 0,
            },
            rounds: rounds as u64,
        })
    }

    /// Name of the key.
    pub(crate) fn key_id(&self) -> [u8; 32] {
        self.header.key_id
    }

    /// Origin of the key, and of the keys of the rounds before a [`load`](Self::load).
    #[cfg(test)]
    pub(crate) fn key_origin(&self) -> KeyOrigin {
        self.header.key_origin
    }

    /// Goes on under another key.
    ///
    /// PRIVACY: noise from a secret key never goes on under a seed.
    pub(crate) fn rekey(&mut self, key: &NoiseKey) -> Result<()> {
        let (before, now) = (self.header.key_origin, key.origin());
        let begun = self.header.round > 0;
        if (begun, before, now) == (true, KeyOrigin::Entropy, KeyOrigin::InsecureSeed) {
            return Err(MechanismError::StateMismatch {
                what: "origin of the key",
                expected: before.to_string(),
                got: now.to_string(),
            });
        }
        self.header.key_origin = if begun { before.and(now) } else { now };
        self.header.key_id = key_id(key)?;
        Ok(())
    }

    /// Rounds made.
    pub(crate) fn round(&self) -> usize {
        self.header.round as usize
    }

    /// Counts one more round.
    pub(crate) fn advance(&mut self) {
        self.header.round += 1;
    }

    /// Sets the number of rounds made to zero.
    pub(crate) fn rewind(&mut self) {
        self.header.round = 0;
    }

    /// Writes a state whose memory is `payload`.
    pub(crate) fn save<E: Stored>(
        &self,
        restarted: usize,
        payload: &[E],
        writer: &mut impl Write,
    ) -> Result<()> {
        let header = Header {
            restarted: restarted as u64,
            ..self.header
        };
        write(&header, payload, writer)
    }

    /// Reads a state into `payload`, takes over its progress, and returns the round of its last restart.
    ///
    /// On an error the progress stays as it is; a state that cannot be read leaves a payload of zeros.
    pub(crate) fn load<E: Stored + Default>(
        &mut self,
        keys: Keys,
        payload: &mut [E],
        reader: &mut impl Read,
    ) -> Result<usize> {
        let read = read(&self.header, keys, self.rounds, payload, reader)?;
        // PRIVACY: this value knows that later rounds are out; released again, with another average, they would show the
        // difference without noise. To go back, a caller begins with a new value.
        if read.round < self.header.round {
            return Err(MechanismError::StateMismatch {
                what: "round",
                expected: format!("{} or later", self.header.round),
                got: read.round.to_string(),
            });
        }
        self.header = Header {
            key_origin: self.header.key_origin.and(read.key_origin),
            ..read
        };
        Ok(read.restarted as usize)
    }
}

/// The key under which a saved state goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The state's own key: the noise to come is what it would have been.
    Same,
    /// Another key: rows made so far are never made again.
    Fresh,
}

/// A name of a key that does not give the key away: words of its own purpose, hashed.
pub(crate) fn key_id(key: &NoiseKey) -> Result<[u8; 32]> {
    let mut words = Zeroizing::new([0; 64]);
    key.stream(Purpose::KeyId, 0)?.fill(0, &mut words[..]);
    Ok(Sha256::digest(&words[..]).into())
}

/// Writes a state.
fn write<E: Stored>(header: &Header, payload: &[E], writer: &mut impl Write) -> Result<()> {
    let mut hash = Sha256::new();
    let mut head = Vec::with_capacity(HEADER);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&E::ELEMENT.to_le_bytes());
    head.extend_from_slice(&header.digest);
    head.extend_from_slice(&header.key_id);
    let origin = match header.key_origin {
        KeyOrigin::Entropy => 0,
        KeyOrigin::InsecureSeed => 1,
    };
    let length = payload.len() as u64;
    for number in [header.dim, header.round, header.restarted, origin, length] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    let mut put = |bytes: &[u8], hash: &mut Sha256| {
        hash.update(bytes);
        writer.write_all(bytes).map_err(|error| io("written", &error))
    };
    put(&head, &mut hash)?;
    let mut bytes = Zeroizing::new(vec![0; PIECE * E::BYTES]);
    for piece in payload.chunks(PIECE) {
        let bytes = &mut bytes[..piece.len() * E::BYTES];
        for (value, bytes) in piece.iter().zip(bytes.chunks_exact_mut(E::BYTES)) {
            value.put(bytes);
        }
        put(bytes, &mut hash)?;
    }
    let sum = hash.finalize();
    writer
        .write_all(&sum)
        .and_then(|()| writer.flush())
        .map_err(|error| io("written", &error))
}

/// Reads a state into `payload`, which has the length that the state must have, and returns its header.
///
/// On an error the payload is all zero.
fn read<E: Stored + Default>(
    expected: &Header,
    keys: Keys,
    rounds: u64,
    payload: &mut [E],
    reader: &mut impl Read,
) -> Result<Header> {
    let result = read_checked(expected, keys, rounds, payload, reader);
    if result.is_err() {
        // What a damaged file held is no noise: nothing may go on with it.
        payload.fill(E::default());
    }
    result
}

fn read_checked<E: Stored>(
    expected: &Header,
    keys: Keys,
    rounds: u64,
    payload: &mut [E],
    reader: &mut impl Read,
) -> Result<Header> {
    let mut hash = Sha256::new();
    let mut head = [0; HEADER];
    take(reader, &mut head)?;
    hash.update(head);
    let (magic, rest) = head.split_at(8);
    if magic != MAGIC {
        return Err(damaged("it does not begin as the state of a noise stream"));
    }
    let (numbers, rest) = rest.split_at(8);
    let (version, element) = numbers.split_at(4);
    same("version", VERSION, little_endian(version) as u32)?;
    same("element type", E::ELEMENT, little_endian(element) as u32)?;
    let (digest, rest) = rest.split_at(32);
    same_bytes("mechanism", &expected.digest, digest)?;
    let (key_id, rest) = rest.split_at(32);
    let field = |index: usize| little_endian(&rest[8 * index..8 * index + 8]);
    let (dim, round, restarted, origin, length) = (field(0), field(1), field(2), field(3), field(4));
    same("dimension", expected.dim, dim)?;
    let key_origin = match origin {
        0 => KeyOrigin::Entropy,
        1 => KeyOrigin::InsecureSeed,
        _ => return Err(damaged("its key is of an unknown origin")),
    };
    same_key(expected, keys, key_id, key_origin)?;
    if round > rounds || restarted > round {
        return Err(damaged("its round is beyond the plan"));
    }
    same("payload length", payload.len() as u64, length)?;
    let mut bytes = Zeroizing::new(vec![0; PIECE * E::BYTES]);
    for piece in payload.chunks_mut(PIECE) {
        let bytes = &mut bytes[..piece.len() * E::BYTES];
        take(reader, bytes)?;
        hash.update(&*bytes);
        for (value, bytes) in piece.iter_mut().zip(bytes.chunks_exact(E::BYTES)) {
            *value = E::take(bytes);
        }
    }
    let mut sum = [0; 32];
    take(reader, &mut sum)?;
    if hash.finalize()[..] != sum {
        return Err(damaged("its checksum is another"));
    }
    Ok(Header {
        key_origin,
        round,
        restarted,
        ..*expected
    })
}

/// Refuses a key that the state must not go on under.
///
/// PRIVACY: noise that only the holder of a secret could take off must not go on, unnoticed, as noise from a seed.
fn same_key(expected: &Header, keys: Keys, key_id: &[u8], key_origin: KeyOrigin) -> Result<()> {
    match keys {
        Keys::Same => same_bytes("key", &expected.key_id, key_id)?,
        // PRIVACY: under its own key a round that is made again would have the noise of the first time.
        Keys::Fresh if expected.key_id == *key_id => {
            same("need", "a key that it was not made with", "its own")?;
        }
        Keys::Fresh => (),
    }
    match key_origin {
        KeyOrigin::Entropy => same("origin of its key", expected.key_origin, key_origin),
        // The caller is told, and has it follow the noise.
        KeyOrigin::InsecureSeed => Ok(()),
    }
}

fn take(reader: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    reader.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
        _ => io("read", &error),
    })
}

fn damaged(what: &'static str) -> MechanismError {
    MechanismError::StateDamaged { what }
}

fn io(action: &'static str, error: &std::io::Error) -> MechanismError {
    MechanismError::StateIo {
        action,
        kind: error.kind(),
        message: error.to_string(),
    }
}

fn same<T: PartialEq + ToString + Copy>(what: &'static str, expected: T, got: T) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(MechanismError::StateMismatch {
        what,
        expected: expected.to_string(),
        got: got.to_string(),
    })
}

fn same_bytes(what: &'static str, expected: &[u8], got: &[u8]) -> Result<()> {
    same(what, &*hex(expected), &*hex(got))
}

/// The first 8 bytes in hexadecimal: enough to tell two mechanisms apart in a message.
fn hex(bytes: &[u8]) -> String {
    bytes[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn little_endian(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    fn header() -> Header {
        Header {
            digest: [3; 32],
            key_id: key_id(&NoiseKey::from_bytes([5; 32])).unwrap(),
            key_origin: KeyOrigin::Entropy,
            dim: 10,
            round: 7,
            restarted: 2,
        }
    }

    fn saved(payload: &[f64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&header(), payload, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_state_of_several_pieces_is_read_back() {
        let payload: Vec<f64> = (0..3 * PIECE + 1).map(|i| (i as f64).sin()).collect();
        let mut back = vec![0.0; payload.len()];
        let bytes = saved(&payload);
        assert_eq!(
            read(&header(), Keys::Same, 9, &mut back, &mut &bytes[..]).unwrap(),
            header()
        );
        assert_eq!(back, payload);
        assert_eq!(bytes.len(), HEADER + 8 * payload.len() + 32);
    }

    fn check(change: impl FnOnce(&mut Header, &mut Vec<u8>), rounds: u64, message: &str) {
        let mut bytes = saved(&[1.0; 20]);
        let mut expected = header();
        change(&mut expected, &mut bytes);
        let mut back = [1.0f64; 20];
        let read = read(&expected, Keys::Same, rounds, &mut back, &mut &bytes[..]);
        says(read, message);
        assert_eq!(back, [0.0; 20]);
    }

    #[test]
    fn refusals_name_their_reason_and_zero_the_state() {
        check(|_, bytes| bytes[0] ^= 1, 9, "does not begin as");
        check(|_, bytes| bytes[8] = 1, 9, "different version: expected 2, got 1");
        let message = "different element type: expected 2, got 1";
        check(|_, bytes| bytes[12] = 1, 9, message);
        let message = "different mechanism: expected 0404";
        check(|expected, _| expected.digest = [4; 32], 9, message);
        let message = "different dimension: expected 11, got 10";
        check(|expected, _| expected.dim = 11, 9, message);
        check(|expected, _| expected.key_id[0] ^= 1, 9, "different key");
        let seed = KeyOrigin::InsecureSeed;
        let message = "different origin of its key: expected an insecure seed, got entropy";
        check(|expected, _| expected.key_origin = seed, 9, message);
        check(|_, bytes| bytes[104] = 2, 9, "unknown origin");
        check(|_, _| (), 6, "beyond the plan");
        let of_payload = [0, 40, 20 * 8, 20 * 8 + 31].map(|bytes| HEADER + bytes);
        for cut in [0, 5, HEADER - 1].into_iter().chain(of_payload) {
            check(|_, bytes| bytes.truncate(cut), 9, "ends too early");
        }
        for place in [HEADER, HEADER + 100, HEADER + 161] {
            check(|_, bytes| bytes[place] ^= 4, 9, "checksum");
        }
        // Rounds made are part of what the checksum covers.
        check(|_, bytes| bytes[88] ^= 1, 9, "checksum");
        let mut short = [0.0f64; 19];
        let read = read(&header(), Keys::Same, 9, &mut short, &mut &saved(&[1.0; 20])[..]);
        says(read, "payload length: expected 19, got 20");
    }

    #[test]
    fn keys_change_only_where_that_is_asked_for() {
        let (entropy, seed) = (KeyOrigin::Entropy, KeyOrigin::InsecureSeed);
        let check = |keys, saved: KeyOrigin, other_key: bool, own: KeyOrigin, message: &str| {
            let mut bytes = Vec::new();
            let state = Header {
                key_origin: saved,
                ..header()
            };
            write(&state, &[1.0; 3], &mut bytes).unwrap();
            let mut expected = Header {
                key_origin: own,
                ..header()
            };
            expected.key_id[0] ^= u8::from(other_key);
            let result = read(&expected, keys, 9, &mut [0.0; 3], &mut &bytes[..]);
            // What the state says of its key is what the caller has to keep in mind.
            let origin = result.map(|header| header.key_origin);
            let got = origin
                .as_ref()
                .map_or_else(ToString::to_string, ToString::to_string);
            assert!(got.contains(message), "{got} instead of {message}");
        };
        check(Keys::Same, entropy, false, entropy, "entropy");
        check(Keys::Same, seed, false, seed, "an insecure seed");
        check(Keys::Same, entropy, false, seed, "different origin of its key");
        check(Keys::Same, seed, false, entropy, "an insecure seed");
        check(Keys::Same, entropy, true, entropy, "different key");
        check(Keys::Fresh, entropy, true, entropy, "entropy");
        let message = "different origin of its key: expected an insecure seed";
        check(Keys::Fresh, entropy, true, seed, message);
        check(Keys::Fresh, seed, true, entropy, "an insecure seed");
        check(Keys::Fresh, seed, true, seed, "an insecure seed");
        let message = "different need: expected a key that it was not made with";
        check(Keys::Fresh, entropy, false, entropy, message);
    }

    #[test]
    fn errors_of_reader_and_writer_are_passed_on() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("disk full"))
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("cable out"))
            }
        }
        let written = write(&header(), &[1.0f32], &mut Broken);
        says(written, "the saved state could not be written: disk full");
        let read = read(&header(), Keys::Same, 9, &mut [1.0f32], &mut Broken);
        says(read, "the saved state could not be read: cable out");
    }
}
