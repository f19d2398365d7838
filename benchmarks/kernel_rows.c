/* Runs one kernel on a carried model's own weights, for processors that are only emulated here.
 *
 *     kernel_rows KERNEL MODEL < rows > answers
 *
 * kernels.py writes MODEL and the rows (tokens, wanted, ids, token types; all int32) and compares the answers. */
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
static const Kernel *kernel;

static void *read_all(FILE *file, size_t size)
{
    void *made = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!made || fread(made, 1, size, file) != size) exit(3);
    return made;
}

static int32_t number(FILE *file)
{
    int32_t *read = read_all(file, sizeof *read), value = *read;
    free(read);
    return value;
}

static float real(FILE *file)
{
    const int32_t bits = number(file);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const float *reals(FILE *file, int64_t count) { return read_all(file, (size_t)count * sizeof(float)); }

static Linear linear(FILE *file)
{
    Linear made = {number(file), number(file), NULL, NULL, NULL, NULL};
    int8_t *weights = read_all(file, (size_t)made.inputs * (size_t)made.outputs);
    int32_t *sums = malloc((size_t)made.outputs * sizeof *sums);
    void *packed = aligned_alloc(64, ((size_t)kernel->packed_size(made.inputs, made.outputs) + 63) / 64 * 64);
    kernel->pack(weights, made.inputs, made.outputs, packed, sums);
    free(weights);
    made.packed = packed, made.sums = sums;
    made.scales = reals(file, made.outputs), made.bias = reals(file, made.outputs);
    return made;
}

static LayerNorm norm(FILE *file, int32_t width)
{
    LayerNorm made = {reals(file, width), NULL};
    made.bias = reals(file, width);
    return made;
}

static Embedding embedding(FILE *file, int32_t width)
{
    const int32_t rows = number(file);
    Embedding made = {read_all(file, (size_t)rows * (size_t)width), 0, 0};
    made.scale = real(file), made.zero_point = number(file);
    return made;
}

static Bert model(FILE *file)
{
    Bert bert;
    bert.hidden = number(file), bert.heads = number(file), bert.ffn = number(file), bert.layers = number(file);
    bert.attention_scale = real(file), bert.scale_query_and_key = number(file), bert.classes = number(file);
    bert.word = embedding(file, bert.hidden), bert.token_type = embedding(file, bert.hidden);
    bert.position = reals(file, (int64_t)number(file) * bert.hidden);
    bert.embedding_norm = norm(file, bert.hidden);
    Layer *layer = malloc((size_t)bert.layers * sizeof *layer);
    for (int32_t i = 0; i < bert.layers; i++) {
        layer[i].qkv = linear(file), layer[i].attention_output = linear(file);
        layer[i].ffn_up = linear(file), layer[i].ffn_down = linear(file);
        layer[i].attention_norm = norm(file, bert.hidden), layer[i].ffn_norm = norm(file, bert.hidden);
    }
    bert.layer = layer;
    if (bert.classes) bert.pooler = linear(file), bert.classifier = linear(file);
    return bert;
}

int main(int count, char **words)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (count == 3 && !strcmp(words[1], kernels[i].name)) kernel = kernels + i;
    if (!kernel || !strstr(resift_kernels(), kernel->name)) return 2;
    FILE *file = fopen(words[2], "rb");
    if (!file) return 2;
    const Bert bert = model(file);
    int32_t shape[2]; /* tokens, wanted */
    while (fread(shape, sizeof shape, 1, stdin)) {
        int32_t *ids = read_all(stdin, 2 * (size_t)shape[0] * sizeof *ids);
        const size_t floats = bert.classes ? (size_t)bert.classes : (size_t)shape[1] * (size_t)bert.hidden;
        float *scratch = malloc((size_t)kernel->scratch(&bert, shape[0]) * sizeof *scratch);
        float *out = malloc(floats * sizeof *out);
        kernel->forward(&bert, ids, ids + shape[0], shape[0], shape[1], scratch, out);
        fwrite(out, sizeof *out, floats, stdout);
        free(ids), free(scratch), free(out);
    }
    return 0;
}
