//! The keys of run files and task files, each with its type, its default and its meaning.
//!
//! The list is made from the types that read these files; a test of the laboratory compares the two.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The kind of a file of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsFile {
    /// A run file.
    Run,
    /// A task file.
    Task,
}

impl SettingsFile {
    /// The JSON Schema of the file, by which an editor completes and checks a file.
    #[must_use]
    pub fn schema(self) -> &'static str {
        match self {
            Self::Run => include_str!("run-file.schema.json"),
            Self::Task => include_str!("task-file.schema.json"),
        }
    }

    /// The keys of the file, in their order.
    ///
    /// # Example
    /// ```
    /// use undertone_run_directory::config::keys::SettingsFile;
    ///
    /// let rounds = SettingsFile::Run.keys().iter().find(|key| key.key == "rounds").expect("a key");
    /// assert_eq!((rounds.value.as_str(), rounds.required), ("a whole number", true));
    /// ```
    #[must_use]
    pub fn keys(self) -> &'static [Key] {
        let all = all();
        match self {
            Self::Run => &all.run,
            Self::Task => &all.task,
        }
    }

    /// The entries of a dotted key: several where its meaning depends on the kind of its table. Places in lists may be written as `[]` or as
    /// a number in brackets, or be left out.
    #[must_use]
    pub fn entries(self, key: &str) -> Vec<&'static Key> {
        let plain = |key: &str| -> String {
            let mut inside = false;
            let outside = key.chars().filter(|letter| {
                inside = (inside || *letter == '[') && *letter != ']';
                !inside && *letter != ']'
            });
            outside.collect()
        };
        let wanted = plain(key);
        self.keys()
            .iter()
            .filter(|entry| plain(&entry.key) == wanted)
            .collect()
    }

    /// The keys of a table; `""` for those at the top.
    #[must_use]
    pub fn of_table(self, table: &str) -> Vec<&'static Key> {
        self.keys().iter().filter(|key| key.table() == table).collect()
    }

    /// Keys that a person may have meant by `key`, the most likely one first.
    #[must_use]
    pub fn nearest(self, key: &str) -> Vec<&'static str> {
        /// Names of other libraries and papers, and the last part of the key that they stand for.
        const SYNONYMS: [(&str, &str); 25] = [
            ("lr", "learning_rate"),
            ("step_size", "learning_rate"),
            ("epsilon", "target_epsilon"),
            ("eps", "target_epsilon"),
            ("budget", "target_epsilon"),
            ("noise", "noise_multiplier"),
            ("sigma", "noise_multiplier"),
            ("z", "noise_multiplier"),
            ("batch", "batch_size"),
            ("minibatch", "batch_size"),
            ("steps", "rounds"),
            ("iterations", "rounds"),
            ("num_rounds", "rounds"),
            ("clip_norm", "norm"),
            ("max_grad_norm", "norm"),
            ("l2_norm_clip", "norm"),
            ("size", "users_per_round"),
            ("users", "users_per_round"),
            ("clients", "users_per_round"),
            ("clients_per_round", "users_per_round"),
            ("q", "sampling_probability"),
            ("sampling_rate", "sampling_probability"),
            ("local_epochs", "epochs"),
            ("hidden_size", "hidden"),
            ("vocab", "vocabulary"),
        ];
        /// Names as close as this are one name with a slip.
        const CLOSE: f64 = 0.84;
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        let mut found: Vec<(f64, &'static str)> = Vec::new();
        for entry in self.keys() {
            let own = entry.name();
            let is_sibling = entry.table() == table;
            let is_meant = SYNONYMS
                .iter()
                .any(|(other, meant)| *other == name && *meant == own);
            let likeness = if is_meant || own == name {
                1.0
            } else {
                strsim::jaro_winkler(own, name)
            };
            if is_meant || likeness >= if is_sibling { CLOSE } else { 0.95 } {
                // Keys of the same table come first, then those of the outermost ones.
                let depth = entry.key.matches('.').count() as f64;
                found.push((
                    likeness + f64::from(u8::from(is_sibling)) - 0.01 * depth,
                    &entry.key,
                ));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let best = found.first().map_or(0.0, |best| best.0);
        let mut seen = BTreeSet::new();
        let keys = found
            .into_iter()
            .filter(|(likeness, key)| *likeness > best - 0.1 && seen.insert(*key));
        keys.map(|(_, key)| key).take(3).collect()
    }
}

/// A key of a file of settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The dotted key. `[]` stands for each table of a list.
    pub key: String,
    /// The type of its value, in words.
    #[serde(rename = "type")]
    pub value: String,
    /// `true` if its table cannot be without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The value of a file that leaves it out, where that is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
    /// The meaning, in sentences.
    pub meaning: String,
    /// The words that it may have, each with its meaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<(String, String)>,
    /// The kinds of its table that have it, such as `clip.kind = "flat"`; none where all have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<String>,
}

impl Key {
    /// The last part.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or_default()
    }

    /// The key of its table, `""` at the top.
    #[must_use]
    pub fn table(&self) -> &str {
        self.key.rsplit_once('.').map_or("", |(table, _)| table)
    }

    /// `true` if tables of this kind have the key: `kind` is their text, such as `clip.kind = "flat"`.
    #[must_use]
    pub fn is_of(&self, kind: Option<&str>) -> bool {
        self.of.is_empty() || kind.is_some_and(|kind| self.of.iter().any(|of| of == kind))
    }

    /// `true` if the value is a table.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.value == "a table"
    }
}

#[derive(Deserialize)]
struct All {
    run: Vec<Key>,
    task: Vec<Key>,
}

fn all() -> &'static All {
    static ALL: OnceLock<All> = OnceLock::new();
    ALL.get_or_init(|| {
        // A list that cannot be read explains nothing; the tests read it.
        serde_json::from_str(include_str!("keys.json")).unwrap_or(All {
            run: Vec::new(),
            task: Vec::new(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_meaning_and_tables_stand_before_their_keys() {
        for file in [SettingsFile::Run, SettingsFile::Task] {
            let keys = file.keys();
            assert!(keys.len() > 150, "{}", keys.len());
            for (place, key) in keys.iter().enumerate() {
                assert!(!key.meaning.is_empty(), "{key:?}");
                let table = key.table().trim_end_matches("[]");
                let before = |other: &Key| other.key == table;
                assert!(table.is_empty() || keys[..place].iter().any(before), "{key:?}");
            }
            assert!(serde_json::from_str::<serde_json::Value>(file.schema()).is_ok());
        }
    }

    #[test]
    fn a_slip_or_another_name_leads_to_the_key() {
        let cases = [
            ("rouns", "rounds"),
            ("steps", "rounds"),
            ("privacy.epsilon", "privacy.target_epsilon"),
            ("user_update.lr", "user_update.learning_rate"),
            ("server.lr", "server.learning_rate"),
            ("clip.normm", "clip.norm"),
            ("cohort.clients_per_round", "cohort.users_per_round"),
            ("noise_multiplier", "privacy.noise_multiplier"),
            ("user_update.batchsize", "user_update.batch_size"),
            ("data.max_exampels", "data.max_examples"),
        ];
        for (given, meant) in cases {
            assert_eq!(SettingsFile::Run.nearest(given).first(), Some(&meant), "{given}");
        }
        assert!(SettingsFile::Run.nearest("zzzz").is_empty());
    }

    #[test]
    fn the_meaning_of_a_key_depends_on_the_kind_of_its_table() {
        let norms = SettingsFile::Run.entries("clip.norm");
        assert_eq!(norms.len(), 2);
        assert!(
            norms[0].is_of(Some("clip.kind = \"flat\"")) && !norms[0].is_of(Some("clip.kind = \"adaptive\""))
        );
        assert_eq!(SettingsFile::Run.entries("schedule[3].from_round").len(), 1);
        assert_eq!(SettingsFile::Run.entries("schedule.from_round").len(), 1);
    }
}
