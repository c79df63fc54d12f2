//! GGUF files, read back by a reader of this test that follows the specification.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use undertone_models::weights::gguf::{TensorType, Value, Written, write};
use undertone_models::weights::huggingface::{Config, Reader};
use undertone_models::{LocalRotary, ModelSpec, SequenceModel, Transformer};

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count);
        self.0 = rest;
        first
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn size(&mut self) -> usize {
        u64::from_le_bytes(self.take(8).try_into().unwrap()) as usize
    }

    fn text(&mut self) -> String {
        let count = self.size();
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }

    fn value(&mut self, kind: u32) -> String {
        match kind {
            4 | 5 => self.u32().to_string(),
            6 => f32::from_bits(self.u32()).to_string(),
            7 => (self.take(1)[0] != 0).to_string(),
            8 => self.text(),
            9 => {
                let (kind, count) = (self.u32(), self.size());
                let values: Vec<String> = (0..count).map(|_| self.value(kind)).collect();
                values.join(" ")
            }
            other => panic!("type {other}"),
        }
    }
}

/// Settings, and tensors with their extents, the fastest first.
type File = (BTreeMap<String, String>, BTreeMap<String, (Vec<usize>, Vec<f32>)>);

/// A number of IEEE 754 binary16.
fn half(bytes: &[u8]) -> f32 {
    let bits = u16::from_le_bytes(bytes.try_into().unwrap());
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    assert!(exponent < 31, "{bits:04x} is not finite");
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

fn parse(file: &[u8]) -> File {
    let mut bytes = Bytes(file);
    assert_eq!((bytes.take(4), bytes.u32()), (&b"GGUF"[..], 3));
    let (tensors, settings) = (bytes.size(), bytes.size());
    let mut found = BTreeMap::new();
    for _ in 0..settings {
        let key = bytes.text();
        let kind = bytes.u32();
        assert!(found.insert(key, bytes.value(kind)).is_none());
    }
    let mut places = Vec::new();
    for _ in 0..tensors {
        let name = bytes.text();
        let extents: Vec<usize> = (0..bytes.u32()).map(|_| bytes.size()).collect();
        let kind = bytes.u32();
        places.push((name, extents, kind, bytes.size()));
    }
    let start = (file.len() - bytes.0.len()).next_multiple_of(32);
    let read = |(name, extents, kind, offset): (String, Vec<usize>, u32, usize)| {
        assert_eq!(offset % 32, 0);
        let count: usize = extents.iter().product();
        let data = &file[start + offset..];
        let values: Vec<f32> = match kind {
            0 => data[..4 * count]
                .chunks(4)
                .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
                .collect(),
            1 => data[..2 * count].chunks(2).map(half).collect(),
            30 => data[..2 * count]
                .chunks(2)
                .map(|bytes| f32::from_le_bytes([0, 0, bytes[0], bytes[1]]))
                .collect(),
            8 => data[..34 * count / 32]
                .chunks(34)
                .flat_map(|block| {
                    let scale = half(&block[..2]);
                    block[2..].iter().map(move |&byte| f32::from(byte as i8) * scale)
                })
                .collect(),
            other => panic!("type {other}"),
        };
        assert_eq!(values.len(), count, "{name}");
        (name, (extents, values))
    };
    (found, places.into_iter().map(read).collect())
}

/// A model of `vectors/huggingface`, and its parameters.
fn model(folder: &str, change: fn(&mut ModelSpec)) -> (Transformer, Vec<f32>) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/huggingface");
    let file = |name: &str| fs::read(root.join(folder).join(name)).unwrap();
    let config = Config::parse(&file("config.json")).unwrap();
    let model = config.spec().transformer(config.vocab()).unwrap().unwrap();
    let bytes = file("model.safetensors");
    let mut reader = Reader::new(&config, &model, bytes.len() as u64).unwrap();
    reader.shard(&bytes).unwrap();
    let mut spec = config.spec().clone();
    change(&mut spec);
    let changed = spec.transformer(config.vocab()).unwrap().unwrap();
    (changed, reader.finish().unwrap())
}

#[test]
fn a_reader_of_the_format_finds_settings_and_tensors() {
    let (model, params) = model("llama", |_| {});
    let tokenizer = [
        ("tokenizer.ggml.model".to_owned(), Value::Text("gpt2".to_owned())),
        (
            "tokenizer.ggml.tokens".to_owned(),
            Value::Texts(vec!["a".to_owned(), "bc".to_owned()]),
        ),
        ("tokenizer.ggml.token_type".to_owned(), Value::Numbers(vec![1, 3])),
        ("tokenizer.ggml.add_bos_token".to_owned(), Value::Bool(true)),
    ];
    let kind = TensorType::F32;
    let written = write(&model, &params, ("a name", "a test"), &tokenizer, kind).unwrap();
    assert_eq!(
        written,
        write(&model, &params, ("a name", "a test"), &tokenizer, kind).unwrap()
    );
    let (settings, tensors) = parse(&written.bytes);
    assert_eq!(written.tensors.values().sum::<usize>(), tensors.len());
    for (key, value) in [
        ("general.architecture", "llama"),
        ("general.name", "a name"),
        ("llama.block_count", "2"),
        ("llama.embedding_length", "16"),
        ("llama.attention.head_count", "4"),
        ("llama.attention.head_count_kv", "2"),
        ("llama.attention.key_length", "6"),
        ("llama.rope.freq_base", "500"),
        ("llama.vocab_size", "37"),
        ("tokenizer.ggml.tokens", "a bc"),
        ("tokenizer.ggml.token_type", "1 3"),
        ("tokenizer.ggml.add_bos_token", "true"),
    ] {
        assert_eq!(settings[key], value, "{key}");
    }
    let range = |name: &str| model.layout().range(name).unwrap();
    assert_eq!(tensors["token_embd.weight"].0, [16, 37]);
    assert_eq!(tensors["token_embd.weight"].1, params[range("embedding")]);
    assert_eq!(tensors["output.weight"].1, params[range("output")]);
    // Three pairs a head: rows 0 and 3, 1 and 4, 2 and 5 become neighbours.
    let bias = &params[range("b1.qkv_bias")];
    let moved = [0, 3, 1, 4, 2, 5].map(|row| bias[24 + 6 + row]);
    assert_eq!(tensors["blk.1.attn_k.bias"].1[6..], moved);
    assert_eq!(tensors["blk.1.attn_v.bias"].1, bias[36..]);
    // The kept waves of short pairs, and the divided ones of long.
    let divisors = &tensors["rope_freqs.weight"].1;
    assert_eq!((divisors.len(), divisors[2]), (3, 8.0));
    assert!(divisors[0] < 8.0 && divisors[0] >= 1.0, "{divisors:?}");
}

#[test]
fn gains_of_gemma_stand_as_they_multiply() {
    let (model, params) = model("gemma", |_| {});
    let written = write(&model, &params, ("", ""), &[], TensorType::F32).unwrap();
    let (settings, tensors) = parse(&written.bytes);
    assert_eq!(settings["general.architecture"], "gemma");
    let range = model.layout().range("b0.norm1").unwrap();
    assert_eq!(tensors["blk.0.attn_norm.weight"].1, params[range]);
    assert!(!tensors.contains_key("output.weight"));
}

/// A model of Llama with rows of 32 and of 48 values.
fn wide() -> (Transformer, Vec<f32>) {
    let config = br#"{"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 16}"#;
    let config = Config::parse(config).unwrap();
    let model = config.spec().transformer(config.vocab()).unwrap().unwrap();
    let params = model.initial_params(5);
    (model, params)
}

#[test]
fn matrices_of_every_type_are_near_those_of_the_model_and_gains_are_equal() {
    let (model, params) = wide();
    let in_type = |kind| write(&model, &params, ("", ""), &[], kind).unwrap();
    let (_, exact) = parse(&in_type(TensorType::F32).bytes);
    for (kind, file_type, of_value, of_largest) in [
        (TensorType::F16, "1", 2f32.powi(-11), 0.0),
        (TensorType::Bf16, "32", 2f32.powi(-8), 0.0),
        // Half a step of the scale, and the rounding of the scale.
        (TensorType::Q8_0, "7", 2f32.powi(-11), 0.501 / 127.0),
    ] {
        let Written { bytes, tensors } = in_type(kind);
        let (settings, found) = parse(&bytes);
        assert_eq!(settings["general.file_type"], file_type);
        let is_blocks = kind == TensorType::Q8_0;
        let version = settings.get("general.quantization_version").map(String::as_str);
        assert_eq!(version, is_blocks.then_some("2"));
        // Three norms; of the nine matrices, ffn_down has rows of 48 values.
        assert_eq!(tensors[&TensorType::F32], 3);
        assert_eq!(tensors[&kind], if is_blocks { 8 } else { 9 });
        assert_eq!(tensors.contains_key(&TensorType::F16), kind != TensorType::Bf16);
        let mut differs = false;
        for (name, (extents, values)) in &exact {
            assert_eq!(&found[name].0, extents);
            let row = extents[0];
            for (exact, got) in values.chunks(row.min(32)).zip(found[name].1.chunks(row.min(32))) {
                let largest = exact.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                for (exact, got) in exact.iter().zip(got) {
                    let allowed = match extents.len() {
                        1 => 0.0,
                        // Half a step of the smallest numbers of F16 is 2^-25.
                        _ => exact.abs() * of_value + largest * of_largest + 2f32.powi(-25),
                    };
                    assert!((exact - got).abs() <= allowed, "{name}: {got} for {exact}");
                    differs |= exact != got;
                }
            }
        }
        assert!(differs, "{kind:?}");
    }
}

#[test]
fn a_value_beyond_the_type_is_refused_by_the_name_of_its_tensor() {
    let (model, mut params) = wide();
    let range = model.layout().range("b0.down").unwrap();
    params[range.start] = 1e6;
    let error = write(&model, &params, ("", ""), &[], TensorType::F16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor `blk.0.ffn_down.weight`: value 1000000 at index 0 is out of the range of F16, up to 65504"
    );
    assert!(write(&model, &params, ("", ""), &[], TensorType::Bf16).is_ok());
}

#[test]
fn what_llama_cpp_does_not_compute_is_refused() {
    let refused = |folder: &str, change: fn(&mut ModelSpec)| {
        let (model, _) = model(folder, change);
        write(&model, &model.initial_params(1), ("", ""), &[], TensorType::F32)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("mistral", |_| {}),
        "GGUF has no architecture for this model: llama.cpp has another form of YaRN"
    );
    let untied = |spec: &mut ModelSpec| {
        if let ModelSpec::Llama(llama) = spec {
            llama.tied = false;
        }
    };
    assert_eq!(
        refused("gemma", untied),
        "GGUF has no architecture for this model: gemma predicts with its embedding there"
    );
    let half_capped = |spec: &mut ModelSpec| {
        if let ModelSpec::Llama(llama) = spec {
            llama.soft_caps.scores = None;
        }
    };
    assert_eq!(
        refused("gemma2", half_capped),
        "GGUF has no architecture for this model: gemma2 caps scores and logits there"
    );
    let capped = |spec: &mut ModelSpec| {
        if let ModelSpec::Llama(llama) = spec {
            llama.soft_caps.logits = Some(30.0);
            llama.local_rotary = Some(LocalRotary {
                base: 10_000.0,
                every: 6,
            });
        }
    };
    assert_eq!(
        refused("gemma3", capped),
        "GGUF has no architecture for this model: gemma3 has no soft caps there"
    );
}
