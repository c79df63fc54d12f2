//! The texts of the person: sealed, capped in number, bytes and age, and split for training and evaluation.

use rusqlite::params;
use undertone_protocol::digest_of;
use undertone_text::WordRule;
use zeroize::Zeroizing;

use crate::database::Database;
use crate::error::{DeviceError, Result};

/// One of so many texts is withheld from training.
const WITHHELD: u8 = 5;

/// Number of texts that are read per example that is wanted: some texts give none.
pub(crate) const TEXTS_PER_EXAMPLE: usize = 4;

/// A text that the host hands over.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "PRIVACY: the text of a person")]
pub struct Example<'a> {
    /// The text.
    pub text: &'a str,
    /// The time of its writing, in milliseconds since 1970.
    pub collected_ms: u64,
    /// The time of its deletion, in milliseconds since 1970. The cap on age may come before.
    pub expires_ms: u64,
}

/// Caps on the example store. Beyond them the oldest texts are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExampleCaps {
    /// Max number of texts.
    pub rows: u64,
    /// Max number of bytes of all texts.
    pub bytes: u64,
    /// Max number of bytes of one text.
    pub text_bytes: usize,
    /// Max age of a text, in milliseconds.
    pub age_ms: u64,
}

impl Default for ExampleCaps {
    fn default() -> Self {
        Self {
            rows: 20_000,
            bytes: 16 << 20,
            text_bytes: 64 << 10,
            age_ms: 60 * 24 * 3_600_000,
        }
    }
}

/// The example store of an open device.
///
/// # Guarantee
/// Texts are on disk only under AES-256-GCM, by a key of the key store. Deleting that key deletes every text.
#[expect(missing_debug_implementations, reason = "PRIVACY: the texts of a person")]
pub struct ExampleStore<'a> {
    pub(crate) database: &'a Database,
    pub(crate) caps: ExampleCaps,
    pub(crate) now_ms: u64,
}

/// `true` if a text is withheld from training. The choice depends on text and population alone, so a text that is added twice stays on its
/// side.
#[must_use]
pub(crate) fn is_withheld(population: &str, text: &str) -> bool {
    let mut bytes = Zeroizing::new(b"undertone/1/withheld\0".to_vec());
    bytes.extend_from_slice(population.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(text.as_bytes());
    digest_of(&bytes)[0].is_multiple_of(WITHHELD)
}

/// Number of sentences of two words or more by a rule. Any vocabulary makes one example of each.
fn count_examples(rule: WordRule, text: &str) -> i64 {
    let (mut count, mut scratch) = (0, Zeroizing::new(String::new()));
    rule.sentences(text, |sentence| {
        let mut found = 0;
        rule.words(sentence, &mut scratch, |_| found += 1);
        count += i64::from(found >= 2);
    });
    count
}

fn bound(at_ms: u64, expires_ms: u64, withheld: bool) -> Vec<u8> {
    [
        &at_ms.to_le_bytes()[..],
        &expires_ms.to_le_bytes(),
        &[u8::from(withheld)],
    ]
    .concat()
}

fn integer(name: &'static str, value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| DeviceError::value(name, "at most 2^63 - 1", value))
}

impl ExampleStore<'_> {
    /// Adds a text. Texts beyond the caps are deleted, the oldest first. A text that has expired is not stored.
    ///
    /// # Errors
    /// A text above the cap on one text; a failure of the database.
    pub fn add(&self, example: Example<'_>) -> Result<()> {
        let Example {
            text, collected_ms, ..
        } = example;
        if text.len() > self.caps.text_bytes {
            let expected = format!("at most {} bytes", self.caps.text_bytes);
            return Err(DeviceError::value("a text", expected, text.len()));
        }
        // A clock below a confirmed time is wrong by at least this much: the text would count as old once it is right again.
        let behind = self.database.number("latest_ms")?.saturating_sub(self.now_ms);
        let collected_ms = collected_ms.saturating_add(behind);
        let expires_ms = example
            .expires_ms
            .saturating_add(behind)
            .min(collected_ms.saturating_add(self.caps.age_ms));
        if expires_ms <= self.now_ms.saturating_add(behind) {
            return self.sweep();
        }
        let (at, expires) = (
            integer("the time of a text", collected_ms)?,
            integer("the end of a text", expires_ms)?,
        );
        let population = self.database.meta("population")?.unwrap_or_default();
        let withheld = is_withheld(&String::from_utf8_lossy(&population), text);
        let sealed = self.database.seal(
            "examples",
            &bound(collected_ms, expires_ms, withheld),
            text.as_bytes(),
        )?;
        self.database.connection.execute(
            "INSERT INTO examples (at_ms, expires_ms, withheld, bytes, examples, broadest, sealed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                at,
                expires,
                withheld,
                text.len() as i64,
                count_examples(WordRule::English, text),
                (!WordRule::BROADEST.is_english()).then(|| count_examples(WordRule::BROADEST, text)),
                sealed
            ],
        )?;
        self.sweep()
    }

    /// Takes in a time that a signed board has confirmed. A text of a later time was added under a clock that was wrong: it counts as
    /// added now, so that it is kept no longer than others.
    pub(crate) fn confirm(&self, now_ms: u64) -> Result<()> {
        let now = integer("the time", now_ms)?;
        let mut ahead = Vec::new();
        {
            let mut statement = self
                .database
                .connection
                .prepare("SELECT id, at_ms, expires_ms, withheld, sealed FROM examples WHERE at_ms > ?1")?;
            let mut rows = statement.query([now])?;
            while let Some(row) = rows.next()? {
                let (id, at, expires): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let (withheld, sealed): (bool, Vec<u8>) = (row.get(3)?, row.get(4)?);
                ahead.push((id, at.unsigned_abs(), expires.unsigned_abs(), withheld, sealed));
            }
        }
        for (id, at, expires, withheld, sealed) in ahead {
            let plain = self
                .database
                .unseal("examples", &bound(at, expires, withheld), &sealed)?;
            let expires = now_ms.saturating_add(expires.saturating_sub(at));
            let sealed = self
                .database
                .seal("examples", &bound(now_ms, expires, withheld), &plain)?;
            self.database.connection.execute(
                "UPDATE examples SET at_ms = ?2, expires_ms = ?3, sealed = ?4 WHERE id = ?1",
                params![id, now, integer("the end of a text", expires)?, sealed],
            )?;
        }
        self.sweep()
    }

    /// Deletes texts that exceed the caps, and those that have expired by the latest time that a signed board has confirmed. Until then
    /// a text that has expired by the clock alone is not read.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn sweep(&self) -> Result<()> {
        let connection = &self.database.connection;
        connection.execute(
            "DELETE FROM examples WHERE expires_ms <= ?1",
            [integer("the time", self.database.sure_ms(self.now_ms)?)?],
        )?;
        let (rows, bytes) = (
            i64::try_from(self.caps.rows).unwrap_or(i64::MAX),
            i64::try_from(self.caps.bytes).unwrap_or(i64::MAX),
        );
        connection.execute(
            "DELETE FROM examples WHERE id IN (
                SELECT id FROM (
                    SELECT id, row_number() OVER newest AS place, sum(bytes) OVER newest AS total
                    FROM examples WINDOW newest AS (ORDER BY at_ms DESC, id DESC)
                ) WHERE place > ?1 OR total > ?2)",
            [rows, bytes],
        )?;
        Ok(())
    }

    /// Deletes all texts.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn clear(&self) -> Result<()> {
        self.database.connection.execute("DELETE FROM examples", [])?;
        Ok(())
    }

    /// Number of sentences that can be examples by the broadest rule: in texts for training, and in texts that are withheld from it.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn counts(&self) -> Result<(u64, u64)> {
        self.counts_by(WordRule::BROADEST)
    }

    /// The numbers by a rule. Texts of earlier versions were counted by the rule of English alone.
    pub(crate) fn counts_by(&self, rule: WordRule) -> Result<(u64, u64)> {
        let column = match rule {
            WordRule::English => "examples",
            _ => "ifnull(broadest, examples)",
        };
        let sum =
            format!("SELECT ifnull(sum({column}), 0) FROM examples WHERE withheld = ?1 AND expires_ms > ?2");
        let count = |withheld: bool| -> Result<u64> {
            let count: i64 = self.database.connection.query_row(
                &sum,
                params![withheld, integer("the time", self.now_ms)?],
                |row| row.get(0),
            )?;
            Ok(u64::try_from(count).unwrap_or(0))
        };
        Ok((count(false)?, count(true)?))
    }

    /// At most `limit` texts of one side, the newest first.
    ///
    /// # Errors
    /// A row that does not open; a failure of the database.
    pub(crate) fn texts(&self, withheld: bool, limit: usize) -> Result<Vec<Zeroizing<String>>> {
        let mut statement = self.database.connection.prepare(
            "SELECT at_ms, expires_ms, sealed FROM examples WHERE withheld = ?1 AND expires_ms > ?2
             ORDER BY at_ms DESC, id DESC LIMIT ?3",
        )?;
        let now = integer("the time", self.now_ms)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![withheld, now, limit])?;
        let mut texts = Vec::new();
        while let Some(row) = rows.next()? {
            let (at, expires, sealed): (i64, i64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let bound = bound(at.unsigned_abs(), expires.unsigned_abs(), withheld);
            let plain = self.database.unseal("examples", &bound, &sealed)?;
            let text = std::str::from_utf8(&plain).map_err(|_| DeviceError::Sealed("examples"))?;
            texts.push(Zeroizing::new(text.to_owned()));
        }
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keystore::MemoryKeyStore;

    fn with_store(caps: ExampleCaps, now_ms: u64, check: impl FnOnce(&mut ExampleStore<'_>)) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path(), "p", &mut MemoryKeyStore::default(), 1).unwrap();
        check(&mut ExampleStore {
            database: &database,
            caps,
            now_ms,
        });
    }

    fn all(store: &ExampleStore<'_>) -> Vec<String> {
        let mut texts: Vec<String> = [false, true]
            .iter()
            .flat_map(|&withheld| store.texts(withheld, 1000).unwrap())
            .map(|text| text.to_string())
            .collect();
        texts.sort();
        texts
    }

    fn example(text: &str, collected_ms: u64) -> Example<'_> {
        Example {
            text,
            collected_ms,
            expires_ms: u64::MAX,
        }
    }

    #[test]
    fn caps_on_rows_and_bytes_delete_the_oldest_texts() {
        let caps = ExampleCaps {
            rows: 3,
            bytes: 100,
            ..ExampleCaps::default()
        };
        with_store(caps, 1000, |store| {
            for (at, text) in [(4, "four"), (1, "one"), (3, "three"), (2, "two")] {
                store.add(example(text, at)).unwrap();
            }
            assert_eq!(all(store), ["four", "three", "two"]);
            store.add(example(&"x".repeat(96), 5)).unwrap();
            assert_eq!(
                all(store),
                ["four", &"x".repeat(96)],
                "bytes are counted from the newest"
            );
            assert!(store.add(example(&"x".repeat((64 << 10) + 1), 6)).is_err());
        });
    }

    #[test]
    fn texts_end_at_their_time_and_at_the_cap_on_age() {
        let caps = ExampleCaps {
            age_ms: 500,
            ..ExampleCaps::default()
        };
        with_store(caps, 1000, |store| {
            let expiring = Example {
                expires_ms: 1200,
                ..example("short", 900)
            };
            store.add(expiring).unwrap();
            store.add(example("long", 900)).unwrap();
            store.add(example("too old", 400)).unwrap();
            assert_eq!(all(store), ["long", "short"]);
            store.now_ms = 1200;
            assert_eq!(all(store), ["long"]);
            store.now_ms = 1400;
            assert_eq!(store.counts().unwrap(), (0, 0));
            store.sweep().unwrap();
            store.now_ms = 0;
            assert_eq!(all(store), ["long", "short"], "no board has confirmed the time");
            store.now_ms = 1400;
            store.database.confirm(1400).unwrap();
            store.sweep().unwrap();
            store.now_ms = 0;
            assert_eq!(all(store), Vec::<String>::new());
        });
    }

    #[test]
    fn texts_that_were_added_under_a_wrong_clock_are_kept_as_long_as_others() {
        let caps = ExampleCaps {
            age_ms: 500,
            ..ExampleCaps::default()
        };
        // A clock in the far future.
        with_store(caps, 1_000_000, |store| {
            store.add(example("ahead", 1_000_000)).unwrap();
            store.now_ms = 2000;
            store.database.confirm(2000).unwrap();
            store.confirm(2000).unwrap();
            assert_eq!(all(store), ["ahead"]);
            store.now_ms = 2500;
            assert_eq!(all(store), Vec::<String>::new());
        });
        // A clock in the past.
        with_store(caps, 10, |store| {
            store.database.confirm(2000).unwrap();
            store.add(example("behind", 10)).unwrap();
            store.now_ms = 2100;
            store.database.confirm(2100).unwrap();
            store.confirm(2100).unwrap();
            assert_eq!(all(store), ["behind"]);
            store.now_ms = 2500;
            assert_eq!(all(store), Vec::<String>::new());
        });
    }

    #[test]
    fn a_fifth_of_the_texts_is_withheld_and_a_text_stays_on_its_side() {
        let texts: Vec<String> = (0..2000).map(|number| format!("text {number}")).collect();
        let withheld = texts.iter().filter(|text| is_withheld("p", text)).count();
        assert!((300..500).contains(&withheld), "{withheld}");
        with_store(ExampleCaps::default(), 1000, |store| {
            for text in &texts[..100] {
                store.add(example(text, 1)).unwrap();
                store.add(example(text, 2)).unwrap();
            }
            let side = |withheld| store.texts(withheld, 1000).unwrap();
            let (training, evaluation) = (side(false), side(true));
            assert_eq!(training.len() + evaluation.len(), 200);
            let counts = (training.len() as u64, evaluation.len() as u64);
            assert_eq!(
                store.counts().unwrap(),
                counts,
                "each text is one sentence of two words"
            );
            assert!(evaluation.iter().all(|text| is_withheld("p", text)));
            assert!(training.iter().all(|text| !is_withheld("p", text)));
            store.clear().unwrap();
            assert_eq!(store.counts().unwrap(), (0, 0));
        });
    }

    /// The plan of a task names the rule, so each rule has its own number. Neither is that of the other.
    #[test]
    fn texts_of_every_language_are_counted_by_the_rule_of_english_and_by_the_broadest() {
        with_store(ExampleCaps::default(), 1000, |store| {
            for text in [
                "今天天气很好。我们去公园散步！",
                "One two. Three four",
                "Ja. Über uns. Österreich ist schön",
            ] {
                store.add(example(text, 1)).unwrap();
            }
            let total = |(training, withheld): (u64, u64)| training + withheld;
            assert_eq!(total(store.counts_by(WordRule::English).unwrap()), 2 + 1);
            let broadest = match WordRule::BROADEST {
                WordRule::English => 3,
                _ => 2 + 2 + 2,
            };
            assert_eq!(total(store.counts().unwrap()), broadest);
        });
    }

    #[test]
    fn the_newest_texts_come_first() {
        with_store(ExampleCaps::default(), 1000, |store| {
            let texts: Vec<String> = (0..40).map(|number| format!("text {number:02}")).collect();
            for (at, text) in (1..).zip(&texts) {
                store.add(example(text, at)).unwrap();
            }
            let newest = store.texts(false, 5).unwrap();
            let mut expected: Vec<&String> = texts.iter().filter(|text| !is_withheld("p", text)).collect();
            expected.reverse();
            let newest: Vec<&String> = newest.iter().map(|text| &**text).collect();
            assert_eq!(newest, expected[..5]);
        });
    }
}
