/* Multi-head attention of all tokens of one text to each other, in single precision. */
#include "numbers.h"

/* keys[row][0..width) of one head, transposed to [width][columns] with zeros behind the last row. */
INLINE void transpose_keys(const float *keys, int64_t stride, int32_t rows, int32_t width, float factor, float *out,
                           int32_t columns)
{
    __m512 block[LANES];
    for (int32_t row = 0; row < rows; row += LANES)
        for (int32_t d = 0; d < width; d += LANES) {
            for (int r = 0; r < LANES; r++)
                block[r] = row + r < rows
                               ? _mm512_mul_ps(_mm512_loadu_ps(keys + (row + r) * stride + d), all(factor))
                               : _mm512_setzero_ps();
            transpose(block);
            for (int c = 0; c < LANES; c++) _mm512_storeu_ps(out + (int64_t)(d + c) * columns + row, block[c]);
        }
}

/* Written as the instruction itself: compilers move the accumulators of the intrinsic around. */
INLINE void add_product(__m512 *sum, __m512 left, __m512 right)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(left), "v"(right));
}

/* out[r][0..16 * vectors) = factor * sum over k of left[r][k] * right[k][...], added up from k = 0 on. */
INLINE void block(const int rows, const int vectors, const float *left, int64_t left_stride, const float *right,
                  int64_t right_stride, int32_t depth, float factor, float *out, int64_t out_stride, Range *range)
{
    __m512 sum[12][4];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_setzero_ps();
    for (int32_t k = 0; k < depth; k++, right += right_stride) {
        __m512 column[4];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) column[v] = _mm512_loadu_ps(right + LANES * v);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const __m512 one = all(left[r * left_stride + k]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) add_product(&sum[r][v], one, column[v]);
        }
    }
    Range seen = range ? *range : no_range();
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const __m512 value = _mm512_mul_ps(sum[r][v], all(factor));
            if (range) widen_range(&seen, value);
            _mm512_storeu_ps(out + r * out_stride + LANES * v, value);
        }
    if (range) *range = seen;
}

INLINE float added_up(__m512 v)
{
    const __m256 half = _mm256_add_ps(_mm512_extractf32x8_ps(v, 1), _mm512_castps512_ps256(v));
    const __m256 pairs = _mm256_hadd_ps(half, half), fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

/* Rows have room for whole groups of four vectors; what lies behind `count` may hold anything afterwards.
 * Each step is done for some rows before the next one: a row's sum is slow to come, and nobody waits for it. */
INLINE void softmax(float *weights, int64_t stride, int32_t rows, int32_t count)
{
    static const float of_exp[5] = {0x1.694000p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.555450p-3f, 0x1.fffff6p-2f};
    float number[4];
    for (int r = 0; r < rows; r++) {
        __m512 highest = all(-3.402823466e+38f);
        for (int32_t at = 0; at < count; at += LANES) {
            const __m512 value = _mm512_loadu_ps(weights + r * stride + at);
            highest = _mm512_mask_max_ps(highest, first(count - at), highest, value);
        }
        number[r] = _mm512_reduce_max_ps(highest);
    }
    for (int r = 0; r < rows; r++) {
        const __m512 top = all(number[r]);
        __m512 sum = _mm512_setzero_ps(), value[4];
        for (int32_t at = 0; at < count; at += PANEL) {
            float *here = weights + r * stride + at;
            FOUR value[i] = _mm512_sub_ps(_mm512_loadu_ps(here + LANES * i), top);
            FOUR value[i] = _mm512_max_ps(all(-88.3762626647949f), value[i]);
            exponentials(value, of_exp);
            FOUR _mm512_storeu_ps(here + LANES * i, value[i]);
            FOUR sum = _mm512_mask_add_ps(sum, first(count - at - LANES * i), sum, value[i]);
        }
        number[r] = 1.0f / added_up(sum);
    }
    for (int r = 0; r < rows; r++) {
        const __m512 share = all(number[r]);
        for (int32_t at = 0; at < count; at += LANES) {
            float *here = weights + r * stride + at;
            _mm512_storeu_ps(here, _mm512_mul_ps(_mm512_loadu_ps(here), share));
        }
    }
}

VECTOR static void similarities(const float *queries, int64_t stride, int32_t rows, int32_t width, const float *keys,
                                int32_t columns, float factor, float *out)
{
    for (int32_t column = 0; column < columns; column += PANEL) {
        // What is left of the last panel is read by nobody.
        const int vectors = rows - column >= PANEL - LANES ? 4 : (rows - column + LANES - 1) / LANES;
        for (int32_t row = 0; row < rows; row += ROWS) {
            const int here = rows - row < ROWS ? rows - row : ROWS;
#define BLOCK(r, v)                                                                                       \
    block(r, v, queries + row * stride, stride, keys + column, columns, width, factor,              \
          out + (int64_t)row * columns + column, columns, 0)
#define BLOCKS(r)                                                                                         \
    switch (vectors) {                                                                                    \
    case 1: BLOCK(r, 1); break;                                                                           \
    case 2: BLOCK(r, 2); break;                                                                           \
    case 3: BLOCK(r, 3); break;                                                                           \
    default: BLOCK(r, 4);                                                                                 \
    }
            if (here == ROWS) {
                BLOCKS(ROWS)
                continue;
            }
            for (const int32_t end = row + here; row < end; row++) BLOCKS(1)
#undef BLOCKS
#undef BLOCK
        }
    }
}

VECTOR static void mixtures(const float *weights, int32_t columns, int32_t rows, const float *values, int64_t stride,
                            int32_t width, float *out, int64_t out_stride, Range *range)
{
    for (int32_t d = 0; d < width; d += 2 * LANES) {
        int32_t row = 0;
#define BLOCK(r)                                                                                          \
    block(r, 2, weights + (int64_t)row * columns, columns, values + d, stride, rows, 1.0f,          \
          out + row * out_stride + d, out_stride, range)
        for (; row + 12 <= rows; row += 12) BLOCK(12);
        for (; row + 4 <= rows; row += 4) BLOCK(4);
        for (; row + 2 <= rows; row += 2) BLOCK(2);
        for (; row < rows; row++) BLOCK(1);
#undef BLOCK
    }
}

VECTOR void attend(const Bert *bert, const float *asked, int32_t rows, float *scratch, float *out, Range *range)
{
    const int32_t hidden = bert->hidden, width = hidden / bert->heads, columns = padded(rows);
    const int64_t stride = 3 * (int64_t)hidden;
    float *keys = scratch, *weights = keys + (int64_t)width * columns, *queries = weights + (int64_t)rows * columns;
    const float each = bert->on_each_side ? bert->factor : 1.0f, after = bert->on_each_side ? 1.0f : bert->factor;
    for (int32_t head = 0; head < bert->heads; head++) {
        const float *mine = asked + (int64_t)head * width;
        for (int32_t row = 0; row < rows; row++)
            for (int32_t d = 0; d < width; d += LANES)
                _mm512_storeu_ps(queries + (int64_t)row * width + d,
                                 _mm512_mul_ps(_mm512_loadu_ps(mine + row * stride + d), all(each)));
        transpose_keys(mine + hidden, stride, rows, width, each, keys, columns);
        similarities(queries, width, rows, width, keys, columns, after, weights);
        for (int32_t row = 0; row < rows; row += 4)
            softmax(weights + (int64_t)row * columns, columns, rows - row < 4 ? rows - row : 4, rows);
        mixtures(weights, columns, rows, mine + 2 * (int64_t)hidden, stride, width, out + (int64_t)head * width,
                 hidden, range);
    }
}
