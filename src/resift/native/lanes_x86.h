/* Code shared by the AVX2 and AVX-512 kernels: sums over a row in 256 bits. */
#ifndef RESIFT_LANES_X86_H
#define RESIFT_LANES_X86_H

#include <immintrin.h>

#include "inline.h"

INLINE void prefetch(const void *line) { _mm_prefetch((const char *)line, _MM_HINT_T1); }

/* Sums of four rows, each with four double accumulators. */
INLINE void sums_in_double(const float *const row[4], int32_t width, double total[4])
{
    __m256d sum[4];
    for (int r = 0; r < 4; r++) sum[r] = _mm256_setzero_pd();
    for (int32_t at = 0; at < width; at += 4)
        for (int r = 0; r < 4; r++) sum[r] = _mm256_add_pd(sum[r], _mm256_cvtps_pd(_mm_loadu_ps(row[r] + at)));
    for (int r = 0; r < 4; r++) {
        __m128d half = _mm_add_pd(_mm256_castpd256_pd128(sum[r]), _mm256_extractf128_pd(sum[r], 1));
        total[r] = _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
    }
}

/* Sums of squared deviations of four rows from their means, each with eight accumulators. */
INLINE void sums_of_squares(const float *const row[4], const float mean[4], int32_t width, float total[4])
{
    __m256 sum[4];
    for (int r = 0; r < 4; r++) sum[r] = _mm256_setzero_ps();
    for (int32_t at = 0; at < width; at += 8)
        for (int r = 0; r < 4; r++) {
            const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(row[r] + at), _mm256_set1_ps(mean[r]));
            sum[r] = _mm256_fmadd_ps(distance, distance, sum[r]);
        }
    for (int r = 0; r < 4; r++) {
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum[r]), _mm256_extractf128_ps(sum[r], 1));
        half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        total[r] = _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
    }
}

/* v0..v7 -> ((v0+v1)+(v2+v3)) + ((v4+v5)+(v6+v7)) */
INLINE float sum_of_eight(__m256 v)
{
    const __m256 pairs = _mm256_hadd_ps(v, v), fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

#endif
