//! The calls of one local step of a transformer: forward pass, backward pass, and the gradients or the step along them.

mod room;
mod shape;

use undertone_local::{Algorithm, LocalError};
use undertone_models::{ModelSpec, SequenceModel, Transformer};

use crate::call::{
    Array, Call, Kernel, LANES, PARTS, Precision, SPANS, THREADS, Tile, count, norm, place, product, shift,
};
use crate::frame::{Extent, Extents, Frame, Launch};
use crate::program::{Sizes, unusable};
use room::{Kept, Room};
use shape::{Block, Linear, Norm, Shape, Tensor};

/// The products that have kernels of their own for transformers, in both precisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Spans,
    Scores,
    Mix,
    Keys,
}

impl Work {
    /// The kernel and its tile, as `kernels/transformer.c` has them.
    fn kernel(self, precision: Precision) -> (Kernel, Tile) {
        let (fine, coarse, cols) = match self {
            Self::Spans => (Kernel::ProductOfSpans, Kernel::ProductOfSpansCoarse, 128),
            Self::Scores => (Kernel::ScoresOfHeads, Kernel::ScoresOfHeadsCoarse, 128),
            Self::Mix => (Kernel::MixOfHeads, Kernel::MixOfHeadsCoarse, 64),
            Self::Keys => (Kernel::KeysOfHeads, Kernel::KeysOfHeadsCoarse, 64),
        };
        match precision {
            Precision::F32 => (fine, Tile { rows: 64, cols }),
            Precision::Bf16 => (coarse, Tile { rows: 128, cols }),
        }
    }
}

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

    /// Normalises rows of `heads` parts that are `cols` wide each.
    fn norm(&mut self, norm: Norm, (heads, cols): (u32, u32), from: Array, to: Array, stats: Array) {
        let architecture = &self.shape.sizes.architecture;
        let call = Call {
            cols,
            heads,
            mode: if norm.bias.is_some() { norm::CENTRED } else { 0 },
            factor: architecture.norm_epsilon as f32,
            a: from,
            b: norm.gain.read,
            c: to,
            d: norm.bias.map(|bias| bias.read).unwrap_or_default(),
            e: stats,
            ..self.call()
        };
        let rows = u64::from(self.sizes.rows) * u64::from(heads);
        self.calls.push((Kernel::Normalise, rows * LANES, call));
    }

    /// The gradient of what was normalised: it is added to `to`, or replaces it.
    fn norm_backward(
        &mut self,
        norm: Norm,
        (heads, cols): (u32, u32),
        gradient: Array,
        (from, stats): (Array, Array),
        (to, replaces): (Array, bool),
    ) {
        let part = |mode| Call {
            cols,
            heads,
            mode,
            a: gradient,
            d: from,
            e: stats,
            ..self.call()
        };
        let (values, plain) = (part(1), part(0));
        let centred = if norm.bias.is_some() { norm::CENTRED } else { 0 };
        let call = Call {
            mode: centred | if replaces { norm::REPLACE } else { 0 },
            b: norm.gain.read,
            c: to,
            ..plain
        };
        let rows = u64::from(self.sizes.rows) * u64::from(heads);
        // The sums of the gain read the gradient, and the gradient is read with the gain as it was.
        let gain = norm.gain.write.map(|write| (write, values));
        if let Some((_, values)) = gain {
            self.column_parts(values);
        }
        self.calls.push((Kernel::NormaliseBackward, rows * LANES, call));
        if let Some((write, _)) = gain {
            self.add_parts(write, cols);
        }
        if let Some(write) = norm.bias.and_then(|bias| bias.write) {
            self.column_parts(plain);
            self.add_parts(write, cols);
        }
    }

    fn column_parts(&mut self, call: Call) {
        let c = self.room.columns;
        let threads = PARTS as u64 * u64::from(call.cols);
        self.calls
            .push((Kernel::ColumnParts, threads, Call { c, ..call }));
    }

    fn add_parts(&mut self, write: Array, cols: u32) {
        let call = Call {
            rows: 1,
            cols,
            depth: PARTS as u32,
            factor: self.factor,
            a: self.room.columns,
            c: write,
            ..self.call()
        };
        self.calls.push((Kernel::AddParts, u64::from(cols), call));
    }

    /// c = x times a matrix, with its bias and its adapter. With `adds` the result is added to c, which has the bias already.
    fn linear(&mut self, linear: &Linear, x: Array, c: Array, narrow: Array, adds: bool) {
        let extent = |cols, depth| Extent {
            rows: count::ALL_ROWS,
            cols,
            depth,
        };
        let (mode, d) = match linear.bias {
            _ if adds => (product::ADD, Array::default()),
            Some(bias) => (product::SET_AND_ADD_ROW, bias.read),
            None => (product::SET, Array::default()),
        };
        let whole = extent(linear.output, linear.input);
        self.product(&whole, (x, linear.matrix.read, c), mode, d);
        if let Some([a, b]) = linear.adapter {
            let rank = self.shape.rank;
            let first = extent(rank, linear.input);
            self.product(&first, (x, a.read, narrow), product::SET, Array::default());
            self.add_scaled_product(
                &extent(linear.output, rank),
                (narrow, b.read, c),
                self.shape.scale,
            );
        }
    }

    fn add_scaled_product(&mut self, extent: &Extent, arrays: (Array, Array, Array), factor: f32) {
        let (mode, rows) = (product::ADD_SCALED, self.sizes.rows);
        let (kernel, threads, call) = self
            .room
            .frame
            .product(rows, extent, arrays, mode, Array::default());
        self.calls.push((kernel, threads, Call { factor, ..call }));
    }

    /// The gradients of a matrix: `into` is that of its input, and those of its tensors go to the parameters.
    fn linear_backward(&mut self, linear: &Linear, x: Array, gradient: Array, narrow: Array, into: Array) {
        let extent = |cols, depth| Extent {
            rows: count::ALL_ROWS,
            cols,
            depth,
        };
        let matrix = linear.matrix.read.turned();
        let whole = extent(linear.input, linear.output);
        self.product(&whole, (gradient, matrix, into), product::SET, Array::default());
        if let Some([a, b]) = linear.adapter {
            let (rank, scale, of_narrow) = (self.shape.rank, self.shape.scale, self.room.adapter_gradient);
            let first = extent(rank, linear.output);
            self.product(
                &first,
                (gradient, b.read.turned(), of_narrow),
                product::SET,
                Array::default(),
            );
            self.add_scaled_product(
                &extent(linear.input, rank),
                (of_narrow, a.read.turned(), into),
                scale,
            );
            self.matrix_gradient(a, (x, linear.input), (of_narrow, rank), scale);
            self.matrix_gradient(b, (narrow, rank), (gradient, linear.output), scale);
        }
        self.matrix_gradient(linear.matrix, (x, linear.input), (gradient, linear.output), 1.0);
        if let Some(write) = linear.bias.and_then(|bias| bias.write) {
            let call = Call {
                cols: linear.output,
                heads: 1,
                a: gradient,
                ..self.call()
            };
            self.column_parts(call);
            self.add_parts(write, linear.output);
        }
    }

    /// Adds the sum over the rows of the products of `x` and `y` to a tensor's place.
    fn matrix_gradient(
        &mut self,
        tensor: Tensor,
        (x, rows): (Array, u32),
        (y, cols): (Array, u32),
        scale: f32,
    ) {
        let Some(write) = tensor.write else { return };
        let call = Call {
            rows,
            cols,
            depth: SPANS,
            mode: product::SET,
            a: x.turned(),
            b: y,
            c: Array {
                row: cols,
                ..self.room.spans
            },
            ..self.call()
        };
        let (kernel, tile) = Work::Spans.kernel(self.room.frame.precision);
        let tiles = tile.count(u64::from(rows), u64::from(cols)) * u64::from(SPANS);
        self.calls.push((kernel, tiles * THREADS, call));
        let call = Call {
            rows,
            cols,
            depth: SPANS,
            factor: self.factor * scale,
            a: self.room.spans,
            c: write,
            ..self.call()
        };
        let values = u64::from(rows) * u64::from(cols);
        self.calls.push((Kernel::AddParts, values, call));
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

    /// Queries, keys and values in an array that has them side by side.
    fn heads_of(&self, qkv: Array) -> [Array; 3] {
        let (queries, keys) = (self.shape.sizes.query_width(), self.shape.sizes.key_width());
        [0, queries, queries + keys].map(|col| qkv.after_cols(col as u32))
    }

    /// Norms of heads, and rotary positions.
    fn prepare_heads(&mut self, block: &Block, kept: &Kept) {
        let (shape, width) = (self.shape, self.shape.head_width());
        if let Some(norms) = block.of_heads {
            let (from, to) = (self.heads_of(kept.raw), self.heads_of(kept.qkv));
            for (side, norm) in norms.into_iter().enumerate() {
                let heads = (shape.heads()[side], width);
                self.norm(norm, heads, from[side], to[side], kept.head_stats[side]);
            }
            let call = Call {
                rows: count::ALL_ROWS,
                a: from[2],
                c: to[2],
                ..self.call()
            };
            self.of_each(Kernel::Copy, shape.sizes.key_width() as u32, call);
        }
        self.turn(kept.qkv, false);
    }

    fn turn(&mut self, qkv: Array, back: bool) {
        if self.shape.positions.is_some() {
            return;
        }
        let [queries, keys] = self.shape.heads();
        let (heads, pairs) = (queries + keys, self.shape.head_width() / 2);
        let angles = Array {
            at: self.room.turns,
            row: 2,
            col: 1,
            place: place::COMMON,
            shift: 0,
        };
        let call = Call {
            cols: pairs,
            heads,
            mode: u32::from(back),
            b: angles,
            c: qkv,
            ..self.call()
        };
        let threads = u64::from(self.sizes.rows) * u64::from(heads) * u64::from(pairs);
        self.calls.push((Kernel::Turn, threads, call));
    }

    /// A kernel over the heads of queries, or over those of keys.
    fn attention(&mut self, work: Work, (a, b, c): (Array, Array, Array)) {
        let (kernel, tile) = work.kernel(self.room.frame.precision);
        let [heads, key_heads] = self.shape.heads();
        let depth = self.shape.head_width();
        let rows = self.sizes.steps;
        let call = Call {
            rows,
            cols: self.room.frame.rows,
            depth,
            heads,
            sequences: heads / key_heads,
            mode: product::SET,
            a,
            b,
            c,
            ..self.call()
        };
        let cols = if work == Work::Scores { rows } else { depth };
        let tiles = tile.count(u64::from(rows), u64::from(cols));
        let pieces = u64::from(self.sizes.sequences) * u64::from(heads);
        self.calls.push((kernel, pieces * tiles * THREADS, call));
    }

    /// The probabilities of a block.
    fn attend(&mut self, kept: &Kept) {
        let [queries, keys, _] = self.heads_of(kept.qkv);
        let scores = self.room.scores;
        self.attention(Work::Scores, (queries, keys, scores));
        self.softmax(Kernel::SoftmaxOfScores, Array::default());
    }

    fn softmax(&mut self, kernel: Kernel, gradient: Array) {
        let [heads, _] = self.shape.heads();
        let call = Call {
            cols: self.room.frame.rows,
            heads,
            factor: (1.0 / f64::from(self.shape.head_width()).sqrt()) as f32,
            a: self.room.scores,
            c: gradient,
            ..self.call()
        };
        let rows = u64::from(self.sizes.rows) * u64::from(heads);
        self.calls.push((kernel, rows * LANES, call));
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
