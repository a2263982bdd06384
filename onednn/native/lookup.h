/* `count` codes looked up in a table of 256 bytes; returns a status. The results may lie where the codes do. */

#if defined(VBMI)

static int lookup(uint8_t *to, const uint8_t *codes, size_t count, const uint8_t *table) {
  const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
  const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
  for (size_t at = 0; at < count; at += 64) {
    __mmask64 some = count - at < 64 ? _bzhi_u64(~0ull, (unsigned)(count - at)) : ~0ull;
    __m512i c = _mm512_maskz_loadu_epi8(some, codes + at);
    __m512i lower = _mm512_permutex2var_epi8(t0, c, t1), upper = _mm512_permutex2var_epi8(t2, c, t3);
    _mm512_mask_storeu_epi8(to + at, some, _mm512_mask_blend_epi8(_mm512_movepi8_mask(c), lower, upper));
  }
  return 0;
}

#elif VECTOR == 16

/* the entries of codes whose halves are words of the table */
INLINE __m512i words_of(__m512i halves, __mmask32 beyond, const __m512i t[4]) {
  __m512i lower = _mm512_permutex2var_epi16(t[0], halves, t[1]), upper = _mm512_permutex2var_epi16(t[2], halves, t[3]);
  return _mm512_mask_mov_epi16(lower, beyond, upper);
}

static int lookup(uint8_t *to, const uint8_t *codes, size_t count, const uint8_t *table) {
  /* 128 words: entry 2i is the low byte of word i */
  const __m512i t[4] = {_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64), _mm512_loadu_si512(table + 128),
                        _mm512_loadu_si512(table + 192)};
  for (size_t at = 0; at < count; at += 64) {
    __mmask64 some = count - at < 64 ? _bzhi_u64(~0ull, (unsigned)(count - at)) : ~0ull;
    __m512i x = _mm512_maskz_loadu_epi8(some, codes + at); /* c in the low byte of each word, d in the high one */
    __m512i c = words_of(_mm512_srli_epi16(x, 1), _mm512_test_epi16_mask(x, _mm512_set1_epi16(0x80)), t);
    __m512i d = words_of(_mm512_srli_epi16(x, 9), _mm512_movepi16_mask(x), t);
    /* the entry of an odd code is the high byte; that of c goes into the low byte, that of d into the high one */
    c = _mm512_mask_srli_epi16(c, _mm512_test_epi16_mask(x, _mm512_set1_epi16(1)), c, 8);
    d = _mm512_mask_slli_epi16(d, _mm512_testn_epi16_mask(x, _mm512_set1_epi16(0x100)), d, 8);
    _mm512_mask_storeu_epi8(to + at, some, _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, c, d));
  }
  return 0;
}

#else

static int lookup(uint8_t *to, const uint8_t *codes, size_t count, const uint8_t *table) {
#ifdef AVX2
  for (; count >= 32; count -= 32, to += 32, codes += 32) {
    __m256i code = _mm256_loadu_si256((const __m256i *)codes), found = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 16; i++) {
      /* of entries 16 * i and following: a permutation gives 0 where the highest bit is set */
      __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table + i));
      __m256i at = _mm256_adds_epu8(code, _mm256_set1_epi8(0x70));
      found = _mm256_or_si256(found, _mm256_shuffle_epi8(entries, at));
      code = _mm256_sub_epi8(code, _mm256_set1_epi8(16));
    }
    _mm256_storeu_si256((__m256i *)to, found);
  }
#endif
  for (; count; count--) *to++ = table[*codes++];
  return 0;
}

#endif
