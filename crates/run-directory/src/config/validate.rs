//! The checks of a run file that its types do not make: its tables against the corpus, and the driver's own ranges.

use undertone_settings::{Algorithm, CorpusSpec, EngineConfig, Precision};
use undertone_text::Examples;

use crate::files::names::MAX_LANE_VALUES;
use undertone_models::ModelSpec;

use super::{AuditConfig, EvaluationConfig, RunConfig};
use crate::error::{DirectoryError, Result};
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::{TaskConfig, at_least_one, check_initial_model, trained_here};

impl RunConfig {
    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// An error that names the key, what was expected and what was found.
    pub fn validate(&self) -> Result<()> {
        if self.task.cohort.sampling == Sampling::CheckIn {
            return Err(DirectoryError::value(
                "cohort.sampling",
                "a scheme that `undertone train` can draw (`device_timers` simulates devices); a task with `check_in` is for \
                 `undertone serve`",
                "check_in",
            ));
        }
        trained_here(&self.task.model)?;
        self.task.validate()?;
        fits_context(&self.task.model, &self.data)?;
        check_initial_model(&self.task.model, self.initial_model.is_some())?;
        if self.initial_adapters.is_some() && self.initial_model.is_none() {
            let expected = "the model that the adapters of `initial_adapters` are added to";
            return Err(DirectoryError::missing("initial_model", expected));
        }
        at_least_one("checkpoint.every", self.checkpoint.every as usize)?;
        token_limits(&self.evaluation)?;
        validate_engine(self.engine, &self.task)?;
        match &self.audit {
            Some(audit) => audit.validate(&self.task),
            None => Ok(()),
        }
    }
}

/// Refuses a task that the machine could never train. Runs of transformers that version 0.2.0 trained on it are read and verified.
fn validate_engine(engine: EngineConfig, task: &TaskConfig) -> Result<()> {
    let (EngineConfig::Gpu { users, precision } | EngineConfig::Emulator { users, precision }) = engine
    else {
        return Ok(());
    };
    if !(1..=EngineConfig::MAX_USERS).contains(&users) {
        let expected = format!("from 1 to {}", EngineConfig::MAX_USERS);
        return Err(DirectoryError::value("engine.users", expected, users));
    }
    if task.aggregation.is_some() {
        let remedy = "remove one of them: updates that a secure sum encodes are trained on the processor";
        return Err(DirectoryError::conflict("aggregation", "engine.kind", remedy));
    }
    if task.model.context().is_some() {
        return Ok(());
    }
    if precision != Precision::F32 {
        return Err(DirectoryError::value("engine.precision", "`f32`", "bf16"));
    }
    match task.user_update.algorithm {
        Algorithm::FedAvg => Ok(()),
        other => Err(DirectoryError::value(
            "user_update.algorithm",
            "`fedavg` on a GPU",
            other.name(),
        )),
    }
}

/// Max number of canaries of an audit. The plan of so many takes a minute, and more of them show no more.
pub const MAX_CANARIES: u64 = 1 << 20;

/// Max number of rounds that a run replays while it runs. Each takes less than 200 bytes of `replays.json`.
pub(crate) const MAX_REPLAYS: u64 = 1 << 16;

/// Max number of examples of a canary under example-level sampling, as many as the accountant allows a user.
const MAX_EXAMPLES: u32 = 1 << 16;

impl AuditConfig {
    /// Refuses numbers out of range, and by name the settings that canaries in a run do not go with.
    pub fn validate(&self, task: &TaskConfig) -> Result<()> {
        let Self {
            lane,
            noise_probe,
            replay_every,
            holdback,
        } = *self;
        if !(0.0..1.0).contains(&holdback) {
            return Err(DirectoryError::value(
                "audit.holdback",
                "a number in [0, 1)",
                holdback,
            ));
        }
        if lane != 0 && !(10..=MAX_CANARIES).contains(&lane) {
            let expected = format!("0, or at least 10 and at most {MAX_CANARIES} canaries");
            return Err(DirectoryError::value("audit.lane", expected, lane));
        }
        let without_lane = lane == 0 && noise_probe == 0 && (replay_every > 0 || holdback > 0.0);
        if noise_probe < 2 && !without_lane {
            let expected =
                "at least 2, or 0 beside `audit.replay_every` or `audit.holdback` and no `audit.lane`";
            return Err(DirectoryError::value("audit.noise_probe", expected, noise_probe));
        }
        if replay_every > 0 && task.privacy.is_none() {
            let expected = "a table: a replay checks the claim of a private run";
            return Err(DirectoryError::missing("privacy", expected));
        }
        if replay_every > 0 && task.rounds / replay_every > MAX_REPLAYS {
            let expected = format!(
                "at least {}, so that at most {MAX_REPLAYS} of {} rounds are replayed",
                task.rounds.div_ceil(MAX_REPLAYS),
                task.rounds
            );
            return Err(DirectoryError::value(
                "audit.replay_every",
                expected,
                replay_every,
            ));
        }
        let values = (lane.saturating_add(noise_probe)).saturating_mul(task.rounds);
        if values > MAX_LANE_VALUES {
            let expected = format!("at most {MAX_LANE_VALUES} values over all rounds");
            return Err(DirectoryError::value(
                "audit.lane, audit.noise_probe",
                expected,
                values,
            ));
        }
        if lane == 0 {
            return Ok(());
        }
        let by_example = task.user_update.algorithm == Algorithm::Els;
        if let Some(examples) = task.user_update.group_size.filter(|size| *size > MAX_EXAMPLES)
            && by_example
        {
            let expected = format!("at most {MAX_EXAMPLES} beside `audit.lane`");
            return Err(DirectoryError::value(
                "user_update.group_size",
                expected,
                examples,
            ));
        }
        let tables = [
            ("schedule", !task.schedule.is_empty()),
            ("estimate", task.estimate.is_some()),
        ];
        if let Some((key, _)) = tables.into_iter().find(|(_, is_set)| *is_set) {
            return Err(DirectoryError::conflict(key, "audit.lane", "remove one of them"));
        }
        let by_schema = (task.privacy.as_ref()).is_some_and(|privacy| privacy.mechanism.is_some());
        if !by_schema && task.cohort.sampling != Sampling::Poisson {
            // PRIVACY: a canary that shadows a user would publish when the user was drawn, which the guarantee keeps secret.
            let expected = "`poisson`, or a participation schema, beside `audit.lane`";
            let got = task.cohort.sampling.name();
            return Err(DirectoryError::value("cohort.sampling", expected, got));
        }
        Ok(())
    }
}

/// Checks that no example is longer than the context of a transformer.
pub fn fits_context(model: &ModelSpec, data: &CorpusSpec) -> Result<()> {
    let Some(context) = model.context() else {
        return Ok(());
    };
    let (key, longest, expected) = match data.examples {
        // BOS is one more.
        Examples::Sentences => (
            "data.max_sentence_tokens",
            data.max_sentence_tokens + 1,
            "less than",
        ),
        // EOS is one of them, and BOS stands in its place before the text.
        Examples::Windows => ("data.max_example_tokens", data.longest_example(), "at most"),
    };
    if longest <= context {
        return Ok(());
    }
    let given = data.longest_example();
    Err(DirectoryError::value(
        key,
        format!("{expected} model.context = {context}"),
        given,
    ))
}

/// Refuses an evaluation of no tokens.
pub fn token_limits(evaluation: &EvaluationConfig) -> Result<()> {
    for (key, tokens) in [
        ("evaluation.max_tokens", evaluation.max_tokens),
        ("evaluation.final_max_tokens", evaluation.final_max_tokens),
    ] {
        if tokens == Some(0) {
            return Err(DirectoryError::value(key, "at least 1", 0));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"
        name = "pairs"
        rounds = 10
        data = { source = { kind = "synthetic", users = 60, words = 40 } }
        model = { family = "dplm", embed = 6, hidden = 8 }
        cohort.users_per_round = 12
        user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
        clip = { kind = "flat", norm = 0.3 }
        estimator = { kind = "fixed_denominator" }
        privacy = { noise_multiplier = 2.0, delta = 1e-5 }
    "#;

    /// The error of the base with these settings; empty if there is none.
    fn error_of(settings: &[&str]) -> String {
        let text = format!("{BASE}\n{}", settings.join("\n"));
        let config: RunConfig = toml::from_str(&text).unwrap();
        config
            .validate()
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn two_keys_that_exclude_each_other_are_named_and_each_alone_is_not() {
        let lane = ("audit.lane", "audit = { lane = 40 }");
        let rows = [
            (
                ("schedule", "schedule = [{ from_round = 3, clip_norm = 0.1 }]"),
                lane,
                "",
            ),
            (
                (
                    "estimate",
                    "estimate = { population = 1000, users_per_round = 20.0 }",
                ),
                lane,
                "",
            ),
            (
                (
                    "aggregation",
                    "cohort.sampling = \"fixed_size\"\naggregation = { min_clients = 2, max_clients = 60 }",
                ),
                ("engine.kind", "engine = { kind = \"emulator\" }"),
                ": updates that a secure sum encodes are trained on the processor",
            ),
        ];
        for ((key, setting), (with, other), reason) in rows {
            assert_eq!(
                error_of(&[setting, other]),
                format!("`{key}` cannot be combined with `{with}`; remove one of them{reason}")
            );
            for alone in [setting, other] {
                assert_eq!(error_of(&[alone]), "", "{alone}");
            }
        }
    }
}
