/* Scale and zero point of u8 codes for the range of some numbers, widened to 0: (high - low) / 255 and what
   0 becomes, each operation in f32; 1 and 0 for a range of 0. Returns 1 where there is a NaN, an infinity or a
   range beyond f32. */
static int range(const float *x, int64_t count, float *scale, uint8_t *zero) {
  F low = f_zero(), high = low;
  int nan = 0;
  for (int64_t at = 0; at < count; at += VECTOR) {
    F some = f_get(x + at, count - at);
    nan |= f_any_nan(some);
    low = f_min(low, some);
    high = f_max(high, some);
  }
  float lowest = f_lowest(low), step = (f_highest(high) - lowest) / 255.0f;
  if (nan || step - step != 0) return 1;
  if (step == 0) {
    step = 1.0f;
    lowest = 0.0f;
  }
  float place = rintf((0.0f - lowest) / step);
  *scale = step;
  *zero = (uint8_t)(place < 0 ? 0 : place > 255 ? 255 : place);
  return 0;
}
