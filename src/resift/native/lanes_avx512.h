/* Sixteen lanes in one AVX-512 register, with VNNI for integer products. */
#ifndef RESIFT_LANES_H
#define RESIFT_LANES_H

#include "bert.h"
#include "lanes_x86.h"

#define KERNEL avx512

typedef __m512 Lanes;
typedef __m512i Ints;
typedef uint8_t Activation;

enum {
    CHAINS = 4, /* vectors that pass through a chain of dependent steps together */
    SCORE_ROWS = 6, SCORE_VECTORS = 4, CONTEXT_ROWS = 12, CONTEXT_VECTORS = 2, /* attention tiles */
    TILE_ROWS = 6, TILE_VECTORS = 4, /* a tile of a linear layer */
    ACTIVATION_SHIFT = 0
};

INLINE Lanes all(float value) { return _mm512_set1_ps(value); }
/* A constant that must stay in a register; compilers would otherwise read it from memory each time. */
INLINE Lanes kept(Lanes v)
{
    __asm__("" : "+v"(v));
    return v;
}
INLINE Lanes load(const float *at) { return _mm512_loadu_ps(at); }
INLINE void store(float *at, Lanes v) { _mm512_storeu_ps(at, v); }
INLINE Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
INLINE Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
INLINE Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
INLINE Lanes divide(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
INLINE Lanes square_root(Lanes a) { return _mm512_sqrt_ps(a); }
INLINE Lanes fma3(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Lanes minus_product(Lanes a, Lanes b, Lanes c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE Lanes minus_both(Lanes a, Lanes b, Lanes c) { return _mm512_fnmsub_ps(a, b, c); }
INLINE Lanes lower(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
INLINE Lanes higher(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
INLINE Lanes magnitude(Lanes a) { return _mm512_andnot_ps(all(-0.0f), a); }
INLINE Lanes with_sign_of(Lanes a, Lanes sign) { return _mm512_or_ps(a, _mm512_and_ps(sign, all(-0.0f))); }
INLINE Lanes times_power_of_two(Lanes a, Lanes power) { return _mm512_scalef_ps(a, power); }
INLINE Lanes where_above(Lanes v, float limit, Lanes then, Lanes otherwise)
{
    return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(v, all(limit), _CMP_GT_OQ), then);
}

INLINE __mmask16 first(int32_t lanes)
{
    return (__mmask16)(lanes >= LANES ? 0xFFFF : lanes <= 0 ? 0 : (1u << lanes) - 1);
}
INLINE Lanes add_first(int32_t lanes, Lanes a, Lanes b) { return _mm512_mask_add_ps(a, first(lanes), a, b); }
INLINE Lanes higher_first(int32_t lanes, Lanes a, Lanes b) { return _mm512_mask_max_ps(a, first(lanes), a, b); }

INLINE float lowest_lane(Lanes v) { return _mm512_reduce_min_ps(v); }
INLINE float highest_lane(Lanes v) { return _mm512_reduce_max_ps(v); }
INLINE float sum_of_lanes(Lanes v)
{
    return sum_of_eight(_mm256_add_ps(_mm512_extractf32x8_ps(v, 1), _mm512_castps512_ps256(v)));
}

/* Inline assembly, because compilers move the accumulators of the intrinsic between registers. */
INLINE void accumulate(Lanes *sum, Lanes a, Lanes b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

INLINE Ints all_ints(int32_t value) { return _mm512_set1_epi32(value); }
INLINE Ints load_ints(const int32_t *at) { return _mm512_loadu_si512(at); }
INLINE Ints load_bytes(const uint8_t *at) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)at)); }
INLINE Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
INLINE Ints sub_ints(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
INLINE Ints mul_ints(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
INLINE Lanes to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
INLINE Ints to_ints(Lanes v) { return _mm512_cvtps_epi32(v); } /* rounds to nearest, ties to even */

/* Levels, clamped to 0 and 255. */
INLINE void store_levels(Activation *at, Ints level)
{
    level = _mm512_max_epi32(level, _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)at, _mm512_cvtusepi32_epi8(level));
}

INLINE void transpose(Lanes v[LANES])
{
    __m512 t[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        v[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
        v[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xDD);
        t[i + 8] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xDD);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xDD);
        v[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xDD);
    }
}

#include "quantized.h"

/* Packed weights: [outputs / 64][inputs / 4][64][4]. */
typedef int8_t Weight;
enum { DEPTH = 4, TILE_COLUMNS = TILE_VECTORS * LANES, ZERO_POINT_INCLUDED = 0 };

INLINE void add_dots(Ints *sum, Ints levels, Ints weights)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(levels), "v"(weights));
}

/* Integer products of some rows with the columns of one tile. */
INLINE void multiply(const int rows, const Quantized *in, int32_t row, const Linear *linear, int32_t column,
                     Ahead ahead, Ints total[TILE_ROWS][TILE_VECTORS])
{
    Ints sum[TILE_ROWS][TILE_VECTORS]; /* local, because for the compiler `total` may alias the weights */
    const int64_t inputs = linear->inputs;
    const Activation *levels = in->levels + row * inputs;
    const Weight *weights = (const Weight *)linear->packed + column * inputs;
    UNROLL(6) for (int r = 0; r < rows; r++)
        UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++) sum[r][v] = _mm512_setzero_si512();
    for (int64_t k = 0; k < inputs; k += DEPTH, weights += DEPTH * TILE_COLUMNS) {
        __m512i weight[TILE_VECTORS];
        if (k % AHEAD_INPUTS == 0) fetch_ahead(&ahead);
        UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++) weight[v] = _mm512_load_si512(weights + DEPTH * LANES * v);
        UNROLL(6) for (int r = 0; r < rows; r++) {
            int32_t four;
            __builtin_memcpy(&four, levels + r * inputs + k, sizeof four);
            UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++) add_dots(&sum[r][v], _mm512_set1_epi32(four), weight[v]);
        }
    }
    UNROLL(6) for (int r = 0; r < rows; r++)
        UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++) total[r][v] = sum[r][v];
}

#endif
