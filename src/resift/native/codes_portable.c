#define KERNEL portable
#include "codes.h"

static uint32_t bits_set(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (uint32_t)(x * 0x0101010101010101u >> 56);
}

static void block_distances(const uint64_t *codes, int32_t words, const uint64_t *slices, uint16_t *distances)
{
    for (int row = 0; row < ROWS; row++) {
        uint32_t total = 0;
        for (int32_t word = 0; word < words; word++) {
            const uint64_t differing = codes[(int64_t)word * ROWS + row] ^ slices[word];
            for (int bit = 0; bit < SIZE_BITS; bit++)
                total += bits_set(differing & slices[(int64_t)(bit + 1) * words + word]) << bit;
        }
        distances[row] = (uint16_t)total;
    }
}
