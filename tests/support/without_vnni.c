/* Makes the processes that preload it see a CPU without VNNI, so that the tests can run as on one:

     cc -O2 -shared -fPIC -o without_vnni.so without_vnni.c
     PRETEND_CPU=AVX512_CORE LD_PRELOAD=$PWD/without_vnni.so python ...

   PRETEND_CPU is AVX512_CORE, which is AVX-512 without VNNI, or AVX2, which is AVX2 without VNNI.

   Libraries find out what a CPU can do by the instruction CPUID. Linux can make that instruction fault in
   a process (arch_prctl, ARCH_SET_CPUID), where the CPU allows it. The handler here executes it, takes the
   newer instruction sets off its answer, and goes on behind it. Threads and forked processes inherit this
   from the one that made them; a program that is executed loads this file again, as LD_PRELOAD says. What
   the CPU can do it still does: only who asks gets another answer. /proc/cpuinfo stays as it is.

   The signal is SIGSEGV, which others handle too, such as Python's faulthandler. They set their handlers by
   sigaction and signal, which are replaced here: theirs get every SIGSEGV but those of CPUID. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if !defined(__linux__) || !defined(__x86_64__)
#error "without_vnni.c is for Linux on x86-64"
#endif

#define ARCH_SET_CPUID 0x1012
#define FAULTS 0L
#define ANSWERS 1L
#define BIT(n) (1u << (n))

struct registers {
    uint32_t eax, ebx, ecx, edx;
};

/* What leaf 7 says of what came with VNNI or after it, and of AVX-512. */
static const struct registers NEWER = {
    .ecx = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14), /* VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
    .edx = BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25), /* 4VNNIW, 4FMAPS, VP2INTERSECT, FP16, AMX */
};
static const struct registers NEWER_OF_SUBLEAF_1 = {
    .eax = BIT(4) | BIT(5) | BIT(21) | BIT(23), /* VNNI and BF16 of AVX, AMX-FP16, IFMA of AVX */
    .edx = BIT(4) | BIT(5) | BIT(10) | BIT(19), /* VNNI of AVX for s8 and s16, BF16 of AVX, AVX10 */
};
static const uint32_t AVX512 = /* of ebx: F, DQ, IFMA, PF, ER, CD, BW, VL */
    BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);

static int has_avx512;
static struct sigaction theirs; /* the handler that the program has set */
static int (*set_handler)(int, const struct sigaction *, struct sigaction *);

static struct registers cpuid(uint32_t leaf, uint32_t subleaf) {
    struct registers r;
    __asm__ volatile("cpuid"
                     : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                     : "a"(leaf), "c"(subleaf));
    return r;
}

static struct registers older(uint32_t leaf, uint32_t subleaf) {
    struct registers r = cpuid(leaf, subleaf);
    if (leaf == 7 && subleaf == 0) {
        r.ecx &= ~NEWER.ecx;
        r.edx &= ~NEWER.edx;
        if (!has_avx512)
            r.ebx &= ~AVX512;
    } else if (leaf == 7 && subleaf == 1) {
        r.eax &= ~NEWER_OF_SUBLEAF_1.eax;
        r.edx &= ~NEWER_OF_SUBLEAF_1.edx;
    }
    return r;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) { /* cpuid */
        struct registers r;
        syscall(SYS_arch_prctl, ARCH_SET_CPUID, ANSWERS);
        r = older((uint32_t)registers[REG_RAX], (uint32_t)registers[REG_RCX]);
        syscall(SYS_arch_prctl, ARCH_SET_CPUID, FAULTS);
        registers[REG_RAX] = r.eax;
        registers[REG_RBX] = r.ebx;
        registers[REG_RCX] = r.ecx;
        registers[REG_RDX] = r.edx;
        registers[REG_RIP] += 2;
    } else if (theirs.sa_handler == SIG_DFL || theirs.sa_handler == SIG_IGN) {
        struct sigaction deadly = {.sa_handler = SIG_DFL};
        set_handler(number, &deadly, NULL);
        raise(number);
    } else if (theirs.sa_flags & SA_SIGINFO) {
        theirs.sa_sigaction(number, info, context);
    } else {
        theirs.sa_handler(number);
    }
}

static void find_set_handler(void) {
    if (!set_handler)
        *(void **)&set_handler = dlsym(RTLD_NEXT, "sigaction");
}

int sigaction(int number, const struct sigaction *wanted, struct sigaction *old) {
    struct sigaction before = theirs;
    find_set_handler();
    if (number != SIGSEGV)
        return set_handler(number, wanted, old);
    if (wanted)
        theirs = *wanted;
    if (old)
        *old = before;
    return 0;
}

/* As the C library's own does. */
__sighandler_t signal(int number, __sighandler_t handler) {
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(number, &wanted, &old) ? SIG_ERR : old.sa_handler;
}

static void refuse(const char *why) {
    fprintf(stderr, "without_vnni: %s\n", why);
    _exit(70);
}

__attribute__((constructor)) static void begin(void) {
    const char *cpu = getenv("PRETEND_CPU");
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    has_avx512 = cpu && !strcmp(cpu, "AVX512_CORE");
    if (!has_avx512 && !(cpu && !strcmp(cpu, "AVX2")))
        refuse("PRETEND_CPU is AVX512_CORE or AVX2");
    find_set_handler();
    set_handler(SIGSEGV, &ours, &theirs);
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, FAULTS))
        refuse("the instruction CPUID cannot be made to fault here, by this kernel or this CPU");
}
