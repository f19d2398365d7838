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

#include <string.h>

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
                     Ahead ahead, Ints sum[TILE_ROWS][TILE_VECTORS])
{
    const int64_t inputs = linear->inputs;
    const Activation *levels = in->levels + row * inputs;
    const Chunk *chunk = (const Chunk *)linear->packed + column / LANES * (inputs / CHUNK);
    const Block *block = (const Block *)in->blocks + row / TILE_ROWS * (inputs / CHUNK);
    UNROLL(4) for (int r = 0; r < rows; r++) sum[r][0] = all_ints(0);
    for (const Chunk *end = chunk + inputs / CHUNK; chunk < end; chunk++, block++, levels += CHUNK) {
        for (int i = 0; i < CHUNK; i += AHEAD_INPUTS) fetch_ahead(&ahead);
        const __m256i offset = _mm256_set1_epi16((int16_t)(block->lowest - in->zero_point));
        if (block->span <= chunk->most_span && block->energy <= chunk->most_energy)
            add_by_bytes(rows, levels, inputs, chunk, offset, sum);
        else
            add_by_words(rows, levels, inputs, chunk, offset, sum);
    }
}

/* ---- products for activations that are quantized per row ----
 *
 * VPMADDUBSW does not saturate, because quantization ensures that two adjacent weights with the same sign sum to at
 * most 128. The results of four instructions are added in 16 bits, by the same argument as above: each sum has eight
 * products w * (level - center). Groups whose sums might not fit are widened after each instruction. */
#define ROW_PRODUCTS

enum { ROW_TILE = 4, GROUP = 16 };

/* Packed weights of 16 outputs and 64 inputs; a layer is an array [outputs / 16][inputs / 64] of chunks. */
typedef struct {
    int8_t weight[CHUNK / DEPTH][LANES][DEPTH];
    int16_t minus_sum[CHUNK / GROUP][LANES][2]; /* for the first and last two inputs of each four in a group */
    int32_t most_energy[CHUNK / GROUP];         /* limit for levels whose sums fit in 16 bits */
    int32_t unused[LANES - CHUNK / GROUP];      /* padding to a whole cache line */
} RowChunk;

INLINE int64_t row_packed_size(int32_t inputs, int32_t outputs)
{
    return (int64_t)(outputs / LANES) * (inputs / CHUNK) * (int64_t)sizeof(RowChunk);
}

static void row_pack(const int8_t *weights, int32_t inputs, int32_t outputs, void *packed)
{
    RowChunk *chunk = packed;
    for (int32_t column = 0; column < outputs; column += LANES)
        for (int32_t row = 0; row < inputs; row += CHUNK, chunk++) {
            memset(chunk, 0, sizeof *chunk);
            for (int group = 0; group < CHUNK / GROUP; group++) {
                int32_t squares[LANES][2] = {{0}}, most = 1;
                for (int r = group * GROUP; r < (group + 1) * GROUP; r++)
                    for (int c = 0; c < LANES; c++) {
                        const int8_t weight = weights[(int64_t)(row + r) * outputs + column + c];
                        const int half = r % DEPTH / 2;
                        chunk->weight[r / DEPTH][c][r % DEPTH] = weight;
                        chunk->minus_sum[group][c][half] = (int16_t)(chunk->minus_sum[group][c][half] - weight);
                        squares[c][half] += weight * weight;
                        most = squares[c][half] > most ? squares[c][half] : most;
                    }
                chunk->most_energy[group] = MOST * MOST / most;
            }
        }
}

/* The value that is subtracted from the levels of a row. With the zero point of GELU, a higher value makes the energy
 * of the highest levels lower. */
INLINE int32_t row_center(int32_t zero_point) { return zero_point + (128 - zero_point) / 4; }

/* The energies of the groups of 64 levels: the higher one of the sums of (level - center)^2 over the first and over the
 * last two inputs of each four. */
INLINE void note_energies(const Activation *levels, int32_t center, int32_t *energies)
{
    __m256i squares[CHUNK / GROUP];
    UNROLL(4) for (int group = 0; group < CHUNK / GROUP; group++) {
        const __m128i *bytes = (const __m128i *)(const void *)(levels + group * GROUP);
        const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes));
        const __m256i distance = _mm256_sub_epi16(words, _mm256_set1_epi16((int16_t)center));
        squares[group] = _mm256_madd_epi16(distance, distance);
    }
    /* Groups 0 2 | 0 2 and 1 3 | 1 3 with two elements each, then 0 2 | 1 3. */
    const __m256i even = _mm256_add_epi32(_mm256_unpacklo_epi64(squares[0], squares[2]),
                                          _mm256_unpackhi_epi64(squares[0], squares[2]));
    const __m256i odd = _mm256_add_epi32(_mm256_unpacklo_epi64(squares[1], squares[3]),
                                         _mm256_unpackhi_epi64(squares[1], squares[3]));
    const __m256i sum =
        _mm256_add_epi32(_mm256_permute2x128_si256(even, odd, 0x20), _mm256_permute2x128_si256(even, odd, 0x31));
    const __m256i higher = _mm256_max_epi32(sum, _mm256_shuffle_epi32(sum, 0xB1));
    const __m128i four = _mm_unpacklo_epi32(_mm_shuffle_epi32(_mm256_castsi256_si128(higher), 0x08),
                                            _mm_shuffle_epi32(_mm256_extracti128_si256(higher, 1), 0x08));
    _mm_storeu_si128((__m128i *)(void *)energies, four);
}

/* The first row of a tile gets the highest energies of all its rows. */
INLINE void merge_energies(int32_t *energies, int32_t rows, int32_t inputs)
{
    const int32_t groups = inputs / GROUP;
    for (int32_t r = 1; r < rows; r++)
        for (int32_t g = 0; g < groups; g += 4) {
            __m128i *highest = (__m128i *)(void *)(energies + g);
            const __m128i *other = (const __m128i *)(const void *)(energies + r * groups + g);
            _mm_storeu_si128(highest, _mm_max_epi32(_mm_loadu_si128(highest), _mm_loadu_si128(other)));
        }
}

/* Inline assembly, because compilers would keep totals in registers, of which there are too few. */
INLINE void add_widened(__m256i *total, __m256i sums)
{
    __asm__("vpmaddwd %2, %1, %1\n\tvpaddd %0, %1, %1\n\tvmovdqa %1, %0"
            : "+m"(*total), "+x"(sums)
            : "x"(_mm256_set1_epi16(1)));
}

/* Add the products of a group, accumulated in 16 bits and then widened. */
INLINE void add_group_by_bytes(const int rows, const Activation *levels, int64_t inputs, const __m256i *weight,
                               const __m256i *minus_sum, __m256i center, Ints *total)
{
    __m256i a[ROW_TILE], b[ROW_TILE];
    a[0] = _mm256_mullo_epi16(_mm256_load_si256(minus_sum), center);
    b[0] = _mm256_mullo_epi16(_mm256_load_si256(minus_sum + 1), center);
    UNROLL(4) for (int r = 1; r < rows; r++) a[r] = a[0], b[r] = b[0];
    UNROLL(4) for (int k = 0; k < GROUP; k += DEPTH, weight += 2) {
        const __m256i weight_a = _mm256_load_si256(weight), weight_b = _mm256_load_si256(weight + 1);
        UNROLL(4) for (int r = 0; r < rows; r++)
            add_wrapping(&a[r], &b[r], four_levels(levels + r * inputs + k), weight_a, weight_b);
    }
    UNROLL(4) for (int r = 0; r < rows; r++) {
        add_widened(&total[r].a, a[r]);
        add_widened(&total[r].b, b[r]);
    }
}

/* The same for levels of any energy. */
INLINE void add_group_by_words(const int rows, const Activation *levels, int64_t inputs, const __m256i *weight,
                               const __m256i *minus_sum, __m256i center, Ints *total)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a[ROW_TILE], b[ROW_TILE];
    a[0] = _mm256_madd_epi16(_mm256_load_si256(minus_sum), center);
    b[0] = _mm256_madd_epi16(_mm256_load_si256(minus_sum + 1), center);
    UNROLL(4) for (int r = 1; r < rows; r++) a[r] = a[0], b[r] = b[0];
    UNROLL(4) for (int k = 0; k < GROUP; k += DEPTH, weight += 2) {
        const __m256i weight_a = _mm256_load_si256(weight), weight_b = _mm256_load_si256(weight + 1);
        UNROLL(4) for (int r = 0; r < rows; r++) {
            const __m256i level = four_levels(levels + r * inputs + k);
            a[r] = _mm256_add_epi32(a[r], _mm256_madd_epi16(_mm256_maddubs_epi16(level, weight_a), ones));
            b[r] = _mm256_add_epi32(b[r], _mm256_madd_epi16(_mm256_maddubs_epi16(level, weight_b), ones));
        }
    }
    UNROLL(4) for (int r = 0; r < rows; r++) total[r] = add_ints(total[r], ints(a[r], b[r]));
}

/* Products of n rows with 16 outputs: sums of w * (level - center). */
#define ROW_MULTIPLY(n)                                                                                               \
    /* Separate functions, so that nothing else takes registers from the sums. */                                     \
    NOINLINE void group_by_words_##n(const Activation *levels, int64_t inputs, const __m256i *weight,                 \
                                     const __m256i *minus_sum, __m256i center, Ints *total)                           \
    {                                                                                                                 \
        add_group_by_words(n, levels, inputs, weight, minus_sum, center, total);                                      \
    }                                                                                                                 \
    NOINLINE void row_multiply_##n(const Activation *levels, int64_t inputs, const RowChunk *chunk,                   \
                                   const int32_t *energy, int32_t center_, Ahead ahead, Ints *total)                  \
    {                                                                                                                 \
        const __m256i center = _mm256_set1_epi16((int16_t)center_);                                                   \
        UNROLL(4) for (int r = 0; r < n; r++) total[r] = all_ints(0);                                                 \
        for (const Activation *end = levels + inputs; levels < end; chunk++) {                                        \
            const __m256i *weight = (const __m256i *)(const void *)chunk->weight;                                     \
            const __m256i *minus_sum = (const __m256i *)(const void *)chunk->minus_sum;                               \
            for (int g = 0; g < CHUNK / GROUP; g++, levels += GROUP, energy++, weight += 8, minus_sum += 2) {         \
                fetch_ahead(&ahead);                                                                                  \
                if (__builtin_expect(*energy <= chunk->most_energy[g], 1))                                            \
                    add_group_by_bytes(n, levels, inputs, weight, minus_sum, center, total);                          \
                else group_by_words_##n(levels, inputs, weight, minus_sum, center, total);                            \
            }                                                                                                         \
        }                                                                                                             \
    }
ROW_MULTIPLY(1)
ROW_MULTIPLY(2)
ROW_MULTIPLY(3)
ROW_MULTIPLY(4)
#undef ROW_MULTIPLY

typedef void RowMultiply(const Activation *, int64_t, const RowChunk *, const int32_t *, int32_t, Ahead, Ints *);
static RowMultiply *const row_multiply_table[] = {NULL, row_multiply_1, row_multiply_2, row_multiply_3, row_multiply_4};

#endif
