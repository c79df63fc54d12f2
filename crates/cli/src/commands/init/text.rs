//! The text of the run file, with the reasons of its settings.

use undertone_present::numbers::{grouped, number};

use super::Facts;
use super::choice::{Choice, MAX_EXAMPLES};

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// The run file.
pub(super) fn run_file(facts: &Facts, choice: &Choice) -> String {
    let Facts {
        name,
        corpus,
        users,
        epsilon,
        delta,
        minutes,
        start,
    } = facts;
    let Choice {
        training_users,
        rounds,
        sampling_probability,
        users_per_round,
        noise_multiplier,
        parameters,
        reach,
        clip_norm,
        learning_rate,
        ..
    } = choice;
    let (training, cohort) = (grouped(*training_users), grouped(users_per_round.round() as u64));
    let (parameters, noise, reach) = (grouped(*parameters), number(*noise_multiplier), number(*reach));
    let [path, user, text] = [&corpus.path, &corpus.user, &corpus.text].map(|value| quoted(value));
    let words = quoted(&start.words);
    let (kind, model, name) = (corpus.kind, start.model.trim(), quoted(name));
    let every = (rounds / 4).max(1);
    let rule = match start.rule.is_english() {
        true => "# The start cuts its text by the rule of English alone, so the run does.\n".to_owned(),
        false => format!(
            "# The rule of words and sentences for every language. Without this line, text is cut by the rule of English.\nwords = {}\n",
            quoted(start.rule.name())
        ),
    };
    let begin = match &start.folder {
        Some(folder) => format!(
            "# The public start. Its text has no part in the guarantee, so it must hold no text of the users. It must have their language: a
# start of another language is worse than none. Without a start, the noise would drown much of what a small population can teach.
initial_model = {}
",
            quoted(&format!("{folder}/model.safetensors"))
        ),
        None => "# The run starts from random parameters, because no public text is like that of the users. If there is one, the model of
# `undertone init --public` is better.
"
        .to_owned(),
    };
    let (words_from, model_from, step, server) = match &start.folder {
        Some(_) => (
            "The words of the start: chosen on public text, they cost no privacy.",
            "The model of the start",
            "A start that knows the language needs small steps, and the noise shrinks with
# the norm. Norms from 0.02 to 1.0 were compared; with less reach, a smaller one is better.",
            "Momentum averages the noise of rounds, and the decay settles the model.
[server]
optimizer = { kind = \"sgd\", momentum = 0.9 }
decay = { last_fraction = 0.5, final_factor = 0.05 }",
        ),
        None => (
            "Public words cost no privacy. They must not have been chosen on the text of the users.",
            "A small LSTM with tied embeddings",
            "The noise is in proportion to it.",
            "Momentum averages the noise of rounds. There is no decay, because the model still learns in the last round.
[server]
optimizer = { kind = \"sgd\", momentum = 0.9 }
learning_rate = 2.0",
        ),
    };
    format!(
        r#"# A private run, written by `undertone init` from public and declared facts: {users} users, epsilon {epsilon}, delta {delta:e}, and
# {minutes} minutes on this machine. The text of the users was not opened.
#
# Do not try several settings on this corpus and keep the best model: each try is a release of its own.
name = {name}
rounds = {rounds}

{begin}
[data]
source = {{ kind = "{kind}", path = {path}, user = {user}, text = {text} }}
# {words_from}
vocabulary = {{ kind = "file", path = {words} }}
{rule}
# {model_from}: {parameters} parameters. The norm of the noise grows with the root of their number.
{model}

# In each round, each user takes part with this probability: about {cohort} of {training} training users. A fifth of the users is held out.
# Users are sampled, not examples: a guarantee for users under example-level sampling needs a cap on the examples of each user, and
# `undertone advise` spends privacy to choose it. A secret sample makes independent noise cheaper than correlated noise, which pays where
# the cohort is known (docs/guide/ftrl.md).
[cohort]
sampling = "poisson"
sampling_probability = {sampling_probability}

# A user's local training: one pass over at most {MAX_EXAMPLES} sentences. No user, however much they wrote, does more.
[user_update]
algorithm = "fedavg"
batch_size = 8
learning_rate = {learning_rate:?}
max_examples = {MAX_EXAMPLES}

# The whole update of a user has at most this L2 norm. {step}
[clip]
kind = "flat"
norm = {clip_norm:?}

# The noise is computed from the guarantee: with the users as declared, its multiplier is {noise}. Training could then move the parameters
# {reach} times as far as the noise does.
[privacy]
target_epsilon = {epsilon:?}
delta = {delta:e}

# {server}

# Accuracy on the same held-out users at each evaluation. It is an exact statistic of them: keep it to yourself.
[evaluation]
every = {every}
max_tokens = 50000
final_max_tokens = 50000
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_controls_in_names_stay_inside_their_strings() {
        for name in ["a\"b", "a\\b", "a\nseed = 1", "a'b\"\"\"c", "\u{1b}[2J"] {
            let table: toml::Table = toml::from_str(&format!("x = {}", quoted(name))).unwrap();
            assert_eq!(table["x"].as_str(), Some(name));
            assert_eq!(table.len(), 1);
        }
    }
}
