//! The tensors of a transformer: where each is read, and where its gradient or its step goes.

use undertone_aggregation::ParamLayout;
use undertone_local::{Algorithm, LocalError};
use undertone_models::{
    BlockMatrix, FeedForward, Gate, ModelSpec, SequenceModel, SoftCaps, Transformer, TransformerSizes,
};

use crate::call::{Array, activation, place};
use crate::frame::{Frame, parameter};
use crate::program::unusable;

/// A matrix or a vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor {
    /// The place from which the values are read: in the slot, or in the memory that all slots have in common.
    pub(crate) read: Array,
    /// The place among the slot's parameters; `None` for a tensor that is not trained.
    pub(crate) write: Option<Array>,
}

/// A matrix that rows are multiplied by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    pub(crate) matrix: Tensor,
    pub(crate) bias: Option<Tensor>,
    /// Two narrow matrices whose product is added to the matrix.
    pub(crate) adapter: Option<[Tensor; 2]>,
    pub(crate) input: u32,
    pub(crate) output: u32,
}

/// The gain and the bias of a norm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) gain: Tensor,
    pub(crate) bias: Option<Tensor>,
}

/// The tensors of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) norm1: Norm,
    pub(crate) qkv: Linear,
    /// The gains of queries and keys.
    pub(crate) of_heads: Option<[Norm; 2]>,
    pub(crate) o: Linear,
    pub(crate) norm2: Norm,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// Sizes and tensors of a transformer.
pub(crate) struct Shape {
    pub(crate) sizes: TransformerSizes,
    /// Number of trained parameters.
    pub(crate) parameters: usize,
    pub(crate) embedding: Tensor,
    pub(crate) positions: Option<Tensor>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) final_norm: Norm,
    pub(crate) output: Tensor,
    /// Columns of the adapters' first matrices, or 0.
    pub(crate) rank: u32,
    /// The factor of the adapters' products.
    pub(crate) scale: f32,
    /// `true` if the slot's parameters are a gradient, and not a model.
    pub(crate) is_gradient: bool,
}

/// Finds tensors by their names.
struct Finder<'a> {
    trained: &'a ParamLayout,
    whole: &'a ParamLayout,
    /// The first float of the base, for a model with adapters.
    base: Option<u64>,
    is_gradient: bool,
}

impl Finder<'_> {
    fn find(&self, name: &str) -> Option<Tensor> {
        let (layout, base) = match self.base {
            Some(base) if self.trained.range(name).is_none() => (self.whole, Some(base)),
            _ => (self.trained, None),
        };
        let range = layout.range(name)?;
        let tensor = layout.tensors().iter().find(|tensor| tensor.name == name)?;
        let cols = tensor.shape.last().copied().unwrap_or(1) as u32;
        let own = parameter(range.start as u64, cols);
        let common = |first: u64| Array {
            at: first + own.at,
            place: place::COMMON,
            ..own
        };
        Some(match base {
            Some(base) => Tensor {
                read: common(base),
                write: None,
            },
            None => Tensor {
                read: if self.is_gradient { common(0) } else { own },
                write: Some(own),
            },
        })
    }

    fn get(&self, name: &str) -> Result<Tensor, LocalError> {
        let missing = || unusable("model", &format!("a tensor `{name}` in its layout"), "none");
        self.find(name).ok_or_else(missing)
    }

    fn norm(&self, name: &str) -> Result<Norm, LocalError> {
        Ok(Norm {
            gain: self.get(name)?,
            bias: self.find(&format!("{name}_bias")),
        })
    }

    fn linear(
        &self,
        layer: usize,
        matrix: BlockMatrix,
        sizes: TransformerSizes,
    ) -> Result<Linear, LocalError> {
        let name = format!("b{layer}.{}", matrix.name());
        let [input, output] = sizes.extents(matrix).map(|size| size as u32);
        let adapter = match (self.find(&format!("{name}_a")), self.find(&format!("{name}_b"))) {
            (Some(a), Some(b)) => Some([a, b]),
            _ => None,
        };
        Ok(Linear {
            matrix: self.get(&name)?,
            bias: self.find(&format!("{name}_bias")),
            adapter,
            input,
            output,
        })
    }
}

impl Shape {
    /// Reads the tensors of a model from its layout.
    ///
    /// # Errors
    /// A layout that is not that of the model.
    pub(crate) fn new(
        spec: &ModelSpec,
        transformer: &Transformer,
        model: &dyn SequenceModel,
        algorithm: Algorithm,
    ) -> Result<Self, LocalError> {
        let (sizes, trained) = (transformer.sizes(), model.layout());
        for (key, is_set) in [
            ("model.output_norms", sizes.architecture.output_norms),
            ("model.local_rotary", sizes.architecture.local_rotary.is_some()),
            ("model.query_scalar", sizes.architecture.query_scalar.is_some()),
            (
                "model.soft_caps",
                sizes.architecture.soft_caps != SoftCaps::default(),
            ),
        ] {
            if is_set {
                return Err(unusable(key, "this key absent", "a value"));
            }
        }
        let (base, is_gradient) = (Frame::common_at(trained.len()), algorithm != Algorithm::FedAvg);
        let finder = Finder {
            trained,
            whole: transformer.layout(),
            base: spec.lora().map(|_| base),
            is_gradient,
        };
        let block = |layer: usize| {
            let norm = |name: &str| finder.norm(&format!("b{layer}.{name}"));
            let linear = |matrix| finder.linear(layer, matrix, sizes);
            let of_heads = match sizes.architecture.head_norms {
                true => Some([norm("query_norm")?, norm("key_norm")?]),
                false => None,
            };
            Ok(Block {
                norm1: norm("norm1")?,
                qkv: linear(BlockMatrix::Qkv)?,
                of_heads,
                o: linear(BlockMatrix::O)?,
                norm2: norm("norm2")?,
                up: linear(BlockMatrix::Up)?,
                down: linear(BlockMatrix::Down)?,
            })
        };
        let embedding = finder.get("embedding")?;
        Ok(Self {
            sizes,
            parameters: trained.len(),
            embedding,
            positions: finder.find("positions"),
            blocks: (0..sizes.layers).map(block).collect::<Result<_, LocalError>>()?,
            final_norm: finder.norm("final_norm")?,
            output: match sizes.architecture.tied {
                true => embedding,
                false => finder.get("output")?,
            },
            rank: spec.lora().map_or(0, |lora| lora.rank as u32),
            scale: spec
                .lora()
                .map_or(0.0, |lora| (lora.alpha / lora.rank as f64) as f32),
            is_gradient,
        })
    }

    pub(crate) fn width(&self) -> u32 {
        self.sizes.width as u32
    }

    pub(crate) fn head_width(&self) -> u32 {
        self.sizes.head_width() as u32
    }

    /// Heads of queries and of keys.
    pub(crate) fn heads(&self) -> [u32; 2] {
        [self.sizes.heads, self.sizes.key_heads()].map(|heads| heads as u32)
    }

    /// The activation of the feed-forward layer, as the kernels number it.
    pub(crate) fn activation(&self) -> u32 {
        match self.sizes.architecture.feed_forward {
            FeedForward::Gelu => activation::GELU,
            FeedForward::Gated(Gate::Silu) => activation::GATED_SILU,
            FeedForward::Gated(Gate::Gelu) => activation::GATED_GELU,
        }
    }

    /// The largest number of values of a matrix whose gradient is computed in spans.
    pub(crate) fn largest_matrix(&self) -> u64 {
        let of = |linear: &Linear| match linear.adapter {
            Some(_) => u64::from(self.rank) * u64::from(linear.input.max(linear.output)),
            None => u64::from(linear.input) * u64::from(linear.output),
        };
        let of_block = |block: &Block| [&block.qkv, &block.o, &block.up, &block.down].map(of);
        self.blocks.iter().flat_map(of_block).max().unwrap_or(0)
    }
}
