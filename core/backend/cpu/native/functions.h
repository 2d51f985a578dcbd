/* Functions of vectors beside the exponential. */

/* ln x for positive normal x (Cephes logf). */
INLINE vec logarithms(vec x) {
    vec m = (vec)(((ivec)x & 0x7fffff) | 0x3f000000);
    ivec small = m < filled(0.70710678f); /* -1 where it holds */
    vec power = __builtin_convertvector(((ivec)x >> 23) - 126 + small, vec);
    m = chosen(small, m + m, m) - 1.0f;
    vec y = m * 7.0376836292e-2f - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    return m - 0.5f * m * m + y * m * m * m + power * -2.12194440e-4f + power * 0.693359375f;
}

/* 1 / (1 + e^-x) */
INLINE vec sigmoid(vec x) {
    vec small = exponential(-at_least(x, -x));
    return chosen(x > filled(0.0f), filled(1.0f), small) / (small + 1.0f);
}

/* ln(1 + e^x). The small part is ln(1 + y) for y = e^-|x|: what is lost of y in 1 + y is made good
   (Goldberg 1991, doi 10.1145/103162.103163, theorem 4). */
INLINE vec softplus(vec x) {
    vec y = exponential(-at_least(x, -x)), more = y + 1.0f, added = more - 1.0f;
    vec small = chosen(added > filled(0.0f), logarithms(more) * y / added, y);
    return at_least(x, filled(0.0f)) + small;
}
