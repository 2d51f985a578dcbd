/* A call of layers.c. */

/* A matrix of products.c, or several one above the other. */
struct matrix {
    const struct planes *parts;
    const float *bias; /* one for each row of all parts; NULL: none */
    int64_t rows, columns, num_parts;
};

struct layer {
    struct matrix qkv, out, gate_up, down;
    const float *attention_norm, *mlp_norm;
    const float *q_norm, *k_norm; /* [head_dim]; NULL: none */
};

struct pass {
    const struct layer *layers;
    const float *norm;           /* what follows the last layer */
    const float *cos, *sin;      /* [n][head_dim], the minus in sin's low half */
    float *x;                    /* [n][hidden]: what comes in; what is normed at the end goes out */
    float *queries;              /* [layers][n][heads][head_dim], which stay: rotated */
    float *projected;            /* [n][heads + 2 * kv_heads][head_dim] */
    float *gate_up, *gated;      /* [n][2 * inner] and [n][inner] */
    float *sum;                  /* [n][hidden] */
    char *k, *v;                 /* the first layer's; layer_bytes apart */
    int64_t layer_bytes, start;  /* the first new row of the cache */
    int64_t num_layers, hidden, inner;
    void (*multiply)(struct product *);
    void (*attend)(struct attention *);
    struct product product;      /* what all products have in common: scratch memory and threads */
    struct attention attention;  /* likewise, with `out` and the first layer's chunk_lse; length: the new rows
                                    included */
    float eps;
};
