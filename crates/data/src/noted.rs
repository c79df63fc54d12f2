//! Counts of what readers replaced, skipped or cut.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts of what was replaced, skipped or cut on the way from a file to a corpus. Each kind is a phrase in plain English, such as
/// `"lone surrogates replaced"`.
///
/// PRIVACY: the counts are exact functions of people's text. They belong to the operator, like the other counts of a corpus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Noted {
    counts: BTreeMap<Cow<'static, str>, u64>,
}

impl Noted {
    /// Adds `count` to a kind. A count of zero leaves no trace.
    pub(crate) fn add(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.counts.entry(Cow::Borrowed(kind)).or_default() += count;
        }
    }

    /// Adds all counts of another reader.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (kind, count) in &other.counts {
            match self.counts.get_mut(kind) {
                Some(sum) => *sum += count,
                None => drop(self.counts.insert(kind.clone(), *count)),
            }
        }
    }

    /// The count of a kind.
    pub(crate) fn count(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or_default()
    }

    /// Forgets all counts.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }

    /// Returns `true` if nothing was replaced, skipped or cut.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Kinds and counts, in alphabetical order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.counts.iter().map(|(kind, count)| (&**kind, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_readers_are_summed_by_kind() {
        let mut sum = Noted::default();
        assert!(sum.is_empty());
        sum.add("b", 0);
        assert!(sum.is_empty(), "a count of zero says nothing");
        let mut other = Noted::default();
        other.add("b", 2);
        other.add("a", 1);
        sum.merge(&other);
        sum.merge(&other);
        sum.add("b", 1);
        assert_eq!(sum.iter().collect::<Vec<_>>(), [("a", 2), ("b", 5)]);
        let text = serde_json::to_string(&sum).expect("counts");
        assert_eq!(text, r#"{"a":2,"b":5}"#);
        let mut again: Noted = serde_json::from_str(&text).expect("counts");
        assert_eq!(again, sum);
        // Counts that were read meet counts of this program under one kind.
        again.add("a", 1);
        assert_eq!(again.iter().next(), Some(("a", 3)));
        again.clear();
        assert!(again.is_empty());
    }
}
