//! The rollback guard: a store that was put back to an earlier state, or forked, releases nothing.

use std::io::Read;
use std::path::PathBuf;

use undertone_protocol::{Head, Label, Signed, TrustedKeys, digest_of, read};
use undertone_store::{MAX_HEAD, TaskRow};

use super::Room;
use crate::error::{Result, ServiceError};
use crate::identity::{hex, unhex};

/// Max bytes of a witness: a round, a digest, a space and a line feed.
const MAX_WITNESS: u64 = 128;

/// The newest head that a witness remembers.
struct Witnessed {
    path: PathBuf,
    round: u64,
    /// The digest of the head, in hexadecimal digits.
    head: String,
}

impl Room {
    /// Compares the store with the newest published head and with the witness.
    ///
    /// PRIVACY: a database that was put back to an earlier state would make a round again, with other noise over the same updates.
    ///
    /// # Errors
    /// [`ServiceError::Halted`] where either is newer than the store, or shows another head of its round.
    pub(super) fn guard(&self) -> Result<()> {
        let blobs = &self.shared.blobs;
        let row = self.shared.store.task(self.task.id)?;
        let back = |place: &str, newest: u64| {
            self.halt(&format!(
                "the store stands at round {}, but {place} shows a head of round {newest}: the store was put back to an earlier state. \
                 Start a new task; its ledger composes with this one",
                row.head_round
            ))
        };
        if let Some(newest) = blobs.last_head(self.task.id)?
            && newest > row.head_round
        {
            return Err(back("the folder of blobs", newest));
        }
        let head = blobs.head(self.task.id, row.head_round)?;
        if head.as_ref().is_some_and(|head| !self.is_head_of(&row, head)) {
            return Err(self.halt(&forked(row.head_round)));
        }
        let Some(witnessed) = self.witnessed()? else {
            return Ok(());
        };
        let place = witnessed.path.display();
        if witnessed.round > row.head_round {
            return Err(back(&place.to_string(), witnessed.round));
        }
        let other = head.is_some_and(|head| hex(&digest_of(&head)) != witnessed.head);
        if witnessed.round == row.head_round && other {
            return Err(self.halt(&format!("{place}: {}", forked(row.head_round))));
        }
        Ok(())
    }

    /// `true` if these bytes are the signed head of the round at which the store stands.
    fn is_head_of(&self, row: &TaskRow, bytes: &[u8]) -> bool {
        let Ok(signed) = read::<Signed>("the head", bytes, MAX_HEAD) else {
            return false;
        };
        let key = TrustedKeys::new([self.shared.keys.head(self.task.id).public()]);
        let Ok((body, _)) = key.open(Label::Head, &signed) else {
            return false;
        };
        read::<Head>("the head", body, MAX_HEAD).is_ok_and(|head| {
            head.task == self.task.id.0
                && head.round == row.head_round
                && head.model_sha256 == row.head_model
                && head.state_sha256 == row.head_state.map_or_else(Vec::new, |digest| digest.to_vec())
                && unhex(&row.chain).is_some_and(|chain| chain == head.chain)
        })
    }

    /// The newest head that the witness remembers; `None` without a witness, and before the first round.
    fn witnessed(&self) -> Result<Option<Witnessed>> {
        let Some(folder) = &self.shared.witness else {
            return Ok(None);
        };
        let path = folder.join(format!("{}.head", self.task.id));
        let mut text = String::new();
        let found =
            std::fs::File::open(&path).and_then(|file| file.take(MAX_WITNESS + 1).read_to_string(&mut text));
        match found {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            // Bytes that are no text are damage, which does not pass.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => text.clear(),
            Err(error) => return Err(ServiceError::io("read", &path, error)),
            Ok(_) => {}
        }
        let parts = text.strip_suffix('\n').and_then(|line| line.split_once(' '));
        let known = parts.and_then(|(round, head)| Some((round.parse().ok()?, head.to_owned())));
        match known.filter(|(_, head)| unhex(head).is_some_and(|digest| digest.len() == 32)) {
            Some((round, head)) => Ok(Some(Witnessed { path, round, head })),
            None => Err(self.halt(&format!(
                "{}: expected a round and the digest of its head, got {:?}. Put the file back from its own backup; if the store is \
                 known to be the newest, delete the file",
                path.display(),
                text.chars().take(32).collect::<String>()
            ))),
        }
    }

    /// Remembers the newest head outside the folder of the store.
    ///
    /// # Errors
    /// [`ServiceError::Halted`] where the witness shows a later round, or another head of this one.
    pub(super) fn witness(&self, round: u64, head: &[u8]) -> Result<()> {
        let Some(folder) = &self.shared.witness else {
            return Ok(());
        };
        let digest = hex(&digest_of(head));
        if let Some(known) = self.witnessed()? {
            if known.round == round && known.head == digest {
                return Ok(());
            }
            if known.round >= round {
                return Err(self.halt(&format!("{}: {}", known.path.display(), forked(round))));
            }
        }
        let path = folder.join(format!("{}.head", self.task.id));
        undertone_run_directory::files::write_atomic(&path, format!("{round} {digest}\n").as_bytes())?;
        Ok(())
    }
}

pub(super) fn forked(round: u64) -> String {
    format!(
        "a head of round {round} was published with other bytes: two states of one store are in use. Start a new task; its ledger \
         composes with this one"
    )
}
