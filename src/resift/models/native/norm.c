/* Layer normalisation, in the two ways that the runtime has for it.
 *
 * A norm by itself takes the mean in double precision and the variance around it; one that is fused with
 * the residual before it runs Welford's recurrence from left to right, here for sixteen rows side by side. */
#include <math.h>

#include "numbers.h"

static const float epsilon = 1e-12f;

INLINE __m512 scaled(const Norm *norm, __m512 value, int32_t column, int fused)
{
    const __m512 weight = _mm512_loadu_ps(norm->weight + column), bias = _mm512_loadu_ps(norm->bias + column);
    return fused ? fma3(value, weight, bias) : _mm512_add_ps(_mm512_mul_ps(value, weight), bias);
}

/* The rows of a group of four; where there are fewer, the first stands in. */
typedef struct {
    const float *row[4];
} Group;

INLINE Group group(const float *in, int32_t rows, int32_t width)
{
    Group found;
    FOUR found.row[i] = in + (int64_t)(i < rows ? i : 0) * width;
    return found;
}

INLINE void means(const Group *in, int32_t width, float mean[4])
{
    __m256d sum[4];
    FOUR sum[i] = _mm256_setzero_pd();
    for (int32_t at = 0; at < width; at += 4)
        FOUR sum[i] = _mm256_add_pd(sum[i], _mm256_cvtps_pd(_mm_loadu_ps(in->row[i] + at)));
    FOUR {
        __m128d half = _mm_add_pd(_mm256_castpd256_pd128(sum[i]), _mm256_extractf128_pd(sum[i], 1));
        half = _mm_add_sd(half, _mm_unpackhi_pd(half, half));
        mean[i] = (float)(_mm_cvtsd_f64(half) / (double)width);
    }
}

INLINE void deviations_from(const float mean[4], const Group *in, int32_t width, float deviation[4])
{
    __m256 sum[4];
    FOUR sum[i] = _mm256_setzero_ps();
    for (int32_t at = 0; at < width; at += 8)
        FOUR {
            const __m256 off = _mm256_sub_ps(_mm256_loadu_ps(in->row[i] + at), _mm256_set1_ps(mean[i]));
            sum[i] = _mm256_fmadd_ps(off, off, sum[i]);
        }
    FOUR {
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum[i]), _mm256_extractf128_ps(sum[i], 1));
        half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        half = _mm_add_ss(half, _mm_movehdup_ps(half));
        deviation[i] = sqrtf(_mm_cvtss_f32(half) / (float)width + epsilon);
    }
}

VECTOR void normalise(const Norm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range)
{
    float mean[4], deviation[4];
    Range seen = *range; // in registers: as far as the compiler knows, `out` may overlap `range`
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        if (row % 4 == 0) {
            const Group here = group(in, rows - row, width);
            means(&here, width, mean);
            deviations_from(mean, &here, width, deviation);
        }
        const __m512 centre = all(mean[row % 4]), inverse = all(1.0f / deviation[row % 4]);
        for (int32_t column = 0; column < width; column += LANES) {
            const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(in + column), centre);
            const __m512 value = scaled(norm, _mm512_mul_ps(off, inverse), column, 1);
            widen_range(&seen, value);
            _mm512_storeu_ps(out + column, value);
        }
    }
    *range = seen;
}

/* Mean and standard deviation of up to 32 rows, each lane one row. */
INLINE void welford(const float *in, int32_t rows, int32_t width, float *means, float *deviations)
{
    __m512 mean[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, squares[2] = {mean[0], mean[0]};
    __m512 block[2][LANES];
    for (int32_t column = 0; column < width; column += LANES) {
        for (int b = 0; b < 2; b++) {
            for (int r = 0; r < LANES; r++) {
                const int64_t row = b * LANES + r < rows ? b * LANES + r : 0;
                block[b][r] = _mm512_loadu_ps(in + row * width + column);
            }
            transpose(block[b]);
        }
        for (int c = 0; c < LANES; c++) {
            const float count = (float)(column + c + 1);
            const __m512 divisor = all(count), reciprocal = all(1.0f / count);
#pragma GCC unroll 2
            for (int b = 0; b < 2; b++) {
                const __m512 before = _mm512_sub_ps(block[b][c], mean[b]);
                mean[b] = _mm512_add_ps(mean[b], quotient(before, divisor, reciprocal));
                const __m512 after = _mm512_sub_ps(block[b][c], mean[b]);
                squares[b] = _mm512_add_ps(squares[b], _mm512_mul_ps(before, after));
            }
        }
    }
    for (int b = 0; b < 2; b++) {
        const __m512 variance = _mm512_add_ps(_mm512_div_ps(squares[b], all((float)width)), all(epsilon));
        _mm512_storeu_ps(means + b * LANES, mean[b]);
        _mm512_storeu_ps(deviations + b * LANES, _mm512_sqrt_ps(variance));
    }
}

VECTOR void normalise_fused(const Norm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range)
{
    float means[2 * LANES], deviations[2 * LANES];
    Range seen = *range;
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        const int32_t lane = row % (2 * LANES);
        if (lane == 0) welford(in, rows - row, width, means, deviations);
        const __m512 centre = all(means[lane]), deviation = all(deviations[lane]);
        const __m512 reciprocal = all(1.0f / deviations[lane]);
        for (int32_t column = 0; column < width; column += LANES) {
            const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(in + column), centre);
            const __m512 value = scaled(norm, quotient(off, deviation, reciprocal), column, 0);
            widen_range(&seen, value);
            _mm512_storeu_ps(out + column, value);
        }
    }
    *range = seen;
}
