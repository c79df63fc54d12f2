//! Models of the library `transformers` against its own logits. `lab/peers/models/huggingface.py` made the folders.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use undertone_models::weights::huggingface::{self, Config, Family, Index, Reader};
use undertone_models::{
    Extension, LlamaSpec, ModelError, ModelSpec, PackedBatch, SequenceModel, StateMode, Transformer,
};

const NAMES: [&str; 8] = [
    "llama",
    "llama-shards",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3",
];

fn file(folder: &str, name: &str) -> Vec<u8> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/huggingface");
    fs::read(root.join(folder).join(name)).unwrap()
}

/// The shards of a folder, in the order of its index.
fn shards(folder: &str) -> Vec<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/huggingface");
    let path = root.join(folder).join("model.safetensors.index.json");
    if !path.exists() {
        return vec![file(folder, "model.safetensors")];
    }
    let index = Index::parse(&fs::read(path).unwrap()).unwrap();
    let shards = index.shards().map(|name| {
        let bytes = file(folder, name);
        index.check(name, &bytes).unwrap();
        bytes
    });
    shards.collect()
}

fn read(config: &Config, shards: &[Vec<u8>]) -> Result<(Transformer, Vec<f32>), ModelError> {
    let model = config.spec().transformer(config.vocab())?.unwrap();
    let bytes = shards.iter().map(|shard| shard.len() as u64).sum();
    let mut reader = Reader::new(config, &model, bytes)?;
    for shard in shards {
        reader.shard(shard)?;
    }
    Ok((model, reader.finish()?))
}

fn llama(config: &Config) -> &LlamaSpec {
    match config.spec() {
        ModelSpec::Llama(llama) => llama,
        other => panic!("{other:?}"),
    }
}

/// Ids, and the logits after each of them.
fn expected(folder: &str) -> (Vec<u32>, Vec<Vec<f64>>) {
    let value: Value = serde_json::from_slice(&file(folder, "logits.json")).unwrap();
    let ids = serde_json::from_value(value["ids"].clone()).unwrap();
    (ids, serde_json::from_value(value["logits"].clone()).unwrap())
}

fn distance(got: &[f32], expected: &[f64]) -> f64 {
    let pairs = got.iter().zip(expected);
    pairs
        .map(|(&got, expected)| (f64::from(got) - expected).abs())
        .fold(0.0, f64::max)
}

#[test]
fn logits_are_those_of_transformers() {
    for folder in NAMES {
        let config = Config::parse(&file(folder, "config.json")).unwrap();
        assert!(shards(folder).iter().all(|shard| huggingface::is(shard).unwrap()));
        let (model, params) = read(&config, &shards(folder)).unwrap();
        let (ids, logits) = expected(folder);
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(&ids, &ids)]);
        let (mut worst, mut largest) = (0.0f64, 0.0f64);
        model
            .worker(1, ids.len())
            .evaluate(&params, &batch, StateMode::Zero, &mut |row, got, _| {
                worst = worst.max(distance(got, &logits[row]));
                largest = logits[row]
                    .iter()
                    .fold(largest, |largest, value| largest.max(value.abs()));
            })
            .unwrap();
        let mut decoder = model.decoder(&params, 1).unwrap();
        let mut got = vec![0.0; config.vocab()];
        for (place, id) in ids.iter().enumerate() {
            let (sequence, tokens) = (0, std::slice::from_ref(id));
            decoder
                .extend(&[Extension { sequence, tokens }], &mut got)
                .unwrap();
            worst = worst.max(distance(&got, &logits[place]));
        }
        println!("{folder}: {worst:.1e} of logits up to {largest:.1}");
        assert!(worst < 1e-4, "{folder}: {worst}");
        assert!(largest > 1.0, "{folder}: {largest}");
    }
}

#[test]
fn written_files_and_configurations_come_back() {
    for folder in NAMES {
        let config = Config::parse(&file(folder, "config.json")).unwrap();
        let (model, params) = read(&config, &shards(folder)).unwrap();
        for max_bytes in [u64::MAX, 5000, 1] {
            let mut written = huggingface::write(&model, &params, max_bytes, "a test").unwrap();
            let again = Config::parse(&huggingface::config_json(&model, 1, 2).unwrap()).unwrap();
            assert_eq!(again.family(), config.family(), "{folder}");
            again.check(config.spec(), config.vocab()).unwrap();
            if max_bytes == u64::MAX {
                assert_eq!(written.len(), 1);
            } else {
                let (name, index) = written.pop().unwrap();
                assert_eq!(name, "model.safetensors.index.json");
                let index = Index::parse(&index).unwrap();
                assert!(index.shards().eq(written.iter().map(|(name, _)| &name[..])));
                assert!(written.len() > 3);
                for (name, bytes) in &written {
                    index.check(name, bytes).unwrap();
                }
            }
            let shards: Vec<Vec<u8>> = written.into_iter().map(|(_, bytes)| bytes).collect();
            let (_, same) = read(&again, &shards).unwrap();
            // Gemma's gains are stored less one, which rounds the smallest of them.
            let differ = same
                .iter()
                .zip(&params)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(differ <= 1e-7, "{folder}: {differ}");
        }
    }
}

/// The error of reading a folder whose configuration was changed.
fn refusal(folder: &str, change: impl Fn(&mut Value)) -> String {
    let mut config: Value = serde_json::from_slice(&file(folder, "config.json")).unwrap();
    change(&mut config);
    let config = Config::parse(&serde_json::to_vec(&config).unwrap());
    let read = config.and_then(|config| read(&config, &shards(folder)));
    read.unwrap_err().to_string()
}

#[test]
fn what_no_model_here_computes_is_refused_by_name() {
    let cases: [(&str, &str, Value, &str); 23] = [
        (
            "llama",
            "model_type",
            "mixtral".into(),
            "`model_type` in config.json: expected one of \"llama\", \"mistral\", \"qwen2\", \"qwen3\", \"gemma\", \"gemma2\", \
             \"gemma3_text\", got \"mixtral\", which needs several experts",
        ),
        ("llama", "model_type", Value::Null, "got nothing"),
        ("llama", "model_type", "opt".into(), "got \"opt\""),
        (
            "llama",
            "hidden_size",
            Value::Null,
            "`hidden_size` in config.json: expected a whole number, got nothing",
        ),
        (
            "llama",
            "hidden_size",
            Value::from(-4),
            "`hidden_size` in config.json: expected a whole number, got -4",
        ),
        (
            "llama",
            "hidden_act",
            "relu".into(),
            "`hidden_act` in config.json: expected \"silu\" or \"gelu_pytorch_tanh\", got \"relu\"",
        ),
        ("llama", "hidden_act", "gelu".into(), "got \"gelu\""),
        (
            "llama",
            "quantization_config",
            serde_json::json!({"bits": 4}),
            "`quantization_config` in config.json: expected this key absent, got {\"bits\":4}",
        ),
        (
            "gemma",
            "final_logit_softcapping",
            Value::from(30.0),
            "`final_logit_softcapping` in config.json: expected this key absent, got 30",
        ),
        (
            "llama",
            "rope_parameters",
            serde_json::json!({"rope_type": "longrope"}),
            "`rope_parameters.rope_type` in config.json: expected one of \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\", \
             got \"longrope\"",
        ),
        (
            "llama",
            "rope_parameters",
            serde_json::json!({"rope_type": "linear"}),
            "`rope_parameters.factor` in config.json: expected a number, got nothing",
        ),
        (
            "llama",
            "rope_parameters",
            serde_json::json!({"full_attention": {"rope_type": "default"}}),
            "`rope_parameters.full_attention` in config.json: expected one rotary setting for all layers, got {\"rope_type\":\"default\"}",
        ),
        (
            "gemma3",
            "layer_types",
            serde_json::json!([
                "full_attention",
                "sliding_attention",
                "full_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
                "full_attention"
            ]),
            "`layer_types` in config.json: expected 7 layers, with \"full_attention\" at equal distances, got [\"full_attention\"",
        ),
        (
            "gemma3",
            "rope_parameters",
            serde_json::json!({"sliding_attention": {"rope_type": "linear", "factor": 2.0}}),
            "`rope_parameters.sliding_attention` in config.json: expected the layers that attend to a window without scaling",
        ),
        (
            "gemma3",
            "query_pre_attn_scalar",
            Value::from(0),
            "`query_pre_attn_scalar` in config.json: expected a whole number above 0, got 0",
        ),
        (
            "gemma2",
            "attn_logit_softcapping",
            Value::from(-1),
            "`attn_logit_softcapping` in config.json: expected a number above 0, got -1",
        ),
        (
            "gemma",
            "query_pre_attn_scalar",
            Value::from(256),
            "`query_pre_attn_scalar` in config.json: expected this key absent, got 256",
        ),
        (
            "gemma3",
            "hidden_activation",
            "relu".into(),
            "`hidden_activation` in config.json: expected \"silu\" or \"gelu_pytorch_tanh\", got \"relu\"",
        ),
        (
            "llama",
            "partial_rotary_factor",
            Value::from(0.5),
            "`partial_rotary_factor` in config.json: expected 1.0 or this key absent, got 0.5",
        ),
        (
            "qwen3",
            "layer_types",
            serde_json::json!(["chunked_attention"]),
            "got [\"chunked_attention\"]",
        ),
        (
            "llama",
            "num_hidden_layers",
            Value::from(3),
            "the weights file lacks tensor `model.layers.2.input_layernorm.weight` of shape [16]",
        ),
        (
            "llama",
            "intermediate_size",
            Value::from(500_000),
            "less than 2 per parameter",
        ),
        (
            "llama",
            "tie_word_embeddings",
            Value::from(true),
            "tensor `lm_head.weight` differs from `model.embed_tokens.weight`, but the model uses `model.embed_tokens.weight` for its \
             predictions",
        ),
    ];
    for (folder, key, value, expected) in cases {
        let message = refusal(folder, |config| config[key] = value.clone());
        assert!(message.contains(expected), "{key}: {message}");
    }
    let message = refusal("qwen2", |config| config["model_type"] = "llama".into());
    assert_eq!(
        message,
        "the weights file holds the unknown tensor `model.layers.0.self_attn.k_proj.bias` of shape [4]"
    );
    let message = refusal("llama", |config| config["num_key_value_heads"] = 4.into());
    assert_eq!(
        message,
        "tensor `model.layers.0.self_attn.k_proj.bias`: expected shape [24], got [12]"
    );
}

#[test]
fn older_and_newer_keys_of_rotary_positions_mean_the_same() {
    let mut config: Value = serde_json::from_slice(&file("qwen2", "config.json")).unwrap();
    let new = Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    let parameters = config.as_object_mut().unwrap().remove("rope_parameters").unwrap();
    config["rope_theta"] = parameters["rope_theta"].clone();
    config["rope_scaling"] = serde_json::json!({"type": "linear", "factor": parameters["factor"]});
    assert_eq!(Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap(), new);
    config["rope_scaling"] = serde_json::json!({"type": "linear", "factor": 3.0});
    assert_ne!(Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap(), new);
}

/// Files of Gemma 3 before version 5 of the library name two bases, and the distance of the layers that attend to all tokens.
#[test]
fn older_and_newer_keys_of_two_rotary_bases_mean_the_same() {
    let mut config: Value = serde_json::from_slice(&file("gemma3", "config.json")).unwrap();
    let new = Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    let map = config.as_object_mut().unwrap();
    let parameters = map.remove("rope_parameters").unwrap();
    map.remove("layer_types").unwrap();
    config["rope_theta"] = parameters["full_attention"]["rope_theta"].clone();
    config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"].clone();
    config["rope_scaling"] = serde_json::json!({"rope_type": "linear", "factor": 4.0});
    config["sliding_window_pattern"] = 6.into();
    assert_eq!(Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap(), new);
    // A base that stands beside the settings of both kinds of layers is the one of its own kind.
    let mut mixed = config.clone();
    mixed.as_object_mut().unwrap().remove("rope_scaling").unwrap();
    mixed["rope_parameters"] = serde_json::json!({
        "full_attention": {"rope_type": "linear", "factor": 4.0},
        "sliding_attention": {"rope_type": "default"},
    });
    assert_eq!(Config::parse(&serde_json::to_vec(&mixed).unwrap()).unwrap(), new);
    config["sliding_window_pattern"] = 3.into();
    assert_ne!(Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap(), new);
    // Where all layers attend to all tokens, one base is left, and no window limits the context.
    config["sliding_window_pattern"] = 1.into();
    let config = Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    assert_eq!((llama(&config).local_rotary, llama(&config).context), (None, 64));
}

/// Readers cap where a file of Gemma 2 does not say otherwise.
#[test]
fn soft_caps_are_the_usual_ones_where_a_file_names_none() {
    let mut config: Value = serde_json::from_slice(&file("gemma2", "config.json")).unwrap();
    let caps = |config: &Value| {
        let config = Config::parse(&serde_json::to_vec(config).unwrap()).unwrap();
        let LlamaSpec {
            soft_caps,
            query_scalar,
            ..
        } = llama(&config);
        ([soft_caps.scores, soft_caps.logits], *query_scalar)
    };
    assert_eq!(caps(&config), ([Some(3.0), Some(4.0)], Some(20)));
    config["attn_logit_softcapping"] = Value::Null;
    config["query_pre_attn_scalar"] = config["head_dim"].clone();
    assert_eq!(caps(&config), ([None, Some(4.0)], None));
    let map = config.as_object_mut().unwrap();
    for key in [
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "query_pre_attn_scalar",
    ] {
        map.remove(key).unwrap();
    }
    assert_eq!(caps(&config), ([Some(50.0), Some(30.0)], Some(256)));
}

/// A number that divides scores as the width of a head does changes nothing, so it fits each layout.
#[test]
fn a_query_scalar_of_a_head_s_width_fits_the_layouts_without_one() {
    for (folder, family) in [("llama", Family::Llama), ("qwen3", Family::Qwen3)] {
        let config = Config::parse(&file(folder, "config.json")).unwrap();
        let mut sizes = read(&config, &shards(folder)).unwrap().0.sizes();
        sizes.architecture.query_scalar = Some(sizes.head_width());
        assert_eq!(Family::of(sizes).unwrap(), family);
        sizes.architecture.query_scalar = Some(sizes.head_width() + 1);
        let message = Family::of(sizes).unwrap_err().to_string();
        assert!(message.contains("a query scalar (Gemma 2)"), "{message}");
    }
}

/// Readers take the whole part of `hidden_size / num_attention_heads` where a file has no `head_dim`.
#[test]
fn heads_without_a_width_have_the_whole_part_of_the_quotient() {
    let mut config: Value = serde_json::from_slice(&file("qwen2", "config.json")).unwrap();
    config["hidden_size"] = 18.into();
    let config = Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    assert_eq!(llama(&config).head_width, Some(4));
}

/// A window limits the context to where it changes nothing.
#[test]
fn sliding_windows_limit_the_context() {
    let context = |folder: &str, change: &[(&str, Value)]| {
        let mut config: Value = serde_json::from_slice(&file(folder, "config.json")).unwrap();
        for (key, value) in change {
            config[*key] = value.clone();
        }
        let config = Config::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
        config.spec().context().unwrap()
    };
    assert_eq!(context("gemma3", &[]), 32);
    assert_eq!(context("gemma2", &[]), 32);
    assert_eq!(context("mistral", &[]), 32);
    assert_eq!(context("mistral", &[("sliding_window", Value::Null)]), 64);
    assert_eq!(context("qwen3", &[("sliding_window", 8.into())]), 64);
    assert_eq!(
        context(
            "qwen3",
            &[
                ("sliding_window", 8.into()),
                ("use_sliding_window", true.into()),
                ("layer_types", Value::Null)
            ]
        ),
        8
    );
}

#[test]
fn hostile_indexes_are_refused() {
    let refused = |text: &str| Index::parse(text.as_bytes()).unwrap_err().to_string();
    for name in [
        "../model.safetensors",
        "/etc/passwd",
        ".safetensors",
        "a/b.safetensors",
        "model.bin",
    ] {
        let message = refused(&format!("{{\"weight_map\": {{\"x\": {name:?}}}}}"));
        assert!(message.contains("in the same folder"), "{message}");
        assert!(
            message.ends_with(&format!("got {name:?} for the tensor \"x\"")),
            "{message}"
        );
    }
    assert!(refused("{\"weight_map\": {}}").ends_with("got an empty one"));
    assert!(refused("[]").contains("expected an object with `weight_map`"));
    let index = Index::parse(&file("qwen3", "model.safetensors.index.json")).unwrap();
    let names: Vec<&str> = index.shards().collect();
    let other = file("qwen3", names[1]);
    let message = index.check(names[0], &other).unwrap_err().to_string();
    assert!(
        message.contains("which the index does not say") || message.contains("got no "),
        "{message}"
    );
    // A tensor in two files.
    let config = Config::parse(&file("qwen3", "config.json")).unwrap();
    let message = read(&config, &[other.clone(), other]).unwrap_err().to_string();
    assert!(
        message.ends_with("comes twice in the files of weights, expected once"),
        "{message}"
    );
}

/// Changed bytes of every file end in a model or in an error, never in a panic or in memory for a model that the files do not hold.
#[test]
#[ignore = "slow"]
fn damaged_files_end_in_a_model_or_an_error() {
    let mut refused = 0;
    for folder in ["llama", "qwen3", "gemma2", "gemma3"] {
        let (text, shards) = (file(folder, "config.json"), shards(folder));
        let attempt = |text: &[u8], shards: &[Vec<u8>]| {
            Config::parse(text).and_then(|config| read(&config, shards).map(drop))
        };
        for place in (0..text.len()).filter(|&place| text[place] != b' ') {
            for byte in [b'9', b'0', b'"', b'{', b'-'] {
                let mut changed = text.clone();
                changed[place] = byte;
                refused += usize::from(attempt(&changed, &shards).is_err());
            }
        }
        for place in (0..shards[0].len()).step_by(5) {
            let mut changed = shards.clone();
            changed[0][place] ^= 0x55;
            refused += usize::from(attempt(&text, &changed).is_err());
            changed[0].truncate(place);
            assert!(attempt(&text, &changed).is_err(), "{folder}: cut at {place}");
        }
    }
    assert!(refused > 1000, "{refused}");
    let index = file("qwen3", "model.safetensors.index.json");
    for place in 0..index.len() {
        let mut changed = index.clone();
        changed[place] = b'/';
        if let Ok(index) = Index::parse(&changed) {
            assert!(index.shards().all(|name| !name.contains('/')));
        }
    }
}
