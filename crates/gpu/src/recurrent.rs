//! The calls of one local step: forward pass, backward pass, and the step along the gradient.

mod room;
mod shape;

use crate::call::{Array, Call, Kernel, LANES, PARTS, count, header, product, shift};
use crate::frame::{Extent, Extents, Frame, Launch, parameter};
use room::Room;
use shape::Head;

pub(crate) use shape::Shape;

/// Makes the calls of the kernels for a recurrent word model.
#[derive(Debug, Clone)]
pub(crate) struct Recurrent {
    shape: Shape,
    room: Room,
}

impl Recurrent {
    /// A program for batches of these extents.
    pub(crate) fn new(shape: Shape, extents: Extents) -> Self {
        let room = Room::new(&shape, extents);
        Self { shape, room }
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.room.frame
    }

    /// Arguments that name no array yet.
    fn call(&self) -> Call {
        Call {
            sequences: self.room.sequences,
            ..self.room.frame.call()
        }
    }

    /// The calls of a local step for batches of at most so many rows and time steps. With `carries`, states go from batch to batch.
    pub(crate) fn step(&self, rows: u32, steps: u32, learning_rate: f32, carries: bool) -> Vec<Launch> {
        let mut calls = Vec::with_capacity(6 * steps as usize + 32);
        self.prepare(&mut calls);
        self.forward(rows, steps, carries, &mut calls);
        self.head(rows, &mut calls);
        self.backward(rows, steps, &mut calls);
        self.update(rows, learning_rate, &mut calls);
        if carries {
            self.keep(&mut calls);
        }
        calls
    }

    fn product(
        &self,
        max_rows: u32,
        extent: &Extent,
        arrays: (Array, Array, Array),
        mode: u32,
        d: Array,
    ) -> Launch {
        let (kernel, threads, call) = self.room.frame.product(max_rows, extent, arrays, mode, d);
        let sequences = self.room.sequences;
        (kernel, threads, Call { sequences, ..call })
    }

    /// The norms of the word vectors, where the model divides by them.
    fn prepare(&self, calls: &mut Vec<Launch>) {
        let Shape { vocab, embed, at, .. } = self.shape;
        if self.shape.unit_norm() {
            let call = Call {
                rows: vocab,
                cols: embed,
                a: parameter(at.embedding, embed),
                c: self.room.inverse_norms,
                ..self.call()
            };
            calls.push((Kernel::InverseNorms, u64::from(vocab) * LANES, call));
        }
    }

    /// The rows of `a` that the table names, in the order of the table.
    fn gather(
        &self,
        rows: u32,
        max_rows: u32,
        cols: u32,
        (list, scaled): (usize, bool),
        a: Array,
        c: Array,
    ) -> Launch {
        let call = Call {
            rows,
            cols,
            mode: list as u32 | u32::from(scaled) << 8,
            a,
            c,
            d: self.room.inverse_norms,
            ..self.call()
        };
        (Kernel::Gather, u64::from(max_rows) * u64::from(cols), call)
    }

    /// The states that go back into the gates, with the first ones in front.
    fn states(&self) -> Array {
        match self.shape.coupled {
            true => self.room.projected,
            false => self.room.hidden,
        }
    }

    /// Embedding, recurrent layer and projection.
    ///
    /// The letters of the formulas: `E` is the embedding; `Wx`, `Wh` and `b` are matrices and bias of the gates, `Wp` and `bp` those of the
    /// projection. At step `t`, `x_t` are the input vectors, one row per sequence, `i`, `f`, `u` and `o` the gates input, forget, candidate
    /// and output, `c_t` the cells, `h_t` the hidden states, `r_t` the projected states, and `s_t` is what goes back into the gates: `r_t`
    /// if they are coupled, else `h_t`. `act` is the hyperbolic tangent for `u` and the logistic function for the others. `X`, `A`, `H` and
    /// `R` hold the rows of all steps, `A` those of the gates.
    fn forward(&self, rows: u32, steps: u32, carries: bool, calls: &mut Vec<Launch>) {
        let Shape {
            embed,
            hidden,
            projection,
            gates,
            fed_back,
            coupled,
            at,
            ..
        } = self.shape;
        let room = &self.room;
        let sequences = room.sequences.min(rows);
        let list = (header::INPUT_IDS, self.shape.unit_norm());
        let embedding = parameter(at.embedding, embed);
        // X[row] = E[token], divided by its norm in a model of unit norm.
        calls.push(self.gather(count::ALL_ROWS, rows, embed, list, embedding, room.inputs));
        let of_inputs = Extent {
            rows: count::ALL_ROWS,
            cols: gates,
            depth: embed,
        };
        // A = X Wx
        let arrays = (room.inputs, parameter(at.wx, gates), room.gates);
        calls.push(self.product(rows, &of_inputs, arrays, product::SET, Array::default()));
        // s_0 and c_0 = what was carried, or 0
        for (a, c, cols) in [
            (room.carried_state, self.states(), fed_back),
            (room.carried_cell, room.cells, hidden),
        ] {
            let call = Call {
                cols,
                a,
                c,
                ..self.call()
            };
            calls.push((Kernel::FirstStates, u64::from(sequences) * u64::from(cols), call));
        }
        // (i, f, u, o)_t = act(x_t Wx + s_{t-1} Wh + b)
        // c_t = f c_{t-1} + i u, where i = 1 - f if the gates are coupled; h_t = o tanh(c_t); and then r_t = h_t Wp
        for step in 0..steps {
            let mut push = |(kernel, threads, call)| calls.push((kernel, threads, Call { step, ..call }));
            // First states that are not carried are zero. Whether they are is a setting of the run, so it is the same for every slot.
            if step > 0 || carries {
                let extent = Extent {
                    rows: count::ROWS_OF_STEP,
                    cols: gates,
                    depth: fed_back,
                };
                let states = self.states().shifted(shift::BEFORE);
                let arrays = (states, parameter(at.wh, gates), room.gates.shifted(shift::STEP));
                push(self.product(sequences, &extent, arrays, product::ADD, Array::default()));
            }
            let cells = Call {
                cols: hidden,
                mode: u32::from(coupled),
                depth: (room.tangents.at - room.hidden.at) as u32,
                a: room.gates.shifted(shift::STEP),
                b: parameter(at.bias, gates),
                c: room.cells.shifted(shift::BEFORE),
                d: room.hidden,
                ..self.call()
            };
            push((
                Kernel::CellsForward,
                u64::from(sequences) * u64::from(hidden),
                cells,
            ));
            if coupled {
                let extent = Extent {
                    rows: count::ROWS_OF_STEP,
                    cols: projection,
                    depth: hidden,
                };
                let of_rows = |states: Array| states.after_rows(room.sequences).shifted(shift::STEP);
                let matrix = parameter(at.projection, projection);
                let arrays = (of_rows(room.hidden), matrix, of_rows(room.projected));
                push(self.product(sequences, &extent, arrays, product::SET, Array::default()));
            }
        }
        // R = H Wp + bp
        if let Some(bias) = at.projection_bias {
            let extent = Extent {
                rows: count::ALL_ROWS,
                cols: projection,
                depth: hidden,
            };
            let arrays = (
                room.hidden.after_rows(room.sequences),
                parameter(at.projection, projection),
                room.projected.after_rows(room.sequences),
            );
            let bias = parameter(bias, projection);
            calls.push(self.product(rows, &extent, arrays, product::SET_AND_ADD_ROW, bias));
        }
    }

    /// Logits, their softmax, and the gradients of the projected states.
    fn head(&self, rows: u32, calls: &mut Vec<Launch>) {
        let Shape {
            vocab,
            embed,
            projection,
            at,
            head,
            ..
        } = self.shape;
        let room = &self.room;
        let unit_norm = self.shape.unit_norm();
        let (words, mode, d) = match head {
            Head::Tied { unit_norm: true } => (
                parameter(at.embedding, embed).turned(),
                product::SET_AND_SCALE_COLUMNS,
                room.inverse_norms,
            ),
            Head::Tied { unit_norm: false } => {
                let words = parameter(at.embedding, embed).turned();
                (words, product::SET, Array::default())
            }
            Head::Dense { matrix, bias } => (
                parameter(matrix, vocab),
                product::SET_AND_ADD_ROW,
                parameter(bias, vocab),
            ),
        };
        let logits = Extent {
            rows: count::ALL_ROWS,
            cols: vocab,
            depth: projection,
        };
        let arrays = (room.projected.after_rows(room.sequences), words, room.logits);
        calls.push(self.product(rows, &logits, arrays, mode, d));
        let call = Call {
            rows: count::ALL_ROWS,
            cols: vocab,
            mode: u32::from(unit_norm),
            a: room.logits,
            b: room.inverse_norms,
            c: room.parts,
            d: room.frame.statistics,
            ..self.call()
        };
        let rows_wide = u64::from(rows);
        calls.push((Kernel::SoftmaxParts, rows_wide * PARTS as u64, call));
        calls.push((Kernel::SoftmaxRows, rows_wide, call));
        calls.push((Kernel::SoftmaxGradients, u64::from(vocab), call));
        let states = Extent {
            rows: count::ALL_ROWS,
            cols: projection,
            depth: vocab,
        };
        let words = match head {
            Head::Tied { .. } => parameter(at.embedding, embed),
            Head::Dense { matrix, .. } => parameter(matrix, vocab).turned(),
        };
        let arrays = (room.logits, words, room.projected_gradient);
        calls.push(self.product(rows, &states, arrays, product::SET, Array::default()));
    }

    fn backward(&self, rows: u32, steps: u32, calls: &mut Vec<Launch>) {
        let Shape {
            embed,
            hidden,
            projection,
            gates,
            fed_back,
            coupled,
            at,
            ..
        } = self.shape;
        let room = &self.room;
        let sequences = room.sequences.min(rows);
        // Gradients of hidden states from those of their projections.
        let project_back = |rows, max_rows, shift| {
            let extent = Extent {
                rows,
                cols: hidden,
                depth: projection,
            };
            let arrays = (
                room.projected_gradient.shifted(shift),
                parameter(at.projection, projection).turned(),
                room.hidden_gradient.shifted(shift),
            );
            self.product(max_rows, &extent, arrays, product::SET, Array::default())
        };
        if !coupled {
            calls.push(project_back(count::ALL_ROWS, rows, 0));
        }
        for step in (0..steps).rev() {
            let mut push = |(kernel, threads, call)| calls.push((kernel, threads, Call { step, ..call }));
            if coupled {
                push(project_back(count::ROWS_OF_STEP, sequences, shift::STEP));
            }
            let cells = Call {
                cols: hidden,
                mode: u32::from(coupled),
                depth: (room.cell_gradient.at - room.hidden_gradient.at) as u32,
                a: room.gates.shifted(shift::STEP),
                b: room.tangents.after_rows(room.sequences).shifted(shift::STEP),
                c: room.cells.shifted(shift::BEFORE),
                d: room.hidden_gradient.shifted(shift::STEP),
                ..self.call()
            };
            push((
                Kernel::CellsBackward,
                u64::from(sequences) * u64::from(hidden),
                cells,
            ));
            if step > 0 {
                let extent = Extent {
                    rows: count::ROWS_OF_STEP,
                    cols: fed_back,
                    depth: gates,
                };
                let earlier = match coupled {
                    true => room.projected_gradient,
                    false => room.hidden_gradient,
                };
                let arrays = (
                    room.gates.shifted(shift::STEP),
                    parameter(at.wh, gates).turned(),
                    earlier.shifted(shift::EARLIER),
                );
                push(self.product(sequences, &extent, arrays, product::ADD, Array::default()));
            }
        }
        let of_inputs = Extent {
            rows: count::ALL_ROWS,
            cols: embed,
            depth: gates,
        };
        let words = parameter(at.wx, gates).turned();
        let arrays = (room.gates, words, room.input_gradient);
        calls.push(self.product(rows, &of_inputs, arrays, product::SET, Array::default()));
    }

    /// The step along the gradient. No call before it needs these parameters any more.
    ///
    /// The letters of the formulas are those of [`forward`](Self::forward). `dy` is the gradient of `y`, and `dA` that of the gates before
    /// their activation; `dZ` is that of the logits, times `n_w` in the column of word `w` in a model of unit norm. `k` is minus the learning
    /// rate, `1^T` adds up the rows of a matrix, `Wo` and `bo` are output matrix and its bias, and `x_j` is the token of row `j`. `n_w` is one
    /// over the norm of the vector of a word, or 1.
    fn update(&self, rows: u32, learning_rate: f32, calls: &mut Vec<Launch>) {
        let Shape {
            vocab,
            embed,
            hidden,
            projection,
            gates,
            fed_back,
            at,
            head,
            ..
        } = self.shape;
        let room = &self.room;
        let factor = -learning_rate;
        let projected = room.projected.after_rows(room.sequences);
        // S[row] = s_{t-1} of the row's sequence
        calls.push(self.gather(
            count::ALL_ROWS,
            rows,
            fed_back,
            (header::PREVIOUS, false),
            self.states(),
            room.past,
        ));
        let mut step = |rows, cols, left: Array, right, to: u64| {
            let extent = Extent {
                rows,
                cols,
                depth: count::ALL_ROWS,
            };
            let arrays = (left.turned(), right, parameter(to, cols));
            let (kernel, threads, call) =
                self.product(rows, &extent, arrays, product::ADD_SCALED, Array::default());
            calls.push((kernel, threads, Call { factor, ..call }));
        };
        // Wp += k H^T dR
        step(
            hidden,
            projection,
            room.hidden.after_rows(room.sequences),
            room.projected_gradient,
            at.projection,
        );
        // Wh += k S^T dA
        step(fed_back, gates, room.past, room.gates, at.wh);
        // Wx += k X^T dA
        step(embed, gates, room.inputs, room.gates, at.wx);
        if let Head::Dense { matrix, .. } = head {
            // Wo += k R^T dZ
            step(projection, vocab, projected, room.logits, matrix);
        }
        let mut sums = |a, cols: u32, to| {
            let call = Call {
                cols,
                depth: count::ALL_ROWS,
                factor,
                a,
                c: parameter(to, cols),
                ..self.call()
            };
            calls.push((Kernel::AddColumnSums, u64::from(cols), call));
        };
        if let Some(bias) = at.projection_bias {
            // bp += k 1^T dR
            sums(room.projected_gradient, projection, bias);
        }
        // b += k 1^T dA
        sums(room.gates, gates, at.bias);
        if let Head::Dense { bias, .. } = head {
            // bo += k 1^T dZ
            sums(room.logits, vocab, bias);
        }
        let embedding = parameter(at.embedding, embed);
        let scatter = Call {
            cols: embed,
            mode: u32::from(self.shape.unit_norm()),
            a: room.input_gradient,
            b: room.inverse_norms,
            ..self.call()
        };
        let threads = u64::from(rows) * u64::from(embed);
        if let Head::Dense { .. } = head {
            // E[x_j] += k dx_j, for every row j
            let call = Call {
                factor,
                c: embedding,
                ..scatter
            };
            calls.push((Kernel::Scatter, threads, call));
            return;
        }
        let of_words = Extent {
            rows: vocab,
            cols: projection,
            depth: count::ALL_ROWS,
        };
        // G = dZ^T R
        let arrays = (room.logits.turned(), projected, room.word_gradient);
        calls.push(self.product(vocab, &of_words, arrays, product::SET, Array::default()));
        // G[x_j] += n_{x_j} dx_j, for every row j
        let call = Call {
            factor: 1.0,
            c: room.word_gradient,
            ..scatter
        };
        calls.push((Kernel::Scatter, threads, call));
        // E_w += k (G_w - u_w (u_w . G_w)) with u_w = n_w E_w in a model of unit norm, else E_w += k G_w
        let call = Call {
            rows: vocab,
            cols: embed,
            mode: u32::from(self.shape.unit_norm()),
            factor,
            a: room.word_gradient,
            b: room.inverse_norms,
            c: embedding,
            ..self.call()
        };
        calls.push((Kernel::StepWords, u64::from(vocab) * LANES, call));
    }

    /// The last state of each sequence is kept for the next batch.
    fn keep(&self, calls: &mut Vec<Launch>) {
        let (room, Shape { hidden, fed_back, .. }) = (&self.room, self.shape);
        for (from, cols, to) in [
            (self.states(), fed_back, room.carried_state),
            (room.cells, hidden, room.carried_cell),
        ] {
            let list = (header::LASTS, false);
            calls.push(self.gather(count::SEQUENCES, room.sequences, cols, list, from, to));
        }
    }
}
