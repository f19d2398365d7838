/* A BERT encoder with dynamically quantised int8 weights, for processors with AVX-512 VNNI.
 *
 * The arithmetic is that of ONNX Runtime on the same processor, operation by operation and in the same
 * order where the order matters, so that scores do not depend on which of the two computed them. */
#ifndef RESIFT_BERT_H
#define RESIFT_BERT_H

#include <immintrin.h>
#include <stdint.h>

#define VECTOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))
#define INLINE VECTOR static inline __attribute__((always_inline))

enum { LANES = 16, PANEL = 64, ROWS = 6 };

/* A linear layer. Weights lie in panels of 64 outputs: [outputs / 64][inputs / 4][64][4]. */
typedef struct {
    int32_t inputs, outputs;
    const int8_t *packed;
    const int32_t *sums; /* of each output's weights */
    const float *scales; /* of each output */
    const float *bias;
} Dense;

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    Dense ask; /* queries, keys and values side by side */
    Dense mix, widen, narrow;
    Norm attended, output;
} Layer;

typedef struct {
    const uint8_t *values;
    float scale;
    int32_t zero;
} Table;

typedef struct {
    int32_t hidden, heads, wide, layers;
    float factor;        /* on the products of queries and keys, or on each side */
    int32_t on_each_side;
    Table words, kinds;
    const float *places;
    Norm embedded;
    const Layer *layer;
    int32_t classes; /* 0 if the states of tokens are the answer */
    Dense pool, classify;
} Bert;

/* The length of a row of attention weights: whole panels. */
static inline int32_t padded(int32_t rows) { return (rows + PANEL - 1) / PANEL * PANEL; }

/* Lowest and highest value seen so far; both start at 0, which every quantised range contains. */
typedef struct {
    __m512 low, high;
} Range;

/* Activations as bytes: value = scale * (byte - zero). */
typedef struct {
    uint8_t *bytes;
    float scale;
    int32_t zero;
} Quantised;

typedef enum { PLAIN, ADD_RESIDUAL, GELU } Finish;

void quantise(const float *values, int64_t count, const Range *range, Quantised *into);
void product(const Dense *dense, const Quantised *in, int32_t rows, Finish finish, const float *residual,
             float *out, Range *range);
void normalise(const Norm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range);
void normalise_fused(const Norm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range);
void attend(const Bert *bert, const float *asked, int32_t rows, float *scratch, float *out, Range *range);

#endif
