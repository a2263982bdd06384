/* so many codes of 8 bits have a sum of 16 */
#define MOST_CODES 256
#define TOGETHER (4 * VECTOR) /* channels */

/* Sums of up to TOGETHER neighbouring channels: sums[i][j] is that of channel 4 * j + i, plus 128 for each s8 code. */
INLINE void sums_of(const uint8_t *codes, int64_t positions, int64_t apart, int64_t some, I flip, int32_t sums[4][VECTOR]) {
  I s0 = i_zero(), s1 = s0, s2 = s0, s3 = s0, lower = i_all(65535);
  while (positions) {
    int64_t next = least(positions, MOST_CODES);
    I even = i_zero(), odd = even; /* each lane has two sums of 16 bits */
    positions -= next;
    for (; next; next--, codes += apart) {
      I x = i_xor(i_get_bytes(codes, some), flip);
      even = i_add(even, i_and(x, i_all(0x00ff00ff)));
      odd = i_add(odd, i_upper_bytes(x));
    }
    s0 = i_add(s0, i_and(even, lower));
    s1 = i_add(s1, i_and(odd, lower));
    s2 = i_add(s2, i_right(even, 16));
    s3 = i_add(s3, i_right(odd, 16));
  }
  i_store(sums[0], s0);
  i_store(sums[1], s1);
  i_store(sums[2], s2);
  i_store(sums[3], s3);
}

/* What averages become, each operation rounded to f32: times 1/n, then twice times a factor plus a shift. It returns a
   status. */
static int average(AverageWork *w) {
  const I flip = i_all((int32_t)(w->sign * 0x01010101));
  const int32_t zero = (int32_t)(w->sign * w->positions);
  int32_t sums[4][VECTOR];
  for (int64_t image = 0; image < w->images; image++) {
    for (int64_t from = 0; from < w->channels; from += TOGETHER) {
      int64_t wide = least(w->channels - from, TOGETHER);
      float *means = w->means + image * w->channels + from;
      sums_of(w->codes + image * w->positions * w->channels + from, w->positions, w->channels, wide, flip, sums);
      for (int64_t i = 0; i < wide; i++) {
        float mean = (float)(int32_t)((uint32_t)sums[i % 4][i / 4] - (uint32_t)zero) * w->numbers[0];
        mean = fmaf(mean, w->numbers[1], w->numbers[2]);
        means[i] = fmaf(mean, w->numbers[3], w->numbers[4]);
      }
    }
  }
  return 0;
}
