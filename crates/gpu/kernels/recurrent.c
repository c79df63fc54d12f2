/* The kernels of recurrent word models, beside those of `common.c`. */

/* The first states: c = a where states are carried, else 0. */
KERNEL(first_states)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u64 n, count = (u64)slot.header[SEQUENCES_AT] * call.cols;
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u32 carried = slot.header[CARRY_AT];
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE)
        c[n] = carried ? a[n] : 0.0f;
}

/* c[row] = 1 / norm of the row of a. */
KERNEL(inverse_norms)
{
    SHARED_BY_THREADS float parts[ROWS_AT_ONCE][LANES];
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u32 first;
    if (slot.rows == 0)
        return;
    for (first = (u32)BLOCK * ROWS_AT_ONCE; first < call.rows; first += (u32)BLOCKS * ROWS_AT_ONCE) {
        EACH_THREAD(BACKWARDS, thread) {
            u32 row = first + thread / LANES, j;
            float sum = 0.0f;
            for (j = thread % LANES; row < call.rows && j < call.cols; j += LANES)
                sum = fmaf(a[row * call.a.row + j], a[row * call.a.row + j], sum);
            parts[thread / LANES][thread % LANES] = sum;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 row = first + thread / LANES;
            if (thread % LANES == 0 && row < call.rows) {
                float norm = sqrtf(sum_of_parts(parts[thread / LANES]));
                c[row] = 1.0f / (norm > 1e-12f ? norm : 1e-12f);
            }
        }
        BARRIER();
    }
}

/* One time step of the cells forward. a: the gates without bias, which become activations. b: the bias. c: the cells with the first
 * ones in front. d: the hidden states with the first ones in front, and behind all of them the hyperbolic tangents of the cells.
 * call.depth is the number of floats between the hidden states and the tangents. mode 0: four gates, input, forget, candidate, output.
 * mode 1: three gates, forget, candidate, output, where the input gate is one minus the forget gate. */
KERNEL(cells_forward)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u32 width = call.cols, coupled = call.mode;
    u64 n, count = (u64)rows_of(&slot, &call, ROWS_OF_STEP) * width;
    const u32 *starts = table + slot.header[STARTS];
    float *gates = start_of(&slot, &call, &call.a), *hidden, *tangent, *cell;
    const float *bias = start_of(&slot, &call, &call.b), *past = start_of(&slot, &call, &call.c);
    if (count == 0)
        return;
    cell = slot.room + call.c.at + (u64)(call.sequences + starts[call.step]) * width;
    hidden = slot.room + call.d.at + (u64)(call.sequences + starts[call.step]) * width;
    tangent = hidden + call.depth;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)n / width, unit = (u32)n % width;
        float *of_row = gates + row * call.a.row;
        float in, forget, candidate, out, value;
        if (coupled) {
            forget = logistic(of_row[unit] + bias[unit]);
            candidate = hyperbolic_tangent(of_row[width + unit] + bias[width + unit]);
            out = logistic(of_row[2 * width + unit] + bias[2 * width + unit]);
            value = fmaf(forget, past[n] - candidate, candidate);
            of_row[unit] = forget;
            of_row[width + unit] = candidate;
            of_row[2 * width + unit] = out;
        } else {
            in = logistic(of_row[unit] + bias[unit]);
            forget = logistic(of_row[width + unit] + bias[width + unit]);
            candidate = hyperbolic_tangent(of_row[2 * width + unit] + bias[2 * width + unit]);
            out = logistic(of_row[3 * width + unit] + bias[3 * width + unit]);
            value = fmaf(forget, past[n], in * candidate);
            of_row[unit] = in;
            of_row[width + unit] = forget;
            of_row[2 * width + unit] = candidate;
            of_row[3 * width + unit] = out;
        }
        cell[n] = value;
        tangent[n] = hyperbolic_tangent(value);
        hidden[n] = out * tangent[n];
    }
}

/* One time step of the cells backward. a: the activations, which become gradients before the activation. b: the tangents. c: the cells
 * with the first ones in front. d: the gradients of the hidden states. Behind them, call.depth floats later, stand the gradients of the
 * cells, one row per sequence: they come from the time step after and leave for the one before. */
KERNEL(cells_backward)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u32 width = call.cols, coupled = call.mode;
    u64 n, count = (u64)rows_of(&slot, &call, ROWS_OF_STEP) * width;
    const u32 *starts = table + slot.header[STARTS];
    float *gates = start_of(&slot, &call, &call.a);
    const float *tangent = start_of(&slot, &call, &call.b), *past = start_of(&slot, &call, &call.c);
    const float *gradient = start_of(&slot, &call, &call.d);
    float *of_cell = slot.room + call.d.at + call.depth;
    u32 later;
    if (count == 0)
        return;
    /* Sequences that end with this time step have no later gradient. */
    later = call.step + 1 < slot.header[STEPS_AT] ? starts[call.step + 2] - starts[call.step + 1] : 0;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)n / width, unit = (u32)n % width;
        float *of_row = gates + row * call.a.row;
        float carried = row < later ? of_cell[n] : 0.0f, tanh = tangent[n], in, forget, candidate, out, dc;
        if (coupled) {
            forget = of_row[unit], candidate = of_row[width + unit], out = of_row[2 * width + unit];
            dc = fmaf(gradient[n] * out, 1.0f - tanh * tanh, carried);
            in = 1.0f - forget;
            of_row[unit] = dc * (past[n] - candidate) * forget * in;
            of_row[width + unit] = dc * in * (1.0f - candidate * candidate);
            of_row[2 * width + unit] = gradient[n] * tanh * out * (1.0f - out);
        } else {
            in = of_row[unit], forget = of_row[width + unit];
            candidate = of_row[2 * width + unit], out = of_row[3 * width + unit];
            dc = fmaf(gradient[n] * out, 1.0f - tanh * tanh, carried);
            of_row[unit] = dc * candidate * in * (1.0f - in);
            of_row[width + unit] = dc * past[n] * forget * (1.0f - forget);
            of_row[2 * width + unit] = dc * in * (1.0f - candidate * candidate);
            of_row[3 * width + unit] = gradient[n] * tanh * out * (1.0f - out);
        }
        of_cell[n] = dc * forget;
    }
}

/* A step of the word vectors c along their gradients a. Where mode is 1 the vectors are used divided by their norms, whose inverses
 * are b, so the part of a gradient along its vector is taken off. */
KERNEL(step_words)
{
    SHARED_BY_THREADS float parts[ROWS_AT_ONCE][LANES];
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b);
    float *c = start_of(&slot, &call, &call.c);
    u32 first;
    if (slot.rows == 0)
        return;
    for (first = (u32)BLOCK * ROWS_AT_ONCE; first < call.rows; first += (u32)BLOCKS * ROWS_AT_ONCE) {
        EACH_THREAD(BACKWARDS, thread) {
            u32 word = first + thread / LANES, j;
            float along = 0.0f;
            for (j = thread % LANES; call.mode && word < call.rows && j < call.cols; j += LANES)
                along = fmaf(a[word * call.a.row + j], c[word * call.c.row + j], along);
            parts[thread / LANES][thread % LANES] = along;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 word = first + thread / LANES, j;
            float along = 0.0f;
            if (call.mode && word < call.rows)
                along = sum_of_parts(parts[thread / LANES]) * b[word] * b[word];
            for (j = thread % LANES; word < call.rows && j < call.cols; j += LANES) {
                float gradient = a[word * call.a.row + j], *vector = c + (word * call.c.row + j);
                float across = call.mode ? fmaf(-along, *vector, gradient) : gradient;
                *vector = fmaf(call.factor, across, *vector);
            }
        }
        BARRIER();
    }
}
