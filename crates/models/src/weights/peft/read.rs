//! Adapters of `peft`, as values that are added to a model or that a training starts from.

use super::config::Settings;
use super::{Blocks, MODEL_FILE};
use crate::error::{ModelError, Result, check_count};
use crate::tensors::{append, check, malformed};
use crate::transformer::{BlockMatrix, LoraSpec};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::ops::Range;
use undertone_aggregation::ParamLayout;

/// The adapters in a pair of files, checked against the model that they are for.
///
/// ```
/// use undertone_models::{ModelSpec, SequenceModel, weights::peft::{self, PeftAdapters}};
/// let spec = r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "context": 8}"#;
/// let spec: ModelSpec = serde_json::from_str(spec)?;
/// let whole = spec.transformer(20)?.expect("a transformer");
/// let base = whole.initial_params(1);
/// let lora = serde_json::from_str(r#"{"rank": 2, "alpha": 4.0, "targets": ["qkv"]}"#)?;
/// let adapted = whole.clone().with_lora(base.clone(), &lora)?;
/// let params: Vec<f32> = (0..adapted.layout().len()).map(|i| (i as f32).sin()).collect();
///
/// let (config, tensors) = peft::write(&adapted, &params, &lora, "what they were trained on")?;
/// let adapters = PeftAdapters::read(whole.layout(), &config, &tensors)?;
/// let mut start = adapted.initial_params(1);
/// adapters.fill(&lora, adapted.layout(), &mut start)?;
/// assert_eq!(start, params);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PeftAdapters {
    /// Adapters by block and matrix, sorted by their first column.
    parts: BTreeMap<(usize, usize), Vec<Part>>,
}

/// The adapter of one of their matrices, which is some columns of one of ours.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    name: String,
    columns: Range<usize>,
    rank: usize,
    scale: f64,
    /// `[rank, input]`.
    a: Vec<f32>,
    /// `[columns, rank]`.
    b: Vec<f32>,
}

impl PeftAdapters {
    /// Reads the contents of `adapter_config.json` and `adapter_model.safetensors`. `layout` is that of the model without adapters.
    ///
    /// # Errors
    /// [`ModelError::Peft`] for a setting that is not supported here, by its key. A model that is no transformer. A tensor of another
    /// matrix, of another shape or type, without its partner, or not finite.
    pub fn read(layout: &ParamLayout, config: &[u8], tensors: &[u8]) -> Result<Self> {
        let settings = Settings::parse(config)?;
        let blocks = Blocks::of(layout)?;
        let file = SafeTensors::deserialize(tensors).map_err(malformed)?;
        let mut names: Vec<&str> = file.names().into_iter().collect();
        names.sort_unstable();
        let mut parts: BTreeMap<_, Vec<Part>> = BTreeMap::new();
        for name in names {
            let tensor = file.tensor(name).map_err(malformed)?;
            let unknown = || ModelError::UnknownTensor {
                name: name.to_owned(),
                got: tensor.shape().to_vec(),
            };
            let (stem, half) = name
                .strip_suffix(".weight")
                .and_then(|name| name.rsplit_once(".lora_"))
                .filter(|(_, half)| matches!(*half, "A" | "B"))
                .ok_or_else(unknown)?;
            let place = blocks.place(stem).ok_or_else(unknown)?;
            let partner = |half: &str| format!("{stem}.lora_{half}.weight");
            if half == "B" {
                // It is read with its partner.
                if file.tensor(&partner("A")).is_err() {
                    return Err(ModelError::MissingTensor {
                        name: partner("A"),
                        expected: vec![settings.rank().unwrap_or(1), place.input],
                    });
                }
                continue;
            }
            let rank = match (settings.rank(), tensor.shape()) {
                (Some(rank), _) => rank,
                (None, &[rank, _]) if rank > 0 => rank,
                (None, _) => 1,
            };
            check(name, &tensor, &[rank, place.input])?;
            let shape = [place.columns.len(), rank];
            let name = partner("B");
            let other = file.tensor(&name).map_err(|_| ModelError::MissingTensor {
                name: name.clone(),
                expected: shape.to_vec(),
            })?;
            check(&name, &other, &shape)?;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            append(&mut a, &partner("A"), &tensor, true)?;
            append(&mut b, &name, &other, true)?;
            let (key, columns, scale) = (place.key, place.columns, settings.scale(rank));
            let name = stem.to_owned();
            let same = parts.entry(key).or_default();
            if same.iter().any(|part| part.columns == columns) {
                return Err(ModelError::RepeatedTensor { name });
            }
            same.push(Part {
                name,
                columns,
                rank,
                scale,
                a,
                b,
            });
        }
        if parts.is_empty() {
            let reason = format!("{MODEL_FILE} has no tensors");
            return Err(ModelError::MalformedWeights { reason });
        }
        parts
            .values_mut()
            .for_each(|parts| parts.sort_by_key(|part| part.columns.start));
        Ok(Self { parts })
    }

    /// Adds the adapters to the parameters of the model, whose layout is `layout`.
    ///
    /// # Errors
    /// A parameter count that is not the layout's; a layout of another model than the one that the adapters were read for.
    pub fn merge(&self, layout: &ParamLayout, params: &mut [f32]) -> Result<()> {
        check_count("parameter", layout.len(), params.len())?;
        let blocks = Blocks::of(layout)?;
        for (&(layer, number), parts) in &self.parts {
            let (range, [input, output]) = blocks.matrix(layer, BlockMatrix::ALL[number])?;
            let matrix = &mut params[range];
            for part in parts {
                let mut turned = vec![0.0; part.b.len()];
                let width = part.columns.len();
                for (place, &value) in part.b.iter().enumerate() {
                    turned[place % part.rank * width + place / part.rank] = value;
                }
                let mut sum = vec![0.0; width];
                for row in 0..input {
                    sum.fill(0.0);
                    for (inner, right) in turned.chunks_exact(width).enumerate() {
                        let left = part.a[inner * input + row];
                        sum.iter_mut()
                            .zip(right)
                            .for_each(|(sum, right)| *sum += left * right);
                    }
                    let target = &mut matrix[row * output + part.columns.start..][..width];
                    let added = target.iter_mut().zip(&sum);
                    added.for_each(|(target, sum)| *target += part.scale as f32 * sum);
                    if let Some(place) = target.iter().position(|value| !value.is_finite()) {
                        return Err(part.not_finite(row * width + place, target[place]));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the adapters into the parameters of a model with the adapters `lora`, whose layout is `layout`. `params` holds initial
    /// parameters, and what the files do not determine stays as it is: adapters of other matrices, and the columns of `A` above the
    /// rank that the files need, whose rows of `B` are zero. The model then computes what base and adapters compute.
    ///
    /// Adapters with different `A` on parts of one of our matrices, such as queries and values, need the sum of their ranks.
    ///
    /// # Errors
    /// [`ModelError::Lora`] if `lora` lacks a matrix or has too small a rank. [`ModelError::Adapted`] if `params` has adapters that change
    /// the model already. A parameter count that is not the layout's.
    pub fn fill(&self, lora: &LoraSpec, layout: &ParamLayout, params: &mut [f32]) -> Result<()> {
        check_count("parameter", layout.len(), params.len())?;
        let own = lora.alpha / lora.rank as f64;
        for tensor in layout
            .tensors()
            .iter()
            .filter(|tensor| tensor.name.ends_with("_b"))
        {
            if params[tensor.range()].iter().any(|&value| value != 0.0) {
                return Err(ModelError::Adapted { rank: lora.rank });
            }
        }
        for (&(layer, number), parts) in &self.parts {
            let matrix = BlockMatrix::ALL[number];
            if !lora.targets.contains(&matrix) {
                let got: Vec<&str> = lora.targets.iter().map(|target| target.name()).collect();
                return Err(ModelError::Lora {
                    key: "targets",
                    expected: format!(
                        "`{}` among them, for the adapter of {}",
                        matrix.name(),
                        parts[0].name
                    ),
                    got: format!("{got:?}"),
                });
            }
            // Parts that share `A` share its columns.
            let (mut needed, mut starts) = (0, Vec::new());
            for (place, part) in parts.iter().enumerate() {
                let shared = parts[..place].iter().position(|other| other.a == part.a);
                starts.push(match shared {
                    Some(shared) => starts[shared],
                    None => {
                        needed += part.rank;
                        needed - part.rank
                    }
                });
            }
            if needed > lora.rank {
                let names: Vec<&str> = parts.iter().map(|part| &part.name[..]).collect();
                return Err(ModelError::Lora {
                    key: "rank",
                    expected: format!(
                        "at least {needed}, which holds the adapters of {}",
                        names.join(", ")
                    ),
                    got: lora.rank.to_string(),
                });
            }
            let find = |half: &str| {
                let name = format!("b{layer}.{}_{half}", matrix.name());
                let found = layout.tensors().iter().find(|tensor| tensor.name == name);
                found.ok_or(ModelError::NoBlocks)
            };
            let (a, b) = (find("a")?, find("b")?);
            let (input, output) = (a.shape[0], b.shape[1]);
            let (a, b) = (a.range().start, b.range().start);
            for (part, start) in parts.iter().zip(starts) {
                for (place, &value) in part.a.iter().enumerate() {
                    let (inner, row) = (place / input, place % input);
                    params[a + row * lora.rank + start + inner] = value;
                }
                let factor = part.scale / own;
                for (place, &value) in part.b.iter().enumerate() {
                    let (column, inner) = (place / part.rank, place % part.rank);
                    let value = (f64::from(value) * factor) as f32;
                    if !value.is_finite() {
                        return Err(part.not_finite(place, value));
                    }
                    params[b + (start + inner) * output + part.columns.start + column] = value;
                }
            }
        }
        Ok(())
    }
}

impl Part {
    fn not_finite(&self, index: usize, value: f32) -> ModelError {
        ModelError::NonFiniteTensor {
            name: self.name.clone(),
            index,
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::SequenceModel;
    use crate::spec::ModelSpec;
    use crate::tensors::bytes_of;
    use crate::transformer::Transformer;
    use safetensors::serialize;
    use safetensors::tensor::{Dtype, TensorView};

    /// A name, a shape and values.
    type Tensor = (String, [usize; 2], Vec<f32>);

    const LLAMA: &str = r#"{"family": "llama", "layers": 2, "width": 12, "heads": 3, "key_heads": 1, "inner": 10,
        "context": 8}"#;
    const GPT2: &str = r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "context": 8}"#;

    fn whole(spec: &str) -> Transformer {
        let spec: ModelSpec = serde_json::from_str(spec).unwrap();
        spec.transformer(9).unwrap().unwrap()
    }

    fn config(change: (&str, serde_json::Value)) -> Vec<u8> {
        let mut config = serde_json::json!({"peft_type": "LORA", "r": 2, "lora_alpha": 3});
        config[change.0] = change.1;
        config.to_string().into_bytes()
    }

    fn plain() -> Vec<u8> {
        config(("bias", "none".into()))
    }

    /// A tensor of a file, with values that differ by `seed`.
    fn tensor(name: &str, shape: [usize; 2], seed: usize) -> (String, [usize; 2], Vec<f32>) {
        let values = (0..shape[0] * shape[1]).map(|place| ((place * 7 + seed * 13) % 11) as f32 / 8.0 - 0.6);
        (format!("base_model.model.{name}.weight"), shape, values.collect())
    }

    fn file(tensors: &[(String, [usize; 2], Vec<f32>)]) -> Vec<u8> {
        let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, _, values)| bytes_of(values)).collect();
        let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
            (
                name.clone(),
                TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap(),
            )
        });
        serialize(views, None).unwrap()
    }

    /// Queries and values with matrices of their own, as `peft` adapts a Llama by default, in block 1.
    fn queries_and_values() -> Vec<(String, [usize; 2], Vec<f32>)> {
        let name = |rest: &str| format!("model.layers.1.self_attn.{rest}");
        vec![
            tensor(&name("q_proj.lora_A"), [2, 12], 1),
            tensor(&name("q_proj.lora_B"), [12, 2], 2),
            tensor(&name("v_proj.lora_A"), [2, 12], 3),
            tensor(&name("v_proj.lora_B"), [4, 2], 4),
        ]
    }

    /// The values of the formula `W + scale B A` for the adapters above, one by one.
    fn expected(model: &Transformer, base: &[f32], scale: f64) -> Vec<f32> {
        let mut expected = base.to_vec();
        let range = model.layout().range("b1.qkv").unwrap();
        let tensors = queries_and_values();
        for (a, b, start) in [
            (&tensors[0].2, &tensors[1].2, 0),
            (&tensors[2].2, &tensors[3].2, 16),
        ] {
            for row in 0..12 {
                for column in 0..b.len() / 2 {
                    let sum = (0..2).map(|k| f64::from(b[column * 2 + k]) * f64::from(a[k * 12 + row]));
                    expected[range.start + row * 20 + start + column] += (scale * sum.sum::<f64>()) as f32;
                }
            }
        }
        expected
    }

    fn near(got: &[f32], expected: &[f32]) {
        assert_eq!(got.len(), expected.len());
        let far = got
            .iter()
            .zip(expected)
            .position(|(got, expected)| (got - expected).abs() > 1e-5);
        assert_eq!(far, None);
    }

    #[test]
    fn merged_adapters_are_the_base_plus_the_scaled_product() {
        let model = whole(LLAMA);
        let base = model.initial_params(1);
        for (key, value, scale) in [
            ("bias", serde_json::json!("none"), 1.5),
            ("use_rslora", true.into(), 3.0 / 2f64.sqrt()),
            ("fan_in_fan_out", true.into(), 1.5),
        ] {
            let adapters = PeftAdapters::read(
                model.layout(),
                &config((key, value)),
                &file(&queries_and_values()),
            );
            let mut merged = base.clone();
            adapters.unwrap().merge(model.layout(), &mut merged).unwrap();
            near(&merged, &expected(&model, &base, scale));
            assert_ne!(merged, base);
        }
    }

    #[test]
    fn a_training_starts_from_what_base_and_adapters_compute() {
        let model = whole(LLAMA);
        let base = model.initial_params(1);
        let adapters = PeftAdapters::read(model.layout(), &plain(), &file(&queries_and_values())).unwrap();
        // Two parts of different `A` of rank 2 need rank 4. Another alpha, another matrix and a rank to spare change nothing.
        for lora in [
            r#"{"rank": 4, "alpha": 6.0, "targets": ["qkv"]}"#,
            r#"{"rank": 7, "alpha": 1.0, "targets": ["down", "qkv"]}"#,
        ] {
            let lora = serde_json::from_str(lora).unwrap();
            let adapted = model.clone().with_lora(base.clone(), &lora).unwrap();
            let mut start = adapted.initial_params(1);
            adapters.fill(&lora, adapted.layout(), &mut start).unwrap();
            near(&adapted.merged(&start).unwrap().1, &expected(&model, &base, 1.5));
            // Columns of `A` that the file leaves open are ready to learn.
            let range = adapted.layout().range("b0.qkv_a").unwrap();
            assert!(start[range].iter().all(|&value| value != 0.0));
            let again = adapters.fill(&lora, adapted.layout(), &mut start).unwrap_err();
            assert_eq!(again, ModelError::Adapted { rank: lora.rank });
        }
    }

    #[test]
    fn adapters_that_were_written_come_back_to_the_bit() {
        for spec in [LLAMA, GPT2] {
            let model = whole(spec);
            let lora = serde_json::from_str(r#"{"rank": 3, "alpha": 5.0}"#).unwrap();
            let adapted = model.clone().with_lora(model.initial_params(1), &lora).unwrap();
            let params: Vec<f32> = (0..adapted.layout().len())
                .map(|place| (place as f32).cos())
                .collect();
            let (config, tensors) = super::super::write(&adapted, &params, &lora, "a test").unwrap();
            let adapters = PeftAdapters::read(model.layout(), &config, &tensors).unwrap();
            let mut start = adapted.initial_params(2);
            adapters.fill(&lora, adapted.layout(), &mut start).unwrap();
            assert_eq!(start, params);
        }
    }

    #[test]
    fn what_does_not_fit_the_model_or_the_run_is_refused_by_name() {
        let model = whole(LLAMA);
        let refused = |change: fn(&mut Vec<Tensor>)| {
            let mut tensors = queries_and_values();
            change(&mut tensors);
            let read = PeftAdapters::read(model.layout(), &plain(), &file(&tensors));
            read.unwrap_err().to_string()
        };
        for (change, message) in [
            (
                (|tensors| tensors[0] = tensor("model.layers.1.self_attn.q_proj.lora_A", [2, 16], 0))
                    as fn(&mut Vec<_>),
                "q_proj.lora_A.weight`: expected shape [2, 12], got [2, 16]",
            ),
            (
                |tensors| tensors[3] = tensor("model.layers.1.self_attn.v_proj.lora_B", [12, 2], 0),
                "v_proj.lora_B.weight`: expected shape [4, 2], got [12, 2]",
            ),
            (
                |tensors| tensors[0] = tensor("model.layers.1.self_attn.q_proj.lora_A", [3, 12], 0),
                "expected shape [2, 12], got [3, 12]",
            ),
            (
                |tensors| tensors.push(tensor("lm_head.lora_A", [2, 12], 0)),
                "unknown tensor `base_model.model.lm_head.lora_A.weight`",
            ),
            (
                |tensors| tensors.push(tensor("model.layers.2.self_attn.q_proj.lora_A", [2, 12], 0)),
                "unknown tensor `base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight`",
            ),
            (
                |tensors| tensors.push(tensor("model.layers.01.self_attn.q_proj.lora_A", [2, 12], 0)),
                "unknown tensor `base_model.model.model.layers.01.",
            ),
            (
                |tensors| tensors.push(tensor("model.embed_tokens", [9, 12], 0)),
                "unknown tensor `base_model.model.model.embed_tokens.weight` of shape [9, 12]",
            ),
            (
                |tensors| tensors.push(tensor("transformer.h.0.attn.c_attn.lora_A", [2, 12], 0)),
                "unknown tensor `base_model.model.transformer.h.0.",
            ),
            (
                |tensors| drop(tensors.remove(1)),
                "lacks tensor `base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight` of shape [12, 2]",
            ),
            (
                |tensors| drop(tensors.remove(0)),
                "lacks tensor `base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight` of shape [2, 12]",
            ),
            (
                |tensors| tensors[1].2[5] = f32::NAN,
                "q_proj.lora_B.weight`: value NaN at index 5",
            ),
            (
                |tensors| tensors.clear(),
                "adapter_model.safetensors has no tensors",
            ),
            (
                |tensors| {
                    tensors.push(tensor("layers.1.self_attn.q_proj.lora_A", [2, 12], 0));
                    tensors.push(tensor("layers.1.self_attn.q_proj.lora_B", [12, 2], 0));
                },
                "q_proj` comes twice",
            ),
        ] {
            let error = refused(change);
            assert!(error.contains(message), "{error}");
        }
        let lstm: ModelSpec = serde_json::from_str(r#"{"family": "tied_lstm"}"#).unwrap();
        let lstm = lstm.build(9).unwrap();
        let read = PeftAdapters::read(lstm.layout(), &plain(), &file(&queries_and_values()));
        assert_eq!(read.unwrap_err(), ModelError::NoBlocks);

        let adapters = PeftAdapters::read(model.layout(), &plain(), &file(&queries_and_values())).unwrap();
        for (lora, message) in [
            (
                r#"{"rank": 3, "alpha": 6.0, "targets": ["qkv"]}"#,
                "`lora.rank`: expected at least 4, which holds the adapters of base_model.model.model.layers.1.self_attn.q_proj, ",
            ),
            (
                r#"{"rank": 4, "alpha": 6.0, "targets": ["o"]}"#,
                "`lora.targets`: expected `qkv` among them, for the adapter of base_model",
            ),
        ] {
            let lora = serde_json::from_str(lora).unwrap();
            let adapted = model.clone().with_lora(model.initial_params(1), &lora).unwrap();
            let mut start = adapted.initial_params(1);
            let error = adapters
                .fill(&lora, adapted.layout(), &mut start)
                .unwrap_err()
                .to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn single_ranks_are_those_of_the_tensors() {
        let model = whole(LLAMA);
        let mut tensors = queries_and_values();
        tensors[2] = tensor("model.layers.1.self_attn.v_proj.lora_A", [1, 12], 3);
        tensors[3] = tensor("model.layers.1.self_attn.v_proj.lora_B", [4, 1], 4);
        let ranks = config(("rank_pattern", serde_json::json!({"v_proj": 1})));
        let adapters = PeftAdapters::read(model.layout(), &ranks, &file(&tensors)).unwrap();
        let (mut base, before) = (model.initial_params(1), model.initial_params(1));
        adapters.merge(model.layout(), &mut base).unwrap();
        // alpha / 1 for the values: row 5, column 2.
        let place = model.layout().range("b1.qkv").unwrap().start + 5 * 20 + 18;
        let added = 3.0 * tensors[2].2[5] * tensors[3].2[2];
        assert!(added != 0.0 && (base[place] - before[place] - added).abs() < 1e-6);
        assert!(PeftAdapters::read(model.layout(), &plain(), &file(&tensors)).is_err());
    }
}
