/* The log-sum-exp of one query's scores over each chunk of keys, by which chunks are chosen: on the way of
   attention, or without it. Part of attention.c. */

/* Of one query over `count` keys of a tile; a chunk's keys divide a tile. */
static void put_chunks(float *scores, int count, int chunk, float *to) {
    vec top = filled(LEAST);
    for (int j = count; j < TILE; j++) scores[j] = LEAST;
    for (int j = 0; j < TILE; j += WIDTH) top = at_least(top, *(vec *)(scores + j));
    float most = largest(top);
    for (int j = 0; j < TILE; j += WIDTH) *(vec *)(scores + j) = exponential(*(vec *)(scores + j) - most);
    /* sums of neighbours, until each is a chunk's */
    for (int many = TILE / 2; many >= TILE / chunk; many /= 2)
        for (int i = 0; i < many; i++) scores[i] = scores[2 * i] + scores[2 * i + 1];
    for (int j = 0; j < TILE / chunk; j += WIDTH) {
        vec sums = *(vec *)(scores + j), none = filled(-__builtin_inff());
        *(vec *)(scores + j) = chosen(sums > filled(0.0f), logarithms(sums) + most, none);
    }
    memcpy(to, scores, (size_t)((count + chunk - 1) / chunk) * sizeof(float));
}

/* Queries of one KV head from query `row` on, over one tile. */
INLINE void chunk_rows(const struct attention *a, const struct tile *tile, const struct spread *few, int head,
                       int row, const int rows, const int dim, const int kind) {
    float scores[ROWS][TILE] __attribute__((aligned(LINE)));
    float q[ROWS * MOST_DIM];
    for (int r = 0; r < rows && !few; r++) take_query(a, head, row + r, q + r * dim, dim, kind);
    if (few) score_few(few, tile, scores, rows < FEW ? rows : FEW, dim, kind);
    else for (int at = 0; at < tile->count; at += SPAN(rows))
        score(q, dim, tile, at, scores, rows, dim, kind);
    for (int r = 0; r < rows; r++)
        put_chunks(scores[r], tile->count, a->chunk,
                   chunks_of(a, head * (a->heads / a->kv_heads) + row + r, tile));
}

INLINE void chunk_unit(const struct attention *a, int head, int unit, const int dim, const int kind) {
    int rows = a->heads / a->kv_heads;
    struct stretch keys = keys_of_unit(a, head, unit);
    struct spread few[FEW];
    for (int row = 0; row < rows && rows <= FEW; row++) {
        float q[MOST_DIM];
        take_query(a, head, row, q, dim, kind);
        spread_out(q, few + row, dim, kind);
    }
    struct tile tile;
    for (int64_t at = keys.first; at < keys.end; at += TILE) {
        take_tile(a, &keys, at, &tile, dim, kind);
        if (rows > FEW) turn_keys(&tile, dim, kind);
        int groups = (rows + ROWS - 1) / ROWS;
        for (int row = 0; groups; groups--) {
            int many = (rows - row + groups - 1) / groups;
#define CHUNKS_OF(many) \
    chunk_rows(a, &tile, many > FEW || rows > FEW ? 0 : few, head, row, many, dim, kind)
            WITH_CONSTANT_ROWS(many, CHUNKS_OF)
            row += many;
        }
    }
}

BY_ROWS(chunk_unit)

static void work_on_chunks(void *given) {
    struct attention *a = given;
    for (int first, many; (many = take_units(a, &first));)
        for (int next = first; next < first + many; next++)
            chunk_units[place_of(a->head_dim)][a->kind](a, next % a->kv_heads, next / a->kv_heads);
}
