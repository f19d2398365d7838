/* Distances between bit codes and a query (stores/sqlite/vector_index.py); included by one C file per kernel, which defines
 * KERNEL and block_distances. A block stores the codes of ROWS documents word by word: word 0 of all, word 1 of all, ... */
#ifndef RESIFT_CODES_H
#define RESIFT_CODES_H

#include "export.h"

#include <stdint.h>

enum { ROWS = 1024, SIZE_BITS = 4, MASKED = 65535 };

/* For each row of a block, the sum of the sizes where signs differ. slices: signs, then bits 0 to 3 of the sizes. */
static void block_distances(const uint64_t *codes, int32_t words, const uint64_t *slices, uint16_t *distances);

/* Distances of all rows, and a count of each distance; rows whose mask is 0 get MASKED and are not counted. */
EXPORT void KERNEL_FUNCTION(code_distances, KERNEL)(const uint64_t *const *blocks, int64_t count, int32_t words,
                                                    const uint64_t *slices, const uint8_t *mask, uint16_t *distances,
                                                    int64_t *histogram)
{
    for (int64_t block = 0; block < count; block++) {
        uint16_t *here = distances + block * ROWS;
        const uint8_t *passes = mask + block * ROWS;
        block_distances(blocks[block], words, slices, here);
        for (int row = 0; row < ROWS; row++) {
            if (passes[row]) histogram[here[row]]++;
            else here[row] = MASKED;
        }
    }
}

#endif
