/* Activations as levels: value = scale * (level - zero_point). */
#ifndef RESIFT_QUANTIZED_H
#define RESIFT_QUANTIZED_H

typedef struct {
    Activation *levels;
    float scale;
    int32_t zero_point;
    void *blocks; /* data that a kernel records per block of levels; NULL if none */
} Quantized;

#endif
