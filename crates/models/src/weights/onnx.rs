//! Recurrent word models as ONNX files, for onnxruntime and its relatives on servers, phones and in browsers.
//!
//! | input or output | shape | value |
//! |---|---|---|
//! | `tokens` | `[time, batch]`, int64 | ids, of one step or of many |
//! | `hidden`, `cell` | `[1, batch, H]` | the state before the first step: zeros at the start of a text |
//! | `logits` | `[time, batch, ids]` | logits of the id after each of `tokens` |
//! | `hidden_out`, `cell_out` | `[1, batch, H]` | the state after the last step, for the next call |
//!
//! The graph is `Gather`, one `LSTM`, the projection and the output matrix, of operator set 17. The padding id of the StackOverflow model
//! is left out.
//!
//! Source: the specification of ONNX, operators of `ai.onnx` 17, and `onnx.proto` of IR version 8.
//!
//! ```
//! use undertone_models::{ModelSpec, weights::onnx};
//! let spec = ModelSpec::Dplm { embed: 8, hidden: 16, unit_norm: true };
//! let model = spec.build(20)?;
//! let bytes = onnx::write(&spec, 20, &model.initial_params(1), "what it was trained on")?;
//! assert!(bytes.windows(10).any(|part| part == b"hidden_out"));
//! # Ok::<(), undertone_models::ModelError>(())
//! ```

mod message;

use message::Message;

use crate::error::{ModelError, Result, check_count};
use crate::sequence::SequenceModel;
use crate::spec::ModelSpec;
use crate::word_lstm::{Cell, Output, WordLstm};

/// Version of the operators.
const OPERATORS: u64 = 17;
/// Version of the format that came with these operators.
const FORMAT: u64 = 8;
/// Element types of ONNX.
const FLOAT: u64 = 1;
const INT64: u64 = 7;

/// The file of a model over `vocab_len` ids. `description` stands in its metadata under the key `undertone`.
///
/// # Guarantee
/// The file is computed from the parameters alone.
///
/// # Errors
/// [`ModelError::NotRecurrent`] for another family, and a parameter count that is not the model's.
pub fn write(spec: &ModelSpec, vocab_len: usize, params: &[f32], description: &str) -> Result<Vec<u8>> {
    let model = spec.recurrent(vocab_len)?.ok_or(ModelError::NotRecurrent {
        family: spec.family(),
    })?;
    check_count("parameter", model.layout().len(), params.len())?;
    let mut graph = Message::default();
    let output = Writer {
        model: &model,
        params,
        vocab: vocab_len,
        graph: &mut graph,
    }
    .nodes();
    graph.text(2, "undertone");
    let hidden = model.dimensions.hidden as u64;
    let state = [Size::Is(1), Size::Any("batch"), Size::Is(hidden)];
    let steps = [Size::Any("time"), Size::Any("batch")];
    graph.message(11, &value("tokens", INT64, &steps));
    graph.message(11, &value("hidden", FLOAT, &state));
    graph.message(11, &value("cell", FLOAT, &state));
    let logits = [Size::Any("time"), Size::Any("batch"), Size::Is(vocab_len as u64)];
    graph.message(12, &value(output, FLOAT, &logits));
    graph.message(12, &value("hidden_out", FLOAT, &state));
    graph.message(12, &value("cell_out", FLOAT, &state));

    let mut operators = Message::default();
    operators.text(1, "").number(2, OPERATORS);
    let mut entry = Message::default();
    entry.text(1, "undertone").text(2, description);
    let mut file = Message::default();
    file.number(1, FORMAT)
        .text(2, "undertone")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(7, &graph)
        .message(8, &operators)
        .message(14, &entry);
    Ok(file.into_bytes())
}

/// A size of a tensor.
enum Size {
    Is(u64),
    Any(&'static str),
}

/// An input or output of the graph.
fn value(name: &str, kind: u64, sizes: &[Size]) -> Message {
    let mut shape = Message::default();
    for size in sizes {
        let mut dimension = Message::default();
        match size {
            Size::Is(size) => dimension.number(1, *size),
            Size::Any(name) => dimension.text(2, name),
        };
        shape.message(1, &dimension);
    }
    let (mut tensor, mut holder, mut value) = <(Message, Message, Message)>::default();
    tensor.number(1, kind).message(2, &shape);
    holder.message(1, &tensor);
    value.text(1, name).message(2, &holder);
    value
}

/// Adds the nodes and the constants of a model to a graph.
struct Writer<'a> {
    model: &'a WordLstm,
    params: &'a [f32],
    vocab: usize,
    graph: &'a mut Message,
}

impl Writer<'_> {
    /// Adds all nodes, and returns the name of the logits.
    fn nodes(&mut self) -> &'static str {
        let (embed, hidden, projection) = self.widths();
        let embedding = self.embedding();
        self.constant("embedding", &[self.vocab, embed], &embedding);
        self.node("Gather", &["embedding", "tokens"], &["words"], &[]);
        let (input, recurrent, bias) = self.gates();
        self.constant("W", &[1, 4 * hidden, embed], &input);
        self.constant("R", &[1, 4 * hidden, hidden], &recurrent);
        self.constant("B", &[1, 8 * hidden], &bias);
        let mut settings = vec![("hidden_size", hidden as u64)];
        if self.model.dimensions.cell == Cell::Cifg {
            settings.push(("input_forget", 1));
        }
        let inputs = ["words", "W", "R", "B", "", "hidden", "cell"];
        self.node("LSTM", &inputs, &["states", "hidden_out", "cell_out"], &settings);
        self.axes();
        self.node("Squeeze", &["states", "direction"], &["rows"], &[]);
        let tensors = &self.model.tensors;
        self.constant(
            "projection",
            &[hidden, projection],
            &self.params[tensors.projection.clone()],
        );
        self.node("MatMul", &["rows", "projection"], &["product"], &[]);
        let mut projected = "product";
        if !tensors.projection_bias.is_empty() {
            let bias = &self.params[tensors.projection_bias.clone()];
            self.constant("projection_bias", &[projection], bias);
            self.node("Add", &["product", "projection_bias"], &["projected"], &[]);
            projected = "projected";
        }
        match self.model.output {
            Output::Tied { .. } => {
                self.node("Transpose", &["embedding"], &["out"], &[]);
                self.node("MatMul", &[projected, "out"], &["logits"], &[]);
            }
            Output::Dense => {
                let (out, bias) = self.out();
                self.constant("out", &[projection, self.vocab], &out);
                self.constant("out_bias", &[self.vocab], &bias);
                self.node("MatMul", &[projected, "out"], &["scores"], &[]);
                self.node("Add", &["scores", "out_bias"], &["logits"], &[]);
            }
        }
        "logits"
    }

    /// Widths of embedding, hidden state and projected state.
    fn widths(&self) -> (usize, usize, usize) {
        let sizes = &self.model.dimensions;
        (sizes.embed, sizes.hidden, sizes.projection)
    }

    /// Rows of the words, each over its norm in a model of unit norm.
    fn embedding(&self) -> Vec<f32> {
        let embed = self.model.dimensions.embed;
        let mut rows = self.params[self.model.tensors.embedding.clone()][..self.vocab * embed].to_vec();
        if self.model.output == (Output::Tied { unit_norm: true }) {
            for row in rows.chunks_exact_mut(embed) {
                let norm = row
                    .iter()
                    .map(|value| f64::from(*value).powi(2))
                    .sum::<f64>()
                    .sqrt();
                row.iter_mut()
                    .for_each(|value| *value = (f64::from(*value) / norm) as f32);
            }
        }
        rows
    }

    /// Output matrix and bias of the words: without the columns of ids that are no words.
    fn out(&self) -> (Vec<f32>, Vec<f32>) {
        let tensors = &self.model.tensors;
        let rows = self.params[tensors.out.clone()].chunks_exact(self.model.dimensions.vocab);
        let words = rows.flat_map(|row| &row[..self.vocab]).copied().collect();
        (
            words,
            self.params[tensors.out_bias.clone()][..self.vocab].to_vec(),
        )
    }

    /// Matrices and bias of the gates in the order of ONNX (input, output, forget, candidate), each row one output.
    ///
    /// In the CIFG `i = 1 - f = sigmoid(-z_f)`, and its reader takes `f = 1 - i`: the input gate has the negated numbers of the forget gate.
    /// Its projected state goes back, `r wh = h (wp wh)`, so the recurrent matrix is the product.
    fn gates(&self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let (embed, hidden, projection) = self.widths();
        let tensors = &self.model.tensors;
        let wx = doubles(&self.params[tensors.wx.clone()]);
        let wh = doubles(&self.params[tensors.wh.clone()]);
        let bias = doubles(&self.params[tensors.bias.clone()]);
        let gates = self.model.dimensions.gates();
        // Ours: input, forget, candidate, output; in the CIFG: forget, candidate, output.
        let (order, recurrent) = match self.model.dimensions.cell {
            Cell::Lstm => ([(0, 1.0), (3, 1.0), (1, 1.0), (2, 1.0)], wh),
            Cell::Cifg => {
                let wp = doubles(&self.params[tensors.projection.clone()]);
                let product = product(&wp, &wh, projection, gates);
                ([(0, -1.0), (2, 1.0), (0, 1.0), (1, 1.0)], product)
            }
        };
        let turned = |matrix: &[f64], rows: usize| {
            let mut all = Vec::with_capacity(4 * hidden * rows);
            for (gate, sign) in order {
                for column in gate * hidden..(gate + 1) * hidden {
                    all.extend((0..rows).map(|row| (sign * matrix[row * gates + column]) as f32));
                }
            }
            all
        };
        let mut biases = turned(&bias, 1);
        biases.resize(8 * hidden, 0.0);
        (turned(&wx, embed), turned(&recurrent, hidden), biases)
    }

    fn node(&mut self, kind: &str, inputs: &[&str], outputs: &[&str], settings: &[(&str, u64)]) {
        let mut node = Message::default();
        for name in inputs {
            node.text(1, name);
        }
        for name in outputs {
            node.text(2, name);
        }
        node.text(3, outputs.first().unwrap_or(&kind)).text(4, kind);
        for (name, number) in settings {
            // The type of an attribute that is a whole number is 2.
            let mut attribute = Message::default();
            attribute.text(1, name).number(3, *number).number(20, 2);
            node.message(5, &attribute);
        }
        self.graph.message(1, &node);
    }

    fn constant(&mut self, name: &str, sizes: &[usize], values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, sizes, FLOAT, &bytes);
    }

    /// The axis of the states that an LSTM in one direction has too many.
    fn axes(&mut self) {
        self.tensor("direction", &[1], INT64, &1i64.to_le_bytes());
    }

    fn tensor(&mut self, name: &str, sizes: &[usize], kind: u64, bytes: &[u8]) {
        let mut tensor = Message::default();
        for size in sizes {
            tensor.number(1, *size as u64);
        }
        tensor.number(2, kind).text(8, name).bytes(9, bytes);
        self.graph.message(5, &tensor);
    }
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// `left right` for `left` of rows of `inner` numbers and `right` of rows of `columns` numbers.
fn product(left: &[f64], right: &[f64], inner: usize, columns: usize) -> Vec<f64> {
    let mut all = Vec::with_capacity(left.len() / inner * columns);
    for row in left.chunks_exact(inner) {
        let start = all.len();
        all.resize(start + columns, 0.0);
        // all[row, column] = sum_k left[row, k] right[k, column]
        for (factor, line) in row.iter().zip(right.chunks_exact(columns)) {
            for (sum, value) in all[start..].iter_mut().zip(line) {
                *sum += factor * value;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
