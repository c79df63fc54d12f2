//! The tokens for the start and the end of a text, as the files beside a tokenizer name them.
//!
//! Three files of a folder of `transformers` may name them, by number or by name, and they need not agree. The first file that says
//! something decides, a caller's own choice comes before all of them, and a disagreement is told. Every end that a file names ends a text
//! that is generated: a model of conversations ends its turns by another token than the texts that it was trained on at first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Result, RunError};
use undertone_run_directory::files;
use undertone_run_directory::initial_model::huggingface::{CONFIG, read_plain};

/// The longest settings that are read: those of tokenizers list thousands of added tokens.
const MAX_SETTINGS: u64 = 1 << 24;

/// The settings of generation, which may name several ends.
const GENERATION: &str = "generation_config.json";
/// The settings of the tokenizer, which name tokens by their text.
pub(crate) const TOKENIZER_SETTINGS: &str = "tokenizer_config.json";

/// The names of special tokens that a caller gives; without one, the files beside the tokenizer name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The token that stands for the start of a text.
    pub bos: Option<String>,
    /// The token that stands for its end.
    pub eos: Option<String>,
}

impl SpecialTokens {
    /// Returns `true` if nothing is named.
    pub(super) fn is_empty(&self) -> bool {
        self.bos.is_none() && self.eos.is_none()
    }
}

/// The special tokens of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) bos: Option<String>,
    /// The end of a text comes first.
    pub(super) eos: Vec<String>,
    /// Disagreements, in words.
    pub(super) notes: Vec<String>,
}

/// The part of a `tokenizer.json` that is looked at here.
#[derive(Deserialize)]
struct Tokenizer {
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Deserialize)]
struct Added {
    id: u64,
    content: String,
}

/// The tokens that one file names under one key.
struct Said {
    file: &'static str,
    key: &'static str,
    tokens: Vec<String>,
}

/// The special tokens that the files of a folder name. `tokenizer` holds the contents of its `tokenizer.json`.
///
/// Numbers count only where they are those of added tokens: settings that nobody set hold the numbers of another family.
pub(super) fn beside(folder: &Path, tokenizer: &[u8], given: &SpecialTokens) -> Result<Found> {
    // A tokenizer that cannot be read is refused where it is opened.
    let parsed: Tokenizer = serde_json::from_slice(tokenizer).unwrap_or(Tokenizer {
        added_tokens: Vec::new(),
    });
    let added = parsed.added_tokens.into_iter();
    let names: HashMap<u64, String> = added.map(|token| (token.id, token.content)).collect();
    let mut settings = Vec::new();
    for file in [CONFIG, GENERATION, TOKENIZER_SETTINGS] {
        settings.push((file, read(&folder.join(file))?));
    }
    let said = |numbered: &'static str, named: &'static str| {
        let mut all = Vec::new();
        for (file, settings) in &settings {
            let path = folder.join(file);
            let (key, tokens) = match *file {
                TOKENIZER_SETTINGS => (named, name(settings, named, &path)?.into_iter().collect()),
                _ => (numbered, numbers(settings, numbered, &path, &names)?),
            };
            if !tokens.is_empty() {
                all.push(Said { file, key, tokens });
            }
        }
        Ok::<_, RunError>(all)
    };
    let (bos, eos) = (
        said("bos_token_id", "bos_token")?,
        said("eos_token_id", "eos_token")?,
    );
    let mut found = Found::default();
    found
        .notes
        .extend(disagreement(&bos, given.bos.as_deref(), "--bos"));
    found
        .notes
        .extend(disagreement(&eos, given.eos.as_deref(), "--eos"));
    let first = |said: &[Said]| said.first().and_then(|said| said.tokens.first().cloned());
    found.bos = given.bos.clone().or_else(|| first(&bos));
    let ends = eos.into_iter().flat_map(|said| said.tokens);
    for end in given.eos.clone().into_iter().chain(ends) {
        if !found.eos.contains(&end) {
            found.eos.push(end);
        }
    }
    Ok(found)
}

/// The files that name another first token than the file before them, unless the caller has decided.
fn disagreement(said: &[Said], given: Option<&str>, flag: &str) -> Option<String> {
    let (first, others) = said.split_first()?;
    let token = first.tokens.first()?;
    let other = others.iter().find(|other| !other.tokens.contains(token))?;
    if given.is_some() {
        return None;
    }
    Some(format!(
        "{} of {} names {token:?}, and {} of {} names {:?}; the first is taken, and {flag} names another",
        first.key, first.file, other.key, other.file, other.tokens[0]
    ))
}

fn read(path: &Path) -> Result<Map<String, Value>> {
    if !files::exists(path) {
        return Ok(Map::new());
    }
    serde_json::from_slice(&read_plain(path, MAX_SETTINGS)?).map_err(|error| {
        RunError::damaged(
            path,
            format!("expected a JSON object, got invalid JSON ({error})"),
        )
    })
}

/// The added tokens that a key names by one number or by several.
fn numbers(
    settings: &Map<String, Value>,
    key: &str,
    path: &Path,
    names: &HashMap<u64, String>,
) -> Result<Vec<String>> {
    let values = match settings.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
    };
    let mut tokens = Vec::new();
    for value in values {
        // Some programs write -1 for none.
        if value.as_i64().is_some_and(|number| number < 0) {
            continue;
        }
        let Some(number) = value.as_u64() else {
            return Err(refused(path, key, "a number or a list of numbers", value));
        };
        tokens.extend(names.get(&number).cloned());
    }
    Ok(tokens)
}

/// The token that a key names by its text, or by an object with its text.
fn name(settings: &Map<String, Value>, key: &str, path: &Path) -> Result<Option<String>> {
    let value = match settings.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(token)) => token.get("content").unwrap_or(&Value::Null),
        Some(value) => value,
    };
    match value {
        Value::String(name) => Ok(Some(name.clone())),
        other => Err(refused(
            path,
            key,
            "a text, or an object with the key content",
            other,
        )),
    }
}

fn refused(path: &Path, key: &str, expected: &str, got: &Value) -> RunError {
    let got: String = got.to_string().chars().take(60).collect();
    RunError::damaged(path, format!("{key}: expected {expected}, got {got}"))
}

/// The `tokenizer_config.json` that names the special tokens of an export, where they are not those that a reader finds without it.
pub(crate) fn settings(vocab: &undertone_data::Vocab, tokenizer: &[u8]) -> Option<(String, Vec<u8>)> {
    let special = vocab.special();
    let path = PathBuf::from(TOKENIZER_SETTINGS);
    let found = undertone_vocabulary::parse_tokenizer(&path, tokenizer.to_vec(), None, None);
    if found.is_ok_and(|found| found.special() == special) {
        return None;
    }
    let mut settings = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": vocab.word(special.bos),
        "eos_token": vocab.word(special.eos),
    });
    if let Some(unk) = special.unk {
        settings["unk_token"] = vocab.word(unk).into();
    }
    let mut text = serde_json::to_vec_pretty(&settings).ok()?;
    text.push(b'\n');
    Some((TOKENIZER_SETTINGS.to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENIZER: &str = r#"{"added_tokens": [{"id": 0, "content": "<begin>"}, {"id": 1, "content": "<end>"}, {"id": 7, "content": "<turn>"}], "model": {}}"#;

    fn found(files: &[(&str, &str)], given: &SpecialTokens) -> Result<Found> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        beside(folder.path(), TOKENIZER.as_bytes(), given)
    }

    #[test]
    fn the_first_file_that_names_a_token_decides_and_every_end_ends_a_text() {
        let check = |files: &[(&str, &str)], bos: Option<&str>, eos: &[&str], notes: usize| {
            let found = found(files, &SpecialTokens::default()).unwrap();
            assert_eq!(
                (found.bos.as_deref(), found.notes.len()),
                (bos, notes),
                "{files:?}"
            );
            assert_eq!(found.eos, eos, "{files:?}");
        };
        let config = ("config.json", r#"{"bos_token_id": 0, "eos_token_id": 1}"#);
        let generation = ("generation_config.json", r#"{"eos_token_id": [7, 1]}"#);
        let named = (
            "tokenizer_config.json",
            r#"{"bos_token": {"content": "<begin>"}, "eos_token": "<turn>"}"#,
        );
        check(&[], None, &[], 0);
        check(&[config], Some("<begin>"), &["<end>"], 0);
        check(&[generation], None, &["<turn>", "<end>"], 0);
        check(&[named], Some("<begin>"), &["<turn>"], 0);
        // The settings of generation name the end of config.json, too, and tokenizer_config.json does not.
        check(&[config, generation], Some("<begin>"), &["<end>", "<turn>"], 0);
        check(
            &[config, generation, named],
            Some("<begin>"),
            &["<end>", "<turn>"],
            1,
        );
        check(&[config, named], Some("<begin>"), &["<end>", "<turn>"], 1);
        // Numbers of ordinary tokens, of none, and no numbers.
        check(
            &[("config.json", r#"{"bos_token_id": 3, "eos_token_id": -1}"#)],
            None,
            &[],
            0,
        );
        check(
            &[
                ("config.json", r#"{"bos_token_id": 3, "eos_token_id": null}"#),
                named,
            ],
            Some("<begin>"),
            &["<turn>"],
            0,
        );
    }

    #[test]
    fn a_callers_choice_comes_first_and_ends_by_the_others_stay() {
        let given = SpecialTokens {
            bos: Some("<turn>".to_owned()),
            eos: Some("<begin>".to_owned()),
        };
        let config = ("config.json", r#"{"bos_token_id": 0, "eos_token_id": [1, 7]}"#);
        let found = found(&[config], &given).unwrap();
        assert_eq!(found.bos.as_deref(), Some("<turn>"));
        assert_eq!(found.eos, ["<begin>", "<end>", "<turn>"]);
    }

    #[test]
    fn values_of_other_types_are_errors_that_name_file_and_key() {
        for (file, text, parts) in [
            (
                "config.json",
                r#"{"bos_token_id": "0"}"#,
                ["config.json", "bos_token_id: expected a number"],
            ),
            ("config.json", "[", ["config.json", "expected a JSON object"]),
            (
                "generation_config.json",
                r#"{"eos_token_id": [1, {}]}"#,
                ["generation_config.json", "eos_token_id"],
            ),
            (
                "tokenizer_config.json",
                r#"{"eos_token": 7}"#,
                ["tokenizer_config.json", "eos_token: expected a text"],
            ),
        ] {
            let message = found(&[(file, text)], &SpecialTokens::default())
                .unwrap_err()
                .to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
