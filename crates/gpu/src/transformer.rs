//! The calls of one local step of a transformer: forward pass, backward pass, and the gradients or the step along them.

mod attention;
mod layers;
mod room;
mod shape;

use undertone_local::{Algorithm, LocalError};
use undertone_models::{ModelSpec, SequenceModel, Transformer};

use crate::call::{Array, Call, Kernel, PARTS, count, product, shift};
use crate::frame::{Extent, Extents, Frame, Launch};
use crate::program::{Sizes, unusable};
use attention::Work;
use room::Room;
use shape::{Linear, Shape};

/// Makes the calls of the kernels for a transformer.
pub(crate) struct TransformerProgram {
    shape: Shape,
    room: Room,
    /// The tensors that are not trained.
    base: Vec<f32>,
    turns: Vec<f32>,
}

/// The calls of a step so far, and what they follow from.
struct Step<'a> {
    shape: &'a Shape,
    room: &'a Room,
    sizes: Sizes,
    /// The factor of gradients as they are added to the parameters.
    factor: f32,
    calls: Vec<Launch>,
}

impl TransformerProgram {
    /// A program for batches of these extents.
    ///
    /// # Errors
    /// A batch with more values than 32 bits can count.
    pub(crate) fn new(
        spec: &ModelSpec,
        transformer: &Transformer,
        model: &dyn SequenceModel,
        algorithm: Algorithm,
        extents: Extents,
    ) -> Result<Self, LocalError> {
        let shape = Shape::new(spec, transformer, model, algorithm)?;
        let turns = shape
            .sizes
            .turns(shape.sizes.context)
            .into_iter()
            .flatten()
            .collect::<Vec<f32>>();
        let base = model.frozen().to_vec();
        let sizes = shape.sizes;
        let widest = [
            sizes.width,
            sizes.query_width(),
            sizes.qkv_width(),
            sizes.up_width(),
        ];
        let widest = widest.into_iter().fold(extents.steps as usize, usize::max) as u64;
        let rows = u64::from(extents.sequences * extents.steps);
        let words = (rows.min(2048)).max(sizes.width as u64) * sizes.vocab as u64;
        let of_scores = rows * sizes.heads as u64;
        if (rows * widest).max(words).max(of_scores) >= 1 << 32 {
            let expected = "fewer than 2^32 values per layer and batch";
            let got = format!("{rows} rows of {widest} values, or {words} of words");
            return Err(unusable("user_update.batch_size", expected, &got));
        }
        let room = Room::new(&shape, extents, base.len() as u64, (turns.len() / 2) as u64);
        Ok(Self {
            shape,
            room,
            base,
            turns,
        })
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.room.frame
    }

    pub(crate) fn context(&self) -> usize {
        self.shape.sizes.context
    }

    /// Values that never change, and where they stand behind the workspaces.
    pub(crate) fn constants(&self) -> Vec<(u64, &[f32])> {
        let base = Frame::common_at(self.shape.parameters);
        vec![(base, &self.base), (self.room.turns, &self.turns)]
    }

    /// The calls of a step for batches of at most these sizes.
    pub(crate) fn step(&self, sizes: Sizes, learning_rate: f32) -> Vec<Launch> {
        let mut step = Step {
            shape: &self.shape,
            room: &self.room,
            sizes,
            factor: -learning_rate,
            calls: Vec::new(),
        };
        step.embed();
        for layer in 0..self.shape.blocks.len() {
            step.forward(layer);
        }
        step.head();
        for layer in (0..self.shape.blocks.len()).rev() {
            step.backward(layer);
        }
        step.step_words();
        step.calls
    }
}

impl Step<'_> {
    fn call(&self) -> Call {
        self.room.frame.call()
    }

    /// A kernel with one result for each row and column.
    fn of_each(&mut self, kernel: Kernel, cols: u32, call: Call) {
        let threads = u64::from(self.sizes.rows) * u64::from(cols);
        self.calls.push((kernel, threads, Call { cols, ..call }));
    }

    fn product(&mut self, extent: &Extent, arrays: (Array, Array, Array), mode: u32, d: Array) {
        let launch = self.room.frame.product(self.sizes.rows, extent, arrays, mode, d);
        self.calls.push(launch);
    }

    fn embed(&mut self) {
        let (shape, width) = (self.shape, self.shape.width());
        let call = Call {
            mode: u32::from(shape.positions.is_some()),
            factor: shape.sizes.embedding_scale() as f32,
            a: shape.embedding.read,
            b: shape
                .positions
                .map(|positions| positions.read)
                .unwrap_or_default(),
            c: self.room.residual[0],
            ..self.call()
        };
        self.of_each(Kernel::Embed, width, call);
    }

    fn forward(&mut self, layer: usize) {
        let (shape, room) = (self.shape, self.room);
        let (block, kept) = (&shape.blocks[layer], &room.kept[layer]);
        let (input, output) = (room.residual[layer], room.residual[layer + 1]);
        let whole = (1, shape.width());
        self.norm(block.norm1, whole, input, kept.norm1, kept.stats1);
        self.linear(&block.qkv, kept.norm1, kept.raw, kept.narrow[0], false);
        self.prepare_heads(block, kept);
        self.attend(kept);
        let [_, _, values] = self.heads_of(kept.qkv);
        self.attention(Work::Mix, (room.scores, values, kept.attended));
        self.start_residual(&block.o, input, kept.middle);
        self.linear(&block.o, kept.attended, kept.middle, kept.narrow[1], true);
        self.norm(block.norm2, whole, kept.middle, kept.norm2, kept.stats2);
        self.linear(&block.up, kept.norm2, kept.up, kept.narrow[2], false);
        let call = Call {
            mode: shape.activation(),
            a: kept.up,
            c: kept.activated,
            ..self.call()
        };
        self.of_each(Kernel::Activate, shape.sizes.inner as u32, call);
        self.start_residual(&block.down, kept.middle, output);
        self.linear(&block.down, kept.activated, output, kept.narrow[3], true);
    }

    /// The residual stream and a bias, for a product to be added to.
    fn start_residual(&mut self, linear: &Linear, from: Array, to: Array) {
        let call = Call {
            rows: count::ALL_ROWS,
            mode: u32::from(linear.bias.is_some()),
            a: from,
            c: to,
            d: linear.bias.map(|bias| bias.read).unwrap_or_default(),
            ..self.call()
        };
        self.of_each(Kernel::Copy, linear.output, call);
    }

    /// Logits, their softmax and the gradients of the states, chunk after chunk.
    fn head(&mut self) {
        let (shape, room, width) = (self.shape, self.room, self.shape.width());
        let (last, vocab) = (room.residual[shape.blocks.len()], shape.sizes.vocab as u32);
        self.norm(shape.final_norm, (1, width), last, room.states, room.state_stats);
        for step in 0..self.sizes.rows.div_ceil(room.chunk) {
            let first = self.calls.len();
            let rows = room.chunk.min(self.sizes.rows);
            let (states, of_states) = (
                room.states.shifted(shift::CHUNK),
                Array {
                    row: width,
                    ..room.input_gradient
                }
                .shifted(shift::CHUNK),
            );
            let extent = |cols, depth| Extent {
                rows: count::ROWS_OF_CHUNK,
                cols,
                depth,
            };
            let frame = &room.frame;
            let arrays = (states, shape.output.read.turned(), room.logits);
            let logits = frame.product(
                rows,
                &extent(vocab, width),
                arrays,
                product::SET,
                Array::default(),
            );
            let call = Call {
                rows: count::ROWS_OF_CHUNK,
                cols: vocab,
                a: room.logits,
                c: room.parts,
                d: frame.statistics,
                ..self.call()
            };
            let arrays = (room.logits, shape.output.read, of_states);
            let backward = frame.product(
                rows,
                &extent(width, vocab),
                arrays,
                product::SET,
                Array::default(),
            );
            self.calls.extend([
                logits,
                (Kernel::SoftmaxParts, u64::from(rows) * PARTS as u64, call),
                (Kernel::SoftmaxRows, u64::from(rows), call),
                (Kernel::SoftmaxGradients, u64::from(vocab), call),
                backward,
            ]);
            if let Some(write) = shape.output.write {
                let extent = Extent {
                    rows: vocab,
                    cols: width,
                    depth: count::ROWS_OF_CHUNK,
                };
                // Chunks that follow read the matrix, so a step along the gradient has to wait.
                let (to, mode) = match (shape.is_gradient, step) {
                    (true, _) => (write, product::ADD_SCALED),
                    (false, 0) => (room.word_gradient, product::SET),
                    (false, _) => (room.word_gradient, product::ADD),
                };
                let arrays = (room.logits.turned(), states, to);
                let (kernel, threads, call) = frame.product(vocab, &extent, arrays, mode, Array::default());
                let factor = self.factor;
                self.calls.push((kernel, threads, Call { factor, ..call }));
            }
            for (_, _, call) in &mut self.calls[first..] {
                (call.step, call.sequences) = (step, room.chunk);
            }
        }
        let of_states = Array {
            row: width,
            ..room.input_gradient
        };
        let from = (last, room.state_stats);
        self.norm_backward(
            shape.final_norm,
            (1, width),
            of_states,
            from,
            (room.gradient, true),
        );
    }

    fn backward(&mut self, layer: usize) {
        let (shape, room) = (self.shape, self.room);
        let (block, kept) = (&shape.blocks[layer], &room.kept[layer]);
        let (width, gradient) = (shape.width(), room.gradient);
        let wide = |row| Array {
            row,
            ..room.input_gradient
        };
        let whole = (1, width);
        // The feed-forward half.
        let of_activated = room.activated_gradient;
        self.linear_backward(
            &block.down,
            kept.activated,
            gradient,
            kept.narrow[3],
            of_activated,
        );
        let call = Call {
            mode: shape.activation(),
            a: kept.up,
            b: of_activated,
            c: room.up_gradient,
            ..self.call()
        };
        self.of_each(Kernel::ActivateBackward, shape.sizes.inner as u32, call);
        self.linear_backward(
            &block.up,
            kept.norm2,
            room.up_gradient,
            kept.narrow[2],
            wide(width),
        );
        let from = (kept.middle, kept.stats2);
        self.norm_backward(block.norm2, whole, wide(width), from, (gradient, false));
        // The attention half.
        let of_attended = wide(shape.sizes.query_width() as u32);
        self.linear_backward(&block.o, kept.attended, gradient, kept.narrow[1], of_attended);
        self.attend(kept);
        let [queries, keys, values] = self.heads_of(kept.qkv);
        let [of_queries, of_keys, of_values] = self.heads_of(room.qkv_gradient);
        let (scores, of_scores) = (room.scores, room.scores_gradient);
        self.attention(Work::Keys, (scores, of_attended, of_values));
        self.attention(Work::Scores, (of_attended, values, of_scores));
        self.softmax(Kernel::SoftmaxOfScoresBackward, of_scores);
        self.attention(Work::Mix, (of_scores, keys, of_queries));
        self.attention(Work::Keys, (of_scores, queries, of_keys));
        self.turn(room.qkv_gradient, true);
        if let Some(norms) = block.of_heads {
            let raw = self.heads_of(kept.raw);
            for (side, (norm, of)) in norms.into_iter().zip([of_queries, of_keys]).enumerate() {
                let heads = (shape.heads()[side], shape.head_width());
                let from = (raw[side], kept.head_stats[side]);
                self.norm_backward(norm, heads, of, from, (of, true));
            }
        }
        self.linear_backward(
            &block.qkv,
            kept.norm1,
            room.qkv_gradient,
            kept.narrow[0],
            wide(width),
        );
        let from = (room.residual[layer], kept.stats1);
        self.norm_backward(block.norm1, whole, wide(width), from, (gradient, false));
    }

    /// The gradients of embedding and positions, and the step of an output matrix that had to wait.
    fn step_words(&mut self) {
        let (shape, room, width) = (self.shape, self.room, self.shape.width());
        if let (Some(c), false) = (shape.output.write, shape.is_gradient) {
            let rows = shape.sizes.vocab as u32;
            let call = Call {
                rows,
                cols: width,
                factor: self.factor,
                a: room.word_gradient,
                c,
                ..self.call()
            };
            self.calls
                .push((Kernel::AddScaled, u64::from(rows) * u64::from(width), call));
        }
        if let Some(c) = shape.embedding.write {
            let call = Call {
                factor: self.factor * shape.sizes.embedding_scale() as f32,
                a: room.gradient,
                c,
                ..self.call()
            };
            self.of_each(Kernel::Scatter, width, call);
        }
        if let Some(c) = shape.positions.and_then(|positions| positions.write) {
            let rows = self.sizes.steps.min(shape.sizes.context as u32);
            let call = Call {
                rows,
                cols: width,
                factor: self.factor,
                a: room.gradient,
                c,
                ..self.call()
            };
            self.calls
                .push((Kernel::ScatterPositions, u64::from(rows) * u64::from(width), call));
        }
    }
}
