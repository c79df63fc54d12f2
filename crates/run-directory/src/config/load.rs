//! Reading a run file, with `--set key=value` on top.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use undertone_present::place;

use super::{RunConfig, wrong};
use crate::error::{DirectoryError, Result};

/// One `--set key=value`: a dotted key and a TOML value; a value that is not TOML is taken as a string.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    key: Vec<String>,
    value: toml::Value,
}

impl FromStr for Override {
    type Err = DirectoryError;

    fn from_str(given: &str) -> Result<Self> {
        let fail = || DirectoryError::Override {
            given: given.to_owned(),
        };
        let (key, value) = given.split_once('=').ok_or_else(fail)?;
        let key: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if key.iter().any(String::is_empty) {
            return Err(fail());
        }
        let value = value.trim();
        let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| toml::Value::String(value.to_owned()));
        Ok(Self { key, value })
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key.join("."), self.value)
    }
}

impl Override {
    /// A top-level key and its value.
    #[must_use]
    pub fn new(key: &str, value: impl Into<toml::Value>) -> Self {
        Self {
            key: vec![key.to_owned()],
            value: value.into(),
        }
    }

    /// A dotted key, as in [`Override::from_str`], and its value.
    ///
    /// # Errors
    /// [`DirectoryError::Override`] for a key with an empty part; [`DirectoryError::Coordinator`] names the key of a null.
    pub fn from_value(key: &str, value: serde_json::Value) -> Result<Self> {
        let value = value_of(value, key)?;
        let parts: Vec<String> = key.split('.').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            return Err(DirectoryError::Override {
                given: format!("{key}={value}"),
            });
        }
        Ok(Self { key: parts, value })
    }

    fn apply(&self, table: &mut toml::Table) -> Result<()> {
        let Some((last, parents)) = self.key.split_last() else {
            return Ok(());
        };
        let mut here = table;
        for (depth, name) in parents.iter().enumerate() {
            let entry = here
                .entry(name.clone())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            let got = entry.type_str();
            here = entry.as_table_mut().ok_or_else(|| {
                DirectoryError::value(
                    &self.key[..=depth].join("."),
                    "a table",
                    format!("a value of type {got}"),
                )
            })?;
        }
        here.insert(last.clone(), self.value.clone());
        Ok(())
    }
}

impl RunConfig {
    /// Checks a configuration that a program has made, with the keys of a run file. Returns it with the settings that it leaves out and
    /// the run takes, as lines of a run file.
    ///
    /// # Errors
    /// [`DirectoryError::Coordinator`] names the key of a null or of a value outside its range. [`DirectoryError::Config`] names each key
    /// that is unknown, missing or of a wrong type.
    pub fn from_value(value: serde_json::Value, overrides: &[Override]) -> Result<(Self, Vec<String>)> {
        let got = kind(&value);
        let toml::Value::Table(mut table) = value_of(value, "")? else {
            return Err(DirectoryError::value("configuration", "a table", got));
        };
        overrides.iter().try_for_each(|change| change.apply(&mut table))?;
        let config: Self =
            read(table.clone().into(), "").map_err(|error| match told(None, &table, overrides) {
                Some(message) => DirectoryError::Config { message },
                None => error,
            })?;
        config.validate()?;
        let taken = taken(&table, &config);
        Ok((config, taken))
    }

    /// Parses and checks the text of a run file; `path` only names it in errors.
    ///
    /// # Errors
    /// [`DirectoryError::ConfigSyntax`] with line and column; [`DirectoryError::Coordinator`]; [`DirectoryError::OfSession`] for the
    /// configuration of a session.
    pub fn parse(text: &str, path: &Path, overrides: &[Override]) -> Result<Self> {
        refuse_session(text, path)?;
        let config: Self = parse_as(text, path, overrides).map_err(|error| {
            let mut table: toml::Table = match toml::from_str(text) {
                Ok(table) => table,
                Err(_) => return error,
            };
            if overrides.iter().any(|change| change.apply(&mut table).is_err()) {
                return error;
            }
            match told(Some(text), &table, overrides) {
                Some(message) => DirectoryError::ConfigSyntax {
                    file: path.to_owned(),
                    message,
                },
                None => error,
            }
        })?;
        config.validate()?;
        Ok(config)
    }

    /// The settings that the text of this configuration leaves out and the run takes, as lines of a run file.
    ///
    /// # Errors
    /// The errors of [`parse_as`].
    pub fn taken(&self, text: &str, path: &Path, overrides: &[Override]) -> Result<Vec<String>> {
        Ok(taken(&parse_as(text, path, overrides)?, self))
    }
}

/// All wrong keys of a configuration in one message; `None` where none is wrong in itself.
fn told(text: Option<&str>, table: &toml::Table, overrides: &[Override]) -> Option<String> {
    let given: Vec<(String, String)> = overrides
        .iter()
        .map(|change| (change.key.join("."), change.to_string()))
        .collect();
    let mut found = wrong::keys(text, table, &given);
    match found.len() {
        0 => None,
        1 => found.pop(),
        count => Some(format!("{count} keys are wrong:\n  {}", found.join("\n  "))),
    }
}

/// `true` if a text is the configuration of a session: its model is trained by another program.
#[must_use]
pub fn is_of_session(text: &str) -> bool {
    let table: Option<toml::Table> = toml::from_str(text).ok();
    let family = table
        .as_ref()
        .and_then(|table| table.get("model")?.get("family")?.as_str());
    family == Some("external")
}

/// Refuses the configuration of a session, for callers that need that of a run.
///
/// # Errors
/// [`DirectoryError::OfSession`] naming `path`.
pub fn refuse_session(text: &str, path: &Path) -> Result<()> {
    match is_of_session(text) {
        true => Err(DirectoryError::OfSession {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

/// Settings that a program has made: the value of the table `key` of a run file.
///
/// # Errors
/// The errors of [`RunConfig::from_value`] about shapes.
pub fn settings_from_value<T: DeserializeOwned>(value: serde_json::Value, key: &str) -> Result<T> {
    read(value_of(value, key)?, key)
}

fn read<T: DeserializeOwned>(value: toml::Value, key: &str) -> Result<T> {
    value.try_into().map_err(|error: toml::de::Error| {
        // The parser puts the place on a line of its own.
        let message = error.to_string().trim().replace('\n', " ");
        DirectoryError::Config {
            message: match key {
                "" => message,
                key => format!("{key}: {message}"),
            },
        }
    })
}

/// A value of JSON as one of TOML, which has no null; `key` is the place of the value.
fn value_of(value: serde_json::Value, key: &str) -> Result<toml::Value> {
    use serde_json::Value;
    let got = kind(&value);
    let wrong = |expected: &str| DirectoryError::value(key, expected, got);
    Ok(match value {
        Value::Null => return Err(wrong("a value (leave the key out for its default)")),
        Value::Bool(value) => toml::Value::Boolean(value),
        Value::String(value) => toml::Value::String(value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(value), _) => toml::Value::Integer(value),
            (None, Some(value)) if number.is_f64() => toml::Value::Float(value),
            _ => return Err(DirectoryError::value(key, "at most 9223372036854775807", number)),
        },
        Value::Array(values) => {
            let values = values.into_iter().enumerate();
            let values = values.map(|(index, value)| value_of(value, &format!("{key}[{index}]")));
            toml::Value::Array(values.collect::<Result<_>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let place = match key {
                    "" => name.clone(),
                    key => format!("{key}.{name}"),
                };
                Ok((name, value_of(value, &place)?))
            });
            toml::Value::Table(fields.collect::<Result<_>>()?)
        }
    })
}

/// The kind of a value of JSON, in words.
fn kind(value: &serde_json::Value) -> &'static str {
    use serde_json::Value;
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "a table",
    }
}

/// The settings with a default that a reader should know of and that the file leaves out.
fn taken(file: &toml::Table, config: &RunConfig) -> Vec<String> {
    let task = &config.task;
    let values = [
        ("clip", toml::Value::try_from(&task.clip)),
        ("cohort.sampling", toml::Value::try_from(task.cohort.sampling)),
        (
            "user_update.algorithm",
            toml::Value::try_from(task.user_update.algorithm),
        ),
    ];
    let absent = |key: &str| match key.split_once('.') {
        Some((table, key)) => file.get(table).is_none_or(|table| table.get(key).is_none()),
        None => !file.contains_key(key),
    };
    let missing = values.into_iter().filter(|(key, _)| absent(key));
    missing
        .filter_map(|(key, value)| Some(format!("{key} = {}", value.ok()?)))
        .collect()
}

/// Parses the text of a configuration with overrides on top; `path` only names it in errors.
///
/// # Errors
/// [`DirectoryError::ConfigSyntax`] with line and column, or with the override that is wrong.
pub fn parse_as<T: DeserializeOwned>(text: &str, path: &Path, overrides: &[Override]) -> Result<T> {
    let syntax = |message: String| DirectoryError::ConfigSyntax {
        file: path.to_owned(),
        message,
    };
    let of_text = |error: &toml::de::Error| syntax(syntax_error(text, error));
    if overrides.is_empty() {
        return toml::from_str(text).map_err(|error| of_text(&error));
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| of_text(&error))?;
    // The parser's own messages are about texts.
    let merged = |without: Option<usize>| {
        let mut table = table.clone();
        for (place, change) in overrides.iter().enumerate() {
            if Some(place) != without {
                change.apply(&mut table)?;
            }
        }
        toml::to_string(&table).map_err(|error| syntax(error.to_string()))
    };
    let error = match toml::from_str::<T>(&merged(None)?) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let same = |other: &toml::de::Error| other.message() == error.message();
    if let Some(own) = toml::from_str::<T>(text).err().filter(same) {
        return Err(of_text(&own));
    }
    let blamed = overrides.iter().enumerate().find(|(place, _)| {
        let without = merged(Some(*place));
        without.is_ok_and(|text| !toml::from_str::<T>(&text).is_err_and(|other| same(&other)))
    });
    Err(syntax(match blamed {
        Some((_, change)) => format!("with `{change}`: {}", error.message()),
        None => format!("with the settings given beside it: {}", error.message()),
    }))
}

/// The error of a TOML text, in one line: the parser's own message draws the place over several.
#[must_use]
pub fn syntax_error(text: &str, error: &toml::de::Error) -> String {
    match error.span().and_then(|span| place(text, span.start)) {
        Some(place) => format!("{place}: {}", error.message()),
        None => error.message().to_owned(),
    }
}
