/* Vector arithmetic: exact quotients, exponentials, the error function, 16 x 16 transposition. */
#ifndef RESIFT_NUMBERS_H
#define RESIFT_NUMBERS_H

#include "bert.h"

INLINE __m512 all(float value) { return _mm512_set1_ps(value); }
INLINE __m512 fma3(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
INLINE __mmask16 first(int32_t lanes)
{
    return (__mmask16)(lanes >= LANES ? 0xFFFF : lanes <= 0 ? 0 : (1u << lanes) - 1);
}

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

/* Chains of dependent products are slow one at a time, so four vectors go through each step together. */
#define FOUR _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)

INLINE void step(__m512 sum[4], const __m512 x[4], float next) { FOUR sum[i] = fma3(sum[i], x[i], all(next)); }

/* exp(x) for x <= 0. The polynomial is given from its highest power down to x^2. */
INLINE void exponentials(__m512 x[4], const float polynomial[5])
{
    const __m512 magic = all(0x1.8p23f);
    __m512 power[4], sum[4];
    FOUR power[i] = fma3(x[i], all(1.44269504088896341f), magic);
    FOUR power[i] = _mm512_sub_ps(power[i], magic);
    FOUR x[i] = fma3(power[i], all(-6.93145752e-1f), x[i]);
    FOUR x[i] = fma3(power[i], all(-1.42860677e-6f), x[i]);
    FOUR sum[i] = all(polynomial[0]);
    step(sum, x, polynomial[1]);
    step(sum, x, polynomial[2]);
    step(sum, x, polynomial[3]);
    step(sum, x, polynomial[4]);
    step(sum, x, 1.0f);
    step(sum, x, 1.0f);
    FOUR x[i] = _mm512_scalef_ps(sum[i], power[i]);
}

/* The error function, faithfully rounded (after N. Juffa, 2016): one polynomial near 0, exp of one far from it. */
INLINE void error_functions(__m512 x[4])
{
    static const float of_exp[5] = {1.38319808e-3f, 8.37550033e-3f, 4.16689515e-2f, 1.66664466e-1f, 4.99999851e-1f};
    __m512 size[4], square[4], near[4], far[4];
    FOUR size[i] = _mm512_min_ps(all(3.925f), _mm512_andnot_ps(all(-0.0f), x[i]));
    FOUR square[i] = _mm512_mul_ps(size[i], size[i]);
    FOUR near[i] = all(-5.99104969e-4f);
    step(near, square, 4.99339588e-3f);
    step(near, square, -2.67667342e-2f);
    step(near, square, 1.12818025e-1f);
    step(near, square, -3.76124859e-1f);
    step(near, square, 1.28379151e-1f);
    FOUR near[i] = fma3(near[i], size[i], size[i]);
    FOUR far[i] = all(1.72948930e-5f);
    step(far, size, -3.83208680e-4f);
    step(far, size, 3.88393435e-3f);
    step(far, size, -2.42545605e-2f);
    step(far, size, 1.06777847e-1f);
    step(far, size, 6.34846687e-1f);
    step(far, size, 1.28717512e-1f);
    FOUR far[i] = _mm512_fnmsub_ps(far[i], size[i], size[i]);
    exponentials(far, of_exp);
    FOUR far[i] = _mm512_sub_ps(all(1.0f), far[i]);
    FOUR near[i] = _mm512_mask_mov_ps(near[i], _mm512_cmp_ps_mask(size[i], all(0.921875f), _CMP_GT_OQ), far[i]);
    FOUR x[i] = _mm512_or_ps(near[i], _mm512_and_ps(x[i], all(-0.0f)));
}

INLINE void gelus(__m512 x[4])
{
    __m512 erf[4];
    FOUR erf[i] = _mm512_mul_ps(x[i], all(0.70710678118654752440f));
    error_functions(erf);
    FOUR x[i] = _mm512_mul_ps(_mm512_mul_ps(all(0.5f), x[i]), _mm512_add_ps(erf[i], all(1.0f)));
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
