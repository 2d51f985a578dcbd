/* The same products of inputs rounded to 8 bits, in integers: for passes whose tokens are verified by exact
   ones. Part of products.c.

   SPAN inputs share a scale, their largest number / 127. Four rows of weights are multiplied together: a
   lane of a register belongs to one of them and to a quarter, HALF neighbouring columns, and sums the
   products of a quarter exactly. Only then is there a number, times the scale of the quarter's group. */

#define REGISTER (4 * WIDTH)  /* codes */
#define MOST_COARSE 16        /* rows of inputs; of more the product is exact */
#define COARSE_STEP 64        /* columns come in so many */
#define HALF 16               /* codes in the low nibbles of a chunk, or in the high ones */

#define BESIDE 4              /* rows of weights beside each other */

#if WIDTH == 16 /* two chunks: both low halves, then both high ones */
#define HALVES_IN_ORDER 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15
#define HALF_OF_LANE 0, 0, 0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 3, 3, 3, 3
#define TWICE 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7
#define NIBBLE_SHIFT ((uvec){0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4})
#define BIT_SHIFT ((uvec){0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12})
#define WITH_DOTS __attribute__((target("avx512vnni")))
#define SETS 2 /* of four rows, which share a load of inputs: as many as registers hold */
#elif WIDTH == 8
#define HALVES_IN_ORDER 0, 1, 2, 3, 4, 5, 6, 7
#define HALF_OF_LANE 0, 0, 0, 0, 1, 1, 1, 1
#define TWICE 0, 1, 2, 3, 0, 1, 2, 3
#define NIBBLE_SHIFT ((uvec){0, 0, 0, 0, 4, 4, 4, 4})
#define BIT_SHIFT ((uvec){0, 4, 8, 12, 0, 4, 8, 12})
#define WITH_DOTS
#define SETS 1
#else /* half a chunk */
#define HALVES_IN_ORDER 0, 1, 2, 3
#define HALF_OF_LANE 0, 0, 0, 0
#define BIT_SHIFT ((uvec){0, 4, 8, 12})
#define WITH_DOTS
#define SETS 2
#endif
#define DOTS WITH_DOTS INLINE

#ifdef __x86_64__
#include <immintrin.h>
#define AS_IT_IS(x) __asm__("" : "+v"(x)) /* or the compiler makes a shift and an "or" a slow product */
#else
#define AS_IT_IS(x) __asm__("" : "+w"(x))
#endif
#define UNROLLED _Pragma("clang loop unroll(full)")

typedef int8_t sbytes __attribute__((vector_size(REGISTER), aligned(1), may_alias));
typedef uint16_t words8 __attribute__((vector_size(16)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef float float4 __attribute__((vector_size(16)));
typedef float float16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints16 __attribute__((vector_size(64)));
typedef int32_t ints4 __attribute__((vector_size(16)));
typedef uint32_t uint4 __attribute__((vector_size(16)));
typedef int8_t sbytes16 __attribute__((vector_size(16)));
typedef _Float16 half8 __attribute__((vector_size(16)));
typedef float halfvec __attribute__((vector_size(2 * WIDTH), aligned(4), may_alias));
typedef uint32_t halfuvec __attribute__((vector_size(2 * WIDTH), aligned(1), may_alias));

/* `sum` and, in each lane, four products of a code and an input, exactly. Codes are unsigned and below 64, or
   of 8 bits: on AVX-512 128 too large, else signed. */
DOTS ivec dots(ivec sum, uvec codes, sbytes x, const int bits) {
#if WIDTH == 16
    (void)bits;
    return (ivec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)x);
#elif WIDTH == 8
    __m256i a = (__m256i)codes, b = (__m256i)x;
    if (bits == 8) b = _mm256_sign_epi8(b, a), a = _mm256_abs_epi8(a);
    return sum + (ivec)_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1));
#else
    (void)bits;
    typedef int16_t products __attribute__((vector_size(2 * REGISTER)));
    typedef int32_t pairs __attribute__((vector_size(2 * REGISTER)));
    products all = __builtin_convertvector((sbytes)codes, products) * __builtin_convertvector(x, products);
    pairs two = __builtin_convertvector(SIDE_BY_SIDE(all, all, 0, 2, 4, 6, 8, 10, 12, 14), pairs) +
                __builtin_convertvector(SIDE_BY_SIDE(all, all, 1, 3, 5, 7, 9, 11, 13, 15), pairs);
    return sum + SIDE_BY_SIDE(two, two, 0, 2, 4, 6) + SIDE_BY_SIDE(two, two, 1, 3, 5, 7);
#endif
}

/* Four times `each` bits of every lane to the low bits of its bytes. */
INLINE uvec bits_to_bytes(uvec x, const int each) {
    uvec pair = x << (16 - 2 * each);
    AS_IT_IS(pair);
    x = (x | pair) & (((1u << 2 * each) - 1) * 0x10001u);
    uvec four = x << (8 - each);
    AS_IT_IS(four);
    return (x | four) & (((1u << each) - 1) * 0x1010101u);
}

/* Register `at` of a row's codes. */
INLINE uvec register_of(const uint8_t *low, const uint8_t *high, int64_t at, const int bits) {
    uvec codes;
    if (bits == 8) {
        memcpy(&codes, low + at * REGISTER, sizeof codes);
#if WIDTH == 16 /* in the order of the others */
        codes = __builtin_shufflevector(codes, codes, HALVES_IN_ORDER) ^ 0x80808080u;
#endif
        return codes;
    }
#if WIDTH == 4
    memcpy(&codes, low + at / 2 * HALF, sizeof codes);
    codes = codes >> (at % 2 * 4) & 0x0f0f0f0fu;
#else
    halfuvec packed = *(const halfuvec *)(low + at * (REGISTER / 2));
    codes = __builtin_shufflevector(packed, packed, TWICE) >> NIBBLE_SHIFT & 0x0f0f0f0fu;
#endif
    if (bits > 4) {
        const int each = bits - 4, size = REGISTER * each / 8;
        uvec above;
        if (each == 1) {
            words8 words = {};
            memcpy(&words, high + at * size, size);
            above = __builtin_convertvector(__builtin_shufflevector(words, words, HALF_OF_LANE), uvec);
            above = above >> BIT_SHIFT & 15;
        } else {
            bytes16 bytes = {};
            memcpy(&bytes, high + at * size, size);
            above = __builtin_convertvector(__builtin_shufflevector(bytes, bytes, HALVES_IN_ORDER), uvec);
        }
        codes |= bits_to_bytes(above, each) << 4;
    }
    return codes;
}

/* Register `at` of four rows, four columns of each quarter in each of `to`. */
INLINE void side_by_side(const uint8_t *const *low, const uint8_t *const *high, int64_t at, uvec *to,
                         const int bits) {
    uvec a = register_of(low[0], high[0], at, bits), b = register_of(low[1], high[1], at, bits);
    uvec c = register_of(low[2], high[2], at, bits), d = register_of(low[3], high[3], at, bits);
    uvec first = SIDE_BY_SIDE(a, b, LOW_WORDS), second = SIDE_BY_SIDE(c, d, LOW_WORDS);
    uvec third = SIDE_BY_SIDE(a, b, HIGH_WORDS), fourth = SIDE_BY_SIDE(c, d, HIGH_WORDS);
    to[0] = SIDE_BY_SIDE(first, second, LOW_PAIRS), to[1] = SIDE_BY_SIDE(first, second, HIGH_PAIRS);
    to[2] = SIDE_BY_SIDE(third, fourth, LOW_PAIRS), to[3] = SIDE_BY_SIDE(third, fourth, HIGH_PAIRS);
}

/* One factor of a register's lanes, of factors [groups][BESIDE]. */
INLINE vec lanes_of(const float *factor, int64_t at, const int group) {
    const int64_t first = at * REGISTER / group * BESIDE;
    if (group == HALF) {
        vec some = *(const vec_in *)(factor + first);
        return __builtin_shufflevector(some, some, HALVES_IN_ORDER);
    }
#if WIDTH == 4
    return *(const vec_in *)(factor + first);
#else
    halfvec some = *(const halfvec *)(factor + first);
    return __builtin_shufflevector(some, some, TWICE);
#endif
}

/* What a thread writes to beside the results. */
struct coarse {
    struct factors factors[SETS]; /* [groups][BESIDE] */
    int8_t *codes; /* [n][registers][4][REGISTER]: of each quarter four inputs, once for each row beside */
    float *sums;   /* [n][registers][WIDTH]: of each quarter, in codes, likewise */
    float *scales; /* [n][spans] */
    int64_t spans;
};

static int64_t spans_of(int64_t in) { return (in + SPAN - 1) / SPAN; }
static int64_t coarse_floats(int64_t in) {
    return SETS * 2 * BESIDE * (in / HALF) + MOST_COARSE * (in + in / 4 + spans_of(in));
}

static struct coarse coarse_of(struct product *p) {
    int64_t seat = __atomic_fetch_add(&p->seats, 1, __ATOMIC_RELAXED), each = BESIDE * (p->in / HALF);
    float *at = p->scratch + seat * coarse_floats(p->in);
    struct coarse c = {.spans = spans_of(p->in)};
    for (int i = 0; i < SETS; i++, at += 2 * each) c.factors[i] = (struct factors){at, at + each};
    c.codes = (int8_t *)at;
    c.sums = at + MOST_COARSE * p->in;
    c.scales = c.sums + MOST_COARSE * (p->in / 4);
    return c;
}

/* A quarter's inputs to codes, and their sum. */
INLINE void round_quarter(const float *x, float back, int8_t *codes, float *sums) {
    float16 nearest = *(const float16 *)x * back + 12582912.0f; /* 1.5 * 2^23: its low bits are the integer */
    ints16 whole = (ints16)nearest - 0x4b400000;
    ints4 own = (ints4)__builtin_convertvector(whole, sbytes16);
    ints4 four[4] = {SIDE_BY_SIDE(own, own, 0, 0, 0, 0), SIDE_BY_SIDE(own, own, 1, 1, 1, 1),
                     SIDE_BY_SIDE(own, own, 2, 2, 2, 2), SIDE_BY_SIDE(own, own, 3, 3, 3, 3)};
    for (int i = 0; i < 4; i++) memcpy(codes + i * REGISTER, four + i, sizeof *four);
    float4 sum = (float4){} + (float)__builtin_reduce_add(whole);
    memcpy(sums, &sum, sizeof sum);
}

static void round_row(const struct product *p, const struct coarse *c, int64_t row) {
    const float *x = p->x + row * p->in;
    for (int64_t span = 0; span < c->spans; span++) {
        int64_t first = span * SPAN, end = first + SPAN < p->in ? first + SPAN : p->in;
        vec most = {};
        for (int64_t i = first; i < end; i += WIDTH) {
            vec some = *(const vec_in *)(x + i);
            most = at_least(most, at_least(some, -some));
        }
        float top = largest(most), back = top > 0 ? 127 / top : 0;
        c->scales[row * c->spans + span] = top / 127;
        for (int64_t quarter = first / HALF; quarter < end / HALF; quarter++) {
            int64_t at = quarter * HALF / REGISTER, place = quarter % (REGISTER / HALF);
            if (WIDTH == 16 && (place == 1 || place == 2)) place = 3 - place;
            int8_t *codes = c->codes + row * p->in * 4 + at * 4 * REGISTER + place * HALF;
            float *sums = c->sums + row * (p->in / 4) + at * WIDTH + place * BESIDE;
            round_quarter(x + quarter * HALF, back, codes, sums);
        }
    }
}

#define FOUR_IN_TURN(a, b) a, b, a + 1, b + 1, a + 2, b + 2, a + 3, b + 3

/* One factor of four rows of weights, a group after the other: to [groups][BESIDE]. */
INLINE void spread_beside(const _Float16 *factor, const int8_t *steps, const int64_t *row, int64_t in,
                          const int group, float *restrict to) {
    int64_t groups = in / group, g = 0;
    if (steps) {
        const int64_t spans = in / SPAN, per = SPAN / group;
        for (; g < groups; g += 8) { /* groups of a span come by eights */
            step8 own[BESIDE];
            for (int i = 0; i < BESIDE; i++) memcpy(own + i, steps + row[i] * groups + g, sizeof *own);
            words8 ab = (words8)SIDE_BY_SIDE(own[0], own[1], FOUR_IN_TURN(0, 8), FOUR_IN_TURN(4, 12));
            words8 cd = (words8)SIDE_BY_SIDE(own[2], own[3], FOUR_IN_TURN(0, 8), FOUR_IN_TURN(4, 12));
            float4 by = {};
            for (int i = 0; i < BESIDE; i++) by[i] = (float)factor[row[i] * spans + g / per];
            float16 all = SIDE_BY_SIDE(by, by, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
            sbytes16 first = (sbytes16)SIDE_BY_SIDE(ab, cd, FOUR_IN_TURN(0, 8));
            sbytes16 last = (sbytes16)SIDE_BY_SIDE(ab, cd, FOUR_IN_TURN(4, 12));
            *(float16 *)(to + g * BESIDE) = __builtin_convertvector(first, float16) * all;
            *(float16 *)(to + (g + 4) * BESIDE) = __builtin_convertvector(last, float16) * all;
        }
        return;
    }
    for (; g + 8 <= groups; g += 8) {
        words8 ab[2], cd[2], w[BESIDE];
        for (int i = 0; i < BESIDE; i++) memcpy(w + i, factor + row[i] * groups + g, sizeof *w);
        ab[0] = SIDE_BY_SIDE(w[0], w[1], FOUR_IN_TURN(0, 8));
        ab[1] = SIDE_BY_SIDE(w[0], w[1], FOUR_IN_TURN(4, 12));
        cd[0] = SIDE_BY_SIDE(w[2], w[3], FOUR_IN_TURN(0, 8));
        cd[1] = SIDE_BY_SIDE(w[2], w[3], FOUR_IN_TURN(4, 12));
        for (int half = 0; half < 2; half++) {
            uint4 one = (uint4)ab[half], other = (uint4)cd[half];
            half8 first = (half8)SIDE_BY_SIDE(one, other, 0, 4, 1, 5);
            half8 last = (half8)SIDE_BY_SIDE(one, other, 2, 6, 3, 7);
            *(float8 *)(to + (g + 4 * half) * BESIDE) = __builtin_convertvector(first, float8);
            *(float8 *)(to + (g + 4 * half + 2) * BESIDE) = __builtin_convertvector(last, float8);
        }
    }
    for (; g < groups; g++)
        for (int i = 0; i < BESIDE; i++) to[g * BESIDE + i] = (float)factor[row[i] * groups + g];
}

/* The factors of four rows of weights from `first` on, the last one several times where there are fewer. */
INLINE void factors_beside(const struct planes *m, int64_t first, int64_t end, int64_t in,
                           const struct factors *to, const int bits, const int group) {
    int64_t row[BESIDE], numbers = in / group * BESIDE;
    for (int i = 0; i < BESIDE; i++) row[i] = first + i < end ? first + i : end - 1;
    spread_beside(m->scale, m->scale_steps, row, in, group, to->scale);
    if (m->offset) {
        spread_beside(m->offset, m->offset_steps, row, in, group, to->offset);
        return;
    }
    const float zero = bits == 8 && WIDTH == 16 ? -128 : -m->middle;
    float *restrict offset = to->offset;
    const float *restrict scale = to->scale;
    for (int64_t g = 0; g < numbers; g++) offset[g] = scale[g] * zero;
}

/* `rows` rows of inputs from `first` on by `sets` times four rows of weights. */
DOTS void multiply_coarse(const struct product *p, const uint8_t *const *low, const uint8_t *const *high,
                          const struct coarse *c, int64_t first, vec *sums, const int rows, const int sets,
                          const int bits, const int group) {
    int64_t in = p->in, low_bytes = sets * BESIDE * low_bytes_of(in, bits);
    int64_t high_bytes = sets * BESIDE * (in * (bits - 4) / 8);
    for (int i = 0; i < rows * sets; i++) sums[i] = filled(0);
    for (int64_t span = 0; span < c->spans; span++) {
        int64_t begin = span * SPAN, end = begin + SPAN < in ? begin + SPAN : in;
        vec part[FEW * SETS] = {};
        for (int64_t at = begin / REGISTER; at < end / REGISTER; at++) {
            uvec codes[SETS][4];
            vec scales[SETS], offsets[SETS];
            UNROLLED for (int s = 0; s < sets; s++) {
                UNROLLED for (int i = s * BESIDE; i < (s + 1) * BESIDE; i++) { /* the next rows of weights */
                    __builtin_prefetch(low[i] + low_bytes + at * low_bytes_of(REGISTER, bits));
                    if (bits == 5 || bits == 6)
                        __builtin_prefetch(high[i] + high_bytes + at * (REGISTER * (bits - 4) / 8));
                }
                side_by_side(low + s * BESIDE, high + s * BESIDE, at, codes[s], bits);
                scales[s] = lanes_of(c->factors[s].scale, at, group);
                offsets[s] = lanes_of(c->factors[s].offset, at, group);
            }
            UNROLLED for (int r = 0; r < rows; r++) {
                const int8_t *x = c->codes + (first + r) * in * 4 + at * 4 * REGISTER;
                vec sum = *(const vec_in *)(c->sums + (first + r) * (in / 4) + at * WIDTH);
                ivec found[SETS] = {};
                UNROLLED for (int four = 0; four < 4; four++)
                    UNROLLED for (int s = 0; s < sets; s++)
                        found[s] =
                            dots(found[s], codes[s][four], *(const sbytes *)(x + four * REGISTER), bits);
                UNROLLED for (int s = 0; s < sets; s++) {
                    part[r * sets + s] += sum * offsets[s];
                    part[r * sets + s] += __builtin_convertvector(found[s], vec) * scales[s];
                }
            }
        }
        UNROLLED for (int r = 0; r < rows; r++)
            UNROLLED for (int s = 0; s < sets; s++)
                sums[r * sets + s] += part[r * sets + s] * c->scales[(first + r) * c->spans + span];
    }
}

/* Of each row of weights, over its quarters. */
INLINE float4 total(vec x) {
    float4 quarters[WIDTH / 4], sum = {};
    memcpy(quarters, &x, sizeof x);
    for (int i = 0; i < WIDTH / 4; i++) sum += quarters[i];
    return sum;
}

/* All rows of inputs by rows `row` to `end` of weights, at most SETS * BESIDE. */
DOTS void coarse_rows(const struct product *p, const struct planes *m, int64_t row, int64_t end,
                      const struct coarse *c, float *out, int64_t out_row, const int sets, const int bits,
                      const int group) {
    const uint8_t *low[SETS * BESIDE], *high[SETS * BESIDE];
    for (int i = 0; i < sets * BESIDE; i++) {
        int64_t own = row + i < end ? row + i : end - 1;
        low[i] = low_of(m, own, p->in, bits);
        high[i] = high_of(m, own, p->in, bits);
    }
    for (int s = 0; s < sets; s++)
        factors_beside(m, row + s * BESIDE, end, p->in, c->factors + s, bits, group);
    int tiles = (p->n + FEW - 1) / FEW;
    for (int first = 0; tiles; tiles--) {
        int rows = (p->n - first + tiles - 1) / tiles;
        vec sums[FEW * SETS];
#define COARSELY(rows) multiply_coarse(p, low, high, c, first, sums, rows, sets, bits, group)
        WITH_CONSTANT(rows, COARSELY)
        for (int r = 0; r < rows; r++)
            for (int s = 0; s < sets; s++) {
                float4 all = total(sums[r * sets + s]);
                int64_t left = end - row - s * BESIDE;
                memcpy(out + (first + r) * out_row + s * BESIDE, &all, left < BESIDE ? left * 4 : sizeof all);
            }
        first += rows;
    }
}

DOTS void coarse_unit(const struct product *p, const struct planes *m, int64_t first, int64_t end, float *out,
                      int64_t out_row, const struct coarse *c, const int bits, const int group) {
    int64_t row = first;
    for (; row + BESIDE < end; row += SETS * BESIDE)
        coarse_rows(p, m, row, end, c, out + row, out_row, SETS, bits, group);
    if (row < end) coarse_rows(p, m, row, end, c, out + row, out_row, 1, bits, group);
}

static WITH_DOTS void coarse_rows_of(const struct product *p, const struct planes *m, int64_t first,
                                     int64_t end, float *out, int64_t out_row, const struct coarse *c) {
    BY_BITS(coarse_unit, p, m, first, end, out, out_row, c);
}

/* Whether all of a call is for this file. */
static int is_coarse(const struct product *p) {
    int suited = p->n <= MOST_COARSE && p->in % COARSE_STEP == 0;
    for (int i = 0; i < p->num_parts; i++) suited = suited && p->parts[i].bits < 16;
    return suited;
}

static void work_coarsely(void *given) {
    struct product *p = given;
    struct coarse c = coarse_of(p);
    for (int64_t row = 0; row < p->n; row++) round_row(p, &c, row);
    int64_t first, end, out_row = rows_in_all(p);
    float *out;
    const struct planes *m;
    while ((m = next_unit(p, &first, &end, &out)))
        coarse_rows_of(p, m, first, end, out, out_row, &c);
}
