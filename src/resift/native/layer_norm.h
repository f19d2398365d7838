/* Layer normalization, in the two variants of ONNX Runtime.
 *
 * A separate norm computes the mean in double precision and then the variance. A norm that is fused with the
 * preceding residual runs Welford's recurrence from left to right, here for 32 rows in parallel. */
#ifndef RESIFT_LAYER_NORM_H
#define RESIFT_LAYER_NORM_H

#include <math.h>

static const float epsilon = 1e-12f;

/* Means and standard deviations of four rows; missing rows are replaced by the first. */
INLINE void mean_and_deviation(const float *in, int32_t rows, int32_t width, float mean[4], float deviation[4])
{
    const float *row[4];
    double sum[4];
    float squares[4];
    for (int r = 0; r < 4; r++) row[r] = in + (int64_t)(r < rows ? r : 0) * width;
    sums_in_double(row, width, sum);
    for (int r = 0; r < 4; r++) mean[r] = (float)(sum[r] / (double)width);
    sums_of_squares(row, mean, width, squares);
    for (int r = 0; r < 4; r++) deviation[r] = sqrtf(squares[r] / (float)width + epsilon);
}

static void layer_norm(const LayerNorm *norm, const float *in, int32_t rows, int32_t width, float *out, Range *range)
{
    float mean[4], deviation[4];
    Range seen = *range; /* local, because for the compiler `out` may alias `range` */
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        if (row % 4 == 0) mean_and_deviation(in, rows - row, width, mean, deviation);
        const Lanes center = all(mean[row % 4]), inverse = all(1.0f / deviation[row % 4]);
        for (int32_t column = 0; column < width; column += LANES) {
            const Lanes unit = mul(sub(load(in + column), center), inverse);
            const Lanes value = fma3(unit, load(norm->weight + column), load(norm->bias + column));
            widen_range(&seen, value);
            store(out + column, value);
        }
    }
    *range = seen;
}

/* Means and standard deviations of up to 32 rows, one per lane. */
INLINE void welford(const float *in, int32_t rows, int32_t width, float *means, float *deviations)
{
    Lanes mean[2] = {all(0.0f), all(0.0f)}, squares[2] = {all(0.0f), all(0.0f)};
    Lanes block[2][LANES];
    for (int32_t column = 0; column < width; column += LANES) {
        for (int b = 0; b < 2; b++) {
            for (int r = 0; r < LANES; r++) {
                const int64_t row = b * LANES + r < rows ? b * LANES + r : 0;
                block[b][r] = load(in + row * width + column);
            }
            transpose(block[b]);
        }
        for (int c = 0; c < LANES; c++) {
            const float count = (float)(column + c + 1);
            const Lanes divisor = all(count), reciprocal = all(1.0f / count);
            UNROLL(2) for (int b = 0; b < 2; b++)
            {
                const Lanes before = sub(block[b][c], mean[b]);
                mean[b] = add(mean[b], quotient(before, divisor, reciprocal));
                const Lanes after = sub(block[b][c], mean[b]);
                squares[b] = add(squares[b], mul(before, after));
            }
        }
    }
    for (int b = 0; b < 2; b++) {
        store(means + b * LANES, mean[b]);
        store(deviations + b * LANES, square_root(add(divide(squares[b], all((float)width)), all(epsilon))));
    }
}

static void layer_norm_of_sum(const LayerNorm *norm, const float *in, int32_t rows, int32_t width, float *out,
                              Range *range)
{
    float means[2 * LANES], deviations[2 * LANES];
    Range seen = *range;
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        const int32_t lane = row % (2 * LANES);
        if (lane == 0) welford(in, rows - row, width, means, deviations);
        const Lanes center = all(means[lane]), deviation = all(deviations[lane]);
        const Lanes reciprocal = all(1.0f / deviations[lane]);
        for (int32_t column = 0; column < width; column += LANES) {
            const Lanes unit = quotient(sub(load(in + column), center), deviation, reciprocal);
            const Lanes value = add(mul(unit, load(norm->weight + column)), load(norm->bias + column));
            widen_range(&seen, value);
            store(out + column, value);
        }
    }
    *range = seen;
}

#endif
