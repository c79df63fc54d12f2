//! A corpus with other training users, for audits.

use std::path::Path;

use super::Corpus;
use crate::cache::{Cache, CacheWriter};
use crate::error::{DataError, Result, bad_cache, invalid, io};
use crate::hash::hex;
use crate::split::Split;
use crate::stats::{CorpusStats, PartitionCounter};
use sha2::{Digest, Sha256};

impl Corpus {
    /// This corpus with the given users as its training partition, each a list of examples. Settings, vocabulary and the other
    /// partitions stay.
    ///
    /// An audit trains on such a corpus: with invented users, or without the texts that it holds back. The corpus is written to a cache
    /// of its own in `cache_dir`, and its digest covers the digest of this corpus and all examples.
    ///
    /// # Errors
    /// [`DataError::EmptyPartition`] without users; [`DataError::Setting`] for a user without examples, an example without
    /// tokens and an id outside the vocabulary; an unwritable `cache_dir`.
    ///
    /// # Example
    /// ```
    /// use undertone_data::{Corpus, NoProgress, Split};
    /// use undertone_settings::{CorpusSpec, SourceSpec, SyntheticSource};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let source = SourceSpec::Synthetic(SyntheticSource { users: 20, ..SyntheticSource::default() });
    /// let corpus = Corpus::open(&CorpusSpec::new(source, None), folder.path(), folder.path(), &NoProgress)?;
    /// let train = corpus.partition(Split::Train);
    /// let mut users: Vec<Vec<&[u32]>> = train.users().map(|user| user.examples().collect()).collect();
    /// users.push(vec![&[3, 4, 5][..]]);
    /// let more = corpus.with_training_users(&users, folder.path())?;
    /// assert_eq!(more.partition(Split::Train).num_users(), train.num_users() + 1);
    /// assert_ne!(more.digest(), corpus.digest());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_training_users(&self, users: &[Vec<&[u32]>], cache_dir: &Path) -> Result<Corpus> {
        if users.is_empty() {
            return Err(DataError::EmptyPartition {
                split: Split::Train,
                reason: "the audit gave no user".to_owned(),
            });
        }
        let words = self.vocab().len();
        let mut hash = Sha256::new();
        hash.update(b"undertone corpus with training users 1\n");
        hash.update(self.digest());
        for user in users {
            some(!user.is_empty(), "at least one example per user")?;
            hash.update((user.len() as u64).to_le_bytes());
            for example in user {
                some(!example.is_empty(), "at least one token per example")?;
                hash.update((example.len() as u64).to_le_bytes());
                if let Some(id) = example.iter().find(|id| **id as usize >= words) {
                    return Err(invalid("training users", format!("ids below {words}"), id));
                }
                example.iter().for_each(|id| hash.update(id.to_le_bytes()));
            }
        }
        let digest = hex(&hash.finalize());
        std::fs::create_dir_all(cache_dir).map_err(io("create the cache directory", cache_dir))?;
        let path = cache_dir.join(format!("corpus-{}.bin", &digest[..16]));
        let mut writer = CacheWriter::create(&path, &digest)?;
        let mut counters = Split::ALL.map(|_| PartitionCounter::new(self.vocab()));
        for (split, counter) in Split::ALL.into_iter().zip(&mut counters) {
            writer.begin(split)?;
            let mut write = |user: &mut dyn Iterator<Item = &[u32]>| -> Result<()> {
                let (mut examples, mut tokens) = (0, 0);
                for example in user {
                    writer.example(example)?;
                    example.iter().for_each(|&id| counter.targets[id as usize] += 1);
                    examples += 1;
                    tokens += example.len() as u64;
                }
                counter.examples_per_user.push(examples);
                counter.tokens_per_user.push(tokens);
                writer.end_user()
            };
            match split {
                Split::Train => {
                    for user in users {
                        write(&mut user.iter().copied())?;
                    }
                }
                _ => {
                    for user in self.partition(split).users() {
                        write(&mut user.examples())?;
                    }
                }
            }
        }
        let targets = counters[Split::Train.index()].targets.clone();
        let special = self.vocab().special();
        let [train, validation, test] = counters.map(|counter| counter.finish(&targets, special));
        let stats = CorpusStats {
            train,
            validation,
            test,
            ..self.stats().clone()
        };
        writer.finish(self.vocab(), stats, self.best_accuracy().cloned())?;
        match Cache::open(&path, &digest)? {
            Some(cache) => Ok(Corpus {
                vocabulary_privacy: self.vocabulary_privacy.clone(),
                words_record: self.words_record.clone(),
                restated_words: self.restated_words.clone(),
                ..Corpus::new(cache, self.spec(), &digest, None)
            }),
            None => Err(bad_cache(path, "it vanished after it was written")),
        }
    }
}

fn some(holds: bool, expected: &str) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(invalid("training users", expected, 0)),
    }
}
