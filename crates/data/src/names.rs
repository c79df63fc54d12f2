//! Names of users that may be one person, and names that are none.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use icu_normalizer::ComposingNormalizerBorrowed;
use serde::{Deserialize, Serialize};

/// Names that programs write where there is no user, in the form that [`normal_form`] gives.
const PLACEHOLDERS: [&str; 18] = [
    "",
    "#n/a",
    "(null)",
    "-",
    "<na>",
    "[deleted]",
    "[removed]",
    "\\n",
    "anonymous",
    "deleted",
    "n/a",
    "nan",
    "nat",
    "nil",
    "none",
    "null",
    "undefined",
    "unknown",
];

/// Users whose share of the rows is counted, at least.
const MANY_USERS: usize = 20;

/// Counts of names that may not be one person each, on which the guarantee for a user depends.
///
/// PRIVACY: exact functions of people's text, like the other counts of a corpus. They hold no name but those of a fixed list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserNames {
    /// Users whose names differ from that of another user only in case, outer white space, characters without width, or normal form.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alike: u64,
    /// Number of users that these would be if they were joined.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alike_joined: u64,
    /// Rows of names that stand for nobody, such as `[deleted]` and `null`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub placeholders: BTreeMap<String, u64>,
    /// Rows of the user that has more than a tenth of them, among twenty users or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl UserNames {
    /// Looks at the names of users, and at the user of each row.
    pub(crate) fn of(users: &[Box<str>], rows: impl Iterator<Item = u32>) -> UserNames {
        let (mut counts, mut total) = (vec![0_u64; users.len()], 0_u64);
        for user in rows {
            counts[user as usize] += 1;
            total += 1;
        }
        let mut found = UserNames::default();
        let mut forms = Vec::with_capacity(users.len());
        for (name, &count) in users.iter().zip(&counts) {
            let form = normal_form(name);
            if PLACEHOLDERS.contains(&&*form) {
                *found.placeholders.entry(form.clone()).or_default() += count;
            }
            // Eight bytes per user: two names with one hash are rarer than two persons with one name.
            let mut hash = DefaultHasher::new();
            form.hash(&mut hash);
            forms.push(hash.finish());
        }
        forms.sort_unstable();
        for group in forms
            .chunk_by(|one, other| one == other)
            .filter(|group| group.len() > 1)
        {
            found.alike += group.len() as u64;
            found.alike_joined += 1;
        }
        let largest = counts.into_iter().max().unwrap_or(0);
        found.largest = (users.len() >= MANY_USERS && largest > total / 10).then_some(largest);
        found
    }

    /// Returns `true` if every name may be one person.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == UserNames::default()
    }
}

/// The form in which all spellings of a name agree: lower case, without white space at its ends and without characters of no width, in
/// Unicode's composed normal form.
pub(crate) fn normal_form(name: &str) -> String {
    if name.is_ascii() {
        return name.trim().to_ascii_lowercase();
    }
    let composed = ComposingNormalizerBorrowed::new_nfc();
    let letters = composed.normalize_iter(name.chars());
    let shown: String = letters.filter(|&letter| !has_no_width(letter)).collect();
    composed.normalize(&shown.trim().to_lowercase()).into_owned()
}

fn has_no_width(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
    )
}

/// The users that an import takes, by its options.
pub(crate) struct Chosen<'a> {
    join: bool,
    dropped: Vec<(&'a str, String, bool)>,
    pub(crate) rows_dropped: u64,
}

impl<'a> Chosen<'a> {
    pub(crate) fn new(join: bool, dropped: &'a [String]) -> Chosen<'a> {
        let named = |name: &'a String| {
            (
                &**name,
                if join { normal_form(name) } else { name.clone() },
                false,
            )
        };
        Chosen {
            join,
            dropped: dropped.iter().map(named).collect(),
            rows_dropped: 0,
        }
    }

    /// The name under which a row's user is kept; `None` for one that is dropped. `buffer` holds the form of a joined name.
    pub(crate) fn name<'n>(&mut self, name: &'n str, buffer: &'n mut String) -> Option<&'n str> {
        let name = match self.join {
            true => {
                *buffer = normal_form(name);
                // A name of nothing else stays what it is.
                if buffer.is_empty() { name } else { buffer }
            }
            false => name,
        };
        let mut dropped = false;
        for (_, form, seen) in &mut self.dropped {
            if form == name {
                (*seen, dropped) = (true, true);
            }
        }
        self.rows_dropped += u64::from(dropped);
        (!dropped).then_some(name)
    }

    /// A name to drop that no row had.
    pub(crate) fn unseen(&self) -> Option<&'a str> {
        self.dropped
            .iter()
            .find(|(.., seen)| !seen)
            .map(|(name, ..)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(users: &[&str], rows: &[u32]) -> UserNames {
        let users: Vec<Box<str>> = users.iter().map(|&user| user.into()).collect();
        UserNames::of(&users, rows.iter().copied())
    }

    #[test]
    fn spellings_of_one_name_have_one_form() {
        for spellings in [
            &[
                "José",
                "Jose\u{301}",
                "josé",
                " José",
                "JOSÉ\u{200b}",
                "\u{feff}José\u{a0}",
            ][..],
            &["ada", "Ada", "ADA ", "\tada"],
            &["Åsa", "A\u{30a}sa", "\u{212b}sa"],
            &["Ирина", "ИРИНА", "\u{200e}Ирина"],
        ] {
            let forms: Vec<_> = spellings.iter().map(|name| normal_form(name)).collect();
            assert!(forms.iter().all(|form| *form == forms[0]), "{forms:?}");
            let found = names(spellings, &[0]);
            assert_eq!((found.alike, found.alike_joined), (spellings.len() as u64, 1));
        }
        for (one, other) in [
            ("ada", "adam"),
            ("jose", "josé"),
            ("a b", "ab"),
            ("ｊose", "jose"),
        ] {
            assert_ne!(normal_form(one), normal_form(other));
            assert!(names(&[one, other], &[0, 1]).is_empty());
        }
    }

    #[test]
    fn placeholders_and_users_with_many_rows_are_counted() {
        let found = names(
            &["[deleted]", "\\N", "NULL", "ada", " \u{200b}", "None"],
            &[0, 0, 1, 2, 3, 4, 5],
        );
        let placeholders: Vec<_> = found
            .placeholders
            .iter()
            .map(|(name, &rows)| (&**name, rows))
            .collect();
        assert_eq!(
            placeholders,
            [("", 1), ("[deleted]", 2), ("\\n", 1), ("none", 1), ("null", 1)]
        );
        let users: Vec<String> = (0..30).map(|user| format!("user {user}")).collect();
        let users: Vec<&str> = users.iter().map(|user| &**user).collect();
        let mut rows: Vec<u32> = (0..30).collect();
        assert!(names(&users, &rows).is_empty());
        rows.extend([7; 5]);
        assert_eq!(names(&users, &rows).largest, Some(6));
        // Among few users, each has a large part.
        assert!(names(&users[..5], &[0, 1, 2, 3, 4]).is_empty());
    }
}
