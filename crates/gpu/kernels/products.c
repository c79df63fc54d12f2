/* The kernels of products, beside those of `common.c`. */

/* The threads of a block compute a tile of a product together. They copy slices of both factors, of `deep` terms of each sum, into memory
 * that they share, and fetch the next slices while they multiply. Each sum adds its terms in their order, whatever the tile is.
 * A thread computes `tall` rows that follow one another, and `wide` columns: pairs that lie 2 `lanes` columns apart. */
typedef struct {
    u32 tall, wide, lanes, deep;
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

/* Computes one tile of a product. */
FUNCTION void compute_tile(const Call *call, const Factor *a, const Factor *b, float *c, const float *d, u32 first_row, u32 first_col,
                           u32 backwards, float *left, float *right, const Tile tile)
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
        fetch(next_left[MINE(thread)], a, thread, first_row, 0, high, deep);
        fetch(next_right[MINE(thread)], b, thread, first_col, 0, broad, deep);
        share(left, next_left[MINE(thread)], a, thread, high, deep, left_term);
        share(right, next_right[MINE(thread)], b, thread, broad, deep, right_term);
    }
    BARRIER();
    for (at = 0; at < depth; at += deep) {
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

FUNCTION void tiles(const Slot *slot, const Call *call, u64 block, u64 blocks, u32 backwards, float *left, float *right,
                    const Tile tile)
{
    const float *d = start_of(slot, call, &call->d);
    float *c = start_of(slot, call, &call->c);
    u32 rows = rows_of(slot, call, call->rows), depth = rows_of(slot, call, call->depth);
    u32 columns = (call->cols + BROAD(tile) - 1) / BROAD(tile);
    u64 n, count = (u64)((rows + HIGH(tile) - 1) / HIGH(tile)) * columns;
    const Factor a = {start_of(slot, call, &call->a), call->a.row, call->a.col, rows, depth};
    const Factor b = {start_of(slot, call, &call->b), call->b.col, call->b.row, call->cols, depth};
    if (slot->rows == 0)
        return;
    for (n = block; n < count; n += blocks)
        compute_tile(call, &a, &b, c, d, (u32)(n / columns) * HIGH(tile), (u32)(n % columns) * BROAD(tile), backwards, left, right,
                     tile);
}

/* c = a b, by rows of a and columns of b; call.mode says what happens to the product. The kernels below differ in their tiles, and give the
 * same bits. */
#define PRODUCT(name, tall, wide, lanes, deep) \
    KERNEL(name) \
    { \
        const Tile tile = {tall, wide, lanes, deep}; \
        SLICES(tall, wide, lanes, deep); \
        Slot slot = slot_of(parameters, room, table, &call, SLOT); \
        tiles(&slot, &call, BLOCK, BLOCKS, BACKWARDS, left, right, tile); \
    }

/* 64 rows of 128 columns. */
PRODUCT(product, 8, 8, 16, 16)
/* 64 rows of 96 columns. */
PRODUCT(product_narrow, 8, 6, 16, 16)
/* 48 rows of 128 columns. */
PRODUCT(product_low, 6, 8, 16, 16)
/* 16 rows of 32 columns, for the rows of one time step. More threads share the work, and more values are on their way. */
PRODUCT(product_of_few, 2, 2, 16, 64)
