/* Sixteen lanes in four ARM64 registers. Integer products use the dot product instruction, or the product of 2 x 8 and
 * 8 x 2 matrices (i8mm), which does twice as much work per instruction. */
#ifndef RESIFT_LANES_H
#define RESIFT_LANES_H

#include "bert.h"
#include "inline.h"

#include <arm_neon.h>

#ifdef __ARM_FEATURE_MATMUL_INT8
#define KERNEL i8mm
#else
#define KERNEL neon
#endif

typedef struct {
    float32x4_t q[4];
} Lanes;
typedef struct {
    int32x4_t q[4];
} Ints;
/* The instruction takes only signed bytes, so levels are stored minus 128. */
typedef int8_t Activation;

enum { CHAINS = 2, ACTIVATION_SHIFT = 128, TILE_ROWS = 6, TILE_VECTORS = 1 };
enum { SCORE_ROWS = 6, SCORE_VECTORS = 1, CONTEXT_ROWS = 6, CONTEXT_VECTORS = 1 };

#define QUARTER UNROLL(4) for (int i = 0; i < 4; i++)
#define MAP(type, expression)                                                                                         \
    type result;                                                                                                      \
    QUARTER result.q[i] = expression;                                                                                 \
    return result

INLINE void prefetch(const void *line) { __builtin_prefetch(line, 0, 2); }

INLINE Lanes all(float value) { MAP(Lanes, vdupq_n_f32(value)); }
INLINE Lanes kept(Lanes v) { return v; }
INLINE Lanes load(const float *at) { MAP(Lanes, vld1q_f32(at + 4 * i)); }
INLINE void store(float *at, Lanes v) { QUARTER vst1q_f32(at + 4 * i, v.q[i]); }
INLINE Lanes add(Lanes a, Lanes b) { MAP(Lanes, vaddq_f32(a.q[i], b.q[i])); }
INLINE Lanes sub(Lanes a, Lanes b) { MAP(Lanes, vsubq_f32(a.q[i], b.q[i])); }
INLINE Lanes mul(Lanes a, Lanes b) { MAP(Lanes, vmulq_f32(a.q[i], b.q[i])); }
INLINE Lanes divide(Lanes a, Lanes b) { MAP(Lanes, vdivq_f32(a.q[i], b.q[i])); }
INLINE Lanes square_root(Lanes a) { MAP(Lanes, vsqrtq_f32(a.q[i])); }
INLINE Lanes fma3(Lanes a, Lanes b, Lanes c) { MAP(Lanes, vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
INLINE Lanes minus_product(Lanes a, Lanes b, Lanes c) { MAP(Lanes, vfmsq_f32(c.q[i], a.q[i], b.q[i])); }
INLINE Lanes minus_both(Lanes a, Lanes b, Lanes c) { MAP(Lanes, vfmsq_f32(vnegq_f32(c.q[i]), a.q[i], b.q[i])); }
/* Compare and select as on x86, because the minimum and maximum instructions treat -0 and NaN differently. */
INLINE Lanes lower(Lanes a, Lanes b) { MAP(Lanes, vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])); }
INLINE Lanes higher(Lanes a, Lanes b) { MAP(Lanes, vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])); }
INLINE Lanes magnitude(Lanes a) { MAP(Lanes, vabsq_f32(a.q[i])); }
INLINE Lanes with_sign_of(Lanes a, Lanes sign)
{
    MAP(Lanes, vbslq_f32(vdupq_n_u32(0x80000000u), sign.q[i], a.q[i]));
}
INLINE Lanes where_above(Lanes v, float limit, Lanes then, Lanes otherwise)
{
    MAP(Lanes, vbslq_f32(vcgtq_f32(v.q[i], vdupq_n_f32(limit)), then.q[i], otherwise.q[i]));
}

/* Two factors, because 2^-128 is not a normal number; only the second product can round. */
INLINE float32x4_t times_power_of_two4(float32x4_t v, float32x4_t power)
{
    const int32x4_t whole = vcvtnq_s32_f32(power), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
    const int32x4_t bias = vdupq_n_s32(127);
    v = vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}
INLINE Lanes times_power_of_two(Lanes v, Lanes power) { MAP(Lanes, times_power_of_two4(v.q[i], power.q[i])); }

INLINE uint32x4_t first(int32_t count)
{
    const int32_t number[4] = {0, 1, 2, 3};
    return vcltq_s32(vld1q_s32(number), vdupq_n_s32(count));
}
INLINE Lanes where_first(int32_t count, Lanes then, Lanes otherwise)
{
    MAP(Lanes, vbslq_f32(first(count - 4 * i), then.q[i], otherwise.q[i]));
}
INLINE Lanes add_first(int32_t count, Lanes a, Lanes b)
{
    return count >= LANES ? add(a, b) : where_first(count, add(a, b), a);
}
INLINE Lanes higher_first(int32_t count, Lanes a, Lanes b)
{
    return count >= LANES ? higher(a, b) : where_first(count, higher(a, b), a);
}

INLINE float lowest_lane(Lanes v)
{
    return vminvq_f32(vminq_f32(vminq_f32(v.q[0], v.q[1]), vminq_f32(v.q[2], v.q[3])));
}
INLINE float highest_lane(Lanes v)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v.q[0], v.q[1]), vmaxq_f32(v.q[2], v.q[3])));
}
/* Add the two halves first, then adjacent lanes, then adjacent sums. */
INLINE float sum_of_lanes(Lanes v)
{
    const float32x4_t low = vaddq_f32(v.q[2], v.q[0]), high = vaddq_f32(v.q[3], v.q[1]);
    const float32x4_t pairs = vpaddq_f32(low, high), fours = vpaddq_f32(pairs, pairs);
    return vgetq_lane_f32(fours, 0) + vgetq_lane_f32(fours, 1);
}

INLINE void accumulate(Lanes *sum, Lanes a, Lanes b) { QUARTER sum->q[i] = vfmaq_f32(sum->q[i], a.q[i], b.q[i]); }

INLINE Ints all_ints(int32_t value) { MAP(Ints, vdupq_n_s32(value)); }
INLINE Ints load_ints(const int32_t *at) { MAP(Ints, vld1q_s32(at + 4 * i)); }
INLINE Ints load_bytes(const uint8_t *at)
{
    const uint8x16_t bytes = vld1q_u8(at);
    const uint16x8_t half[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
    Ints result;
    for (int i = 0; i < 2; i++) {
        result.q[2 * i] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(half[i])));
        result.q[2 * i + 1] = vreinterpretq_s32_u32(vmovl_high_u16(half[i]));
    }
    return result;
}
INLINE Ints add_ints(Ints a, Ints b) { MAP(Ints, vaddq_s32(a.q[i], b.q[i])); }
INLINE Ints sub_ints(Ints a, Ints b) { MAP(Ints, vsubq_s32(a.q[i], b.q[i])); }
INLINE Ints mul_ints(Ints a, Ints b) { MAP(Ints, vmulq_s32(a.q[i], b.q[i])); }
INLINE Lanes to_floats(Ints v) { MAP(Lanes, vcvtq_f32_s32(v.q[i])); }
INLINE Ints to_ints(Lanes v) { MAP(Ints, vcvtnq_s32_f32(v.q[i])); } /* rounds to nearest, ties to even */

/* Levels, clamped to 0 and 255, minus 128. */
INLINE void store_levels(Activation *at, Ints level)
{
    const uint16x8_t low = vcombine_u16(vqmovun_s32(level.q[0]), vqmovun_s32(level.q[1]));
    const uint16x8_t high = vcombine_u16(vqmovun_s32(level.q[2]), vqmovun_s32(level.q[3]));
    const uint8x16_t bytes = vcombine_u8(vqmovn_u16(low), vqmovn_u16(high));
    vst1q_s8(at, vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128))));
}

INLINE void transpose4(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d)
{
    const float64x2_t ab0 = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)), ab1 = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b));
    const float64x2_t cd0 = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d)), cd1 = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
    *a = vreinterpretq_f32_f64(vtrn1q_f64(ab0, cd0));
    *b = vreinterpretq_f32_f64(vtrn1q_f64(ab1, cd1));
    *c = vreinterpretq_f32_f64(vtrn2q_f64(ab0, cd0));
    *d = vreinterpretq_f32_f64(vtrn2q_f64(ab1, cd1));
}

INLINE void transpose(Lanes v[LANES])
{
    for (int row = 0; row < 4; row++)
        for (int column = 0; column < 4; column++)
            transpose4(&v[4 * row].q[column], &v[4 * row + 1].q[column], &v[4 * row + 2].q[column],
                       &v[4 * row + 3].q[column]);
    for (int row = 0; row < 4; row++)
        for (int column = 0; column < row; column++)
            for (int i = 0; i < 4; i++) {
                const float32x4_t other = v[4 * row + i].q[column];
                v[4 * row + i].q[column] = v[4 * column + i].q[row];
                v[4 * column + i].q[row] = other;
            }
}

/* Sums of four rows, each with four double accumulators. */
INLINE void sums_in_double(const float *const row[4], int32_t width, double total[4])
{
    for (int r = 0; r < 4; r++) {
        float64x2_t low = vdupq_n_f64(0), high = vdupq_n_f64(0);
        for (int32_t at = 0; at < width; at += 4) {
            const float32x4_t four = vld1q_f32(row[r] + at);
            low = vaddq_f64(low, vcvt_f64_f32(vget_low_f32(four)));
            high = vaddq_f64(high, vcvt_high_f64_f32(four));
        }
        const float64x2_t half = vaddq_f64(low, high);
        total[r] = vgetq_lane_f64(half, 0) + vgetq_lane_f64(half, 1);
    }
}

/* Sums of squared deviations of four rows from their means, each with eight accumulators. */
INLINE void sums_of_squares(const float *const row[4], const float mean[4], int32_t width, float total[4])
{
    for (int r = 0; r < 4; r++) {
        float32x4_t low = vdupq_n_f32(0), high = vdupq_n_f32(0);
        for (int32_t at = 0; at < width; at += 8) {
            const float32x4_t a = vsubq_f32(vld1q_f32(row[r] + at), vdupq_n_f32(mean[r]));
            const float32x4_t b = vsubq_f32(vld1q_f32(row[r] + at + 4), vdupq_n_f32(mean[r]));
            low = vfmaq_f32(low, a, a);
            high = vfmaq_f32(high, b, b);
        }
        const float32x4_t half = vaddq_f32(low, high);
        const float32x2_t two = vadd_f32(vget_low_f32(half), vget_high_f32(half));
        total[r] = vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }
}

#include "quantized.h"

typedef int8_t Weight;
enum { TILE_COLUMNS = TILE_VECTORS * LANES, ZERO_POINT_INCLUDED = 0 };

#ifdef __ARM_FEATURE_MATMUL_INT8

/* Packed weights: [outputs / 16][inputs / 8][16][8]. */
enum { DEPTH = 8, PAIRS = TILE_ROWS / 2 };

/* Integer products of some rows with the columns of one tile, both two at a time. */
INLINE void multiply(const int rows, const Quantized *in, int32_t row, const Linear *linear, int32_t column,
                     Ahead ahead, Ints sum[TILE_ROWS][TILE_VECTORS])
{
    fetch_all_ahead(&ahead);
    const int64_t inputs = linear->inputs;
    const Activation *levels = in->levels + row * inputs;
    const Weight *weights = (const Weight *)linear->packed + column * inputs;
    int32x4_t square[PAIRS][8];
    const int pairs = (rows + 1) / 2;
    UNROLL(3) for (int p = 0; p < pairs; p++)
        UNROLL(8) for (int c = 0; c < 8; c++) square[p][c] = vdupq_n_s32(0);
    for (int64_t k = 0; k < inputs; k += DEPTH, weights += DEPTH * TILE_COLUMNS) {
        int8x16_t level[PAIRS];
        UNROLL(3) for (int p = 0; p < pairs; p++) {
            const Activation *one = levels + 2 * p * inputs + k;
            /* An odd last row is paired with itself. */
            level[p] = vcombine_s8(vld1_s8(one), vld1_s8(2 * p + 1 < rows ? one + inputs : one));
        }
        UNROLL(8) for (int c = 0; c < 8; c++) {
            const int8x16_t weight = vld1q_s8(weights + 16 * c);
            UNROLL(3) for (int p = 0; p < pairs; p++) square[p][c] = vmmlaq_s32(square[p][c], level[p], weight);
        }
    }
    UNROLL(3) for (int p = 0; p < pairs; p++)
        QUARTER {
            const int64x2_t a = vreinterpretq_s64_s32(square[p][2 * i]), b = vreinterpretq_s64_s32(square[p][2 * i + 1]);
            sum[2 * p][0].q[i] = vreinterpretq_s32_s64(vtrn1q_s64(a, b));
            if (2 * p + 1 < rows) sum[2 * p + 1][0].q[i] = vreinterpretq_s32_s64(vtrn2q_s64(a, b));
        }
}

#else

/* Packed weights: [outputs / 16][inputs / 4][16][4]. */
enum { DEPTH = 4 };

/* Integer products of some rows with the columns of one tile. */
INLINE void multiply(const int rows, const Quantized *in, int32_t row, const Linear *linear, int32_t column,
                     Ahead ahead, Ints total[TILE_ROWS][TILE_VECTORS])
{
    Ints sum[TILE_ROWS][TILE_VECTORS]; /* local, because for the compiler `total` may alias the weights */
    fetch_all_ahead(&ahead);
    const int64_t inputs = linear->inputs;
    const Activation *levels = in->levels + row * inputs;
    const Weight *weights = (const Weight *)linear->packed + column * inputs;
    UNROLL(6) for (int r = 0; r < rows; r++) sum[r][0] = all_ints(0);
    for (int64_t k = 0; k < inputs; k += DEPTH, weights += DEPTH * TILE_COLUMNS) {
        int8x16_t weight[4];
        QUARTER weight[i] = vld1q_s8(weights + 16 * i);
        UNROLL(6) for (int r = 0; r < rows; r++) {
            int32_t four;
            __builtin_memcpy(&four, levels + r * inputs + k, sizeof four);
            const int8x16_t level = vreinterpretq_s8_s32(vdupq_n_s32(four));
            QUARTER sum[r][0].q[i] = vdotq_s32(sum[r][0].q[i], weight[i], level);
        }
    }
    UNROLL(6) for (int r = 0; r < rows; r++) total[r][0] = sum[r][0];
}

#endif

#endif
