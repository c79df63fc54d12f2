//! The names of subjects in a task: keyed hashes, under the key file alone or under a key of the task too.
//!
//! A task that an operator creates has a key of its own. It lies sealed in the store, and its destruction ends every way from a subject
//! to a ledger, also for somebody who holds the key file. A backup from before still has it.

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, digest_of};
use undertone_store::{Store, TaskId};
use zeroize::Zeroizing;

use super::seal;
use super::{Keys, random};
use crate::error::{Result, ServiceError};

/// The key of the pseudonyms of a task.
///
/// PRIVACY: together with the key file it links pseudonyms and subjects.
pub enum Pseudonyms {
    /// Names follow from the key file.
    KeyFile,
    /// Names follow from the key file and this key.
    Task(Zeroizing<[u8; 32]>),
}

// PRIVACY: secret keys must not be printable.
impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pseudonyms").finish_non_exhaustive()
    }
}

impl Pseudonyms {
    /// Draws the key of a new task and keeps it sealed in the store. Returns its digest, which the settings of the task remember.
    ///
    /// # Errors
    /// No entropy; from the store.
    pub(crate) fn draw(store: &dyn Store, keys: &Keys, task: TaskId) -> Result<Digest32> {
        let fresh = Zeroizing::new(random::<32>()?);
        let sealed = seal::seal(random()?, &|salt| keys.pseudonym_seal(salt, task), &*fresh)?;
        // A task of the same settings may have been begun before: its key counts then.
        let kept = store.keep_pseudonym_key(task, &sealed)?;
        Ok(digest_of(&*opened(&kept, keys, task)?))
    }

    /// The key of a task whose settings remember this digest of it; `None` where it was destroyed. Without a digest, names follow from
    /// the key file alone.
    ///
    /// # Errors
    /// From the store; [`ServiceError::Sealed`] for a key that was sealed under another key file;
    /// [`ServiceError::Value`] for the key of another task.
    pub fn open(
        store: &dyn Store,
        keys: &Keys,
        task: TaskId,
        digest: Option<&Digest32>,
    ) -> Result<Option<Self>> {
        let Some(digest) = digest else {
            return Ok(Some(Self::KeyFile));
        };
        let Some(sealed) = store.pseudonym_key(task)? else {
            return Ok(None);
        };
        let key = opened(&sealed, keys, task)?;
        if digest_of(&*key) != *digest {
            return Err(ServiceError::Value {
                key: format!("the key of the pseudonyms of task {task}"),
                expected: "the one that it was created with".to_owned(),
                got: "another one".to_owned(),
            });
        }
        Ok(Some(Self::Task(key)))
    }

    /// The name of a subject in a task.
    #[must_use]
    pub fn name(&self, keys: &Keys, task: TaskId, issuer: &Digest32, subject: &Digest32) -> ParticipantId {
        match self {
            Self::KeyFile => keys.pseudonym(task, issuer, subject),
            Self::Task(key) => keys.pseudonym_under(key, task, issuer, subject),
        }
    }
}

fn opened(sealed: &[u8], keys: &Keys, task: TaskId) -> Result<Zeroizing<[u8; 32]>> {
    let plain = seal::open(sealed, &|salt| keys.pseudonym_seal(salt, task))?;
    let key = plain.as_slice().try_into().map_err(|_| ServiceError::Sealed)?;
    Ok(Zeroizing::new(key))
}

/// The error of a task whose key was destroyed.
#[must_use]
pub fn destroyed(task: &str) -> ServiceError {
    ServiceError::Value {
        key: format!("the key of the pseudonyms of task {task}"),
        expected: "there".to_owned(),
        got: "destroyed: no subject can be linked with this task any more".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use undertone_store::Memory;

    use super::*;

    #[test]
    fn names_need_the_key_of_the_task_and_the_key_file_both() {
        let (store, task) = (Memory::default(), TaskId([1; 32]));
        let keys = Keys::from_root([7; 32]);
        let digest = Pseudonyms::draw(&store, &keys, task).unwrap();
        assert_eq!(Pseudonyms::draw(&store, &keys, task).unwrap(), digest);
        let open = |keys: &Keys, digest: Option<&Digest32>| Pseudonyms::open(&store, keys, task, digest);
        let own = open(&keys, Some(&digest)).unwrap().unwrap();
        let name = own.name(&keys, task, &[2; 32], &[3; 32]);
        let again = open(&keys, Some(&digest)).unwrap().unwrap();
        assert_eq!(again.name(&keys, task, &[2; 32], &[3; 32]), name);
        assert_ne!(keys.pseudonym(task, &[2; 32], &[3; 32]), name);
        assert_ne!(
            own.name(&Keys::from_root([8; 32]), task, &[2; 32], &[3; 32]),
            name
        );
        assert_ne!(own.name(&keys, TaskId([2; 32]), &[2; 32], &[3; 32]), name);
        assert_ne!(own.name(&keys, task, &[2; 32], &[4; 32]), name);
        // A task without a digest has names of the key file.
        let file = open(&keys, None).unwrap().unwrap();
        assert_eq!(
            file.name(&keys, task, &[2; 32], &[3; 32]),
            keys.pseudonym(task, &[2; 32], &[3; 32])
        );
        assert!(matches!(
            open(&Keys::from_root([8; 32]), Some(&digest)),
            Err(ServiceError::Sealed)
        ));
        assert!(open(&keys, Some(&[0; 32])).is_err());
    }

    #[test]
    fn the_row_of_a_key_holds_nothing_of_it_in_clear() {
        let (store, task) = (Memory::default(), TaskId([1; 32]));
        let keys = Keys::from_root([7; 32]);
        let digest = Pseudonyms::draw(&store, &keys, task).unwrap();
        let sealed = store.pseudonym_key(task).unwrap().unwrap();
        let clear = sealed.windows(32).any(|part| digest_of(part) == digest);
        assert!(!clear);
        assert!(opened(&sealed, &keys, TaskId([2; 32])).is_err());
    }
}
