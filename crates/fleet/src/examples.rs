//! The texts of the simulated users.

use undertone_data::Partition;
use undertone_protocol::digest_of;

/// Users with examples, each example as token ids.
pub trait UserExamples: Sync {
    /// Number of users.
    fn num_users(&self) -> usize;

    /// The examples of a user below [`num_users`](Self::num_users), in their order.
    fn examples(&self, user: usize) -> Vec<&[u32]>;
}

/// The users of a corpus: a device has the same examples as the simulated user of the same number.
impl UserExamples for Partition<'_> {
    fn num_users(&self) -> usize {
        Partition::num_users(self)
    }

    fn examples(&self, user: usize) -> Vec<&[u32]> {
        self.user(user).examples().collect()
    }
}

/// Users that are written out: a list of users, each a list of examples.
impl UserExamples for Vec<Vec<Vec<u32>>> {
    fn num_users(&self) -> usize {
        self.len()
    }

    fn examples(&self, user: usize) -> Vec<&[u32]> {
        self[user].iter().map(Vec::as_slice).collect()
    }
}

/// The examples of one user, parted into those for training and those that it withholds for evaluations.
///
/// An example is withheld by a hash of its tokens, one in `one_in`, so it stays on its side. With `one_in = 0` none is withheld.
pub(crate) fn parted<'e>(examples: Vec<&'e [u32]>, one_in: u64) -> (Vec<&'e [u32]>, Vec<&'e [u32]>) {
    let kept = |example: &&'e [u32]| {
        let bytes: Vec<u8> = example.iter().flat_map(|token| token.to_le_bytes()).collect();
        let digest = digest_of(&bytes);
        let word = u64::from_le_bytes(digest[..8].try_into().unwrap_or_default());
        one_in == 0 || !word.is_multiple_of(one_in)
    };
    examples.into_iter().partition(kept)
}

#[cfg(test)]
mod tests {
    use undertone_data::{Corpus, NoProgress, Split};
    use undertone_settings::CorpusSpec;

    use super::*;

    #[test]
    fn a_device_has_the_examples_of_the_simulated_user() {
        let text = "source = { kind = \"synthetic\", users = 30, words = 50 }";
        let spec: CorpusSpec = toml::from_str(text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let corpus = Corpus::open(&spec, folder.path(), folder.path(), &NoProgress).unwrap();
        let partition = corpus.partition(Split::Train);
        assert_eq!(UserExamples::num_users(&partition), partition.num_users());
        assert!(partition.num_users() > 10);
        for (number, user) in partition.users().enumerate() {
            let examples = UserExamples::examples(&partition, number);
            assert_eq!(examples.concat(), user.tokens());
            assert_eq!(examples.len(), user.num_examples());
        }
    }

    #[test]
    fn one_example_in_five_is_withheld_and_stays_on_its_side() {
        let all: Vec<Vec<u32>> = (0..1000).map(|token| vec![token, 2]).collect();
        let examples = || all.iter().map(Vec::as_slice).collect();
        let (training, withheld) = parted(examples(), 5);
        assert!((150..250).contains(&withheld.len()), "{}", withheld.len());
        assert_eq!(training.len() + withheld.len(), 1000);
        assert_eq!(parted(examples(), 5).1, withheld);
        assert_eq!(parted(examples(), 0).0.len(), 1000);
    }
}
