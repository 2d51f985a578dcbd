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

INLINE float sum_of(vec x) {
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

INLINE float largest(vec x) {
    float top = x[0];
    for (int i = 1; i < WIDTH; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* As bf16. */
INLINE void narrowed(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        uvec bits = (uvec) * (const vec_in *)(from + i);
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* to the nearest, ties to even */
        *(hvec *)(to + i) = __builtin_convertvector(bits, hvec);
    }
}
