/* Vector functions with a fixed sequence of operations: exact quotients, exponentials, erf, GELU, tanh. */
#ifndef RESIFT_VECTOR_MATH_H
#define RESIFT_VECTOR_MATH_H

/* Lowest and highest value seen so far; both start at 0, which every quantized range contains. */
typedef struct {
    Lanes low, high;
} Range;

INLINE Range no_range(void)
{
    const Range range = {all(0.0f), all(0.0f)};
    return range;
}

INLINE void widen_range(Range *range, Lanes value)
{
    range->low = lower(range->low, value);
    range->high = higher(range->high, value);
}

/* a / b, correctly rounded, from b's rounded reciprocal and two Newton steps on the exact remainder. */
INLINE Lanes quotient(Lanes a, Lanes b, Lanes reciprocal)
{
    Lanes q = mul(a, reciprocal);
    q = fma3(minus_product(q, b, a), reciprocal, q);
    return fma3(minus_product(q, b, a), reciprocal, q);
}

/* Chains of dependent products have a high latency, so several vectors pass through each step together. */
#define EACH_CHAIN UNROLL(4) for (int i = 0; i < CHAINS; i++)

INLINE void step(Lanes sum[CHAINS], const Lanes x[CHAINS], float next)
{
    EACH_CHAIN sum[i] = fma3(sum[i], x[i], all(next));
}

/* Constants of the exponential: for the range reduction, and a polynomial from its highest power down to x^2. */
typedef struct {
    Lanes log2e, magic, high, low, power[5], one;
} Exponential;

INLINE Exponential exponential_of(const float polynomial[5])
{
    const Lanes log2e = all(1.44269504088896341f), magic = all(0x1.8p23f), one = all(1.0f);
    Exponential of = {log2e, magic, all(-6.93145752e-1f), all(-1.42860677e-6f), {one, one, one, one, one}, one};
    UNROLL(5) for (int i = 0; i < 5; i++) of.power[i] = all(polynomial[i]);
    return of;
}

/* The same, for a loop with enough registers to keep all of them. */
INLINE Exponential kept_exponential(Exponential of)
{
    of.log2e = kept(of.log2e);
    of.magic = kept(of.magic);
    of.high = kept(of.high);
    of.low = kept(of.low);
    UNROLL(5) for (int i = 0; i < 5; i++) of.power[i] = kept(of.power[i]);
    of.one = kept(of.one);
    return of;
}

/* exp(x) for x <= 0. */
INLINE void exponentials(Lanes x[CHAINS], const Exponential *of)
{
    Lanes power[CHAINS], sum[CHAINS];
    EACH_CHAIN power[i] = fma3(x[i], of->log2e, of->magic);
    EACH_CHAIN power[i] = sub(power[i], of->magic);
    EACH_CHAIN x[i] = fma3(power[i], of->high, x[i]);
    EACH_CHAIN x[i] = fma3(power[i], of->low, x[i]);
    EACH_CHAIN sum[i] = fma3(of->power[0], x[i], of->power[1]);
    EACH_CHAIN sum[i] = fma3(sum[i], x[i], of->power[2]);
    EACH_CHAIN sum[i] = fma3(sum[i], x[i], of->power[3]);
    EACH_CHAIN sum[i] = fma3(sum[i], x[i], of->power[4]);
    EACH_CHAIN sum[i] = fma3(sum[i], x[i], of->one);
    EACH_CHAIN sum[i] = fma3(sum[i], x[i], of->one);
    EACH_CHAIN x[i] = times_power_of_two(sum[i], power[i]);
}

/* The error function, faithfully rounded (after N. Juffa, 2016): a polynomial near 0, exp of a polynomial elsewhere. */
INLINE void error_functions(Lanes x[CHAINS])
{
    static const float of_exp[5] = {1.38319808e-3f, 8.37550033e-3f, 4.16689515e-2f, 1.66664466e-1f, 4.99999851e-1f};
    Lanes size[CHAINS], square[CHAINS], near_0[CHAINS], far_off[CHAINS];
    EACH_CHAIN size[i] = lower(all(3.925f), magnitude(x[i]));
    EACH_CHAIN square[i] = mul(size[i], size[i]);
    EACH_CHAIN near_0[i] = all(-5.99104969e-4f);
    step(near_0, square, 4.99339588e-3f);
    step(near_0, square, -2.67667342e-2f);
    step(near_0, square, 1.12818025e-1f);
    step(near_0, square, -3.76124859e-1f);
    step(near_0, square, 1.28379151e-1f);
    EACH_CHAIN near_0[i] = fma3(near_0[i], size[i], size[i]);
    EACH_CHAIN far_off[i] = all(1.72948930e-5f);
    step(far_off, size, -3.83208680e-4f);
    step(far_off, size, 3.88393435e-3f);
    step(far_off, size, -2.42545605e-2f);
    step(far_off, size, 1.06777847e-1f);
    step(far_off, size, 6.34846687e-1f);
    step(far_off, size, 1.28717512e-1f);
    EACH_CHAIN far_off[i] = minus_both(far_off[i], size[i], size[i]);
    const Exponential exponential = exponential_of(of_exp);
    exponentials(far_off, &exponential);
    EACH_CHAIN far_off[i] = sub(all(1.0f), far_off[i]);
    EACH_CHAIN near_0[i] = where_above(size[i], 0.921875f, far_off[i], near_0[i]);
    EACH_CHAIN x[i] = with_sign_of(near_0[i], x[i]);
}

INLINE void gelus(Lanes x[CHAINS])
{
    Lanes erf[CHAINS];
    EACH_CHAIN erf[i] = mul(x[i], all(0.70710678118654752440f));
    error_functions(erf);
    EACH_CHAIN x[i] = mul(mul(all(0.5f), x[i]), add(erf[i], all(1.0f)));
}

/* tanh as a quotient of polynomials, with x clamped to 9. */
INLINE Lanes hyperbolic_tangent(Lanes x)
{
    static const float above[7] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                                   5.12229709037114e-08f,  1.48572235717979e-05f, 6.37261928875436e-04f,
                                   4.89352455891786e-03f};
    static const float below[4] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                                   4.89352518554385e-03f};
    x = lower(all(9.0f), higher(all(-9.0f), x));
    const Lanes square = mul(x, x);
    Lanes p = all(above[0]), q = all(below[0]);
    for (int i = 1; i < 7; i++) p = fma3(p, square, all(above[i]));
    for (int i = 1; i < 4; i++) q = fma3(q, square, all(below[i]));
    return divide(mul(p, x), q);
}

#endif
