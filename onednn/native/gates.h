/* The gates of an LSTM, some values at once. Numbers come from `CONSTANTS` of onednn/recurrent_kernel.py. */

enum { ONE, TWO, LEVELS, NOT_A_NUMBER, LOW, HIGH, LOG2_E, LN2_HIGH, LN2_LOW, EXP, TANH = EXP + 6, SMALL = TANH + 5 };
#define K(i) f_all(k[i])

/* e^x: x = n*ln 2 + r, |r| <= ln 2 / 2; the polynomial is that of Cephes' expf */
INLINE F exponential(F x, const float *k) {
  x = f_min(K(HIGH), f_max(K(LOW), x)); /* of a NaN and a number these give the second */
  F n = f_round(f_mul(x, K(LOG2_E)));
  F r = f_fnma(n, K(LN2_LOW), f_fnma(n, K(LN2_HIGH), x));
  F p = K(EXP);
  p = f_fma(p, r, K(EXP + 1));
  p = f_fma(p, r, K(EXP + 2));
  p = f_fma(p, r, K(EXP + 3));
  p = f_fma(p, r, K(EXP + 4));
  p = f_fma(p, r, K(EXP + 5));
  p = f_fma(f_mul(r, r), p, f_add(r, K(ONE)));
  return f_scaled(p, n);
}

INLINE F sigmoid(F x, const float *k) {
  return f_div(K(ONE), f_add(K(ONE), exponential(f_sub(f_zero(), x), k)));
}

/* near 0 the polynomial of Cephes' tanhf, else 1 - 2/(e^2|x| + 1) with the sign of x */
INLINE F tangent(F x, const float *k) {
  I sign = i_and(i_cast(x), i_all(INT32_MIN));
  F size = f_cast(i_xor(i_cast(x), sign));
  F e = exponential(f_add(size, size), k);
  F large = f_sub(K(ONE), f_div(K(TWO), f_add(e, K(ONE))));
  large = f_cast(i_or(i_cast(large), sign));
  F z = f_mul(x, x), p = K(TANH);
  p = f_fma(p, z, K(TANH + 1));
  p = f_fma(p, z, K(TANH + 2));
  p = f_fma(p, z, K(TANH + 3));
  p = f_fma(p, z, K(TANH + 4));
  return f_if_less(size, K(SMALL), f_fma(f_mul(p, z), x, x), large);
}
