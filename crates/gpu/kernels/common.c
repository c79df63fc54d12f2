/* What the kernels of local training have in common: many users are trained at once, one user per slot.
 *
 * These files have two compilers. NVRTC makes kernels of it for a GPU, and a C compiler makes the functions of the emulator. Both give the
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

/* Threads of a block. */
#define THREADS 128u

#ifdef __CUDACC_RTC__

#define FUNCTION static __device__ __forceinline__
/* A kernel, of which at least four blocks fit a processor of a GPU. */
#define KERNEL(name) \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) \
        name(float *parameters, float *room, const u32 *table, const Call call)
#define SLOT (blockIdx.y)
#define FIRST ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE ((u64)gridDim.x * blockDim.x)
#define BLOCK (blockIdx.x)
#define BLOCKS (gridDim.x)
#define UNROLL _Pragma("unroll")
#define SHARED_BY_THREADS __shared__ __align__(16)
#define BARRIER() __syncthreads()
#define BACKWARDS 0
#define EACH_THREAD(backwards, thread) for (u32 thread = threadIdx.x, once = 1; once; once = 0)
#define HELD 1
#define MINE(thread) 0
#define NEEDED(all, limit, first, apart) (all)

#else

#include <math.h>

/* One thread of an emulated grid. */
typedef struct {
    u64 first, stride;
    u32 slot, backwards;
} Place;

#define FUNCTION static inline
#define KERNEL(name) \
    void undertone_train_##name(const Place *place, float *parameters, float *room, const u32 *table, Call call)
#define SLOT (place->slot)
#define FIRST (place->first)
#define STRIDE (place->stride)
/* A kernel with barriers takes an emulated thread for a whole block. It does the work of all threads of the block, one after another,
 * up to each barrier, and holds what each of them has in registers. The threads run in their order or backwards, so that a missing
 * barrier shows in the results. */
#define BLOCK (place->first)
#define BLOCKS (place->stride)
#define UNROLL
#define SHARED_BY_THREADS
#define BARRIER() ((void)0)
#define BACKWARDS (place->backwards)
#define EACH_THREAD(backwards, thread) \
    for (u32 step = 0, thread = (backwards) ? THREADS - 1 : 0; step < THREADS; step++, thread += (backwards) ? -1u : 1u)
#define HELD THREADS
#define MINE(thread) (thread)
/* How many of a thread's lines lie below the limit: it has pairs from `first` on that lie 2 `apart` lines apart, or neighbours where
 * `apart` is 1. A GPU computes them all. */
#define NEEDED(all, limit, first, apart) needed(all, limit, first, apart)

static inline u32 needed(u32 all, u32 limit, u32 first, u32 apart)
{
    u32 count = first < limit ? (limit - first + 2 * apart - 1) / (2 * apart) * 2 : 0;
    return count < all ? count : all;
}

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
        u32 row = (u32)n / call.cols, col = (u32)n % call.cols, index = indices[row];
        float value = a[index * call.a.row + col];
        c[row * call.c.row + col] = scaled ? value * d[index] : value;
    }
}

/* The threads of a block share rows: LANES of them add up one row, each every LANES-th value, and the parts are added in their order. */
#define LANES 32u
#define ROWS_AT_ONCE (THREADS / LANES)

/* The sum of the parts of a row. */
FUNCTION float sum_of_parts(const float *parts)
{
    float sum = 0.0f;
    u32 i;
    UNROLL
    for (i = 0; i < LANES; i++)
        sum += parts[i];
    return sum;
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

/* Part `p` of a row holds the words p, p + PARTS, ...: its largest logit, and the sum of the exponentials relative to it. a: logits.
 * c: the maxima of the parts of each row, then their sums. */
KERNEL(softmax_parts)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)rows_of(&slot, &call, call.rows) * PARTS;
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

/* d[row] = the largest logit, the sum of exponentials relative to it, and the logit of the target; for a row without a target numbers
 * whose loss is zero. a: logits. c: parts; the first one of a row becomes the factor of its exponentials in the gradients. */
KERNEL(softmax_rows)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c), *d = start_of(&slot, &call, &call.d);
    float of_target = 1.0f / (float)slot.header[TARGETS_AT];
    u32 rows = rows_of(&slot, &call, call.rows), part;
    const u32 *targets = table + slot.header[TARGET_IDS];
    u64 row;
    for (row = FIRST; row < rows; row += STRIDE) {
        float *maxima = c + row * 2 * PARTS, *sums = maxima + PARTS, *of_row = d + row * 3;
        float largest = LOWEST, sum = 0.0f;
        u32 counts = targets[row] != NO_TARGET;
        for (part = 0; part < PARTS; part++)
            if (maxima[part] > largest)
                largest = maxima[part];
        for (part = 0; part < PARTS && part < call.cols; part++)
            sum = fmaf(sums[part], exponential(maxima[part] - largest), sum);
        of_row[0] = counts ? largest : 0.0f;
        of_row[1] = counts ? sum : 1.0f;
        of_row[2] = counts ? a[row * call.a.row + targets[row]] : 0.0f;
        maxima[0] = counts ? of_target / sum : 0.0f;
    }
}

/* The logits become their gradients of the loss. a: logits. c: the factor of each row, from `softmax_rows`. d: statistics
 * of the rows. b: a factor per word, where mode is 1. */
KERNEL(softmax_gradients)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    float *a = start_of(&slot, &call, &call.a);
    const float *b = start_of(&slot, &call, &call.b), *d = start_of(&slot, &call, &call.d);
    const float *c = start_of(&slot, &call, &call.c);
    float of_target = 1.0f / (float)slot.header[TARGETS_AT];
    u32 rows = rows_of(&slot, &call, call.rows), word, row;
    const u32 *targets = table + slot.header[TARGET_IDS];
    for (word = (u32)FIRST; word < call.cols; word += (u32)STRIDE) {
        float of_word = call.mode ? b[word] : 1.0f;
        for (row = 0; row < rows; row++) {
            float *logit = a + (row * call.a.row + word), gradient = 0.0f;
            if (targets[row] != NO_TARGET)
                gradient = c[row * 2 * PARTS] * exponential(*logit - d[row * 3]);
            if (word == targets[row])
                gradient -= of_target;
            *logit = gradient * of_word;
        }
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
        u32 row = (u32)n / call.cols, col = (u32)n % call.cols, token = tokens[row];
        float sum = 0.0f, *to = c + (u64)token * call.c.row + col;
        if (!is_first[row])
            continue;
        for (; row != NO_ROW; row = chain[row])
            sum += a[(u64)row * call.a.row + col];
        *to = fmaf(call.factor, call.mode ? sum * b[token] : sum, *to);
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
