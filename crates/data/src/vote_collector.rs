//! The bounded votes of the users of a source for words.

use std::collections::HashMap;
use std::path::Path;

use rayon::prelude::*;

use crate::count::{count_text, no_words};
use crate::error::Result;
use crate::hash::{hash_bytes, head};
use crate::private_vocab::{Candidate, WordVotes};
use crate::progress::{Progress, Stage};
use crate::random::Stream;
use crate::rows::{Rows, number};
use crate::source::Source;
use crate::split::Split;
use crate::splitter::{Splitter, assign};
use undertone_settings::CorpusSpec;
use undertone_text::WordRule;
use undertone_vocabulary::WordChoice;
use undertone_vocabulary::threshold::weight;

impl WordVotes {
    /// Collects the votes of the users of the training partition.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`](undertone_vocabulary::VocabularyError::Setting) for `max_words_per_user` outside 1 to 2^20;
    /// [`DataError::NoText`](crate::DataError::NoText) and
    /// [`DataError::EmptyPartition`](crate::DataError::EmptyPartition) where no user has a word; whatever reading the source says.
    pub fn of_training_data(
        spec: &CorpusSpec,
        max_words_per_user: u32,
        base_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<WordVotes> {
        WordChoice::check_max_words(max_words_per_user)?;
        spec.validate_split()?;
        let (source, _) = Source::open(&spec.source, base_dir, progress)?;
        let splitter = Splitter::new(&spec.split_in_force())?;
        let mut collector = Collector::new(spec.words);
        let mut rows_read = 0;
        source.read(&mut |rows, total| {
            collector.add(rows, |row| Ok(assign(&splitter, rows, row)? == Split::Train))?;
            rows_read += rows.len() as u64;
            progress.update(Stage::Counting, rows_read, total);
            Ok(())
        })?;
        if collector.entries.is_empty() {
            return Err(no_words(spec.source.describe(), collector.taken, rows_read));
        }
        Ok(collector.finish(max_words_per_user))
    }
}

/// The number of times that a user uses a word.
#[derive(Clone, Copy)]
struct Entry {
    user: u32,
    word: u32,
    count: u32,
}

/// Words of users, gathered from rows in any order.
struct Collector {
    rule: WordRule,
    /// Rows whose words were gathered.
    taken: u64,
    users: HashMap<Box<str>, u32>,
    words: HashMap<Box<str>, u32>,
    entries: Vec<Entry>,
    /// Entries that were distinct when last looked at.
    merged: usize,
}

impl Collector {
    fn new(rule: WordRule) -> Self {
        Self {
            rule,
            taken: 0,
            users: HashMap::new(),
            words: HashMap::new(),
            entries: Vec::new(),
            merged: 0,
        }
    }

    fn add(&mut self, rows: &Rows, wanted: impl Fn(usize) -> Result<bool> + Sync) -> Result<()> {
        let counted: Vec<Option<HashMap<Box<str>, u64>>> = (0..rows.len())
            .into_par_iter()
            .with_min_len(128)
            .map(|row| {
                Ok(wanted(row)?.then(|| {
                    let mut counts = HashMap::new();
                    count_text(self.rule, rows.texts.get(row), &mut counts);
                    counts
                }))
            })
            .collect::<Result<_>>()?;
        for (row, counts) in counted.into_iter().enumerate() {
            self.taken += u64::from(counts.is_some());
            for (word, count) in counts.into_iter().flatten() {
                let user = number(&mut self.users, rows.users.get(row));
                let word = number(&mut self.words, &word);
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                self.entries.push(Entry { user, word, count });
            }
        }
        // Memory follows the distinct pairs of user and word, not the length of the text.
        if self.entries.len() > 2 * self.merged + (1 << 20) {
            self.merge();
        }
        Ok(())
    }

    /// One entry for each pair of user and word, users together.
    fn merge(&mut self) {
        self.entries
            .par_sort_unstable_by_key(|entry| (entry.user, entry.word));
        self.entries.dedup_by(|later, first| {
            let same = (later.user, later.word) == (first.user, first.word);
            if same {
                first.count = first.count.saturating_add(later.count);
            }
            same
        });
        self.merged = self.entries.len();
    }

    fn finish(mut self, max_words_per_user: u32) -> WordVotes {
        self.merge();
        let (users, words) = (in_order(self.users), in_order(self.words));
        let mut votes = vec![0_i64; words.len()];
        let mut counts = vec![0_u64; words.len()];
        for entries in self.entries.chunk_by(|one, other| one.user == other.user) {
            for entry in entries {
                counts[entry.word as usize] += u64::from(entry.count);
            }
            let user = &users[entries[0].user as usize];
            let chosen = choose(user, entries, max_words_per_user as usize, &words);
            // PRIVACY: the weight follows the number of words that are voted for, which the choice bounds.
            let weight = weight(chosen.len() as u32);
            for word in chosen {
                votes[word as usize] += weight;
            }
        }
        let total = counts.iter().sum();
        let mut largest_counts = counts.clone();
        largest_counts.sort_unstable_by(|one, other| other.cmp(one));
        let all = words.into_iter().zip(votes).zip(counts);
        let mut words: Vec<Candidate> = all
            .map(|((word, votes), count)| Candidate { word, votes, count })
            // PRIVACY: a word without votes is no candidate, as if it did not occur.
            .filter(|candidate| candidate.votes > 0)
            .collect();
        words.sort_unstable_by(|one, other| one.word.cmp(&other.word));
        WordVotes {
            words,
            total,
            largest_counts,
            users: users.len() as u64,
            max_words_per_user,
        }
    }
}

/// One user's votes: all words, or a uniform choice. A user's most frequent words would be the better votes one by
/// one, but everybody casts those, and they pass anyway: the choice reaches more words (measured in `docs/guide/data-tools.md`).
///
/// PRIVACY: the choice follows from the user's own name and text. Were it to depend on anything of others, even on the
/// order in which words were first seen, one user could move the votes of many.
fn choose(user: &str, entries: &[Entry], max: usize, words: &[Box<str>]) -> Vec<u32> {
    if entries.len() <= max {
        return entries.iter().map(|entry| entry.word).collect();
    }
    let mut own: Vec<&Entry> = entries.iter().collect();
    own.sort_unstable_by(|one, other| words[one.word as usize].cmp(&words[other.word as usize]));
    let head = head(&hash_bytes(user.as_bytes()));
    let mut stream = Stream::new("votes", 0, u64::from_le_bytes(head));
    stream.shuffle(&mut own);
    own.iter().take(max).map(|entry| entry.word).collect()
}

fn in_order(numbers: HashMap<Box<str>, u32>) -> Vec<Box<str>> {
    let mut names: Vec<(u32, Box<str>)> = numbers.into_iter().map(|(name, number)| (number, name)).collect();
    names.sort_unstable_by_key(|(number, _)| *number);
    names.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use undertone_settings::time::NO_TIME;
    use undertone_vocabulary::threshold::UNIT;

    fn votes(texts: &[(&str, &str)], max: u32) -> WordVotes {
        let mut rows = Rows::default();
        for (place, (user, text)) in (1..).zip(texts) {
            rows.users.push(user);
            rows.texts.push(text);
            rows.times.push(NO_TIME);
            rows.places.push(place);
        }
        let mut collector = Collector::new(WordRule::English);
        collector.add(&rows, |_| Ok(true)).unwrap();
        collector.finish(max)
    }

    fn sums(votes: &WordVotes) -> HashMap<&str, i64> {
        votes.words.iter().map(|one| (&*one.word, one.votes)).collect()
    }

    #[test]
    fn users_vote_with_equal_weights() {
        let texts = [
            ("ann", "The cat sat. The cat ran"),
            ("bob", "the cat"),
            ("ann", "12 the"),
        ];
        let votes = votes(&texts, 10);
        // Ann has four words, Bob two; 12 has no letter.
        let (half, root) = (weight(4), weight(2));
        assert_eq!((half, root), (1 << 29, 759_250_124));
        let expected = [
            ("the", half + root),
            ("cat", half + root),
            ("sat", half),
            ("ran", half),
        ];
        assert_eq!(sums(&votes), HashMap::from(expected));
        let counts: Vec<(&str, u64)> = votes.words.iter().map(|one| (&*one.word, one.count)).collect();
        assert_eq!(counts, [("cat", 3), ("ran", 1), ("sat", 1), ("the", 4)]);
        assert_eq!((votes.users(), votes.total, votes.distinct_words()), (2, 9, 4));
        assert_eq!(votes.coverage_of_most_frequent(1), 4.0 / 9.0);
        assert!(!format!("{votes:?}").contains("cat"));
    }

    #[test]
    fn who_has_more_words_votes_for_a_uniform_choice_of_them() {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let (users, max) = (2000, 3);
        for user in 0..users {
            let user = format!("user{user}");
            let votes = votes(&[(&user, "a b c d e f g h i j")], max);
            assert_eq!(votes.words.len(), 3);
            assert!(votes.words.iter().all(|one| one.votes == weight(3)));
            for one in &votes.words {
                *seen.entry(one.word.to_string()).or_insert(0) += 1;
            }
        }
        // Each word is voted for by Binomial(2000, 0.3) users, of standard deviation 20.5: six of them, for ten words, is a
        // false alarm of 2e-8 (and nothing is drawn anew).
        assert_eq!(seen.len(), 10);
        assert!(
            seen.values()
                .all(|&count| (f64::from(count) - 600.0).abs() < 123.0),
            "{seen:?}"
        );
    }

    proptest! {
        /// The sensitivity: for every text of a user and every set of other users, the votes of the others stay as they are and the
        /// user's own have a norm of at most the unit.
        #[test]
        fn one_user_adds_a_vector_of_at_most_the_unit_norm(
            texts in prop::collection::vec((0_u8..6, "[a-hA-H .\n\u{e0}-\u{e9}]{0,80}"), 1..12),
            user in 0_u8..6,
            max in 1_u32..8,
        ) {
            let named: Vec<(String, &str)> =
                texts.iter().map(|(user, text)| (format!("u{user}"), text.as_str())).collect();
            let all: Vec<(&str, &str)> = named.iter().map(|(user, text)| (user.as_str(), *text)).collect();
            let name = format!("u{user}");
            let others: Vec<(&str, &str)> = all.iter().copied().filter(|(user, _)| *user != name).collect();
            let (with, without) = (votes(&all, max), votes(&others, max));
            let (with, without) = (sums(&with), sums(&without));
            let (mut words, mut squares) = (0, 0_u128);
            for (word, &sum) in &with {
                let own = sum - without.get(word).copied().unwrap_or(0);
                prop_assert!(own >= 0);
                words += u32::from(own > 0);
                squares += (own as u128).pow(2);
            }
            prop_assert!(without.keys().all(|word| with.contains_key(word)));
            prop_assert!(words <= max);
            prop_assert!(squares <= u128::from(UNIT).pow(2));
        }
    }
}
