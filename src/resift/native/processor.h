#ifndef RESIFT_PROCESSOR_H
#define RESIFT_PROCESSOR_H

#include "export.h"

#include <stdint.h>

/* Raised with every change of a structure or of an exported function, here and in library.py: a library that
 * was built before such a change must not be called by Python code from after it. */
enum { RESIFT_INTERFACE = 4 };
EXPORT int32_t resift_interface(void);

/* The names of the kernels that this processor can run, the fastest first, with spaces between. */
EXPORT const char *resift_kernels(void);

/* Whether the processor counts bits in registers of AVX-512 (VPOPCNTDQ). */
int resift_has_vpopcntdq(void);

#endif
