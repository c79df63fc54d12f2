//! The sums of votes from which private words are chosen.

/// Sums of the users' bounded votes for words: secret until noise is added.
///
/// A user votes for at most `max_words_per_user` distinct words, `1 / sqrt(t)` for each of `t`: a vector of L2 norm at
/// most 1, whatever the text. Words are those with a letter, of all sentences, before caps, as for
/// [`WordCounts`](crate::WordCounts).
///
/// # Source
/// Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin, "Differentially Private Set Union" (ICML 2020), weighted Gaussian.
pub struct WordVotes {
    /// Words in alphabetical order, each with at least one vote.
    pub(crate) words: Vec<Candidate>,
    /// Occurrences of all words, those without a vote included.
    pub(crate) total: u64,
    /// Counts of all distinct words, largest first.
    pub(crate) largest_counts: Vec<u64>,
    pub(crate) users: u64,
    pub(crate) max_words_per_user: u32,
}

/// A word that somebody voted for.
pub(crate) struct Candidate {
    pub(crate) word: Box<str>,
    /// Sum of votes in grid steps.
    pub(crate) votes: i64,
    /// Occurrences in the text.
    pub(crate) count: u64,
}

impl std::fmt::Debug for WordVotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: neither words nor sums are printed.
        f.debug_struct("WordVotes")
            .field("users", &self.users)
            .field("max_words_per_user", &self.max_words_per_user)
            .finish_non_exhaustive()
    }
}

impl WordVotes {
    /// Users who voted.
    #[must_use]
    pub fn users(&self) -> u64 {
        self.users
    }

    /// Words that one user may vote for.
    #[must_use]
    pub fn max_words_per_user(&self) -> u32 {
        self.max_words_per_user
    }

    /// Distinct words of all users; not private.
    #[must_use]
    pub fn distinct_words(&self) -> usize {
        self.largest_counts.len()
    }

    /// Fraction of all occurrences that the `size` most frequent words hold; not private.
    #[must_use]
    pub fn coverage_of_most_frequent(&self, size: usize) -> f64 {
        self.largest_counts.iter().take(size).sum::<u64>() as f64 / self.total as f64
    }
}
