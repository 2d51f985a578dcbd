/* A few rows through all layers of a model of the Llama family, in one call: products by products.c,
   attention by attention.c, and what lies between them, which is little work and many steps.

   Numbers between the kernels are fp32. Each row's arithmetic looks at that row alone, in one order, as the
   kernels' does: so a row among many has the bits it has alone.

   This file is compiled once per instruction set: WIDTH is the number of fp32 lanes of a register, ISA a
   part of the functions' names. */

#include "vectors.h"
#include "functions.h"
#include "threads.h"
#include "products.h"
#include "attention.h"
#include "layers.h"

#define MOST_CODE 127
#define LEAST_TOP (MOST_CODE * 1.17549435e-38f) /* of a row's largest number: codes of zeros are 0 */

/* x / sqrt(mean(x ** 2) + eps) * weight, [count] each; `to` may be x. */
INLINE void norm(const float *x, const float *weight, float *to, int64_t count, float eps) {
    vec squares = {};
    for (int64_t i = 0; i < count; i += WIDTH) squares += *(const vec_in *)(x + i) * *(const vec_in *)(x + i);
    float factor = 1.0f / __builtin_sqrtf(sum_of(squares) / count + eps);
    for (int64_t i = 0; i < count; i += WIDTH)
        *(vec_in *)(to + i) = *(const vec_in *)(x + i) * factor * *(const vec_in *)(weight + i);
}

static void norm_rows(const struct pass *p, const float *weight, float *to) {
    for (int64_t row = 0; row < p->attention.n; row++)
        norm(p->x + row * p->hidden, weight, to + row * p->hidden, p->hidden, p->eps);
}

/* One head's numbers, in place: (low, high) -> (low cos - high sin, high cos + low sin). */
INLINE void rotate(float *x, const float *cos, const float *sin, int dim) {
    for (int i = 0; i < dim / 2; i += WIDTH) {
        vec_in *low = (vec_in *)(x + i), *high = (vec_in *)(x + dim / 2 + i);
        vec was = *low;
        *low = was * *(const vec_in *)(cos + i) + *high * *(const vec_in *)(sin + i);
        *high = *high * *(const vec_in *)(cos + dim / 2 + i) + was * *(const vec_in *)(sin + dim / 2 + i);
    }
}

/* A row of a cache, as core/backend/kv_rows.py has it. */
INLINE void store(const float *x, char *row, int dim, int kind) {
    if (kind == FP32) memcpy(row, x, dim * sizeof(float));
    else if (kind == BF16) narrowed(x, (uint16_t *)row, dim);
    else {
        float top = LEAST_TOP;
        for (int i = 0; i < dim; i++) top = __builtin_fabsf(x[i]) > top ? __builtin_fabsf(x[i]) : top;
        float factor = top / MOST_CODE;
        for (int i = 0; i < dim; i++) row[i] = (int8_t)(x[i] / factor + 12582912.0f - 12582912.0f); /* even */
        memcpy(row + dim, &factor, sizeof factor);
    }
}

/* Queries to where they stay, keys and values to the cache; of row `row` of the pass. */
static void place(const struct pass *p, const struct layer *layer, int64_t index, int64_t row) {
    const struct attention *a = &p->attention;
    int dim = a->head_dim, heads = a->heads, kv_heads = a->kv_heads;
    float *own = p->projected + row * (heads + 2 * kv_heads) * dim;
    const float *cos = p->cos + row * dim, *sin = p->sin + row * dim;
    for (int head = 0; head < heads + kv_heads; head++) {
        const float *weight = head < heads ? layer->q_norm : layer->k_norm;
        if (weight) norm(own + head * dim, weight, own + head * dim, dim, p->eps);
        rotate(own + head * dim, cos, sin, dim);
    }
    memcpy(p->queries + (index * a->n + row) * heads * dim, own, heads * dim * sizeof(float));
    int64_t token = p->start + row, block = token / a->block_tokens, inside = token % a->block_tokens;
    int64_t at = index * p->layer_bytes + block * a->block_bytes + inside * a->row_bytes;
    for (int head = 0; head < kv_heads; head++, at += a->head_bytes) {
        store(own + (heads + head) * dim, p->k + at, dim, a->kind);
        store(own + (heads + kv_heads + head) * dim, p->v + at, dim, a->kind);
    }
}

/* silu(gate) * up, of a row [2 * inner] to one of [inner]. */
INLINE void gate(const float *gate_up, float *to, int64_t inner) {
    for (int64_t i = 0; i < inner; i += WIDTH) {
        vec g = *(const vec_in *)(gate_up + i);
        *(vec_in *)(to + i) = g * sigmoid(g) * *(const vec_in *)(gate_up + inner + i);
    }
}

static void multiply(const struct pass *p, const struct matrix *m, const float *x, float *out) {
    struct product call = p->product;
    memcpy(call.parts, m->parts, m->num_parts * sizeof(struct planes));
    call.num_parts = (int32_t)m->num_parts;
    call.x = x;
    call.out = out;
    call.in = m->columns;
    call.n = p->attention.n;
    p->multiply(&call);
    if (m->bias)
        for (int64_t row = 0; row < call.n; row++)
            for (int64_t i = 0; i < m->rows; i++) out[row * m->rows + i] += m->bias[i];
}

static void attend(const struct pass *p, int64_t index) {
    struct attention call = p->attention;
    call.q = p->queries + index * call.n * call.heads * call.head_dim;
    call.k = p->k + index * p->layer_bytes;
    call.v = p->v + index * p->layer_bytes;
    if (call.chunk_lse) call.chunk_lse += index * call.heads * call.chunks;
    p->attend(&call);
}

static void add(const struct pass *p) {
    for (int64_t i = 0; i < p->attention.n * p->hidden; i += WIDTH)
        *(vec_in *)(p->x + i) += *(const vec_in *)(p->sum + i);
}

#ifdef SOURCE
EXPORT const char *source_sha256(void) { return SOURCE; }
#endif

EXPORT void NAMED(pass, ISA)(const struct pass *p) {
    int64_t n = p->attention.n;
    for (int64_t index = 0; index < p->num_layers; index++) {
        const struct layer *layer = p->layers + index;
        norm_rows(p, layer->attention_norm, p->sum);
        multiply(p, &layer->qkv, p->sum, p->projected);
        for (int64_t row = 0; row < n; row++) place(p, layer, index, row);
        attend(p, index);
        multiply(p, &layer->out, p->attention.out, p->sum);
        add(p);
        norm_rows(p, layer->mlp_norm, p->sum);
        multiply(p, &layer->gate_up, p->sum, p->gate_up);
        for (int64_t row = 0; row < n; row++)
            gate(p->gate_up + 2 * row * p->inner, p->gated + row * p->inner, p->inner);
        multiply(p, &layer->down, p->gated, p->sum);
        add(p);
    }
    norm_rows(p, p->norm, p->x);
}
