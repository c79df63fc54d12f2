//! The keys of a run file that are wrong, all of them, each with what to write instead.
//!
//! The parser stops at its first error and knows no other file than its own. What stands here is looked at after it has failed.

use std::collections::HashMap;

use toml::Value;
use toml::de::{DeTable, DeValue};
use undertone_present::place;

use super::keys::{Key, SettingsFile};

/// The wrong keys of a run file, one per sentence; none where the parser's error is about something else.
///
/// `text` is the file, where there is one, and `table` its content with the overrides on top, each of which stands in `given` with its dotted
/// key.
pub(super) fn keys(text: Option<&str>, table: &toml::Table, given: &[(String, String)]) -> Vec<String> {
    let mut looking = Looking {
        lines: text.map(lines).unwrap_or_default(),
        given,
        found: Vec::new(),
    };
    looking.table("", "", table);
    looking.found
}

struct Looking<'a> {
    /// The place of each key in the file.
    lines: HashMap<String, String>,
    given: &'a [(String, String)],
    found: Vec<String>,
}

impl Looking<'_> {
    /// Adds a sentence about the value at `path`.
    fn tell(&mut self, path: &str, sentence: &str) {
        let is_given = |(key, _): &&(String, String)| {
            path == key
                || path
                    .strip_prefix(key.as_str())
                    .is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        let place = match self.given.iter().find(is_given) {
            Some((_, change)) => format!("with `{change}`: "),
            None => self
                .lines
                .get(path)
                .map(|place| format!("{place}: "))
                .unwrap_or_default(),
        };
        self.found.push(format!("{place}{sentence}"));
    }

    /// Looks at a table. `path` is its place in the file, `key` that in the list of keys, which has no numbers.
    fn table(&mut self, path: &str, key: &str, table: &toml::Table) {
        let known = SettingsFile::Run.of_table(key);
        let join = |table: &str, name: &str| match table {
            "" => name.to_owned(),
            table => format!("{table}.{name}"),
        };
        // Each kind of a table has keys of its own, and `kind` (or `family`) says which one it is.
        let tag = known
            .iter()
            .find_map(|entry| Some(entry.of.first()?.split_once(" = ")?.0));
        let tag_name = tag.and_then(|tag| tag.rsplit('.').next());
        let named = tag_name.and_then(|name| table.get(name)).and_then(Value::as_str);
        let kind = tag.zip(named).map(|(tag, named)| format!("{tag} = \"{named}\""));
        let is_known_kind = named.is_none_or(|_| {
            known
                .iter()
                .any(|entry| entry.is_of(kind.as_deref()) && !entry.of.is_empty())
        });
        for (name, value) in table {
            let (path, key) = (join(path, name), join(key, name));
            let entries: Vec<&Key> = known
                .iter()
                .copied()
                .filter(|entry| entry.name() == name)
                .collect();
            let Some(entry) = entries.iter().find(|entry| entry.is_of(kind.as_deref())) else {
                match entries.as_slice() {
                    [] => self.unknown(&path, &key),
                    _ if kind.is_none() || !is_known_kind => {}
                    others => {
                        self.of_another_kind(&path, others, &known, kind.as_deref().unwrap_or_default());
                    }
                }
                continue;
            };
            self.value(&path, entry, value);
        }
        let is_missing = |entry: &&&Key| {
            entry.required && entry.is_of(kind.as_deref()) && !table.contains_key(entry.name())
        };
        for entry in known.iter().filter(is_missing) {
            let choices = match entry.choices.is_empty() {
                true => entry.value.clone(),
                false => one_of(entry),
            };
            self.tell(path, &format!("`{}` is missing: expected {choices}", entry.key));
        }
    }

    fn unknown(&mut self, path: &str, key: &str) {
        let meant = SettingsFile::Run.nearest(key);
        let meant: Vec<String> = meant.iter().map(|key| format!("`{key}`")).collect();
        let advice = match meant.as_slice() {
            [] => match key.rsplit_once('.') {
                Some((table, _)) => format!("`undertone explain {table}` lists the keys of its table"),
                None => "`undertone explain` lists all keys".to_owned(),
            },
            meant => format!("did you mean {}?", meant.join(" or ")),
        };
        self.tell(path, &format!("there is no key `{path}`; {advice}"));
    }

    /// Tells of a key that tables of other kinds have.
    fn of_another_kind(&mut self, path: &str, entries: &[&Key], known: &[&Key], kind: &str) {
        let others: Vec<&str> = entries
            .iter()
            .flat_map(|entry| &entry.of)
            .map(String::as_str)
            .collect();
        let own: Vec<String> = known
            .iter()
            .filter(|entry| entry.of.iter().any(|of| of == kind))
            .map(|entry| format!("`{}`", entry.name()))
            .collect();
        let has = match own.is_empty() {
            true => "no other key".to_owned(),
            false => own.join(", "),
        };
        self.tell(
            path,
            &format!(
                "`{path}` is a key of {}, and here is {kind}, which has {has}",
                others.join(" or ")
            ),
        );
    }

    fn value(&mut self, path: &str, entry: &Key, value: &Value) {
        let got = match value {
            Value::String(text) => format!("the text {text:?}"),
            Value::Integer(number) => format!("the whole number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Boolean(value) => format!("`{value}`"),
            Value::Datetime(date) => format!("the date {date}, which a text in quotes would be"),
            Value::Array(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        };
        let fits = match entry.value.as_str() {
            "a whole number" => value.is_integer(),
            "a number" => value.is_integer() || value.is_float(),
            "a text" | "a length of time" | "a choice" => value.is_str(),
            "`true` or `false`" => value.is_bool(),
            "a table" => value.is_table(),
            list if list.starts_with("a list of ") => value.is_array(),
            _ => true,
        };
        if !fits {
            let expected = match entry.choices.is_empty() {
                true => entry.value.clone(),
                false => one_of(entry),
            };
            self.tell(path, &format!("`{path}`: expected {expected}, got {got}"));
            return;
        }
        match value {
            Value::String(word) => self.word(path, entry, word),
            Value::Table(table) if entry.is_table() => self.table(path, &entry.key, table),
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    match value {
                        Value::Table(table) => self.table(&path, &format!("{}[]", entry.key), table),
                        Value::String(word) => self.word(&path, entry, word),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Looks at a word where a choice of them is expected.
    fn word(&mut self, path: &str, entry: &Key, word: &str) {
        /// A word as like as this is one with a slip.
        const CLOSE: f64 = 0.8;
        let words = || entry.choices.iter().map(|choice| choice.0.as_str());
        if entry.choices.is_empty() || words().any(|other| other == word) {
            return;
        }
        let likeness = |other: &str| strsim::jaro_winkler(other, word);
        let near = words().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let meant = match near.filter(|near| likeness(near) > CLOSE) {
            Some(near) => format!("; did you mean {near:?}?"),
            None => String::new(),
        };
        self.tell(
            path,
            &format!("`{path}`: expected {}, got {word:?}{meant}", one_of(entry)),
        );
    }
}

fn one_of(entry: &Key) -> String {
    let words: Vec<String> = entry
        .choices
        .iter()
        .map(|choice| format!("{:?}", choice.0))
        .collect();
    match words.as_slice() {
        [only] => only.clone(),
        words => format!("one of {}", words.join(", ")),
    }
}

/// The line and column of each key of a text, by its dotted path.
fn lines(text: &str) -> HashMap<String, String> {
    let mut lines = HashMap::new();
    if let Ok(table) = DeTable::parse(text) {
        of_table(text, "", table.get_ref(), &mut lines);
    }
    lines
}

fn of_table(text: &str, path: &str, table: &DeTable<'_>, lines: &mut HashMap<String, String>) {
    for (name, value) in table {
        let path = match path {
            "" => name.get_ref().to_string(),
            path => format!("{path}.{}", name.get_ref()),
        };
        if let Some(place) = place(text, name.span().start) {
            lines.insert(path.clone(), place.to_string());
        }
        of_value(text, &path, value.get_ref(), lines);
    }
}

fn of_value(text: &str, path: &str, value: &DeValue<'_>, lines: &mut HashMap<String, String>) {
    match value {
        DeValue::Table(table) => of_table(text, path, table, lines),
        DeValue::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                let path = format!("{path}[{index}]");
                if let Some(place) = place(text, value.span().start) {
                    lines.insert(path.clone(), place.to_string());
                }
                of_value(text, &path, value.get_ref(), lines);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Override, RunConfig};

    const RUN: &str = r#"
name = "notes"
rounds = 10
data = { source = { kind = "synthetic", users = 100 } }
model = { family = "dplm", embed = 8, hidden = 12 }
cohort = { sampling = "poisson", users_per_round = 20, population = 100 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2 }
clip = { kind = "flat", norm = 1.0 }
privacy = { noise_multiplier = 1.0, delta = 1e-6 }
"#;

    fn told(text: &str) -> Vec<String> {
        keys(Some(text), &toml::from_str(text).unwrap(), &[])
    }

    /// Runs whose files the program reads have no wrong key, and no key of them can be misspelt unseen.
    #[test]
    fn files_that_are_read_have_no_wrong_key_and_each_slip_is_named() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let (mut files, mut slips) = (0, 0);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let Ok(config) = RunConfig::parse(&text, &path, &[]) else {
                continue;
            };
            files += 1;
            assert_eq!(told(&text), Vec::<String>::new(), "{}", path.display());
            let whole = toml::to_string(&config).unwrap();
            assert_eq!(told(&whole), Vec::<String>::new(), "{}", path.display());
            for line in whole.lines().filter(|line| line.contains(" = ")) {
                let (name, _) = line.split_once(" = ").unwrap();
                let slip = whole.replacen(line, &line.replacen(name, &format!("{name}q"), 1), 1);
                let found = told(&slip);
                assert!(
                    found.iter().any(|told| told.contains(&format!("{name}q`"))),
                    "{}: {line}: {found:?}",
                    path.display()
                );
                slips += 1;
            }
        }
        assert!(files >= 8 && slips >= 200, "{files} files, {slips} slips");
    }

    /// `undertone init` writes one of them.
    #[test]
    fn other_names_of_a_family_are_not_wrong() {
        for (family, other) in [("dplm", "tied_lstm"), ("stackoverflow", "lstm")] {
            for name in [family, other] {
                assert_eq!(
                    told(&RUN.replace("\"dplm\"", &format!("\"{name}\""))),
                    Vec::<String>::new()
                );
            }
        }
    }

    #[test]
    fn each_wrong_key_is_told_with_what_to_write() {
        let cases = [
            (
                "rounds = 10",
                "rouns = 10",
                "line 3, column 1: there is no key `rouns`; did you mean `rounds`?",
            ),
            (
                "rounds = 10",
                "rouns = 10",
                "`rounds` is missing: expected a whole number",
            ),
            (
                "learning_rate = 0.5",
                "lr = 0.5",
                "there is no key `user_update.lr`; did you mean `user_update.learning_rate`",
            ),
            (
                "noise_multiplier = 1.0",
                "epsilon = 3",
                "there is no key `privacy.epsilon`; did you mean `privacy.target_epsilon`?",
            ),
            (
                "kind = \"flat\", norm = 1.0",
                "kind = \"adaptive\", norm = 1.0",
                "`clip.norm` is a key of clip.kind = \"flat\" or clip.kind = \"per_layer\", and here is clip.kind = \"adaptive\", which has `initial_norm`, `quantile`, `learning_rate`, `bit_noise_std`",
            ),
            (
                "kind = \"flat\", norm = 1.0",
                "kind = \"adaptive\", norm = 1.0",
                "`clip.initial_norm` is missing: expected a number",
            ),
            (
                "kind = \"flat\"",
                "kind = \"flet\"",
                "`clip.kind`: expected one of \"none\", \"flat\", \"per_layer\", \"adaptive\", got \"flet\"; did you mean \"flat\"?",
            ),
            (
                "delta = 1e-6",
                "delta = \"small\"",
                "`privacy.delta`: expected a number, got the text \"small\"",
            ),
            (
                "\"fedavg\"",
                "\"fedsgdd\"",
                "got \"fedsgdd\"; did you mean \"fedsgd\"?",
            ),
            (
                "name = \"notes\"",
                "name = 2024-01-01",
                "`name`: expected a text, got the date 2024-01-01",
            ),
            (
                "rounds = 10",
                "rounds = 1.5",
                "`rounds`: expected a whole number, got the number 1.5",
            ),
            (
                "clip = {",
                "schedule = [{ from_round = 1, norm = 2 }]\nclip = {",
                "there is no key `schedule[0].norm`",
            ),
            (
                "clip = {",
                "zzz = 1\nclip = {",
                "there is no key `zzz`; `undertone explain` lists all keys",
            ),
        ];
        for (from, to, sentence) in cases {
            let found = told(&RUN.replace(from, to));
            assert!(
                found.iter().any(|told| told.contains(sentence)),
                "{sentence}: {found:?}"
            );
        }
    }

    #[test]
    fn a_change_of_the_command_line_is_named_as_it_was_given() {
        let path = std::path::Path::new("run.toml");
        let refused = |change: &str| {
            let change: Override = change.parse().unwrap();
            RunConfig::parse(RUN, path, &[change]).unwrap_err().to_string()
        };
        assert_eq!(
            refused("privacy.epsilon=3"),
            "run.toml: with `privacy.epsilon = 3`: there is no key `privacy.epsilon`; did you mean `privacy.target_epsilon`?"
        );
        assert_eq!(
            refused("rounds=abc"),
            "run.toml: with `rounds = \"abc\"`: `rounds`: expected a whole number, got the text \"abc\""
        );
    }

    #[test]
    fn wrong_keys_are_told_all_at_once() {
        let text = RUN.replace("rounds", "rouns").replace("batch_size", "batchsize");
        let told = RunConfig::parse(&text, std::path::Path::new("run.toml"), &[]).unwrap_err();
        assert!(
            told.to_string()
                .starts_with("run.toml: 3 keys are wrong:\n  line "),
            "{told}"
        );
    }
}
