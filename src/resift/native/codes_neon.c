#define KERNEL neon
#include "codes.h"

#include <arm_neon.h>

static void block_distances(const uint64_t *codes, int32_t words, const uint64_t *slices, uint16_t *distances)
{
    for (int row = 0; row < ROWS; row += 2) {
        uint64x2_t total = vdupq_n_u64(0);
        for (int32_t word = 0; word < words; word++) {
            const uint64x2_t differing = veorq_u64(vld1q_u64(codes + (int64_t)word * ROWS + row), vdupq_n_u64(slices[word]));
            uint8x16_t sum = vdupq_n_u8(0); /* at most 8 x 15 per byte */
            for (int bit = SIZE_BITS; bit > 0; bit--) {
                const uint64x2_t plane = vdupq_n_u64(slices[(int64_t)bit * words + word]);
                sum = vaddq_u8(vaddq_u8(sum, sum), vcntq_u8(vreinterpretq_u8_u64(vandq_u64(differing, plane))));
            }
            total = vaddq_u64(total, vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(sum))));
        }
        distances[row] = (uint16_t)vgetq_lane_u64(total, 0);
        distances[row + 1] = (uint16_t)vgetq_lane_u64(total, 1);
    }
}
