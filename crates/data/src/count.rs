//! Word counts, from which vocabularies are made.

use std::collections::HashMap;
use std::path::Path;

use rayon::prelude::*;

use crate::columns::Keys;
use crate::error::{DataError, Result, no_text};
use crate::file;
use crate::made_from::{self, people_of_source};
use crate::path::expand;
use crate::progress::{Progress, Stage, proceed};
use crate::rows::Rows;
use crate::source::{Source, read_texts};
use crate::split::Split;
use crate::splitter::{Splitter, assign};
use undertone_settings::{CorpusSpec, SplitSpec};
use undertone_text::{Vocab, VocabProvenance, WordRule};
use undertone_vocabulary::{MadeFromPeople, not_private};

/// Words (with a letter in them) and their counts, most frequent first (equal counts in alphabetical order).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordCounts {
    counts: Vec<(Box<str>, u64)>,
    provenance: VocabProvenance,
    /// The names of the texts of people that were counted; `None` for text that is declared public, and for text of nobody.
    people: Option<Vec<String>>,
}

impl WordCounts {
    /// Counts the words of a public corpus (`.parquet`, `.jsonl`, `.csv`, `.tsv` or plain text); `text` names the column, and `rule` cuts
    /// the words. Where the record of the corpus says that it was made from people's text, so are the words.
    ///
    /// # Errors
    /// Whatever reading the file says.
    pub fn of_public_corpus(
        path: &str,
        text: &str,
        base_dir: &Path,
        rule: WordRule,
        progress: &dyn Progress,
    ) -> Result<WordCounts> {
        let path = expand("data.vocabulary.path", path, base_dir)?;
        let recorded = not_private(&path)?;
        let people = recorded.map(|record| record.sources().to_vec());
        let mut counter = Counter::new(rule);
        let mut done = 0;
        read_texts(&path, text, Keys::PUBLIC, &mut |rows, total| {
            counter.add(rows, |_| Ok(true))?;
            done += rows.len() as u64;
            progress.update(Stage::Counting, done, total);
            proceed(progress)
        })?;
        let provenance = match people {
            Some(_) => VocabProvenance::TrainingData,
            None => VocabProvenance::PublicCorpus,
        };
        counter.finish((provenance, people), || path.display().to_string(), done)
    }

    /// Counts the words of the training partition of a corpus, before caps.
    ///
    /// # Guarantee
    /// None: the counts depend on every training user.
    ///
    /// # Errors
    /// Whatever reading the source says.
    pub fn of_training_data(
        spec: &CorpusSpec,
        base_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<WordCounts> {
        spec.validate_split()?;
        let (source, _) = Source::open(&spec.source, base_dir, progress)?;
        let counts = WordCounts::of_source(&source, &spec.split_in_force(), spec, progress)?;
        Ok(WordCounts {
            people: people_of_source(&spec.source, base_dir, false)?,
            ..counts
        })
    }

    pub(crate) fn of_source(
        source: &Source<'_>,
        split: &SplitSpec,
        spec: &CorpusSpec,
        progress: &dyn Progress,
    ) -> Result<WordCounts> {
        let splitter = Splitter::new(split)?;
        let mut counter = Counter::new(spec.words);
        let mut done = 0;
        source.read(&mut |rows, total| {
            counter.add(rows, |row| Ok(assign(&splitter, rows, row)? == Split::Train))?;
            done += rows.len() as u64;
            progress.update(Stage::Counting, done, total);
            proceed(progress)
        })?;
        let origin = (
            VocabProvenance::TrainingData,
            Some(vec![spec.source.name_sha256()]),
        );
        counter.finish(origin, || spec.source.describe(), done)
    }

    /// Number of distinct words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns `true` if there is no word.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Words and counts, most frequent first.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.counts.iter().map(|(word, count)| (&**word, *count))
    }

    /// Total of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The source of the counted words.
    #[must_use]
    pub fn provenance(&self) -> VocabProvenance {
        self.provenance
    }

    /// Writes the `size` most frequent words as a vocabulary file, one per line, with a tab and the count if `counts`. Words of people's
    /// text get a record beside the file, which says that they are not private.
    ///
    /// # Errors
    /// [`DataError::OutputExists`] unless overwriting is asked for; [`DataError::Io`].
    pub fn write_vocab(&self, path: &Path, size: usize, counts: bool, overwrite: bool) -> Result<()> {
        let mut text = String::new();
        for (word, count) in self.iter().take(size) {
            text.push_str(word);
            if counts {
                text.push('\t');
                text.push_str(&count.to_string());
            }
            text.push('\n');
        }
        file::refuse_existing(path, overwrite)?;
        // PRIVACY: the record comes first, so that the words never lie there as if they were public.
        if let Some(people) = &self.people {
            made_from::write_beside(path, &MadeFromPeople::words(&self.vocab(size), people.clone()))?;
        }
        file::write(path, text.as_bytes(), overwrite)?;
        match self.people {
            Some(_) => Ok(()),
            None => made_from::remove(path),
        }
    }

    /// The vocabulary of the `size` most frequent words.
    #[must_use]
    pub fn vocab(&self, size: usize) -> Vocab {
        Vocab::new(
            self.counts
                .iter()
                .take(size)
                .map(|(word, _)| word.clone())
                .collect(),
            self.provenance,
        )
    }
}

/// The reason for which no word was counted in `rows` rows, `taken` of which are counted.
pub(crate) fn no_words(origin: String, taken: u64, rows: u64) -> DataError {
    match taken == 0 && rows > 0 {
        true => DataError::EmptyPartition {
            split: Split::Train,
            reason: format!("the split puts none of the {rows} rows of {origin} into it"),
        },
        false => no_text(origin, "words with a letter", rows),
    }
}

struct Counter {
    rule: WordRule,
    /// Rows whose words were counted.
    taken: u64,
    counts: HashMap<Box<str>, u64>,
}

impl Counter {
    fn new(rule: WordRule) -> Self {
        Self {
            rule,
            taken: 0,
            counts: HashMap::new(),
        }
    }

    fn add(&mut self, rows: &Rows, wanted: impl Fn(usize) -> Result<bool> + Sync) -> Result<()> {
        let rule = self.rule;
        let parts: Vec<(u64, HashMap<Box<str>, u64>)> = (0..rows.len())
            .into_par_iter()
            .with_min_len(512)
            .try_fold(
                Default::default,
                |(taken, mut counts): (u64, HashMap<_, _>), row| {
                    let wanted = wanted(row)?;
                    if wanted {
                        count_text(rule, rows.texts.get(row), &mut counts);
                    }
                    Ok::<_, DataError>((taken + u64::from(wanted), counts))
                },
            )
            .collect::<Result<_>>()?;
        for (taken, part) in parts {
            self.taken += taken;
            for (word, count) in part {
                *self.counts.entry(word).or_insert(0) += count;
            }
        }
        Ok(())
    }

    fn finish(
        self,
        (provenance, people): (VocabProvenance, Option<Vec<String>>),
        origin: impl Fn() -> String,
        rows: u64,
    ) -> Result<WordCounts> {
        if self.counts.is_empty() {
            return Err(no_words(origin(), self.taken, rows));
        }
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_by(|(word, count), (other, other_count)| {
            other_count.cmp(count).then_with(|| word.cmp(other))
        });
        Ok(WordCounts {
            counts,
            provenance,
            people,
        })
    }
}

/// Counts all words that hold a letter and no control character, those of cut or dropped sentences too: numbers alone would crowd out words.
pub(crate) fn count_text(rule: WordRule, text: &str, counts: &mut HashMap<Box<str>, u64>) {
    let mut scratch = String::new();
    rule.sentences(text, |sentence| {
        rule.words(sentence, &mut scratch, |word| match counts.get_mut(word) {
            Some(count) => *count += 1,
            // A vocabulary file holds no control characters.
            None if word.contains(char::is_alphabetic) && !word.contains(char::is_control) => {
                counts.insert(word.into(), 1);
            }
            None => {}
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_with_a_letter_are_counted() {
        let mut counts = HashMap::new();
        count_text(
            WordRule::English,
            "Alone\nthe cat saw the dog\n12 & 3rd",
            &mut counts,
        );
        let get = |word: &str| counts.get(word).copied().unwrap_or(0);
        assert_eq!(
            (get("alone"), get("the"), get("3rd"), get("12"), get("&")),
            (1, 2, 1, 0, 0)
        );
    }

    #[test]
    fn typographic_signs_make_no_words_of_their_own() {
        let text = "“It’s it's” — said… «Mon Été» été e\u{301}te\u{301} है। ١٢ 今天，今天";
        let mut counts = HashMap::new();
        count_text(WordRule::Unicode, text, &mut counts);
        let mut found: Vec<(&str, u64)> = counts.iter().map(|(word, &count)| (&**word, count)).collect();
        found.sort_unstable();
        let expected = [
            ("it's", 2),
            ("mon", 1),
            ("said", 1),
            ("été", 3),
            ("है", 1),
            ("今天", 2),
        ];
        assert_eq!(found, expected);
    }
}
