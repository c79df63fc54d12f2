//! Norms and matrices, forward and backward.

use super::Step;
use super::attention::Work;
use super::shape::{Linear, Norm, Tensor};
use crate::call::{Array, Call, Kernel, LANES, PARTS, SPANS, THREADS, count, norm, product};
use crate::frame::Extent;

impl Step<'_> {
    /// Normalises rows of `heads` parts that are `cols` wide each.
    pub(super) fn norm(
        &mut self,
        norm: Norm,
        (heads, cols): (u32, u32),
        from: Array,
        to: Array,
        stats: Array,
    ) {
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
    pub(super) fn norm_backward(
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

    pub(super) fn column_parts(&mut self, call: Call) {
        let c = self.room.columns;
        let threads = PARTS as u64 * u64::from(call.cols);
        self.calls
            .push((Kernel::ColumnParts, threads, Call { c, ..call }));
    }

    pub(super) fn add_parts(&mut self, write: Array, cols: u32) {
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
    pub(super) fn linear(&mut self, linear: &Linear, x: Array, c: Array, narrow: Array, adds: bool) {
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

    pub(super) fn add_scaled_product(&mut self, extent: &Extent, arrays: (Array, Array, Array), factor: f32) {
        let (mode, rows) = (product::ADD_SCALED, self.sizes.rows);
        let (kernel, threads, call) = self
            .room
            .frame
            .product(rows, extent, arrays, mode, Array::default());
        self.calls.push((kernel, threads, Call { factor, ..call }));
    }

    /// The gradients of a matrix: `into` is that of its input, and those of its tensors go to the parameters.
    pub(super) fn linear_backward(
        &mut self,
        linear: &Linear,
        x: Array,
        gradient: Array,
        narrow: Array,
        into: Array,
    ) {
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
    pub(super) fn matrix_gradient(
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
}
