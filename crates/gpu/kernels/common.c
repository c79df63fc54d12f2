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
    u32 place; /* PARAMETERS, ROOM, SHARED or COMMON */
    u32 shift; /* rows to skip: one of NOTHING, STEP, EARLIER, BEFORE, CHUNK */
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
    u32 heads; /* heads of queries per row, or per row that is a number of them */
    Array a, b, c, d, e;
} Call;

/* Places of an array. */
#define PARAMETERS 0u
#define ROOM 1u
#define SHARED 2u
#define COMMON 3u /* as SHARED, but the same for all slots */

/* Kinds of a number of rows. Every other number is itself. */
#define ALL_ROWS 0xffffffffu
#define ROWS_OF_STEP 0xfffffffeu
#define SEQUENCES 0xfffffffdu
#define ROWS_OF_CHUNK 0xfffffffcu /* `sequences` rows from the row `step` times as many on, or those that are left */

/* Rows that an array skips. */
#define NOTHING 0u
#define STEP 1u    /* the first row of the time step */
#define EARLIER 2u /* the first row of the time step before */
#define BEFORE 3u  /* the first state before the time step, where first states stand in front */
#define CHUNK 4u   /* the first row of the chunk */

/* Modes of `product`. */
#define SET 0u
#define ADD 1u
#define SET_AND_ADD_ROW 2u
#define SET_AND_SCALE_COLUMNS 3u
#define ADD_SCALED 4u

/* A table says what a slot does in the present local step. The words of a header: */
#define HEADER 13u
#define ROWS_AT 0u      /* rows of the batch; 0 for a slot without work */
#define SEQUENCES_AT 1u /* sequences of the batch */
#define STEPS_AT 2u     /* time steps of the batch */
#define TARGETS_AT 3u   /* rows with a target */
#define CARRY_AT 4u     /* 1 if the states of the batch before are the first states */
/* The places in the table of one word per row, per time step, or per sequence: */
#define INPUT_IDS 5u  /* per row: the token that is read */
#define TARGET_IDS 6u /* per row: the token that is predicted, or NO_TARGET */
#define PREVIOUS 7u   /* per row: the row of the state before, with the first states in front; in a transformer its position */
#define CHAINS 8u     /* per row: the next row that reads the same token, or NO_ROW; and before all of them whether the row is the first */
#define STARTS 9u     /* per time step and one more: its first row; in a transformer per sequence */
#define LASTS 10u     /* per sequence: the row of its last state, with the first states in front */
#define DISCARD 11u   /* not a place: 1 if the update of the slot is to be zero */
#define WEIGHTS 12u   /* per row: its part of the loss, as a float; without a place all rows with a target have the same */
#define NO_TARGET 0xffffffffu
#define NO_ROW 0xffffffffu

/* Partial results per row or per clip group. */
#define PARTS 64u
#define LOWEST (-3.402823466e38f)

/* Threads of a block. */
#define THREADS 128u

#ifdef __CUDACC_RTC__

#define FUNCTION static __device__ __forceinline__
#define KERNEL_OF(name, blocks) \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks) \
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
#define KERNEL_OF(name, blocks) \
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

/* A kernel, of which at least four blocks fit a processor of a GPU. */
#define KERNEL(name) KERNEL_OF(name, 4)

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
    if (kind == ROWS_OF_CHUNK) {
        u32 first = call->step * call->sequences, left = first < slot->rows ? slot->rows - first : 0;
        return left < call->sequences ? left : call->sequences;
    }
    return kind;
}

/* The first value of an array. */
FUNCTION float *start_of(const Slot *slot, const Call *call, const Array *array)
{
    const u32 *starts = slot->table + slot->header[STARTS];
    float *from = array->place == PARAMETERS ? slot->parameters : array->place == ROOM ? slot->room
        : array->place == COMMON ? slot->shared : slot->shared + (u64)slot->number * array->col;
    /* A slot whose batch has ended has no rows in this time step, and its array is not read. */
    u32 steps = slot->header[STEPS_AT], step = call->step < steps ? call->step : steps;
    u64 skipped = 0;
    if (array->shift == STEP)
        skipped = starts[step];
    else if (array->shift == EARLIER && step > 0)
        skipped = starts[step - 1];
    else if (array->shift == BEFORE && step > 0)
        skipped = call->sequences + starts[step - 1];
    else if (array->shift == CHUNK)
        skipped = (u64)call->step * call->sequences;
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

/* The parameters of every slot start as those of the round, or as zero where mode is 1 and they are a gradient. */
KERNEL(begin)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u64 n;
    for (n = FIRST; n < call.slot_parameters; n += STRIDE)
        slot.parameters[n] = call.mode ? 0.0f : slot.shared[n];
}

/* The parameters of every slot become its update, which they are already where mode is 1. */
KERNEL(finish)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    u32 discard = slot.header[DISCARD];
    u64 n;
    for (n = FIRST; n < call.slot_parameters; n += STRIDE)
        slot.parameters[n] = discard ? 0.0f : call.mode ? slot.parameters[n] : slot.parameters[n] - slot.shared[n];
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

/* The threads of a block compute a tile of a product together. They copy slices of both factors, of `deep` terms of each sum, into memory
 * that they share, and fetch the next slices while they multiply. Each sum adds its terms in their order, whatever the tile is.
 * A thread computes `tall` rows that follow one another, and `wide` columns: pairs that lie 2 `lanes` columns apart. */
typedef struct {
    u32 tall, wide, lanes, deep;
    u32 coarse; /* 1 for the products of `coarse.c` */
} Tile;

/* The rows and the columns of a tile. */
#define HIGH(tile) ((tile).tall * (THREADS / (tile).lanes))
#define BROAD(tile) ((tile).wide * (tile).lanes)

/* The floats of one term in the shared memory: the lines of a tile, and a gap against conflicts of memory banks. Threads read two or four
 * lines at once. */
#define LEFT_TERM(tile) (HIGH(tile) + ((tile).tall % 4 == 0 ? 4 : 2))
#define RIGHT_TERM(tile) (BROAD(tile) + 2)

/* The most values that a thread computes, that it fetches of the left and of the right factor, and the most rows or columns of them. */
#define MAX_SUMS 64u
#define MAX_LEFT 8u
#define MAX_RIGHT 16u
#define MAX_LINES 8u

/* A factor: `lines` lines of `terms` terms. */
typedef struct {
    const float *values;
    u32 of_line, of_term; /* floats from one line, or one term, to the next */
    u32 lines, terms;
} Factor;

/* How the threads of a block share the values of a slice. Threads side by side take values side by side: `run` lines, or all terms. A
 * thread takes `across` values along the run's direction and `along` in the other one. */
#define RUN(size, deep, by_terms) ((by_terms) ? (deep) : (size) % 32 == 0 ? 32u : 16u)
#define ACROSS(size, deep, by_terms) ((by_terms) ? 1u : (size) / RUN(size, deep, by_terms))
#define ALONG(size, deep, by_terms) ((size) * (deep) / THREADS / ACROSS(size, deep, by_terms))

FUNCTION void fetch_part(float *into, const Factor *factor, u32 thread, u32 first_line, u32 first_term, const u32 size, const u32 deep,
                         const u32 by_terms)
{
    const u32 run = RUN(size, deep, by_terms), across = ACROSS(size, deep, by_terms), along = ALONG(size, deep, by_terms);
    u32 line = first_line + (by_terms ? thread / run : thread % run), term = first_term + (by_terms ? thread % run : thread / run);
    u32 whole = first_line + size <= factor->lines && first_term + deep <= factor->terms, i, j;
    const float *from = factor->values + (line * factor->of_line + term * factor->of_term);
    u32 step_across = run * factor->of_line, step_along = THREADS / run * (by_terms ? factor->of_line : factor->of_term);
    if (whole) {
        UNROLL
        for (i = 0; i < along; i++)
            UNROLL
            for (j = 0; j < across; j++)
                into[i * across + j] = from[i * step_along + j * step_across];
        return;
    }
    /* What lies outside of the factor is zero. */
    UNROLL
    for (i = 0; i < along; i++)
        UNROLL
        for (j = 0; j < across; j++) {
            u32 at_line = line + (by_terms ? i * (THREADS / run) : j * run), at_term = term + (by_terms ? 0 : i * (THREADS / run));
            int inside = at_line < factor->lines && at_term < factor->terms;
            into[i * across + j] = inside ? from[i * step_along + j * step_across] : 0.0f;
        }
}

FUNCTION void share_part(float *into, const float *from, u32 thread, const u32 size, const u32 deep, const u32 of_term, const u32 by_terms)
{
    const u32 run = RUN(size, deep, by_terms), across = ACROSS(size, deep, by_terms), along = ALONG(size, deep, by_terms);
    u32 line = by_terms ? thread / run : thread % run, term = by_terms ? thread % run : thread / run, i, j;
    UNROLL
    for (i = 0; i < along; i++)
        UNROLL
        for (j = 0; j < across; j++)
            into[(term + (by_terms ? 0 : i * (THREADS / run))) * of_term + line + (by_terms ? i * (THREADS / run) : j * run)] =
                from[i * across + j];
}

/* Reads a thread's part of a slice: `size` lines from `first_line` on, and `deep` terms from `first_term` on. */
FUNCTION void fetch(float *into, const Factor *factor, u32 thread, u32 first_line, u32 first_term, const u32 size, const u32 deep)
{
    if (factor->of_term == 1)
        fetch_part(into, factor, thread, first_line, first_term, size, deep, 1);
    else
        fetch_part(into, factor, thread, first_line, first_term, size, deep, 0);
}

/* Copies what `fetch` gave to the shared memory, where `of_term` floats belong to a term. */
FUNCTION void share(float *into, const float *from, const Factor *factor, u32 thread, const u32 size, const u32 deep, const u32 of_term)
{
    if (factor->of_term == 1)
        share_part(into, from, thread, size, deep, of_term, 1);
    else
        share_part(into, from, thread, size, deep, of_term, 0);
}

/* One term of the sums of a thread. `rows` and `cols` say how many of them are needed. */
FUNCTION void multiply(float *sums, const float *left, const float *right, const Tile tile, u32 rows, u32 cols)
{
    float of_row[MAX_LINES], of_col[MAX_LINES];
    u32 i, j;
    UNROLL
    for (i = 0; i < rows; i++)
        of_row[i] = left[i];
    UNROLL
    for (j = 0; j < cols; j++)
        of_col[j] = right[j / 2 * 2 * tile.lanes + j % 2];
    UNROLL
    for (i = 0; i < rows; i++)
        UNROLL
        for (j = 0; j < cols; j++)
            sums[i * tile.wide + j] = fmaf(of_row[i], of_col[j], sums[i * tile.wide + j]);
}

/* Writes the results of a thread from its sums. The columns of c lie side by side. */
FUNCTION void put(const Call *call, float *c, const float *d, const float *sums, u32 row, u32 col, u32 rows, u32 cols, const Tile tile)
{
    u32 scales = call->mode == SET_AND_SCALE_COLUMNS, adds_row = call->mode == SET_AND_ADD_ROW;
    u32 adds = call->mode == ADD || call->mode == ADD_SCALED, i, j;
    float times[MAX_LINES], plus[MAX_LINES], before[MAX_LINES];
    /* Every mode is a fused product and sum. Adding -0 changes no number, and neither does a factor of one. */
    UNROLL
    for (j = 0; j < tile.wide; j++) {
        u32 at = col + j / 2 * 2 * tile.lanes + j % 2;
        float of_col = (scales || adds_row) && at < cols ? d[at] : 0.0f;
        times[j] = scales ? of_col : call->mode == ADD_SCALED ? call->factor : 1.0f;
        plus[j] = adds_row ? of_col : -0.0f;
    }
    UNROLL
    for (i = 0; i < tile.tall; i++) {
        float *to = c + (row + i) * call->c.row + col;
        if (row + i >= rows)
            continue;
        /* All reads come before the first write, so that they are on their way together. */
        UNROLL
        for (j = 0; j < tile.wide; j++) {
            u32 at = j / 2 * 2 * tile.lanes + j % 2;
            before[j] = adds && col + at < cols ? to[at] : plus[j];
        }
        UNROLL
        for (j = 0; j < tile.wide; j++) {
            u32 at = j / 2 * 2 * tile.lanes + j % 2;
            if (col + at < cols)
                to[at] = fmaf(sums[i * tile.wide + j], times[j], before[j]);
        }
    }
}

/* Computes one tile of a product: the terms from `from` on of each sum, up to those that the factors have. */
FUNCTION void compute_tile(const Call *call, const Factor *a, const Factor *b, float *c, const float *d, u32 first_row, u32 first_col,
                           u32 from, u32 backwards, float *left, float *right, const Tile tile)
{
    const u32 high = HIGH(tile), broad = BROAD(tile), deep = tile.deep, left_term = LEFT_TERM(tile), right_term = RIGHT_TERM(tile);
    u32 rows = a->lines, cols = b->lines, depth = a->terms, at, half = 0;
    float sums[HELD][MAX_SUMS], next_left[HELD][MAX_LEFT], next_right[HELD][MAX_RIGHT];
    (void)backwards;
    EACH_THREAD(backwards, thread) {
        u32 i;
        UNROLL
        for (i = 0; i < tile.tall * tile.wide; i++)
            sums[MINE(thread)][i] = 0.0f;
        fetch(next_left[MINE(thread)], a, thread, first_row, from, high, deep);
        fetch(next_right[MINE(thread)], b, thread, first_col, from, broad, deep);
        share(left, next_left[MINE(thread)], a, thread, high, deep, left_term);
        share(right, next_right[MINE(thread)], b, thread, broad, deep, right_term);
    }
    BARRIER();
    for (at = from; at < depth; at += deep) {
        u32 terms = depth - at < deep ? depth - at : deep, more = at + deep < depth;
        EACH_THREAD(backwards, thread) {
            u32 row = thread / tile.lanes * tile.tall, col = thread % tile.lanes * 2, k;
            u32 tall = NEEDED(tile.tall, rows - first_row, row, 1);
            u32 wide = NEEDED(tile.wide, cols - first_col, col, tile.lanes);
            const float *from_left = left + half * deep * left_term + row;
            const float *from_right = right + half * deep * right_term + col;
            if (more) {
                fetch(next_left[MINE(thread)], a, thread, first_row, at + deep, high, deep);
                fetch(next_right[MINE(thread)], b, thread, first_col, at + deep, broad, deep);
            }
            if (terms == deep) {
                UNROLL
                for (k = 0; k < deep; k++)
                    multiply(sums[MINE(thread)], from_left + k * left_term, from_right + k * right_term, tile, tall, wide);
            } else {
                for (k = 0; k < terms; k++)
                    multiply(sums[MINE(thread)], from_left + k * left_term, from_right + k * right_term, tile, tall, wide);
            }
            if (more) {
                share(left + (1 - half) * deep * left_term, next_left[MINE(thread)], a, thread, high, deep, left_term);
                share(right + (1 - half) * deep * right_term, next_right[MINE(thread)], b, thread, broad, deep, right_term);
            }
        }
        BARRIER();
        half = 1 - half;
    }
    EACH_THREAD(backwards, thread) {
        u32 row = first_row + thread / tile.lanes * tile.tall, col = first_col + thread % tile.lanes * 2;
        put(call, c, d, sums[MINE(thread)], row, col, rows, cols, tile);
    }
}

/* Shared memory for the slices of a tile. */
#define SLICES(tall, wide, lanes, deep) \
    SHARED_BY_THREADS float left[2 * (deep) * (THREADS / (lanes) * (tall) + 4)], right[2 * (deep) * ((wide) * (lanes) + 2)]

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

/* The first row of the chunk that a softmax works on, and the part of the loss that a row has. */
FUNCTION u32 first_of_chunk(const Call *call)
{
    return call->rows == ROWS_OF_CHUNK ? call->step * call->sequences : 0;
}

FUNCTION float weight_of(const Slot *slot, u32 row)
{
    union {
        u32 bits;
        float value;
    } weight;
    if (slot->header[WEIGHTS] == 0)
        return 1.0f / (float)slot->header[TARGETS_AT];
    weight.bits = slot->table[slot->header[WEIGHTS] + row];
    return weight.value;
}

/* d[row] = the largest logit, the sum of exponentials relative to it, and the logit of the target; for a row without a target numbers
 * whose loss is zero. a: logits. c: parts; the first one of a row becomes the factor of its exponentials in the gradients. */
KERNEL(softmax_rows)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c), *d = start_of(&slot, &call, &call.d);
    u32 chunk = first_of_chunk(&call), rows = rows_of(&slot, &call, call.rows), part;
    const u32 *targets = table + slot.header[TARGET_IDS] + chunk;
    u64 row;
    for (row = FIRST; row < rows; row += STRIDE) {
        float *maxima = c + row * 2 * PARTS, *sums = maxima + PARTS, *of_row = d + (chunk + row) * 3;
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
        maxima[0] = counts ? weight_of(&slot, chunk + (u32)row) / sum : 0.0f;
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
    u32 chunk = first_of_chunk(&call), rows = rows_of(&slot, &call, call.rows), word, row;
    const u32 *targets = table + slot.header[TARGET_IDS] + chunk;
    for (word = (u32)FIRST; word < call.cols; word += (u32)STRIDE) {
        float of_word = call.mode ? b[word] : 1.0f;
        for (row = 0; row < rows; row++) {
            float *logit = a + (row * call.a.row + word), gradient = 0.0f;
            if (targets[row] != NO_TARGET)
                gradient = c[row * 2 * PARTS] * exponential(*logit - d[(chunk + row) * 3]);
            if (word == targets[row])
                gradient -= weight_of(&slot, chunk + row);
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
