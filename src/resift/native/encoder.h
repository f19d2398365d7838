/* The forward pass of bert.h for one text on the calling thread; included by every kernel. */
#include "linear.h"

#include "attention.h"
#include "layer_norm.h"

#include <string.h>

INLINE Lanes looked_up(const Embedding *table, int64_t at)
{
    const Ints level = sub_ints(load_bytes(table->values + at), all_ints(table->zero_point));
    return mul(to_floats(level), all(table->scale));
}

static void embeddings(const Bert *bert, const int32_t *ids, const int32_t *token_types, int32_t tokens, float *out)
{
    const int32_t hidden = bert->hidden;
    for (int32_t token = 0; token < tokens; token++)
        for (int32_t d = 0; d < hidden; d += LANES) {
            const Lanes word = looked_up(&bert->word, (int64_t)ids[token] * hidden + d);
            const Lanes token_type = looked_up(&bert->token_type, (int64_t)token_types[token] * hidden + d);
            const Lanes position = load(bert->position + (int64_t)token * hidden + d);
            store(out + (int64_t)token * hidden + d, add(add(word, token_type), position));
        }
}

/* Width of a layer's widest activations: query, key and value together, or the feed-forward layer. */
INLINE int64_t widest(const Bert *bert) { return bert->ffn > 3 * bert->hidden ? bert->ffn : 3 * bert->hidden; }

/* Size in floats of the levels of this many tokens, and of the data recorded per block. */
INLINE int64_t levels_scratch(const Bert *bert, int64_t tokens)
{
    return tokens * widest(bert) * (int64_t)sizeof(Activation) / (int64_t)sizeof(float);
}
#ifndef BLOCKS_OF_LEVELS
INLINE int64_t blocks_scratch(int64_t rows, int64_t inputs)
{
    (void)rows, (void)inputs;
    return 0;
}
#endif

EXPORT int64_t KERNEL_FUNCTION(bert_scratch, KERNEL)(const Bert *bert, int32_t tokens)
{
    const int64_t states = tokens * (3 * (int64_t)bert->hidden + widest(bert));
    const int64_t levels = levels_scratch(bert, tokens) + blocks_scratch(tokens, widest(bert));
    return levels + states + attention_scratch(tokens, bert->hidden / bert->heads);
}

/* Pool the first token's state and write the classes' logits. */
static void classify(const Bert *bert, float *state, Quantized *in, float *scratch, float *out)
{
    const Matrix pooled = in_rows(scratch, bert->hidden);
    Range range = no_range();
    for (int32_t d = 0; d < bert->hidden; d += LANES) widen_range(&range, load(state + d));
    quantize(in_rows(state, bert->hidden), 1, bert->hidden, &range, in);
    linear_layer(&bert->pooler, in, 1, PLAIN, NULL, pooled, NULL);
    range = no_range();
    for (int32_t d = 0; d < bert->hidden; d += LANES) {
        const Lanes value = hyperbolic_tangent(load(scratch + d));
        widen_range(&range, value);
        store(scratch + d, value);
    }
    quantize(pooled, 1, bert->hidden, &range, in);
    linear_layer(&bert->classifier, in, 1, PLAIN, NULL, pooled, NULL);
    memcpy(out, scratch, (size_t)bert->classes * sizeof *out);
}

EXPORT void KERNEL_FUNCTION(bert_forward, KERNEL)(const Bert *bert, const int32_t *ids, const int32_t *token_types,
                                                  int32_t tokens, int32_t wanted, float *scratch, float *out)
{
    const int64_t size = (int64_t)tokens * bert->hidden;
    float *blocks = scratch + levels_scratch(bert, tokens);
    Quantized in = {(Activation *)(void *)scratch, 0, 0, blocks};
    float *states = blocks + blocks_scratch(tokens, widest(bert)), *mixed = states + size, *attended = mixed + size;
    const Matrix wide = in_panels(attended + size, tokens), narrow = in_rows(mixed, bert->hidden);
    float *private = wide.values + tokens * widest(bert);
    Range range = no_range();

    embeddings(bert, ids, token_types, tokens, mixed);
    layer_norm(&bert->embedding_norm, mixed, tokens, bert->hidden, states, &range);
    for (int32_t number = 0; number < bert->layers; number++) {
        const Layer *layer = bert->layer + number;
        /* Activations are quantized over all tokens, so only steps after the last range can be skipped. */
        const int32_t kept = number + 1 < bert->layers ? tokens : wanted;
        quantize(in_rows(states, bert->hidden), tokens, bert->hidden, &range, &in);
        linear_layer(&layer->qkv, &in, tokens, PLAIN, NULL, wide, NULL);
        range = no_range();
        self_attention(bert, wide, tokens, private, mixed, &range);
        quantize(narrow, tokens, bert->hidden, &range, &in);
        linear_layer(&layer->attention_output, &in, tokens, ADD_RESIDUAL, states, narrow, NULL);
        range = no_range();
        layer_norm(&layer->attention_norm, mixed, tokens, bert->hidden, attended, &range);
        quantize(in_rows(attended, bert->hidden), tokens, bert->hidden, &range, &in);
        range = no_range();
        linear_layer(&layer->ffn_up, &in, tokens, GELU, NULL, wide, &range);
        quantize(wide, tokens, bert->ffn, &range, &in);
        linear_layer(&layer->ffn_down, &in, kept, ADD_RESIDUAL, attended, narrow, NULL);
        range = no_range();
        (bert->scale_query_and_key ? layer_norm_of_sum : layer_norm)(&layer->ffn_norm, mixed, kept, bert->hidden,
                                                                     states, &range);
    }
    if (bert->classes) classify(bert, states, &in, wide.values, out);
    else memcpy(out, states, (size_t)wanted * (size_t)bert->hidden * sizeof *out);
}
