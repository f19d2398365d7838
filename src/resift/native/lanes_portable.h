/* Sixteen lanes in plain C11: slow, for processors without a dedicated kernel, and the reference for the others. */
#ifndef RESIFT_LANES_H
#define RESIFT_LANES_H

#include "bert.h"

#include <math.h>
#include <string.h>

#define KERNEL portable
#define INLINE static inline
#define NOINLINE static
#define UNROLL(times)

typedef struct {
    float lane[LANES];
} Lanes;
typedef struct {
    int32_t lane[LANES];
} Ints;
typedef int16_t Activation;

enum { CHAINS = 1, ACTIVATION_SHIFT = 0, TILE_ROWS = 1, TILE_VECTORS = 1 };
enum { SCORE_ROWS = 1, SCORE_VECTORS = 1, CONTEXT_ROWS = 1, CONTEXT_VECTORS = 1 };

#define LANE for (int i = 0; i < LANES; i++)
#define MAP(type, expression)                                                                                         \
    type result;                                                                                                      \
    LANE result.lane[i] = expression;                                                                                 \
    return result

/* a * b + c, rounded once, without an FMA instruction. The product is exact in double. */
#ifdef FP_FAST_FMAF
INLINE float fma1(float a, float b, float c) { return fmaf(a, b, c); }
#else
/* Rounding a sum to double and then to float is wrong only if the double lies halfway between two floats, or the
 * float is subnormal. In these cases the double is rounded to odd, which preserves the information for the second
 * rounding (Boldo and Melquiond, 2008): an inexact even sum moves to the adjacent odd number, away from 0 if the
 * rounding error has the same sign. */
static float fma_by_odd_rounding(float a, float b, float c)
{
    const double product = (double)a * (double)b, sum = product + (double)c;
    const double back = sum - product, lost = (product - (sum - back)) + ((double)c - back);
    int64_t bits, sign;
    double odd;
    memcpy(&bits, &sum, sizeof bits);
    memcpy(&sign, &lost, sizeof sign);
    if ((lost < 0 || lost > 0) && !(bits & 1)) bits += (bits ^ sign) >= 0 ? 1 : -1;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}
INLINE float fma1(float a, float b, float c)
{
    const double sum = (double)a * (double)b + (double)c;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((bits & 0x1FFFFFFF) != 0x10000000 && (fabs(sum) >= 0x1p-125 || !(bits << 1))) return (float)sum;
    return fma_by_odd_rounding(a, b, c);
}
#endif

INLINE void prefetch(const void *line) { (void)line; }

INLINE Lanes all(float value) { MAP(Lanes, value); }
INLINE Lanes kept(Lanes v) { return v; }
INLINE Lanes load(const float *at) { MAP(Lanes, at[i]); }
INLINE void store(float *at, Lanes v) { LANE at[i] = v.lane[i]; }
INLINE Lanes add(Lanes a, Lanes b) { MAP(Lanes, a.lane[i] + b.lane[i]); }
INLINE Lanes sub(Lanes a, Lanes b) { MAP(Lanes, a.lane[i] - b.lane[i]); }
INLINE Lanes mul(Lanes a, Lanes b) { MAP(Lanes, a.lane[i] * b.lane[i]); }
INLINE Lanes divide(Lanes a, Lanes b) { MAP(Lanes, a.lane[i] / b.lane[i]); }
INLINE Lanes square_root(Lanes a) { MAP(Lanes, sqrtf(a.lane[i])); }
INLINE Lanes fma3(Lanes a, Lanes b, Lanes c) { MAP(Lanes, fma1(a.lane[i], b.lane[i], c.lane[i])); }
INLINE Lanes minus_product(Lanes a, Lanes b, Lanes c) { MAP(Lanes, fma1(-a.lane[i], b.lane[i], c.lane[i])); }
INLINE Lanes minus_both(Lanes a, Lanes b, Lanes c) { MAP(Lanes, fma1(-a.lane[i], b.lane[i], -c.lane[i])); }
INLINE Lanes lower(Lanes a, Lanes b) { MAP(Lanes, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]); }
INLINE Lanes higher(Lanes a, Lanes b) { MAP(Lanes, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
INLINE Lanes magnitude(Lanes a) { MAP(Lanes, fabsf(a.lane[i])); }
INLINE Lanes with_sign_of(Lanes a, Lanes sign) { MAP(Lanes, copysignf(a.lane[i], sign.lane[i])); }
INLINE Lanes where_above(Lanes v, float limit, Lanes then, Lanes otherwise)
{
    MAP(Lanes, v.lane[i] > limit ? then.lane[i] : otherwise.lane[i]);
}

/* 2^power for integers from -1022 to 1023. */
INLINE double power_of_two(float power)
{
    const float within = power > -1000.0f ? power < 1000.0f ? power : 1000.0f : -1000.0f;
    const int64_t bits = (int64_t)((int32_t)within + 1023) * ((int64_t)1 << 52);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
INLINE Lanes times_power_of_two(Lanes a, Lanes power)
{
    MAP(Lanes, (float)((double)a.lane[i] * power_of_two(power.lane[i])));
}

INLINE Lanes add_first(int32_t lanes, Lanes a, Lanes b)
{
    MAP(Lanes, i < lanes ? a.lane[i] + b.lane[i] : a.lane[i]);
}
INLINE Lanes higher_first(int32_t lanes, Lanes a, Lanes b)
{
    MAP(Lanes, i < lanes && !(a.lane[i] > b.lane[i]) ? b.lane[i] : a.lane[i]);
}

INLINE float lowest_lane(Lanes v)
{
    float found = v.lane[0];
    LANE found = v.lane[i] < found ? v.lane[i] : found;
    return found;
}
INLINE float highest_lane(Lanes v)
{
    float found = v.lane[0];
    LANE found = v.lane[i] > found ? v.lane[i] : found;
    return found;
}
/* Add the two halves first, then adjacent lanes, then adjacent sums. */
INLINE float sum_of_lanes(Lanes v)
{
    float half[8];
    for (int i = 0; i < 8; i++) half[i] = v.lane[i + 8] + v.lane[i];
    return ((half[0] + half[1]) + (half[2] + half[3])) + ((half[4] + half[5]) + (half[6] + half[7]));
}

INLINE void accumulate(Lanes *sum, Lanes a, Lanes b) { *sum = fma3(a, b, *sum); }

INLINE Ints all_ints(int32_t value) { MAP(Ints, value); }
INLINE Ints load_ints(const int32_t *at) { MAP(Ints, at[i]); }
INLINE Ints load_bytes(const uint8_t *at) { MAP(Ints, at[i]); }
INLINE Ints add_ints(Ints a, Ints b) { MAP(Ints, a.lane[i] + b.lane[i]); }
INLINE Ints sub_ints(Ints a, Ints b) { MAP(Ints, a.lane[i] - b.lane[i]); }
INLINE Ints mul_ints(Ints a, Ints b) { MAP(Ints, a.lane[i] * b.lane[i]); }
INLINE Lanes to_floats(Ints v) { MAP(Lanes, (float)v.lane[i]); }

/* Rounds to nearest, ties to even. Values out of range are clamped, because C does not define their conversion. */
INLINE int32_t to_int(float value)
{
    const float within = value > -65536.0f ? value < 65536.0f ? value : 65536.0f : -65536.0f;
    return (int32_t)(within + 0x1.8p23f - 0x1.8p23f);
}
INLINE Ints to_ints(Lanes v) { MAP(Ints, to_int(v.lane[i])); }

/* Levels, clamped to 0 and 255. */
INLINE void store_levels(Activation *at, Ints level)
{
    LANE at[i] = (Activation)(level.lane[i] < 0 ? 0 : level.lane[i] > 255 ? 255 : level.lane[i]);
}

INLINE void transpose(Lanes v[LANES])
{
    for (int r = 0; r < LANES; r++)
        for (int c = 0; c < r; c++) {
            const float other = v[r].lane[c];
            v[r].lane[c] = v[c].lane[r];
            v[c].lane[r] = other;
        }
}

/* Sums of four rows, each with four double accumulators. */
INLINE void sums_in_double(const float *const row[4], int32_t width, double total[4])
{
    for (int r = 0; r < 4; r++) {
        double sum[4] = {0, 0, 0, 0};
        for (int32_t at = 0; at < width; at += 4)
            for (int i = 0; i < 4; i++) sum[i] += (double)row[r][at + i];
        total[r] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
}

/* Sums of squared deviations of four rows from their means, each with eight accumulators. */
INLINE void sums_of_squares(const float *const row[4], const float mean[4], int32_t width, float total[4])
{
    for (int r = 0; r < 4; r++) {
        float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int32_t at = 0; at < width; at += 8)
            for (int i = 0; i < 8; i++) {
                const float distance = row[r][at + i] - mean[r];
                sum[i] = fma1(distance, distance, sum[i]);
            }
        total[r] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
    }
}

#include "quantized.h"

/* Packed weights: [outputs / 16][16][inputs], because compilers vectorize a product of two rows best. */
typedef int16_t Weight;
#define DEPTH inputs
enum { TILE_COLUMNS = TILE_VECTORS * LANES, ZERO_POINT_INCLUDED = 0 };

/* Integer products of some rows with the columns of one tile. */
INLINE void multiply(const int rows, const Quantized *in, int32_t row, const Linear *linear, int32_t column,
                     Ahead ahead, Ints sum[TILE_ROWS][TILE_VECTORS])
{
    const int64_t inputs = linear->inputs;
    const Activation *levels = in->levels + row * inputs;
    const Weight *weights = (const Weight *)linear->packed + column * inputs;
    (void)ahead;
    for (int r = 0; r < rows; r++)
        LANE {
            const Activation *left = levels + r * inputs;
            const Weight *right = weights + i * inputs;
            int32_t dot = 0;
            for (int64_t k = 0; k < inputs; k++) dot += left[k] * right[k];
            sum[r][0].lane[i] = dot;
        }
}

#endif
