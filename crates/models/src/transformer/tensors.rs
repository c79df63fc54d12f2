//! Places of the tensors of a transformer in its flat vector.

use super::architecture::Norm;
use super::matrices::BlockMatrix;
use super::shape::{Positions, TransformerSizes};
use std::ops::Range;

/// Places of the tensors of one block in the flat vector. A tensor that the architecture lacks is empty.
#[derive(Debug, Clone)]
pub(crate) struct BlockTensors {
    /// The place of the block, counted from 0.
    pub(super) layer: usize,
    pub(super) norm1: Range<usize>,
    pub(super) norm1_bias: Range<usize>,
    pub(super) qkv: Range<usize>,
    pub(super) qkv_bias: Range<usize>,
    /// Gains of the norms of each head's queries and of its keys.
    pub(super) query_norm: Range<usize>,
    pub(super) key_norm: Range<usize>,
    pub(super) o: Range<usize>,
    pub(super) o_bias: Range<usize>,
    /// Gains of the norms of the outputs of attention and of the feed-forward layer.
    pub(super) o_norm: Range<usize>,
    pub(super) norm2: Range<usize>,
    pub(super) norm2_bias: Range<usize>,
    pub(super) up: Range<usize>,
    pub(super) up_bias: Range<usize>,
    pub(super) down: Range<usize>,
    pub(super) down_bias: Range<usize>,
    pub(super) down_norm: Range<usize>,
}

impl BlockTensors {
    /// Gains and biases. Their gradients stand side by side in this order, one such line per sequence where sequences are told apart.
    pub(super) fn vectors(&self) -> [&Range<usize>; 12] {
        [
            &self.norm1,
            &self.norm1_bias,
            &self.qkv_bias,
            &self.o_bias,
            &self.norm2,
            &self.norm2_bias,
            &self.up_bias,
            &self.down_bias,
            &self.query_norm,
            &self.key_norm,
            &self.o_norm,
            &self.down_norm,
        ]
    }

    /// Number of gains and biases.
    pub(super) fn vectors_len(&self) -> usize {
        self.vectors().iter().map(|range| range.len()).sum()
    }

    /// The four matrices, with inputs and outputs, in the order of [`BlockMatrix::ALL`].
    pub(super) fn matrices(&self, sizes: TransformerSizes) -> [(&Range<usize>, usize, usize); 4] {
        BlockMatrix::ALL.map(|matrix| {
            let [input, output] = sizes.extents(matrix);
            let place = match matrix {
                BlockMatrix::Qkv => &self.qkv,
                BlockMatrix::O => &self.o,
                BlockMatrix::Up => &self.up,
                BlockMatrix::Down => &self.down,
            };
            (place, input, output)
        })
    }
}

/// Place of each tensor in the flat vector.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    pub(super) embedding: Range<usize>,
    /// Empty for rotary positions.
    pub(super) positions: Range<usize>,
    pub(super) blocks: Vec<BlockTensors>,
    pub(super) final_norm: Range<usize>,
    pub(super) final_norm_bias: Range<usize>,
    /// The output matrix, which is the embedding where they are tied.
    pub(super) output: Range<usize>,
}

impl Tensors {
    /// Names and shapes of all tensors, in the order of the flat vector, and their places.
    pub(super) fn of(sizes: TransformerSizes) -> (Vec<(String, Vec<usize>)>, Self) {
        let TransformerSizes {
            vocab,
            layers,
            width,
            context,
            architecture,
            ..
        } = sizes;
        let mut named = Vec::with_capacity(16 * layers + 5);
        let mut end = 0;
        let mut place = |name: String, shape: &[usize], exists: bool| {
            if !exists {
                return 0..0;
            }
            let start = end;
            end += shape.iter().product::<usize>();
            named.push((name, shape.to_vec()));
            start..end
        };
        let centred = architecture.norm == Norm::Layer;
        let embedding = place("embedding".to_owned(), &[vocab, width], true);
        let learned = sizes.positions == Positions::Learned;
        let positions = place("positions".to_owned(), &[context, width], learned);
        let blocks = (0..layers).map(|layer| {
            let mut place =
                |name: &str, shape: &[usize], exists| place(format!("b{layer}.{name}"), shape, exists);
            let heads = (&[sizes.head_width()][..], architecture.head_norms);
            let [qkv, o, up, down] =
                BlockMatrix::ALL.map(|matrix| (sizes.extents(matrix), architecture.has_bias(matrix)));
            let after = architecture.output_norms;
            BlockTensors {
                layer,
                norm1: place("norm1", &[width], true),
                norm1_bias: place("norm1_bias", &[width], centred),
                qkv: place("qkv", &qkv.0, true),
                qkv_bias: place("qkv_bias", &qkv.0[1..], qkv.1),
                query_norm: place("query_norm", heads.0, heads.1),
                key_norm: place("key_norm", heads.0, heads.1),
                o: place("o", &o.0, true),
                o_bias: place("o_bias", &o.0[1..], o.1),
                o_norm: place("o_norm", &[width], after),
                norm2: place("norm2", &[width], true),
                norm2_bias: place("norm2_bias", &[width], centred),
                up: place("up", &up.0, true),
                up_bias: place("up_bias", &up.0[1..], up.1),
                down: place("down", &down.0, true),
                down_bias: place("down_bias", &down.0[1..], down.1),
                down_norm: place("down_norm", &[width], after),
            }
        });
        let blocks = blocks.collect();
        let final_norm = place("final_norm".to_owned(), &[width], true);
        let final_norm_bias = place("final_norm_bias".to_owned(), &[width], centred);
        let output = match architecture.tied {
            true => embedding.clone(),
            false => place("output".to_owned(), &[vocab, width], true),
        };
        debug_assert_eq!(sizes.parameters(), end as u128);
        let tensors = Self {
            embedding,
            positions,
            blocks,
            final_norm,
            final_norm_bias,
            output,
        };
        (named, tensors)
    }

    /// `true` if the embedding is also the output matrix.
    pub(super) fn tied(&self) -> bool {
        self.output == self.embedding
    }

    /// Number of gains and biases of one block.
    pub(super) fn block_vectors(&self) -> usize {
        self.blocks.first().map_or(0, BlockTensors::vectors_len)
    }

    /// Number of gains and biases of the final norm.
    pub(super) fn end_vectors(&self) -> usize {
        self.final_norm.len() + self.final_norm_bias.len()
    }

    /// Number of gains and biases of all blocks and of the final norm.
    pub(super) fn all_vectors(&self) -> usize {
        self.blocks.len() * self.block_vectors() + self.end_vectors()
    }
}
