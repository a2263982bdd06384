/* What compilers call differently, and numbers at any address. */

#ifndef COMMON_H
#define COMMON_H

#include <math.h>
#include <string.h>

#include "works.h"

#if defined(__x86_64__) || defined(_M_X64)
#define X86
#include <immintrin.h>
#endif

#ifdef _MSC_VER
#include <intrin.h>
#define INLINE static __forceinline
#define TAKE(counter, many) _InterlockedExchangeAdd64((volatile __int64 *)(counter), many)
#define ALIGNED __declspec(align(64))
#define UNROLL
#define NO_UNROLL
#else
#define INLINE static inline __attribute__((always_inline))
#define TAKE(counter, many) __atomic_fetch_add(counter, many, __ATOMIC_RELAXED)
#define ALIGNED __attribute__((aligned(64)))
#define UNROLL _Pragma("GCC unroll 16")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#ifdef X86
#define PREFETCH(address, far) _mm_prefetch((const char *)(address), far ? _MM_HINT_T1 : _MM_HINT_T0)
#elif defined(_MSC_VER)
#define PREFETCH(address, far)
#else
#define PREFETCH(address, far) __builtin_prefetch(address, 0, far ? 2 : 3)
#endif

INLINE int32_t word_at(const void *address) {
  int32_t found;
  memcpy(&found, address, 4);
  return found;
}

INLINE float float_of(int32_t bits) {
  float found;
  memcpy(&found, &bits, 4);
  return found;
}

INLINE int32_t bits_of(float number) {
  int32_t found;
  memcpy(&found, &number, 4);
  return found;
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* columns of a panel, of those that are left: 64, or all, in whole 16 */
INLINE int64_t panel_width(int64_t left) { return left < 64 ? (left + 15) / 16 * 16 : 64; }

#endif
