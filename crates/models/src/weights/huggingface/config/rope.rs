//! Rotary positions in a `config.json`: `rope_parameters`, or in older files `rope_theta` and `rope_scaling`.

use super::{Family, Fields, config_error, shown};
use crate::error::Result;
use crate::transformer::RotaryScaling;
use serde_json::Value;

/// The base of a file that names none.
const BASE: f64 = 10_000.0;

/// The base of all tokens' attention in a file of Gemma 3 that names none.
const GEMMA3: f64 = 1_000_000.0;

/// The rotary positions of a file.
pub(super) struct Rope {
    pub(super) base: f64,
    pub(super) scaling: Option<RotaryScaling>,
    /// The base of the layers that attend to a window, where they have one of their own.
    pub(super) local: Option<f64>,
}

const KINDS: &str = "one of \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\"";

/// The rotary positions of a model whose longest sequence has `longest` tokens.
pub(super) fn read(family: Family, fields: Fields<'_>, longest: usize) -> Result<Rope> {
    let found = ["rope_scaling", "rope_parameters"]
        .into_iter()
        .find_map(|name| Some((name.to_owned(), fields.get(name)?)));
    let named = fields.number("rope_theta")?;
    if family != Family::Gemma3 {
        let (base, scaling) = setting(fields, found, longest, named.unwrap_or(BASE))?;
        return Ok(Rope {
            base,
            scaling,
            local: None,
        });
    }
    let named_local = fields.number("rope_local_base_freq")?.unwrap_or(BASE);
    let parts = |kind: &str| match &found {
        Some((name, Value::Object(map))) => map.get(kind).map(|value| (format!("{name}.{kind}"), value)),
        _ => None,
    };
    let (full, sliding) = (parts("full_attention"), parts("sliding_attention"));
    let (full, sliding) = match (full, sliding) {
        (None, None) => (found.clone(), None),
        (full, sliding) => (full, sliding),
    };
    let (base, scaling) = setting(fields, full, longest, named.unwrap_or(GEMMA3))?;
    let local = match sliding {
        None => named_local,
        Some((name, value)) => match setting(fields, Some((name.clone(), value)), longest, named_local)? {
            (base, None) => base,
            (_, Some(_)) => {
                return Fields::refuse(&name, "the layers that attend to a window without scaling", value);
            }
        },
    };
    Ok(Rope {
        base,
        scaling,
        local: Some(local),
    })
}

/// Base and scaling of one object of settings; `default` is the base where the object names none.
fn setting(
    fields: Fields<'_>,
    found: Option<(String, &Value)>,
    longest: usize,
    default: f64,
) -> Result<(f64, Option<RotaryScaling>)> {
    let Some((name, object)) = found else {
        return Ok((default, None));
    };
    let Value::Object(map) = object else {
        return Fields::refuse(&name, "an object", object);
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
    let base = number("rope_theta")?.unwrap_or(default);
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
