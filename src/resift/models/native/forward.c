/* One forward pass of one row of tokens on the calling thread. */
#include <stddef.h>

#include "numbers.h"

int32_t resift_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}

/* Lay weights [inputs][outputs] out in panels, and add up each output's. */
void resift_pack(const int8_t *weights, int32_t inputs, int32_t outputs, int8_t *packed, int32_t *sums)
{
    for (int32_t column = 0; column < outputs; column++) sums[column] = 0;
    for (int32_t row = 0; row < inputs; row++)
        for (int32_t column = 0; column < outputs; column++) {
            const int8_t weight = weights[(int64_t)row * outputs + column];
            const int64_t panel = (int64_t)(column / PANEL) * PANEL * inputs;
            packed[panel + (int64_t)(row / 4) * 4 * PANEL + (column % PANEL) * 4 + row % 4] = weight;
            sums[column] += weight;
        }
}

INLINE __m512 looked_up(const Table *table, int64_t at)
{
    const __m512i level = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(table->values + at)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(level, _mm512_set1_epi32(table->zero))),
                         all(table->scale));
}

VECTOR static void embed(const Bert *bert, const int32_t *ids, const int32_t *kinds, int32_t rows, float *out)
{
    const int32_t hidden = bert->hidden;
    for (int32_t row = 0; row < rows; row++)
        for (int32_t d = 0; d < hidden; d += LANES) {
            const __m512 word = looked_up(&bert->words, (int64_t)ids[row] * hidden + d);
            const __m512 kind = looked_up(&bert->kinds, (int64_t)kinds[row] * hidden + d);
            const __m512 place = _mm512_loadu_ps(bert->places + (int64_t)row * hidden + d);
            _mm512_storeu_ps(out + (int64_t)row * hidden + d, _mm512_add_ps(_mm512_add_ps(word, kind), place));
        }
}

/* The widest activations of a layer: queries, keys and values together, or the inner layer. */
static int64_t widest(const Bert *bert) { return bert->wide > 3 * bert->hidden ? bert->wide : 3 * bert->hidden; }

/* Floats of scratch that a pass over so many rows needs. */
int64_t resift_scratch(const Bert *bert, int32_t rows)
{
    const int64_t columns = padded(rows), width = bert->hidden / bert->heads;
    const int64_t bytes = rows * widest(bert) / (int64_t)sizeof(float);
    const int64_t floats = rows * (3 * (int64_t)bert->hidden + widest(bert));
    return bytes + floats + width * columns + rows * columns + rows * width;
}

/* Pool the first token's state and write the classes' logits. */
VECTOR static void classify(const Bert *bert, const float *state, Quantised *in, float *scratch, float *out)
{
    Range range = no_range();
    for (int32_t d = 0; d < bert->hidden; d += LANES) widen_range(&range, _mm512_loadu_ps(state + d));
    quantise(state, bert->hidden, &range, in);
    product(&bert->pool, in, 1, PLAIN, NULL, scratch, NULL);
    range = no_range();
    for (int32_t d = 0; d < bert->hidden; d += LANES) {
        const __m512 value = hyperbolic_tangent(_mm512_loadu_ps(scratch + d));
        widen_range(&range, value);
        _mm512_storeu_ps(scratch + d, value);
    }
    quantise(scratch, bert->hidden, &range, in);
    product(&bert->classify, in, 1, PLAIN, NULL, scratch, NULL);
    __builtin_memcpy(out, scratch, (size_t)bert->classes * sizeof *out);
}

/* Write the classes' logits, or the states of the first `wanted` tokens after the last layer. */
VECTOR void resift_forward(const Bert *bert, const int32_t *ids, const int32_t *kinds, int32_t rows, int32_t wanted,
                           float *scratch, float *out)
{
    const int64_t size = (int64_t)rows * bert->hidden;
    Quantised in = {(uint8_t *)scratch, 0, 0};
    float *states = scratch + rows * widest(bert) / (int64_t)sizeof(float), *mixed = states + size;
    float *attended = mixed + size, *large = attended + size, *private = large + rows * widest(bert);
    Range range = no_range();

    embed(bert, ids, kinds, rows, mixed);
    normalise(&bert->embedded, mixed, rows, bert->hidden, states, &range);
    for (int32_t number = 0; number < bert->layers; number++) {
        const Layer *layer = bert->layer + number;
        const int32_t kept = number + 1 < bert->layers ? rows : wanted;
        quantise(states, size, &range, &in);
        product(&layer->ask, &in, rows, PLAIN, NULL, large, NULL);
        range = no_range();
        attend(bert, large, rows, private, mixed, &range);
        quantise(mixed, size, &range, &in);
        product(&layer->mix, &in, rows, ADD_RESIDUAL, states, mixed, NULL);
        range = no_range();
        normalise(&layer->attended, mixed, rows, bert->hidden, attended, &range);
        quantise(attended, size, &range, &in);
        range = no_range();
        product(&layer->widen, &in, rows, GELU, NULL, large, &range);
        quantise(large, (int64_t)rows * bert->wide, &range, &in);
        product(&layer->narrow, &in, kept, ADD_RESIDUAL, attended, mixed, NULL);
        range = no_range();
        (bert->on_each_side ? normalise_fused : normalise)(&layer->output, mixed, kept, bert->hidden, states, &range);
    }
    if (bert->classes) classify(bert, states, &in, large, out);
    else __builtin_memcpy(out, states, (size_t)wanted * bert->hidden * sizeof *out);
}
