/* A BERT encoder with dynamically quantized int8 weights: its weights in memory and what a kernel offers.
 *
 * The arithmetic is defined once, in vectors of 16 lanes (lanes_*.h): which products are fused with a sum, and in
 * which order sums are added up. It is the order of ONNX Runtime 1.31 on a processor with AVX-512 VNNI. Each kernel
 * emulates exactly that, so that a score has the same bits on every processor; portable C is the oracle. */
#ifndef RESIFT_BERT_H
#define RESIFT_BERT_H

#include "export.h"

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "float operations must round to float"
#endif

enum {
    LANES = 16,
    PANEL = 64 /* every width is a multiple of this; rows of attention scores are padded to it */
};

/* A linear layer. `packed` is in the layout of the kernel that packed it. */
typedef struct {
    int32_t inputs, outputs;
    const void *packed;
    const int32_t *sums; /* of each output's weights */
    const float *scales; /* of each output */
    const float *bias;
} Linear;

typedef struct {
    const float *weight, *bias;
} LayerNorm;

typedef struct {
    Linear qkv; /* query, key and value side by side */
    Linear attention_output, ffn_up, ffn_down;
    LayerNorm attention_norm, ffn_norm;
} Layer;

/* A table of embeddings as bytes: value = scale * (byte - zero_point). */
typedef struct {
    const uint8_t *values;
    float scale;
    int32_t zero_point;
} Embedding;

typedef struct {
    int32_t hidden, heads, ffn, layers;
    float attention_scale;
    int32_t scale_query_and_key; /* attention_scale is on each of both; else on their product */
    Embedding word, token_type;
    const float *position;
    LayerNorm embedding_norm;
    const Layer *layer;
    int32_t classes; /* 0 if the states of tokens are the answer */
    Linear pooler, classifier;
} Bert;

#define DECLARE_BERT_KERNEL(kernel)                                                                              \
    /* Bytes that the weights [inputs][outputs] of a linear layer take when packed. */                           \
    EXPORT int64_t KERNEL_FUNCTION(bert_packed_size, kernel)(int32_t inputs, int32_t outputs);                   \
    /* Lay weights [inputs][outputs] out for this kernel, and add up each output's. */                           \
    EXPORT void KERNEL_FUNCTION(bert_pack, kernel)(const int8_t *weights, int32_t inputs, int32_t outputs,       \
                                                   void *packed, int32_t *sums);                                 \
    /* Floats of scratch that a pass over so many tokens needs. */                                               \
    EXPORT int64_t KERNEL_FUNCTION(bert_scratch, kernel)(const Bert *bert, int32_t tokens);                      \
    /* Write the classes' logits, or the states of the first `wanted` tokens after the last layer. */            \
    EXPORT void KERNEL_FUNCTION(bert_forward, kernel)(const Bert *bert, const int32_t *ids,                      \
                                                      const int32_t *token_types, int32_t tokens, int32_t wanted, \
                                                      float *scratch, float *out);

DECLARE_BERT_KERNEL(portable)
DECLARE_BERT_KERNEL(avx2)
DECLARE_BERT_KERNEL(avx512)
DECLARE_BERT_KERNEL(neon)
DECLARE_BERT_KERNEL(i8mm)

#endif
