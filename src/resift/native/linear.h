/* Linear layers: quantising activations, integer products with packed weights, and what follows each product. */
#ifndef RESIFT_LINEAR_H
#define RESIFT_LINEAR_H

/* Activations as levels: value = scale * (level - zero_point). */
typedef struct {
    Activation *levels;
    float scale;
    int32_t zero_point;
} Quantised;

typedef enum { PLAIN, ADD_RESIDUAL, GELU } Finish;

EXPORT int64_t KERNEL_FUNCTION(bert_packed_size, KERNEL)(const int8_t *weights, int32_t inputs, int32_t outputs)
{
    const int64_t size = (int64_t)inputs * outputs * (int64_t)sizeof(Weight);
#ifdef EXCESS
    return size + excess_size(weights, inputs, outputs);
#else
    (void)weights;
    return size;
#endif
}

EXPORT void KERNEL_FUNCTION(bert_pack, KERNEL)(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed,
                                               int32_t *sums)
{
    Weight *into = packed;
    for (int32_t column = 0; column < outputs; column++) sums[column] = 0;
    for (int32_t row = 0; row < inputs; row++)
        for (int32_t column = 0; column < outputs; column++) {
            const int8_t weight = weights[(int64_t)row * outputs + column];
            const int64_t tile = (int64_t)(column / TILE_COLUMNS) * TILE_COLUMNS * inputs;
            into[tile + (int64_t)(row / DEPTH) * DEPTH * TILE_COLUMNS + column % TILE_COLUMNS * DEPTH + row % DEPTH] =
                weight;
            sums[column] += weight;
        }
#ifdef EXCESS
    move_excess(into, inputs, outputs);
#endif
}

static void quantise(const float *values, int64_t count, const Range *range, Quantised *into)
{
    const float low = lowest_lane(range->low), high = highest_lane(range->high);
    into->scale = high == low ? 1.0f : (high - low) / 255.0f;
    const float zero = -low / into->scale, within = !(zero > 0) ? 0 : zero > 255 ? 255 : zero;
    /* Adding and taking away 1.5 * 2^23 rounds to the nearest, ties to even. */
    into->zero_point = (int32_t)(within + 0x1.8p23f - 0x1.8p23f);
    const Lanes scale = all(into->scale), reciprocal = all(1.0f / into->scale);
    const Ints offset = all_ints(into->zero_point);
    for (int64_t i = 0; i < count; i += LANES)
        store_levels(into->levels + i, add_ints(to_ints(quotient(load(values + i), scale, reciprocal)), offset));
}

/* GELU over a tile, some vectors at a time; in the last group the last vector may stand in for missing ones. */
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

/* The products of n rows, each in a function of its own: nothing else may take registers from the sums. */
#define MULTIPLY(n)                                                                                                   \
    NOINLINE void multiply_##n(const Activation *levels, const Linear *linear, int32_t column,                        \
                               Ints sum[TILE_ROWS][TILE_VECTORS])                                                     \
    {                                                                                                                 \
        Ints own[TILE_ROWS][TILE_VECTORS];                                                                            \
        multiply(n < TILE_ROWS ? n : TILE_ROWS, levels, linear, column, own);                                         \
        UNROLL(6) for (int r = 0; r < (n < TILE_ROWS ? n : TILE_ROWS); r++)                                           \
            UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++) sum[r][v] = own[r][v];                                   \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(3)
MULTIPLY(4)
MULTIPLY(5)
MULTIPLY(6)
#undef MULTIPLY

typedef void Multiply(const Activation *, const Linear *, int32_t, Ints[TILE_ROWS][TILE_VECTORS]);
static Multiply *const multiply_rows[] = {NULL,       multiply_1, multiply_2, multiply_3,
                                          multiply_4, multiply_5, multiply_6};

/* The products of some rows with one tile's columns, and what follows them. */
INLINE void tile(int rows, const Finish finish, const Linear *linear, int32_t column, const Quantised *in, int32_t row,
                 const float *residual, float *out, Range *range)
{
    const int64_t inputs = linear->inputs, stride = linear->outputs, corner = row * stride + column;
    Ints sum[TILE_ROWS][TILE_VECTORS];
    multiply_rows[rows](in->levels + row * inputs, linear, column, sum);
#ifdef EXCESS
    add_excess(rows, in->levels + row * inputs, linear, column, sum);
#endif
    UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++)
    {
        const int32_t at = column + LANES * v;
        const Ints zero = mul_ints(load_ints(linear->sums + at), all_ints(in->zero_point - ACTIVATION_SHIFT));
        const Lanes bias = load(linear->bias + at), scale = mul(all(in->scale), load(linear->scales + at));
        for (int r = 0; r < rows; r++) {
            const int64_t place = corner + r * stride + LANES * v;
            Lanes value = add(mul(to_floats(sub_ints(sum[r][v], zero)), scale), bias);
            if (finish == ADD_RESIDUAL) value = add(value, load(residual + place));
            store(out + place, value);
        }
    }
    if (finish == GELU) gelu_tile(rows, out + corner, stride, range);
}

INLINE void tile_rows(const Finish finish, const Linear *linear, int32_t column, const Quantised *in, int32_t rows,
                      const float *residual, float *out, Range *range)
{
    /* While these weights are used, the next ones are on their way, a part with each tile. */
    const int64_t size = (int64_t)TILE_COLUMNS * linear->inputs * (int64_t)sizeof(Weight);
    const int64_t part = size * TILE_ROWS / rows + 1;
    const char *next = (const char *)linear->packed + column / TILE_COLUMNS * size;
    if (column + TILE_COLUMNS < linear->outputs) next += size;
    for (int32_t row = 0, here; row < rows; row += here, next += part) {
        const int32_t left = rows - row;
        /* Two tiles of middle size are faster than a whole one and a small one. */
        here = left <= TILE_ROWS ? left : left < 2 * TILE_ROWS ? (left + 1) / 2 : TILE_ROWS;
        for (int64_t line = 0; line < part; line += 64) prefetch(next + line);
        tile(here, finish, linear, column, in, row, residual, out, range);
    }
}

static void linear_layer(const Linear *linear, const Quantised *in, int32_t rows, Finish finish, const float *residual,
                         float *out, Range *range)
{
    for (int32_t column = 0; column < linear->outputs; column += TILE_COLUMNS) {
        if (finish == PLAIN) tile_rows(PLAIN, linear, column, in, rows, residual, out, range);
        if (finish == ADD_RESIDUAL) tile_rows(ADD_RESIDUAL, linear, column, in, rows, residual, out, range);
        if (finish == GELU) tile_rows(GELU, linear, column, in, rows, residual, out, range);
    }
}

#endif
