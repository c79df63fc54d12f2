//! The keys of a service: one secret in one file, from which all others follow, and the keys that have replaced some of them.

pub mod pseudonyms;
mod rings;
pub mod seal;

use std::io::Write;
use std::path::{Path, PathBuf};

use hkdf::Hkdf;
use sha2::Sha256;
use undertone_aggregation::Wiped;
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, Signer, TrustedKeys};
use undertone_store::TaskId;
use zeroize::Zeroizing;

use crate::error::{Result, ServiceError};
use rings::{Generation, Rings};

pub use rings::{KeyStage, Purpose};

/// The name of the key file in the data folder.
pub(crate) const KEY_FILE: &str = "service.key";

/// The first bytes of a file of one secret.
const MAGIC: &[u8; 16] = b"undertone-key-1\n";

/// The first bytes of a file with keys that were replaced.
const MAGIC_OF_RINGS: &[u8; 16] = b"undertone-key-2\n";

/// Max bytes of the file.
const MAX_FILE: u64 = 16 << 10;

/// The secret from which the first key of each purpose follows.
#[derive(Clone)]
struct Root(Zeroizing<[u8; 32]>);

/// A key for one purpose.
fn derived(secret: &[u8; 32], purpose: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mut info = purpose.as_bytes().to_vec();
    for part in parts {
        info.extend_from_slice(&(part.len() as u64).to_le_bytes());
        info.extend_from_slice(part);
    }
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(Some(b"undertone/1/service"), secret)
        .expand(&info, &mut *key)
        .unwrap_or_else(|_| unreachable!("32 bytes are within the length of HKDF"));
    key
}

/// A key and its place in its life, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyView {
    /// The purpose of the key.
    pub purpose: Purpose,
    /// The stage of the key.
    pub stage: KeyStage,
    /// The begin of the stage, in milliseconds since 1970; 0 for the first key.
    pub since: u64,
    /// The public half; `None` for a key that seals.
    pub public: Option<Digest32>,
}

/// The keys of a service.
///
/// PRIVACY: a reader of the file can link pseudonyms with subjects and open the state of the noise. It stands outside the
/// database, so a backup of the database alone holds neither.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: secret keys must not be printable"
)]
#[derive(Clone)]
pub struct Keys {
    root: Root,
    rings: Rings,
}

impl Keys {
    /// Reads the key file of a data folder, or makes it where there is none. Only its owner can read it.
    ///
    /// # Errors
    /// [`ServiceError::Io`]; [`ServiceError::KeyFile`] for a file of another kind, or one that others can read.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(KEY_FILE);
        match std::fs::File::open(&path) {
            Ok(file) => Self::read(&path, file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::create(folder, &path),
            Err(error) => Err(ServiceError::io("read", &path, error)),
        }
    }

    /// The keys that follow from a secret, for tests and simulations.
    #[must_use]
    pub fn from_root(root: [u8; 32]) -> Self {
        Self {
            root: Root(Zeroizing::new(root)),
            rings: Rings::first(),
        }
    }

    fn read(path: &Path, file: std::fs::File) -> Result<Self> {
        let refused = |reason: &str| ServiceError::KeyFile {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let metadata = file
            .metadata()
            .map_err(|error| ServiceError::io("read", path, error))?;
        if !undertone_store::is_private(path, &metadata) {
            return Err(refused("others than its owner can read it; set its mode to 0600"));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize));
        std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_FILE), &mut bytes)
            .map_err(|error| ServiceError::io("read", path, error))?;
        Self::from_bytes(&bytes).ok_or_else(|| {
            refused("it must hold the keys that `undertone serve` or `undertone identity rotate` wrote")
        })
    }

    /// The keys of the bytes of a file; `None` for bytes of another kind.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if let Some(root) = bytes.strip_prefix(MAGIC.as_slice()) {
            return Some(Self::from_root(root.try_into().ok()?));
        }
        let (root, rings) = bytes
            .strip_prefix(MAGIC_OF_RINGS.as_slice())?
            .split_first_chunk()?;
        Some(Self {
            rings: Rings::read(rings)?,
            ..Self::from_root(*root)
        })
    }

    /// The bytes of the file.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize));
        match self.rings.is_first() {
            true => bytes.extend_from_slice(MAGIC),
            false => bytes.extend_from_slice(MAGIC_OF_RINGS),
        }
        bytes.extend_from_slice(&self.root.0[..]);
        if !self.rings.is_first() {
            self.rings.write(&mut bytes);
        }
        bytes
    }

    /// Replaces the key file of a data folder by these keys. The file is whole at any time.
    ///
    /// # Errors
    /// [`ServiceError::Io`].
    pub fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join(KEY_FILE);
        Ok(undertone_run_directory::files::write_secret_with(
            &path,
            |file| {
                file.write_all(&self.to_bytes()).map_err(|error| {
                    undertone_run_directory::error::DirectoryError::io("write", &path, error)
                })
            },
        )?)
    }

    fn create(folder: &Path, path: &Path) -> Result<Self> {
        let keys = Self::from_root(random()?);
        // The temporary file has mode 0600 from the start.
        let io = |error| ServiceError::io("write", path, error);
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        file.write_all(&keys.to_bytes()).map_err(io)?;
        file.as_file().sync_all().map_err(io)?;
        match file.persist_noclobber(path) {
            Ok(_) => {}
            // Another process has made one meanwhile: its keys count then, not these.
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                let file =
                    std::fs::File::open(path).map_err(|error| ServiceError::io("read", path, error))?;
                return Self::read(path, file);
            }
            Err(error) => return Err(io(error.error)),
        }
        let opened = std::fs::File::open(folder).map_err(io)?;
        opened.sync_all().map_err(io)?;
        Ok(keys)
    }

    /// A key for one purpose.
    fn key(&self, purpose: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        derived(&self.root.0, purpose, parts)
    }

    /// The key of a purpose that is in use.
    fn current(&self, purpose: Purpose) -> &Generation {
        let mut ring = self.rings.of(purpose).iter();
        ring.find(|found| found.stage == KeyStage::Current)
            .unwrap_or_else(|| unreachable!("a ring has a current key"))
    }

    fn signer(&self, purpose: Purpose) -> Signer {
        let signer = self.root.signer(purpose, self.current(purpose));
        signer.unwrap_or_else(|| unreachable!("the current key has a secret"))
    }

    /// The public keys of a purpose at these stages, the one in use first.
    fn publics(&self, purpose: Purpose, stages: &[KeyStage]) -> Vec<Digest32> {
        let mut found: Vec<&Generation> = self.rings.of(purpose).iter().collect();
        found.retain(|generation| stages.contains(&generation.stage));
        found.sort_by_key(|generation| generation.stage != KeyStage::Current);
        found
            .into_iter()
            .map(|generation| self.root.public(purpose, generation))
            .collect()
    }

    /// The key that signs boards.
    #[must_use]
    pub fn board(&self) -> Signer {
        Signer::from_seed(&self.key("board", &[]))
    }

    /// The key that signs plans: an app trusts its public half.
    #[must_use]
    pub fn plans(&self) -> Signer {
        self.signer(Purpose::Plans)
    }

    /// The public keys of plans that an app must trust, the one in use first.
    #[must_use]
    pub fn plan_keys(&self) -> Vec<Digest32> {
        self.publics(
            Purpose::Plans,
            &[KeyStage::Next, KeyStage::Current, KeyStage::Retired],
        )
    }

    /// The public keys that may have signed a plan of this service.
    #[must_use]
    pub(crate) fn signed_plans(&self) -> TrustedKeys {
        TrustedKeys::new(self.publics(
            Purpose::Plans,
            &[KeyStage::Current, KeyStage::Retired, KeyStage::Dropped],
        ))
    }

    /// The key of plans before any was replaced.
    #[must_use]
    pub(crate) fn first_plan_key(&self) -> Digest32 {
        Self::from_root(*self.root.0).plans().public()
    }

    /// The key that signs the heads of a task.
    #[must_use]
    pub fn head(&self, task: TaskId) -> Signer {
        Signer::from_seed(&self.key("head", &[&task.0]))
    }

    /// The key of the built-in issuer of certificates.
    #[must_use]
    pub fn issuer(&self) -> Signer {
        self.signer(Purpose::Issuer)
    }

    /// The public keys of the issuer that count, the one in use first.
    #[must_use]
    pub fn issuer_keys(&self) -> Vec<Digest32> {
        self.publics(
            Purpose::Issuer,
            &[KeyStage::Next, KeyStage::Current, KeyStage::Retired],
        )
    }

    /// The name of the issuer: its first public key. It stays when the key is replaced.
    ///
    /// PRIVACY: pseudonyms are of a subject of this name, whichever key signed its certificate. So a person with an old certificate on one
    /// device and a new one on another is one user.
    #[must_use]
    pub fn issuer_name(&self) -> Digest32 {
        Self::from_root(*self.root.0).issuer().public()
    }

    /// The key under which the state of the noise after a round is sealed; `salt` is fresh for each.
    #[must_use]
    pub fn state(&self, salt: &[u8; 32], task: TaskId, round: u64, attempt: u64) -> Zeroizing<[u8; 32]> {
        self.state_of(self.current(Purpose::State), salt, task, round, attempt)
    }

    fn state_of(
        &self,
        generation: &Generation,
        salt: &[u8; 32],
        task: TaskId,
        round: u64,
        attempt: u64,
    ) -> Zeroizing<[u8; 32]> {
        let (round, attempt) = (round.to_le_bytes(), attempt.to_le_bytes());
        self.root
            .key_of(generation, "state", &[salt, &task.0, &round, &attempt])
    }

    /// Opens a state of the noise that any key of this file sealed.
    ///
    /// # Errors
    /// [`ServiceError::Sealed`].
    pub(crate) fn open_state(
        &self,
        sealed: &[u8],
        task: TaskId,
        round: u64,
        attempt: u64,
    ) -> Result<Wiped<u8>> {
        // Another key fails at the first record.
        let mut opened = Err(ServiceError::Sealed);
        for generation in self.rings.of(Purpose::State).iter().rev() {
            opened = seal::open(sealed, &|salt| {
                self.state_of(generation, salt, task, round, attempt)
            });
            if opened.is_ok() {
                break;
            }
        }
        opened
    }

    /// Adds a fresh key of a purpose, which is trusted from now on and not used yet.
    ///
    /// # Errors
    /// [`ServiceError::Value`] while two keys are trusted; no entropy.
    pub fn add(&mut self, purpose: Purpose, now: u64) -> Result<()> {
        self.rings.add(purpose, now)
    }

    /// Uses the next key of a purpose from now on, and retires the one before.
    ///
    /// # Errors
    /// [`ServiceError::Value`] without a next key.
    pub fn use_next(&mut self, purpose: Purpose, now: u64) -> Result<()> {
        self.rings.use_next(purpose, now)
    }

    /// Destroys the retired key of a purpose. The public half of one that signed stays known.
    ///
    /// # Errors
    /// [`ServiceError::Value`] without a retired key.
    pub fn drop_retired(&mut self, purpose: Purpose, now: u64) -> Result<()> {
        self.rings.drop_retired(purpose, &self.root, now)
    }

    /// The time since which a key of a purpose is retired; `None` where none is.
    #[must_use]
    pub fn retired_since(&self, purpose: Purpose) -> Option<u64> {
        self.rings.since(purpose, KeyStage::Retired)
    }

    /// All keys that can be replaced.
    #[must_use]
    pub fn views(&self) -> Vec<KeyView> {
        let of = |purpose: Purpose| {
            self.rings.of(purpose).iter().map(move |generation| KeyView {
                purpose,
                stage: generation.stage,
                since: generation.since,
                public: match purpose {
                    Purpose::State => None,
                    Purpose::Plans | Purpose::Issuer => Some(self.root.public(purpose, generation)),
                },
            })
        };
        Purpose::ALL.into_iter().flat_map(of).collect()
    }

    /// The key of the session tokens of a day, for a service of several processes.
    #[must_use]
    pub(crate) fn tokens(&self, day: u64) -> Zeroizing<[u8; 32]> {
        self.key("session tokens", &[&day.to_le_bytes()])
    }

    /// The secret of the authority by which the processes of one service know each other.
    #[must_use]
    pub(crate) fn processes(&self) -> Zeroizing<[u8; 32]> {
        self.key("processes", &[])
    }

    /// The key of the invitations of the built-in issuer.
    #[must_use]
    pub fn invitations(&self) -> Zeroizing<[u8; 32]> {
        self.key("invitations", &[])
    }

    /// The name of a subject in its population, by which the service knows its departure and its devices. No row about a round holds it.
    #[must_use]
    pub fn person(&self, population: &str, issuer: &Digest32, subject: &Digest32) -> Digest32 {
        *self.key(
            "person of a population",
            &[population.as_bytes(), issuer, subject],
        )
    }

    /// The key under which the key of a task's pseudonyms is sealed.
    #[must_use]
    pub(crate) fn pseudonym_seal(&self, salt: &[u8; 32], task: TaskId) -> Zeroizing<[u8; 32]> {
        self.key("key of pseudonyms", &[salt, &task.0])
    }

    /// The name of a subject in a task that has a key of its own for names.
    #[must_use]
    pub(crate) fn pseudonym_under(
        &self,
        own: &[u8; 32],
        task: TaskId,
        issuer: &Digest32,
        subject: &Digest32,
    ) -> ParticipantId {
        named(&self.key("pseudonym under a key", &[own, &task.0, issuer, subject]))
    }

    /// The name of a subject in one task. Two tasks, and two issuers, never share a name by design, so nobody without these keys
    /// can link the participations of a person over tasks.
    #[must_use]
    pub fn pseudonym(&self, task: TaskId, issuer: &Digest32, subject: &Digest32) -> ParticipantId {
        named(&self.key("pseudonym", &[&task.0, issuer, subject]))
    }
}

/// The first bytes of a digest as a name.
fn named(digest: &[u8; 32]) -> ParticipantId {
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    ParticipantId::new(u64::from_be_bytes(first))
}

/// Bytes of the operating system.
///
/// # Errors
/// [`ServiceError::Entropy`].
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ServiceError::Entropy(error.to_string()))?;
    Ok(bytes)
}

/// The path of the key file of a data folder.
#[must_use]
pub fn key_file(folder: &Path) -> PathBuf {
    folder.join(KEY_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = Keys::open(folder.path()).unwrap();
        let read = Keys::open(folder.path()).unwrap();
        assert_eq!(made.root.0, read.root.0);
        let other = Keys::open(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(made.root.0, other.root.0);
    }

    #[test]
    fn a_file_of_another_kind_or_that_others_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = key_file(folder.path());
        for bytes in [&b""[..], b"undertone-key-1\n", &[7; 48], &[0; 100]] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let error = Keys::open(folder.path()).err().unwrap().to_string();
            assert!(error.contains("service.key"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        Keys::open(folder.path()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Keys::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("0600"), "{error}");
    }

    #[test]
    fn no_two_purposes_share_a_key() {
        let keys = Keys::from_root([1; 32]);
        let (a, b) = (TaskId([1; 32]), TaskId([2; 32]));
        let publics = [
            keys.board().public(),
            keys.plans().public(),
            keys.issuer().public(),
            keys.head(a).public(),
            keys.head(b).public(),
        ];
        let distinct: std::collections::BTreeSet<_> = publics.iter().collect();
        assert_eq!(distinct.len(), publics.len());
        let names = [
            keys.pseudonym(a, &[1; 32], &[1; 32]),
            keys.pseudonym(b, &[1; 32], &[1; 32]),
            keys.pseudonym(a, &[2; 32], &[1; 32]),
            keys.pseudonym(a, &[1; 32], &[2; 32]),
            Keys::from_root([2; 32]).pseudonym(a, &[1; 32], &[1; 32]),
        ];
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(names[0], keys.pseudonym(a, &[1; 32], &[1; 32]));
    }

    #[test]
    fn a_key_is_next_then_current_then_retired_then_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Keys::open(folder.path()).unwrap();
        let reopened = || Keys::open(folder.path()).unwrap();
        let (name, board, first) = (keys.issuer_name(), keys.board().public(), keys.issuer().public());
        assert_eq!(name, first);
        let mut used = vec![first];
        for turn in 1..=3 {
            keys.add(Purpose::Issuer, turn).unwrap();
            assert!(keys.add(Purpose::Issuer, turn).is_err(), "two next keys");
            keys.save(folder.path()).unwrap();
            assert_eq!(
                reopened().issuer().public(),
                used[used.len() - 1],
                "the next key is not used"
            );
            assert_eq!(reopened().issuer_keys().len(), 2);
            keys.use_next(Purpose::Issuer, turn).unwrap();
            assert!(
                keys.use_next(Purpose::Issuer, turn).is_err(),
                "no next key is left"
            );
            keys.save(folder.path()).unwrap();
            let now = reopened().issuer().public();
            assert!(!used.contains(&now), "a fresh key");
            assert_eq!(reopened().issuer_keys(), [now, used[used.len() - 1]]);
            assert_eq!(reopened().retired_since(Purpose::Issuer), Some(turn));
            assert!(keys.add(Purpose::Issuer, turn).is_err(), "three trusted keys");
            used.push(now);
            keys.drop_retired(Purpose::Issuer, turn).unwrap();
            assert!(keys.drop_retired(Purpose::Issuer, turn).is_err());
            keys.save(folder.path()).unwrap();
            assert_eq!(reopened().issuer_keys(), [now]);
            // What everything else rests on is as it was.
            assert_eq!(
                (reopened().issuer_name(), reopened().board().public()),
                (name, board)
            );
        }
        let views = reopened().views();
        let of_issuer: Vec<_> = views
            .iter()
            .filter(|view| view.purpose == Purpose::Issuer)
            .collect();
        let publics: Vec<_> = of_issuer.iter().filter_map(|view| view.public).collect();
        assert_eq!(publics, used);
        let dropped = of_issuer.iter().filter(|view| view.stage == KeyStage::Dropped);
        assert_eq!(dropped.count(), 3);
        // No secret of a dropped key is in the file: only the current one and the root are.
        let bytes = std::fs::read(key_file(folder.path())).unwrap();
        for public in &used[1..3] {
            assert!(
                bytes.windows(32).any(|part| part == public),
                "the public half stays"
            );
        }
    }

    #[test]
    fn a_state_opens_under_its_key_until_that_is_dropped() {
        let mut keys = Keys::from_root([1; 32]);
        let task = TaskId([3; 32]);
        let sealed =
            |keys: &Keys| seal::seal([9; 32], &|salt| keys.state(salt, task, 4, 5), b"noise").unwrap();
        let old = sealed(&keys);
        keys.add(Purpose::State, 1).unwrap();
        assert_eq!(sealed(&keys), old, "the next key seals nothing");
        keys.use_next(Purpose::State, 2).unwrap();
        let new = sealed(&keys);
        assert_ne!(new, old);
        for state in [&old, &new] {
            assert_eq!(&keys.open_state(state, task, 4, 5).unwrap()[..], b"noise");
            assert!(keys.open_state(state, task, 4, 6).is_err());
        }
        keys.drop_retired(Purpose::State, 3).unwrap();
        assert!(keys.open_state(&old, task, 4, 5).is_err());
        assert!(keys.open_state(&new, task, 4, 5).is_ok());
        assert_eq!(keys.views().len(), 3, "nothing is left of a key that sealed");
    }

    #[test]
    fn damaged_rings_are_refused() {
        let mut keys = Keys::from_root([1; 32]);
        keys.add(Purpose::Plans, 7).unwrap();
        let bytes = keys.to_bytes();
        assert!(Keys::from_bytes(&bytes).is_some());
        for cut in 1..bytes.len() {
            assert!(Keys::from_bytes(&bytes[..cut]).is_none(), "{cut}");
        }
        // A purpose, a stage and a mark that there are not, and a second current key.
        let first = MAGIC.len() + 32;
        for (place, value) in [(0, 3), (1, 4), (1, 3), (2, 2)] {
            let mut changed = bytes.to_vec();
            changed[first + place] = value;
            assert!(Keys::from_bytes(&changed).is_none(), "{place} {value}");
        }
    }
}
