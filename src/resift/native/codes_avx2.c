#define KERNEL avx2
#include "codes.h"

#include <immintrin.h>

/* Number of bits set in each byte, by a table lookup for each half of the byte. */
static inline __m256i bits_in_bytes(__m256i x)
{
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3,
                                           2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i first = _mm256_shuffle_epi8(table, _mm256_and_si256(x, low));
    const __m256i second = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(x, 4), low));
    return _mm256_add_epi8(first, second);
}

static void block_distances(const uint64_t *codes, int32_t words, const uint64_t *slices, uint16_t *distances)
{
    for (int row = 0; row < ROWS; row += 4) {
        __m256i total = _mm256_setzero_si256();
        for (int32_t word = 0; word < words; word++) {
            const __m256i code = _mm256_loadu_si256((const __m256i *)(codes + (int64_t)word * ROWS + row));
            const __m256i differing = _mm256_xor_si256(code, _mm256_set1_epi64x((long long)slices[word]));
            __m256i sum = _mm256_setzero_si256(); /* at most 8 x 15 per byte */
            for (int bit = SIZE_BITS; bit > 0; bit--) {
                const __m256i plane = _mm256_set1_epi64x((long long)slices[(int64_t)bit * words + word]);
                sum = _mm256_add_epi8(_mm256_add_epi8(sum, sum), bits_in_bytes(_mm256_and_si256(differing, plane)));
            }
            total = _mm256_add_epi64(total, _mm256_sad_epu8(sum, _mm256_setzero_si256()));
        }
        uint64_t sums[4];
        _mm256_storeu_si256((__m256i *)sums, total);
        for (int i = 0; i < 4; i++) distances[row + i] = (uint16_t)sums[i];
    }
}
