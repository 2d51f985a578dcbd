/* A call of products.c. core/backend/codes.py says how codes lie in memory. */

/* A matrix in codes, [rows][in]. */
struct planes {
    const uint8_t *low;           /* nibbles, 16 bytes per 32 codes; of 8 bits the codes, of 16 the weights */
    const uint8_t *high;          /* the bits above the nibbles, 2 or 4 bytes per 16 codes */
    const _Float16 *scale;        /* per group, or per SPAN where there are steps; NULL: no codes */
    const _Float16 *offset;       /* likewise; NULL: code `middle` stands for 0 */
    const int8_t *scale_steps;    /* per group; NULL: none */
    const int8_t *offset_steps;
    int64_t rows;
    int32_t bits, group, middle, unused;
};

#define MOST_PARTS 4
struct product {
    struct planes parts[MOST_PARTS]; /* matrices one above the other */
    const float *x;                  /* [n][in] */
    float *out;                      /* [n][sum of rows] */
    float *scratch;                  /* scratch_floats(in) for each thread */
    void *decoded;                   /* or, instead of a product: rows `first` to `first + count` */
    int64_t first, count;            /* of the only part, [count][in], as fp32 or bf16 */
    int64_t in;
    int32_t n, num_parts, as_bf16;
    struct team team;
    /* the next unit, the next thread's scratch memory; zero at the start. Every thread writes here, and none
       shall take the rest of the call from the others' caches. */
    char before[64];
    int32_t next, seats;
    char behind[56];
};
