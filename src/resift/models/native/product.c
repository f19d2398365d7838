/* Integer products of quantised activations with packed weights, and the quantising itself. */
#include "numbers.h"

VECTOR void quantise(const float *values, int64_t count, const Range *range, Quantised *into)
{
    const float low = _mm512_reduce_min_ps(range->low), high = _mm512_reduce_max_ps(range->high);
    into->scale = high == low ? 1.0f : (high - low) / 255.0f;
    const float zero = -low / into->scale;
    into->zero = (int32_t)__builtin_nearbyintf(zero < 0 ? 0 : zero > 255 ? 255 : zero);
    const __m512 scale = all(into->scale), reciprocal = all(1.0f / into->scale);
    const __m512i offset = _mm512_set1_epi32(into->zero);
    for (int64_t i = 0; i < count; i += LANES) {
        __m512i level = _mm512_cvtps_epi32(quotient(_mm512_loadu_ps(values + i), scale, reciprocal));
        level = _mm512_max_epi32(_mm512_add_epi32(level, offset), _mm512_setzero_si512());
        _mm_storeu_si128((__m128i *)(into->bytes + i), _mm512_cvtusepi32_epi8(level));
    }
}

/* Written as the instruction itself: compilers move the accumulators of the intrinsic around. */
INLINE void add_products(__m512i *sum, __m512i bytes, __m512i weights)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(bytes), "v"(weights));
}

/* The products of up to six rows with one panel, accumulated in registers and finished in place. */
INLINE void tile(const int rows, const Finish finish, const uint8_t *in, int32_t inputs, const int8_t *panel,
                 const int32_t *sums, int32_t zero, float scale, const float *scales, const float *bias, const float *residual,
                 float *out, int64_t stride, Range *range)
{
    __m512i sum[ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) sum[r][v] = _mm512_setzero_si512();
    for (int32_t k = 0; k < inputs; k += 4, panel += 4 * PANEL) {
        const __m512i w0 = _mm512_load_si512(panel), w1 = _mm512_load_si512(panel + 64);
        const __m512i w2 = _mm512_load_si512(panel + 128), w3 = _mm512_load_si512(panel + 192);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i four = _mm512_set1_epi32(*(const int32_t *)(in + (int64_t)r * inputs + k));
            add_products(&sum[r][0], four, w0);
            add_products(&sum[r][1], four, w1);
            add_products(&sum[r][2], four, w2);
            add_products(&sum[r][3], four, w3);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        const __m512i shift = _mm512_mullo_epi32(_mm512_loadu_si512(sums + LANES * v), _mm512_set1_epi32(zero));
        const __m512 add = _mm512_loadu_ps(bias + LANES * v);
        const __m512 factor = _mm512_mul_ps(all(scale), _mm512_loadu_ps(scales + LANES * v));
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][v], shift));
            value = _mm512_add_ps(_mm512_mul_ps(value, factor), add);
            const int64_t at = r * stride + LANES * v;
            if (finish == ADD_RESIDUAL) value = _mm512_add_ps(value, _mm512_loadu_ps(residual + at));
            _mm512_storeu_ps(out + at, value);
        }
    }
    if (finish != GELU) return;
    Range seen = *range;
    for (int r = 0; r < rows; r++) {
        __m512 value[4];
        FOUR value[i] = _mm512_loadu_ps(out + r * stride + LANES * i);
        gelus(value);
        FOUR widen_range(&seen, value[i]);
        FOUR _mm512_storeu_ps(out + r * stride + LANES * i, value[i]);
    }
    *range = seen;
}

INLINE void panel_rows(const Finish finish, const Dense *dense, const Quantised *in, int32_t rows, int32_t panel,
                       const float *residual, float *out, Range *range)
{
    const int32_t column = panel * PANEL, inputs = dense->inputs, outputs = dense->outputs;
    const int8_t *weights = dense->packed + (int64_t)column * inputs;
    // While this panel is used, the next one is on its way, a part with each tile.
    const int64_t part = (int64_t)PANEL * inputs * ROWS / rows + 1;
    const int8_t *next = column + PANEL < outputs ? weights + (int64_t)PANEL * inputs : weights;
    for (int32_t row = 0, here; row < rows; row += here, next += part) {
        const int64_t at = (int64_t)row * outputs + column;
        // Two tiles of middle size are faster than a whole one and a small one.
        here = rows - row < 2 * ROWS && rows - row > ROWS ? (rows - row + 1) / 2 : rows - row;
        for (int64_t line = 0; line < part; line += 64) _mm_prefetch((const char *)next + line, _MM_HINT_T1);
#define TILE(n)                                                                                              \
    tile(n, finish, in->bytes + (int64_t)row * inputs, inputs, weights, dense->sums + column, in->zero, in->scale, \
         dense->scales + column, dense->bias + column, finish == ADD_RESIDUAL ? residual + at : 0, out + at,   \
         outputs, range)
        switch (here) {
        case 1: TILE(1); break;
        case 2: TILE(2); break;
        case 3: TILE(3); break;
        case 4: TILE(4); break;
        case 5: TILE(5); break;
        default: TILE(ROWS), here = ROWS;
        }
#undef TILE
    }
}

VECTOR void product(const Dense *dense, const Quantised *in, int32_t rows, Finish finish, const float *residual,
                    float *out, Range *range)
{
    for (int32_t panel = 0; panel < dense->outputs / PANEL; panel++) {
        if (finish == PLAIN) panel_rows(PLAIN, dense, in, rows, panel, residual, out, range);
        if (finish == ADD_RESIDUAL) panel_rows(ADD_RESIDUAL, dense, in, rows, panel, residual, out, range);
        if (finish == GELU) panel_rows(GELU, dense, in, rows, panel, residual, out, range);
    }
}
