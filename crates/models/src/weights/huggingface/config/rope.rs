//! Rotary positions in a `config.json`: `rope_parameters`, or in older files `rope_theta` and `rope_scaling`.

use super::{Fields, config_error, shown};
use crate::error::Result;
use crate::transformer::RotaryScaling;
use serde_json::Value;

/// The base of a file that names none.
const BASE: f64 = 10_000.0;

const KINDS: &str = "one of \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\"";

/// Base and scaling; `longest` is the longest sequence of the model.
pub(super) fn read(fields: Fields<'_>, longest: usize) -> Result<(f64, Option<RotaryScaling>)> {
    let top = fields.number("rope_theta")?;
    let Some((name, object)) = ["rope_scaling", "rope_parameters"]
        .into_iter()
        .find_map(|name| Some((name, fields.get(name)?)))
    else {
        return Ok((top.unwrap_or(BASE), None));
    };
    let Value::Object(map) = object else {
        return Fields::refuse(name, "an object", object);
    };
    if let Some((key, value)) = map.iter().find(|(_, value)| value.is_object()) {
        return Fields::refuse(
            &format!("{name}.{key}"),
            "one rotary setting for all layers",
            value,
        );
    }
    let inner = Fields(map);
    let named = |key: &str| format!("{name}.{key}");
    let number = |key: &str| -> Result<Option<f64>> {
        match inner.get(key).map(|value| (value, value.as_f64())) {
            Some((value, None)) => Fields::refuse(&named(key), "a number", value),
            found => Ok(found.and_then(|(_, number)| number)),
        }
    };
    let needed =
        |key: &str| number(key)?.ok_or_else(|| config_error(&named(key), "a number", "nothing".to_owned()));
    let base = number("rope_theta")?.or(top).unwrap_or(BASE);
    if let Some(part) = number("partial_rotary_factor")?.filter(|&part| part != 1.0) {
        return Err(config_error(
            &named("partial_rotary_factor"),
            "1",
            part.to_string(),
        ));
    }
    let kind = inner.get("rope_type").or(inner.get("type"));
    let Some(kind) = kind.map_or(Some("default"), Value::as_str) else {
        return Fields::refuse(&named("rope_type"), KINDS, kind.unwrap_or(&Value::Null));
    };
    let original = || -> Result<usize> {
        const KEY: &str = "original_max_position_embeddings";
        let found = fields.get(KEY).or(inner.get(KEY));
        match found.map(|value| {
            (
                value,
                value.as_f64().filter(|size| size.fract() == 0.0 && *size >= 0.0),
            )
        }) {
            None => Ok(longest),
            Some((_, Some(size))) => Ok(size as usize),
            Some((value, None)) => Fields::refuse(&named(KEY), "a whole number", value),
        }
    };
    let scaling = match kind {
        "default" => None,
        // Within the longest sequence, to which a context is limited, this is no scaling.
        "dynamic" => None,
        "linear" => Some(RotaryScaling::Linear {
            factor: needed("factor")?,
        }),
        "llama3" => Some(RotaryScaling::Llama3 {
            factor: needed("factor")?,
            low_frequency: needed("low_freq_factor")?,
            high_frequency: needed("high_freq_factor")?,
            original_context: original()?,
        }),
        "yarn" => {
            let (original_context, factor) = (original()?, number("factor")?);
            let factor = factor.unwrap_or(longest as f64 / original_context.max(1) as f64);
            // As the paper suggests, section 3.4.
            let grown = |scale: f64| {
                if factor <= 1.0 {
                    1.0
                } else {
                    0.1 * scale * factor.ln() + 1.0
                }
            };
            let nonzero = |key| Ok::<_, crate::ModelError>(number(key)?.filter(|&value| value != 0.0));
            let attention_factor = match (
                number("attention_factor")?,
                nonzero("mscale")?,
                nonzero("mscale_all_dim")?,
            ) {
                (Some(given), _, _) => given,
                (None, Some(scale), Some(all)) => grown(scale) / grown(all),
                (None, _, _) => grown(1.0),
            };
            let truncate = match inner.get("truncate") {
                None => true,
                Some(Value::Bool(truncate)) => *truncate,
                Some(other) => return Fields::refuse(&named("truncate"), "true or false", other),
            };
            Some(RotaryScaling::Yarn {
                factor,
                beta_fast: nonzero("beta_fast")?.unwrap_or(32.0),
                beta_slow: nonzero("beta_slow")?.unwrap_or(1.0),
                original_context,
                attention_factor,
                truncate,
            })
        }
        other => {
            return Err(config_error(
                &named("rope_type"),
                KINDS,
                shown(&Value::from(other)),
            ));
        }
    };
    Ok((base, scaling))
}
