#ifndef RESIFT_PROCESSOR_H
#define RESIFT_PROCESSOR_H

#include "export.h"

#include <stdint.h>

/* Incremented, here and in library.py, with every change to a structure or an exported function, so that newer Python
 * code never calls a library that was built before the change. */
enum { RESIFT_INTERFACE = 4 };
EXPORT int32_t resift_interface(void);

/* Names of the kernels that this processor can run, fastest first, separated by spaces. */
EXPORT const char *resift_kernels(void);

/* Whether the processor can count bits in AVX-512 registers (VPOPCNTDQ). */
int resift_has_vpopcntdq(void);

#endif
