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

INLINE float mean_of(const float *row, int32_t width)
{
    __m256d sum = _mm256_setzero_pd();
    for (int32_t i = 0; i < width; i += 4) sum = _mm256_add_pd(sum, _mm256_cvtps_pd(_mm_loadu_ps(row + i)));
    __m128d half = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
    half = _mm_add_sd(half, _mm_unpackhi_pd(half, half));
    return (float)(_mm_cvtsd_f64(half) / (double)width);
}

INLINE float deviation_of(const float *row, int32_t width, float mean)
{
    __m256 sum = _mm256_setzero_ps();
    for (int32_t i = 0; i < width; i += 8) {
        const __m256 off = _mm256_sub_ps(_mm256_loadu_ps(row + i), _mm256_set1_ps(mean));
        sum = _mm256_fmadd_ps(off, off, sum);
    }
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    half = _mm_add_ss(half, _mm_movehdup_ps(half));
    return sqrtf(_mm_cvtss_f32(half) / (float)width + epsilon);
}

VECTOR void normalise(const Norm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range)
{
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        const float mean = mean_of(in, width), inverse = 1.0f / deviation_of(in, width, mean);
        for (int32_t column = 0; column < width; column += LANES) {
            const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(in + column), all(mean));
            const __m512 value = scaled(norm, _mm512_mul_ps(off, all(inverse)), column, 1);
            widen_range(range, value);
            _mm512_storeu_ps(out + column, value);
        }
    }
}

/* Mean and standard deviation of up to 16 rows, each lane one row. */
INLINE void welford(const float *in, int32_t rows, int32_t width, float means[LANES], float deviations[LANES])
{
    __m512 mean = _mm512_setzero_ps(), squares = _mm512_setzero_ps(), block[LANES];
    for (int32_t column = 0; column < width; column += LANES) {
        for (int r = 0; r < LANES; r++)
            block[r] = _mm512_loadu_ps(in + (int64_t)(r < rows ? r : 0) * width + column);
        transpose(block);
        for (int c = 0; c < LANES; c++) {
            const float count = (float)(column + c + 1);
            const __m512 before = _mm512_sub_ps(block[c], mean);
            mean = _mm512_add_ps(mean, quotient(before, all(count), all(1.0f / count)));
            squares = _mm512_add_ps(squares, _mm512_mul_ps(before, _mm512_sub_ps(block[c], mean)));
        }
    }
    const __m512 variance = _mm512_add_ps(_mm512_div_ps(squares, all((float)width)), all(epsilon));
    _mm512_storeu_ps(means, mean);
    _mm512_storeu_ps(deviations, _mm512_sqrt_ps(variance));
}

VECTOR void normalise_fused(const Norm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range)
{
    float means[LANES], deviations[LANES];
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        const int32_t lane = row % LANES;
        if (lane == 0) welford(in, rows - row, width, means, deviations);
        const __m512 deviation = all(deviations[lane]), reciprocal = all(1.0f / deviations[lane]);
        for (int32_t column = 0; column < width; column += LANES) {
            const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(in + column), all(means[lane]));
            const __m512 value = scaled(norm, quotient(off, deviation, reciprocal), column, 0);
            widen_range(range, value);
            _mm512_storeu_ps(out + column, value);
        }
    }
}
