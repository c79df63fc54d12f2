/* The kernels of local training: recurrent word models of many users at once, one user per slot.
 *
 * This file has two compilers. NVRTC makes kernels of it for a GPU, and a C compiler makes the functions of the emulator. Both give the
 * same bits: each value of a result is computed by one thread in a fixed order, every product that is fused says so, and no function of
 * a mathematical library is called except for the square root, which is correctly rounded. A thread reads the memory of its own slot
 * and the parameters of the round, so the update of a user cannot depend on other users.
 */

typedef unsigned int u32;
typedef unsigned long long u64;

/* An array. `at` counts floats from the start of the memory, of the slot's part of it, or of the slot's parameters. */
typedef struct {
    u64 at;
    u32 row;   /* floats from one row to the next */
    u32 col;   /* floats from one column to the next; for SHARED floats from one slot to the next */
    u32 place; /* PARAMETERS, ROOM or SHARED */
    u32 shift; /* rows to skip: one of NOTHING, STEP, EARLIER, BEFORE */
} Array;

/* The arguments of every kernel. */
typedef struct {
    u64 slot_parameters; /* floats of a slot in `parameters` */
    u64 slot_room;       /* floats of a slot in `room` */
    u64 shared;          /* the first float in `room` that all slots read */
    u32 step;            /* the number of the time step */
    u32 sequences;       /* rows in front of the states that hold the first states */
    u32 rows;            /* rows of the result, or one of the kinds below */
    u32 cols;            /* columns of the result */
    u32 depth;           /* terms of each sum, or one of the kinds below */
    u32 mode;            /* what happens to a result, or what a kernel selects */
    float factor;
    u32 unused;
    Array a, b, c, d;
} Call;

/* Places of an array. */
#define PARAMETERS 0u
#define ROOM 1u
#define SHARED 2u

/* Kinds of a number of rows. Every other number is itself. */
#define ALL_ROWS 0xffffffffu
#define ROWS_OF_STEP 0xfffffffeu
#define SEQUENCES 0xfffffffdu

/* Rows that an array skips. */
#define NOTHING 0u
#define STEP 1u    /* the first row of the time step */
#define EARLIER 2u /* the first row of the time step before */
#define BEFORE 3u  /* the first state before the time step, where first states stand in front */

/* Modes of `product`. */
#define SET 0u
#define ADD 1u
#define SET_AND_ADD_ROW 2u
#define SET_AND_SCALE_COLUMNS 3u
#define ADD_SCALED 4u

/* A table says what a slot does in the present local step. The words of a header: */
#define HEADER 12u
#define ROWS_AT 0u      /* rows of the batch; 0 for a slot without work */
#define SEQUENCES_AT 1u /* sequences of the batch */
#define STEPS_AT 2u     /* time steps of the batch */
#define TARGETS_AT 3u   /* rows with a target */
#define CARRY_AT 4u     /* 1 if the states of the batch before are the first states */
/* The places in the table of one word per row, per time step, or per sequence: */
#define INPUT_IDS 5u  /* per row: the token that is read */
#define TARGET_IDS 6u /* per row: the token that is predicted, or NO_TARGET */
#define PREVIOUS 7u   /* per row: the row of the state before, with the first states in front */
#define CHAINS 8u     /* per row: the next row that reads the same token, or NO_ROW; and before all of them whether the row is the first */
#define STARTS 9u     /* per time step and one more: its first row */
#define LASTS 10u     /* per sequence: the row of its last state, with the first states in front */
#define DISCARD 11u   /* not a place: 1 if the update of the slot is to be zero */
#define NO_TARGET 0xffffffffu
#define NO_ROW 0xffffffffu

/* Partial results per row or per clip group. */
#define PARTS 64u
#define LOWEST (-3.402823466e38f)

#ifdef __CUDACC_RTC__

#define FUNCTION static __device__ __forceinline__
#define KERNEL(name) \
    extern "C" __global__ void name(float *parameters, float *room, const u32 *table, const Call call)
#define SLOT (blockIdx.y)
#define FIRST ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE ((u64)gridDim.x * blockDim.x)

#else

#include <math.h>

/* One thread of an emulated grid. */
typedef struct {
    u64 first, stride;
    u32 slot, unused;
} Place;

#define FUNCTION static inline
#define KERNEL(name) \
    void undertone_train_##name(const Place *place, float *parameters, float *room, const u32 *table, Call call)
#define SLOT (place->slot)
#define FIRST (place->first)
#define STRIDE (place->stride)

#endif

typedef struct {
    float *parameters, *room, *shared;
    const u32 *header, *table;
    u32 rows, number;
} Slot;

FUNCTION Slot slot_of(float *parameters, float *room, const u32 *table, const Call *call, u32 slot)
{
    Slot mine;
    mine.parameters = parameters + slot * call->slot_parameters;
    mine.room = room + slot * call->slot_room;
    mine.shared = room + call->shared;
    mine.table = table;
    mine.header = table + slot * HEADER;
    mine.rows = mine.header[ROWS_AT];
    mine.number = slot;
    return mine;
}

/* The number of rows that a kind stands for. */
FUNCTION u32 rows_of(const Slot *slot, const Call *call, u32 kind)
{
    const u32 *starts = slot->table + slot->header[STARTS];
    if (kind == ALL_ROWS)
        return slot->rows;
    if (kind == SEQUENCES)
        return slot->header[SEQUENCES_AT];
    if (kind == ROWS_OF_STEP)
        return call->step < slot->header[STEPS_AT] ? starts[call->step + 1] - starts[call->step] : 0;
    return kind;
}

/* The first value of an array. */
FUNCTION float *start_of(const Slot *slot, const Call *call, const Array *array)
{
    const u32 *starts = slot->table + slot->header[STARTS];
    float *from = array->place == PARAMETERS ? slot->parameters : array->place == ROOM ? slot->room
        : slot->shared + (u64)slot->number * array->col;
    /* A slot whose batch has ended has no rows in this time step, and its array is not read. */
    u32 steps = slot->header[STEPS_AT], step = call->step < steps ? call->step : steps;
    u64 skipped = 0;
    if (array->shift == STEP)
        skipped = starts[step];
    else if (array->shift == EARLIER && step > 0)
        skipped = starts[step - 1];
    else if (array->shift == BEFORE && step > 0)
        skipped = call->sequences + starts[step - 1];
    return from + array->at + skipped * array->row;
}

/* 2^exponent, from -126 to 127. */
FUNCTION float power_of_two(int exponent)
{
    union {
        u32 bits;
        float value;
    } power;
    power.bits = (u32)(exponent + 127) << 23;
    return power.value;
}

/* The exponential of a number; NaN stays NaN. Results below the normal range lose digits. */
FUNCTION float exponential(float x)
{
    union {
        float value;
        int bits;
    } shifted, magic;
    float whole, rest, poly;
    int exponent, first;
    magic.value = 12582912.0f; /* 1.5 2^23: adding it rounds to the nearest integer */
    if (x < -87.33654f)
        x = -87.33654f;
    if (x > 88.72283f)
        x = 88.72283f;
    shifted.value = fmaf(x, 1.44269504f, magic.value);
    whole = shifted.value - magic.value;
    rest = fmaf(whole, -0.6933594f, x);
    rest = fmaf(whole, 2.1219444e-4f, rest);
    poly = 1.9875691e-4f;
    poly = fmaf(poly, rest, 1.3981999e-3f);
    poly = fmaf(poly, rest, 8.333452e-3f);
    poly = fmaf(poly, rest, 4.1665796e-2f);
    poly = fmaf(poly, rest, 1.6666665e-1f);
    poly = fmaf(poly, rest, 0.5f);
    poly = fmaf(poly, rest * rest, rest) + 1.0f;
    /* NaN has any integer here. Half of the exponent twice keeps both powers in the normal range. */
    exponent = (int)((u32)shifted.bits - (u32)magic.bits);
    if (exponent < -126 || exponent > 128)
        exponent = 0;
    first = exponent >> 1;
    return poly * power_of_two(first) * power_of_two(exponent - first);
}

FUNCTION float logistic(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

FUNCTION float hyperbolic_tangent(float x)
{
    float magnitude = fabsf(x), square = x * x, poly = -5.7049887e-3f, large;
    poly = fmaf(poly, square, 2.063909e-2f);
    poly = fmaf(poly, square, -5.3739716e-2f);
    poly = fmaf(poly, square, 1.3331442e-1f);
    poly = fmaf(poly, square, -3.333328e-1f);
    large = 1.0f - 2.0f / (exponential(magnitude + magnitude) + 1.0f);
    if (x < 0)
        large = -large;
    return magnitude < 0.625f ? fmaf(poly * square, x, x) : large;
}

/* c = a, by rows and columns. */
KERNEL(copy)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u64 n, count = (u64)rows_of(&slot, &call, call.rows) * call.cols;
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        u64 row = n / call.cols, col = n % call.cols;
        c[row * call.c.row + col * call.c.col] = a[row * call.a.row + col * call.a.col];
    }
}

/* The parameters of every slot start as those of the round. */
KERNEL(begin)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u64 n;
    for (n = FIRST; n < call.slot_parameters; n += STRIDE)
        slot.parameters[n] = slot.shared[n];
}

/* The parameters of every slot become its update. */
KERNEL(finish)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u32 discard = slot.header[DISCARD];
    u64 n;
    for (n = FIRST; n < call.slot_parameters; n += STRIDE)
        slot.parameters[n] = discard ? 0.0f : slot.parameters[n] - slot.shared[n];
}

/* c[row] = a[index of the row], scaled by d[index of the row] where mode has its ninth bit. The first eight bits say which words of the
 * table are the indices: `INPUT_IDS`, `PREVIOUS` or `LASTS`. */
KERNEL(gather)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u64 n, count = (u64)rows_of(&slot, &call, call.rows) * call.cols;
    const u32 *indices = table + slot.header[call.mode & 0xffu];
    const float *a = start_of(&slot, &call, &call.a), *d = start_of(&slot, &call, &call.d);
    float *c = start_of(&slot, &call, &call.c);
    u32 scaled = call.mode >> 8;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        u64 row = n / call.cols, col = n % call.cols, index = indices[row];
        float value = a[index * call.a.row + col];
        c[row * call.c.row + col] = scaled ? value * d[index] : value;
    }
}

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
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 row;
    u32 j;
    if (slot.rows == 0)
        return;
    for (row = FIRST; row < call.rows; row += STRIDE) {
        float sum = 0.0f, norm;
        for (j = 0; j < call.cols; j++)
            sum = fmaf(a[row * call.a.row + j], a[row * call.a.row + j], sum);
        norm = sqrtf(sum);
        c[row] = 1.0f / (norm > 1e-12f ? norm : 1e-12f);
    }
}

/* A thread computes TALL rows of WIDE columns, which lie LANES apart. The threads of a warp then read neighbouring columns. */
#define TALL 8u
#define WIDE 4u
#define LANES 32u

/* c = a b, by rows of a and columns of b; call.mode says what happens to the product. */
KERNEL(product)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u32 rows = rows_of(&slot, &call, call.rows), depth = rows_of(&slot, &call, call.depth), cols = call.cols;
    u32 bands = (rows + TALL - 1) / TALL, blocks = (cols + WIDE * LANES - 1) / (WIDE * LANES);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b);
    const float *d = start_of(&slot, &call, &call.d);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)bands * blocks * LANES;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 lane = (u32)(n % LANES), block = (u32)(n / LANES % blocks), band = (u32)(n / LANES / blocks);
        u32 first_row = band * TALL, first_col = block * WIDE * LANES + lane, i, j, k;
        u64 at_row[TALL], at_col[WIDE];
        float sums[TALL][WIDE];
        if (first_col >= cols)
            continue;
        /* Rows and columns past the end repeat the last one, and are not written. */
        for (i = 0; i < TALL; i++)
            at_row[i] = (u64)(first_row + i < rows ? first_row + i : rows - 1) * call.a.row;
        for (j = 0; j < WIDE; j++)
            at_col[j] = (u64)(first_col + j * LANES < cols ? first_col + j * LANES : first_col) * call.b.col;
        for (i = 0; i < TALL; i++)
            for (j = 0; j < WIDE; j++)
                sums[i][j] = 0.0f;
        for (k = 0; k < depth; k++) {
            const float *left = a + (u64)k * call.a.col, *right = b + (u64)k * call.b.row;
            float of_row[TALL], of_col[WIDE];
            for (i = 0; i < TALL; i++)
                of_row[i] = left[at_row[i]];
            for (j = 0; j < WIDE; j++)
                of_col[j] = right[at_col[j]];
            for (i = 0; i < TALL; i++)
                for (j = 0; j < WIDE; j++)
                    sums[i][j] = fmaf(of_row[i], of_col[j], sums[i][j]);
        }
        for (i = 0; i < TALL && first_row + i < rows; i++)
            for (j = 0; j < WIDE && first_col + j * LANES < cols; j++) {
                u32 col = first_col + j * LANES;
                float *to = c + (u64)(first_row + i) * call.c.row + (u64)col * call.c.col, sum = sums[i][j];
                if (call.mode == SET)
                    *to = sum;
                else if (call.mode == ADD)
                    *to = *to + sum;
                else if (call.mode == SET_AND_ADD_ROW)
                    *to = sum + d[col];
                else if (call.mode == SET_AND_SCALE_COLUMNS)
                    *to = sum * d[col];
                else
                    *to = fmaf(call.factor, sum, *to);
            }
    }
}

/* c[col] += factor * the sum of column `col` of a. */
KERNEL(add_column_sums)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u32 rows = rows_of(&slot, &call, call.depth), row;
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 col;
    if (slot.rows == 0)
        return;
    for (col = FIRST; col < call.cols; col += STRIDE) {
        float sum = 0.0f;
        for (row = 0; row < rows; row++)
            sum += a[(u64)row * call.a.row + col];
        c[col] = fmaf(call.factor, sum, c[col]);
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
        u64 row = n / width, unit = n % width;
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
        u64 row = n / width, unit = n % width;
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

/* Part `p` of a row holds the words p, p + PARTS, ...: its largest logit, and the sum of the exponentials relative to it. a: logits.
 * c: the maxima of the parts of each row, then their sums. */
KERNEL(softmax_parts)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)slot.rows * PARTS;
    for (n = FIRST; n < count; n += STRIDE) {
        const float *logits = a + n / PARTS * call.a.row;
        float largest = LOWEST, sum = 0.0f;
        u32 part = (u32)(n % PARTS), word;
        for (word = part; word < call.cols; word += PARTS)
            if (logits[word] > largest)
                largest = logits[word];
        for (word = part; word < call.cols; word += PARTS)
            sum += exponential(logits[word] - largest);
        c[n / PARTS * 2 * PARTS + part] = largest;
        c[n / PARTS * 2 * PARTS + PARTS + part] = sum;
    }
}

/* d[row] = the largest logit, the sum of exponentials relative to it, and the logit of the target. a: logits. c: parts. */
KERNEL(softmax_rows)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *c = start_of(&slot, &call, &call.c);
    float *d = start_of(&slot, &call, &call.d);
    const u32 *targets = table + slot.header[TARGET_IDS];
    u64 row;
    u32 part;
    for (row = FIRST; row < slot.rows; row += STRIDE) {
        const float *maxima = c + row * 2 * PARTS, *sums = maxima + PARTS;
        float largest = LOWEST, sum = 0.0f;
        for (part = 0; part < PARTS; part++)
            if (maxima[part] > largest)
                largest = maxima[part];
        for (part = 0; part < PARTS && part < call.cols; part++)
            sum = fmaf(sums[part], exponential(maxima[part] - largest), sum);
        d[row * 3] = largest;
        d[row * 3 + 1] = sum;
        d[row * 3 + 2] = targets[row] == NO_TARGET ? largest : a[row * call.a.row + targets[row]];
    }
}

/* The logits become their gradients of the mean loss per target. a: logits. d: statistics of the rows. b: a factor per word, where
 * mode is 1. */
KERNEL(softmax_gradients)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    float *a = start_of(&slot, &call, &call.a);
    const float *b = start_of(&slot, &call, &call.b), *d = start_of(&slot, &call, &call.d);
    const u32 *targets = table + slot.header[TARGET_IDS];
    u64 n, count = (u64)slot.rows * call.cols;
    for (n = FIRST; n < count; n += STRIDE) {
        u64 row = n / call.cols;
        u32 word = (u32)(n % call.cols);
        float weight = 1.0f / (float)slot.header[TARGETS_AT], gradient = 0.0f;
        if (targets[row] != NO_TARGET) {
            gradient = weight * (exponential(a[n] - d[row * 3]) / d[row * 3 + 1]);
            if (word == targets[row])
                gradient -= weight;
        }
        a[n] = call.mode ? gradient * b[word] : gradient;
    }
}

/* The gradients of the input vectors go to the rows of their tokens: the first row that reads a token adds up those of all of them.
 * a: gradients of inputs. c: the rows of the tokens. b: a factor per token, where mode is 1. */
KERNEL(scatter)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b);
    float *c = start_of(&slot, &call, &call.c);
    const u32 *tokens = table + slot.header[INPUT_IDS], *is_first = table + slot.header[CHAINS];
    const u32 *chain = is_first + slot.rows;
    u64 n, count = (u64)slot.rows * call.cols;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)(n / call.cols), col = (u32)(n % call.cols), token = tokens[row];
        float sum = 0.0f, *to = c + (u64)token * call.c.row + col;
        if (!is_first[row])
            continue;
        for (; row != NO_ROW; row = chain[row])
            sum += a[(u64)row * call.a.row + col];
        *to = fmaf(call.factor, call.mode ? sum * b[token] : sum, *to);
    }
}

/* A step of the word vectors c along their gradients a. Where mode is 1 the vectors are used divided by their norms, whose inverses
 * are b, so the part of a gradient along its vector is taken off. */
KERNEL(step_words)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b);
    float *c = start_of(&slot, &call, &call.c);
    u64 word;
    u32 j;
    if (slot.rows == 0)
        return;
    for (word = FIRST; word < call.rows; word += STRIDE) {
        const float *gradient = a + word * call.a.row;
        float *vector = c + word * call.c.row, along = 0.0f;
        if (call.mode) {
            for (j = 0; j < call.cols; j++)
                along = fmaf(gradient[j], vector[j], along);
            along = along * b[word] * b[word];
        }
        for (j = 0; j < call.cols; j++) {
            float across = call.mode ? fmaf(-along, vector[j], gradient[j]) : gradient[j];
            vector[j] = fmaf(call.factor, across, vector[j]);
        }
    }
}

/* Part `p` of the squared distance between the parameters and those of the round, over the values p, p + PARTS, ... of a block of rows.
 * c: two floats that hold a double, per part. mode 1 adds to what is there. */
KERNEL(distances)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    double *sums = (double *)start_of(&slot, &call, &call.c);
    u64 count = (u64)call.rows * call.cols, part, n;
    if (slot.rows == 0)
        return;
    for (part = FIRST; part < PARTS; part += STRIDE) {
        double sum = call.mode ? sums[part] : 0.0;
        for (n = part; n < count; n += PARTS) {
            u64 at = call.a.at + n / call.cols * call.a.row + n % call.cols;
            double distance = (double)slot.parameters[at] - (double)slot.shared[at];
            sum += distance * distance;
        }
        sums[part] = sum;
    }
}

/* The parameters of a block move towards those of the round: their distance is multiplied by the factor b, which is a double. */
KERNEL(project)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    double factor = *(const double *)start_of(&slot, &call, &call.b);
    u64 count = (u64)call.rows * call.cols, n;
    if (slot.rows == 0 || factor >= 1.0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        u64 at = call.a.at + n / call.cols * call.a.row + n % call.cols;
        double start = (double)slot.shared[at], distance = (double)slot.parameters[at] - start;
        slot.parameters[at] = (float)(start + factor * distance);
    }
}
