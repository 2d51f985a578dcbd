/* Attention of a few queries over a long KV cache, at the speed of memory.

   Keys and values are block-major, [block][kv_head][token][row], as core/cache/base.py lays them out; a
   row is head_dim numbers of one kind: fp32, bf16, or int8 codes followed by one fp32 scale. All queries
   of a KV head share every tile of keys that is read. Arithmetic is fp32: a row is widened in registers.

   Work is cut into units of one KV head and at most UNIT keys of one block. Threads take units from a
   counter; the one that finishes the last unit of a head joins the units' partial results in their order.
   So results do not depend on the number of threads, and since the arithmetic of one query never looks at
   another, a query among many gets the bits it gets alone.

   Softmax is computed online, tile by tile (Milakov and Gimelshein 2018, arXiv 1805.02867); units are
   joined by their log-sum-exp as in FlashDecoding (Dao et al. 2023).

   This file is compiled once per instruction set: WIDTH is the number of fp32 lanes of a register, ISA a
   part of the functions' names. */

#include "vectors.h"
#include "threads.h"
#include "attention.h"

#define TILE 64 /* keys whose scores are known before their values are read */
#define UNIT 512
#define ROWS 4 /* queries that share a key in registers */
#define MOST_DIM 128
#define LINE 64 /* bytes of a cache line */

typedef int8_t bvec __attribute__((vector_size(WIDTH), aligned(1), may_alias));

INLINE float exponential_of(float x) { return exponential(filled(x))[0]; }

/* ln x for a positive normal x (Cephes logf). */
INLINE float logarithm(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    int32_t power = (bits >> 23) - 126;
    bits = (bits & 0x7fffff) | 0x3f000000;
    float m, y;
    memcpy(&m, &bits, 4);
    if (m < 0.70710678f) { power--; m += m; }
    m -= 1.0f;
    y = 7.0376836292e-2f;
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    return m - 0.5f * m * m + y * m * m * m + power * -2.12194440e-4f + power * 0.693359375f;
}

/* WIDTH numbers of a row as fp32; the scale of int8 codes is applied by the caller. */
INLINE vec widened(const char *row, int at, const int kind) {
    if (kind == FP32) return *(const vec_in *)((const float *)row + at);
    const hvec *halves = (const hvec *)((const uint16_t *)row + at);
    if (kind == BF16) return (vec)(__builtin_convertvector(*halves, uvec) << 16);
    return __builtin_convertvector(*(const bvec *)((const int8_t *)row + at), vec);
}

INLINE float scale_of(const char *row, const int dim, const int kind) {
    float scale = 1.0f;
    if (kind == INT8) memcpy(&scale, row + dim, 4);
    return scale;
}

/* Asks for a row that is needed soon, by every cache line: a CPU does not see that rows this short are
   read in order. */
INLINE void fetch(const char *row, const int dim, const int kind) {
    const int bytes = dim * (kind == FP32 ? 4 : kind == BF16 ? 2 : 1);
    for (int at = 0; at < bytes; at += LINE) __builtin_prefetch(row + at);
}

/* Half the lanes of a and half of b: sums of neighbours, neighbouring pairs, ... A tree of folds turns
   WIDTH vectors into the vector of their sums. */
#define FOLD(a, b, low, high) (__builtin_shufflevector(a, b, low) + __builtin_shufflevector(a, b, high))
#define LIST(...) __VA_ARGS__
#if WIDTH == 16
#define FOLD_1(a, b) FOLD(a, b, LIST(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), \
                                LIST(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#define FOLD_2(a, b) FOLD(a, b, LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), \
                                LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
#define FOLD_4(a, b) FOLD(a, b, LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27), \
                                LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
#define FOLD_8(a, b) FOLD(a, b, LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), \
                                LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#elif WIDTH == 8
#define FOLD_1(a, b) FOLD(a, b, LIST(0, 8, 2, 10, 4, 12, 6, 14), LIST(1, 9, 3, 11, 5, 13, 7, 15))
#define FOLD_2(a, b) FOLD(a, b, LIST(0, 1, 8, 9, 4, 5, 12, 13), LIST(2, 3, 10, 11, 6, 7, 14, 15))
#define FOLD_4(a, b) FOLD(a, b, LIST(0, 1, 2, 3, 8, 9, 10, 11), LIST(4, 5, 6, 7, 12, 13, 14, 15))
#else
#define FOLD_1(a, b) FOLD(a, b, LIST(0, 4, 2, 6), LIST(1, 5, 3, 7))
#define FOLD_2(a, b) FOLD(a, b, LIST(0, 1, 4, 5), LIST(2, 3, 6, 7))
#endif

INLINE vec totals(vec x[WIDTH]) {
    for (int i = 0; i < WIDTH; i += 2) x[i] = FOLD_1(x[i], x[i + 1]);
    for (int i = 0; i < WIDTH; i += 4) x[i] = FOLD_2(x[i], x[i + 2]);
#if WIDTH > 4
    for (int i = 0; i < WIDTH; i += 8) x[i] = FOLD_4(x[i], x[i + 4]);
#endif
#if WIDTH > 8
    x[0] = FOLD_8(x[0], x[8]);
#endif
    return x[0];
}

/* Some keys in a row, from the `first` of the conversation on, and what lies beside them in the cache. */
struct tile {
    const char *k, *v;
    int64_t first;
    int count;
};

/* One query's running result over the keys seen so far: largest score, sum of exponentials, weighted
   values. */
struct partial {
    float *out; /* [dim] */
    float *top, *sum;
};

/* Scores of `rows` scaled queries q [rows][dim] against a tile's keys; what lies behind the last key is
   undefined. */
INLINE void score(const float *q, const struct tile *tile, int64_t row_bytes, float scores[][TILE],
                  const int rows, const int dim, const int kind) {
    for (int group = 0; group < tile->count; group += WIDTH) {
        vec sums[ROWS][WIDTH] = {};
        int keys = tile->count - group < WIDTH ? tile->count - group : WIDTH;
        for (int j = 0; j < keys; j++) {
            const char *key = tile->k + (group + j) * row_bytes;
            fetch(key + TILE * row_bytes, dim, kind);
            fetch(tile->v + (group + j) * row_bytes, dim, kind);
            float scale = scale_of(key, dim, kind);
            for (int c = 0; c < dim; c += WIDTH) {
                vec part = widened(key, c, kind);
                for (int r = 0; r < rows; r++) sums[r][j] += *(const vec_in *)(q + r * dim + c) * part;
            }
            if (kind == INT8)
                for (int r = 0; r < rows; r++) sums[r][j] *= scale;
        }
        for (int r = 0; r < rows; r++) *(vec_in *)(scores[r] + group) = totals(sums[r]);
    }
}

/* Turns the scores of the first `visible` keys into weights under the new largest score; 0 for the other
   keys. Returns what the result so far is to be multiplied by. */
INLINE float weigh(float scores[TILE], int visible, struct partial *to) {
    for (int j = visible; j < TILE; j++) scores[j] = -__builtin_inff();
    vec top = filled(*to->top), sum = {};
    for (int j = 0; j < TILE; j += WIDTH) top = at_least(top, *(vec_in *)(scores + j));
    float new_top = largest(top);
    if (new_top == -__builtin_inff()) {
        memset(scores, 0, TILE * sizeof(float));
        return 1.0f;
    }
    for (int j = 0; j < TILE; j += WIDTH) {
        vec weight = exponential(*(vec_in *)(scores + j) - new_top);
        *(vec_in *)(scores + j) = weight;
        sum += weight;
    }
    float shrink = exponential_of(*to->top - new_top);
    *to->sum = *to->sum * shrink + sum_of(sum);
    *to->top = new_top;
    return shrink;
}

/* Adds the tile's values by their weights to the results of `rows` queries, which are multiplied by
   `shrink` first. */
INLINE void add_values(const struct tile *tile, int64_t row_bytes, float weights[][TILE], const float *shrink,
                       const struct partial *to, const int rows, const int dim, const int kind) {
    vec sums[ROWS][MOST_DIM / WIDTH];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < dim; c += WIDTH) sums[r][c / WIDTH] = *(vec_in *)(to[r].out + c) * shrink[r];
    for (int j = 0; j < tile->count; j++) {
        const char *value = tile->v + j * row_bytes;
        float scale = scale_of(value, dim, kind);
        for (int c = 0; c < dim; c += WIDTH) {
            vec part = widened(value, c, kind) * (kind == INT8 ? scale : 1.0f);
            for (int r = 0; r < rows; r++) sums[r][c / WIDTH] += part * weights[r][j];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < dim; c += WIDTH) *(vec_in *)(to[r].out + c) = sums[r][c / WIDTH];
}

/* `rows` queries of one KV head over one tile. */
INLINE void attend_tile(const struct attention *a, const struct tile *tile, const float *q, int row,
                        struct partial *to, const int rows, const int dim, const int kind) {
    float scores[ROWS][TILE], shrink[ROWS];
    int group = a->heads / a->kv_heads;
    score(q, tile, a->row_bytes, scores, rows, dim, kind);
    for (int r = 0; r < rows; r++) {
        int64_t limit = a->causal ? a->length - a->n + (row + r) / group + 1 : a->length;
        int64_t visible = limit - tile->first;
        visible = visible < 0 ? 0 : visible > tile->count ? tile->count : visible;
        shrink[r] = weigh(scores[r], (int)visible, to + r);
    }
    add_values(tile, a->row_bytes, scores, shrink, to, rows, dim, kind);
}

/* How the work is cut: units per block and per KV head. */
static int units_per_block(const struct attention *a) { return (a->block_tokens + UNIT - 1) / UNIT; }
static int units_per_head(const struct attention *a) {
    int64_t whole = a->length / a->block_tokens, rest = a->length % a->block_tokens;
    return (int)(whole * units_per_block(a) + (rest + UNIT - 1) / UNIT);
}

static struct partial partial_of(const struct attention *a, int head, int unit, int row) {
    int rows = a->n * (a->heads / a->kv_heads);
    float *at = a->scratch + (((int64_t)head * units_per_head(a) + unit) * rows + row) * (a->head_dim + 2);
    return (struct partial){at, at + a->head_dim, at + a->head_dim + 1};
}

/* One unit: all queries of a KV head over at most UNIT keys of one block. */
INLINE void attend_unit(const struct attention *a, int head, int unit, const int dim, const int kind) {
    int group = a->heads / a->kv_heads, rows = a->n * group;
    int block = unit / units_per_block(a), inside = unit % units_per_block(a) * UNIT;
    int64_t first = (int64_t)block * a->block_tokens + inside, end = first + UNIT;
    int64_t block_end = (int64_t)(block + 1) * a->block_tokens;
    end = end > block_end ? block_end : end;
    end = end > a->length ? a->length : end;
    int64_t start = block * a->block_bytes + head * a->head_bytes + inside * a->row_bytes;
    float scale = 1.0f / __builtin_sqrtf((float)dim);
    for (int row = 0; row < rows; row += ROWS) {
        int many = rows - row < ROWS ? rows - row : ROWS;
        float q[ROWS * MOST_DIM];
        struct partial to[ROWS];
        for (int r = 0; r < many; r++) {
            int query = (row + r) / group, own = head * group + (row + r) % group;
            for (int c = 0; c < dim; c++)
                q[r * dim + c] = a->q[((int64_t)query * a->heads + own) * dim + c] * scale;
            to[r] = partial_of(a, head, unit, row + r);
            memset(to[r].out, 0, dim * sizeof(float));
            *to[r].top = -__builtin_inff();
            *to[r].sum = 0.0f;
        }
        for (int64_t at = first; at < end; at += TILE) {
            int64_t offset = start + (at - first) * a->row_bytes;
            struct tile tile = {a->k + offset, a->v + offset, at, (int)(end - at < TILE ? end - at : TILE)};
            if (many == 4) attend_tile(a, &tile, q, row, to, 4, dim, kind);
            else if (many == 3) attend_tile(a, &tile, q, row, to, 3, dim, kind);
            else if (many == 2) attend_tile(a, &tile, q, row, to, 2, dim, kind);
            else attend_tile(a, &tile, q, row, to, 1, dim, kind);
        }
    }
}

/* The partial results of all units of a KV head as one, in the order of the keys. */
static void join(const struct attention *a, int head) {
    int group = a->heads / a->kv_heads, dim = a->head_dim, units = units_per_head(a);
    for (int row = 0; row < a->n * group; row++) {
        int64_t at = (int64_t)(row / group) * a->heads + head * group + row % group;
        float *out = a->out + at * dim, top = -__builtin_inff(), sum = 0.0f;
        memset(out, 0, dim * sizeof(float));
        for (int unit = 0; unit < units; unit++) {
            float own = *partial_of(a, head, unit, row).top;
            top = own > top ? own : top;
        }
        for (int unit = 0; unit < units && top > -__builtin_inff(); unit++) {
            struct partial part = partial_of(a, head, unit, row);
            float weight = exponential_of(*part.top - top);
            sum += *part.sum * weight;
            for (int c = 0; c < dim; c++) out[c] += part.out[c] * weight;
        }
        for (int c = 0; c < dim && sum > 0; c++) out[c] /= sum;
        a->lse[at] = sum > 0 ? top + logarithm(sum) : -__builtin_inff();
    }
}

static void work(void *given) {
    struct attention *a = given;
    int units = units_per_head(a);
    for (;;) {
        int next = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
        if (next >= units * a->kv_heads) return;
        int head = next % a->kv_heads, unit = next / a->kv_heads;
        if (a->head_dim == 64 && a->kind == BF16) attend_unit(a, head, unit, 64, BF16);
        else if (a->head_dim == 128 && a->kind == BF16) attend_unit(a, head, unit, 128, BF16);
        else if (a->head_dim == 64 && a->kind == INT8) attend_unit(a, head, unit, 64, INT8);
        else if (a->head_dim == 128 && a->kind == INT8) attend_unit(a, head, unit, 128, INT8);
        else if (a->head_dim == 64) attend_unit(a, head, unit, 64, FP32);
        else attend_unit(a, head, unit, 128, FP32);
        if (__atomic_add_fetch(&a->done[head], 1, __ATOMIC_ACQ_REL) == units) join(a, head);
    }
}

#ifdef SOURCE
EXPORT const char *source_sha256(void) { return SOURCE; }
#endif

/* Floats of scratch memory that a call needs. */
EXPORT int64_t NAMED(scratch_floats, ISA)(const struct attention *a) {
    return (int64_t)units_per_head(a) * a->n * a->heads * (a->head_dim + 2);
}

EXPORT void NAMED(attend, ISA)(struct attention *a) { on_threads(&a->team, work, a); }
