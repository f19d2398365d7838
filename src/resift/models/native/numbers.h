/* Vector arithmetic: exact quotients, exponentials, the error function, 16 x 16 transposition. */
#ifndef RESIFT_NUMBERS_H
#define RESIFT_NUMBERS_H

#include "bert.h"

INLINE __m512 all(float value) { return _mm512_set1_ps(value); }
INLINE __m512 fma3(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
INLINE __mmask16 first(int32_t lanes) { return (__mmask16)(lanes >= LANES ? 0xFFFF : (1u << lanes) - 1); }

INLINE Range no_range(void) { return (Range){_mm512_setzero_ps(), _mm512_setzero_ps()}; }

INLINE void widen_range(Range *range, __m512 value)
{
    range->low = _mm512_min_ps(range->low, value);
    range->high = _mm512_max_ps(range->high, value);
}

/* a / b rounded as a division rounds, from b's rounded reciprocal: two Newton steps on the exact remainder. */
INLINE __m512 quotient(__m512 a, __m512 b, __m512 reciprocal)
{
    __m512 q = _mm512_mul_ps(a, reciprocal);
    q = fma3(_mm512_fnmadd_ps(q, b, a), reciprocal, q);
    return fma3(_mm512_fnmadd_ps(q, b, a), reciprocal, q);
}

/* exp(x) for x <= 0. The polynomial is given from its highest power down to x^2. */
INLINE __m512 exponential(__m512 x, const float polynomial[5])
{
    const __m512 magic = all(0x1.8p23f);
    __m512 power = _mm512_sub_ps(fma3(x, all(1.44269504088896341f), magic), magic);
    x = fma3(power, all(-6.93145752e-1f), x);
    x = fma3(power, all(-1.42860677e-6f), x);
    __m512 sum = all(polynomial[0]);
    for (int i = 1; i < 5; i++) sum = fma3(sum, x, all(polynomial[i]));
    sum = fma3(sum, x, all(1.0f));
    sum = fma3(sum, x, all(1.0f));
    return _mm512_scalef_ps(sum, power);
}

/* The error function, faithfully rounded (after N. Juffa, 2016). */
INLINE __m512 error_function(__m512 x)
{
    static const float of_exp[5] = {1.38319808e-3f, 8.37550033e-3f, 4.16689515e-2f, 1.66664466e-1f, 4.99999851e-1f};
    static const float near[6] = {-5.99104969e-4f, 4.99339588e-3f,  -2.67667342e-2f,
                                  1.12818025e-1f,  -3.76124859e-1f, 1.28379151e-1f};
    static const float far[7] = {1.72948930e-5f, -3.83208680e-4f, 3.88393435e-3f, -2.42545605e-2f,
                                 1.06777847e-1f, 6.34846687e-1f,  1.28717512e-1f};
    const __m512 sign = _mm512_and_ps(x, all(-0.0f));
    const __m512 size = _mm512_min_ps(all(3.925f), _mm512_andnot_ps(all(-0.0f), x));
    const __m512 square = _mm512_mul_ps(size, size);
    const __mmask16 is_far = _mm512_cmp_ps_mask(size, all(0.921875f), _CMP_GT_OQ);
    __m512 small = all(near[0]);
    for (int i = 1; i < 6; i++) small = fma3(small, square, all(near[i]));
    small = fma3(small, size, size);
    __m512 large = all(far[0]);
    for (int i = 1; i < 7; i++) large = fma3(large, size, all(far[i]));
    large = fma3(large, size, size);
    large = _mm512_sub_ps(all(1.0f), exponential(_mm512_sub_ps(_mm512_setzero_ps(), large), of_exp));
    small = _mm512_mask_mov_ps(small, is_far, large);
    return _mm512_or_ps(small, sign);
}

INLINE __m512 gelu(__m512 x)
{
    const __m512 erf = error_function(_mm512_mul_ps(x, all(0.70710678118654752440f)));
    return _mm512_mul_ps(_mm512_mul_ps(all(0.5f), x), _mm512_add_ps(erf, all(1.0f)));
}

/* A quotient of polynomials, cut off at 9. */
INLINE __m512 hyperbolic_tangent(__m512 x)
{
    static const float above[7] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                                   5.12229709037114e-08f,  1.48572235717979e-05f, 6.37261928875436e-04f,
                                   4.89352455891786e-03f};
    static const float below[4] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                                   4.89352518554385e-03f};
    x = _mm512_min_ps(all(9.0f), _mm512_max_ps(all(-9.0f), x));
    const __m512 square = _mm512_mul_ps(x, x);
    __m512 p = all(above[0]), q = all(below[0]);
    for (int i = 1; i < 7; i++) p = fma3(p, square, all(above[i]));
    for (int i = 1; i < 4; i++) q = fma3(q, square, all(below[i]));
    return _mm512_div_ps(_mm512_mul_ps(p, x), q);
}

INLINE void transpose(__m512 v[LANES])
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

#endif
