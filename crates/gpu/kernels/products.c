/* The kernels of products, beside those of `common.c`. */

/* Coarse products: both factors are rounded to bfloat16, which has eight binary digits, and their products are added up in single
 * precision. The tensor cores of a GPU compute them. They add in an order of their own, which follows from the tile alone, so the result
 * of a unit still depends on nothing else. The emulator adds term by term: its results are near those of a GPU, and equal where no sum
 * is rounded. */

/* Words of a line in the shared memory: a pair of terms per word, and a gap against conflicts of memory banks. */
#define PAIRS 8u
#define LINE (PAIRS + 4u)

#define SLICES_COARSE(wide) SHARED_BY_THREADS float left[2 * 128 * LINE], right[2 * (wide) * 16 * LINE]

/* Adds a value of a product to its place, or sets it. */
FUNCTION void put_one(const Call *call, float *c, const float *d, float sum, u32 row, u32 col, u32 rows, u32 cols)
{
    u32 scales = call->mode == SET_AND_SCALE_COLUMNS, adds_row = call->mode == SET_AND_ADD_ROW;
    u32 adds = call->mode == ADD || call->mode == ADD_SCALED;
    if (row < rows && col < cols) {
        float *to = c + ((u64)row * call->c.row + col);
        float times = scales ? d[col] : call->mode == ADD_SCALED ? call->factor : 1.0f;
        *to = fmaf(sum, times, adds ? *to : adds_row ? d[col] : -0.0f);
    }
}

#ifdef __CUDACC_RTC__

/* Two numbers as bfloat16 in a word, the first in its lower half. */
FUNCTION u32 pack(float first, float second)
{
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

/* Adds the products of 16 rows with 8 columns, over 16 terms. A warp does it together. */
FUNCTION void multiply_coarse(float *sums, const u32 *left, const u32 *right)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/* Four values side by side in `apart` steps of memory; zero beyond the limit. */
FUNCTION void fetch_four(float *into, const float *from, u32 apart, u32 at, u32 limit, u32 aligned)
{
    u32 i;
    if (aligned && at + 4 <= limit) {
        float4 four = *(const float4 *)from;
        into[0] = four.x, into[1] = four.y, into[2] = four.z, into[3] = four.w;
        return;
    }
    UNROLL
    for (i = 0; i < 4; i++)
        into[i] = at + i < limit ? from[i * apart] : 0.0f;
}

/* Reads a thread's part of a slice of 16 terms: four terms of every 32nd line, or four lines and two terms. */
FUNCTION void fetch_coarse(float *into, const Factor *factor, u32 thread, u32 first_line, u32 first_term, const u32 size)
{
    u32 j, by_terms = factor->of_term == 1, other = by_terms ? factor->of_line : factor->of_term;
    u32 aligned = (by_terms || factor->of_line == 1) && ((u64)factor->values & 15) == 0 && other % 4 == 0;
    if (by_terms) {
        u32 term = first_term + thread % 4 * 4;
        UNROLL
        for (j = 0; j < size / 32; j++) {
            u32 line = first_line + thread / 4 + 32 * j, limit = line < factor->lines ? factor->terms : 0;
            fetch_four(into + 4 * j, factor->values + ((u64)line * factor->of_line + term), 1, term, limit, aligned);
        }
    } else {
        u32 term = first_term + thread % 32 / 4 * 2;
        UNROLL
        for (j = 0; j < size / 64; j++) {
            u32 line = first_line + (thread % 4 + thread / 32 * 4 + 16 * j) * 4, half;
            UNROLL
            for (half = 0; half < 2; half++) {
                u32 limit = term + half < factor->terms ? factor->lines : 0;
                const float *from = factor->values + ((u64)line * factor->of_line + (u64)(term + half) * factor->of_term);
                fetch_four(into + 8 * j + 4 * half, from, factor->of_line, line, limit, aligned);
            }
        }
    }
}

/* Copies what `fetch_coarse` gave to the shared memory. */
FUNCTION void share_coarse(u32 *into, const float *from, const Factor *factor, u32 thread, const u32 size)
{
    u32 i, j;
    if (factor->of_term == 1) {
        UNROLL
        for (j = 0; j < size / 32; j++) {
            u32 *to = into + ((thread / 4 + 32 * j) * LINE + thread % 4 * 2);
            to[0] = pack(from[4 * j], from[4 * j + 1]);
            to[1] = pack(from[4 * j + 2], from[4 * j + 3]);
        }
    } else {
        UNROLL
        for (j = 0; j < size / 64; j++) {
            u32 *to = into + ((thread % 4 + thread / 32 * 4 + 16 * j) * 4 * LINE + thread % 32 / 4);
            UNROLL
            for (i = 0; i < 4; i++)
                to[i * LINE] = pack(from[8 * j + i], from[8 * j + 4 + i]);
        }
    }
}

FUNCTION void compute_coarse(const Call *call, const Factor *a, const Factor *b, float *c, const float *d, u32 first_row, u32 first_col,
                             u32 from, u32 backwards, float *left_memory, float *right_memory, const Tile tile)
{
    const u32 high = HIGH(tile), broad = BROAD(tile), deep = tile.deep, pieces = BROAD(tile) / 16;
    u32 *left = (u32 *)left_memory, *right = (u32 *)right_memory;
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, at, half = 0, i, j, k;
    u32 rows = warp / 2 * (high / 2), cols = warp % 2 * (broad / 2);
    float sums[4][8][4], next_left[16], next_right[16];
    UNROLL
    for (i = 0; i < 4; i++)
        UNROLL
        for (j = 0; j < pieces; j++)
            UNROLL
            for (k = 0; k < 4; k++)
                sums[i][j][k] = 0.0f;
    fetch_coarse(next_left, a, thread, first_row, from, high);
    fetch_coarse(next_right, b, thread, first_col, from, broad);
    share_coarse(left, next_left, a, thread, high);
    share_coarse(right, next_right, b, thread, broad);
    BARRIER();
    for (at = from; at < a->terms; at += deep) {
        u32 more = at + deep < a->terms, of_left[4][4];
        const u32 *from_left = left + half * high * LINE + (rows + lane / 4) * LINE + lane % 4;
        const u32 *from_right = right + half * broad * LINE + (cols + lane / 4) * LINE + lane % 4;
        if (more) {
            fetch_coarse(next_left, a, thread, first_row, at + deep, high);
            fetch_coarse(next_right, b, thread, first_col, at + deep, broad);
        }
        UNROLL
        for (i = 0; i < 4; i++) {
            of_left[i][0] = from_left[i * 16 * LINE];
            of_left[i][1] = from_left[(i * 16 + 8) * LINE];
            of_left[i][2] = from_left[i * 16 * LINE + 4];
            of_left[i][3] = from_left[(i * 16 + 8) * LINE + 4];
        }
        UNROLL
        for (j = 0; j < pieces; j++) {
            u32 of_right[2];
            of_right[0] = from_right[j * 8 * LINE];
            of_right[1] = from_right[j * 8 * LINE + 4];
            UNROLL
            for (i = 0; i < 4; i++)
                multiply_coarse(sums[i][j], of_left[i], of_right);
        }
        if (more) {
            share_coarse(left + (1 - half) * high * LINE, next_left, a, thread, high);
            share_coarse(right + (1 - half) * broad * LINE, next_right, b, thread, broad);
        }
        BARRIER();
        half = 1 - half;
    }
    UNROLL
    for (i = 0; i < 4; i++)
        UNROLL
        for (j = 0; j < pieces; j++)
            UNROLL
            for (k = 0; k < 4; k++) {
                u32 row = first_row + rows + i * 16 + lane / 4 + k / 2 * 8, col = first_col + cols + j * 8 + lane % 4 * 2 + k % 2;
                put_one(call, c, d, sums[i][j][k], row, col, a->lines, b->lines);
            }
}

#else

/* The nearest bfloat16. */
FUNCTION float rounded(float value)
{
    union {
        float value;
        u32 bits;
    } both;
    both.value = value;
    if (value == value)
        both.bits = (both.bits + 0x7fffu + (both.bits >> 16 & 1)) & 0xffff0000u;
    return both.value;
}

FUNCTION void compute_coarse(const Call *call, const Factor *a, const Factor *b, float *c, const float *d, u32 first_row, u32 first_col,
                             u32 from, u32 backwards, float *left, float *right, const Tile tile)
{
    u32 row, col, k;
    (void)backwards, (void)left, (void)right;
    for (row = first_row; row < first_row + HIGH(tile) && row < a->lines; row++)
        for (col = first_col; col < first_col + BROAD(tile) && col < b->lines; col++) {
            float sum = 0.0f;
            for (k = from; k < a->terms; k++)
                sum = fmaf(rounded(a->values[(u64)row * a->of_line + (u64)k * a->of_term]),
                           rounded(b->values[(u64)col * b->of_line + (u64)k * b->of_term]), sum);
            put_one(call, c, d, sum, row, col, a->lines, b->lines);
        }
}

#endif

/* Computes one tile of a product. */
FUNCTION void compute(const Call *call, const Factor *a, const Factor *b, float *c, const float *d, u32 first_row, u32 first_col, u32 from,
                      u32 backwards, float *left, float *right, const Tile tile)
{
    if (tile.coarse)
        compute_coarse(call, a, b, c, d, first_row, first_col, from, backwards, left, right, tile);
    else
        compute_tile(call, a, b, c, d, first_row, first_col, from, backwards, left, right, tile);
}

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
        compute(call, &a, &b, c, d, (u32)(n / columns) * HIGH(tile), (u32)(n % columns) * BROAD(tile), 0, backwards, left, right,
                     tile);
}

/* c = a b, by rows of a and columns of b; call.mode says what happens to the product. The kernels below differ in their tiles, and give the
 * same bits. */
#define PRODUCT(name, tall, wide, lanes, deep) \
    KERNEL(name) \
    { \
        const Tile tile = {tall, wide, lanes, deep, 0}; \
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

/* A coarse product: 128 rows of so many columns. */
#define COARSE(wide) {16, wide, 16, 16, 1}
#define PRODUCT_COARSE(name, wide) \
    KERNEL_OF(name, 2) \
    { \
        const Tile tile = COARSE(wide); \
        SLICES_COARSE(wide); \
        Slot slot = slot_of(parameters, room, table, &call, SLOT); \
        tiles(&slot, &call, BLOCK, BLOCKS, BACKWARDS, left, right, tile); \
    }

/* 128 rows of 128 columns. */
PRODUCT_COARSE(product_coarse, 8)
/* 128 rows of 64 columns. */
PRODUCT_COARSE(product_coarse_narrow, 4)
