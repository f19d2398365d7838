/* The NEON kernel with products of matrices, which the compiler flags of this file allow. */
#include "lanes_neon.h"
#include "vector_math.h"
#include "encoder.h"
#include "transformer_forward.h"
