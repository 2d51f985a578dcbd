/* A call of attention.c. */

enum kind { FP32, BF16, INT8 };

struct attention {
    const float *q;         /* [n][heads][head_dim] */
    const char *k, *v;      /* block_bytes, head_bytes, row_bytes apart; a row's scale, if any, at its end */
    float *out, *lse;       /* [n][heads][head_dim] and [n][heads]; 0 and -inf for a query that sees no key */
    float *scratch;         /* at least scratch_floats() of it */
    float *chunk_lse;       /* of the first query's scores, [heads][chunks], over `chunk` keys each; NULL:
                               none. Chunks it does not see are left as they are */
    int64_t length;         /* keys filled */
    int64_t chunks;
    int64_t block_bytes, head_bytes, row_bytes;
    int32_t kind, n, heads, kv_heads, head_dim, block_tokens;
    int32_t causal;         /* the last n keys are the queries' own: query i sees keys up to length - n + i */
    int32_t chunk;          /* keys; it divides 64 and block_tokens */
    struct team team;
    /* The next unit; and below, units that are done, by KV head. Zero at the start. Every thread writes here,
       and none shall take the rest of the call from the others' caches. */
    char before[64];
    int32_t next;
    int32_t done[256];
    char behind[64];
};
