/* Macros for kernels with vector instructions, which are inlined into one function with unrolled register loops. */
#ifndef RESIFT_INLINE_H
#define RESIFT_INLINE_H

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(times) PRAGMA(GCC unroll times)

#endif
