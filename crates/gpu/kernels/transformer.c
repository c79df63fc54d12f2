/* The kernels of transformers, beside those of `common.c`. Rows stand sequence after sequence, and `PREVIOUS` holds their positions. */

#define POSITIONS PREVIOUS

/* c[row] = factor a[token of the row], and b[position of the row] where mode is 1. */
KERNEL(embed)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const u32 *tokens = table + slot.header[INPUT_IDS], *positions = table + slot.header[POSITIONS];
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)slot.rows * call.cols;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)(n / call.cols), col = (u32)(n % call.cols);
        float position = call.mode ? b[(u64)positions[row] * call.b.row + col] : 0.0f;
        c[n] = fmaf(call.factor, a[(u64)tokens[row] * call.a.row + col], position);
    }
}

/* The gradients of position vectors: c[position] += factor times the sum of a over the rows at that position. */
KERNEL(scatter_positions)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const u32 *starts = table + slot.header[STARTS];
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)call.rows * call.cols;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 position = (u32)(n / call.cols), col = (u32)(n % call.cols), sequence, met = 0;
        float sum = 0.0f;
        for (sequence = 0; sequence < slot.header[SEQUENCES_AT]; sequence++)
            if (starts[sequence] + position < starts[sequence + 1]) {
                sum += a[(u64)(starts[sequence] + position) * call.a.row + col];
                met = 1;
            }
        if (met)
            c[n] = fmaf(call.factor, sum, c[n]);
    }
}

/* c[row] = a[row], and the row d where mode is 1. */
KERNEL(copy)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *d = start_of(&slot, &call, &call.d);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)rows_of(&slot, &call, call.rows) * call.cols;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)(n / call.cols), col = (u32)(n % call.cols);
        float value = a[(u64)row * call.a.row + col];
        c[(u64)row * call.c.row + col] = call.mode ? value + d[col] : value;
    }
}

/* c += factor a, over rows that follow one another. */
KERNEL(add_scaled)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)call.rows * call.cols;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE)
        c[n] = fmaf(call.factor, a[n], c[n]);
}

/* Modes of norms. */
#define CENTRED 1u  /* the mean is taken off, and there is a bias */
#define REPLACE 2u  /* the gradient is the result, and is not added to what is there */

/* A part of a row that is normalised: the whole row, or one of its `heads` heads. */
FUNCTION u64 head_at(const Call *call, const Array *array, u32 number)
{
    return (u64)(number / call->heads) * array->row + number % call->heads * call->cols;
}

/* c = the normalised rows of a, times the gain b, plus the bias d. e: mean and inverse deviation of each row or head.
 * call.factor is added to the variance. */
KERNEL(normalise)
{
    SHARED_BY_THREADS float parts[ROWS_AT_ONCE][LANES];
    SHARED_BY_THREADS float means[ROWS_AT_ONCE];
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b), *d = start_of(&slot, &call, &call.d);
    float *c = start_of(&slot, &call, &call.c), *e = start_of(&slot, &call, &call.e), of_one = 1.0f / (float)call.cols;
    u32 count = slot.rows * call.heads, first, centred = call.mode & CENTRED;
    for (first = (u32)BLOCK * ROWS_AT_ONCE; first < count; first += (u32)BLOCKS * ROWS_AT_ONCE) {
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, j;
            float sum = 0.0f;
            if (centred && number < count)
                for (j = thread % LANES; j < call.cols; j += LANES)
                    sum += a[head_at(&call, &call.a, number) + j];
            parts[thread / LANES][thread % LANES] = sum;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            if (thread % LANES == 0)
                means[thread / LANES] = sum_of_parts(parts[thread / LANES]) * of_one;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, j;
            float sum = 0.0f, mean = means[thread / LANES];
            if (number < count)
                for (j = thread % LANES; j < call.cols; j += LANES) {
                    float value = a[head_at(&call, &call.a, number) + j] - mean;
                    sum = fmaf(value, value, sum);
                }
            parts[thread / LANES][thread % LANES] = sum;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, j;
            if (number < count) {
                const float *from = a + head_at(&call, &call.a, number);
                float *to = c + head_at(&call, &call.c, number), mean = means[thread / LANES];
                float inverse = 1.0f / sqrtf(fmaf(sum_of_parts(parts[thread / LANES]), of_one, call.factor));
                for (j = thread % LANES; j < call.cols; j += LANES)
                    to[j] = fmaf((from[j] - mean) * inverse, b[j], centred ? d[j] : 0.0f);
                if (thread % LANES == 0) {
                    e[(u64)number * 2] = mean;
                    e[(u64)number * 2 + 1] = inverse;
                }
            }
        }
        BARRIER();
    }
}

/* The gradient of what was normalised is added to c, or replaces it. a: the gradient of the result. b: the gain. d: what was normalised.
 * e: mean and inverse deviation of each row or head. */
KERNEL(normalise_backward)
{
    SHARED_BY_THREADS float levels[ROWS_AT_ONCE][LANES];
    SHARED_BY_THREADS float slopes[ROWS_AT_ONCE][LANES];
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b), *d = start_of(&slot, &call, &call.d);
    const float *e = start_of(&slot, &call, &call.e);
    float *c = start_of(&slot, &call, &call.c), of_one = 1.0f / (float)call.cols;
    u32 count = slot.rows * call.heads, first, centred = call.mode & CENTRED, replaces = call.mode & REPLACE;
    for (first = (u32)BLOCK * ROWS_AT_ONCE; first < count; first += (u32)BLOCKS * ROWS_AT_ONCE) {
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, j;
            float level = 0.0f, along = 0.0f;
            if (number < count) {
                const float *of = a + head_at(&call, &call.a, number), *from = d + head_at(&call, &call.d, number);
                float mean = e[(u64)number * 2], inverse = e[(u64)number * 2 + 1];
                for (j = thread % LANES; j < call.cols; j += LANES) {
                    float slope = of[j] * b[j];
                    level += slope;
                    along = fmaf(slope, (from[j] - mean) * inverse, along);
                }
            }
            levels[thread / LANES][thread % LANES] = centred ? level : 0.0f;
            slopes[thread / LANES][thread % LANES] = along;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, j;
            if (number < count) {
                const float *of = a + head_at(&call, &call.a, number), *from = d + head_at(&call, &call.d, number);
                float *to = c + head_at(&call, &call.c, number), mean = e[(u64)number * 2], inverse = e[(u64)number * 2 + 1];
                float level = sum_of_parts(levels[thread / LANES]) * of_one, along = sum_of_parts(slopes[thread / LANES]) * of_one;
                for (j = thread % LANES; j < call.cols; j += LANES) {
                    float across = fmaf(-along, (from[j] - mean) * inverse, fmaf(of[j], b[j], -level));
                    to[j] = fmaf(inverse, across, replaces ? 0.0f : to[j]);
                }
            }
        }
        BARRIER();
    }
}

/* Part `p` of the sums of the columns of a, over the p-th of PARTS spans of rows or heads. Where mode is 1 each value is multiplied by
 * what was normalised there: d, with mean and inverse deviation in e. c: the parts. */
KERNEL(column_parts)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *d = start_of(&slot, &call, &call.d), *e = start_of(&slot, &call, &call.e);
    float *c = start_of(&slot, &call, &call.c);
    u32 count = slot.rows * call.heads, span = (count + PARTS - 1) / PARTS, number;
    u64 n;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < (u64)PARTS * call.cols; n += STRIDE) {
        u32 part = (u32)(n / call.cols), col = (u32)(n % call.cols), last = (part + 1) * span < count ? (part + 1) * span : count;
        float sum = 0.0f;
        for (number = part * span; number < last; number++) {
            float value = a[head_at(&call, &call.a, number) + col];
            if (call.mode)
                value *= (d[head_at(&call, &call.d, number) + col] - e[(u64)number * 2]) * e[(u64)number * 2 + 1];
            sum += value;
        }
        c[n] = sum;
    }
}

/* c += factor times the sum of the parts of a: `depth` arrays of so many rows and columns, one behind the other. */
KERNEL(add_parts)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)call.rows * call.cols;
    u32 part;
    if (slot.rows == 0)
        return;
    for (n = FIRST; n < count; n += STRIDE) {
        float sum = 0.0f;
        for (part = 0; part < call.depth; part++)
            sum += a[part * count + n];
        c[n] = fmaf(call.factor, sum, c[n]);
    }
}

/* c: the products of the rows of a with the columns of b, over each of `depth` spans of the slot's rows. They stand one behind the
 * other, so that few values occupy many blocks. A span follows from the rows of the slot alone. */
FUNCTION void spans(const Slot *slot, const Call *call, u64 block, u64 blocks, u32 backwards, float *left, float *right, const Tile tile)
{
    const float *a = start_of(slot, call, &call->a), *b = start_of(slot, call, &call->b);
    float *c = start_of(slot, call, &call->c);
    u32 columns = (call->cols + BROAD(tile) - 1) / BROAD(tile), tiles = (call->rows + HIGH(tile) - 1) / HIGH(tile) * columns;
    u32 span = ((slot->rows + call->depth - 1) / call->depth + tile.deep - 1) / tile.deep * tile.deep;
    u64 n;
    if (slot->rows == 0)
        return;
    for (n = block; n < (u64)tiles * call->depth; n += blocks) {
        u32 part = (u32)(n / tiles), at = (u32)(n % tiles), from = part * span, to = from + span < slot->rows ? from + span : slot->rows;
        Factor of_a = {a, call->a.row, call->a.col, call->rows, to};
        Factor of_b = {b, call->b.col, call->b.row, call->cols, to};
        compute(call, &of_a, &of_b, c + (u64)part * call->rows * call->cols, c, at / columns * HIGH(tile), at % columns * BROAD(tile),
                from, backwards, left, right, tile);
    }
}

/* The activations of feed-forward layers. */
#define GELU 0u
#define GATED_SILU 1u
#define GATED_GELU 2u

/* An activation divided by its argument, and its derivative. */
typedef struct {
    float part, slope;
} Activation;

FUNCTION Activation activation(float x, u32 silu)
{
    const float slope = 1.5957691f, cubic = 0.07135481f; /* twice the root of 2 / pi, and 0.044715 of it */
    float square = x * x, inner = silu ? x : x * fmaf(cubic, square, slope);
    float steep = silu ? x : x * fmaf(3.0f * cubic, square, slope);
    Activation found;
    found.part = logistic(inner);
    found.slope = fmaf(found.part * (1.0f - found.part), steep, found.part);
    return found;
}

/* c = the activation of a. A gated one reads the gates and behind them as many values. */
KERNEL(activate)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)slot.rows * call.cols;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)(n / call.cols), col = (u32)(n % call.cols);
        const float *from = a + ((u64)row * call.a.row + col);
        float gate = *from * activation(*from, call.mode == GATED_SILU).part;
        c[n] = call.mode == GELU ? gate : gate * from[call.cols];
    }
}

/* c = the gradient of what was activated. a: that. b: the gradient of the activation. */
KERNEL(activate_backward)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const float *a = start_of(&slot, &call, &call.a), *b = start_of(&slot, &call, &call.b);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, count = (u64)slot.rows * call.cols;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)(n / call.cols), col = (u32)(n % call.cols);
        u64 at = (u64)row * call.a.row + col;
        float gradient = b[n];
        Activation found = activation(a[at], call.mode == GATED_SILU);
        if (call.mode == GELU) {
            c[at] = gradient * found.slope;
        } else {
            c[at] = gradient * a[at + call.cols] * found.slope;
            c[at + call.cols] = gradient * (a[at] * found.part);
        }
    }
}

/* Turns the first `heads` heads of each row of c by the angles of its position, or back where mode is 1. b: cosine and sine of each
 * position and pair. cols: pairs of a head. */
KERNEL(turn)
{
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const u32 *positions = table + slot.header[POSITIONS];
    const float *b = start_of(&slot, &call, &call.b);
    float *c = start_of(&slot, &call, &call.c);
    u64 n, of_row = (u64)call.heads * call.cols, count = slot.rows * of_row;
    for (n = FIRST; n < count; n += STRIDE) {
        u32 row = (u32)(n / of_row), head = (u32)(n % of_row) / call.cols, pair = (u32)(n % call.cols);
        const float *angle = b + 2 * ((u64)positions[row] * call.cols + pair);
        float *first = c + ((u64)row * call.c.row + head * 2 * call.cols + pair), *second = first + call.cols;
        float cosine = angle[0], sine = call.mode ? -angle[1] : angle[1], x = *first, y = *second;
        *first = fmaf(x, cosine, -(y * sine));
        *second = fmaf(x, sine, y * cosine);
    }
}

/* Attention. The scores of a slot are an array of one row per head and row: `cols` rows for each head. `heads` is the number of heads of
 * queries, `sequences` says how many of them share a head of keys, and `depth` is the width of a head. `rows` is the longest sequence of
 * the launch, from which the number of tiles follows. */

/* Rows that belong together: what lies above the diagonal within them is zero and may be added. No tile has more rows. */
#define SQUARE 128u

typedef struct {
    u32 start, length, head, tile;
} Piece;

/* The sequence, the head and the tile that a number stands for. */
FUNCTION Piece piece_of(const Slot *slot, u64 n, u32 heads, u32 tiles)
{
    const u32 *starts = slot->table + slot->header[STARTS];
    u32 sequence = (u32)(n / ((u64)heads * tiles));
    Piece piece;
    piece.start = starts[sequence];
    piece.length = starts[sequence + 1] - piece.start;
    piece.head = (u32)(n / tiles % heads);
    piece.tile = (u32)(n % tiles);
    return piece;
}

FUNCTION u64 scores_at(const Call *call, u32 head, u32 row)
{
    return (u64)head * call->cols + row;
}

/* c: scores, the products of the rows of a with those of b up to the diagonal. The heads of a are those of queries, and the heads of b
 * those of keys. */
FUNCTION void scores(const Slot *slot, const Call *call, u64 block, u64 blocks, u32 backwards, float *left, float *right, const Tile tile)
{
    const float *a = start_of(slot, call, &call->a), *b = start_of(slot, call, &call->b);
    float *c = start_of(slot, call, &call->c);
    u32 columns = (call->rows + BROAD(tile) - 1) / BROAD(tile), tiles = (call->rows + HIGH(tile) - 1) / HIGH(tile) * columns;
    u64 n, count = (u64)slot->header[SEQUENCES_AT] * call->heads * tiles;
    for (n = block; n < count; n += blocks) {
        Piece piece = piece_of(slot, n, call->heads, tiles);
        u32 first_row = piece.tile / columns * HIGH(tile), first_col = piece.tile % columns * BROAD(tile);
        Factor of_a = {a + ((u64)piece.start * call->a.row + piece.head * call->depth), call->a.row, 1, piece.length, call->depth};
        Factor of_b = {b + ((u64)piece.start * call->b.row + piece.head / call->sequences * call->depth), call->b.row, 1, piece.length,
                       call->depth};
        if (first_row >= piece.length || first_col >= piece.length || first_col >= first_row + HIGH(tile))
            continue;
        compute(call, &of_a, &of_b, c + scores_at(call, piece.head, piece.start) * call->c.row, c, first_row, first_col, 0, backwards, left,
                right, tile);
    }
}

/* c: for each row and head of queries, the rows of b weighted by the scores a. */
FUNCTION void mix(const Slot *slot, const Call *call, u64 block, u64 blocks, u32 backwards, float *left, float *right, const Tile tile)
{
    const float *a = start_of(slot, call, &call->a), *b = start_of(slot, call, &call->b);
    float *c = start_of(slot, call, &call->c);
    u32 columns = (call->depth + BROAD(tile) - 1) / BROAD(tile), tiles = (call->rows + HIGH(tile) - 1) / HIGH(tile) * columns;
    u64 n, count = (u64)slot->header[SEQUENCES_AT] * call->heads * tiles;
    for (n = block; n < count; n += blocks) {
        Piece piece = piece_of(slot, n, call->heads, tiles);
        u32 first = piece.tile / columns * HIGH(tile), seen = piece.length < first + HIGH(tile) ? piece.length : first + HIGH(tile);
        Factor of_a = {a + scores_at(call, piece.head, piece.start) * call->a.row, call->a.row, 1, piece.length, seen};
        Factor of_b = {b + ((u64)piece.start * call->b.row + piece.head / call->sequences * call->depth), 1, call->b.row, call->depth, seen};
        if (first >= piece.length)
            continue;
        compute(call, &of_a, &of_b, c + ((u64)piece.start * call->c.row + piece.head * call->depth), c, first,
                piece.tile % columns * BROAD(tile), 0, backwards, left, right, tile);
    }
}

/* c: for each row and head of keys, the later rows of b weighted by the scores a, over all heads of queries that share the keys. */
FUNCTION void keys(const Slot *slot, const Call *call, u64 block, u64 blocks, u32 backwards, float *left, float *right, const Tile tile)
{
    const float *a = start_of(slot, call, &call->a), *b = start_of(slot, call, &call->b);
    float *c = start_of(slot, call, &call->c);
    u32 columns = (call->depth + BROAD(tile) - 1) / BROAD(tile), tiles = (call->rows + HIGH(tile) - 1) / HIGH(tile) * columns;
    u32 key_heads = call->heads / call->sequences, of_group;
    u64 n, count = (u64)slot->header[SEQUENCES_AT] * key_heads * tiles;
    for (n = block; n < count; n += blocks) {
        Piece piece = piece_of(slot, n, key_heads, tiles);
        u32 first = piece.tile / columns * HIGH(tile);
        Call each = *call;
        if (first >= piece.length)
            continue;
        for (of_group = 0; of_group < call->sequences; of_group++) {
            u32 head = piece.head * call->sequences + of_group;
            Factor of_a = {a + scores_at(call, head, piece.start) * call->a.row, 1, call->a.row, piece.length, piece.length};
            Factor of_b = {b + ((u64)piece.start * call->b.row + head * call->depth), 1, call->b.row, call->depth, piece.length};
            each.mode = of_group ? ADD : SET;
            compute(&each, &of_a, &of_b, c + ((u64)piece.start * call->c.row + piece.head * call->depth), c, first,
                    piece.tile % columns * BROAD(tile), first, backwards, left, right, tile);
        }
    }
}

/* The kernels of these products, in single precision with tiles of 64 rows and coarse ones of 128. */
#define OF_TILES(name, work, wide) \
    KERNEL(name) \
    { \
        const Tile tile = {8, wide, 16, 16, 0}; \
        SLICES(8, wide, 16, 16); \
        Slot slot = slot_of(parameters, room, table, &call, SLOT); \
        work(&slot, &call, BLOCK, BLOCKS, BACKWARDS, left, right, tile); \
    } \
    KERNEL_OF(name##_coarse, 2) \
    { \
        const Tile tile = COARSE(wide); \
        SLICES_COARSE(wide); \
        Slot slot = slot_of(parameters, room, table, &call, SLOT); \
        work(&slot, &call, BLOCK, BLOCKS, BACKWARDS, left, right, tile); \
    }

OF_TILES(product_of_spans, spans, 8)
OF_TILES(scores_of_heads, scores, 8)
OF_TILES(mix_of_heads, mix, 4)
OF_TILES(keys_of_heads, keys, 4)

/* The end of the scores of a row that products read: they lie in the same square as the row, or before it. */
FUNCTION u32 end_of_square(const Call *call, u32 position)
{
    u32 end = (position / SQUARE + 1) * SQUARE;
    return end < call->a.row ? end : call->a.row;
}

/* The scores a, times the factor, become probabilities, and zero behind the diagonal. */
KERNEL(softmax_of_scores)
{
    SHARED_BY_THREADS float parts[ROWS_AT_ONCE][LANES];
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const u32 *positions = table + slot.header[POSITIONS];
    float *a = start_of(&slot, &call, &call.a);
    u32 count = slot.rows * call.heads, first;
    for (first = (u32)BLOCK * ROWS_AT_ONCE; first < count; first += (u32)BLOCKS * ROWS_AT_ONCE) {
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, k;
            float largest = LOWEST;
            if (number < count) {
                const float *scores = a + scores_at(&call, number / slot.rows, number % slot.rows) * call.a.row;
                for (k = thread % LANES; k <= positions[number % slot.rows]; k += LANES) {
                    float score = scores[k] * call.factor;
                    if (score > largest)
                        largest = score;
                }
            }
            parts[thread / LANES][thread % LANES] = largest;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, k, lane;
            float largest = LOWEST;
            for (lane = 0; lane < LANES; lane++)
                if (parts[thread / LANES][lane] > largest)
                    largest = parts[thread / LANES][lane];
            if (number < count) {
                u32 position = positions[number % slot.rows], end = end_of_square(&call, position);
                float *scores = a + scores_at(&call, number / slot.rows, number % slot.rows) * call.a.row;
                for (k = thread % LANES; k < end; k += LANES)
                    scores[k] = k <= position ? exponential(fmaf(scores[k], call.factor, -largest)) : 0.0f;
            }
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, k;
            float sum = 0.0f;
            if (number < count) {
                const float *scores = a + scores_at(&call, number / slot.rows, number % slot.rows) * call.a.row;
                for (k = thread % LANES; k <= positions[number % slot.rows]; k += LANES)
                    sum += scores[k];
            }
            parts[thread / LANES][thread % LANES] = sum;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, k;
            if (number < count) {
                float *scores = a + scores_at(&call, number / slot.rows, number % slot.rows) * call.a.row;
                float inverse = 1.0f / sum_of_parts(parts[thread / LANES]);
                for (k = thread % LANES; k <= positions[number % slot.rows]; k += LANES)
                    scores[k] *= inverse;
            }
        }
        BARRIER();
    }
}

/* The gradients c of probabilities a become those of scores, times the factor, and zero behind the diagonal. */
KERNEL(softmax_of_scores_backward)
{
    SHARED_BY_THREADS float parts[ROWS_AT_ONCE][LANES];
    Slot slot = slot_of(parameters, room, table, &call, SLOT);
    const u32 *positions = table + slot.header[POSITIONS];
    const float *a = start_of(&slot, &call, &call.a);
    float *c = start_of(&slot, &call, &call.c);
    u32 count = slot.rows * call.heads, first;
    for (first = (u32)BLOCK * ROWS_AT_ONCE; first < count; first += (u32)BLOCKS * ROWS_AT_ONCE) {
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, k;
            float along = 0.0f;
            if (number < count) {
                u64 at = scores_at(&call, number / slot.rows, number % slot.rows) * call.a.row;
                for (k = thread % LANES; k <= positions[number % slot.rows]; k += LANES)
                    along = fmaf(a[at + k], c[at + k], along);
            }
            parts[thread / LANES][thread % LANES] = along;
        }
        BARRIER();
        EACH_THREAD(BACKWARDS, thread) {
            u32 number = first + thread / LANES, k;
            if (number < count) {
                u32 position = positions[number % slot.rows], end = end_of_square(&call, position);
                u64 at = scores_at(&call, number / slot.rows, number % slot.rows) * call.a.row;
                float along = sum_of_parts(parts[thread / LANES]);
                for (k = thread % LANES; k < end; k += LANES)
                    c[at + k] = k <= position ? a[at + k] * (c[at + k] - along) * call.factor : 0.0f;
            }
        }
        BARRIER();
    }
}
