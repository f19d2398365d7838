/* The NEON kernel with matrix products, which the compiler flags of this file enable. */
#include "lanes_neon.h"
#include "vector_math.h"
#include "encoder.h"
#include "transformer_forward.h"
