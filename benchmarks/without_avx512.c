/* Preloaded into a process, it hides AVX-512 and AVX-VNNI from whoever asks the processor (Linux on x86-64 with CPUID
 * faulting): libraries then choose what they run on a processor without them, on the same machine.
 *
 *     cc -O2 -shared -fPIC -o without_avx512.so without_avx512.c */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012 };

static void faulting(int on) { syscall(SYS_arch_prctl, ARCH_SET_CPUID, !on); }

static void answer(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    (void)info;
    if (code[0] != 0x0F || code[1] != 0xA2) {
        signal(number, SIG_DFL); /* a real fault: let it happen again */
        return;
    }
    uint32_t a, b, c, d;
    const uint32_t leaf = (uint32_t)registers[REG_RAX], sub = (uint32_t)registers[REG_RCX];
    faulting(0);
    __cpuid_count(leaf, sub, a, b, c, d);
    faulting(1);
    if (leaf == 7 && sub == 0) {
        /* f, dq, ifma, cd, bw, vl; vbmi, vbmi2, vnni, bitalg, vpopcntdq; 4vnniw, 4fmaps, vp2intersect, amx, fp16 */
        b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
        c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
        d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);
    }
    if (leaf == 7 && sub == 1) a &= ~(1u << 4 | 1u << 5); /* avx-vnni, avx512-bf16 */
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide(void)
{
    struct sigaction action = {0};
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL);
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0)) {
        fputs("this processor or kernel does not let CPUID fault\n", stderr);
        exit(3);
    }
}
