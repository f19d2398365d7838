/* Names and visibility of exported functions. */
#ifndef RESIFT_EXPORT_H
#define RESIFT_EXPORT_H

/* Function names end with the name of the kernel, as in bert_forward_avx512. */
#define KERNEL_FUNCTION_(name, kernel) name##_##kernel
#define KERNEL_FUNCTION(name, kernel) KERNEL_FUNCTION_(name, kernel)

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

#endif
