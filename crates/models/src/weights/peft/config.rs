//! The settings of adapters that `peft` wrote, and which of them this program computes with.

use crate::error::{ModelError, Result};
use serde_json::{Map, Value};

/// Settings that change nothing in what finished adapters compute: how they are found, begun and trained.
const WITHOUT_EFFECT: [&str; 26] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    // Which way the matrices of the base are stored. Adapters are stored one way.
    "fan_in_fan_out",
    "inference_mode",
    // Which matrices have adapters, the names in the file say.
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    // Read below.
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "peft_type",
    "r",
    "use_rslora",
];

/// The settings that the tensors of adapters do not show.
pub(super) struct Settings {
    rank: u64,
    alpha: f64,
    /// Ranks of single matrices, which their tensors show.
    has_ranks: bool,
    by_root: bool,
}

impl Settings {
    /// Reads `adapter_config.json`.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let settings: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| refused("the file", "an object of JSON", error))?;
        let absent = Value::Null;
        let get = |key: &str| settings.get(key).unwrap_or(&absent);
        if get("peft_type") != "LORA" {
            return Err(refused("peft_type", "\"LORA\"", get("peft_type")));
        }
        if !matches!(get("bias"), Value::Null) && get("bias") != "none" {
            let expected = "\"none\", since the biases of the base stay as they are";
            return Err(refused("bias", expected, get("bias")));
        }
        // The other ways to begin change the base, too, so the adapters fit no model that is stored anywhere.
        match get("init_lora_weights") {
            Value::Null | Value::Bool(_) => {}
            Value::String(way) if ["gaussian", "eva", "orthogonal"].contains(&&**way) => {}
            other => {
                let expected =
                    "true, false, \"gaussian\", \"eva\" or \"orthogonal\", which leave the base as it is";
                return Err(refused("init_lora_weights", expected, other));
            }
        }
        for (key, value) in &settings {
            let is_empty = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(values) => values.is_empty(),
                Value::Object(values) => values.is_empty(),
                _ => false,
            };
            if !is_empty && key != "rank_pattern" && !WITHOUT_EFFECT.contains(&&**key) {
                return Err(refused(key, "none, since it is not supported here", value));
            }
        }
        let rank = get("r").as_u64().filter(|&rank| rank > 0);
        let rank = rank.ok_or_else(|| refused("r", "a whole number of at least 1", get("r")))?;
        let alpha = get("lora_alpha").as_f64().filter(|alpha| *alpha > 0.0);
        let by_root = match get("use_rslora") {
            Value::Null => false,
            Value::Bool(given) => *given,
            other => return Err(refused("use_rslora", "true or false", other)),
        };
        let has_ranks = match get("rank_pattern") {
            Value::Null => false,
            Value::Object(ranks) => !ranks.is_empty(),
            other => return Err(refused("rank_pattern", "an object", other)),
        };
        Ok(Self {
            rank,
            alpha: alpha.ok_or_else(|| refused("lora_alpha", "a number above 0", get("lora_alpha")))?,
            has_ranks,
            by_root,
        })
    }

    /// The rank that every adapter has; `None` where single matrices have others.
    pub(super) fn rank(&self) -> Option<usize> {
        match self.has_ranks {
            true => None,
            false => usize::try_from(self.rank).ok(),
        }
    }

    /// The factor of the product of an adapter of this rank.
    pub(super) fn scale(&self, rank: usize) -> f64 {
        let rank = rank as f64;
        self.alpha / if self.by_root { rank.sqrt() } else { rank }
    }
}

#[allow(clippy::needless_pass_by_value)] // values and errors alike, without `&` at every call
fn refused(key: &str, expected: &str, got: impl ToString) -> ModelError {
    ModelError::Peft {
        key: key.to_owned(),
        expected: expected.to_owned(),
        got: got.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[allow(clippy::needless_pass_by_value)] // `json!` at every call
    fn parse(change: Value) -> Result<Settings> {
        let mut settings = json!({
            "alora_invocation_tokens": null, "alpha_pattern": {}, "bias": "none", "base_model_name_or_path": "some/base",
            "ensure_weight_tying": false, "init_lora_weights": true, "lora_alpha": 12, "lora_dropout": 0.1, "lora_bias": false,
            "megatron_core": "megatron.core", "modules_to_save": null, "peft_type": "LORA", "qalora_group_size": 16, "r": 4,
            "rank_pattern": {}, "target_modules": ["q_proj"], "use_dora": false, "use_rslora": false,
        });
        let own = settings.as_object_mut().unwrap();
        for (key, value) in change.as_object().unwrap() {
            own.insert(key.clone(), value.clone());
        }
        Settings::parse(settings.to_string().as_bytes())
    }

    #[test]
    fn the_scale_is_alpha_over_the_rank_or_over_its_root() {
        let plain = parse(json!({})).unwrap();
        assert_eq!((plain.rank(), plain.scale(4)), (Some(4), 3.0));
        let root = parse(json!({"use_rslora": true, "rank_pattern": {"q_proj": 9}})).unwrap();
        assert_eq!((root.rank(), root.scale(9)), (None, 4.0));
    }

    #[test]
    fn settings_that_change_what_adapters_compute_are_refused_by_name() {
        for (change, message) in [
            (
                json!({"peft_type": "IA3"}),
                "`peft_type` in adapter_config.json: expected \"LORA\", got \"IA3\"",
            ),
            (
                json!({"bias": "all"}),
                "`bias` in adapter_config.json: expected \"none\"",
            ),
            (
                json!({"use_dora": true}),
                "`use_dora` in adapter_config.json: expected none",
            ),
            (json!({"lora_bias": true}), "`lora_bias`"),
            (json!({"modules_to_save": ["lm_head"]}), "`modules_to_save`"),
            (json!({"alpha_pattern": {"q_proj": 3}}), "`alpha_pattern`"),
            (json!({"layer_replication": [[0, 2]]}), "`layer_replication`"),
            (
                json!({"trainable_token_indices": [1]}),
                "`trainable_token_indices`",
            ),
            (json!({"a_setting_of_tomorrow": 1}), "`a_setting_of_tomorrow`"),
            (json!({"init_lora_weights": "pissa"}), "`init_lora_weights`"),
            (
                json!({"r": 0}),
                "`r` in adapter_config.json: expected a whole number of at least 1, got 0",
            ),
            (json!({"r": "4"}), "`r`"),
            (json!({"lora_alpha": -1}), "`lora_alpha`"),
            (json!({"use_rslora": 1}), "`use_rslora`"),
        ] {
            let error = parse(change).map(drop).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(Settings::parse(b"[1]").is_err() && Settings::parse(b"{").is_err());
    }
}
