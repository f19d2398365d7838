#define KERNEL avx512
#include "codes.h"
#include "processor.h"

#include <immintrin.h>

/* This kernel requires VNNI. VPOPCNTDQ came a generation later, so it is checked for here. */
__attribute__((target("avx512f,avx512bw,avx512vpopcntdq"))) static void counted(const uint64_t *codes, int32_t words,
                                                                               const uint64_t *slices, uint16_t *distances)
{
    for (int row = 0; row < ROWS; row += 8) {
        __m512i total[SIZE_BITS] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                                    _mm512_setzero_si512()};
        for (int32_t word = 0; word < words; word++) {
            const __m512i code = _mm512_loadu_si512(codes + (int64_t)word * ROWS + row);
            const __m512i differing = _mm512_xor_si512(code, _mm512_set1_epi64((long long)slices[word]));
            for (int bit = 0; bit < SIZE_BITS; bit++) {
                const __m512i plane = _mm512_set1_epi64((long long)slices[(int64_t)(bit + 1) * words + word]);
                total[bit] = _mm512_add_epi64(total[bit], _mm512_popcnt_epi64(_mm512_and_si512(differing, plane)));
            }
        }
        __m512i sum = total[SIZE_BITS - 1];
        for (int bit = SIZE_BITS - 2; bit >= 0; bit--) sum = _mm512_add_epi64(_mm512_add_epi64(sum, sum), total[bit]);
        _mm_storeu_si128((__m128i *)(distances + row), _mm512_cvtepi64_epi16(sum));
    }
}

/* Number of bits set in each byte, by a table lookup for each half of the byte. */
static inline __m512i bits_in_bytes(__m512i x)
{
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i first = _mm512_shuffle_epi8(table, _mm512_and_si512(x, low));
    const __m512i second = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(x, 4), low));
    return _mm512_add_epi8(first, second);
}

static void looked_up(const uint64_t *codes, int32_t words, const uint64_t *slices, uint16_t *distances)
{
    for (int row = 0; row < ROWS; row += 8) {
        __m512i total = _mm512_setzero_si512();
        for (int32_t word = 0; word < words; word++) {
            const __m512i code = _mm512_loadu_si512(codes + (int64_t)word * ROWS + row);
            const __m512i differing = _mm512_xor_si512(code, _mm512_set1_epi64((long long)slices[word]));
            __m512i sum = _mm512_setzero_si512(); /* at most 8 x 15 per byte */
            for (int bit = SIZE_BITS; bit > 0; bit--) {
                const __m512i plane = _mm512_set1_epi64((long long)slices[(int64_t)bit * words + word]);
                sum = _mm512_add_epi8(_mm512_add_epi8(sum, sum), bits_in_bytes(_mm512_and_si512(differing, plane)));
            }
            total = _mm512_add_epi64(total, _mm512_sad_epu8(sum, _mm512_setzero_si512()));
        }
        _mm_storeu_si128((__m128i *)(distances + row), _mm512_cvtepi64_epi16(total));
    }
}

static void block_distances(const uint64_t *codes, int32_t words, const uint64_t *slices, uint16_t *distances)
{
    if (resift_has_vpopcntdq()) counted(codes, words, slices, distances);
    else looked_up(codes, words, slices, distances);
}
