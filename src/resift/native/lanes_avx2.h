/* Sixteen lanes in two AVX2 registers, with FMA. */
#ifndef RESIFT_LANES_H
#define RESIFT_LANES_H

#include "bert.h"
#include "lanes_x86.h"

#define KERNEL avx2

typedef struct {
    __m256 a, b;
} Lanes;
typedef struct {
    __m256i a, b;
} Ints; /* vectors may be read as the numbers in them */
typedef uint8_t Activation;

enum { CHAINS = 2, ACTIVATION_SHIFT = 0, TILE_ROWS = 4, TILE_VECTORS = 1 };
enum { SCORE_ROWS = 6, SCORE_VECTORS = 1, CONTEXT_ROWS = 6, CONTEXT_VECTORS = 1 };

INLINE Lanes lanes(__m256 a, __m256 b)
{
    const Lanes made = {a, b};
    return made;
}
INLINE Ints ints(__m256i a, __m256i b)
{
    const Ints made = {a, b};
    return made;
}

INLINE Lanes all(float value) { return lanes(_mm256_set1_ps(value), _mm256_set1_ps(value)); }
INLINE Lanes kept(Lanes v) { return v; }
INLINE Lanes load(const float *at) { return lanes(_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)); }
INLINE void store(float *at, Lanes v)
{
    _mm256_storeu_ps(at, v.a);
    _mm256_storeu_ps(at + 8, v.b);
}

#define BOTH(name, operation)                                                                                         \
    INLINE Lanes name(Lanes x, Lanes y) { return lanes(operation(x.a, y.a), operation(x.b, y.b)); }
BOTH(add, _mm256_add_ps)
BOTH(sub, _mm256_sub_ps)
BOTH(mul, _mm256_mul_ps)
BOTH(divide, _mm256_div_ps)
BOTH(lower, _mm256_min_ps)
BOTH(higher, _mm256_max_ps)
#undef BOTH
#define BOTH(name, operation)                                                                                         \
    INLINE Lanes name(Lanes x, Lanes y, Lanes z)                                                                      \
    {                                                                                                                 \
        return lanes(operation(x.a, y.a, z.a), operation(x.b, y.b, z.b));                                             \
    }
BOTH(fma3, _mm256_fmadd_ps)
BOTH(minus_product, _mm256_fnmadd_ps)
BOTH(minus_both, _mm256_fnmsub_ps)
#undef BOTH
#define BOTH(name, operation)                                                                                         \
    INLINE Ints name(Ints x, Ints y) { return ints(operation(x.a, y.a), operation(x.b, y.b)); }
BOTH(add_ints, _mm256_add_epi32)
BOTH(sub_ints, _mm256_sub_epi32)
BOTH(mul_ints, _mm256_mullo_epi32)
#undef BOTH

INLINE Lanes square_root(Lanes v) { return lanes(_mm256_sqrt_ps(v.a), _mm256_sqrt_ps(v.b)); }
INLINE Lanes magnitude(Lanes v)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return lanes(_mm256_andnot_ps(sign, v.a), _mm256_andnot_ps(sign, v.b));
}
INLINE Lanes with_sign_of(Lanes v, Lanes other)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return lanes(_mm256_or_ps(v.a, _mm256_and_ps(other.a, sign)), _mm256_or_ps(v.b, _mm256_and_ps(other.b, sign)));
}
INLINE Lanes where_above(Lanes v, float limit, Lanes then, Lanes otherwise)
{
    const __m256 bound = _mm256_set1_ps(limit);
    return lanes(_mm256_blendv_ps(otherwise.a, then.a, _mm256_cmp_ps(v.a, bound, _CMP_GT_OQ)),
                 _mm256_blendv_ps(otherwise.b, then.b, _mm256_cmp_ps(v.b, bound, _CMP_GT_OQ)));
}

/* Two factors, because 2^-128 is not a normal number; only the second product can round. */
INLINE __m256 times_power_of_two8(__m256 v, __m256 power)
{
    const __m256i whole = _mm256_cvtps_epi32(power), half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    v = _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
INLINE Lanes times_power_of_two(Lanes v, Lanes power)
{
    return lanes(times_power_of_two8(v.a, power.a), times_power_of_two8(v.b, power.b));
}

/* All bits set in the first lanes. */
INLINE Lanes first(int32_t count)
{
    const __m256i number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return lanes(_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), number)),
                 _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), number)));
}
INLINE Lanes where_first(int32_t count, Lanes then, Lanes otherwise)
{
    const Lanes chosen = first(count);
    return lanes(_mm256_blendv_ps(otherwise.a, then.a, chosen.a), _mm256_blendv_ps(otherwise.b, then.b, chosen.b));
}
INLINE Lanes add_first(int32_t count, Lanes x, Lanes y)
{
    return count >= LANES ? add(x, y) : where_first(count, add(x, y), x);
}
INLINE Lanes higher_first(int32_t count, Lanes x, Lanes y)
{
    return count >= LANES ? higher(x, y) : where_first(count, higher(x, y), x);
}

INLINE float lowest_lane(Lanes v)
{
    float lane[8], found;
    _mm256_storeu_ps(lane, _mm256_min_ps(v.a, v.b));
    found = lane[0];
    for (int i = 1; i < 8; i++) found = lane[i] < found ? lane[i] : found;
    return found;
}
INLINE float highest_lane(Lanes v)
{
    const __m256 eight = _mm256_max_ps(v.a, v.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
INLINE float sum_of_lanes(Lanes v) { return sum_of_eight(_mm256_add_ps(v.b, v.a)); }

INLINE void accumulate(Lanes *sum, Lanes x, Lanes y) { *sum = fma3(x, y, *sum); }

INLINE Ints all_ints(int32_t value) { return ints(_mm256_set1_epi32(value), _mm256_set1_epi32(value)); }
INLINE Ints load_ints(const int32_t *at)
{
    return ints(_mm256_loadu_si256((const __m256i *)at), _mm256_loadu_si256((const __m256i *)(at + 8)));
}
INLINE Ints load_bytes(const uint8_t *at)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    return ints(_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)));
}
INLINE Lanes to_floats(Ints v) { return lanes(_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)); }
/* Rounds to nearest, ties to even. */
INLINE Ints to_ints(Lanes v) { return ints(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)); }

/* Levels, clamped to 0 and 255. */
INLINE void store_levels(Activation *at, Ints level)
{
    const __m128i low = _mm_packs_epi32(_mm256_castsi256_si128(level.a), _mm256_extracti128_si256(level.a, 1));
    const __m128i high = _mm_packs_epi32(_mm256_castsi256_si128(level.b), _mm256_extracti128_si256(level.b, 1));
    _mm_storeu_si128((__m128i *)at, _mm_packus_epi16(low, high));
}

INLINE void transpose8(__m256 v[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) v[i] = t[i];
}

INLINE void transpose(Lanes v[LANES])
{
    __m256 quarter[4][8]; /* rows 0-7 and 8-15 x columns 0-7 and 8-15 */
    for (int i = 0; i < 8; i++) {
        quarter[0][i] = v[i].a;
        quarter[1][i] = v[i].b;
        quarter[2][i] = v[i + 8].a;
        quarter[3][i] = v[i + 8].b;
    }
    for (int q = 0; q < 4; q++) transpose8(quarter[q]);
    for (int i = 0; i < 8; i++) {
        v[i] = lanes(quarter[0][i], quarter[2][i]);
        v[i + 8] = lanes(quarter[1][i], quarter[3][i]);
    }
}

#include "products_avx2.h"

#endif
