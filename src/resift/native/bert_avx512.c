#include "lanes_avx512.h"
#include "vector_math.h"
#include "encoder.h"
#include "transformer_forward.h"
