/* Attention of a few queries over a long KV cache, at the speed of memory.

   Keys and values are block-major, [block][kv_head][token][row], as core/cache/base.py lays them out; a
   row is head_dim numbers of one kind: fp32, bf16, or int8 codes followed by one fp32 scale. Arithmetic is
   fp32; over codes, products are those of integers: a query, and the weights of a tile, become int16 with a
   scale of their own, and sums over a row or a tile are exact (as in LLM.int8(), Dettmers et al. 2022, arXiv
   2208.07339, section 2.1, with 16 bits on this side).

   Keys are taken in tiles that stay in the CPU's first cache, for all queries of their KV head. For more than
   FEW queries a tile is turned so that lanes are keys, and scores are a product of small matrices whose sums
   stay in registers, as weighted values are (Goto and van de Geijn 2008, doi 10.1145/1356052.1356053); a
   number is widened there. For few queries turning costs more than it saves: lanes are words of keys as they
   lie. Either way a score is the sum of four, one for each word of a quarter of a row, each summed in the
   row's order: the same bits. Of codes any order gives them.

   Work is cut into units of one KV head and at most UNIT keys of one block. Threads take units from a
   counter, some in a row; the one that finishes the last unit of a head joins the units' partial results in
   their order. So results do not depend on the number of threads, and since the arithmetic of one query never
   looks at another, a query among many gets the bits it gets alone.

   Softmax is computed online, tile by tile (Milakov and Gimelshein 2018, arXiv 1805.02867); units are
   joined by their log-sum-exp as in FlashDecoding (Dao et al. 2023).

   This file is compiled once per instruction set: WIDTH is the number of fp32 lanes of a register, ISA a
   part of the functions' names. */

#include "vectors.h"
#include "functions.h"
#include "threads.h"
#include "attention.h"
#include "scores.h"

#define UNIT 512
#define LEAST -3e38f /* below every score */

static void put_chunks(float *scores, int count, int chunk, float *to); /* chunks.h */

INLINE float exponential_of(float x) { return exponential(filled(x))[0]; }

INLINE float logarithm_of(float x) { return logarithms(filled(x))[0]; }

/* The largest lane of each of `count` vectors. */
INLINE void largest_of(const vec *x, float *to, const int count) {
    for (int i = 0; i < count; i += 4) {
        vec four[4] = {};
        for (int j = 0; j < 4 && i + j < count; j++) four[j] = x[i + j];
        transpose((ivec *)four);
        vec most = at_least(at_least(four[0], four[1]), at_least(four[2], four[3]));
        float quarters[WIDTH] ALIGNED;
        *(vec *)quarters = most;
        quarter_in best = *(quarter_in *)quarters;
        for (int at = 4; at < WIDTH; at += 4) {
            quarter_in other = *(quarter_in *)(quarters + at);
            quarter where = other > best;
            best = (quarter_in)(((quarter)other & where) | ((quarter)best & ~where));
        }
        *(quarter_in *)(to + i) = best;
    }
}

/* Multiplies results by `shrink` and adds the tile's values by their weights: of `rows` queries, SPAN numbers
   from number `at` on. */
INLINE void add_values(float *out, const int stride, const struct tile *tile, int at, float weights[][TILE],
                       const float *shrink, const int rows, const int dim, const int kind) {
    const int columns = COLUMNS(rows);
    vec sums[ROWS][4];
    WHOLE for (int r = 0; r < rows; r++)
        WHOLE for (int c = 0; c < columns; c++)
            sums[r][c] = *(vec_in *)(out + r * stride + at + c * WIDTH) * shrink[r];
    ROLLED for (int j = 0; j < tile->count; j++) {
        const char *value = tile->values + j * tile->row_bytes;
        int step = at / SPAN(rows) * TILE + j;
        vec own[4];
        fetch_part(tile->values, tile->row_bytes, step, dim / SPAN(rows) * TILE, dim, kind);
        WHOLE for (int c = 0; c < columns; c++) own[c] = widened(value, at + c * WIDTH, kind);
        WHOLE for (int r = 0; r < rows; r++)
            WHOLE for (int c = 0; c < columns; c++) sums[r][c] += own[c] * weights[r][j];
    }
    WHOLE for (int r = 0; r < rows; r++)
        WHOLE for (int c = 0; c < columns; c++)
            *(vec_in *)(out + r * stride + at + c * WIDTH) = sums[r][c];
}

/* The same of codes: the weights are integers, of which one is worth `factor`; two neighbouring keys are
   taken at once. */
INLINE void add_codes(float *out, const int stride, const struct tile *tile, int at, int16_t codes[][TILE],
                      const float *shrink, const float *factor, const int rows, const int dim) {
    const int columns = COLUMNS(rows);
    ivec sums[ROWS][4] = {};
    ROLLED for (int j = 0; j < tile->count; j += 2) {
        const char *value = tile->values + j * tile->row_bytes;
        const char *next = j + 1 < tile->count ? value + tile->row_bytes : value;
        int step = at / SPAN(rows) * TILE / 2 + j / 2;
        svec own[4];
        fetch_part(tile->values, tile->row_bytes, step, dim / SPAN(rows) * TILE / 2, dim, INT8);
        WHOLE for (int c = 0; c < columns; c++) own[c] = beside(value, next, at + c * WIDTH);
        WHOLE for (int r = 0; r < rows; r++) {
            svec pair = everywhere(codes[r] + j);
            WHOLE for (int c = 0; c < columns; c++) sums[r][c] = plus_products(sums[r][c], own[c], pair);
        }
    }
    WHOLE for (int r = 0; r < rows; r++)
        WHOLE for (int c = 0; c < columns; c++) {
            vec_in *to = (vec_in *)(out + r * stride + at + c * WIDTH);
            *to = *to * shrink[r] + __builtin_convertvector(sums[r][c], vec) * factor[r];
        }
}

/* Weights [rows][TILE] as integers, and what one is worth. */
INLINE void code_weights(float weights[][TILE], int16_t codes[][TILE], float *factor, const int rows) {
    float most[ROW_LANES] ALIGNED;
    vec tops[ROWS];
    for (int r = 0; r < rows; r++) {
        tops[r] = *(vec *)weights[r];
        for (int j = WIDTH; j < TILE; j += WIDTH) tops[r] = at_least(tops[r], *(vec *)(weights[r] + j));
    }
    largest_of(tops, most, rows);
    for (int r = 0; r < rows; r++) {
        float times = most[r] > 1e-30f ? MOST_CODE / most[r] : 0.0f;
        for (int j = 0; j < TILE; j += WIDTH) {
            ivec own = nearest(*(vec *)(weights[r] + j) * times);
            *(hvec *)(codes[r] + j) = __builtin_convertvector(own, hvec);
        }
        factor[r] = most[r] / MOST_CODE;
    }
}

/* What a unit holds of each query, in one row of scratch memory: the query, its running result over the keys
   seen so far, weighted values, sums of exponentials by lanes of keys, and the largest score. */
#define HELD(dim) (2 * (dim) + WIDTH + LINE / 4) /* numbers of a row */
INLINE float *values_of(float *held, const int dim) { return held + dim; }
INLINE vec_in *sums_in(float *held, const int dim) { return (vec_in *)(held + 2 * dim); }
INLINE float *top_of(float *held, const int dim) { return held + 2 * dim + WIDTH; }

/* Turns the scores of `rows` queries into weights under their new largest scores, 0 behind the visible[r]
   first keys, times the values' scales. `shrink`: what the results so far are to be multiplied by. */
INLINE void weigh(float scores[][TILE], const struct tile *tile, const int *visible, float *held,
                  float *shrink, const int rows, const int dim, const int kind) {
    float was[ROW_LANES] ALIGNED = {}, now[ROW_LANES] ALIGNED = {};
    vec tops[ROWS];
    for (int r = 0; r < rows; r++) {
        for (int j = visible[r]; j < TILE; j++) scores[r][j] = LEAST;
        was[r] = *top_of(held + r * HELD(dim), dim);
        tops[r] = filled(was[r]);
        for (int j = 0; j < TILE; j += WIDTH) tops[r] = at_least(tops[r], *(vec *)(scores[r] + j));
    }
    largest_of(tops, now, rows);
    for (int r = 0; r < rows; r += WIDTH)
        *(vec *)(shrink + r) = exponential(*(vec *)(was + r) - *(vec *)(now + r));
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < TILE; j += WIDTH)
            *(vec *)(scores[r] + j) = exponential(*(vec *)(scores[r] + j) - now[r]);
        for (int j = visible[r]; j < TILE; j++) scores[r][j] = 0.0f;
        vec_in *all = sums_in(held + r * HELD(dim), dim);
        vec sums = *all * shrink[r];
        for (int j = 0; j < TILE; j += WIDTH) {
            sums += *(vec *)(scores[r] + j);
            if (kind == INT8) *(vec *)(scores[r] + j) *= *(const vec *)(tile->value_scales + j);
        }
        *all = sums;
        *top_of(held + r * HELD(dim), dim) = now[r];
    }
}

/* How the work is cut: units per block and per KV head. */
static int units_per_block(const struct attention *a) { return (a->block_tokens + UNIT - 1) / UNIT; }
static int units_per_head(const struct attention *a) {
    int64_t whole = a->length / a->block_tokens, rest = a->length % a->block_tokens;
    return (int)(whole * units_per_block(a) + (rest + UNIT - 1) / UNIT);
}

static float *held_of(const struct attention *a, int head, int unit, int row) {
    int rows = a->n * (a->heads / a->kv_heads);
    return a->scratch + (((int64_t)head * units_per_head(a) + unit) * rows + row) * HELD(a->head_dim);
}

/* A query of a KV head, over the root of its size. */
INLINE void take_query(const struct attention *a, int head, int row, float *to, const int dim,
                       const int kind) {
    int group = a->heads / a->kv_heads;
    const float *q = a->q + ((int64_t)(row / group) * a->heads + head * group + row % group) * dim;
    for (int i = 0; i < dim; i++) to[i] = q[i] / __builtin_sqrtf((float)dim);
    if (CODED(kind)) code_query(to, dim);
}

/* Where the log-sum-exps of a query over the chunks of a tile belong. */
INLINE float *chunks_of(const struct attention *a, int query, const struct tile *tile) {
    return a->chunk_lse + query * a->chunks + tile->first / a->chunk;
}

/* `rows` queries of one KV head, from row `row` on, over one tile; `few` holds them where they are few. */
INLINE void attend_rows(const struct attention *a, const struct tile *tile, const struct spread *few,
                        int head, int unit, int row, const int rows, const int dim, const int kind) {
    float weights[ROWS][TILE] ALIGNED, shrink[ROW_LANES] ALIGNED, *held = held_of(a, head, unit, row);
    int visible[ROWS], group = a->heads / a->kv_heads;
    if (few) score_few(few, tile, weights, rows < FEW ? rows : FEW, dim, kind);
    else for (int at = 0; at < tile->count; at += SPAN(rows))
        score(held, HELD(dim), tile, at, weights, rows, dim, kind);
    for (int r = 0; r < rows; r++) {
        int64_t seen = (a->causal ? a->length - a->n + (row + r) / group + 1 : a->length) - tile->first;
        visible[r] = seen < 0 ? 0 : seen > tile->count ? tile->count : (int)seen;
    }
    for (int r = 0; a->chunk_lse && r < rows && row + r < group && visible[r]; r++) {
        float scores[TILE] ALIGNED;
        memcpy(scores, weights[r], sizeof scores);
        put_chunks(scores, visible[r], a->chunk, chunks_of(a, head * group + row + r, tile));
    }
    weigh(weights, tile, visible, held, shrink, rows, dim, kind);
    int16_t codes[ROWS][TILE] ALIGNED;
    float factor[ROWS];
    if (CODED(kind)) code_weights(weights, codes, factor, rows);
    for (int at = 0; at < dim; at += SPAN(rows))
        if (CODED(kind))
            add_codes(values_of(held, dim), HELD(dim), tile, at, codes, shrink, factor, rows, dim);
        else add_values(values_of(held, dim), HELD(dim), tile, at, weights, shrink, rows, dim, kind);
}

/* FUNCTION(count) with `count`, up to ROWS, as a constant. */
#if WIDTH == 8
#define WITH_CONSTANT_ROWS WITH_CONSTANT
#else
#define WITH_CONSTANT_ROWS(count, FUNCTION)            \
    switch (count) {                                   \
    case 7: FUNCTION(7); break;                        \
    case 8: FUNCTION(8); break;                        \
    case 9: FUNCTION(9); break;                        \
    case 10: FUNCTION(10); break;                      \
    case 11: FUNCTION(11); break;                      \
    case 12: FUNCTION(12); break;                      \
    default: WITH_CONSTANT(count, FUNCTION)            \
    }
#endif

/* The keys of a unit, and where the first of them lies. */
struct stretch { int64_t first, end, start; };

static struct stretch keys_of_unit(const struct attention *a, int head, int unit) {
    int64_t block = unit / units_per_block(a), inside = (int64_t)(unit % units_per_block(a)) * UNIT;
    int64_t first = block * a->block_tokens + inside, end = first + UNIT;
    int64_t block_end = (block + 1) * a->block_tokens;
    end = end > block_end ? block_end : end;
    end = end > a->length ? a->length : end;
    int64_t start = block * a->block_bytes + head * a->head_bytes + inside * a->row_bytes;
    return (struct stretch){first, end, start};
}

/* The tile of a unit that begins with key `at`. */
INLINE void take_tile(const struct attention *a, const struct stretch *keys, int64_t at, struct tile *tile,
                      const int dim, const int kind) {
    int64_t offset = keys->start + (at - keys->first) * a->row_bytes;
    tile->row_bytes = a->row_bytes;
    tile->first = at;
    tile->count = (int)(keys->end - at < TILE ? keys->end - at : TILE);
    tile->keys = a->k + offset;
    tile->values = a->v + offset;
    read_scales(tile, dim, kind);
}

/* One unit: all queries of a KV head over at most UNIT keys of one block. */
INLINE void attend_unit(const struct attention *a, int head, int unit, const int dim, const int kind) {
    int rows = a->n * (a->heads / a->kv_heads);
    struct stretch keys = keys_of_unit(a, head, unit);
    for (int row = 0; row < rows; row++) {
        float *held = held_of(a, head, unit, row);
        memset(held, 0, HELD(dim) * sizeof(float));
        take_query(a, head, row, held, dim, kind);
        *top_of(held, dim) = LEAST;
    }
    struct spread few[FEW];
    for (int row = 0; row < rows && rows <= FEW; row++)
        spread_out(held_of(a, head, unit, row), few + row, dim, kind);
    struct tile tile;
    for (int64_t at = keys.first; at < keys.end; at += TILE) {
        take_tile(a, &keys, at, &tile, dim, kind);
        if (rows > FEW) turn_keys(&tile, dim, kind);
        int groups = (rows + ROWS - 1) / ROWS; /* of queries, as alike as can be */
        for (int row = 0; groups; groups--) {
            int many = (rows - row + groups - 1) / groups;
#define OF_ROWS(many) \
    attend_rows(a, &tile, many > FEW || rows > FEW ? 0 : few, head, unit, row, many, dim, kind)
            WITH_CONSTANT_ROWS(many, OF_ROWS)
            row += many;
        }
    }
}

/* The partial results of all units of a KV head as one, in the order of the keys. */
static void join(const struct attention *a, int head) {
    int group = a->heads / a->kv_heads, dim = a->head_dim, units = units_per_head(a);
    for (int row = 0; row < a->n * group; row++) {
        int64_t at = (int64_t)(row / group) * a->heads + head * group + row % group;
        float *out = a->out + at * dim, top = LEAST, sum = 0.0f;
        memset(out, 0, dim * sizeof(float));
        for (int unit = 0; unit < units; unit++) {
            float own = *top_of(held_of(a, head, unit, row), dim);
            top = own > top ? own : top;
        }
        for (int unit = 0; unit < units; unit++) {
            float *held = held_of(a, head, unit, row), *values = values_of(held, dim);
            float weight = exponential_of(*top_of(held, dim) - top);
            sum += sum_of(*sums_in(held, dim)) * weight;
            for (int c = 0; c < dim; c++) out[c] += values[c] * weight;
        }
        for (int c = 0; c < dim && sum > 0; c++) out[c] /= sum;
        a->lse[at] = sum > 0 ? top + logarithm_of(sum) : -__builtin_inff();
    }
}

/* `function` for all sizes of heads and kinds of numbers, as constants, in functions of their own: all in one
   would take a compiler many minutes. The table of them: `function` and an s, by place_of(head_dim) and
   kind. */
#define OF_KIND(function, dim, kind)                                                           \
    static __attribute__((noinline)) void function##_##dim##_##kind(const struct attention *a, \
                                                                    int head, int unit) {      \
        function(a, head, unit, dim, kind);                                                    \
    }
#define OF_DIM(function, dim)   \
    OF_KIND(function, dim, FP32) \
    OF_KIND(function, dim, BF16) \
    OF_KIND(function, dim, INT8)
#define BY_KIND(function, dim) {function##_##dim##_FP32, function##_##dim##_BF16, function##_##dim##_INT8}
#define BY_ROWS(function)                                                                         \
    OF_DIM(function, 64)                                                                          \
    OF_DIM(function, 128)                                                                         \
    OF_DIM(function, 256)                                                                         \
    OF_DIM(function, 512)                                                                         \
    static void (*const function##s[][3])(const struct attention *, int, int) = {                 \
        BY_KIND(function, 64), BY_KIND(function, 128), BY_KIND(function, 256), BY_KIND(function, 512)};

/* A size of heads as a place in such a table. */
static int place_of(int dim) { return __builtin_ctz(dim) - 6; }

BY_ROWS(attend_unit)

/* Takes units in a row, from *first on, and returns how many; fewer towards the end, 0 there. So a thread
   reads memory in order, and none waits long for another (guided self-scheduling, Polychronopoulos and Kuck
   1987, doi 10.1109/TC.1987.5009495). */
static int take_units(struct attention *a, int *first) {
    int all = units_per_head(a) * a->kv_heads, many;
    *first = __atomic_load_n(&a->next, __ATOMIC_RELAXED);
    do {
        many = (all - *first) / (4 * a->team.threads);
        many = many ? many : *first < all;
    } while (many && !__atomic_compare_exchange_n(&a->next, first, *first + many, 0, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED));
    return many;
}

static void work(void *given) {
    struct attention *a = given;
    for (int first, many; (many = take_units(a, &first));)
        for (int next = first; next < first + many; next++) {
            int head = next % a->kv_heads;
            attend_units[place_of(a->head_dim)][a->kind](a, head, next / a->kv_heads);
            if (__atomic_add_fetch(&a->done[head], 1, __ATOMIC_ACQ_REL) == units_per_head(a)) join(a, head);
        }
}

#include "chunks.h"

#ifdef SOURCE
EXPORT const char *source_sha256(void) { return SOURCE; }
#endif

/* Floats of scratch memory that a call needs. */
EXPORT int64_t NAMED(scratch_floats, ISA)(const struct attention *a) {
    return (int64_t)units_per_head(a) * a->n * a->heads * HELD(a->head_dim);
}

EXPORT void NAMED(attend, ISA)(struct attention *a) { on_threads(&a->team, work, a); }

/* Of one query, keys alone: `chunk_lse`, without `out`. */
EXPORT void NAMED(chunks, ISA)(struct attention *a) { on_threads(&a->team, work_on_chunks, a); }
