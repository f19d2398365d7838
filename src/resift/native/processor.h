#ifndef RESIFT_PROCESSOR_H
#define RESIFT_PROCESSOR_H

#include "export.h"

#include <stdint.h>

/* The names of the kernels that this processor can run, the fastest first, with spaces between. */
EXPORT const char *resift_kernels(void);

#endif
