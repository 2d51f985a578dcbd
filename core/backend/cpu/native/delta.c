/* Layers with a gated delta rule: rows through the convolution, SiLU and gates, and through a state, one
   after the other (https://arxiv.org/abs/2412.06464; transformers, models/qwen3_5/modeling_qwen3_5.py).

   Of each value head, with query q and key k of length 1 (q over the root of its size), value v, what is kept
   d and the share that is corrected b:

       S = d S,    u = b (v - S' k),    S = S + k u',    out = S' q

   Columns of a state know nothing of each other. So a strip of them is copied into the CPU's first cache and
   taken through many rows there; memory is read once and written once, whatever the number of rows. The state
   goes row by row, in one order, so a row among many has the bits it has alone, in prefill as in decoding.
   Threads take heads from a counter; nothing is joined. Numbers are fp32.

   This file is compiled once per instruction set: WIDTH is the number of fp32 lanes of a register, ISA a
   part of the functions' names. */

#include "vectors.h"
#include "functions.h"
#include "threads.h"
#include "delta.h"

#define MOST_KEYS 256
#define BLOCK 32                     /* rows whose queries and keys are made ready at once */
#define COLUMNS (WIDTH == 16 ? 2 : 4) /* registers of a strip, of which */
#define PARTS (8 / COLUMNS)          /* so many sums each depend on no other: a sum takes its time */
#define LEAST_LENGTH 1e-6f           /* squared, added to a query's and a key's */
#define WHOLE _Pragma("clang loop unroll(full)")

/* WIDTH channels of row `row`, from channel `at` on, behind the convolution and SiLU. */
INLINE vec channels(const struct delta *d, int64_t row, int64_t at) {
    int64_t all = d->width - 2 * d->value_heads;
    vec sum = {};
    for (int64_t tap = 0; tap < d->kernel; tap++)
        sum += *(const vec_in *)(d->rows + (row + tap) * d->width + at)
               * *(const vec_in *)(d->convolution + tap * all + at);
    return sum * sigmoid(sum);
}

/* A query or key of row `row`, [key_dim] channels from `at` on, `times` a vector of length 1. */
INLINE void direction(const struct delta *d, int64_t row, int64_t at, float times, float *to) {
    vec squares = {};
    for (int i = 0; i < d->key_dim; i += WIDTH) {
        vec some = channels(d, row, at + i);
        squares += some * some;
        *(vec_in *)(to + i) = some;
    }
    float factor = times / __builtin_sqrtf(sum_of(squares) + LEAST_LENGTH);
    for (int i = 0; i < d->key_dim; i += WIDTH) *(vec_in *)(to + i) *= factor;
}

/* What a row brings to a head, its value apart. */
struct brought { float q[MOST_KEYS], k[MOST_KEYS], kept, corrected; };

static void bring(const struct delta *d, int head, int64_t row, struct brought *to) {
    int64_t keys = (int64_t)d->key_heads * d->key_dim, at = (int64_t)(head % d->key_heads) * d->key_dim;
    direction(d, row, at, 1.0f / __builtin_sqrtf((float)d->key_dim), to->q);
    direction(d, row, keys + at, 1.0f, to->k);
    const float *gates = d->rows + (row + d->kernel) * d->width - 2 * d->value_heads;
    vec step = filled(gates[d->value_heads + head] + d->step_bias[head]);
    to->corrected = sigmoid(filled(gates[head]))[0];
    to->kept = exponential(softplus(step) * d->decay[head])[0];
}

/* `count` rows, from row `first` on, through `columns` registers of a head's columns, from column `at` on. */
INLINE void take_strip(const struct delta *d, int head, int64_t first, int64_t count,
                       const struct brought *rows, int at, const int columns) {
    vec strip[MOST_KEYS][COLUMNS];
    int64_t state = (int64_t)head * d->key_dim * d->value_dim + at, value = (int64_t)head * d->value_dim + at;
    int64_t values = 2 * (int64_t)d->key_heads * d->key_dim + value;
    const float *from = (first ? d->to : d->from) + state;
    for (int i = 0; i < d->key_dim; i++)
        WHOLE for (int c = 0; c < columns; c++)
            strip[i][c] = *(const vec_in *)(from + (int64_t)i * d->value_dim + c * WIDTH);
    for (int64_t r = 0; r < count; r++) {
        const struct brought *own = rows + r;
        vec sums[PARTS][COLUMNS] = {}, lacking[COLUMNS];
        for (int i = 0; i < d->key_dim; i += PARTS)
            WHOLE for (int p = 0; p < PARTS; p++)
                WHOLE for (int c = 0; c < columns; c++) sums[p][c] += strip[i + p][c] * own->k[i + p];
        WHOLE for (int c = 0; c < columns; c++) {
            WHOLE for (int p = 1; p < PARTS; p++) sums[0][c] += sums[p][c];
            vec wanted = channels(d, first + r, values + c * WIDTH);
            lacking[c] = (wanted - sums[0][c] * own->kept) * own->corrected;
            WHOLE for (int p = 0; p < PARTS; p++) sums[p][c] = filled(0.0f);
        }
        for (int i = 0; i < d->key_dim; i += PARTS)
            WHOLE for (int p = 0; p < PARTS; p++)
                WHOLE for (int c = 0; c < columns; c++) {
                    vec some = strip[i + p][c] * own->kept + lacking[c] * own->k[i + p];
                    strip[i + p][c] = some;
                    sums[p][c] += some * own->q[i + p];
                }
        float *out = d->out + (first + r) * d->value_heads * d->value_dim + value;
        WHOLE for (int c = 0; c < columns; c++) {
            WHOLE for (int p = 1; p < PARTS; p++) sums[0][c] += sums[p][c];
            *(vec_in *)(out + c * WIDTH) = sums[0][c];
        }
    }
    for (int i = 0; i < d->key_dim; i++)
        WHOLE for (int c = 0; c < columns; c++)
            *(vec_in *)(d->to + state + (int64_t)i * d->value_dim + c * WIDTH) = strip[i][c];
}

static void take_head(const struct delta *d, int head) {
    struct brought rows[BLOCK];
    for (int64_t first = 0; first < d->n; first += BLOCK) {
        int64_t count = d->n - first < BLOCK ? d->n - first : BLOCK;
        int at = 0;
        for (int64_t r = 0; r < count; r++) bring(d, head, first + r, rows + r);
        for (; at + COLUMNS * WIDTH <= d->value_dim; at += COLUMNS * WIDTH)
            take_strip(d, head, first, count, rows, at, COLUMNS);
        for (; at < d->value_dim; at += WIDTH) take_strip(d, head, first, count, rows, at, 1);
    }
}

static void work(void *given) {
    struct delta *d = given;
    for (int head; (head = __atomic_fetch_add(&d->next, 1, __ATOMIC_RELAXED)) < d->value_heads;)
        take_head(d, head);
}

#ifdef SOURCE
EXPORT const char *source_sha256(void) { return SOURCE; }
#endif

EXPORT void NAMED(delta, ISA)(struct delta *d) { on_threads(&d->team, work, d); }
