//! Places of Hugging Face's tensors in our flat vector.

use super::{EMBEDDING, OUTPUT};
use crate::sequence::SequenceModel;
use crate::transformer::Transformer;
use std::ops::Range;

/// One of their tensors, and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    /// Name of the tensor, without the prefix.
    pub(crate) name: String,
    /// Shape of the tensor: `[output, input]` of a matrix.
    pub(crate) shape: Vec<usize>,
    pub(crate) place: Place,
    /// `true` for the gain of a norm.
    pub(crate) gain: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Place {
    /// Values in the same order.
    Same(Range<usize>),
    /// Some columns of one of our matrices, transposed.
    Columns {
        matrix: Range<usize>,
        /// Columns of our matrix.
        width: usize,
        columns: Range<usize>,
    },
}

/// Rows and columns of a transpose that are handled together.
const TILE: usize = 32;

impl Piece {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Calls `visit(theirs, ours)` for every value, with its index in their tensor and in our vector.
    fn each(&self, mut visit: impl FnMut(usize, usize)) {
        match &self.place {
            Place::Same(range) => range
                .clone()
                .enumerate()
                .for_each(|(theirs, ours)| visit(theirs, ours)),
            Place::Columns {
                matrix,
                width,
                columns,
            } => {
                let (input, start) = (matrix.len() / width, matrix.start + columns.start);
                for top in (0..columns.len()).step_by(TILE) {
                    for left in (0..input).step_by(TILE) {
                        for output in top..columns.len().min(top + TILE) {
                            for row in left..input.min(left + TILE) {
                                visit(output * input + row, start + row * width + output);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Writes their values, plus `shift`, into our vector.
    pub(crate) fn scatter(&self, values: &[f32], shift: f32, params: &mut [f32]) {
        self.each(|theirs, ours| params[ours] = values[theirs] + shift);
    }

    /// Their values from our vector, plus `shift`.
    pub(crate) fn gather(&self, params: &[f32], shift: f32) -> Vec<f32> {
        let mut values = vec![0.0; self.len()];
        self.each(|theirs, ours| values[theirs] = params[ours] + shift);
        values
    }
}

/// All of their tensors of a model whose architecture one of their layouts has, in the order of our vector.
pub(crate) fn pieces(model: &Transformer) -> Vec<Piece> {
    let sizes = model.sizes();
    let (queries, keys, inner) = (sizes.query_width(), sizes.key_width(), sizes.inner);
    let qkv = [
        ("q", 0..queries),
        ("k", queries..queries + keys),
        ("v", queries + keys..queries + 2 * keys),
    ];
    let up = [("gate", 0..inner), ("up", inner..2 * inner)];
    let mut pieces = Vec::new();
    for tensor in model.layout().tensors() {
        let range = tensor.range();
        let (layer, ours) = match tensor
            .name
            .strip_prefix('b')
            .and_then(|rest| rest.split_once('.'))
        {
            Some((layer, name)) => (format!("layers.{layer}."), name),
            None => (String::new(), &tensor.name[..]),
        };
        let mut same = |theirs: &str, gain| {
            pieces.push(Piece {
                name: format!("{layer}{theirs}"),
                shape: tensor.shape.clone(),
                place: Place::Same(range.clone()),
                gain,
            });
        };
        match ours {
            "embedding" => same(EMBEDDING, false),
            "output" => same(OUTPUT, false),
            "norm1" => same("input_layernorm.weight", true),
            "o_norm" => same("post_attention_layernorm.weight", true),
            "norm2" if sizes.architecture.output_norms => same("pre_feedforward_layernorm.weight", true),
            "norm2" => same("post_attention_layernorm.weight", true),
            "down_norm" => same("post_feedforward_layernorm.weight", true),
            "query_norm" => same("self_attn.q_norm.weight", true),
            "key_norm" => same("self_attn.k_norm.weight", true),
            "final_norm" => same("norm.weight", true),
            "o_bias" => same("self_attn.o_proj.bias", false),
            "down_bias" => same("mlp.down_proj.bias", false),
            _ => {}
        }
        let (group, parts): (&str, &[(&str, Range<usize>)]) = match ours {
            "qkv" | "qkv_bias" => ("self_attn", &qkv),
            "up" | "up_bias" => ("mlp", &up),
            "o" => ("self_attn", &[("o", 0..sizes.width)]),
            "down" => ("mlp", &[("down", 0..sizes.width)]),
            _ => ("", &[]),
        };
        for (part, columns) in parts {
            let (kind, shape, place) = match tensor.shape[..] {
                [input, width] => {
                    let (matrix, columns) = (range.clone(), columns.clone());
                    let shape = vec![columns.len(), input];
                    let place = Place::Columns {
                        matrix,
                        width,
                        columns,
                    };
                    ("weight", shape, place)
                }
                _ => {
                    let own = range.start + columns.start..range.start + columns.end;
                    ("bias", vec![columns.len()], Place::Same(own))
                }
            };
            pieces.push(Piece {
                name: format!("{layer}{group}.{part}_proj.{kind}"),
                shape,
                place,
                gain: false,
            });
        }
    }
    pieces
}
