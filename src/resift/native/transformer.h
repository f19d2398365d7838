/* A transformer encoder described by data: BERT, RoBERTa, ModernBERT and similar models.
 *
 * The description selects norm position, position scheme, attention span, feed-forward form, pooling and head. Weights
 * of linear layers are int8 with one scale per output, activations int8 with one scale per token; norms, attention and
 * the head are fp32. A linear layer without scales has fp32 weights. Every sum has a fixed order, so that scores are
 * bit-identical on every processor and do not depend on other texts. */
#ifndef RESIFT_TRANSFORMER_H
#define RESIFT_TRANSFORMER_H

#include "bert.h"

typedef enum { ACTIVATION_NONE, ACTIVATION_GELU, ACTIVATION_GELU_TANH, ACTIVATION_RELU, ACTIVATION_TANH } ActivationKind;
typedef enum { POOL_NONE, POOL_FIRST, POOL_MEAN, POOL_LAST } Pooling;
typedef enum { STEP_LINEAR, STEP_NORM, STEP_ACTIVATION } HeadStepKind;

/* One layer. `window` limits attention to tokens at most this far away. The tables of the rotary position embedding
 * are [positions][head_width / 2]; NULL means none. */
typedef struct {
    Linear qkv, attention_output, ffn_up, ffn_down;
    LayerNorm attention_norm, ffn_norm; /* a weight of NULL means that there is no norm */
    int32_t window;
    const float *cosines, *sines;
} TransformerLayer;

typedef struct {
    int32_t kind, activation;
    Linear linear;
    LayerNorm norm;
    int32_t norm_width;
    float norm_epsilon;
} HeadStep;

/* Widths are multiples of PANEL, padded with zeros; `true_width` is the hidden size of the model. */
typedef struct {
    int32_t input_width, true_input_width; /* width of the embeddings, before any projection */
    int32_t width, true_width;
    int32_t heads, head_width, inner; /* inner >= heads * head_width */
    int32_t ffn, layers;
    int32_t pre_norm, gated, activation, pooling;
    float attention_scale, epsilon;
    LayerNorm embedding_norm, final_norm;
    Linear projection; /* outputs is 0 without a projection */
    const TransformerLayer *layer;
    int32_t head_steps, outputs; /* outputs of the head, or the state width without a head */
    const HeadStep *head;
} Transformer;

#define DECLARE_TRANSFORMER_KERNEL(kernel)                                                                            \
    /* Packed size in bytes of the int8 weights [inputs][outputs] of a linear layer. */                                 \
    EXPORT int64_t KERNEL_FUNCTION(transformer_packed_size, kernel)(int32_t inputs, int32_t outputs);                 \
    /* Pack int8 weights for this kernel, and sum the weights of each output. The weights of inputs 2n and 2n + 1     \
     * must sum to -128 to 128 if they have the same sign. */                                                         \
    EXPORT void KERNEL_FUNCTION(transformer_pack, kernel)(const int8_t *weights, int32_t inputs, int32_t outputs,     \
                                                          void *packed, int32_t *sums);                               \
    /* Packed size in floats of the fp32 weights [inputs][outputs] of a linear layer. */                              \
    EXPORT int64_t KERNEL_FUNCTION(transformer_float_size, kernel)(int32_t inputs, int32_t outputs);                  \
    EXPORT void KERNEL_FUNCTION(transformer_pack_floats, kernel)(const float *weights, int32_t inputs,                \
                                                                 int32_t outputs, float *packed);                     \
    /* Scratch size in floats for a pass over this many tokens. */                                                    \
    EXPORT int64_t KERNEL_FUNCTION(transformer_scratch, kernel)(const Transformer *model, int32_t tokens);            \
    /* Run one text. `input` contains the embeddings [tokens][input_width] and may be modified. Writes the head's     \
     * outputs, the pooled state, or, without pooling, the states [wanted][width] of the first `wanted` tokens. */    \
    EXPORT void KERNEL_FUNCTION(transformer_forward, kernel)(const Transformer *model, float *input,                  \
                                                             int32_t tokens, int32_t wanted, float *scratch,          \
                                                             float *out);

DECLARE_TRANSFORMER_KERNEL(portable)
DECLARE_TRANSFORMER_KERNEL(avx2)
DECLARE_TRANSFORMER_KERNEL(avx512)
DECLARE_TRANSFORMER_KERNEL(neon)
DECLARE_TRANSFORMER_KERNEL(i8mm)

#endif
