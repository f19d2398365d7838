/* Linear layers: quantize activations, multiply them by packed weights, then add bias and residual or apply GELU. */
#ifndef RESIFT_LINEAR_H
#define RESIFT_LINEAR_H

typedef enum { PLAIN, ADD_RESIDUAL, GELU } Finish;

/* Activations, stored by row or by panel. A panel's rows are contiguous, so that a tile is written and read in one
 * piece of memory; in a wide layer, each row would otherwise be in a separate page. */
typedef struct {
    float *values;
    int64_t row, panel; /* distance in floats between rows, and between panels */
} Matrix;

INLINE Matrix in_rows(float *values, int32_t columns)
{
    const Matrix made = {values, columns, PANEL};
    return made;
}
INLINE Matrix in_panels(float *values, int32_t rows)
{
    const Matrix made = {values, PANEL, (int64_t)rows * PANEL};
    return made;
}
INLINE float *place(Matrix matrix, int64_t row, int64_t column)
{
    return matrix.values + row * matrix.row + column / PANEL * matrix.panel + column % PANEL;
}

#ifndef BLOCKS_OF_LEVELS
INLINE int64_t packed_size(int32_t inputs, int32_t outputs)
{
    return (int64_t)inputs * outputs * (int64_t)sizeof(Weight);
}

static void pack(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed)
{
    Weight *into = packed;
    for (int32_t column = 0; column < outputs; column += TILE_COLUMNS)
        for (int32_t row = 0; row < inputs; row += DEPTH) {
            const int8_t *from = weights + (int64_t)row * outputs + column;
            for (int32_t c = 0; c < TILE_COLUMNS; c++)
                for (int32_t r = 0; r < DEPTH; r++) *into++ = from[(int64_t)r * outputs + c];
        }
}
#endif

EXPORT int64_t KERNEL_FUNCTION(bert_packed_size, KERNEL)(int32_t inputs, int32_t outputs)
{
    return packed_size(inputs, outputs);
}

EXPORT void KERNEL_FUNCTION(bert_pack, KERNEL)(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed,
                                               int32_t *sums)
{
    pack(weights, inputs, outputs, packed);
    for (int32_t column = 0; column < outputs; column++) sums[column] = 0;
    for (int32_t row = 0; row < inputs; row++)
        for (int32_t column = 0; column < outputs; column++) sums[column] += weights[(int64_t)row * outputs + column];
}

static void quantize(Matrix values, int32_t rows, int32_t inputs, const Range *range, Quantized *into)
{
    const float low = lowest_lane(range->low), high = highest_lane(range->high);
    into->scale = high == low ? 1.0f : (high - low) / 255.0f;
    const float zero = -low / into->scale, within = !(zero > 0) ? 0 : zero > 255 ? 255 : zero;
    /* Adding and subtracting 1.5 * 2^23 rounds to nearest, ties to even. */
    into->zero_point = (int32_t)(within + 0x1.8p23f - 0x1.8p23f);
    const Lanes scale = all(into->scale), reciprocal = all(1.0f / into->scale);
    const Ints offset = all_ints(into->zero_point);
    for (int32_t column = 0; column < inputs; column += PANEL)
        for (int32_t row = 0, here; row < rows; row += here) {
            here = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
            for (int r = 0; r < here; r++) {
                const float *from = place(values, row + r, column);
                Activation *to = into->levels + (int64_t)(row + r) * inputs + column;
                UNROLL(4) for (int i = 0; i < PANEL; i += LANES)
                    store_levels(to + i, add_ints(to_ints(quotient(load(from + i), scale, reciprocal)), offset));
            }
#ifdef BLOCKS_OF_LEVELS
            note_block(into, row, here, column, inputs);
#endif
        }
}

/* GELU over a tile, some vectors at a time; in the last group, the last vector may replace missing ones. */
INLINE void gelu_tile(int rows, float *out, int64_t stride, Range *range)
{
    Range seen = *range;
    const int count = rows * TILE_VECTORS;
    for (int at = 0; at < count; at += CHAINS) {
        Lanes value[CHAINS];
        float *place[CHAINS];
        EACH_CHAIN
        {
            const int vector = at + i < count ? at + i : count - 1;
            place[i] = out + vector / TILE_VECTORS * stride + vector % TILE_VECTORS * LANES;
            value[i] = load(place[i]);
        }
        gelus(value);
        EACH_CHAIN widen_range(&seen, value[i]);
        EACH_CHAIN store(place[i], value[i]);
    }
    *range = seen;
}

/* Products of n rows, in a separate function for each n, so that nothing else takes registers from the sums. */
#define MULTIPLY(n)                                                                                                   \
    NOINLINE void multiply_##n(const Quantized *in, int32_t row, const Linear *linear, int32_t column, Ahead ahead,   \
                               Ints sum[TILE_ROWS][TILE_VECTORS])                                                     \
    {                                                                                                                 \
        multiply(n < TILE_ROWS ? n : TILE_ROWS, in, row, linear, column, ahead, sum);                                 \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(3)
MULTIPLY(4)
MULTIPLY(5)
MULTIPLY(6)
#undef MULTIPLY

typedef void Multiply(const Quantized *, int32_t, const Linear *, int32_t, Ahead, Ints[TILE_ROWS][TILE_VECTORS]);
static Multiply *const multiply_rows[] = {NULL,       multiply_1, multiply_2, multiply_3,
                                          multiply_4, multiply_5, multiply_6};

/* Compute some rows of one tile: the products, then bias, residual or GELU. */
INLINE void tile(int rows, const Finish finish, const Linear *linear, int32_t column, const Quantized *in, int32_t row,
                 const float *residual, Ahead ahead, Matrix out, Range *range)
{
    const int64_t stride = linear->outputs;
    float *corner = place(out, row, column);
    Ints sum[TILE_ROWS][TILE_VECTORS];
    multiply_rows[rows](in, row, linear, column, ahead, sum);
    UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++)
    {
        const int32_t at = column + LANES * v;
        const int32_t zero_point = ZERO_POINT_INCLUDED ? 0 : in->zero_point - ACTIVATION_SHIFT;
        const Ints zero = mul_ints(load_ints(linear->sums + at), all_ints(zero_point));
        const Lanes bias = load(linear->bias + at), scale = mul(all(in->scale), load(linear->scales + at));
        for (int r = 0; r < rows; r++) {
            Lanes value = add(mul(to_floats(sub_ints(sum[r][v], zero)), scale), bias);
            if (finish == ADD_RESIDUAL) value = add(value, load(residual + (row + r) * stride + at));
            store(corner + r * out.row + LANES * v, value);
        }
    }
    if (finish == GELU) gelu_tile(rows, corner, out.row, range);
}

INLINE void tile_rows(const Finish finish, const Linear *linear, int32_t column, const Quantized *in, int32_t rows,
                      const float *residual, Matrix out, Range *range)
{
    /* Prefetch the next weights while these are in use, one part per tile. */
    const int64_t size = packed_size(linear->inputs, TILE_COLUMNS);
    const char *next = (const char *)linear->packed + column / TILE_COLUMNS * size;
    if (column + TILE_COLUMNS < linear->outputs) next += size;
    Ahead ahead;
    for (int32_t row = 0, here; row < rows; row += here, next = ahead.end) {
        const int32_t left = rows - row;
        here = left < TILE_ROWS ? left : TILE_ROWS;
#ifndef BLOCKS_OF_LEVELS
        /* Two medium tiles are faster than a full one and a small one. */
        if (left > TILE_ROWS && left < 2 * TILE_ROWS) here = (left + 1) / 2;
#endif
        ahead = portion_ahead(next, size, TILE_ROWS, rows, linear->inputs);
        tile(here, finish, linear, column, in, row, residual, ahead, out, range);
    }
}

static void linear_layer(const Linear *linear, const Quantized *in, int32_t rows, Finish finish, const float *residual,
                         Matrix out, Range *range)
{
    for (int32_t column = 0; column < linear->outputs; column += TILE_COLUMNS) {
        if (finish == PLAIN) tile_rows(PLAIN, linear, column, in, rows, residual, out, range);
        if (finish == ADD_RESIDUAL) tile_rows(ADD_RESIDUAL, linear, column, in, rows, residual, out, range);
        if (finish == GELU) tile_rows(GELU, linear, column, in, rows, residual, out, range);
    }
}

#endif
