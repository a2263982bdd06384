/* Every CPU, in plain C: it says what the operations on vectors mean, `F` of f32 and `I` of s32, here of 8 lanes. */

#include "common.h"

#undef UNROLL /* its vectors are loops of their own */
#define UNROLL
#undef INLINE
#define INLINE static inline

#define VECTOR 8
#define KEPT(vector)
typedef struct { float at[VECTOR]; } F;
typedef struct { int32_t at[VECTOR]; } I;

#define EACH_LANE for (int i = 0; i < VECTOR; i++)
#define F_OF(expression) { F r; EACH_LANE r.at[i] = (expression); return r; }
#define I_OF(expression) { I r; EACH_LANE r.at[i] = (expression); return r; }
#define WRAPPED(a, op, b) (int32_t)((uint32_t)(a) op (uint32_t)(b))

INLINE F f_zero(void) F_OF(0.0f)
INLINE F f_all(float x) F_OF(x)
INLINE F f_load(const float *p) F_OF(p[i])
INLINE void f_store(float *p, F v) { EACH_LANE p[i] = v.at[i]; }
/* the first lanes alone are read, others are 0; written; kept, others are 0 */
INLINE F f_get(const float *p, int64_t count) F_OF(i < count ? p[i] : 0.0f)
INLINE void f_put(float *p, F v, int64_t count) { EACH_LANE if (i < count) p[i] = v.at[i]; }
INLINE F f_first(F v, int64_t count) F_OF(i < count ? v.at[i] : 0.0f)
INLINE F f_add(F a, F b) F_OF(a.at[i] + b.at[i])
INLINE F f_sub(F a, F b) F_OF(a.at[i] - b.at[i])
INLINE F f_mul(F a, F b) F_OF(a.at[i] * b.at[i])
INLINE F f_div(F a, F b) F_OF(a.at[i] / b.at[i])
/* of a NaN and a number the second one */
INLINE F f_min(F a, F b) F_OF(a.at[i] < b.at[i] ? a.at[i] : b.at[i])
INLINE F f_max(F a, F b) F_OF(a.at[i] > b.at[i] ? a.at[i] : b.at[i])
INLINE F f_fma(F a, F b, F c) F_OF(fmaf(a.at[i], b.at[i], c.at[i]))
INLINE F f_fnma(F a, F b, F c) F_OF(fmaf(-a.at[i], b.at[i], c.at[i]))
INLINE F f_round(F v) F_OF(rintf(v.at[i]))
/* v times 2 to the power of n, a whole number from -252 to 252 (or NaN, as v is), rounded once */
INLINE F f_scaled(F v, F n) F_OF(n.at[i] == n.at[i] ? ldexpf(v.at[i], (int)n.at[i]) : v.at[i])
INLINE F f_if_less(F a, F b, F yes, F no) F_OF(a.at[i] < b.at[i] ? yes.at[i] : no.at[i])
INLINE int f_any_nan(F v) { int r = 0; EACH_LANE r |= v.at[i] != v.at[i]; return r; }
/* or NaN, in the first lanes */
INLINE int f_any_infinite(F v, int64_t count) { int r = 0; EACH_LANE r |= i < count && v.at[i] - v.at[i] != 0; return r; }
INLINE float f_lowest(F v) { float r = v.at[0]; EACH_LANE r = v.at[i] < r ? v.at[i] : r; return r; }
INLINE float f_highest(F v) { float r = v.at[0]; EACH_LANE r = v.at[i] > r ? v.at[i] : r; return r; }
/* of each four the first and third, and the second and fourth; of those; and of both fours */
#define FOUR(p) ((p)[0] + (p)[2] + ((p)[1] + (p)[3]))
INLINE float f_total(F v) { return FOUR(v.at) + FOUR(v.at + 4); }
INLINE F f_gather(const float *p, I at) F_OF(p[at.at[i]])
INLINE F f_of(I v) F_OF((float)v.at[i])
INLINE F f_cast(I v) F_OF(float_of(v.at[i]))

INLINE I i_zero(void) I_OF(0)
INLINE I i_all(int32_t x) I_OF(x)
INLINE I i_lanes(void) I_OF(i)
INLINE I i_load(const void *p) { I r; memcpy(&r, p, sizeof r); return r; }
INLINE void i_store(void *p, I v) { memcpy(p, &v, sizeof v); }
INLINE I i_first(I v, int64_t count) I_OF(i < count ? v.at[i] : 0)
/* to the nearest, ties to even; the lowest integer for what has none */
INLINE I i_of(F v) I_OF(v.at[i] >= -2147483648.0f && v.at[i] < 2147483648.0f ? (int32_t)rintf(v.at[i]) : INT32_MIN)
INLINE I i_cast(F v) I_OF(bits_of(v.at[i]))
INLINE I i_add(I a, I b) I_OF(WRAPPED(a.at[i], +, b.at[i]))
INLINE I i_sub(I a, I b) I_OF(WRAPPED(a.at[i], -, b.at[i]))
INLINE I i_sub_bytes(I a, I b) {
  for (int i = 0; i < 4 * VECTOR; i++) ((uint8_t *)&a)[i] -= ((uint8_t *)&b)[i];
  return a;
}
INLINE I i_mul(I a, I b) I_OF(WRAPPED(a.at[i], *, b.at[i]))
INLINE I i_min(I a, I b) I_OF(a.at[i] < b.at[i] ? a.at[i] : b.at[i])
INLINE I i_max(I a, I b) I_OF(a.at[i] > b.at[i] ? a.at[i] : b.at[i])
INLINE I i_and(I a, I b) I_OF(a.at[i] & b.at[i])
INLINE I i_or(I a, I b) I_OF(a.at[i] | b.at[i])
INLINE I i_xor(I a, I b) I_OF(a.at[i] ^ b.at[i])
INLINE I i_right(I v, int by) I_OF((int32_t)((uint32_t)v.at[i] >> by))
INLINE I i_gather(const void *p, I at) I_OF(word_at((const char *)p + at.at[i]))
INLINE I i_of_bytes(const uint8_t *p) I_OF(p[i])
INLINE I i_of_shorts(const void *p) I_OF(((const uint8_t *)p)[2 * i] | ((const uint8_t *)p)[2 * i + 1] << 8)
INLINE I i_get_bytes(const void *p, int64_t count) {
  I r = i_zero();
  memcpy(&r, p, (size_t)least(count, sizeof r));
  return r;
}
INLINE int32_t i_highest(I v) { int32_t r = v.at[0]; EACH_LANE r = v.at[i] > r ? v.at[i] : r; return r; }
INLINE int32_t i_total(I v) { int32_t r = 0; EACH_LANE r += v.at[i]; return r; }
/* the upper byte of each two */
INLINE I i_upper_bytes(I v) I_OF((int32_t)((uint32_t)v.at[i] >> 8 & 0x00ff00ff))
/* of eight lanes those at even places in front */
INLINE I i_evens_first(I v) I_OF(v.at[i < 4 ? 2 * i : 2 * i - 7])
/* the low bytes of the first lanes */
INLINE void i_put_bytes(void *p, I v, int64_t count) { EACH_LANE if (i < count) ((uint8_t *)p)[i] = (uint8_t)v.at[i]; }

#define BYTE(type, v, k) (type)((uint32_t)(v).at[i] >> 8 * (k))
/* of each lane four u8 times four s8, added to the sum: exact */
INLINE I i_dot(I sum, I u, I s) {
  EACH_LANE for (int k = 0; k < 4; k++) sum.at[i] += BYTE(uint8_t, u, k) * BYTE(int8_t, s, k);
  return sum;
}

#define FUNCTIONS functions_plain
#define FUSED fused_plain
#include "kernels.h"
