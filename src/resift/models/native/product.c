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

INLINE void gelu_tile(const int rows, float *out, int64_t stride, Range *range)
{
    Range seen = *range;
    for (int r = 0; r < rows; r++, out += stride) {
        __m512 value[4];
        FOUR value[i] = _mm512_loadu_ps(out + LANES * i);
        gelus(value);
        FOUR widen_range(&seen, value[i]);
        FOUR _mm512_storeu_ps(out + LANES * i, value[i]);
    }
    *range = seen;
}

/* The products of up to six rows with one panel, accumulated in registers and finished in place. */
INLINE void tile(const int rows, const Finish finish, const Dense *dense, int32_t column, const Quantised *in,
                 int32_t row, const float *residual, float *out, Range *range)
{
    const int64_t inputs = dense->inputs, stride = dense->outputs, corner = row * stride + column;
    const uint8_t *bytes = in->bytes + row * inputs;
    const int8_t *weights = dense->packed + column * inputs;
    __m512i sum[ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) FOUR sum[r][i] = _mm512_setzero_si512();
    for (int64_t k = 0; k < inputs; k += 4, weights += 4 * PANEL) {
        __m512i weight[4];
        FOUR weight[i] = _mm512_load_si512(weights + PANEL * i);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i four = _mm512_set1_epi32(*(const int32_t *)(bytes + r * inputs + k));
            FOUR add_products(&sum[r][i], four, weight[i]);
        }
    }
    FOUR {
        const int32_t at = column + LANES * i;
        const __m512i zero = _mm512_mullo_epi32(_mm512_loadu_si512(dense->sums + at), _mm512_set1_epi32(in->zero));
        const __m512 bias = _mm512_loadu_ps(dense->bias + at);
        const __m512 scale = _mm512_mul_ps(all(in->scale), _mm512_loadu_ps(dense->scales + at));
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const int64_t place = corner + r * stride + LANES * i;
            __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][i], zero));
            value = _mm512_add_ps(_mm512_mul_ps(value, scale), bias);
            if (finish == ADD_RESIDUAL) value = _mm512_add_ps(value, _mm512_loadu_ps(residual + place));
            _mm512_storeu_ps(out + place, value);
        }
    }
    if (finish == GELU) gelu_tile(rows, out + corner, stride, range);
}

INLINE void panel_rows(const Finish finish, const Dense *dense, int32_t column, const Quantised *in, int32_t rows,
                       const float *residual, float *out, Range *range)
{
    // While this panel is used, the next one is on its way, a part with each tile.
    const int64_t size = (int64_t)PANEL * dense->inputs, part = size * ROWS / rows + 1;
    const int8_t *next = dense->packed + column / PANEL * size + (column + PANEL < dense->outputs ? size : 0);
    for (int32_t row = 0, here; row < rows; row += here, next += part) {
        // Two tiles of middle size are faster than a whole one and a small one.
        here = rows - row < 2 * ROWS && rows - row > ROWS ? (rows - row + 1) / 2 : rows - row;
        for (int64_t line = 0; line < part; line += 64) _mm_prefetch((const char *)next + line, _MM_HINT_T1);
#define TILE(n) tile(n, finish, dense, column, in, row, residual, out, range)
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
    for (int32_t column = 0; column < dense->outputs; column += PANEL) {
        if (finish == PLAIN) panel_rows(PLAIN, dense, column, in, rows, residual, out, range);
        if (finish == ADD_RESIDUAL) panel_rows(ADD_RESIDUAL, dense, column, in, rows, residual, out, range);
        if (finish == GELU) panel_rows(GELU, dense, column, in, rows, residual, out, range);
    }
}
