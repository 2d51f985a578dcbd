/* Registers of WIDTH fp32 lanes, and what all kernels compute with them. */

#include <stdint.h>
#include <string.h>

#define LOG2E 1.4426950408889634f
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef float vec_in __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t hvec __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));

INLINE vec filled(float x) { return (vec){} + x; }
INLINE vec chosen(ivec where, vec a, vec b) { return (vec)(((ivec)a & where) | ((ivec)b & ~where)); }
INLINE vec at_least(vec a, vec b) { return chosen(a > b, a, b); }

/* e^x for x <= 0, within 2 ulp; 0 below -87. Cody-Waite reduction and a polynomial of degree 5 (Cephes
   expf). */
INLINE vec exponential(vec x) {
    vec whole = x * LOG2E + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    ivec power = (ivec)whole - (ivec)filled(12582912.0f);
    whole -= 12582912.0f;
    vec rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec y = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    return chosen(x > filled(-87.0f), (vec)((ivec)y + (power << 23)), filled(0.0f));
}

/* Of two vectors, in each quarter of four words: the two low words of both in turn, the two high ones, and
   the low and high pairs of words. */
#define SIDE_BY_SIDE __builtin_shufflevector
#if WIDTH == 16
#define IN_TURN 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, \
                8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define MIDDLE_TURNED 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15
#define LOW_WORDS 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGH_WORDS 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define LOW_PAIRS 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_PAIRS 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#elif WIDTH == 8
#define IN_TURN 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15
#define MIDDLE_TURNED 0, 2, 1, 3, 4, 6, 5, 7
#define LOW_WORDS 0, 8, 1, 9, 4, 12, 5, 13
#define HIGH_WORDS 2, 10, 3, 11, 6, 14, 7, 15
#define LOW_PAIRS 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_PAIRS 2, 3, 10, 11, 6, 7, 14, 15
#else
#define IN_TURN 0, 4, 1, 5, 2, 6, 3, 7
#define MIDDLE_TURNED 0, 2, 1, 3
#define LOW_WORDS 0, 4, 1, 5
#define HIGH_WORDS 2, 6, 3, 7
#define LOW_PAIRS 0, 1, 4, 5
#define HIGH_PAIRS 2, 3, 6, 7
#endif

/* The sums of the lanes of `count` vectors; four at a time. */
INLINE void sums_of(const vec *x, float *to, const int count) {
    for (int i = 0; i < count; i += 4) {
        vec four[4] = {};
        for (int j = 0; j < 4 && i + j < count; j++) four[j] = x[i + j];
        vec first = SIDE_BY_SIDE(four[0], four[1], LOW_WORDS) + SIDE_BY_SIDE(four[0], four[1], HIGH_WORDS);
        vec last = SIDE_BY_SIDE(four[2], four[3], LOW_WORDS) + SIDE_BY_SIDE(four[2], four[3], HIGH_WORDS);
        vec all = SIDE_BY_SIDE(first, last, LOW_PAIRS) + SIDE_BY_SIDE(first, last, HIGH_PAIRS);
        float own[WIDTH];
        memcpy(own, &all, sizeof own);
        for (int j = 0; j < 4 && i + j < count; j++) {
            to[i + j] = own[j];
            for (int quarter = 4; quarter < WIDTH; quarter += 4) to[i + j] += own[quarter + j];
        }
    }
}

INLINE float sum_of(vec x) {
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

INLINE float largest(vec x) {
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] = x[i + half] > x[i] ? x[i + half] : x[i];
    return x[0];
}

/* As bf16. */
INLINE void narrowed(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        uvec bits = (uvec) * (const vec_in *)(from + i);
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* to the nearest, ties to even */
        *(hvec *)(to + i) = __builtin_convertvector(bits, hvec);
    }
}

/* FUNCTION(count) with `count`, up to 6, as a constant. */
#define WITH_CONSTANT(count, FUNCTION) \
    switch (count) {                   \
    case 1: FUNCTION(1); break;        \
    case 2: FUNCTION(2); break;        \
    case 3: FUNCTION(3); break;        \
    case 4: FUNCTION(4); break;        \
    case 5: FUNCTION(5); break;        \
    case 6: FUNCTION(6); break;        \
    }
