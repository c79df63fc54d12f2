//! The public form of a configuration: the text of `config.toml` or `task.toml` with its private parts blank.
//!
//! PRIVACY: a value of a published file is written by a person for strangers, or computed from releases. Paths are neither: they name users,
//! folders and text. The number and the digest of a table's rows, which earlier versions wrote, are exact functions of people's text.
//!
//! The ledger of a run follows the public form, and `publish` writes it. So the published text is the one that the ledger follows.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::syntax_error;
use crate::error::{DirectoryError, Result};

/// The keys whose values no stranger sees. A test walks all keys of a configuration and demands a class for each.
pub const PRIVATE: &[&str] = &[
    "data.source.path",
    "data.source.rows",
    "data.source.sha256",
    "data.vocabulary.path",
    "initial_adapters",
    "initial_model",
    "privacy.mechanism.file",
    "vocabulary.path",
];

/// The text with the values of its private keys blank, and every other byte as it was.
///
/// # Errors
/// [`DirectoryError::ConfigSyntax`] with line and column; `path` only names the text.
pub fn public(text: &str, path: &Path) -> Result<String> {
    let mut public = text.to_owned();
    // From the last to the first, so that places stay.
    for part in private_parts(text, path)?.into_iter().rev() {
        public.replace_range(part.place, part.blank);
    }
    Ok(public)
}

/// A private key with a value.
#[derive(Debug)]
pub struct PrivatePart {
    /// The key, with dots.
    pub key: &'static str,
    place: Range<usize>,
    blank: &'static str,
}

/// The private keys that are not blank, in their order in the text.
///
/// # Errors
/// The errors of [`public`].
pub fn private_parts(text: &str, path: &Path) -> Result<Vec<PrivatePart>> {
    let table = DeTable::parse(text).map_err(|error| DirectoryError::ConfigSyntax {
        file: path.to_owned(),
        message: syntax_error(text, &error),
    })?;
    let mut found: Vec<PrivatePart> = (PRIVATE.iter())
        .filter_map(|&key| {
            let (place, blank) = value_of(table.get_ref(), key)?;
            (&text[place.clone()] != blank).then_some(PrivatePart { key, place, blank })
        })
        .collect();
    found.sort_by_key(|part| part.place.start);
    Ok(found)
}

/// The place of the value of a key, and its blank; `None` where the table has no such value.
fn value_of(table: &DeTable<'_>, key: &str) -> Option<(Range<usize>, &'static str)> {
    let (first, rest) = match key.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (key, None),
    };
    let (_, value) = table.iter().find(|(name, _)| name.get_ref() == first)?;
    match (value.get_ref(), rest) {
        (DeValue::Table(inner), Some(rest)) => value_of(inner, rest),
        (DeValue::String(_), None) => Some((value.span(), "\"\"")),
        (DeValue::Integer(_), None) => Some((value.span(), "0")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::session_config::SessionConfig;
    use std::collections::BTreeSet;

    use undertone_coordinator::task::TaskFile;

    use super::*;
    use crate::config::RunConfig;

    #[test]
    fn private_values_are_blank_and_every_other_byte_stays() {
        let text = "name = \"run\" # a note\ninitial_model = '/home/ann/start.safetensors'\n\n[data]\nmin_examples = 3\n\
                    vocabulary = { kind = \"file\", path = \"words of ann.txt\" }\n[data.source]\nkind = \"jsonl\"\n\
                    path = \"\"\"/srv/pat\\u0069ents\"\"\"\nuser = \"path\"\n\n[privacy.mechanism]\nfile = \"m.json\"\n";
        let expected = "name = \"run\" # a note\ninitial_model = \"\"\n\n[data]\nmin_examples = 3\n\
                        vocabulary = { kind = \"file\", path = \"\" }\n[data.source]\nkind = \"jsonl\"\npath = \"\"\n\
                        user = \"path\"\n\n[privacy.mechanism]\nfile = \"\"\n";
        let path = Path::new("config.toml");
        let blank = public(text, path).unwrap();
        assert_eq!(blank, expected);
        assert_eq!(public(&blank, path).unwrap(), blank, "a public text is its own");
        let keys: Vec<_> = private_parts(text, path)
            .unwrap()
            .iter()
            .map(|part| part.key)
            .collect();
        let all = [
            "initial_model",
            "data.vocabulary.path",
            "data.source.path",
            "privacy.mechanism.file",
        ];
        assert_eq!(keys, all);
        assert!(private_parts(&blank, path).unwrap().is_empty());
        let table = "[data.source]\nkind = \"memory\"\nrows = 481\nsha256 = \"4386\"\n";
        let expected = "[data.source]\nkind = \"memory\"\nrows = 0\nsha256 = \"\"\n";
        assert_eq!(public(table, path).unwrap(), expected);
        let error = public("a = [", path).unwrap_err().to_string();
        assert!(error.contains("config.toml"), "{error}");
    }

    /// Every key of a table of settings that the type `T` knows, found by the error about a key that it does not know.
    fn keys<T: serde::de::DeserializeOwned>(
        table: &toml::Table,
        path: &str,
        whole: &toml::Table,
        found: &mut BTreeSet<String>,
    ) {
        let mut probed = whole.clone();
        let mut here = &mut probed;
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let next = here.get_mut(part).unwrap();
            here = match next {
                toml::Value::Array(tables) => tables[0].as_table_mut().unwrap(),
                other => other.as_table_mut().unwrap(),
            };
        }
        here.insert("stranger".to_owned(), 1.into());
        let error = toml::Value::Table(probed).try_into::<T>().err();
        let error = error
            .unwrap_or_else(|| panic!("[{path}] takes every key"))
            .to_string();
        let (_, expected) = error.split_once("unknown field `stranger`,").unwrap_or_else(|| {
            panic!("[{path}]: {error}");
        });
        let dotted = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        let line = expected.lines().next().unwrap_or_default();
        found.extend(line.split('`').skip(1).step_by(2).map(dotted));
        for (name, value) in table {
            let first = match value {
                toml::Value::Array(values) => values.first(),
                other => Some(other),
            };
            if let Some(toml::Value::Table(inner)) = first {
                keys::<T>(inner, &dotted(name), whole, found);
            }
        }
    }

    fn all_keys<T: serde::de::DeserializeOwned>(samples: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for sample in samples.split("---\n") {
            let table: toml::Table = toml::from_str(sample).unwrap();
            table
                .clone()
                .try_into::<T>()
                .unwrap_or_else(|error: toml::de::Error| panic!("{sample}: {error}"));
            keys::<T>(&table, "", &table, &mut found);
        }
        found
    }

    /// A key that is new in the types of a configuration has no class, and this test fails until somebody says who may read it.
    #[test]
    fn every_key_of_a_configuration_is_written_for_strangers_or_private() {
        let mut found = all_keys::<RunConfig>(RUNS);
        found.extend(all_keys::<SessionConfig>(SESSION));
        found.extend(all_keys::<TaskFile>(TASK));
        let open: BTreeSet<&str> = OPEN.split_whitespace().collect();
        let strangers: Vec<&str> = (found.iter().map(String::as_str))
            .filter(|key| !open.contains(key) && !PRIVATE.contains(key))
            .collect();
        assert!(
            strangers.is_empty(),
            "keys without a class: {}",
            strangers.join(" ")
        );
        let gone: Vec<&&str> = open
            .iter()
            .chain(PRIVATE)
            .filter(|key| !found.contains(**key))
            .collect();
        assert!(gone.is_empty(), "no type has these keys: {gone:?}");
        assert!(PRIVATE.iter().all(|key| !open.contains(key)));
    }

    /// Run files, with a line between two of them. Together they have every table that a run file can have.
    const RUNS: &str = r#"
name = "a"
seed = 1
rounds = 3
initial_model = "m"
initial_adapters = "n"
data = { source = { kind = "synthetic" }, keep = { kind = "random" }, split = { kind = "held_out_users" } }
model = { family = "dplm" }
cohort.users_per_round = 5
cohort.timers = { charging = {}, daytime = {}, zones = [{ utc_offset_hours = 0.0, share = 1.0 }] }
user_update = {}
clip = { kind = "flat", norm = 1.0 }
estimator = { kind = "fixed_denominator" }
participation = { min_sep = 2 }
privacy = { mechanism = { kind = "tree", restarts = { first = 2, every = 2 } } }
aggregation.min_clients = 2
aggregation.encoding = { kind = "rotated_rounding", scale = 9.0 }
aggregation.dropout = {}
aggregation.graph = { drop_out_rate = 0.1, corrupt_rate = 0.1 }
server = { optimizer = { kind = "sgd" }, decay = { last_fraction = 0.5, final_factor = 0.1 } }
schedule = [{ from_round = 1 }]
estimate = { population = 9, users_per_round = 5.0 }
evaluation = {}
checkpoint = {}
audit = {}
engine = { kind = "emulator" }
---
name = "a"
rounds = 3
data.source = { kind = "parquet", path = "p" }
data.vocabulary = { kind = "file", path = "v" }
data.split = { kind = "time", test_after = 5 }
model = { family = "stackoverflow" }
cohort = { timers = { devices = [{ share = 1.0, night_probability = 1.0 }] } }
user_update = {}
clip = { kind = "per_layer", norm = 1.0 }
estimator = { kind = "clipped_denominator", min_weight = 1.0 }
aggregation = { min_clients = 2, encoding = { kind = "binomial", levels = 3, trials = 4 } }
server = { optimizer = { kind = "adam" } }
engine = { kind = "gpu" }
---
name = "a"
rounds = 3
data.source = { kind = "jsonl", path = "p" }
data.vocabulary = { kind = "tokenizer", path = "v" }
data.split = { kind = "column" }
model = { family = "cifg" }
cohort = {}
user_update = {}
clip = { kind = "adaptive", initial_norm = 1.0 }
aggregation = { min_clients = 2, encoding = { kind = "skellam", scale = 9.0 } }
server = { optimizer = { kind = "adamw" } }
---
name = "a"
rounds = 3
data.source = { kind = "csv", path = "p" }
data.vocabulary = { kind = "private", path = "v" }
model = { family = "transformer", layers = 1, width = 4, heads = 1, lora = { rank = 1, alpha = 1.0 } }
cohort = {}
user_update = {}
aggregation = { min_clients = 2, encoding = { kind = "discrete_gaussian", scale = 9.0 } }
server = { optimizer = { kind = "adafactor" } }
---
name = "a"
rounds = 3
data.source = { kind = "grouped", path = "p" }
data.vocabulary = { kind = "training_data", size = 3 }
model = { family = "llama", layers = 1, width = 4, heads = 1, inner = 4 }
cohort = {}
user_update = {}
---
name = "a"
rounds = 3
data.source = { kind = "memory" }
data.vocabulary = { kind = "public_corpus", path = "v", size = 3 }
data.keep = { kind = "earliest" }
model = { family = "external", tensors = [{ name = "w", shape = [2] }] }
cohort = {}
user_update = {}
"#;

    const SESSION: &str = r#"
name = "s"
rounds = 3
users = 9
model = { family = "external", tensors = [{ name = "w", shape = [2] }] }
cohort = {}
user_update = {}
"#;

    const TASK: &str = r#"
name = "t"
rounds = 3
vocabulary = { kind = "file", path = "v" }
text = {}
model = { family = "dplm" }
cohort = {}
user_update = {}
service.group = { target = 4, min = 3 }
service.deadlines = {}
service.eligibility = {}
service.budget = {}
service.pace = {}
"#;

    /// The keys that a person writes for everybody to read.
    const OPEN: &str = "
        aggregation aggregation.dropout aggregation.dropout.before_keys aggregation.dropout.before_shares
        aggregation.dropout.before_unmask aggregation.dropout.before_upload aggregation.encoding
        aggregation.encoding.levels aggregation.encoding.rotate aggregation.encoding.scale
        aggregation.encoding.trials aggregation.graph aggregation.graph.corrupt_rate
        aggregation.graph.drop_out_rate aggregation.graph.failure_bits aggregation.graph.privacy_bits
        aggregation.max_clients aggregation.min_clients aggregation.sum audit audit.holdback audit.lane
        audit.noise_probe audit.replay_every checkpoint checkpoint.every clip clip.bit_noise_std
        clip.initial_norm clip.learning_rate clip.norm clip.normalised clip.norms clip.quantile cohort
        cohort.compute_budget cohort.examples_per_round cohort.population cohort.sampling
        cohort.sampling_probability cohort.timers cohort.timers.charging
        cohort.timers.charging.length_hours cohort.timers.charging.length_spread_hours
        cohort.timers.charging.nightly_spread_hours cohort.timers.charging.start_hour
        cohort.timers.charging.start_spread_hours cohort.timers.daytime cohort.timers.daytime.from_hour
        cohort.timers.daytime.length_hours cohort.timers.daytime.probability
        cohort.timers.daytime.until_hour cohort.timers.device_spread cohort.timers.devices
        cohort.timers.devices.night_probability cohort.timers.devices.share cohort.timers.drop_out
        cohort.timers.min_round_minutes cohort.timers.over_selection cohort.timers.report_goal
        cohort.timers.report_minutes cohort.timers.report_spread cohort.timers.round_timeout_minutes
        cohort.timers.timer_hours cohort.timers.zones cohort.timers.zones.share
        cohort.timers.zones.utc_offset_hours cohort.users_per_round data data.examples data.keep
        data.keep.seed data.max_example_tokens data.max_examples data.max_sentence_tokens data.max_tokens
        data.min_examples data.min_tokens data.source data.source.delimiter data.source.dialect
        data.source.habit_strength data.source.habits data.source.header data.source.longest_sentence
        data.source.max_sentences data.source.median_sentences data.source.records data.source.seed
        data.source.sentence_spread data.source.split data.source.successor_strength data.source.text
        data.source.time data.source.time_unit data.source.topic_strength data.source.topics data.source.user data.source.users data.source.words data.source.zipf_exponent
        data.split data.split.seed data.split.test data.split.test_after data.split.validation
        data.split.validation_users data.vocabulary data.vocabulary.bos data.vocabulary.eos
        data.vocabulary.size data.vocabulary.text data.words engine engine.precision engine.users estimate
        estimate.delta estimate.population estimate.rounds estimate.users_per_round estimator
        estimator.expected_weight estimator.min_weight evaluation evaluation.eos evaluation.every
        evaluation.final_max_tokens evaluation.max_tokens evaluation.split kind loss_cap model
        model.biases model.cells model.context model.embed model.embedding model.feed_forward model.gate
        model.head_norms model.head_width model.heads model.hidden model.inner model.key_heads
        model.layers model.local_rotary model.lora model.lora.alpha model.lora.rank model.lora.targets
        model.norm_epsilon model.output_norms model.positions model.projection model.query_scalar
        model.recompute model.rotary_base model.rotary_scaling model.rows model.scaled_embedding
        model.soft_caps model.tensors model.tensors.name model.tensors.shape model.tied model.unit_norm
        model.width name of participation participation.max_part participation.min_sep
        participation.on_violation privacy privacy.accountant privacy.delta privacy.max_epsilon
        privacy.mechanism privacy.mechanism.bands privacy.mechanism.buffers privacy.mechanism.kind
        privacy.mechanism.objective privacy.mechanism.restarts privacy.mechanism.restarts.every
        privacy.mechanism.restarts.first privacy.mechanism.workload privacy.noise_multiplier
        privacy.target_epsilon rounds schedule schedule.clip_norm schedule.from_round
        schedule.noise_multiplier seed server server.decay server.decay.final_factor
        server.decay.last_fraction server.learning_rate server.optimizer server.optimizer.beta1
        server.optimizer.beta2 server.optimizer.clipping_threshold server.optimizer.decay_exponent
        server.optimizer.epsilon server.optimizer.momentum server.optimizer.weight_decay service
        service.budget service.budget.battery_percent service.budget.cpu service.budget.upload_kbps_min
        service.deadlines service.deadlines.attempt service.deadlines.keys service.deadlines.lobby
        service.deadlines.report service.deadlines.select service.deadlines.shares
        service.deadlines.unmask service.deadlines.upload service.eligibility
        service.eligibility.max_examples service.eligibility.min_client_version
        service.eligibility.min_examples service.eligibility.timer service.forget_pseudonyms service.group
        service.group.least service.group.min service.group.target service.identity service.ledger service.max_clip_norm
        service.over_selection service.pace service.pace.checkins_per_needed service.pace.min_interval
        text text.examples text.max_example_tokens text.max_sentence_tokens text.words unit_rng user_update
        user_update.algorithm user_update.batch_size user_update.batching user_update.clip_every_step
        user_update.epochs user_update.group_size user_update.learning_rate user_update.max_examples
        user_update.max_steps user_update.unroll user_update.weight_cap users vocabulary
    ";
}
