/* Computes the bit-code distances of one kernel in buffers of exactly the required size. Prints a hash of the results.
 * Usage: memory_check KERNEL */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "processor.h"

typedef void Distances(const uint64_t *const *, int64_t, int32_t, const uint64_t *, const uint8_t *, uint16_t *, int64_t *);
Distances code_distances_portable;
#if defined(__x86_64__)
Distances code_distances_avx2, code_distances_avx512;
#elif defined(__aarch64__)
Distances code_distances_neon;
#endif

enum { ROWS = 1024 };

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u, state >> 8; }

static uint64_t hash(uint64_t so_far, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++) so_far = (so_far ^ ((const uint8_t *)from)[i]) * 1099511628211u;
    return so_far;
}

static uint64_t check_codes(Distances *distances, int32_t words, int64_t count)
{
    uint64_t **blocks = malloc((size_t)count * sizeof *blocks), *slices = malloc((size_t)words * 5 * 8);
    uint8_t *mask = malloc((size_t)count * ROWS);
    uint16_t *found = malloc((size_t)count * ROWS * 2);
    const size_t farthest = (size_t)words * 64 * 15 + 1;
    int64_t *histogram = calloc(farthest, 8);
    for (int64_t block = 0; block < count; block++) {
        blocks[block] = malloc((size_t)words * ROWS * 8);
        for (int i = 0; i < words * ROWS; i++) blocks[block][i] = (uint64_t)next() << 40 ^ (uint64_t)next() << 20 ^ next();
    }
    for (int i = 0; i < words * 5; i++) slices[i] = (uint64_t)next() << 40 ^ (uint64_t)next() << 20 ^ next();
    for (int64_t i = 0; i < count * ROWS; i++) mask[i] = next() % 5 > 0;
    distances((const uint64_t *const *)blocks, count, words, slices, mask, found, histogram);
    uint64_t sum = hash(hash(7, found, (size_t)count * ROWS * 2), histogram, farthest * 8);
    for (int64_t block = 0; block < count; block++) free(blocks[block]);
    free(blocks), free(slices), free(mask), free(found), free(histogram);
    return sum;
}

int main(int count, char **words)
{
    const struct { const char *name; Distances *distances; } kernels[] = {
        {"portable", code_distances_portable},
#if defined(__x86_64__)
        {"avx2", code_distances_avx2},
        {"avx512", code_distances_avx512},
#elif defined(__aarch64__)
        {"neon", code_distances_neon},
#endif
    };
    Distances *distances = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (count > 1 && !strcmp(words[1], kernels[i].name)) distances = kernels[i].distances;
    if (!distances || !strstr(resift_kernels(), words[1])) return 2;
    for (int32_t size = 1; size <= 16; size++) printf("%016llx\n", (unsigned long long)check_codes(distances, size, 1 + size % 3));
    return 0;
}
