/* Runs one kernel over a small model with random weights, in buffers of exactly the size that was asked for, and
 * prints a line per length: "tokens variant hash". Equal lines mean equal bits. Usage: kernel_check KERNEL [TOKENS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bert.h"
#include "processor.h"

typedef struct {
    const char *name;
    int64_t (*packed_size)(int32_t, int32_t);
    void (*pack)(const int8_t *, int32_t, int32_t, void *, int32_t *);
    int64_t (*scratch)(const Bert *, int32_t);
    void (*forward)(const Bert *, const int32_t *, const int32_t *, int32_t, int32_t, float *, float *);
} Kernel;

#define KERNEL_ROW(kernel)                                                                                            \
    {#kernel, bert_packed_size_##kernel, bert_pack_##kernel, bert_scratch_##kernel, bert_forward_##kernel}
static const Kernel kernels[] = {
    KERNEL_ROW(portable),
#if defined(__x86_64__)
    KERNEL_ROW(avx2),
    KERNEL_ROW(avx512),
#elif defined(__aarch64__)
    KERNEL_ROW(neon),
    KERNEL_ROW(i8mm),
#endif
};

enum { HIDDEN = 128, HEADS = 4, FFN = 192, NUMBER_OF_LAYERS = 2, WORDS = 50, TYPES = 2, POSITIONS = 512, CLASSES = 3 };

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u, state >> 8; }
static float real(float scale) { return scale * ((float)(next() & 0xFFFF) / 32768.0f - 1.0f); }

static void *memory(size_t size)
{
    void *made = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!made) exit(3);
    return made;
}

static float *reals(size_t count, float scale, float around)
{
    float *made = memory(count * sizeof *made);
    for (size_t i = 0; i < count; i++) made[i] = around + real(scale);
    return made;
}

static Linear linear(const Kernel *kernel, int32_t inputs, int32_t outputs)
{
    int8_t *weights = memory((size_t)inputs * (size_t)outputs);
    int32_t *sums = memory((size_t)outputs * sizeof *sums);
    for (int64_t i = 0; i < (int64_t)inputs * outputs; i++) {
        /* Of each 64 outputs 16 have weights over the whole range, the others smaller ones: kernels may tell them apart. */
        const int32_t divisor = 1 << i % outputs / 16 % 4;
        weights[i] = (int8_t)(((int32_t)(next() % 255) - 127) / divisor);
    }
    weights[0] = -128; /* no exporter writes it, but a file may hold it */
    void *packed = memory((size_t)kernel->packed_size(inputs, outputs));
    kernel->pack(weights, inputs, outputs, packed, sums);
    free(weights);
    const Linear made = {inputs, outputs, packed, sums, reals((size_t)outputs, 2e-4f, 1e-3f),
                         reals((size_t)outputs, 0.3f, 0)};
    return made;
}

static LayerNorm norm(void)
{
    const LayerNorm made = {reals(HIDDEN, 0.3f, 1), reals(HIDDEN, 0.2f, 0)};
    return made;
}

static Embedding embedding(int32_t rows)
{
    uint8_t *values = memory((size_t)rows * HIDDEN);
    for (int32_t i = 0; i < rows * HIDDEN; i++) values[i] = (uint8_t)next();
    const Embedding made = {values, 0.01f, 117};
    return made;
}

static uint64_t hash(const void *data, size_t size)
{
    uint64_t found = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) found = (found ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return found;
}

static void check(const Kernel *kernel, Bert *bert, int32_t tokens, int32_t variant)
{
    int32_t *ids = malloc((size_t)tokens * sizeof *ids), *types = malloc((size_t)tokens * sizeof *types);
    state = (uint32_t)(tokens * 4 + variant);
    for (int32_t i = 0; i < tokens; i++) ids[i] = (int32_t)(next() % WORDS), types[i] = (int32_t)(next() % TYPES);
    bert->classes = variant & 1 ? CLASSES : 0;
    bert->scale_query_and_key = variant >> 1;
    const int32_t wanted = bert->classes ? 1 : tokens;
    const size_t size = (bert->classes ? CLASSES : (size_t)tokens * HIDDEN) * sizeof(float);
    float *scratch = malloc((size_t)kernel->scratch(bert, tokens) * sizeof *scratch), *out = malloc(size);
    kernel->forward(bert, ids, types, tokens, wanted, scratch, out);
    printf("%d %d %016llx %.9g\n", tokens, variant, (unsigned long long)hash(out, size), (double)out[0]);
    free(ids), free(types), free(scratch), free(out);
}

int main(int count, char **words)
{
    const Kernel *kernel = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (count > 1 && !strcmp(words[1], kernels[i].name)) kernel = kernels + i;
    if (!kernel || !strstr(resift_kernels(), kernel->name)) return 2;
    Layer layer[NUMBER_OF_LAYERS];
    for (int i = 0; i < NUMBER_OF_LAYERS; i++) {
        layer[i].qkv = linear(kernel, HIDDEN, 3 * HIDDEN), layer[i].attention_output = linear(kernel, HIDDEN, HIDDEN);
        layer[i].ffn_up = linear(kernel, HIDDEN, FFN), layer[i].ffn_down = linear(kernel, FFN, HIDDEN);
        layer[i].attention_norm = norm(), layer[i].ffn_norm = norm();
    }
    Bert bert = {HIDDEN, HEADS, FFN, NUMBER_OF_LAYERS, 0.42f, 0, embedding(WORDS), embedding(TYPES),
                 reals((size_t)POSITIONS * HIDDEN, 1, 0), norm(), layer, 0, linear(kernel, HIDDEN, HIDDEN),
                 linear(kernel, HIDDEN, 64)};
    const int32_t most = count > 2 ? atoi(words[2]) : 200;
    for (int32_t tokens = 1; tokens <= most; tokens += tokens < 70 ? 1 : 13)
        check(kernel, &bert, tokens, tokens % 4), check(kernel, &bert, tokens, (tokens + 1) % 4);
    return 0;
}
