//! The `config.json` beside the weights.

mod family;
mod rope;
mod write;

use crate::error::{ModelError, Result};
use crate::spec::{LlamaSpec, ModelSpec};
use crate::transformer::{BlockMatrix, Gate, LocalRotary, SoftCaps, Transformer, TransformerSizes};
use serde_json::{Map, Value};

pub use family::Family;

/// A model as its `config.json` describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    family: Family,
    spec: ModelSpec,
    vocab: usize,
}

/// Model types that are refused with what they need beside the layouts that are read.
const OTHERS: [(&str, &str); 4] = [
    ("gemma3", "images; its text model alone is \"gemma3_text\""),
    ("mixtral", "several experts"),
    ("qwen2_moe", "several experts"),
    ("qwen3_moe", "several experts"),
];

/// Keys that change what a model computes, with the only values that are read beside `null` and nothing.
const FIXED: [(&str, &[&str]); 8] = [
    ("quantization_config", &[]),
    ("logit_scale", &[]),
    ("logits_scaling", &[]),
    ("residual_multiplier", &[]),
    ("embedding_multiplier", &[]),
    ("attention_multiplier", &[]),
    ("use_bidirectional_attention", &["false"]),
    ("partial_rotary_factor", &["1.0", "1"]),
];

/// The keys of one object.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// The value of a key; `null` is none.
    fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn refuse<T>(key: &str, expected: impl Into<String>, got: &Value) -> Result<T> {
        Err(config_error(key, expected, shown(got)))
    }

    /// The value of a key as `read` gives it; a value of another type is refused.
    fn typed<T>(
        self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match read(value) {
            None => Self::refuse(key, expected, value),
            read => Ok(read),
        }
    }

    fn size(self, key: &str) -> Result<Option<usize>> {
        let size = |value: &Value| usize::try_from(value.as_u64()?).ok();
        self.typed(key, "a whole number", size)
    }

    fn needed(self, key: &str) -> Result<usize> {
        self.size(key)?
            .ok_or_else(|| config_error(key, "a whole number", "nothing".to_owned()))
    }

    fn number(self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    fn flag(self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    fn text(self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a text", Value::as_str)
    }
}

fn config_error(key: &str, expected: impl Into<String>, got: String) -> ModelError {
    ModelError::Config {
        key: key.to_owned(),
        expected: expected.into(),
        got,
    }
}

/// A value of a file as JSON on one line, not too long.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Config {
    /// Reads the content of a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a missing key, for a value of another type, and for every setting of another family or of a
    /// computation that this crate does not have, by its name.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let map: Map<String, Value> = serde_json::from_slice(bytes)
            .map_err(|error| config_error("config.json", "a JSON object", error.to_string()))?;
        let fields = Fields(&map);
        let family = family_of(fields)?;
        let gemma = matches!(family, Family::Gemma | Family::Gemma2 | Family::Gemma3);
        for (key, allowed) in FIXED {
            if let Some(value) = fields
                .get(key)
                .filter(|value| !allowed.contains(&&shown(value)[..]))
            {
                let expected = match allowed {
                    [] => "this key absent".to_owned(),
                    allowed => format!("{} or this key absent", allowed[0]),
                };
                return Fields::refuse(key, expected, value);
            }
        }
        let (vocab, heads) = (
            fields.needed("vocab_size")?,
            fields.needed("num_attention_heads")?,
        );
        let width = fields.needed("hidden_size")?;
        let (key_heads, head_width) = head_sizes(family, fields, heads)?;
        // Without a width of their own, heads have the whole part of the quotient.
        let head_width = head_width.or_else(|| width.checked_div(heads));
        let longest = longest(family, fields)?;
        let layers = fields.needed("num_hidden_layers")?;
        let rope::Rope {
            base: rotary_base,
            scaling: rotary_scaling,
            local,
        } = rope::read(family, fields, longest)?;
        let local_rotary = match local {
            Some(base) => local_layers(fields, layers)?.map(|every| LocalRotary { base, every }),
            None => None,
        };
        let biases = biases(family, fields)?;
        let spec = LlamaSpec {
            layers,
            width,
            heads,
            key_heads: key_heads.filter(|&key_heads| key_heads != heads),
            head_width: head_width.filter(|head_width| head_width.checked_mul(heads) != Some(width)),
            inner: fields.needed("intermediate_size")?,
            context: context(family, fields, longest)?,
            rotary_base,
            rotary_scaling,
            local_rotary,
            norm_epsilon: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
            gate: gate(family, fields)?,
            biases,
            head_norms: matches!(family, Family::Qwen3 | Family::Gemma3),
            output_norms: matches!(family, Family::Gemma2 | Family::Gemma3),
            query_scalar: query_scalar(family, fields, head_width)?,
            soft_caps: SoftCaps {
                scores: soft_cap(family, fields, "attn_logit_softcapping", 50.0)?,
                logits: soft_cap(family, fields, "final_logit_softcapping", 30.0)?,
            },
            scaled_embedding: gemma,
            tied: fields.flag("tie_word_embeddings")?.unwrap_or(gemma),
            rows: Some(vocab),
            recompute: false,
            lora: None,
        };
        let spec = ModelSpec::Llama(Box::new(spec));
        let config = Self { family, spec, vocab };
        match config.model() {
            Ok(_) => Ok(config),
            Err(error) => Err(config_error("config.json", "sizes of a model", error.to_string())),
        }
    }

    /// The model at a context of 1: a file may allow contexts that no machine has the memory for.
    fn model(&self) -> Result<Option<Transformer>> {
        let mut spec = self.spec.clone();
        if let ModelSpec::Llama(llama) = &mut spec {
            llama.context = 1;
        }
        spec.transformer(self.vocab)
    }

    fn context(&self) -> usize {
        self.spec.context().unwrap_or(0)
    }

    /// The layout.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// The model, without adapters. Its context is the longest that the configuration allows without a window over the tokens.
    #[must_use]
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Number of token ids: rows of the embedding.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Checks that a model over these words computes what the file's model does. A shorter context is allowed.
    ///
    /// # Errors
    /// The first key of the run file that says otherwise.
    pub fn check(&self, spec: &ModelSpec, vocab: usize) -> Result<()> {
        match spec.transformer(vocab)? {
            Some(model) => self.check_sizes(model.sizes()),
            None => Err(ModelError::OtherSetting {
                key: "family",
                expected: "\"llama\"".to_owned(),
                got: format!("{:?}", spec.family()),
            }),
        }
    }

    pub(super) fn check_sizes(&self, ours: TransformerSizes) -> Result<()> {
        let Some(model) = self.model()? else {
            return Ok(());
        };
        let theirs = model.sizes();
        let setting = |key, expected: String, got: String| match expected == got {
            true => Ok(()),
            false => Err(ModelError::OtherSetting { key, expected, got }),
        };
        let (a, b) = (theirs.architecture, ours.architecture);
        if a.norm != b.norm || theirs.positions != ours.positions {
            return setting("family", "\"llama\"".to_owned(), "\"transformer\"".to_owned());
        }
        for (key, theirs, ours) in [
            ("rows", theirs.vocab, ours.vocab),
            ("layers", theirs.layers, ours.layers),
            ("width", theirs.width, ours.width),
            ("heads", theirs.heads, ours.heads),
            ("key_heads", theirs.key_heads(), ours.key_heads()),
            ("head_width", theirs.head_width(), ours.head_width()),
            ("inner", theirs.inner, ours.inner),
        ] {
            setting(key, theirs.to_string(), ours.to_string())?;
        }
        if ours.context > self.context() {
            let expected = format!("at most {}", self.context());
            return setting("context", expected, ours.context.to_string());
        }
        let names = |biases: [bool; 4]| {
            let names = BlockMatrix::ALL.iter().zip(biases).filter(|(_, has)| *has);
            format!("{:?}", names.map(|(matrix, _)| matrix.name()).collect::<Vec<_>>())
        };
        setting("biases", names(a.biases), names(b.biases))?;
        for (key, theirs, ours) in [
            ("head_norms", a.head_norms, b.head_norms),
            ("output_norms", a.output_norms, b.output_norms),
            ("tied", a.tied, b.tied),
        ] {
            setting(key, theirs.to_string(), ours.to_string())?;
        }
        for ((key, theirs), (_, ours)) in theirs.settings().into_iter().zip(ours.settings()) {
            setting(key, theirs, ours)?;
        }
        Ok(())
    }

    /// The content of a `config.json` for a model of these sizes.
    pub(super) fn of(sizes: TransformerSizes, bos: u32, eos: u32) -> Result<Value> {
        Ok(write::config(sizes, Family::of(sizes)?, bos, eos))
    }
}

fn family_of(fields: Fields<'_>) -> Result<Family> {
    let names = Family::ALL
        .map(|family| format!("{:?}", family.name()))
        .join(", ");
    let expected = format!("one of {names}");
    let Some(name) = fields.text("model_type")? else {
        return Err(config_error("model_type", expected, "nothing".to_owned()));
    };
    if let Some((_, needs)) = OTHERS.iter().find(|(other, _)| *other == name) {
        return Err(config_error(
            "model_type",
            expected,
            format!("{name:?}, which needs {needs}"),
        ));
    }
    let known = Family::ALL.into_iter().find(|family| family.name() == name);
    known.ok_or_else(|| config_error("model_type", expected, format!("{name:?}")))
}

/// Heads of keys and values, and the width of a head, where the file or its reader says them.
fn head_sizes(family: Family, fields: Fields<'_>, heads: usize) -> Result<(Option<usize>, Option<usize>)> {
    let default = match family {
        Family::Llama => heads,
        Family::Mistral => 8,
        Family::Qwen2 | Family::Qwen3 => 32,
        Family::Gemma => 16,
        Family::Gemma2 | Family::Gemma3 => 4,
    };
    let key_heads = match fields.0.get("num_key_value_heads") {
        None => Some(default),
        Some(_) => fields.size("num_key_value_heads")?,
    };
    let default = match family {
        Family::Qwen3 => Some(128),
        Family::Gemma | Family::Gemma2 | Family::Gemma3 => Some(256),
        _ => None,
    };
    let head_width = match fields.0.get("head_dim") {
        None => default,
        Some(_) => fields.size("head_dim")?,
    };
    Ok((key_heads, head_width))
}

fn biases(family: Family, fields: Fields<'_>) -> Result<Vec<BlockMatrix>> {
    let flag = |key| Ok::<_, ModelError>(fields.flag(key)?.unwrap_or(false));
    let mut biases = match family {
        Family::Qwen2 => return Ok(vec![BlockMatrix::Qkv]),
        Family::Mistral => return Ok(Vec::new()),
        _ if flag("attention_bias")? => vec![BlockMatrix::Qkv, BlockMatrix::O],
        _ => Vec::new(),
    };
    if family == Family::Llama && flag("mlp_bias")? {
        biases.extend([BlockMatrix::Up, BlockMatrix::Down]);
    }
    Ok(biases)
}

fn gate(family: Family, fields: Fields<'_>) -> Result<Gate> {
    let default = match family {
        Family::Gemma | Family::Gemma2 | Family::Gemma3 => "gelu_pytorch_tanh",
        _ => "silu",
    };
    let gate = |key: &str, name: &str| match name {
        "silu" | "swish" => Ok(Gate::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(Gate::Gelu),
        // Gemma's first files say `gelu` and mean the tanh form, and its reader knows it.
        "gelu" if family == Family::Gemma => Ok(Gate::Gelu),
        other => {
            let expected = "\"silu\" or \"gelu_pytorch_tanh\"";
            Err(config_error(key, expected, format!("{other:?}")))
        }
    };
    let key = family.activation();
    let act = gate(key, fields.text(key)?.unwrap_or(default))?;
    match fields.text("hidden_activation")? {
        Some(name) if gate("hidden_activation", name)? != act => Err(config_error(
            "hidden_activation",
            format!("the activation of `{key}`"),
            format!("{name:?}"),
        )),
        _ => Ok(act),
    }
}

/// The longest sequence of the model.
fn longest(family: Family, fields: Fields<'_>) -> Result<usize> {
    let default = match family {
        Family::Llama => 2048,
        Family::Mistral => 131_072,
        Family::Qwen2 | Family::Qwen3 => 32_768,
        Family::Gemma | Family::Gemma2 => 8192,
        Family::Gemma3 => 131_072,
    };
    Ok(fields.size("max_position_embeddings")?.unwrap_or(default))
}

/// `true` for each layer that attends to all tokens, where the file lists its layers.
fn layer_types(fields: Fields<'_>) -> Result<Option<Vec<bool>>> {
    fields.typed(
        "layer_types",
        "a list of \"full_attention\" and \"sliding_attention\"",
        |types| {
            let known = types.as_array()?.iter().map(|value| match value.as_str() {
                Some("full_attention") => Some(true),
                Some("sliding_attention") => Some(false),
                _ => None,
            });
            known.collect()
        },
    )
}

/// The distance of the layers that attend to all tokens, where others lie between them.
fn local_layers(fields: Fields<'_>, layers: usize) -> Result<Option<usize>> {
    const USUAL: usize = 6;
    let Some(full) = layer_types(fields)? else {
        // Older files name the distance alone.
        let every = match fields.size("sliding_window_pattern")? {
            None => fields.size("_sliding_window_pattern")?,
            every => every,
        };
        return Ok(Some(every.unwrap_or(USUAL)).filter(|&every| every != 1));
    };
    let first = full.iter().position(|&full| full);
    let mut distances = [USUAL, first.map_or(USUAL, |first| first + 1)].into_iter();
    let fits = |every: usize| {
        let holds = |(place, &full): (usize, &bool)| full == (place + 1).is_multiple_of(every);
        full.len() == layers && full.iter().enumerate().all(holds)
    };
    match distances.find(|&every| fits(every)) {
        Some(every) => Ok(Some(every).filter(|&every| every != 1)),
        None => Err(config_error(
            "layer_types",
            format!("{layers} layers, with \"full_attention\" at equal distances"),
            fields.get("layer_types").map_or("nothing".to_owned(), shown),
        )),
    }
}

/// The number whose root divides scores, where it is not the width of a head.
fn query_scalar(family: Family, fields: Fields<'_>, head_width: Option<usize>) -> Result<Option<usize>> {
    const KEY: &str = "query_pre_attn_scalar";
    match (family, fields.size(KEY)?) {
        (_, Some(0)) => Err(config_error(KEY, "a whole number above 0", "0".to_owned())),
        (Family::Gemma2 | Family::Gemma3, scalar) => {
            let scalar = scalar.unwrap_or(256);
            Ok(Some(scalar).filter(|_| head_width != Some(scalar)))
        }
        (_, None) => Ok(None),
        (_, Some(scalar)) => Err(config_error(KEY, "this key absent", scalar.to_string())),
    }
}

/// A soft cap. A file of Gemma 2 that does not name it has the usual one, and one that says `null` has none.
fn soft_cap(family: Family, fields: Fields<'_>, key: &str, usual: f64) -> Result<Option<f64>> {
    match (family, fields.number(key)?) {
        (Family::Gemma2, None) if !fields.0.contains_key(key) => Ok(Some(usual)),
        (_, None) => Ok(None),
        (Family::Gemma2 | Family::Gemma3, Some(cap)) if cap > 0.0 => Ok(Some(cap)),
        (Family::Gemma2 | Family::Gemma3, Some(cap)) => {
            Err(config_error(key, "a number above 0", cap.to_string()))
        }
        (_, Some(cap)) => Err(config_error(key, "this key absent", cap.to_string())),
    }
}

/// The longest sequence over which attention sees all tokens: within a sliding window it sees as much as without one.
fn context(family: Family, fields: Fields<'_>, longest: usize) -> Result<usize> {
    let mut slides = match family {
        Family::Mistral => true,
        Family::Qwen2 | Family::Qwen3 => fields.flag("use_sliding_window")?.unwrap_or(false),
        Family::Gemma3 => local_layers(fields, fields.needed("num_hidden_layers")?)?.is_some(),
        // Where a file does not list its layers, each other one slides.
        Family::Gemma2 => !fields.0.contains_key("layer_types"),
        Family::Llama | Family::Gemma => false,
    };
    slides |= layer_types(fields)?.is_some_and(|full| full.contains(&false));
    let window = match fields.0.get("sliding_window") {
        None => Some(4096),
        Some(_) => fields.size("sliding_window")?,
    };
    match window.filter(|_| slides) {
        Some(window) => Ok(longest.min(window.max(1))),
        None => Ok(longest),
    }
}
