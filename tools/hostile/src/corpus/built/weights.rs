//! Files of models and adapters: tensors, their settings and their index.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{documents, refused};
use crate::corpus::Case;

pub(super) fn safetensors(honest: &[u8]) -> Result<Vec<Case>> {
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    };
    let tensor = |name: &str, kind: &str, shape: &str, offsets: &str| {
        format!("{{{name}:{{\"dtype\":\"{kind}\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}")
    };
    let (length, rest) = honest.split_first_chunk::<8>().context("a header")?;
    let length = u64::from_le_bytes(*length);
    let mut longer = (length + 1).to_le_bytes().to_vec();
    longer.extend(rest);
    Ok(vec![
        refused("empty", ""),
        refused("header-of-all-memory", u64::MAX.to_le_bytes()),
        refused("header-of-a-hundred-megabytes", file("{}", 0)[2..].to_vec()),
        refused("header-longer-by-one", longer),
        refused(
            "shape-that-overflows",
            file(&tensor("\"a\"", "F32", "[4294967296,4294967296]", "[0,0]"), 0),
        ),
        refused(
            "offsets-backwards",
            file(&tensor("\"a\"", "F32", "[1]", "[4,0]"), 4),
        ),
        refused(
            "offsets-beyond",
            file(&tensor("\"a\"", "F32", "[1]", "[0,18446744073709551615]"), 4),
        ),
        refused("another-type", file(&tensor("\"a\"", "BOOL", "[4]", "[0,4]"), 4)),
        refused(
            "name-with-escapes",
            file(
                &tensor("\"\\u001b[2J\\r\\u009b8m\\u202e\"", "F32", "[1]", "[0,4]"),
                4,
            ),
        ),
        refused("deep-header", file(&"[".repeat(100_000), 0)),
        refused(
            "metadata-of-numbers",
            file("{\"__metadata__\":{\"undertone\":7}}", 0),
        ),
        refused(
            "description-that-is-deep",
            file(
                &format!(
                    "{{\"__metadata__\":{{\"undertone\":\"{}\"}}}}",
                    "[".repeat(50_000)
                ),
                0,
            ),
        ),
        refused(
            "layer-of-many-digits",
            file(
                &tensor("\"h.99999999999999999999.ln_1.weight\"", "F32", "[1]", "[0,4]"),
                4,
            ),
        ),
    ])
}

/// A model file whose description asks for four gigabytes of positions.
pub(super) fn described(adapted: &[u8]) -> Result<Vec<u8>> {
    let (length, rest) = adapted.split_first_chunk::<8>().context("a header")?;
    let length = usize::try_from(u64::from_le_bytes(*length))?;
    let header = std::str::from_utf8(&rest[..length])?;
    let changed = header.replacen("\\\"context\\\":16,", "\\\"context\\\":16000048,", 1);
    anyhow::ensure!(changed != header, "the header has no such context");
    let mut file = (changed.len() as u64).to_le_bytes().to_vec();
    file.extend(changed.bytes());
    file.extend(&rest[length..]);
    Ok(file)
}

/// Keys of GPT-2's `config.json` with values that are not to be believed.
pub(super) const GPT2: [(&str, &str); 7] = [
    ("n_head", "0"),
    ("n_head", "18446744073709551615"),
    ("n_layer", "1e400"),
    ("activation_function", "\"\\u001b[2J\""),
    ("layer_norm_epsilon", "-1e308"),
    ("n_head", "[]"),
    ("scale_attn_weights", "false"),
];

/// Settings of `transformers` that no model may have.
pub(super) const LLAMA: [(&str, &str); 14] = [
    ("num_attention_heads", "0"),
    ("num_attention_heads", "18446744073709551615"),
    ("num_key_value_heads", "0"),
    ("num_hidden_layers", "1e400"),
    ("head_dim", "65536"),
    ("hidden_size", "0"),
    ("intermediate_size", "-1"),
    ("vocab_size", "4294967296"),
    ("rms_norm_eps", "0"),
    ("rope_theta", "-1e308"),
    ("rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 0}"),
    (
        "rope_scaling",
        "{\"rope_type\": \"yarn\", \"factor\": 2, \"beta_fast\": 1e-310, \"original_max_position_embeddings\": 16}",
    ),
    ("hidden_act", "\"\\u001b[2J\""),
    ("sliding_window", "[]"),
];

/// Settings of adapters that no adapter has, or that are not supported.
pub(super) const PEFT: [(&str, &str); 9] = [
    ("r", "0"),
    ("r", "18446744073709551615"),
    ("r", "1e400"),
    ("lora_alpha", "-1"),
    ("peft_type", "\"\\u001b[2J\""),
    ("bias", "\"all\""),
    ("use_dora", "true"),
    ("use_rslora", "[]"),
    ("modules_to_save", "[\"lm_head\"]"),
];

/// An index of files that leaves its folder, names what is no file of tensors, or does not fit its files.
pub(super) fn index(honest: &[u8]) -> Result<Vec<Case>> {
    let mut found = documents(honest)?;
    for (name, file) in [
        ("parent", "../runs/llama/model.safetensors"),
        ("absolute", "/etc/passwd"),
        ("device", "/dev/zero"),
        ("hidden", ".safetensors"),
        ("missing", "model-00009-of-00003.safetensors"),
        ("folder", "."),
        ("settings", "config.json"),
    ] {
        let mut document: Value = serde_json::from_slice(honest)?;
        let map = document["weight_map"].as_object_mut().context("a map")?;
        if let Some(first) = map.values_mut().next() {
            *first = json!(file);
        }
        found.push(refused(&format!("file-{name}"), document.to_string()));
    }
    Ok(found)
}

pub(super) fn changes(honest: &[u8], changes: &[(&str, &str)]) -> Result<Vec<Case>> {
    let mut found = documents(honest)?;
    for ((key, value), number) in changes.iter().zip(0..) {
        let mut document: Value = serde_json::from_slice(honest)?;
        document[*key] = json!("RAW");
        let text = document.to_string().replacen("\"RAW\"", value, 1);
        found.push(refused(&format!("{key}-{number}"), text));
    }
    Ok(found)
}
