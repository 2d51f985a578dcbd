/* Attention of a few queries over a long KV cache, at the speed of memory.

   Keys and values are block-major, [block][kv_head][token][row], as core/cache/base.py lays them out; a
   row is head_dim numbers of one kind: fp32, bf16, or int8 codes followed by one fp32 scale. Arithmetic is
   fp32.

   Keys are taken in tiles that stay in the CPU's first cache, for all queries of their KV head. For more than
   FEW queries a tile is turned so that lanes are keys, and scores are a product of small matrices whose sums
   stay in registers, as weighted values are (Goto and van de Geijn 2008, doi 10.1145/1356052.1356053); a
   number is widened there. For few queries turning costs more than it saves: lanes are words of keys as they
   lie. Either way a score is the sum of four, one for each word of a quarter of a row, each summed in the
   row's order: the same bits.

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

#define TILE 64 /* keys of a tile */
#define UNIT 512
#define ROWS 6 /* queries whose sums lie in registers, COLUMNS of them each */
#if WIDTH == 8
#define COLUMNS 2
#else
#define COLUMNS 4
#endif
#define SPAN (COLUMNS * WIDTH)
#define FEW (WIDTH == 8 ? 3 : 4) /* queries of which four sums each lie in registers */
#define ROW_LANES ((ROWS + WIDTH - 1) / WIDTH * WIDTH)
#define LEAST -3e38f /* below every score */
#define MOST_DIM 128
#define LINE 64 /* bytes of a cache line */
#define ROLLED _Pragma("clang loop unroll(disable)") /* code that fits the cache of decoded instructions */

typedef int8_t bvec __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef int32_t quarter __attribute__((vector_size(16), aligned(4), may_alias)); /* four words */

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

/* WIDTH numbers of a row as fp32, without the scale of int8 codes. */
INLINE vec widened(const char *row, int at, const int kind) {
    if (kind == FP32) return *(const vec_in *)((const float *)row + at);
    const hvec *halves = (const hvec *)((const uint16_t *)row + at);
    if (kind == BF16) return (vec)(__builtin_convertvector(*halves, uvec) << 16);
    return __builtin_convertvector(*(const bvec *)((const int8_t *)row + at), vec);
}

/* Number `i` of each of WIDTH words of rows. */
INLINE vec unpacked(ivec words, const int i, const int kind) {
    if (kind == FP32) return (vec)words;
    if (kind == BF16) return (vec)(i ? (uvec)words & 0xffff0000u : (uvec)words << 16);
    return __builtin_convertvector((ivec)((uvec)words << (24 - 8 * i)) >> 24, vec);
}

INLINE int size_of(const int kind) { return kind == FP32 ? 4 : kind == BF16 ? 2 : 1; }

/* Asks for a row that is needed soon, by every cache line: a CPU does not see that rows this short are
   read in order. */
INLINE void fetch(const char *row, const int dim, const int kind) {
    for (int at = 0; at < dim * size_of(kind); at += LINE) __builtin_prefetch(row + at);
}

/* What `row` gives for every fourth row, in one vector. */
#if WIDTH == 16
#define EVERY_FOURTH(row) SIDE_BY_SIDE(SIDE_BY_SIDE(row(0), row(4), 0, 1, 2, 3, 4, 5, 6, 7), \
                                       SIDE_BY_SIDE(row(8), row(12), 0, 1, 2, 3, 4, 5, 6, 7), \
                                       0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#elif WIDTH == 8
#define EVERY_FOURTH(row) SIDE_BY_SIDE(row(0), row(4), 0, 1, 2, 3, 4, 5, 6, 7)
#else
#define EVERY_FOURTH(row) row(0)
#endif

/* Four words of each of WIDTH rows as four vectors, by quarters: words of row j, j + 4, ... to vector j. */
INLINE void gathered(const char *const rows[WIDTH], int64_t at, ivec to[4]) {
    for (int i = 0; i < 4; i++) {
#define ROW(j) (*(const quarter *)(rows[i + j] + at))
        to[i] = EVERY_FOURTH(ROW);
    }
}

/* Turns each quarter of four vectors: word w of vector j's quarter to word j of vector w's. */
INLINE void transpose(ivec x[4]) {
    ivec low[] = {SIDE_BY_SIDE(x[0], x[1], LOW_WORDS), SIDE_BY_SIDE(x[2], x[3], LOW_WORDS)};
    ivec high[] = {SIDE_BY_SIDE(x[0], x[1], HIGH_WORDS), SIDE_BY_SIDE(x[2], x[3], HIGH_WORDS)};
    x[0] = SIDE_BY_SIDE(low[0], low[1], LOW_PAIRS);
    x[1] = SIDE_BY_SIDE(low[0], low[1], HIGH_PAIRS);
    x[2] = SIDE_BY_SIDE(high[0], high[1], LOW_PAIRS);
    x[3] = SIDE_BY_SIDE(high[0], high[1], HIGH_PAIRS);
}

/* Some keys in a row, and their values. */
struct tile {
    ivec turned[MOST_DIM * TILE / WIDTH]; /* words of keys: [dim / numbers in a word][TILE] */
    float score_scales[TILE], value_scales[TILE];
    const char *keys, *values; /* rows of the cache */
    int64_t first, row_bytes;  /* first: which of all keys the first one is */
    int count;
} __attribute__((aligned(LINE)));

INLINE float scale_of(const char *row, const int dim, const int kind) {
    float scale = 1.0f;
    if (kind == INT8) memcpy(&scale, row + dim, 4);
    return scale;
}

INLINE void read_scales(struct tile *tile, const int dim, const int kind) {
    for (int j = 0; j < TILE; j++) {
        int64_t at = j < tile->count ? j * tile->row_bytes : 0;
        tile->score_scales[j] = scale_of(tile->keys + at, dim, kind) / __builtin_sqrtf((float)dim);
        tile->value_scales[j] = scale_of(tile->values + at, dim, kind);
    }
}

/* The WIDTH keys of a tile from key `group` on; its first one for those behind its last. */
INLINE void keys_of(const struct tile *tile, int group, const char *rows[WIDTH]) {
    for (int j = 0; j < WIDTH; j++)
        rows[j] = tile->keys + (group + j < tile->count ? group + j : 0) * tile->row_bytes;
}

/* Asks for some of the next tile's keys beside four words, from word `word` on, of WIDTH of this one's. */
INLINE void fetch_next(const struct tile *tile, int group, int word, const int dim, const int kind) {
    const int words = dim * size_of(kind) / 4, each = (4 * WIDTH + words - 1) / words;
    for (int j = 0; j < each; j++)
        fetch(tile->keys + (TILE + group + word / 4 * each + j) * tile->row_bytes, dim, kind);
}

INLINE void turn_keys(struct tile *tile, const int dim, const int kind) {
    ROLLED for (int group = 0; group < tile->count; group += WIDTH) {
        const char *rows[WIDTH];
        keys_of(tile, group, rows);
        ROLLED for (int word = 0; word < dim * size_of(kind) / 4; word += 4) {
            ivec some[4];
            fetch_next(tile, group, word, dim, kind);
            gathered(rows, word * 4, some);
            transpose(some);
            for (int w = 0; w < 4; w++) tile->turned[((word + w) * TILE + group) / WIDTH] = some[w];
        }
    }
}

/* Scores of `rows` queries q[r] [dim] and SPAN turned keys from key `at` on. */
INLINE void score(const float *const q[ROWS], const struct tile *tile, int at, float to[][TILE],
                  const int rows, const int dim, const int kind) {
    const int per = 4 / size_of(kind); /* numbers in a word */
    ROLLED for (int first = 0; first < 4; first++) {
        vec sums[ROWS][COLUMNS] = {};
        ROLLED for (int word = first; word < dim / per; word += 4)
            for (int i = 0; i < per; i++) {
                vec own[COLUMNS];
                for (int c = 0; c < COLUMNS; c++)
                    own[c] = unpacked(tile->turned[(word * TILE + at) / WIDTH + c], i, kind);
                for (int r = 0; r < rows; r++)
                    for (int c = 0; c < COLUMNS; c++) sums[r][c] += own[c] * q[r][word * per + i];
            }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < COLUMNS; c++) {
                vec *sum = (vec *)(to[r] + at + c * WIDTH);
                *sum = first ? *sum + sums[r][c] : sums[r][c];
            }
    }
    for (int r = 0; r < rows; r++)
        for (int key = at; key < at + SPAN; key += WIDTH)
            *(vec *)(to[r] + key) *= *(const vec *)(tile->score_scales + key);
}

/* A query as `score_few` reads it: number i of four words in every quarter of vector [word / 4][i]. */
struct spread { vec numbers[MOST_DIM / 4]; };

INLINE void spread_out(const float *q, struct spread *to, const int dim, const int kind) {
    const int per = 4 / size_of(kind);
    for (int at = 0; at < dim; at += 4 * per)
        for (int i = 0; i < per; i++)
            for (int lane = 0; lane < WIDTH; lane++)
                to->numbers[at / 4 + i][lane] = q[at + lane % 4 * per + i];
}

/* Scores of `rows` queries, at most FEW, and all keys of a tile as they lie. */
INLINE void score_few(const struct spread *q, const struct tile *tile, float to[][TILE], const int rows,
                      const int dim, const int kind) {
    const int per = 4 / size_of(kind);
    ROLLED for (int group = 0; group < tile->count; group += WIDTH) {
        const char *keys[WIDTH];
        vec sums[ROWS][4] = {};
        keys_of(tile, group, keys);
        ROLLED for (int word = 0; word < dim / per; word += 4) {
            ivec some[4];
            fetch_next(tile, group, word, dim, kind);
            gathered(keys, word * 4, some);
            for (int i = 0; i < per; i++)
                for (int j = 0; j < 4; j++) {
                    vec own = unpacked(some[j], i, kind);
                    for (int r = 0; r < rows; r++) sums[r][j] += own * q[r].numbers[word / 4 * per + i];
                }
        }
        for (int r = 0; r < rows; r++) {
            transpose((ivec *)sums[r]);
            vec sum = sums[r][0] + sums[r][1] + sums[r][2] + sums[r][3];
            *(vec *)(to[r] + group) = sum * *(const vec *)(tile->score_scales + group);
        }
    }
}

/* Multiplies results by `shrink` and adds the tile's values by their weights: of `rows` queries, SPAN numbers
   from number `at` on. */
INLINE void add_values(float *const out[ROWS], const struct tile *tile, int at, float weights[][TILE],
                       const float *shrink, const int rows, const int dim, const int kind) {
    vec sums[ROWS][COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < COLUMNS; c++) sums[r][c] = *(vec_in *)(out[r] + at + c * WIDTH) * shrink[r];
    ROLLED for (int j = 0; j < tile->count; j++) {
        const char *value = tile->values + j * tile->row_bytes;
        vec own[COLUMNS];
        if (at == 0) fetch(value + TILE * tile->row_bytes, dim, kind);
        for (int c = 0; c < COLUMNS; c++) own[c] = widened(value, at + c * WIDTH, kind);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < COLUMNS; c++) sums[r][c] += own[c] * weights[r][j];
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < COLUMNS; c++) *(vec_in *)(out[r] + at + c * WIDTH) = sums[r][c];
}

/* One query's running result over the keys seen so far: largest score, sum of exponentials, weighted
   values. */
struct partial {
    float *out; /* [dim] */
    float *top, *sum;
};

/* Turns the scores of `rows` queries into weights under their new largest scores, 0 behind the visible[r]
   first keys, times the values' scales. `shrink`: what the results so far are to be multiplied by. */
INLINE void weigh(float scores[][TILE], const struct tile *tile, const int *visible, const struct partial *to,
                  float *shrink, const int rows) {
    float was[ROW_LANES] = {}, tops[ROW_LANES] = {}, sums[ROWS];
    for (int r = 0; r < rows; r++) {
        for (int j = visible[r]; j < TILE; j++) scores[r][j] = LEAST;
        was[r] = *to[r].top;
        vec top = filled(was[r]), sum = {};
        for (int j = 0; j < TILE; j += WIDTH) top = at_least(top, *(vec *)(scores[r] + j));
        tops[r] = largest(top);
        for (int j = 0; j < TILE; j += WIDTH)
            *(vec *)(scores[r] + j) = exponential(*(vec *)(scores[r] + j) - tops[r]);
        for (int j = visible[r]; j < TILE; j++) scores[r][j] = 0.0f;
        for (int j = 0; j < TILE; j += WIDTH) {
            sum += *(vec *)(scores[r] + j);
            *(vec *)(scores[r] + j) *= *(const vec *)(tile->value_scales + j);
        }
        sums[r] = sum_of(sum);
    }
    for (int r = 0; r < rows; r += WIDTH)
        *(vec_in *)(shrink + r) = exponential(*(vec_in *)(was + r) - *(vec_in *)(tops + r));
    for (int r = 0; r < rows; r++) {
        *to[r].sum = *to[r].sum * shrink[r] + sums[r];
        *to[r].top = tops[r];
    }
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

static const float *query_of(const struct attention *a, int head, int row) {
    int group = a->heads / a->kv_heads;
    return a->q + ((int64_t)(row / group) * a->heads + head * group + row % group) * a->head_dim;
}

/* `rows` queries of one KV head, from row `row` on, over one tile; `few` holds them where they are few. */
INLINE void attend_rows(const struct attention *a, const struct tile *tile, const struct spread *few,
                        int head, int unit, int row, const int rows, const int dim, const int kind) {
    float weights[ROWS][TILE] __attribute__((aligned(LINE))), shrink[ROW_LANES], *out[ROWS];
    int visible[ROWS];
    const float *q[ROWS];
    struct partial to[ROWS];
    int group = a->heads / a->kv_heads;
    for (int r = 0; r < rows; r++) {
        q[r] = query_of(a, head, row + r);
        to[r] = partial_of(a, head, unit, row + r);
        out[r] = to[r].out;
    }
    if (few) score_few(few, tile, weights, rows < FEW ? rows : FEW, dim, kind);
    else for (int at = 0; at < tile->count; at += SPAN) score(q, tile, at, weights, rows, dim, kind);
    for (int r = 0; r < rows; r++) {
        int64_t seen = (a->causal ? a->length - a->n + (row + r) / group + 1 : a->length) - tile->first;
        visible[r] = seen < 0 ? 0 : seen > tile->count ? tile->count : (int)seen;
    }
    weigh(weights, tile, visible, to, shrink, rows);
    for (int at = 0; at < dim; at += SPAN) add_values(out, tile, at, weights, shrink, rows, dim, kind);
}

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
        struct partial to = partial_of(a, head, unit, row);
        memset(to.out, 0, dim * sizeof(float));
        *to.top = LEAST;
        *to.sum = 0.0f;
    }
    struct spread few[FEW];
    for (int row = 0; row < rows && rows <= FEW; row++)
        spread_out(query_of(a, head, row), few + row, dim, kind);
    struct tile tile;
    for (int64_t at = keys.first; at < keys.end; at += TILE) {
        take_tile(a, &keys, at, &tile, dim, kind);
        if (rows > FEW) turn_keys(&tile, dim, kind);
        int groups = (rows + ROWS - 1) / ROWS; /* of queries, as alike as can be */
        for (int row = 0; groups; groups--) {
            int many = (rows - row + groups - 1) / groups;
#define OF_ROWS(many) attend_rows(a, &tile, rows > FEW ? 0 : few, head, unit, row, many, dim, kind)
            WITH_CONSTANT(many, OF_ROWS)
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
            float own = *partial_of(a, head, unit, row).top;
            top = own > top ? own : top;
        }
        for (int unit = 0; unit < units; unit++) {
            struct partial part = partial_of(a, head, unit, row);
            float weight = exponential_of(*part.top - top);
            sum += *part.sum * weight;
            for (int c = 0; c < dim; c++) out[c] += part.out[c] * weight;
        }
        for (int c = 0; c < dim && sum > 0; c++) out[c] /= sum;
        a->lse[at] = sum > 0 ? top + logarithm(sum) : -__builtin_inff();
    }
}

/* `function` for the rows at hand: the size of a head and the kind of its numbers as constants. */
#define BY_ROWS(function, ...)                                                           \
    do {                                                                                 \
        if (a->head_dim == 64 && a->kind == BF16) function(__VA_ARGS__, 64, BF16);       \
        else if (a->head_dim == 128 && a->kind == BF16) function(__VA_ARGS__, 128, BF16); \
        else if (a->head_dim == 64 && a->kind == INT8) function(__VA_ARGS__, 64, INT8);  \
        else if (a->head_dim == 128 && a->kind == INT8) function(__VA_ARGS__, 128, INT8); \
        else if (a->head_dim == 64) function(__VA_ARGS__, 64, FP32);                     \
        else function(__VA_ARGS__, 128, FP32);                                           \
    } while (0)

static void work(void *given) {
    struct attention *a = given;
    int units = units_per_head(a);
    for (;;) {
        int next = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
        if (next >= units * a->kv_heads) return;
        int head = next % a->kv_heads, unit = next / a->kv_heads;
        BY_ROWS(attend_unit, a, head, unit);
        if (__atomic_add_fetch(&a->done[head], 1, __ATOMIC_ACQ_REL) == units) join(a, head);
    }
}

#include "chunks.h"

#ifdef SOURCE
EXPORT const char *source_sha256(void) { return SOURCE; }
#endif

/* Floats of scratch memory that a call needs. */
EXPORT int64_t NAMED(scratch_floats, ISA)(const struct attention *a) {
    return (int64_t)units_per_head(a) * a->n * a->heads * (a->head_dim + 2);
}

EXPORT void NAMED(attend, ISA)(struct attention *a) { on_threads(&a->team, work, a); }

/* Of one query, keys alone: `chunk_lse`. */
EXPORT void NAMED(chunks, ISA)(struct attention *a) { on_threads(&a->team, work_on_chunks, a); }
