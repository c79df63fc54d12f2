mod llama;

pub use llama::LlamaSpec;

use crate::{
    error::{ModelError, Result},
    external::{self, ExternalTensor},
    sequence::SequenceModel,
    transformer::{Architecture, LoraSpec, Positions, Transformer, TransformerSizes},
    word_lstm::WordLstm,
};
use serde::{Deserialize, Serialize};
use undertone_aggregation::ParamLayout;

/// A word model with its sizes, as written in a run file.
///
/// # Example
/// ```
/// let spec = undertone_models::ModelSpec::Dplm { embed: 96, hidden: 256, unit_norm: true };
/// let model = spec.build(10_003)?;
/// assert_eq!(model.layout().len(), 1_346_432);
/// # Ok::<(), undertone_models::ModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "family", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum ModelSpec {
    /// The LSTM of \[DPLM\], whose embedding is also its output matrix. Run files may call it `tied_lstm` as well.
    #[serde(alias = "tied_lstm")]
    #[cfg_attr(feature = "schema", schemars(extend("x-alias" = "tied_lstm")))]
    Dplm {
        /// Width of embeddings.
        #[serde(default = "default_embed")]
        embed: usize,
        /// Width of the LSTM state.
        #[serde(default = "default_dplm_hidden")]
        hidden: usize,
        /// `true` to divide embedding rows by their L2 norm.
        #[serde(default = "default_unit_norm")]
        unit_norm: bool,
    },
    /// The next-word LSTM of the StackOverflow experiments. Run files may call it `lstm` as well.
    #[serde(alias = "lstm")]
    #[cfg_attr(feature = "schema", schemars(extend("x-alias" = "lstm")))]
    StackOverflow {
        /// Width of embeddings.
        #[serde(default = "default_embed")]
        embed: usize,
        /// Width of the LSTM state.
        #[serde(default = "default_stackoverflow_hidden")]
        hidden: usize,
    },
    /// The CIFG-LSTM with a recurrent projection of \[Gboard\].
    Cifg {
        /// Cells of the layer.
        #[serde(default = "default_cifg_cells")]
        cells: usize,
        /// Width of embeddings.
        #[serde(default = "default_embed")]
        embedding: usize,
        /// Width of the recurrent projection.
        #[serde(default = "default_embed")]
        projection: usize,
        /// `true` if the embedding is also the output matrix. The published parameter counts are those of a separate output matrix.
        #[serde(default)]
        tied: bool,
    },
    /// The decoder-only [`Transformer`]: 10 M parameters are 10 layers of width 256 over 8,000 tokens, GPT-2's 124 M are 12
    /// of width 768, its 355 M 24 of width 1024, over 50,257 tokens and a context of 1024.
    Transformer {
        /// Number of blocks.
        layers: usize,
        /// Width of embeddings and of the residual stream.
        width: usize,
        /// Number of attention heads per block; it divides the width.
        heads: usize,
        /// Maximum length of a sequence in tokens.
        #[serde(default = "default_context")]
        context: usize,
        /// The encoding of positions.
        #[serde(default)]
        positions: Positions,
        /// Width of the feed-forward layer in widths of the model.
        #[serde(default = "default_feed_forward")]
        feed_forward: usize,
        /// `true` to compute activations again in the backward pass: less memory, more work, the same bits.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        recompute: bool,
        /// Low-rank adapters as the only parameters that are trained, on a model that was trained before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lora: Option<LoraSpec>,
    },
    /// The decoder-only [`Transformer`] of Llama and its relatives Mistral, Qwen and Gemma.
    Llama(Box<LlamaSpec>),
    /// A model that another program trains, through a session. Only the shapes of its parameters are known here.
    External {
        /// The tensors, in the order of the flat vector.
        tensors: Vec<ExternalTensor>,
    },
}

/// A model from a file.
#[allow(missing_debug_implementations)] // models have none
pub struct Loaded {
    /// The model.
    pub model: Box<dyn SequenceModel>,
    /// The trained parameters, if the file holds them: the file of a model without adapters holds no adapters.
    pub parameters: Option<Vec<f32>>,
}

fn default_context() -> usize {
    128
}

fn default_feed_forward() -> usize {
    4
}

fn default_embed() -> usize {
    96
}

fn default_cifg_cells() -> usize {
    670
}

fn default_dplm_hidden() -> usize {
    256
}

fn default_unit_norm() -> bool {
    true
}

fn default_stackoverflow_hidden() -> usize {
    670
}

impl ModelSpec {
    /// The family's name in run files and reports.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            Self::Dplm { .. } => "dplm",
            Self::StackOverflow { .. } => "stackoverflow",
            Self::Cifg { .. } => "cifg",
            Self::Transformer { .. } => "transformer",
            Self::Llama(_) => "llama",
            Self::External { .. } => "external",
        }
    }

    /// The number of ids that the model can predict over a vocabulary of `vocab_len` ids.
    #[must_use]
    pub fn ids(&self, vocab_len: usize) -> usize {
        match self {
            Self::Llama(llama) => llama.rows.unwrap_or(vocab_len),
            _ => vocab_len,
        }
    }

    /// `true` if another program trains the model, so that nothing here can compute with it.
    #[must_use]
    pub fn is_external(&self) -> bool {
        matches!(self, Self::External { .. })
    }

    /// The adapters, if the model has them.
    #[must_use]
    pub fn lora(&self) -> Option<&LoraSpec> {
        match self {
            Self::Transformer { lora, .. } => lora.as_ref(),
            Self::Llama(llama) => llama.lora.as_ref(),
            _ => None,
        }
    }

    /// The settings of a transformer that stand in no tensor's shape, by their keys in run files, in an order that depends on nothing;
    /// none for another family.
    ///
    /// # Errors
    /// Sizes that make no model.
    pub fn settings(&self) -> Result<Vec<(&'static str, String)>> {
        let Some(model) = self.without_lora().transformer(2)? else {
            return Ok(Vec::new());
        };
        Ok(model.sizes().settings())
    }

    /// The model without its adapters.
    #[must_use]
    pub fn without_lora(&self) -> Self {
        let mut spec = self.clone();
        match &mut spec {
            Self::Transformer { lora, .. } => *lora = None,
            Self::Llama(llama) => llama.lora = None,
            _ => {}
        }
        spec
    }

    /// Width of the state of a recurrent model; `None` for another family.
    #[must_use]
    pub fn state_width(&self) -> Option<usize> {
        match *self {
            Self::Dplm { hidden, .. } | Self::StackOverflow { hidden, .. } => Some(hidden),
            Self::Cifg { cells, .. } => Some(cells),
            _ => None,
        }
    }

    /// Max length of a sequence in tokens; `None` for a family that reads any number.
    #[must_use]
    pub fn context(&self) -> Option<usize> {
        match *self {
            Self::Transformer { context, .. } => Some(context),
            Self::Llama(ref llama) => Some(llama.context),
            _ => None,
        }
    }

    /// The transformer over `vocab_len` ids, without adapters; `None` for another family.
    ///
    /// # Errors
    /// The errors of [`build`](Self::build).
    pub fn transformer(&self, vocab_len: usize) -> Result<Option<Transformer>> {
        let (sizes, recompute) = match *self {
            Self::Transformer {
                layers,
                width,
                heads,
                context,
                positions,
                feed_forward,
                recompute,
                lora: _,
            } => {
                let sizes = TransformerSizes {
                    vocab: vocab_len,
                    layers,
                    width,
                    heads,
                    context,
                    inner: width.saturating_mul(feed_forward),
                    positions,
                    architecture: Architecture::GPT2,
                };
                (sizes, recompute)
            }
            Self::Llama(ref llama) => (llama.sizes(vocab_len)?, llama.recompute),
            _ => return Ok(None),
        };
        Ok(Some(Transformer::new(sizes)?.recomputing(recompute)))
    }

    /// The recurrent model over `vocab_len` ids; `None` for another family.
    ///
    /// # Errors
    /// The errors of [`build`](Self::build).
    pub(crate) fn recurrent(&self, vocab_len: usize) -> Result<Option<WordLstm>> {
        Ok(Some(match *self {
            Self::Dplm {
                embed,
                hidden,
                unit_norm,
            } => WordLstm::tied(vocab_len, embed, hidden, unit_norm)?,
            Self::StackOverflow { embed, hidden } => {
                WordLstm::untied(vocab_len.saturating_add(1), embed, hidden)?
            }
            Self::Cifg {
                cells,
                embedding,
                projection,
                tied,
            } => WordLstm::cifg(vocab_len, embedding, cells, projection, tied)?,
            Self::Transformer { .. } | Self::Llama(_) | Self::External { .. } => return Ok(None),
        }))
    }

    /// The model over a vocabulary of `vocab_len` ids (special tokens included).
    ///
    /// The StackOverflow model has one id more, the padding id of the published model, which no batch uses.
    ///
    /// # Errors
    /// A dimension of zero; a tied CIFG whose projection is not as wide as its embedding; a transformer whose heads do not
    /// divide its width; adapters, which need the parameters that they are added to: see [`load`](Self::load). A model that
    /// another program trains.
    pub fn build(&self, vocab_len: usize) -> Result<Box<dyn SequenceModel>> {
        if let Some(model) = self.recurrent(vocab_len)? {
            return Ok(Box::new(model));
        }
        Ok(match self {
            Self::Transformer { .. } | Self::Llama(_) => match (self.lora(), self.transformer(vocab_len)?) {
                (None, Some(model)) => Box::new(model),
                _ => return Err(ModelError::NoBase),
            },
            _ => return Err(ModelError::TrainedOutside),
        })
    }

    /// Loads a model and its parameters from the bytes of a file. From the file of a model without adapters a model with
    /// adapters takes what these are added to.
    ///
    /// # Errors
    /// The errors of [`build`](Self::build), [`Transformer::with_lora`] and [`SequenceModel::read_params`].
    pub fn load(&self, vocab_len: usize, bytes: &[u8]) -> Result<Loaded> {
        if let (Some(lora), Some(model)) = (self.lora(), self.transformer(vocab_len)?) {
            let (model, parameters) = model.load_lora(lora, bytes)?;
            return Ok(Loaded {
                model: Box::new(model),
                parameters,
            });
        }
        let model = self.build(vocab_len)?;
        let parameters = Some(model.read_params(bytes)?);
        Ok(Loaded { model, parameters })
    }

    /// The layout of the trained parameters.
    ///
    /// # Errors
    /// As [`build`](Self::build), but for adapters, whose own errors are those of [`Transformer::with_lora`], and for the tensors of
    /// a model that another program trains: none, repeated names, empty ones, or too many parameters.
    pub fn layout(&self, vocab_len: usize) -> Result<ParamLayout> {
        if let Self::External { tensors } = self {
            return external::layout(tensors);
        }
        match (self.lora(), self.transformer(vocab_len)?) {
            (Some(lora), Some(model)) => model.lora_layout(lora),
            _ => Ok(self.build(vocab_len)?.layout().clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification that begins with the name of a family.
    fn of_family(sizes: &str) -> ModelSpec {
        serde_json::from_str(&format!("{{\"family\": {sizes}}}")).unwrap()
    }

    /// The lines of a table that start with `$`, each with the line below it.
    fn cases(table: &str) -> impl Iterator<Item = (&str, &str)> {
        let mut lines = table.trim().lines().map(str::trim);
        std::iter::from_fn(move || {
            let sizes = lines.next()?.strip_prefix("$ ").unwrap();
            Some((sizes, lines.next().unwrap()))
        })
    }

    fn check(text: &str, parameters: usize, vocab_size: usize, groups: usize) {
        let spec: ModelSpec = serde_json::from_str(text).unwrap();
        let model = spec.build(10_003).unwrap();
        assert_eq!(model.layout().len(), parameters);
        assert_eq!(model.vocab_size(), vocab_size);
        assert_eq!(model.layout().groups().len(), groups);
        assert_eq!(
            serde_json::from_value::<ModelSpec>(serde_json::to_value(&spec).unwrap()).unwrap(),
            spec
        );
    }

    #[test]
    fn models_have_their_published_sizes() {
        check(r#"{"family": "dplm"}"#, 1_346_432, 10_003, 11);
        check(r#"{"family": "stackoverflow"}"#, 4_050_748, 10_004, 13);
        check(r#"{"family": "cifg"}"#, 2_382_829, 10_003, 10);
        check(r#"{"family": "cifg", "tied": true}"#, 1_412_538, 10_003, 8);
        check(
            r#"{"family": "cifg", "cells": 256, "embedding": 64, "projection": 48}"#,
            1_229_411,
            10_003,
            10,
        );
    }

    #[test]
    fn plain_names_of_families_mean_the_names_of_the_papers() {
        let read = |text: &str| serde_json::from_str::<ModelSpec>(text).unwrap();
        for (plain, paper) in [("tied_lstm", "dplm"), ("lstm", "stackoverflow")] {
            let spec = read(&format!(r#"{{"family": "{plain}"}}"#));
            assert_eq!(spec, read(&format!(r#"{{"family": "{paper}"}}"#)));
            assert_eq!(spec.family(), paper);
        }
    }

    #[test]
    fn transformers_have_their_known_sizes() {
        let count = |text: &str, vocab| {
            let spec: ModelSpec = serde_json::from_str(text).unwrap();
            let model = spec.build(vocab).unwrap();
            assert_eq!(model.layout().groups().len(), model.layout().tensors().len());
            model.layout().len()
        };
        let ten = r#"{"family": "transformer", "layers": 10, "width": 256, "heads": 8}"#;
        // As the PyTorch model of the same sizes counts them.
        assert_eq!(count(ten, 8000), 9_978_880);
        let small = r#"{"family": "transformer", "layers": 12, "width": 768, "heads": 12, "context": 1024}"#;
        assert_eq!(count(small, 50_257), 124_439_808);
        let medium =
            r#"{"family": "transformer", "layers": 24, "width": 1024, "heads": 16, "context": 1024}"#;
        assert_eq!(count(medium, 50_257), 354_823_168);
        let rotary = r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "positions": "rotary", "feed_forward": 3}"#;
        assert_eq!(count(rotary, 10), 10 * 8 + 2 * (4 * 8 + 10 * 64 + 8 * 8) + 16);
    }

    /// \[Gboard\] section 1: 2.4, 4.4 and 6.4 million for vocabularies of about 10, 20 and 30 thousand words. The text does
    /// not give the exact vocabularies; at the round ones the counts are within 3 %.
    #[test]
    fn cifg_models_have_the_sizes_of_the_paper() {
        let spec: ModelSpec = serde_json::from_str(r#"{"family": "cifg"}"#).unwrap();
        for (vocab, published, exact) in [
            (10_000, 2.4e6, 2_382_250),
            (20_000, 4.4e6, 4_312_250),
            (30_000, 6.4e6, 6_242_250),
        ] {
            let parameters = spec.build(vocab).unwrap().layout().len();
            assert_eq!(parameters, exact);
            assert!((parameters as f64 / published - 1.0).abs() < 0.03, "{parameters}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in [
            r#"{"family": "dplm", "layers": 2}"#,
            r#"{"family": "gru"}"#,
            r#"{"family": "stackoverflow", "unit_norm": true}"#,
            r#"{"family": "cifg", "hidden": 670}"#,
            r#"{"family": "cifg", "tied": 1}"#,
            r#"{"embed": 96}"#,
            r#"{"family": "transformer", "layers": 2, "width": 8}"#,
            r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "embed": 8}"#,
            r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "positions": "sinusoidal"}"#,
        ] {
            assert!(serde_json::from_str::<ModelSpec>(text).is_err(), "{text}");
        }
    }

    /// Every adapter in a layout of what is trained, and no model without what they are added to.
    #[test]
    fn adapters_need_a_base() {
        let spec: ModelSpec = serde_json::from_str(
            r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "context": 8,
                "lora": {"rank": 3, "alpha": 6, "targets": ["qkv", "down"]}}"#,
        )
        .unwrap();
        assert_eq!(spec.build(9).err(), Some(ModelError::NoBase));
        let trained = spec.layout(9).unwrap();
        let names: Vec<&str> = trained.tensors().iter().map(|tensor| &tensor.name[..]).collect();
        assert_eq!(names[..4], ["b0.qkv_a", "b0.qkv_b", "b0.down_a", "b0.down_b"]);
        assert_eq!(trained.len(), 2 * 3 * (8 + 24 + 32 + 8));
        let base = spec.without_lora().build(9).unwrap();
        assert_eq!(base.layout(), &spec.without_lora().layout(9).unwrap());
        let bytes = base.write_params(&base.initial_params(1), "a test").unwrap();
        let Loaded { model, parameters } = spec.load(9, &bytes).unwrap();
        assert_eq!((model.layout(), parameters), (&trained, None));
        assert_eq!(model.frozen(), base.initial_params(1));
        let unknown = r#"{"family": "dplm", "lora": {"rank": 3, "alpha": 6}}"#;
        let error = serde_json::from_str::<ModelSpec>(unknown)
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown field `lora`"), "{error}");
    }

    /// Sizes that would overflow, abort or fill the memory while a layout is made from them.
    #[test]
    fn sizes_beyond_any_model_are_refused_by_name() {
        for (sizes, expected) in cases(
            r#"
            $ "dplm", "embed": 400000000
            `embed` must be at most 65536, got 400000000
            $ "stackoverflow", "hidden": 18446744073709551615
            `hidden` must be at most 65536, got 18446744073709551615
            $ "cifg", "cells": 65536, "projection": 65536
            the sizes of the model make 17855467059 parameters, expected at most 2147483648
            $ "transformer", "layers": 500000000, "width": 8, "heads": 2
            `layers` must be at most 1000, got 500000000
            $ "transformer", "layers": 1000, "width": 65536, "heads": 1
            the sizes of the model make 51541123596288 parameters, expected at most 2147483648
            $ "transformer", "layers": 1, "width": 65536, "heads": 1, "feed_forward": 18446744073709551615
            `width * feed_forward` must be at most 1048576, got 18446744073709551615
            $ "transformer", "layers": 1, "width": 8, "heads": 2, "context": 18446744073709551615
            `context` must be at most 16777216, got 18446744073709551615
            "#,
        ) {
            let message = of_family(sizes).layout(10_003).unwrap_err().to_string();
            assert_eq!(message, expected, "{sizes}");
        }
    }

    /// The largest model that the sizes of a file admit takes no more memory than the file.
    #[test]
    fn a_small_file_is_refused_before_a_large_model_is_made_room_for() {
        let dplm = |size| ModelSpec::Dplm {
            embed: size,
            hidden: size,
            unit_norm: true,
        };
        let small = dplm(2).build(9).unwrap();
        let bytes = small.write_params(&small.initial_params(1), "a test").unwrap();
        let error = dplm(4000).load(400_000, &bytes).err().unwrap();
        assert!(matches!(error, ModelError::TensorShape { .. }), "{error}");
    }

    #[test]
    fn sizes_that_make_no_model_are_refused() {
        let message = |vocab: usize, sizes: &str| of_family(sizes).build(vocab).err().unwrap().to_string();
        for (sizes, expected) in cases(
            r#"
            $ "dplm", "embed": 0
            `embed` must be at least 1, got 0
            $ "dplm", "hidden": 0
            `hidden` must be at least 1, got 0
            $ "cifg", "cells": 0
            `cells` must be at least 1, got 0
            $ "cifg", "embedding": 0
            `embedding` must be at least 1, got 0
            $ "cifg", "projection": 0
            `projection` must be at least 1, got 0
            $ "cifg", "embedding": 4, "projection": 3, "tied": true
            `projection` must equal `embedding` = 4 where `tied` is true, got 3
            $ "transformer", "layers": 0, "width": 8, "heads": 2
            `layers` must be at least 1, got 0
            $ "transformer", "layers": 1, "width": 8, "heads": 0
            `heads` must be at least 1, got 0
            $ "transformer", "layers": 1, "width": 8, "heads": 3
            `heads` must divide `width` = 8, got 3
            $ "transformer", "layers": 1, "width": 6, "heads": 2, "positions": "rotary"
            `width` / `heads` must be even where `positions` is "rotary", got 6 / 2
            "#,
        ) {
            assert_eq!(message(9, sizes), expected);
        }
        assert_eq!(message(1, r#""dplm""#), "`vocab` must be at least 2, got 1");
    }
}
