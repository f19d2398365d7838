/* Integer products for AVX2, which has no instruction that accumulates byte products in 32 bits.
 *
 * VPMADDUBSW multiplies bytes and adds two products in 16 bits. These sums are added in 16 bits and may wrap around
 * on the way: if the sum of 32 products w * (level - zero point) is known to fit in 16 bits, the result is exact.
 * By the Cauchy-Schwarz inequality it fits if |w|^2 * |level - zero point|^2 <= 32767^2. Two products do not saturate
 * if the levels of a block, relative to the lowest, span a small range. Both conditions hold for nearly all blocks of
 * trained models; the other blocks are multiplied as 16-bit words. */
#ifndef RESIFT_PRODUCTS_AVX2_H
#define RESIFT_PRODUCTS_AVX2_H

#include "quantized.h"

enum { CHUNK = 64, DEPTH = 4, TILE_COLUMNS = TILE_VECTORS * LANES, MOST = 32767, ZERO_POINT_INCLUDED = 1 };
#define BLOCKS_OF_LEVELS

/* Packed weights of 16 outputs and 64 inputs; a layer is an array [outputs / 16][inputs / 64] of chunks. */
typedef struct {
    int8_t weight[CHUNK / DEPTH][LANES][DEPTH];
    int16_t sum[LANES][2];            /* sums of an output's weights for the first and last two inputs of each four */
    int32_t most_span, most_energy;   /* limits for a block of levels whose sums fit in 16 bits */
    int32_t unused[14];               /* padding to a whole cache line */
} Chunk;

/* The levels of some rows and 64 inputs, stored as differences from the lowest level. */
typedef struct {
    int32_t lowest, span;
    int32_t energy; /* maximum over rows of the sum of (level - zero point)^2, over the same inputs as `sum` in Chunk */
} Block;

INLINE int64_t packed_size(int32_t inputs, int32_t outputs)
{
    return (int64_t)(outputs / LANES) * (inputs / CHUNK) * (int64_t)sizeof(Chunk);
}

/* Compute a chunk's limits from its largest pair of weights with the same sign and its largest sum of squares. */
static void note_limits(Chunk *chunk)
{
    int32_t pair = 1, squares = 1;
    for (int column = 0; column < LANES; column++)
        for (int half = 0; half < 2; half++) {
            int32_t sum = 0, square = 0;
            for (int four = 0; four < CHUNK / DEPTH; four++) {
                const int8_t *two = chunk->weight[four][column] + 2 * half;
                const int32_t above = (two[0] > 0 ? two[0] : 0) + (two[1] > 0 ? two[1] : 0);
                const int32_t below = (two[0] < 0 ? -two[0] : 0) + (two[1] < 0 ? -two[1] : 0);
                sum += two[0] + two[1];
                square += two[0] * two[0] + two[1] * two[1];
                pair = above > pair ? above : below > pair ? below : pair;
            }
            chunk->sum[column][half] = (int16_t)sum;
            squares = square > squares ? square : squares;
        }
    chunk->most_span = MOST / pair;
    chunk->most_energy = MOST * MOST / squares;
}

static void pack(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed)
{
    Chunk *chunk = packed;
    for (int32_t column = 0; column < outputs; column += LANES)
        for (int32_t row = 0; row < inputs; row += CHUNK, chunk++) {
            for (int32_t r = 0; r < CHUNK; r++)
                for (int32_t c = 0; c < LANES; c++)
                    chunk->weight[r / DEPTH][c][r % DEPTH] = weights[(int64_t)(row + r) * outputs + column + c];
            note_limits(chunk);
        }
}

/* Size of the blocks of this many rows, in floats. */
INLINE int64_t blocks_scratch(int64_t rows, int64_t inputs)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS * (inputs / CHUNK) * (int64_t)(sizeof(Block) / sizeof(float));
}

INLINE int32_t lowest_byte(__m256i v)
{
    const __m128i half = _mm_min_epu8(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    /* The lower byte of each pair, zero-extended, and then the lowest of these eight. */
    return _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_min_epu8(half, _mm_srli_epi16(half, 8)))) & 0xFF;
}

/* Sums of (level - zero point)^2 over a row's 64 levels: element 0 for the first two inputs of each four, element 1 for
 * the last two. */
INLINE __m128i energies(const Activation *level, __m256i zero_point)
{
    __m256i sum = _mm256_setzero_si256();
    UNROLL(4) for (int i = 0; i < CHUNK; i += 16) {
        const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(level + i)));
        const __m256i distance = _mm256_sub_epi16(words, zero_point);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(distance, distance));
    }
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
}

/* Store the levels of a block of up to TILE_ROWS rows relative to the lowest, and record their range and energy. */
INLINE void note_block(const Quantized *in, int32_t row, int32_t rows, int32_t column, int32_t inputs)
{
    Block *block = (Block *)in->blocks + row / TILE_ROWS * (inputs / CHUNK) + column / CHUNK;
    const __m256i zero_point = _mm256_set1_epi16((int16_t)in->zero_point), ones = _mm256_set1_epi8(-1);
    Activation *levels = in->levels + (int64_t)row * inputs + column;
    __m256i low = ones, over = ones; /* over: the highest level, with all bits inverted */
    __m128i energy = _mm_setzero_si128();
    for (int32_t r = 0; r < rows; r++) {
        const __m256i *half = (const __m256i *)(const void *)(levels + (int64_t)r * inputs);
        const __m256i a = _mm256_loadu_si256(half), b = _mm256_loadu_si256(half + 1);
        low = _mm256_min_epu8(low, _mm256_min_epu8(a, b));
        over = _mm256_min_epu8(over, _mm256_xor_si256(_mm256_max_epu8(a, b), ones));
        energy = _mm_max_epi32(energy, energies(levels + (int64_t)r * inputs, zero_point));
    }
    block->lowest = lowest_byte(low);
    block->span = 255 - lowest_byte(over) - block->lowest;
    block->energy = _mm_cvtsi128_si32(_mm_max_epi32(energy, _mm_srli_si128(energy, 4)));
    const __m256i lowest = _mm256_set1_epi8((char)block->lowest);
    for (int32_t r = 0; r < rows; r++)
        for (int i = 0; i < CHUNK; i += 32) {
            __m256i *at = (__m256i *)(void *)(levels + (int64_t)r * inputs + i);
            _mm256_storeu_si256(at, _mm256_sub_epi8(_mm256_loadu_si256(at), lowest));
        }
}

INLINE __m256i four_levels(const Activation *at)
{
    int32_t four;
    __builtin_memcpy(&four, at, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Inline assembly, because compilers keep more products pending than there are registers. Both products come before
 * both sums, because some processors then schedule their execution units better. */
INLINE void add_wrapping(__m256i *a, __m256i *b, __m256i level, __m256i weight_a, __m256i weight_b)
{
    __m256i pairs_a, pairs_b;
    __asm__("vpmaddubsw %5, %4, %2\n\tvpmaddubsw %6, %4, %3\n\tvpaddw %2, %0, %0\n\tvpaddw %3, %1, %1"
            : "+x"(*a), "+x"(*b), "=&x"(pairs_a), "=&x"(pairs_b)
            : "x"(level), "x"(weight_a), "x"(weight_b));
}

/* Add the products of a block of levels and a chunk of weights, accumulated in 16 bits and then widened. */
INLINE void add_by_bytes(const int rows, const Activation *levels, int64_t inputs, const Chunk *chunk, __m256i offset,
                         Ints sum[TILE_ROWS][TILE_VECTORS])
{
    const __m256i *weight = (const __m256i *)(const void *)chunk->weight;
    const __m256i *sums = (const __m256i *)(const void *)chunk->sum;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a[TILE_ROWS], b[TILE_ROWS];
    UNROLL(4) for (int r = 0; r < rows; r++) {
        a[r] = _mm256_mullo_epi16(_mm256_load_si256(sums), offset);
        b[r] = _mm256_mullo_epi16(_mm256_load_si256(sums + 1), offset);
    }
    UNROLL(16) for (int k = 0; k < CHUNK / DEPTH; k++) {
        const __m256i weight_a = _mm256_load_si256(weight + 2 * k), weight_b = _mm256_load_si256(weight + 2 * k + 1);
        UNROLL(4) for (int r = 0; r < rows; r++) {
            const __m256i level = four_levels(levels + r * inputs + k * DEPTH);
            add_wrapping(&a[r], &b[r], level, weight_a, weight_b);
        }
    }
    UNROLL(4) for (int r = 0; r < rows; r++) {
        sum[r][0].a = _mm256_add_epi32(sum[r][0].a, _mm256_madd_epi16(a[r], ones));
        sum[r][0].b = _mm256_add_epi32(sum[r][0].b, _mm256_madd_epi16(b[r], ones));
    }
}

/* The same for any levels and weights: even and odd bytes become words, whose products are added in 32 bits. */
INLINE void add_by_words(const int rows, const Activation *levels, int64_t inputs, const Chunk *chunk, __m256i offset,
                         Ints sum[TILE_ROWS][TILE_VECTORS])
{
    for (int half = 0; half < 2; half++) {
        const __m256i *weight = (const __m256i *)(const void *)chunk->weight + half;
        const __m256i *sums = (const __m256i *)(const void *)chunk->sum + half;
        __m256i total[TILE_ROWS];
        UNROLL(4) for (int r = 0; r < rows; r++) total[r] = _mm256_madd_epi16(_mm256_load_si256(sums), offset);
        for (int k = 0; k < CHUNK; k += DEPTH, weight += 2) {
            const __m256i bytes = _mm256_load_si256(weight);
            const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), odd = _mm256_srai_epi16(bytes, 8);
            UNROLL(4) for (int r = 0; r < rows; r++) {
                const __m256i level = four_levels(levels + r * inputs + k);
                const __m256i even_level = _mm256_and_si256(level, _mm256_set1_epi16(0xFF));
                total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(even_level, even));
                total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(_mm256_srli_epi16(level, 8), odd));
            }
        }
        UNROLL(4) for (int r = 0; r < rows; r++) {
            __m256i *into = half ? &sum[r][0].b : &sum[r][0].a;
            *into = _mm256_add_epi32(*into, total[r]);
        }
    }
}

/* Integer products of some rows with the columns of one tile, minus the contribution of the zero point. */
INLINE void multiply(const int rows, const Quantized *in, int32_t row, const Linear *linear, int32_t column,
                     Ints sum[TILE_ROWS][TILE_VECTORS])
{
    const int64_t inputs = linear->inputs;
    const Activation *levels = in->levels + row * inputs;
    const Chunk *chunk = (const Chunk *)linear->packed + column / LANES * (inputs / CHUNK);
    const Block *block = (const Block *)in->blocks + row / TILE_ROWS * (inputs / CHUNK);
    UNROLL(4) for (int r = 0; r < rows; r++) sum[r][0] = all_ints(0);
    for (const Chunk *end = chunk + inputs / CHUNK; chunk < end; chunk++, block++, levels += CHUNK) {
        const __m256i offset = _mm256_set1_epi16((int16_t)(block->lowest - in->zero_point));
        if (block->span <= chunk->most_span && block->energy <= chunk->most_energy)
            add_by_bytes(rows, levels, inputs, chunk, offset, sum);
        else
            add_by_words(rows, levels, inputs, chunk, offset, sum);
    }
}

/* ---- products for activations that are quantized per row ----
 *
 * A row uses the whole range of levels, so its products are accumulated in 32 bits. VPMADDUBSW would saturate if two
 * adjacent weights with the same sign added up to more than 128; quantization ensures that they never do. */
#define ROW_PRODUCTS

enum { ROW_TILE = 4 };

/* Packed weights: [outputs / 16][inputs / 4][16][4]. */
INLINE int64_t row_packed_size(int32_t inputs, int32_t outputs) { return (int64_t)inputs * outputs; }

static void row_pack(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed)
{
    int8_t *into = packed;
    for (int32_t column = 0; column < outputs; column += LANES)
        for (int32_t row = 0; row < inputs; row += DEPTH)
            for (int c = 0; c < LANES; c++)
                for (int r = 0; r < DEPTH; r++) *into++ = weights[(int64_t)(row + r) * outputs + column + c];
}

INLINE __m256i quad_products(__m256i levels, __m256i weights)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(levels, weights), _mm256_set1_epi16(1));
}

#define ROW_MULTIPLY(n)                                                                                               \
    NOINLINE void row_multiply_##n(const Activation *levels, int64_t inputs, const int8_t *packed, Ints *total)       \
    {                                                                                                                 \
        __m256i a[n], b[n];                                                                                           \
        UNROLL(4) for (int r = 0; r < n; r++) a[r] = b[r] = _mm256_setzero_si256();                                   \
        const __m256i *weights = (const __m256i *)(const void *)packed;                                               \
        for (int64_t k = 0; k < inputs; k += DEPTH, weights += 2) {                                                   \
            const __m256i first = _mm256_loadu_si256(weights), second = _mm256_loadu_si256(weights + 1);              \
            UNROLL(4) for (int r = 0; r < n; r++)                                                                     \
            {                                                                                                         \
                const __m256i level = four_levels(levels + r * inputs + k);                                           \
                a[r] = _mm256_add_epi32(a[r], quad_products(level, first));                                           \
                b[r] = _mm256_add_epi32(b[r], quad_products(level, second));                                          \
            }                                                                                                         \
        }                                                                                                             \
        UNROLL(4) for (int r = 0; r < n; r++) total[r] = ints(a[r], b[r]);                                            \
    }
ROW_MULTIPLY(1)
ROW_MULTIPLY(2)
ROW_MULTIPLY(3)
ROW_MULTIPLY(4)
#undef ROW_MULTIPLY

typedef void RowMultiply(const Activation *, int64_t, const int8_t *, Ints *);
static RowMultiply *const row_multiply_table[] = {NULL, row_multiply_1, row_multiply_2, row_multiply_3, row_multiply_4};

#endif
