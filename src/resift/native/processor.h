#ifndef RESIFT_PROCESSOR_H
#define RESIFT_PROCESSOR_H

#include "export.h"

#include <stdint.h>

/* The names of the kernels that this processor can run, the fastest first, with spaces between. */
EXPORT const char *resift_kernels(void);

/* Whether the processor counts bits in registers of AVX-512 (VPOPCNTDQ). */
int resift_has_vpopcntdq(void);

#endif
