/* Detects the kernels that this processor can run. Compiled without processor flags, because it must run everywhere. */
#include "processor.h"

#include <stddef.h>

int32_t resift_interface(void) { return RESIFT_INTERFACE; }

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

typedef struct {
    uint32_t a, b, c, d;
} Registers;

static Registers cpuid(uint32_t leaf, uint32_t sub)
{
    Registers found = {0, 0, 0, 0};
    __get_cpuid_count(leaf, sub, &found.a, &found.b, &found.c, &found.d);
    return found;
}

/* Registers that the system saves when it switches threads; others cannot be used. */
static uint32_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

int resift_has_vpopcntdq(void)
{
    static volatile int known = -1; /* cached, because cpuid is slow in a virtual machine */
    if (known < 0) known = cpuid(7, 0).c >> 14 & 1;
    return known;
}

const char *resift_kernels(void)
{
    const uint32_t fma = 1u << 12, osxsave = 1u << 27;                    /* leaf 1, ecx */
    const uint32_t popcnt = 1u << 23, avx2 = 1u << 5;                     /* leaf 1, ecx; leaf 7, ebx */
    const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;    /* leaf 7, ebx: f, dq, bw, vl */
    const uint32_t vnni = 1u << 11;                                       /* leaf 7, ecx */
    const uint32_t ymm = 0x6, zmm = 0xe6;
    const Registers basic = cpuid(1, 0), extended = cpuid(7, 0);
    const uint32_t saved = basic.c & osxsave ? saved_registers() : 0;
    if ((basic.c & (fma | popcnt)) != (fma | popcnt) || !(extended.b & avx2) || (saved & ymm) != ymm) return "portable";
    if ((extended.b & avx512) == avx512 && extended.c & vnni && (saved & zmm) == zmm) return "avx512 avx2 portable";
    return "avx2 portable";
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

const char *resift_kernels(void)
{
    const unsigned long dot_product = 1ul << 20, i8mm = 1ul << 13; /* HWCAP_ASIMDDP, HWCAP2_I8MM */
    if (!(getauxval(AT_HWCAP) & dot_product)) return "portable";
    return getauxval(AT_HWCAP2) & i8mm ? "i8mm neon portable" : "neon portable";
}

#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

/* Every Mac with an ARM processor supports the dot product. */
const char *resift_kernels(void)
{
    int32_t i8mm = 0;
    size_t size = sizeof i8mm;
    const int unknown = sysctlbyname("hw.optional.arm.FEAT_I8MM", &i8mm, &size, NULL, 0);
    return !unknown && i8mm ? "i8mm neon portable" : "neon portable";
}

#else

const char *resift_kernels(void) { return "portable"; }

#endif
