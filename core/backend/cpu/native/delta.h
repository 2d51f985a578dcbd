/* A call of delta.c. */

struct delta {
    const float *rows;        /* [kernel - 1 + n][width]: the last n are the call's own. Queries and keys of
                                 all key heads, values of all value heads, then two numbers of each value
                                 head: for how much is corrected, and for how much is kept */
    const float *from;        /* states [value_heads][key_dim][value_dim] before the rows, */
    float *to;                /* and behind them; may be the same */
    float *out;               /* [n][value_heads][value_dim] */
    const float *convolution; /* [kernel][width - 2 * value_heads] */
    const float *decay, *step_bias; /* [value_heads] */
    int64_t n, width;
    int32_t kernel, key_heads, value_heads;
    int32_t key_dim, value_dim; /* multiples of 16, key_dim at most 256 */
    struct team team;
    char before[64];
    int32_t next; /* value head; zero at the start */
    char behind[60];
};
