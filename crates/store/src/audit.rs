//! The audit log: the acts of people and programs on tasks and devices, chained by digests.

use sha2::{Digest, Sha256};

use crate::Millis;

/// A row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// The number of the row, from 0.
    pub seq: u64,
    /// The time of the act, by the clock of the store.
    pub at: Millis,
    /// The person or program that acted.
    pub actor: String,
    /// The act.
    pub action: String,
    /// The row that it changed, with old and new values.
    pub detail: String,
    /// The digest of the row before; of nothing for the first row.
    pub previous: String,
    /// The digest of this row, in hexadecimal digits.
    pub digest: String,
}

impl AuditRow {
    /// The row that follows this one.
    pub(crate) fn following(
        last: Option<(u64, String)>,
        at: Millis,
        actor: &str,
        action: &str,
        detail: &str,
    ) -> Self {
        let (seq, previous) = match last {
            Some((seq, digest)) => (seq + 1, digest),
            None => (0, hex(&Sha256::digest([]))),
        };
        let mut row = Self {
            seq,
            at,
            actor: actor.to_owned(),
            action: action.to_owned(),
            detail: detail.to_owned(),
            previous,
            digest: String::new(),
        };
        row.digest = row.computed();
        row
    }

    /// The digest that the row must have.
    fn computed(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.seq.to_le_bytes());
        hash.update(self.at.to_le_bytes());
        // The lengths keep two rows with moved borders apart.
        for text in [&self.actor, &self.action, &self.detail, &self.previous] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hex(&hash.finalize())
    }

    /// The number of the first row that was changed, left out or put elsewhere; `None` for a log that is whole up to its end.
    #[must_use]
    pub fn first_break(rows: &[Self]) -> Option<u64> {
        let mut previous = hex(&Sha256::digest([]));
        for (seq, row) in (0u64..).zip(rows) {
            if row.seq != seq || row.previous != previous || row.digest != row.computed() {
                return Some(seq);
            }
            previous.clone_from(&row.digest);
        }
        None
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Vec<AuditRow> {
        let mut rows: Vec<AuditRow> = Vec::new();
        for action in ["create", "start", "stop"] {
            let last = rows.last().map(|row| (row.seq, row.digest.clone()));
            rows.push(AuditRow::following(last, 7, "operator", action, "task 1"));
        }
        rows
    }

    #[test]
    fn a_change_of_any_field_breaks_the_log_at_its_row() {
        assert_eq!(AuditRow::first_break(&log()), None);
        let changes: [fn(&mut AuditRow); 6] = [
            |row| row.seq = 9,
            |row| row.at += 1,
            |row| row.actor.push('x'),
            |row| row.action.push('x'),
            |row| row.detail.push('x'),
            |row| row.previous.push('0'),
        ];
        for change in changes {
            let mut rows = log();
            change(&mut rows[1]);
            assert_eq!(AuditRow::first_break(&rows), Some(1));
        }
        let mut rows = log();
        rows.remove(1);
        assert_eq!(AuditRow::first_break(&rows), Some(1));
    }

    #[test]
    fn a_letter_that_moves_between_fields_changes_the_digest() {
        let [one, two] = [("ab", "c"), ("a", "bc")]
            .map(|(actor, action)| AuditRow::following(None, 0, actor, action, "").digest);
        assert_ne!(one, two);
    }
}
