/* The kernels of a bounded sum: exact norms, and the addition of clipped updates in integers.
 *
 * This file has two compilers. NVRTC makes kernels of it for a GPU, and a C compiler makes the functions of the emulator. Floats are
 * read as their bits, and no instruction for floats is used. So no option of a compiler and no mode of a processor changes a result.
 */

typedef unsigned int u32;
typedef unsigned long long u64;

/* One block of parameters in all slots. It stands `count` values long in each slot, in rows of `cols` values. */
typedef struct {
    u64 slot_len;   /* values from one slot to the next */
    u64 offset;     /* the first value in a slot */
    u64 cols;       /* values in a row */
    u64 row_stride; /* values from one row to the next */
    u64 count;      /* values in all rows, below 2^32 */
    u32 slots;      /* slots in use */
    u32 groups;     /* groups of each slot */
    u32 group;      /* the group of this block */
    u32 unused;
} Span;

#define DIGITS 4

#ifdef __CUDACC_RTC__

#define THREADS 256
#define FUNCTION static __device__ __forceinline__
#define KERNEL(name) extern "C" __global__ void name
#define PLACE
#define AT
#define BLOCK (blockIdx.x)
#define BLOCKS (gridDim.x)
#define SLOT (blockIdx.y)
#define THREAD (threadIdx.x)
#define THREADS_OF_BLOCK ((u32)THREADS)
#define SHARED(name) __shared__ u64 name[DIGITS * THREADS]
#define WAIT() __syncthreads()
#define ATOMIC_ADD(at, value) atomicAdd((at), (value))
#define ATOMIC_MAX(at, value) atomicMax((at), (value))

#else

/* One thread of an emulated grid. */
typedef struct Place {
    u64 block, blocks;
    u32 slot, thread, threads, unused;
    u64 *shared;
    const void *barrier;
    void (*wait)(const void *barrier);
    void (*atomic_add)(u64 *at, u64 value);
    void (*atomic_max)(u32 *at, u32 value);
} Place;

#define FUNCTION static
#define KERNEL(name) void undertone_##name
#define PLACE const Place *place,
#define AT place,
#define BLOCK (place->block)
#define BLOCKS (place->blocks)
#define SLOT (place->slot)
#define THREAD (place->thread)
#define THREADS_OF_BLOCK (place->threads)
#define SHARED(name) u64 *name = place->shared
#define WAIT() place->wait(place->barrier)
#define ATOMIC_ADD(at, value) place->atomic_add((at), (value))
#define ATOMIC_MAX(at, value) place->atomic_max((at), (value))

#endif

#define FIRST ((u64)BLOCK * THREADS_OF_BLOCK + THREAD)
#define STEP ((u64)BLOCKS * THREADS_OF_BLOCK)

/* The biased exponent of the largest values with q below 2^62, and the bits after the point of a factor. */
#define MAX_EXPONENT 148u
#define FACTOR_BITS 30u

/* The place of value `i` of a span in its slot. */
FUNCTION u64 place_of(const Span *span, u64 i)
{
    u32 row;
    if (span->cols == span->count)
        return span->offset + i;
    row = (u32)i / (u32)span->cols;
    return span->offset + row * span->row_stride + ((u32)i - row * (u32)span->cols);
}

/* The number of times that values up to this magnitude are divided by two. */
FUNCTION u32 halvings_of(u32 largest)
{
    u32 exponent = largest >> 23;
    return exponent > MAX_EXPONENT ? exponent - MAX_EXPONENT : 0;
}

/* |q| = floor(|value| 2^(40 - halvings)), below 2^62, for a biased exponent of at most MAX_EXPONENT + halvings. */
FUNCTION u64 magnitude_of(u32 bits, u32 halvings)
{
    /* Values without the leading bit are below 2^-126: all of their bits are shifted out, this one too. */
    u64 mantissa = (u64)((bits & 0x7fffffu) | 0x800000u) << 38;
    u32 shift = MAX_EXPONENT + halvings - ((bits >> 23) & 0xffu);
    return mantissa >> (shift < 63 ? shift : 63);
}

/* found[slot][group] = max of the bits of the magnitudes. It has to be zero, or hold the max of other blocks of the group. */
KERNEL(largest)(PLACE const u32 *values, Span span, u32 *found)
{
    SHARED(shared);
    const u32 *mine = values + SLOT * span.slot_len;
    u32 thread = THREAD, most = 0, half;
    u64 i;
    for (i = FIRST; i < span.count; i += STEP) {
        u32 bits = mine[place_of(&span, i)] & 0x7fffffffu;
        if (bits > most)
            most = bits;
    }
    shared[thread] = most;
    for (half = THREADS_OF_BLOCK / 2; half > 0; half /= 2) {
        WAIT();
        if (thread < half && shared[thread + half] > shared[thread])
            shared[thread] = shared[thread + half];
    }
    if (thread == 0)
        ATOMIC_MAX(&found[(u64)SLOT * span.groups + span.group], (u32)shared[0]);
}

/* limbs[slot][group][digit] += the digits of q^2. Each digit has 32 bits, and a group has fewer than 2^32 values, so 64 bits do. */
KERNEL(squares)(PLACE const u32 *values, Span span, const u32 *found, u64 *limbs)
{
    SHARED(shared);
    const u32 *mine = values + SLOT * span.slot_len;
    u32 thread = THREAD, threads = THREADS_OF_BLOCK, half, digit;
    u64 at = (u64)SLOT * span.groups + span.group;
    u32 halvings = halvings_of(found[at]);
    u64 sums[DIGITS] = {0, 0, 0, 0};
    u64 i;
    for (i = FIRST; i < span.count; i += STEP) {
        u64 q = magnitude_of(mine[place_of(&span, i)], halvings);
        u64 low = q & 0xffffffffu, high = q >> 32;
        /* q^2 = low^2 + 2^32 (2 low high) + 2^64 high^2, where high is below 2^30. */
        u64 first = low * low;
        u64 second = 2 * low * high + (first >> 32);
        u64 third = high * high + (second >> 32);
        sums[0] += first & 0xffffffffu;
        sums[1] += second & 0xffffffffu;
        sums[2] += third & 0xffffffffu;
        sums[3] += third >> 32;
    }
    for (digit = 0; digit < DIGITS; digit++)
        shared[digit * threads + thread] = sums[digit];
    for (half = threads / 2; half > 0; half /= 2) {
        WAIT();
        if (thread < half)
            for (digit = 0; digit < DIGITS; digit++)
                shared[digit * threads + thread] += shared[digit * threads + thread + half];
    }
    if (thread == 0)
        for (digit = 0; digit < DIGITS; digit++)
            ATOMIC_ADD(&limbs[at * DIGITS + digit], shared[digit * threads]);
}

/* sum += trunc(q f / 2^30) over the slots. factors[slot][group] holds f, at most 2^30, and the halvings. The sum has the bits of
 * signed integers. One thread alone changes a place of it. */
KERNEL(add_bounded)(PLACE const u32 *values, Span span, const u32 *factors, u64 *sum)
{
    u64 i;
    for (i = FIRST; i < span.count; i += STEP) {
        u64 at = place_of(&span, i), total = 0;
        u32 slot;
        for (slot = 0; slot < span.slots; slot++) {
            const u32 *of_slot = factors + 2 * ((u64)slot * span.groups + span.group);
            u32 factor = of_slot[0], bits = values[slot * span.slot_len + at];
            if (factor != 0) {
                /* With q = high 2^31 + low this is floor(q f / 2^30) exactly. Both products stay below 2^62. */
                u64 q = magnitude_of(bits, of_slot[1]);
                u64 length = (((q >> 31) * factor) << 1) + (((q & 0x7fffffffu) * factor) >> FACTOR_BITS);
                total += (bits >> 31) ? 0 - length : length;
            }
        }
        sum[at] += total;
    }
}
