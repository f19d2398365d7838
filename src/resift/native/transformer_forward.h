/* The forward pass of transformer.h for one text on the calling thread; included by every kernel after encoder.h. */
#include "transformer.h"

#include <string.h>

/* Maximum number of feed-forward rows that are computed together, so that their wide activations stay in the cache. A
 * multiple of the tile rows of every kernel. */
enum { FFN_ROWS = 192, ROW_MULTIPLE = 12 };

/* Levels that represent 0. GELU is never below -0.17, so nearly all levels are available for positive values. */
enum { ZERO_MIDDLE = 128, ZERO_GELU = 16 };

#ifndef ROW_PRODUCTS
enum { ROW_TILE = TILE_ROWS };
INLINE int64_t row_packed_size(int32_t inputs, int32_t outputs) { return packed_size(inputs, outputs); }
static void row_pack(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed)
{
    pack(weights, inputs, outputs, packed);
}
#endif

/* Rows of quantized activations: value = row scale * (level - zero point). */
typedef struct {
    Activation *levels;
    float *scales;
    int32_t zero_point;
    int32_t *energies; /* [rows][inputs / 16], for kernels that define ROW_PRODUCTS */
} Levels;

/* ---- linear layers ---- */

EXPORT int64_t KERNEL_FUNCTION(transformer_packed_size, KERNEL)(int32_t inputs, int32_t outputs)
{
    return row_packed_size(inputs, outputs);
}

EXPORT void KERNEL_FUNCTION(transformer_pack, KERNEL)(const int8_t *weights, int32_t inputs, int32_t outputs,
                                                      void *packed, int32_t *sums)
{
    row_pack(weights, inputs, outputs, packed);
    for (int32_t column = 0; column < outputs; column++) sums[column] = 0;
    for (int32_t row = 0; row < inputs; row++)
        for (int32_t column = 0; column < outputs; column++) sums[column] += weights[(int64_t)row * outputs + column];
}

INLINE void quantize_row(const float *values, int32_t inputs, int32_t row, Levels *into)
{
    Range range = no_range();
    for (int32_t d = 0; d < inputs; d += LANES) widen_range(&range, load(values + d));
    const int32_t zero = into->zero_point;
    const float below = -lowest_lane(range.low) / (float)zero, above = highest_lane(range.high) / (float)(255 - zero);
    float scale = below > above ? below : above;
    if (!(scale > 1e-30f)) scale = 1.0f;
    into->scales[row] = scale;
    const Lanes reciprocal = all(1.0f / scale);
    Activation *to = into->levels + (int64_t)row * inputs;
    for (int32_t d = 0; d < inputs; d += LANES) {
        store_levels(to + d, add_ints(to_ints(mul(load(values + d), reciprocal)), all_ints(zero)));
    }
#ifdef ROW_PRODUCTS
    int32_t *energies = into->energies + (int64_t)row * (inputs / GROUP);
    for (int32_t d = 0; d < inputs; d += CHUNK) note_energies(to + d, row_center(zero), energies + d / GROUP);
#endif
}

/* Compute some rows of one tile: the products, then bias and residual. */
INLINE void quantized_tile(int rows, const Linear *linear, int32_t column, const Levels *in, int32_t row,
                           const float *residual, Ahead ahead, Matrix out)
{
    float *corner = place(out, row, column);
    Ints sum[ROW_TILE][TILE_VECTORS];
#ifdef ROW_PRODUCTS
    const int32_t inputs = linear->inputs, center = row_center(in->zero_point), zero_point = in->zero_point - center;
    row_multiply_table[rows](in->levels + (int64_t)row * inputs, inputs,
                             (const RowChunk *)linear->packed + (int64_t)(column / LANES) * (inputs / CHUNK),
                             in->energies + (int64_t)row * (inputs / GROUP), center, ahead, sum[0]);
#else
    const int32_t zero_point = in->zero_point - ACTIVATION_SHIFT;
    const Quantized quantized = {in->levels, 1.0f, in->zero_point, NULL};
    multiply_rows[rows](&quantized, row, linear, column, ahead, sum);
#endif
    UNROLL(4) for (int v = 0; v < TILE_VECTORS; v++)
    {
        const int32_t at = column + LANES * v;
        const Ints zero = mul_ints(load_ints(linear->sums + at), all_ints(zero_point));
        const Lanes bias = load(linear->bias + at), scale = load(linear->scales + at);
        for (int r = 0; r < rows; r++) {
            const Lanes factor = mul(all(in->scales[row + r]), scale);
            Lanes value = add(mul(to_floats(sub_ints(sum[r][v], zero)), factor), bias);
            if (residual) value = add(value, load(residual + (int64_t)(row + r) * linear->outputs + at));
            store(corner + r * out.row + LANES * v, value);
        }
    }
}

/* Number of rows of the next tile. Two medium tiles are faster than a full one and a small one. */
INLINE int32_t rows_of_tile(int32_t left)
{
    return left <= ROW_TILE ? left : left < 2 * ROW_TILE ? (left + 1) / 2 : ROW_TILE;
}

static void quantized_linear(const Linear *linear, const Levels *in, int32_t rows, const float *residual, Matrix out)
{
#ifdef ROW_PRODUCTS
    for (int32_t row = 0, here; row < rows; row += here) {
        here = rows_of_tile(rows - row);
        merge_energies(in->energies + (int64_t)row * (linear->inputs / GROUP), here, linear->inputs);
    }
#endif
    const int64_t size = row_packed_size(linear->inputs, TILE_COLUMNS);
    for (int32_t column = 0; column < linear->outputs; column += TILE_COLUMNS) {
        /* Prefetch the next weights while these are in use, one part per tile. */
        const char *next = (const char *)linear->packed + column / TILE_COLUMNS * size;
        if (column + TILE_COLUMNS < linear->outputs) next += size;
        Ahead ahead;
        for (int32_t row = 0, here; row < rows; row += here, next = ahead.end) {
            here = rows_of_tile(rows - row);
            ahead = portion_ahead(next, size, ROW_TILE, rows, linear->inputs);
            quantized_tile(here, linear, column, in, row, residual, ahead, out);
        }
    }
}

/* fp32 weights are packed as [outputs / PANEL][inputs][PANEL]. */
EXPORT int64_t KERNEL_FUNCTION(transformer_float_size, KERNEL)(int32_t inputs, int32_t outputs)
{
    return (int64_t)inputs * outputs;
}

EXPORT void KERNEL_FUNCTION(transformer_pack_floats, KERNEL)(const float *weights, int32_t inputs, int32_t outputs,
                                                            float *packed)
{
    for (int32_t panel = 0; panel < outputs; panel += PANEL)
        for (int32_t row = 0; row < inputs; row++, packed += PANEL)
            memcpy(packed, weights + (int64_t)row * outputs + panel, PANEL * sizeof *packed);
}

NOINLINE void float_block(const float *in, int64_t stride, const float *weights, int32_t inputs, float *out,
                          int64_t out_stride)
{
    matmul_block(SCORE_ROWS, SCORE_VECTORS, in, stride, weights, PANEL, inputs, 1.0f, out, out_stride, NULL);
}

static void float_linear(const Linear *linear, const float *in, int32_t rows, const float *residual, Matrix out)
{
    const int32_t inputs = linear->inputs;
    for (int32_t column = 0; column < linear->outputs; column += SCORE_VECTORS * LANES) {
        const float *weights =
            (const float *)linear->packed + (int64_t)(column / PANEL) * inputs * PANEL + column % PANEL;
        for (int32_t row = 0, here; row < rows; row += here) {
            const float *from = in + (int64_t)row * inputs;
            float *corner = place(out, row, column);
            here = rows - row < SCORE_ROWS ? 1 : SCORE_ROWS;
            if (here == SCORE_ROWS) float_block(from, inputs, weights, inputs, corner, out.row);
            else matmul_block(1, SCORE_VECTORS, from, inputs, weights, PANEL, inputs, 1.0f, corner, out.row, NULL);
            for (int32_t r = 0; r < here; r++)
                for (int v = 0; v < SCORE_VECTORS; v++) {
                    const int32_t at = column + LANES * v;
                    float *to = corner + r * out.row + LANES * v;
                    Lanes value = add(load(to), load(linear->bias + at));
                    if (residual) value = add(value, load(residual + (int64_t)(row + r) * linear->outputs + at));
                    store(to, value);
                }
        }
    }
}

/* out = in * weights + bias (+ residual). `residual` has as many columns as the layer has outputs. */
static void apply_linear(const Linear *linear, const float *in, int32_t rows, int32_t zero_point,
                         const float *residual, Levels *levels, Matrix out)
{
    if (!linear->scales) {
        float_linear(linear, in, rows, residual, out);
        return;
    }
    levels->zero_point = zero_point;
    for (int32_t row = 0; row < rows; row++)
        quantize_row(in + (int64_t)row * linear->inputs, linear->inputs, row, levels);
    quantized_linear(linear, levels, rows, residual, out);
}

/* ---- norms, activations, positions ---- */

/* `in` and `out` may be the same rows. Columns from `true_width` upward are 0 before and after. */
static void norm_rows(const LayerNorm *norm, float epsilon_, float *in, int32_t rows, int32_t width,
                      int32_t true_width, float *out)
{
    float mean[4], squares[4];
    for (int32_t row = 0; row < rows; row++, in += width, out += width) {
        if (row % 4 == 0) {
            float *four[4];
            double sum[4];
            for (int r = 0; r < 4; r++) four[r] = in + (int64_t)(row + r < rows ? r : 0) * width;
            sums_in_double((const float *const *)four, true_width, sum);
            for (int r = 0; r < 4; r++) mean[r] = (float)(sum[r] / (double)true_width);
            /* Squares are summed in groups of eight, so the padding of the last group must equal the mean. */
            for (int32_t d = true_width; d % 8; d++)
                for (int r = 0; r < 4; r++) four[r][d] = mean[r];
            sums_of_squares((const float *const *)four, mean, true_width, squares);
            for (int32_t d = true_width; d % 8; d++)
                for (int r = 0; r < 4; r++) four[r][d] = 0.0f;
        }
        const Lanes center = all(mean[row % 4]);
        const Lanes inverse = all(1.0f / sqrtf(squares[row % 4] / (float)true_width + epsilon_));
        for (int32_t d = 0; d < width; d += LANES) {
            const Lanes unit = mul(sub(load(in + d), center), inverse);
            store(out + d, fma3(unit, load(norm->weight + d), load(norm->bias + d)));
        }
    }
}

INLINE void activate(Lanes value[CHAINS], int32_t kind)
{
    if (kind == ACTIVATION_GELU) {
        gelus(value);
    } else if (kind == ACTIVATION_GELU_TANH) {
        EACH_CHAIN
        {
            const Lanes x = value[i], cube = mul(mul(x, x), x);
            const Lanes inner = mul(all(0.7978845608028654f), fma3(all(0.044715f), cube, x));
            value[i] = mul(mul(all(0.5f), x), add(hyperbolic_tangent(inner), all(1.0f)));
        }
    } else if (kind == ACTIVATION_RELU) {
        EACH_CHAIN value[i] = higher(value[i], all(0.0f));
    } else if (kind == ACTIVATION_TANH) {
        EACH_CHAIN value[i] = hyperbolic_tangent(value[i]);
    }
}

/* out[row] = activation(first half), times the second half if the layer is gated. */
static void activate_rows(const Transformer *model, Matrix wide, int32_t rows, float *out)
{
    const int32_t ffn = model->ffn, kind = model->activation, gated = model->gated;
    for (int32_t row = 0; row < rows; row++, out += ffn)
        for (int32_t d = 0; d < ffn; d += CHAINS * LANES) {
            Lanes value[CHAINS];
            const float *from = place(wide, row, d);
            EACH_CHAIN value[i] = load(from + LANES * i);
            activate(value, kind);
            if (gated) {
                const float *gate = place(wide, row, ffn + d);
                EACH_CHAIN value[i] = mul(value[i], load(gate + LANES * i));
            }
            EACH_CHAIN store(out + d + LANES * i, value[i]);
        }
}

/* Rotary position embedding of the heads that begin at a column. */
static void rotate_heads(const Transformer *model, const TransformerLayer *layer, Matrix qkv, int32_t start,
                         int32_t tokens)
{
    const int32_t half = model->head_width / 2;
    for (int32_t head = 0; head < model->heads; head++)
        for (int32_t token = 0; token < tokens; token++)
            for (int32_t d = 0; d < half; d += LANES) {
                float *first = place(qkv, token, start + head * model->head_width + d);
                float *second = place(qkv, token, start + head * model->head_width + half + d);
                const Lanes cosine = load(layer->cosines + (int64_t)token * half + d);
                const Lanes sine = load(layer->sines + (int64_t)token * half + d);
                const Lanes x = load(first), y = load(second);
                store(first, sub(mul(x, cosine), mul(y, sine)));
                store(second, add(mul(y, cosine), mul(x, sine)));
            }
}

/* ---- attention ---- */

INLINE Matrix from_row(Matrix matrix, int32_t row)
{
    matrix.values += row * matrix.row;
    return matrix;
}

INLINE int32_t window_columns(const Transformer *model, int32_t window)
{
    (void)model;
    return padded(ATTENTION_ROWS + 2 * window + LANES);
}

INLINE int64_t transformer_attention_scratch(const Transformer *model, int64_t tokens)
{
    const int64_t columns = padded((int32_t)tokens) + PANEL;
    return model->head_width * columns + 2 * ATTENTION_ROWS * columns + tokens * model->head_width;
}

/* Softmax of each row over the keys in its window. Rows with the same number of keys are processed together, on copies
 * that begin at column 0; the other keys get weight 0. */
static void window_softmax(float *scores, int32_t columns, int32_t first_row, int32_t rows, int32_t first_key,
                           int32_t tokens, int32_t window, float *copies)
{
    for (int32_t r = 0; r < rows;) {
        int32_t count = 0, same = 0, starts[ATTENTION_ROWS];
        for (; r + same < rows; same++) {
            const int32_t at = first_row + r + same;
            const int32_t low = at > window ? at - window : 0, high = at + window < tokens ? at + window + 1 : tokens;
            if (same && high - low != count) break;
            count = high - low;
            starts[same] = low - first_key;
        }
        for (int32_t i = 0; i < same; i++)
            memcpy(copies + (int64_t)i * columns, scores + (int64_t)(r + i) * columns + starts[i],
                   (size_t)count * sizeof *copies);
        softmax(copies, columns, same, count);
        for (int32_t i = 0; i < same; i++) {
            float *row = scores + (int64_t)(r + i) * columns;
            memset(row, 0, (size_t)columns * sizeof *row);
            memcpy(row + starts[i], copies + (int64_t)i * columns, (size_t)count * sizeof *row);
        }
        r += same;
    }
}

/* The first `wanted` rows of multi-head attention, [wanted][inner]. */
static void attend(const Transformer *model, const TransformerLayer *layer, Matrix qkv, int32_t tokens, int32_t wanted,
                   float *scratch, float *out)
{
    const int32_t width = model->head_width, inner = model->inner, window = layer->window;
    /* A window as wide as the text has no effect. */
    const int local = window > 0 && tokens > ATTENTION_ROWS + window;
    const int32_t columns = local ? window_columns(model, window) < padded(tokens) + PANEL
                                        ? window_columns(model, window)
                                        : padded(tokens) + PANEL
                                  : padded(tokens);
    float *keys = scratch, *scores = keys + (int64_t)width * columns;
    float *copies = scores + (int64_t)ATTENTION_ROWS * columns;
    float *queries = copies + (int64_t)ATTENTION_ROWS * columns;
    for (int32_t head = 0; head < model->heads; head++) {
        const int32_t start = head * width;
        copy_queries(qkv, start, wanted, width, 1.0f, queries);
        if (!local) transpose_keys(qkv, inner + start, tokens, width, 1.0f, keys, columns);
        for (int32_t row = 0; row < wanted; row += ATTENTION_ROWS) {
            const int32_t rows = wanted - row < ATTENTION_ROWS ? wanted - row : ATTENTION_ROWS;
            int32_t low = 0, high = tokens;
            if (local) {
                low = row > window ? row - window : 0;
                high = row + rows + window < tokens ? row + rows + window : tokens;
                transpose_keys(from_row(qkv, low), inner + start, high - low, width, 1.0f, keys, columns);
            }
            attention_scores(queries + (int64_t)row * width, width, rows, high - low, width, keys, columns,
                             model->attention_scale, scores);
            if (window > 0) window_softmax(scores, columns, row, rows, low, tokens, window, copies);
            else softmax(scores, columns, rows, tokens);
            attention_context(scores, columns, rows, high - low, from_row(qkv, low), 2 * inner + start, width,
                              out + (int64_t)row * inner + start, inner, NULL);
        }
    }
    /* Columns after the last head are padding. */
    for (int32_t row = 0; row < wanted; row++)
        for (int32_t d = model->heads * width; d < inner; d++) out[(int64_t)row * inner + d] = 0.0f;
}

/* ---- the whole pass ---- */

INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Number of feed-forward rows per block, with blocks of about equal size. */
INLINE int32_t ffn_rows(int32_t tokens)
{
    const int32_t blocks = (tokens + FFN_ROWS - 1) / FFN_ROWS, rows = (tokens + blocks - 1) / blocks;
    return (rows + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
}

typedef struct {
    int64_t state, attended, normed, mixed, wide, hidden, levels, row_scales, energies, attention, head, total;
} Layout;

INLINE Layout scratch_layout(const Transformer *model, int32_t tokens)
{
    const int64_t rows = tokens, width = larger(model->width, model->input_width), block = ffn_rows(tokens);
    const int64_t up = (int64_t)model->ffn * (model->gated ? 2 : 1);
    const int64_t inputs = larger(larger(rows * width, rows * model->inner), block * model->ffn);
    Layout at;
    int64_t next = 0;
#define TAKE(name, size) at.name = next, next += ((size) + LANES - 1) / LANES * LANES
    TAKE(state, rows * width);
    TAKE(attended, rows * width);
    TAKE(normed, rows * width);
    TAKE(mixed, rows * model->inner);
    TAKE(wide, larger(rows * 3 * model->inner, block * up));
    TAKE(hidden, block * model->ffn);
    TAKE(levels, inputs * (int64_t)sizeof(Activation) / (int64_t)sizeof(float) + LANES);
    TAKE(row_scales, rows);
    TAKE(energies, inputs / LANES);
    TAKE(attention, transformer_attention_scratch(model, rows));
    int64_t widest = larger(width, model->outputs);
    for (int32_t i = 0; i < model->head_steps; i++)
        if (model->head[i].kind == STEP_LINEAR) widest = larger(widest, model->head[i].linear.outputs);
    TAKE(head, 2 * (widest + PANEL));
#undef TAKE
    at.total = next;
    return at;
}

EXPORT int64_t KERNEL_FUNCTION(transformer_scratch, KERNEL)(const Transformer *model, int32_t tokens)
{
    return scratch_layout(model, tokens).total;
}

static void feed_forward(const Transformer *model, const TransformerLayer *layer, float *attended, int32_t rows,
                         int32_t block, float *normed, Matrix wide, float *hidden, Levels *levels, float *out)
{
    const int32_t width = model->width;
    const int zero = !model->gated && model->activation != ACTIVATION_TANH ? ZERO_GELU : ZERO_MIDDLE;
    for (int32_t row = 0; row < rows; row += block) {
        const int32_t here = rows - row < block ? rows - row : block;
        float *in = attended + (int64_t)row * width;
        const float *input = in;
        if (model->pre_norm) {
            norm_rows(&layer->ffn_norm, model->epsilon, in, here, width, model->true_width, normed);
            input = normed;
        }
        const Matrix up = in_panels(wide.values, here);
        apply_linear(&layer->ffn_up, input, here, ZERO_MIDDLE, NULL, levels, up);
        activate_rows(model, up, here, hidden);
        apply_linear(&layer->ffn_down, hidden, here, zero, in, levels,
                     in_rows(out + (int64_t)row * width, width));
    }
    if (!model->pre_norm) norm_rows(&layer->ffn_norm, model->epsilon, out, rows, width, model->true_width, out);
}

static void pool(const Transformer *model, const float *states, int32_t tokens, float *out)
{
    const int32_t width = model->width;
    if (model->pooling != POOL_MEAN) {
        const int32_t row = model->pooling == POOL_LAST ? tokens - 1 : 0;
        memcpy(out, states + (int64_t)row * width, (size_t)width * sizeof *out);
        return;
    }
    for (int32_t d = 0; d < width; d += LANES) {
        Lanes sum = all(0.0f);
        for (int32_t row = 0; row < tokens; row++) sum = add(sum, load(states + (int64_t)row * width + d));
        store(out + d, divide(sum, all((float)tokens)));
    }
}

static void run_head(const Transformer *model, float *state, float *other, float *out)
{
    int32_t width = model->width;
    for (int32_t i = 0; i < model->head_steps; i++) {
        const HeadStep *step_ = model->head + i;
        if (step_->kind == STEP_LINEAR) {
            float_linear(&step_->linear, state, 1, NULL, in_rows(other, step_->linear.outputs));
            float *swap = state;
            state = other, other = swap, width = step_->linear.outputs;
        } else if (step_->kind == STEP_NORM) {
            norm_rows(&step_->norm, step_->norm_epsilon, state, 1, width, step_->norm_width, state);
        } else {
            for (int32_t d = 0; d < width; d += CHAINS * LANES) {
                Lanes value[CHAINS];
                EACH_CHAIN value[i] = load(state + d + LANES * i);
                activate(value, step_->activation);
                EACH_CHAIN store(state + d + LANES * i, value[i]);
            }
        }
    }
    memcpy(out, state, (size_t)model->outputs * sizeof *out);
}

EXPORT void KERNEL_FUNCTION(transformer_forward, KERNEL)(const Transformer *model, float *input, int32_t tokens,
                                                        int32_t wanted, float *scratch, float *out)
{
    const Layout at = scratch_layout(model, tokens);
    const int32_t width = model->width, block = ffn_rows(tokens);
    float *state = scratch + at.state, *attended = scratch + at.attended, *normed = scratch + at.normed;
    float *mixed = scratch + at.mixed, *hidden = scratch + at.hidden;
    const Matrix wide = in_panels(scratch + at.wide, tokens);
    Levels levels = {(Activation *)(void *)(scratch + at.levels), scratch + at.row_scales, ZERO_MIDDLE,
                     (int32_t *)(void *)(scratch + at.energies)};

    const float *embedded = input;
    if (model->embedding_norm.weight) {
        norm_rows(&model->embedding_norm, model->epsilon, input, tokens, model->input_width, model->true_input_width,
                  model->projection.outputs ? normed : state);
        embedded = model->projection.outputs ? normed : state;
    }
    if (model->projection.outputs)
        apply_linear(&model->projection, embedded, tokens, ZERO_MIDDLE, NULL, &levels, in_rows(state, width));
    else if (embedded != state) memcpy(state, embedded, (size_t)tokens * (size_t)width * sizeof *state);

    const int32_t needed = model->pooling == POOL_NONE ? wanted : model->pooling == POOL_FIRST ? 1 : tokens;
    for (int32_t number = 0; number < model->layers; number++) {
        const TransformerLayer *layer = model->layer + number;
        const int32_t kept_rows = number + 1 < model->layers ? tokens : needed;
        const float *in = state;
        if (model->pre_norm && layer->attention_norm.weight) {
            norm_rows(&layer->attention_norm, model->epsilon, state, tokens, width, model->true_width, normed);
            in = normed;
        }
        apply_linear(&layer->qkv, in, tokens, ZERO_MIDDLE, NULL, &levels, wide);
        if (layer->cosines) {
            rotate_heads(model, layer, wide, 0, tokens);
            rotate_heads(model, layer, wide, model->inner, tokens);
        }
        attend(model, layer, wide, tokens, kept_rows, scratch + at.attention, mixed);
        apply_linear(&layer->attention_output, mixed, kept_rows, ZERO_MIDDLE, state, &levels,
                     in_rows(attended, width));
        if (!model->pre_norm)
            norm_rows(&layer->attention_norm, model->epsilon, attended, kept_rows, width, model->true_width, attended);
        feed_forward(model, layer, attended, kept_rows, block, normed, wide, hidden, &levels, state);
    }
    if (model->final_norm.weight)
        norm_rows(&model->final_norm, model->epsilon, state, needed, width, model->true_width, state);
    if (model->pooling == POOL_NONE) {
        memcpy(out, state, (size_t)wanted * (size_t)width * sizeof *out);
        return;
    }
    pool(model, state, tokens, scratch + at.head);
    const int64_t half = (at.total - at.head) / 2;
    run_head(model, scratch + at.head, scratch + at.head + half / LANES * LANES, out);
}
