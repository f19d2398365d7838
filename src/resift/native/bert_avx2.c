#include "lanes_avx2.h"
#include "vector_math.h"
#include "encoder.h"
#include "transformer_forward.h"
