/* Multi-head self-attention of all tokens of one text, in single precision. */
#ifndef RESIFT_ATTENTION_H
#define RESIFT_ATTENTION_H

/* Queries whose scores are in memory at the same time; the scores of all pairs of 512 tokens would fill the caches.
 * A multiple of the tile rows of every kernel. A row's highest score and the sum of its exponentials have a high
 * latency, so each is used some rows later. */
enum { ATTENTION_ROWS = 48, ROWS_LATER = 2 };

/* Length of a row of attention scores, rounded up to whole panels. */
INLINE int32_t padded(int32_t tokens) { return (tokens + PANEL - 1) / PANEL * PANEL; }

/* Keys of the head that begins at a column, transposed to [width][columns], with zeros after the last token. */
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

/* out[r][0..16 * vectors) = factor * sum over k of left[r][k] * right[k][...], added in order from k = 0. */
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
            const Lanes value = factor == 1.0f ? sum[r][v] : mul(sum[r][v], all(factor));
            if (range) widen_range(&seen, value);
            store(out + r * out_stride + LANES * v, value);
        }
    }
    if (range) *range = seen;
}

/* Whole blocks are separate functions, so that nothing else takes registers from the sums. */
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

/* Scores of some queries with the keys of all tokens. */
static void attention_scores(const float *queries, int64_t stride, int32_t rows, int32_t tokens, int32_t width,
                             const float *keys, int32_t columns, float factor, float *out)
{
    for (int32_t column = 0; column < tokens; column += SCORE_VECTORS * LANES) {
        /* The rest of the last panel is never read. */
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

/* Maximum of a row's scores and a previous maximum. */
INLINE Lanes higher_scores(Lanes highest, const float *row, int32_t left)
{
    EACH_CHAIN highest = higher_first(left - LANES * i, highest, load(row + LANES * i));
    return highest;
}

/* Turn a row of scores, whose highest is known, into exponentials, and return the reciprocal of their sum. At the same
 * time, an earlier row is multiplied by its reciprocal, and a later row's highest score is found, in idle units. */
INLINE float exponentiate(float *row, int32_t count, const Exponential *exponential, float highest, float *earlier,
                          float share, const float *later, float *highest_later)
{
    const Lanes top = all(highest), lowest = kept(all(-88.3762626647949f)), factor = all(share);
    Lanes sum = all(0.0f), value[CHAINS], found = all(-3.402823466e+38f);
    for (int32_t at = 0; at < count; at += CHAINS * LANES) {
        EACH_CHAIN value[i] = sub(load(row + at + LANES * i), top);
        EACH_CHAIN value[i] = higher(lowest, value[i]);
        exponentials(value, exponential);
        EACH_CHAIN store(row + at + LANES * i, value[i]);
        EACH_CHAIN sum = add_first(count - at - LANES * i, sum, value[i]);
        if (earlier) EACH_CHAIN store(earlier + at + LANES * i, mul(load(earlier + at + LANES * i), factor));
        found = higher_scores(found, later + at, count - at);
    }
    *highest_later = highest_lane(found);
    return 1.0f / sum_of_lanes(sum);
}

/* Values after `count` are undefined afterwards; rows have room for whole panels. */
NOINLINE void softmax(float *scores, int64_t stride, int32_t rows, int32_t count)
{
    static const float of_exp[5] = {0x1.694000p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.555450p-3f, 0x1.fffff6p-2f};
    const Exponential exponential = kept_exponential(exponential_of(of_exp));
    const int64_t away = ROWS_LATER * stride;
    float number[ATTENTION_ROWS + ROWS_LATER]; /* per row: the highest score, later the reciprocal of the sum */
    for (int32_t r = 0; r < ROWS_LATER && r < rows; r++) {
        Lanes highest = all(-3.402823466e+38f);
        for (int32_t at = 0; at < count; at += CHAINS * LANES)
            highest = higher_scores(highest, scores + r * stride + at, count - at);
        number[r] = highest_lane(highest);
    }
    for (int32_t r = 0; r < rows; r++) {
        float *row = scores + r * stride, *highest_later = number + r + ROWS_LATER;
        /* Results past the last row are never read. */
        const float *later = r + ROWS_LATER < rows ? row + away : row;
        number[r] = r < ROWS_LATER ? exponentiate(row, count, &exponential, number[r], NULL, 0, later, highest_later)
                                   : exponentiate(row, count, &exponential, number[r], row - away,
                                                  number[r - ROWS_LATER], later, highest_later);
    }
    for (int32_t r = rows < ROWS_LATER ? 0 : rows - ROWS_LATER; r < rows; r++)
        for (int32_t at = 0; at < count; at += LANES)
            store(scores + r * stride + at, mul(load(scores + r * stride + at), all(number[r])));
}

/* Values of all tokens, beginning at a column, combined by the attention weights of some queries. */
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

/* Queries of the head that begins at a column, times a factor. */
INLINE void copy_queries(Matrix qkv, int32_t start, int32_t tokens, int32_t width, float factor, float *out)
{
    for (int32_t token = 0; token < tokens; token++)
        for (int32_t d = 0; d < width; d += LANES)
            store(out + (int64_t)token * width + d, mul(load(place(qkv, token, start + d)), all(factor)));
}

/* Scratch size of attention in floats: one head's keys and queries, and the scores of some rows. */
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
            softmax(scores, columns, rows, tokens);
            attention_context(scores, columns, rows, tokens, qkv, 2 * hidden + start, width,
                              out + (int64_t)row * hidden + start, hidden, range);
        }
    }
}

#endif
