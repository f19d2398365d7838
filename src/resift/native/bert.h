/* A BERT encoder with dynamically quantized int8 weights: the memory layout of the weights and the kernel interface.
 *
 * The arithmetic is defined once, in vectors of 16 lanes (lanes_*.h): which products are fused with a sum, and the
 * order of additions. It matches ONNX Runtime 1.31 on a processor with AVX-512 VNNI. Each kernel reproduces it
 * exactly, so that scores are bit-identical on every processor; portable C is the reference. */
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
    const int32_t *sums; /* sum of the weights of each output */
    const float *scales; /* one per output */
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

/* A table of quantized embeddings: value = scale * (byte - zero_point). */
typedef struct {
    const uint8_t *values;
    float scale;
    int32_t zero_point;
} Embedding;

typedef struct {
    int32_t hidden, heads, ffn, layers;
    float attention_scale;
    int32_t scale_query_and_key; /* attention_scale applies to both, otherwise to their product */
    Embedding word, token_type;
    const float *position;
    LayerNorm embedding_norm;
    const Layer *layer;
    int32_t classes; /* 0 if the output is the token states */
    Linear pooler, classifier;
} Bert;

#define DECLARE_BERT_KERNEL(kernel)                                                                              \
    /* Packed size in bytes of the weights [inputs][outputs] of a linear layer. */                               \
    EXPORT int64_t KERNEL_FUNCTION(bert_packed_size, kernel)(int32_t inputs, int32_t outputs);                   \
    /* Pack weights [inputs][outputs] for this kernel, and sum the weights of each output. */                    \
    EXPORT void KERNEL_FUNCTION(bert_pack, kernel)(const int8_t *weights, int32_t inputs, int32_t outputs,       \
                                                   void *packed, int32_t *sums);                                 \
    /* Scratch size in floats for a pass over this many tokens. */                                               \
    EXPORT int64_t KERNEL_FUNCTION(bert_scratch, kernel)(const Bert *bert, int32_t tokens);                      \
    /* Write the logits of the classes, or the states of the first `wanted` tokens after the last layer. */      \
    EXPORT void KERNEL_FUNCTION(bert_forward, kernel)(const Bert *bert, const int32_t *ids,                      \
                                                      const int32_t *token_types, int32_t tokens, int32_t wanted, \
                                                      float *scratch, float *out);

DECLARE_BERT_KERNEL(portable)
DECLARE_BERT_KERNEL(avx2)
DECLARE_BERT_KERNEL(avx512)
DECLARE_BERT_KERNEL(neon)
DECLARE_BERT_KERNEL(i8mm)

#endif
