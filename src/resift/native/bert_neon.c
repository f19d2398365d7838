#include "lanes_neon.h"
#include "vector_math.h"
#include "encoder.h"
#include "transformer_forward.h"
