/* Products of a few rows with a matrix whose weights are held in codes of 4, 5, 6 or 8 bits, or as bf16,
   at the speed of memory.

   A code stands for scale * code + offset, scale and offset being those of its group of 16 or 32 inputs; a
   weight is decoded to fp32 in registers, which is exactly the number that `decode` writes, and multiplied
   in fp32. core/backend/codes.py says how codes, scales and offsets lie in memory.

   The arithmetic of one output number looks at its own row of inputs and its own row of weights alone, in
   one order: so it does not depend on the number of threads, nor on the rows beside it. Threads take UNIT
   rows of weights at a time from a counter.

   This file is compiled once per instruction set: WIDTH is the number of fp32 lanes of a register, ISA a
   part of the functions' names. */

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "vectors.h"
#include "threads.h"
#include "products.h"

#define CHUNK 32       /* codes whose nibbles lie in 16 bytes: the first half in the low ones */
#define UNIT 32        /* rows of weights that a thread takes at a time */
#define FEW 6          /* rows of inputs whose sums lie in registers */
#define QUAD 4         /* rows of weights that share a load of inputs where there is one row of these, */
#define PAIR (WIDTH == 8 ? 2 : QUAD) /* and else: as many as registers hold sums of */
#define SPAN 256       /* weights under one pair of fp16 factors, where groups have steps of their own */

typedef uint8_t bvec __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int8_t step8 __attribute__((vector_size(8), aligned(1), may_alias));
typedef int8_t sbvec __attribute__((vector_size(WIDTH), aligned(1), may_alias));

#if WIDTH == 16
#define LANES ((uvec){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#elif WIDTH == 8
#define LANES ((uvec){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define LANES ((uvec){0, 1, 2, 3})
#endif

/* Scale and offset of each group of one row of weights. */
struct factors {
    float *scale, *offset;
};

/* One factor of each of a row's groups, as fp32. */
INLINE void spread(const _Float16 *factor, const int8_t *steps, int64_t row, int64_t in, int group,
                   float *restrict to) {
    int64_t groups = in / group, spans = in / SPAN, per = SPAN / group; /* per: 8 or 16 */
    if (!steps) {
        for (int64_t g = 0; g < groups; g++) to[g] = (float)factor[row * groups + g];
        return;
    }
    factor += row * spans;
    steps += row * groups;
    for (int64_t g = 0; g < groups; g += 8) {
        float8 some = __builtin_convertvector(*(const step8 *)(steps + g), float8);
        *(float8 *)(to + g) = some * (float)factor[g / per];
    }
}

INLINE void factors_of(const struct planes *m, int64_t row, int64_t in, const struct factors *to,
                       const int group) {
    if (!m->scale) return;
    spread(m->scale, m->scale_steps, row, in, group, to->scale);
    if (m->offset) {
        spread(m->offset, m->offset_steps, row, in, group, to->offset);
        return;
    }
    float zero = (float)-m->middle;
    float *restrict offset = to->offset;
    const float *restrict scale = to->scale;
    for (int64_t g = 0; g < in / group; g++) offset[g] = scale[g] * zero;
}

/* WIDTH codes of a row, from lane `at` of half `half` (0, 1) of a chunk on. */
INLINE ivec codes_at(const uint8_t *low, const uint8_t *high, int64_t chunk, const int half, const int at,
                     const int bits) {
    if (bits == 8)
        return __builtin_convertvector(*(const sbvec *)(low + chunk * CHUNK + half * 16 + at), ivec);
    uvec code = __builtin_convertvector(*(const bvec *)(low + chunk * 16 + at), uvec);
    code = half ? code >> 4 : code & 15;
    if (bits > 4) {
        uint32_t word = 0;
        const int bytes = bits == 5 ? 2 : 4, each = bits - 4;
        memcpy(&word, high + (chunk * 2 + half) * bytes, bytes);
        code |= ((((uvec){} + word) >> ((LANES + at) * each)) & ((1 << each) - 1)) << 4;
    }
    return (ivec)code;
}

#if WIDTH == 16
/* Weights of half `half` of a chunk: all numbers that 16 codes stand for lie in a register, and each lane
   takes the one that its nibble names; with a fifth bit, of a second register. */
INLINE vec named(const uint8_t *low, const uint8_t *high, float scale, float offset, const int half,
                 const int bits) {
    const vec numbers = __builtin_convertvector((ivec)LANES, vec);
    uvec codes = __builtin_convertvector(*(const bvec *)low, uvec);
    __m512i nibbles = (__m512i)(half ? codes >> 4 : codes);
    __m512 found = _mm512_permutexvar_ps(nibbles, (__m512)(numbers * scale + offset));
    if (bits == 4) return (vec)found;
    uint16_t above;
    memcpy(&above, high, sizeof above);
    __m512 others = (__m512)((numbers + 16.0f) * scale + offset);
    return (vec)_mm512_mask_permutexvar_ps(found, above, nibbles, others);
}
#endif

INLINE vec weights_at(const uint8_t *low, const uint8_t *high, const struct factors f, int64_t chunk,
                      const int half, const int at, const int bits, const int group) {
    if (bits == 16) {
        const hvec *some = (const hvec *)((const uint16_t *)low + chunk * CHUNK + half * 16 + at);
        return (vec)(__builtin_convertvector(*some, uvec) << 16);
    }
    int64_t g = group == 16 ? chunk * 2 + half : chunk;
#if WIDTH == 16
    if (bits <= 5)
        return named(low + chunk * 16, high + chunk * 4 + half * 2, f.scale[g], f.offset[g], half, bits);
#endif
    ivec codes = codes_at(low, high, chunk, half, at, bits);
    return __builtin_convertvector(codes, vec) * f.scale[g] + f.offset[g];
}

INLINE int64_t low_bytes_of(int64_t codes, const int bits) { return bits < 8 ? codes / 2 : codes * bits / 8; }
INLINE const uint8_t *low_of(const struct planes *m, int64_t row, int64_t in, const int bits) {
    return m->low + row * low_bytes_of(in, bits);
}
INLINE const uint8_t *high_of(const struct planes *m, int64_t row, int64_t in, const int bits) {
    return bits == 5 || bits == 6 ? m->high + row * (in * (bits - 4) / 8) : 0;
}

/* One row of weights as fp32 [in]. */
INLINE void decode_row(const struct planes *m, int64_t row, int64_t in, const struct factors *f, float *to,
                       const int bits, const int group) {
    const uint8_t *low = low_of(m, row, in, bits), *high = high_of(m, row, in, bits);
    factors_of(m, row, in, f, group);
    const struct factors own = *f;
    const int64_t low_bytes = PAIR * low_bytes_of(in, bits), high_bytes = PAIR * (in * (bits - 4) / 8);
    for (int64_t chunk = 0; chunk < in / CHUNK; chunk++) {
        /* what is decoded next, while this is multiplied */
        __builtin_prefetch(low + low_bytes + chunk * low_bytes_of(CHUNK, bits));
        if (bits == 5 || bits == 6) __builtin_prefetch(high + high_bytes + chunk * (bits == 5 ? 4 : 8));
        for (int half = 0; half < 2; half++)
            for (int at = 0; at < 16; at += WIDTH)
                *(vec_in *)(to + chunk * CHUNK + half * 16 + at) =
                    weights_at(low, high, own, chunk, half, at, bits, group);
    }
}

INLINE void put_sums(const vec *sums, float *out, int64_t out_row, const int rows, const int many) {
    float found[FEW * QUAD];
    sums_of(sums, found, rows * many);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < many; i++) out[r * out_row + i] = found[r * many + i];
}

/* `rows` rows of inputs by `many` rows of weights, straight from the codes. */
INLINE void multiply(const struct product *p, const struct planes *m, int64_t row, const struct factors *f,
                     const float *x, float *out, int64_t out_row, const int rows, const int many,
                     const int bits, const int group) {
    int64_t in = p->in;
    vec sums[FEW * QUAD] = {};
    const uint8_t *low[QUAD], *high[QUAD];
    struct factors own[QUAD];
    for (int i = 0; i < many; i++) {
        own[i] = f[i];
        low[i] = low_of(m, row + i, in, bits);
        high[i] = high_of(m, row + i, in, bits);
    }
    int64_t low_bytes = many * low_bytes_of(in, bits);
    int64_t high_bytes = high_of(m, many, in, bits) - high_of(m, 0, in, bits);
    for (int64_t chunk = 0; chunk < in / CHUNK; chunk++) {
        /* the next rows of weights: a row is too short for the CPU to see that it is read in order */
        for (int i = 0; i < many; i++) {
            __builtin_prefetch(low[i] + low_bytes + chunk * low_bytes_of(CHUNK, bits));
            const int above = bits == 5 ? 4 : 8; /* bytes of a chunk's bits above the nibbles */
            if (bits == 5 || bits == 6) __builtin_prefetch(high[i] + high_bytes + chunk * above);
        }
        for (int at = 0; at < 16; at += WIDTH)
            for (int half = 0; half < 2; half++) {
                const float *inputs = x + chunk * CHUNK + half * 16 + at;
                vec w[QUAD];
                for (int i = 0; i < many; i++)
                    w[i] = weights_at(low[i], high[i], own[i], chunk, half, at, bits, group);
                for (int r = 0; r < rows; r++) {
                    vec some = *(const vec_in *)(inputs + r * in);
                    for (int i = 0; i < many; i++) sums[r * many + i] += some * w[i];
                }
            }
    }
    put_sums(sums, out, out_row, rows, many);
}

/* The same from decoded weights w [many][in]: the same sums in the same order. */
INLINE void multiply_decoded(const float *w, int64_t in, const float *x, float *out, int64_t out_row,
                             const int rows, const int many) {
    vec sums[FEW * PAIR] = {};
    for (int64_t chunk = 0; chunk < in / CHUNK; chunk++)
        for (int at = 0; at < 16; at += WIDTH)
            for (int half = 0; half < 2; half++) {
                int64_t place = chunk * CHUNK + half * 16 + at;
                for (int r = 0; r < rows; r++) {
                    vec some = *(const vec_in *)(x + r * in + place);
                    for (int i = 0; i < many; i++)
                        sums[r * many + i] += some * *(const vec_in *)(w + i * in + place);
                }
            }
    put_sums(sums, out, out_row, rows, many);
}

/* One row of inputs by QUAD rows of weights: as many sums as an addition takes steps. */
INLINE void multiply_one(const struct product *p, const struct planes *m, int64_t row, float *out,
                         int64_t out_row, const struct factors *f, const int bits, const int group) {
    for (int i = 0; i < QUAD; i++) factors_of(m, row + i, p->in, f + i, group);
    multiply(p, m, row, f, p->x, out, out_row, 1, QUAD, bits, group);
}

/* All rows of inputs by `many` rows of weights from `row` on. */
INLINE void multiply_rows(const struct product *p, const struct planes *m, int64_t row, float *out,
                          int64_t out_row, const struct factors *f, float *w, const int many, const int bits,
                          const int group) {
    int n = p->n;
    if (n <= FEW) {
        for (int i = 0; i < many; i++) factors_of(m, row + i, p->in, f + i, group);
#define FROM_CODES(rows) multiply(p, m, row, f, p->x, out, out_row, rows, many, bits, group)
        WITH_CONSTANT(n, FROM_CODES)
        return;
    }
    for (int i = 0; i < many; i++) decode_row(m, row + i, p->in, f, w + i * p->in, bits, group);
    int tiles = (n + FEW - 1) / FEW; /* of rows as alike as can be */
    for (int r = 0; tiles; tiles--) {
        int rows = (n - r + tiles - 1) / tiles;
        const float *x = p->x + r * p->in;
#define FROM_NUMBERS(rows) multiply_decoded(w, p->in, x, out + r * out_row, out_row, rows, many)
        WITH_CONSTANT(rows, FROM_NUMBERS)
        r += rows;
    }
}

/* What a thread writes to beside the results. */
struct space {
    struct factors factors[QUAD];
    float *weights; /* [QUAD][in] */
};

static int64_t scratch_floats(int64_t in) { return QUAD * (in + 2 * (in / 16)); }

static struct space space_at(float *scratch, int64_t in) {
    struct space s = {.weights = scratch};
    for (int i = 0; i < QUAD; i++) {
        s.factors[i].scale = scratch + QUAD * in + 2 * i * (in / 16);
        s.factors[i].offset = s.factors[i].scale + in / 16;
    }
    return s;
}

static struct space space_of(struct product *p) {
    int64_t seat = __atomic_fetch_add(&p->seats, 1, __ATOMIC_RELAXED);
    return space_at(p->scratch + seat * scratch_floats(p->in), p->in);
}

INLINE void unit_of(const struct product *p, const struct planes *m, int64_t first, int64_t end, float *out,
                    int64_t out_row, const struct space *s, const int bits, const int group) {
    int64_t row = first;
    /* codes of 5 and 6 bits need the registers themselves */
    for (; p->n == 1 && bits != 5 && bits != 6 && row + QUAD <= end; row += QUAD)
        multiply_one(p, m, row, out + row, out_row, s->factors, bits, group);
    for (; row + PAIR <= end; row += PAIR)
        multiply_rows(p, m, row, out + row, out_row, s->factors, s->weights, PAIR, bits, group);
    for (; row < end; row++) multiply_rows(p, m, row, out + row, out_row, s->factors, s->weights, 1, bits,
        group);
}

INLINE void decode_unit(const struct product *p, const struct planes *m, int64_t first, int64_t end,
                        const struct space *s, const int bits, const int group) {
    for (int64_t row = first; row < end; row++) {
        int64_t at = (row - p->first) * p->in;
        if (!p->as_bf16) {
            decode_row(m, row, p->in, s->factors, (float *)p->decoded + at, bits, group);
            continue;
        }
        decode_row(m, row, p->in, s->factors, s->weights, bits, group);
        narrowed(s->weights, (uint16_t *)p->decoded + at, p->in);
    }
}

#define BY_BITS(function, ...)                                      \
    do {                                                            \
        if (m->bits == 4) function(__VA_ARGS__, 4, 32);             \
        else if (m->bits == 5) function(__VA_ARGS__, 5, 32);        \
        else if (m->bits == 6) function(__VA_ARGS__, 6, 16);        \
        else function(__VA_ARGS__, 8, 32);                          \
    } while (0)
#define BY_KIND(function, ...)                                      \
    do {                                                            \
        if (m->bits == 16) function(__VA_ARGS__, 16, 32);           \
        else BY_BITS(function, __VA_ARGS__);                        \
    } while (0)

static int64_t units_of(int64_t rows) { return (rows + UNIT - 1) / UNIT; }

static void decode_some(struct product *p, const struct space *s) {
    const struct planes *m = p->parts;
    for (;;) {
        int64_t first = p->first + (int64_t)__atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED) * UNIT;
        int64_t last = p->first + p->count, end = first + UNIT < last ? first + UNIT : last;
        if (first >= last) return;
        BY_KIND(decode_unit, p, m, first, end, s);
    }
}

static int64_t rows_in_all(const struct product *p) {
    int64_t rows = 0;
    for (int i = 0; i < p->num_parts; i++) rows += p->parts[i].rows;
    return rows;
}

/* The next rows of weights to be multiplied, `first` to `end`, and where the results of their matrix go. */
static const struct planes *next_unit(struct product *p, int64_t *first, int64_t *end, float **out) {
    int64_t unit = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
    const struct planes *m = p->parts, *behind = p->parts + p->num_parts;
    *out = p->out;
    for (; m < behind && unit >= units_of(m->rows); m++) {
        unit -= units_of(m->rows);
        *out += m->rows;
    }
    *first = unit * UNIT;
    *end = m < behind && *first + UNIT > m->rows ? m->rows : *first + UNIT;
    return m < behind ? m : 0;
}

static void multiply_some(struct product *p, const struct space *s) {
    int64_t first, end, out_row = rows_in_all(p);
    const struct planes *m;
    float *out;
    while ((m = next_unit(p, &first, &end, &out))) BY_KIND(unit_of, p, m, first, end, out, out_row, s);
}

static void work(void *given) {
    struct product *p = given;
    struct space space = space_of(p);
    if (p->decoded) decode_some(p, &space);
    else multiply_some(p, &space);
}

#include "coarse.h"

#ifdef SOURCE
EXPORT const char *source_sha256(void) { return SOURCE; }
#endif

/* Floats of scratch memory that each thread needs. */
EXPORT int64_t NAMED(scratch_floats, ISA)(int64_t in) { return scratch_floats(in); }

EXPORT void NAMED(multiply, ISA)(struct product *p) { on_threads(&p->team, work, p); }

/* The same of inputs rounded to 8 bits where that is quicker. */
EXPORT int64_t NAMED(coarse_floats, ISA)(int64_t in) { return scratch_floats(in) + coarse_floats(in); }
EXPORT void NAMED(coarse, ISA)(struct product *p) {
    on_threads(&p->team, is_coarse(p) ? work_coarsely : work, p);
}
