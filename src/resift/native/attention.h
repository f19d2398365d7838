/* Multi-head self-attention of all tokens of one text, in single precision. */
#ifndef RESIFT_ATTENTION_H
#define RESIFT_ATTENTION_H

/* Tokens whose scores are in memory at a time: those of 512 tokens with each other would leave no room in the caches.
 * A multiple of the rows of every kernel's tiles. */
enum { ATTENTION_ROWS = 48 };

/* The length of a row of attention scores: whole panels. */
INLINE int32_t padded(int32_t tokens) { return (tokens + PANEL - 1) / PANEL * PANEL; }

/* One head's keys, which begin at a column, transposed to [width][columns] with zeros behind the last token. */
INLINE void transpose_keys(Matrix qkv, int32_t start, int32_t tokens, int32_t width, float factor, float *out,
                           int32_t columns)
{
    Lanes block[LANES];
    for (int32_t token = 0; token < tokens; token += LANES)
        for (int32_t d = 0; d < width; d += LANES) {
            for (int r = 0; r < LANES; r++)
                block[r] = token + r < tokens ? mul(load(place(qkv, token + r, start + d)), all(factor)) : all(0.0f);
            transpose(block);
            for (int c = 0; c < LANES; c++) store(out + (int64_t)(d + c) * columns + token, block[c]);
        }
}

/* out[r][0..16 * vectors) = factor * sum over k of left[r][k] * right[k][...], added up from k = 0 on. */
INLINE void matmul_block(const int rows, const int vectors, const float *left, int64_t left_stride, const float *right,
                         int64_t right_stride, int32_t depth, float factor, float *out, int64_t out_stride,
                         Range *range)
{
    Lanes sum[12][4];
    UNROLL(12) for (int r = 0; r < rows; r++)
    {
        UNROLL(4) for (int v = 0; v < vectors; v++) sum[r][v] = all(0.0f);
    }
    for (int32_t k = 0; k < depth; k++, right += right_stride) {
        Lanes column[4];
        UNROLL(4) for (int v = 0; v < vectors; v++) column[v] = load(right + LANES * v);
        UNROLL(12) for (int r = 0; r < rows; r++)
        {
            const Lanes one = all(left[r * left_stride + k]);
            UNROLL(4) for (int v = 0; v < vectors; v++) accumulate(&sum[r][v], one, column[v]);
        }
    }
    Range seen = range ? *range : no_range();
    UNROLL(12) for (int r = 0; r < rows; r++)
    {
        UNROLL(4) for (int v = 0; v < vectors; v++)
        {
            const Lanes value = mul(sum[r][v], all(factor));
            if (range) widen_range(&seen, value);
            store(out + r * out_stride + LANES * v, value);
        }
    }
    if (range) *range = seen;
}

/* Whole blocks in functions of their own: nothing else may take registers from the sums. */
NOINLINE void score_block(const float *queries, int64_t stride, const float *keys, int64_t columns, int32_t width,
                          float factor, float *out)
{
    matmul_block(SCORE_ROWS, SCORE_VECTORS, queries, stride, keys, columns, width, factor, out, columns, NULL);
}
NOINLINE void context_block(const float *weights, int64_t columns, const float *values, int64_t stride, int32_t tokens,
                            float *out, int64_t out_stride, Range *range)
{
    matmul_block(CONTEXT_ROWS, CONTEXT_VECTORS, weights, columns, values, stride, tokens, 1.0f, out, out_stride, range);
}

/* The scores of some queries with the keys of all tokens. */
static void attention_scores(const float *queries, int64_t stride, int32_t rows, int32_t tokens, int32_t width,
                             const float *keys, int32_t columns, float factor, float *out)
{
    for (int32_t column = 0; column < tokens; column += SCORE_VECTORS * LANES) {
        /* What is left of the last panel is read by nobody. */
        const int left = (tokens - column + LANES - 1) / LANES, vectors = left < SCORE_VECTORS ? left : SCORE_VECTORS;
        for (int32_t row = 0; row < rows; row += SCORE_ROWS) {
            const int here = rows - row < SCORE_ROWS ? rows - row : SCORE_ROWS;
#define BLOCK(r, v)                                                                                                   \
    matmul_block(r, v < SCORE_VECTORS ? v : SCORE_VECTORS, queries + row * stride, stride, keys + column, columns,   \
                 width, factor, out + (int64_t)row * columns + column, columns, NULL)
#define BLOCKS(r)                                                                                                     \
    switch (vectors) {                                                                                                \
    case 1: BLOCK(r, 1); break;                                                                                       \
    case 2: BLOCK(r, 2); break;                                                                                       \
    case 3: BLOCK(r, 3); break;                                                                                       \
    default: BLOCK(r, 4);                                                                                             \
    }
            if (here == SCORE_ROWS && vectors == SCORE_VECTORS) {
                score_block(queries + row * stride, stride, keys + column, columns, width, factor,
                            out + (int64_t)row * columns + column);
                continue;
            }
            if (here == SCORE_ROWS) {
                BLOCKS(SCORE_ROWS)
                continue;
            }
            for (const int32_t end = row + here; row < end; row++) BLOCKS(1)
#undef BLOCKS
#undef BLOCK
        }
    }
}

/* Rows have room for whole panels; what lies behind `count` may hold anything afterwards.
 * Each step is done for some rows before the next one: a row's sum is slow to come, and nobody waits for it. */
INLINE void softmax(float *scores, int64_t stride, int32_t rows, int32_t count)
{
    static const float of_exp[5] = {0x1.694000p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.555450p-3f, 0x1.fffff6p-2f};
    float number[4];
    for (int r = 0; r < rows; r++) {
        Lanes highest = all(-3.402823466e+38f);
        for (int32_t at = 0; at < count; at += LANES)
            highest = higher_first(count - at, highest, load(scores + r * stride + at));
        number[r] = highest_lane(highest);
    }
    for (int r = 0; r < rows; r++) {
        const Lanes top = all(number[r]);
        Lanes sum = all(0.0f), value[CHAINS];
        for (int32_t at = 0; at < count; at += CHAINS * LANES) {
            float *here = scores + r * stride + at;
            EACH_CHAIN value[i] = sub(load(here + LANES * i), top);
            EACH_CHAIN value[i] = higher(all(-88.3762626647949f), value[i]);
            exponentials(value, of_exp);
            EACH_CHAIN store(here + LANES * i, value[i]);
            EACH_CHAIN sum = add_first(count - at - LANES * i, sum, value[i]);
        }
        number[r] = 1.0f / sum_of_lanes(sum);
    }
    for (int r = 0; r < rows; r++) {
        const Lanes share = all(number[r]);
        for (int32_t at = 0; at < count; at += LANES) {
            float *here = scores + r * stride + at;
            store(here, mul(load(here), share));
        }
    }
}

/* The values of all tokens, which begin at a column, mixed by the attention weights of some. */
static void attention_context(const float *weights, int32_t columns, int32_t rows, int32_t tokens, Matrix qkv,
                              int32_t start, int32_t width, float *out, int64_t out_stride, Range *range)
{
    for (int32_t d = 0; d < width; d += CONTEXT_VECTORS * LANES) {
        const float *values = place(qkv, 0, start + d);
        int32_t row = 0;
#define BLOCK(r)                                                                                                      \
    matmul_block(r, CONTEXT_VECTORS, weights + (int64_t)row * columns, columns, values, qkv.row, tokens, 1.0f,       \
                 out + row * out_stride + d, out_stride, range)
        for (; row + CONTEXT_ROWS <= rows; row += CONTEXT_ROWS)
            context_block(weights + (int64_t)row * columns, columns, values, qkv.row, tokens,
                          out + row * out_stride + d, out_stride, range);
        for (; row + 4 <= rows; row += 4) BLOCK(4);
        for (; row + 2 <= rows; row += 2) BLOCK(2);
        for (; row < rows; row++) BLOCK(1);
#undef BLOCK
    }
}

/* One head's queries, which begin at a column, times a factor. */
INLINE void copy_queries(Matrix qkv, int32_t start, int32_t tokens, int32_t width, float factor, float *out)
{
    for (int32_t token = 0; token < tokens; token++)
        for (int32_t d = 0; d < width; d += LANES)
            store(out + (int64_t)token * width + d, mul(load(place(qkv, token, start + d)), all(factor)));
}

/* Floats of scratch that attention needs: one head's keys and queries, and the scores of some rows. */
INLINE int64_t attention_scratch(int64_t tokens, int64_t width)
{
    const int64_t columns = padded((int32_t)tokens);
    return width * columns + ATTENTION_ROWS * columns + tokens * width;
}

static void self_attention(const Bert *bert, Matrix qkv, int32_t tokens, float *scratch, float *out, Range *range)
{
    const int32_t hidden = bert->hidden, width = hidden / bert->heads, columns = padded(tokens);
    float *keys = scratch, *scores = keys + (int64_t)width * columns;
    float *queries = scores + (int64_t)ATTENTION_ROWS * columns;
    const float before = bert->scale_query_and_key ? bert->attention_scale : 1.0f;
    const float after = bert->scale_query_and_key ? 1.0f : bert->attention_scale;
    for (int32_t head = 0; head < bert->heads; head++) {
        const int32_t start = head * width;
        copy_queries(qkv, start, tokens, width, before, queries);
        transpose_keys(qkv, hidden + start, tokens, width, before, keys, columns);
        for (int32_t row = 0; row < tokens; row += ATTENTION_ROWS) {
            const int32_t rows = tokens - row < ATTENTION_ROWS ? tokens - row : ATTENTION_ROWS;
            attention_scores(queries + (int64_t)row * width, width, rows, tokens, width, keys, columns, after, scores);
            for (int32_t r = 0; r < rows; r += 4)
                softmax(scores + (int64_t)r * columns, columns, rows - r < 4 ? rows - r : 4, tokens);
            attention_context(scores, columns, rows, tokens, qkv, 2 * hidden + start, width,
                              out + (int64_t)row * hidden + start, hidden, range);
        }
    }
}

#endif
