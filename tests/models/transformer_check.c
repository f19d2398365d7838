/* Runs one kernel over small transformers with random weights, in buffers of exactly the size that was asked for, and
 * prints a line per length and variant: "tokens variant hash". Equal lines mean equal bits. Variants: BERT and
 * XLM-RoBERTa (norms after each block), ELECTRA (with a projection), ModernBERT (norms before each block, rotary
 * positions, windows, gates), each in int8 and fp32. Usage: transformer_check KERNEL [TOKENS] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "processor.h"
#include "transformer.h"

typedef struct {
    const char *name;
    int64_t (*packed_size)(int32_t, int32_t);
    void (*pack)(const int8_t *, int32_t, int32_t, void *, int32_t *);
    int64_t (*float_size)(int32_t, int32_t);
    void (*pack_floats)(const float *, int32_t, int32_t, float *);
    int64_t (*scratch)(const Transformer *, int32_t);
    void (*forward)(const Transformer *, float *, int32_t, int32_t, float *, float *);
} Kernel;

#define KERNEL_ROW(kernel)                                                                                            \
    {#kernel, transformer_packed_size_##kernel, transformer_pack_##kernel, transformer_float_size_##kernel,           \
     transformer_pack_floats_##kernel, transformer_scratch_##kernel, transformer_forward_##kernel}
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

enum {
    WIDTH = 192, TRUE_WIDTH = 180, HEADS = 3, HEAD_WIDTH = 64, FFN = 256, LAYERS = 3, EMBEDDING = 128,
    TRUE_EMBEDDING = 100, POSITIONS = 1024, MAX_OUTPUTS = 64
};
enum { BERT, ELECTRA, MODERNBERT, FAMILIES };

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u, state >> 8; }
static float real(float scale) { return scale * ((float)(next() & 0xFFFF) / 32768.0f - 1.0f); }

static void *memory(size_t size)
{
    void *made = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!made) exit(3);
    return made;
}

/* Random numbers, and zeros from `used` on. */
static float *reals(int32_t count, int32_t used, float scale, float around)
{
    float *made = memory((size_t)count * sizeof *made);
    for (int32_t i = 0; i < count; i++) made[i] = i < used ? around + real(scale) : 0.0f;
    return made;
}

/* A layer with zeros in what only fills up its inputs and outputs. */
static Linear linear(const Kernel *kernel, int int8, int32_t inputs, int32_t used_inputs, int32_t outputs, int32_t used)
{
    Linear made = {inputs, outputs, NULL, NULL, NULL, reals(outputs, used, 0.3f, 0)};
    if (!int8) {
        float *weights = memory((size_t)inputs * (size_t)outputs * sizeof *weights);
        for (int64_t i = 0; i < (int64_t)inputs * outputs; i++)
            weights[i] = i / outputs < used_inputs && i % outputs < used ? real(0.12f) : 0.0f;
        float *packed = memory((size_t)kernel->float_size(inputs, outputs) * sizeof *packed);
        kernel->pack_floats(weights, inputs, outputs, packed);
        free(weights);
        made.packed = packed;
        return made;
    }
    int8_t *weights = memory((size_t)inputs * (size_t)outputs);
    int32_t *sums = memory((size_t)outputs * sizeof *sums);
    for (int32_t row = 0; row < inputs; row += 2)
        for (int32_t column = 0; column < outputs; column++) {
            /* Large, medium and small weights, because AVX2 adds products of small weights in 16 bits. */
            const int32_t most = column / 16 % 3 == 0 ? 127 : column / 16 % 3 == 1 ? 60 : 25;
            int32_t a = (int32_t)(next() % 255) % (2 * most + 1) - most;
            int32_t b = (int32_t)(next() % 255) % (2 * most + 1) - most;
            if (a + b > 128 || a + b < -128) a /= 2, b /= 2;
            const int inside = column < used;
            weights[(int64_t)row * outputs + column] = (int8_t)(inside && row < used_inputs ? a : 0);
            weights[(int64_t)(row + 1) * outputs + column] = (int8_t)(inside && row + 1 < used_inputs ? b : 0);
        }
    void *packed = memory((size_t)kernel->packed_size(inputs, outputs));
    kernel->pack(weights, inputs, outputs, packed, sums);
    free(weights);
    made.packed = packed, made.sums = sums, made.scales = reals(outputs, used, 2e-4f, 1e-3f);
    return made;
}

static LayerNorm norm(int32_t width, int32_t used)
{
    const LayerNorm made = {reals(width, used, 0.3f, 1), reals(width, used, 0.2f, 0)};
    return made;
}

static Transformer build(const Kernel *kernel, int family, int int8)
{
    const int modern = family == MODERNBERT, inner = HEADS * HEAD_WIDTH;
    static TransformerLayer layers[FAMILIES][2][LAYERS];
    static HeadStep steps[FAMILIES][2][4];
    TransformerLayer *layer = layers[family][int8];
    HeadStep *head = steps[family][int8];
    state = (uint32_t)(family + 1);
    for (int i = 0; i < LAYERS; i++) {
        layer[i].qkv = linear(kernel, int8, WIDTH, TRUE_WIDTH, 3 * inner, 3 * inner);
        layer[i].attention_output = linear(kernel, int8, inner, inner, WIDTH, TRUE_WIDTH);
        layer[i].ffn_up = linear(kernel, int8, WIDTH, TRUE_WIDTH, FFN * (modern ? 2 : 1), FFN * (modern ? 2 : 1));
        layer[i].ffn_down = linear(kernel, int8, FFN, FFN, WIDTH, TRUE_WIDTH);
        layer[i].attention_norm = norm(WIDTH, TRUE_WIDTH), layer[i].ffn_norm = norm(WIDTH, TRUE_WIDTH);
        if (!modern) continue;
        if (!i) layer[i].attention_norm.weight = layer[i].attention_norm.bias = NULL;
        layer[i].window = i ? 7 * i * i : 0; /* 0, 7 and 28 */
        layer[i].cosines = reals(POSITIONS * HEAD_WIDTH / 2, POSITIONS * HEAD_WIDTH / 2, 1, 0);
        layer[i].sines = reals(POSITIONS * HEAD_WIDTH / 2, POSITIONS * HEAD_WIDTH / 2, 1, 0);
    }
    head[0].kind = STEP_LINEAR, head[0].linear = linear(kernel, 0, WIDTH, TRUE_WIDTH, WIDTH, TRUE_WIDTH);
    head[1].kind = STEP_ACTIVATION, head[1].activation = modern ? ACTIVATION_GELU : ACTIVATION_TANH;
    head[2].kind = STEP_NORM, head[2].norm = norm(WIDTH, TRUE_WIDTH);
    head[2].norm_width = TRUE_WIDTH, head[2].norm_epsilon = 1e-5f;
    head[3].kind = STEP_LINEAR, head[3].linear = linear(kernel, 0, WIDTH, TRUE_WIDTH, MAX_OUTPUTS, 3);
    Transformer model = {0};
    const int projected = family == ELECTRA;
    model.input_width = projected ? EMBEDDING : WIDTH;
    model.true_input_width = projected ? TRUE_EMBEDDING : TRUE_WIDTH;
    model.width = WIDTH, model.true_width = TRUE_WIDTH;
    model.heads = HEADS, model.head_width = HEAD_WIDTH, model.inner = inner;
    model.ffn = FFN, model.layers = LAYERS;
    model.pre_norm = model.gated = modern;
    model.activation = family == ELECTRA ? ACTIVATION_GELU_TANH : ACTIVATION_GELU;
    model.attention_scale = 0.125f, model.epsilon = modern ? 1e-5f : 1e-12f;
    model.embedding_norm = norm(model.input_width, model.true_input_width);
    if (modern) model.final_norm = norm(WIDTH, TRUE_WIDTH);
    if (projected) model.projection = linear(kernel, int8, EMBEDDING, TRUE_EMBEDDING, WIDTH, TRUE_WIDTH);
    model.layer = layer, model.head = head;
    return model;
}

static uint64_t hash(const void *data, size_t size)
{
    uint64_t found = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) found = (found ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return found;
}

static void check(const Kernel *kernel, Transformer *model, int32_t tokens, int32_t variant)
{
    state = (uint32_t)(tokens * 8 + variant);
    const int32_t width = model->input_width;
    float *input = malloc((size_t)tokens * (size_t)width * sizeof *input);
    for (int32_t i = 0; i < tokens * width; i++) input[i] = i % width < model->true_input_width ? real(1) : 0.0f;
    model->pooling = tokens % 4;
    model->head_steps = model->pooling != POOL_NONE && tokens % 3 ? 4 : 0;
    model->outputs = model->head_steps ? 3 : TRUE_WIDTH;
    const int32_t wanted = model->pooling == POOL_NONE ? (tokens + 1) / 2 : tokens;
    const int32_t size = model->pooling == POOL_NONE ? wanted * WIDTH : model->outputs;
    float *out = malloc((size_t)size * sizeof *out);
    float *scratch = malloc((size_t)kernel->scratch(model, tokens) * sizeof *scratch);
    kernel->forward(model, input, tokens, wanted, scratch, out);
    if (!isfinite(out[0])) exit(4);
    printf("%d %d %016llx %.9g\n", tokens, variant, (unsigned long long)hash(out, (size_t)size * sizeof *out),
           (double)out[0]);
    free(input), free(out), free(scratch);
}

int main(int count, char **words)
{
    const Kernel *kernel = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (count > 1 && !strcmp(words[1], kernels[i].name)) kernel = kernels + i;
    if (!kernel || !strstr(resift_kernels(), kernel->name)) return 2;
    const int32_t most = count > 2 ? atoi(words[2]) : 200;
    for (int32_t variant = 0; variant < 2 * FAMILIES; variant++) {
        Transformer model = build(kernel, variant / 2, variant % 2);
        for (int32_t tokens = 1; tokens <= most; tokens += tokens < 6 ? 1 : 4 + tokens / 4)
            check(kernel, &model, tokens, variant);
    }
    return 0;
}
