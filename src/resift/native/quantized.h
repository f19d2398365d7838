/* Activations as levels: value = scale * (level - zero_point). */
#ifndef RESIFT_QUANTIZED_H
#define RESIFT_QUANTIZED_H

typedef struct {
    Activation *levels;
    float scale;
    int32_t zero_point;
    void *blocks; /* data that a kernel records per block of levels; NULL if none */
} Quantized;

enum { AHEAD_INPUTS = 16 };

/* Weights of the next columns, which a tile prefetches in small portions, because its own reads would have to wait for
 * a long series of requests. */
typedef struct {
    const char *at, *end;
    int32_t lines; /* cache lines per AHEAD_INPUTS inputs */
} Ahead;

/* The portion of a tile with this many inputs, of `size` bytes that are divided among all tiles of these rows. */
INLINE Ahead portion_ahead(const char *at, int64_t size, int32_t tile_rows, int32_t rows, int32_t inputs)
{
    const int64_t part = size * tile_rows / rows + 1, steps = 64 * (inputs / AHEAD_INPUTS);
    const Ahead ahead = {at, at + part, (int32_t)((part + steps - 1) / steps)};
    return ahead;
}

INLINE void fetch_ahead(Ahead *ahead)
{
    for (int32_t line = 0; line < ahead->lines && ahead->at < ahead->end; line++, ahead->at += 64) prefetch(ahead->at);
}

INLINE void fetch_all_ahead(Ahead *ahead)
{
    for (; ahead->at < ahead->end; ahead->at += 64) prefetch(ahead->at);
}

#endif
