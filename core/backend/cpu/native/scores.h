/* Scores of queries and a tile of keys. Part of attention.c, whose beginning says how. */

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define TILE 64 /* keys of a tile */
#define ROWS (WIDTH == 8 ? 6 : 12) /* queries whose sums lie in registers, COLUMNS of them each */
#define COLUMNS(rows) (WIDTH == 8 || (rows) > 6 ? 2 : 4)
#define SPAN(rows) (COLUMNS(rows) * WIDTH)
#define FEW (WIDTH == 8 ? 3 : 4) /* queries of which four sums each lie in registers */
#define ROW_LANES ((ROWS + WIDTH - 1) / WIDTH * WIDTH)
#define ALIGNED __attribute__((aligned(LINE)))
#define MOST_DIM 512
#define LINE 64 /* bytes of a cache line */
#define WHOLE _Pragma("clang loop unroll(full)") /* code whose sums are to lie in registers */
#define ROLLED _Pragma("clang loop unroll(disable)") /* code that fits the cache of decoded instructions */

/* Codes are multiplied as integers: pairs of int16, whose products are added to an int32. On Arm, whose
   baseline has no such instruction, they become fp32. */
#define CODED(kind) ((kind) == INT8 && WIDTH > 4)
#define MOST_CODE 32767.0f

typedef int8_t bvec __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef int8_t bpairs __attribute__((vector_size(2 * WIDTH)));
typedef int16_t svec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t quarter __attribute__((vector_size(16), aligned(4), may_alias)); /* four words */
typedef float quarter_in __attribute__((vector_size(16), aligned(4), may_alias));

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

/* The codes in places i and i + 2 of each of WIDTH words, as pairs. */
INLINE svec coded(ivec words, const int i) { return (i ? (svec)words : (svec)((uvec)words << 8)) >> 8; }

/* WIDTH codes of two rows, from `at` on, as pairs. */
INLINE svec beside(const char *one, const char *other, int at) {
    bvec a = *(const bvec *)((const int8_t *)one + at), b = *(const bvec *)((const int8_t *)other + at);
    return __builtin_convertvector((bpairs)SIDE_BY_SIDE(a, b, IN_TURN), svec);
}

/* `sums` and, lane by lane, both products of two pairs. Exact. */
INLINE ivec plus_products(ivec sums, svec one, svec other) {
#if WIDTH == 16
    return (ivec)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)one, (__m512i)other);
#elif defined(__AVXVNNI__)
    return (ivec)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)one, (__m256i)other);
#elif WIDTH == 8
    return sums + (ivec)_mm256_madd_epi16((__m256i)one, (__m256i)other);
#else
    (void)one, (void)other;
    return sums; /* not called */
#endif
}

/* The word at `from` in every lane. */
INLINE svec everywhere(const void *from) {
    int32_t word;
    memcpy(&word, from, sizeof word);
    return (svec)((ivec){} + word);
}

/* The nearest integers to |x| < 2^22. */
INLINE ivec nearest(vec x) { return (ivec)(x + 12582912.0f) - (ivec)filled(12582912.0f); }

INLINE int size_of(const int kind) { return kind == FP32 ? 4 : kind == BF16 ? 2 : 1; }

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
    float key_scales[TILE], value_scales[TILE]; /* of int8 codes */
    const char *keys, *values; /* rows of the cache */
    int64_t first, row_bytes;  /* first: which of all keys the first one is */
    int count;
} __attribute__((aligned(LINE)));

/* Asks for part `step` of `steps` of the next tile's rows behind `rows`, into the CPU's second cache: it does
   not see by itself that rows this short are read in order, and waits where it is asked for many at once. */
INLINE void fetch_part(const char *rows, int64_t row_bytes, int step, const int steps, const int dim,
                       const int kind) {
    const int lines = TILE * (dim * size_of(kind) + (kind == INT8 ? 4 : 0)) / LINE;
    const int each = (lines + steps - 1) / steps;
    for (int i = 0; i < each; i++)
        __builtin_prefetch(rows + TILE * row_bytes + (step * each + i) * LINE, 0, 2);
}

INLINE float scale_of(const char *row, const int dim) {
    float scale;
    memcpy(&scale, row + dim, 4);
    return scale;
}

INLINE void read_scales(struct tile *tile, const int dim, const int kind) {
    for (int j = 0; j < TILE && kind == INT8; j++) {
        int64_t at = j < tile->count ? j * tile->row_bytes : 0;
        tile->key_scales[j] = scale_of(tile->keys + at, dim);
        tile->value_scales[j] = scale_of(tile->values + at, dim);
    }
}

/* The WIDTH keys of a tile from key `group` on; its first one for those behind its last. */
INLINE void keys_of(const struct tile *tile, int group, const char *rows[WIDTH]) {
    for (int j = 0; j < WIDTH; j++)
        rows[j] = tile->keys + (group + j < tile->count ? group + j : 0) * tile->row_bytes;
}

INLINE void turn_keys(struct tile *tile, const int dim, const int kind) {
    ROLLED for (int group = 0; group < tile->count; group += WIDTH) {
        const char *rows[WIDTH];
        keys_of(tile, group, rows);
        ROLLED for (int word = 0; word < dim * size_of(kind) / 4; word += 4) {
            ivec some[4];
            gathered(rows, word * 4, some);
            transpose(some);
            for (int w = 0; w < 4; w++) tile->turned[((word + w) * TILE + group) / WIDTH] = some[w];
        }
    }
}

/* A query as int16, those of word w in pairs 2 w and 2 w + 1 as `coded` gives a key's, and behind them what
   one is worth. In place: `q` holds `dim` numbers before, and these after. */
INLINE void code_query(float *q, const int dim) {
    vec most = {};
    for (int i = 0; i < dim; i += WIDTH) {
        vec own = *(vec_in *)(q + i);
        most = at_least(most, at_least(own, -own));
    }
    float top = largest(most), factor = top > 1e-30f ? MOST_CODE / top : 0.0f;
    for (int i = 0; i < dim; i += WIDTH) { /* number i is at 4 i, and its code at 2 i: none is lost */
        ivec own = nearest(*(vec_in *)(q + i) * factor);
        *(hvec *)((uint16_t *)q + i) = __builtin_convertvector(SIDE_BY_SIDE(own, own, MIDDLE_TURNED), hvec);
    }
    q[dim / 2] = top / MOST_CODE;
}

/* `score` of coded queries and codes. */
INLINE void score_codes(const float *q, const int stride, const struct tile *tile, int at, float to[][TILE],
                        const int rows, const int dim) {
    const int words = dim / 4, columns = COLUMNS(rows);
    ivec sums[ROWS][4] = {};
    ROLLED for (int word = 0; word < words; word++) {
        int step = at / SPAN(rows) * words + word;
        fetch_part(tile->keys, tile->row_bytes, step, TILE / SPAN(rows) * words, dim, INT8);
        WHOLE for (int i = 0; i < 2; i++) {
            svec own[4];
            WHOLE for (int c = 0; c < columns; c++)
                own[c] = coded(tile->turned[(word * TILE + at) / WIDTH + c], i);
            WHOLE for (int r = 0; r < rows; r++) {
                svec pair = everywhere(q + r * stride + word * 2 + i);
                WHOLE for (int c = 0; c < columns; c++) sums[r][c] = plus_products(sums[r][c], own[c], pair);
            }
        }
    }
    WHOLE for (int r = 0; r < rows; r++)
        WHOLE for (int c = 0; c < columns; c++) {
            int key = at + c * WIDTH;
            vec sum = __builtin_convertvector(sums[r][c], vec) * *(const vec *)(tile->key_scales + key);
            *(vec *)(to[r] + key) = sum * q[r * stride + dim / 2];
        }
}

/* Scores of `rows` queries q [dim], `stride` apart, and SPAN turned keys from key `at` on. */
INLINE void score(const float *q, const int stride, const struct tile *tile, int at, float to[][TILE],
                  const int rows, const int dim, const int kind) {
    if (CODED(kind)) return score_codes(q, stride, tile, at, to, rows, dim);
    const int per = 4 / size_of(kind); /* numbers in a word */
    const int words = dim / per, columns = COLUMNS(rows);
    ROLLED for (int first = 0; first < 4; first++) {
        vec sums[ROWS][4] = {};
        ROLLED for (int word = first; word < words; word += 4) {
            int step = (at / SPAN(rows) * 4 + first) * (words / 4) + word / 4;
            fetch_part(tile->keys, tile->row_bytes, step, TILE / SPAN(rows) * words, dim, kind);
            WHOLE for (int i = 0; i < per; i++) {
                vec own[4];
                WHOLE for (int c = 0; c < columns; c++)
                    own[c] = unpacked(tile->turned[(word * TILE + at) / WIDTH + c], i, kind);
                WHOLE for (int r = 0; r < rows; r++)
                    WHOLE for (int c = 0; c < columns; c++)
                        sums[r][c] += own[c] * q[r * stride + word * per + i];
            }
        }
        WHOLE for (int r = 0; r < rows; r++)
            WHOLE for (int c = 0; c < columns; c++) {
                vec *sum = (vec *)(to[r] + at + c * WIDTH);
                *sum = first ? *sum + sums[r][c] : sums[r][c];
            }
    }
    for (int r = 0; r < rows && kind == INT8; r++)
        for (int key = at; key < at + SPAN(rows); key += WIDTH)
            *(vec *)(to[r] + key) *= *(const vec *)(tile->key_scales + key);
}

/* A query as `score_few` reads it: number i (pair i, of codes) of four words in every quarter of vector
   [word / 4][i]. */
struct spread { vec numbers[MOST_DIM / 4]; float factor; };

INLINE void spread_out(const float *q, struct spread *to, const int dim, const int kind) {
    const int per = CODED(kind) ? 2 : 4 / size_of(kind);
    const int words = CODED(kind) ? dim / 4 : dim / per;
    to->factor = q[dim / 2]; /* of codes */
    for (int word = 0; word < words; word += 4)
        for (int i = 0; i < per; i++)
            for (int lane = 0; lane < WIDTH; lane++)
                to->numbers[word / 4 * per + i][lane] = q[(word + lane % 4) * per + i];
}

/* Scores of `rows` queries, at most FEW, and all keys of a tile as they lie. */
INLINE void score_few(const struct spread *q, const struct tile *tile, float to[][TILE], const int rows,
                      const int dim, const int kind) {
    const int per = CODED(kind) ? 2 : 4 / size_of(kind); /* numbers, or pairs, in a word */
    const int words = dim * size_of(kind) / 4, steps = TILE / WIDTH * words / 4;
    ROLLED for (int group = 0; group < tile->count; group += WIDTH) {
        const char *keys[WIDTH];
        vec sums[ROWS][4] = {};
        keys_of(tile, group, keys);
        ROLLED for (int word = 0; word < words; word += 4) {
            ivec some[4];
            int step = group / WIDTH * (words / 4) + word / 4;
            fetch_part(tile->keys, tile->row_bytes, step, steps, dim, kind);
            gathered(keys, word * 4, some);
            for (int i = 0; i < per; i++)
                for (int j = 0; j < 4; j++)
                    for (int r = 0; r < rows; r++) {
                        vec own = q[r].numbers[word / 4 * per + i], *sum = sums[r] + j;
                        if (CODED(kind)) *sum = (vec)plus_products((ivec)*sum, coded(some[j], i), (svec)own);
                        else *sum += unpacked(some[j], i, kind) * own;
                    }
        }
        for (int r = 0; r < rows; r++) {
            ivec *own = (ivec *)sums[r];
            transpose(own);
            vec sum = CODED(kind) ? __builtin_convertvector(own[0] + own[1] + own[2] + own[3], vec)
                                  : sums[r][0] + sums[r][1] + sums[r][2] + sums[r][3];
            if (kind == INT8) sum *= *(const vec *)(tile->key_scales + group);
            *(vec *)(to[r] + group) = CODED(kind) ? sum * q[r].factor : sum;
        }
    }
}
