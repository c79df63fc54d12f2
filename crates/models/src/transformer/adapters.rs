//! Low-rank adapters: the matrices that have them, their places in the flat vector, and the base that they are added to.

use super::matrices::BlockMatrix;
use super::{Tensors, Transformer, TransformerSizes};
use crate::error::{ModelError, Result, check_count};
use crate::initial::Initializer;
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
};
use crate::scalar::Scalar;
use crate::sequence::SequenceModel;
use crate::tensors::{from_safetensors, malformed, to_safetensors};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use undertone_aggregation::ParamLayout;

/// Low-rank adapters: each targeted matrix `W` of every block becomes `W + (alpha / rank) A B`, and `A` and `B` are the only
/// parameters that are trained.
///
/// # Source
/// Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoraSpec {
    /// Columns of `A` and rows of `B`: from 1 to the smaller side of every targeted matrix.
    pub rank: usize,
    /// The scale of the product is `alpha / rank`.
    pub alpha: f64,
    /// The matrices that get adapters, all four by default.
    #[serde(default = "BlockMatrix::all")]
    pub targets: Vec<BlockMatrix>,
}

/// Place of the adapter of one matrix in the flat vector: `A` is `[input, rank]`, `B` is `[rank, output]`.
#[derive(Debug, Clone)]
pub(super) struct Adapter {
    pub(super) a: Range<usize>,
    pub(super) b: Range<usize>,
}

/// Places of all adapters in the flat vector.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) layout: ParamLayout,
    /// Adapters of every block, in the order of [`BlockMatrix::ALL`].
    pub(super) blocks: Vec<[Option<Adapter>; 4]>,
}

impl LoraSpec {
    fn check(&self, sizes: TransformerSizes) -> Result<()> {
        let unfit = |key, expected: &str, got: String| {
            let expected = expected.to_owned();
            Err(ModelError::Lora { key, expected, got })
        };
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return unfit("alpha", "a finite number above 0", self.alpha.to_string());
        }
        let names: Vec<&str> = self.targets.iter().map(|target| target.name()).collect();
        let repeated = (1..names.len()).any(|place| names[..place].contains(&names[place]));
        if names.is_empty() || repeated {
            let expected = "different ones of `qkv`, `o`, `up`, `down`, at least one";
            return unfit("targets", expected, format!("{names:?}"));
        }
        for &target in &self.targets {
            let [input, output] = sizes.extents(target);
            let side = input.min(output);
            if self.rank == 0 || self.rank > side {
                let expected = format!("from 1 to {side}, the smaller side of `{}`", target.name());
                return unfit("rank", &expected, self.rank.to_string());
            }
        }
        Ok(())
    }

    /// Tensors `b0.qkv_a`, `b0.qkv_b` and so on, of one clip group each.
    pub(super) fn places(&self, sizes: TransformerSizes, tensors: &Tensors) -> Result<Places> {
        self.check(sizes)?;
        let mut named = Vec::with_capacity(2 * self.targets.len() * sizes.layers);
        let mut end = 0;
        let mut place = |name: String, shape: [usize; 2]| {
            let start = end;
            end += shape[0] * shape[1];
            named.push((name, shape.to_vec()));
            start..end
        };
        let mut blocks = Vec::with_capacity(sizes.layers);
        for (layer, tensors) in tensors.blocks.iter().enumerate() {
            let matrices = tensors.matrices(sizes);
            blocks.push(std::array::from_fn(|number| {
                let ((_, input, output), target) = (matrices[number], BlockMatrix::ALL[number]);
                let name = format!("b{layer}.{}", target.name());
                self.targets.contains(&target).then(|| Adapter {
                    a: place(format!("{name}_a"), [input, self.rank]),
                    b: place(format!("{name}_b"), [self.rank, output]),
                })
            }));
        }
        let layout = ParamLayout::with_tensor_groups(named)?;
        Ok(Places { layout, blocks })
    }
}

/// Returns `true` if this is the name of an adapter's tensor.
fn is_adapter(name: &str) -> bool {
    let matrix = name
        .strip_suffix("_a")
        .or(name.strip_suffix("_b"))
        .and_then(|name| name.strip_prefix('b'))
        .and_then(|name| name.split_once('.'));
    matrix.is_some_and(|(_, name)| BlockMatrix::ALL.iter().any(|target| target.name() == name))
}

/// The base of an adapted model, and the places of its adapters.
#[derive(Debug)]
pub(crate) struct Adapters {
    /// The whole model without them.
    pub(super) whole: ParamLayout,
    pub(super) base: Vec<f32>,
    pub(super) rank: usize,
    /// `alpha / rank`.
    pub(super) scale: f64,
    pub(super) blocks: Vec<[Option<Adapter>; 4]>,
}

impl Adapters {
    /// Every adapter, with the place of its matrix in the whole model, inputs and outputs.
    fn each<'a>(
        &'a self,
        sizes: TransformerSizes,
        tensors: &'a Tensors,
    ) -> impl Iterator<Item = (&'a Adapter, &'a Range<usize>, usize, usize)> {
        let blocks = tensors.blocks.iter().zip(&self.blocks);
        blocks.flat_map(move |(tensors, adapters)| {
            let matrices = tensors.matrices(sizes).into_iter().zip(adapters);
            matrices.filter_map(|((place, input, output), adapter)| {
                Some((adapter.as_ref()?, place, input, output))
            })
        })
    }

    /// Writes the adapted matrices of every block over those in `merged`.
    pub(super) fn merge<T: Scalar>(
        &self,
        isa: Isa,
        params: &[T],
        sizes: TransformerSizes,
        tensors: &Tensors,
        merged: &mut [T],
    ) {
        for (adapter, place, input, output) in self.each(sizes, tensors) {
            let target = &mut merged[place.clone()];
            for (value, &base) in target.iter_mut().zip(&self.base[place.clone()]) {
                *value = T::of(f64::from(base));
            }
            let extent = Extent {
                rows: input,
                cols: output,
                depth: self.rank,
            };
            let left = Left::strided(&params[adapter.a.clone()], self.rank, 1);
            let right = Right::Rows(&params[adapter.b.clone()], output);
            matmul(isa, extent, T::of(self.scale), left, right, target, output, true);
        }
    }

    /// `A` uniform up to one over the root of its inputs, `B` zero.
    pub(super) fn initialise(
        &self,
        initializer: &mut Initializer,
        params: &mut [f32],
        sizes: TransformerSizes,
        tensors: &Tensors,
    ) {
        for (adapter, _, input, _) in self.each(sizes, tensors) {
            initializer.uniform(&mut params[adapter.a.clone()], 1.0 / (input as f64).sqrt());
        }
    }
}

/// The layout of a file that holds both, one behind the other.
fn both(whole: &ParamLayout, adapters: &ParamLayout) -> Result<ParamLayout> {
    let tensors = whole.tensors().iter().chain(adapters.tensors());
    let named = tensors.map(|tensor| (tensor.name.clone(), tensor.shape.clone()));
    Ok(ParamLayout::with_tensor_groups(named.collect())?)
}

impl Transformer {
    /// This model with its parameters held fast at `base` and adapters as the only parameters. Tensors are `b0.qkv_a`,
    /// `b0.qkv_b` and so on.
    ///
    /// # Errors
    /// A model that has adapters already, a parameter count that is not the model's, a rank of zero or above the smaller
    /// side of a targeted matrix, an `alpha` that is not a positive number, targets that are none or repeated.
    pub fn with_lora(self, base: Vec<f32>, lora: &LoraSpec) -> Result<Self> {
        if let Some(adapters) = &self.adapters {
            return Err(ModelError::Adapted { rank: adapters.rank });
        }
        check_count("base", self.layout.len(), base.len())?;
        let Places { layout, blocks } = lora.places(self.sizes, &self.tensors)?;
        Ok(Self {
            adapters: Some(Arc::new(Adapters {
                whole: self.layout,
                base,
                rank: lora.rank,
                scale: lora.alpha / lora.rank as f64,
                blocks,
            })),
            layout,
            ..self
        })
    }

    /// The layout that [`with_lora`](Self::with_lora) would give this model.
    ///
    /// # Errors
    /// As there, but for the base.
    pub(crate) fn lora_layout(&self, lora: &LoraSpec) -> Result<ParamLayout> {
        Ok(lora.places(self.sizes, &self.tensors)?.layout)
    }

    /// This model with adapters, and their parameters, from a file that [`write_params`](SequenceModel::write_params) made of
    /// such a model; from the file of a model without adapters (also in GPT-2's layout) that model with adapters, and no
    /// parameters.
    ///
    /// # Errors
    /// As [`with_lora`](Self::with_lora) and [`read_params`](SequenceModel::read_params).
    pub(crate) fn load_lora(self, lora: &LoraSpec, bytes: &[u8]) -> Result<(Self, Option<Vec<f32>>)> {
        let Places { layout, .. } = lora.places(self.sizes, &self.tensors)?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
        if !header.offset_keys().iter().any(|name| is_adapter(name)) {
            let base = self.read_params(bytes)?;
            return Ok((self.with_lora(base, lora)?, None));
        }
        let mut base = from_safetensors(&both(&self.layout, &layout)?, bytes)?;
        let adapters = base.split_off(self.layout.len());
        Ok((self.with_lora(base, lora)?, Some(adapters)))
    }

    /// The model without adapters that computes the same, and its parameters: the base with the adapters added. A model without
    /// adapters gives itself.
    ///
    /// # Errors
    /// A parameter count that is not the model's.
    pub fn merged(&self, params: &[f32]) -> Result<(Self, Vec<f32>)> {
        check_count("parameter", self.layout.len(), params.len())?;
        let Some(adapters) = &self.adapters else {
            return Ok((self.clone(), params.to_vec()));
        };
        let mut merged = adapters.base.clone();
        adapters.merge(Isa::detect(), params, self.sizes, &self.tensors, &mut merged);
        Ok((Self::new(self.sizes)?.recomputing(self.recompute), merged))
    }

    /// Adapters and what they are added to, in one file.
    pub(super) fn write_adapted(
        &self,
        adapters: &Adapters,
        params: &[f32],
        description: &str,
    ) -> Result<Vec<u8>> {
        let layout = both(&adapters.whole, &self.layout)?;
        to_safetensors(&layout, &[&adapters.base, params].concat(), description)
    }

    /// The adapters of a file whose other tensors are those that this model's adapters are added to.
    pub(super) fn read_adapted(&self, adapters: &Adapters, bytes: &[u8]) -> Result<Vec<f32>> {
        let mut base = from_safetensors(&both(&adapters.whole, &self.layout)?, bytes)?;
        let params = base.split_off(adapters.whole.len());
        let same = base
            .iter()
            .zip(&adapters.base)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        if same {
            Ok(params)
        } else {
            Err(ModelError::OtherBase)
        }
    }
}
