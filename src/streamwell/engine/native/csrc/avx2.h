// The words of `simd.h` over pairs of registers of AVX2, with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace streamwell {

constexpr int kLanes = 16;

constexpr int kRows = 6, kSums = 12;  // of 16 registers

using Register = __m256;
using IntRegister = __m256i;
constexpr int kRegisters = 2;  // of sixteen lanes

struct F32 {
  Register low, high;
};
struct I32 {
  IntRegister low, high;
};
inline Register& register_of(F32& v, int i) { return i ? v.high : v.low; }
inline IntRegister& register_of(I32& v, int i) { return i ? v.high : v.low; }

inline F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Register broadcast_register(float x) { return _mm256_set1_ps(x); }
inline Register load_register(const float* p) { return _mm256_loadu_ps(p); }
inline F32 load(const float* p) { return {load_register(p), load_register(p + 8)}; }
inline void store(float* p, F32 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
#define STREAMWELL_BOTH(name, op)     \
  inline F32 name(F32 a, F32 b) {     \
    return {op(a.low, b.low), op(a.high, b.high)}; \
  }
STREAMWELL_BOTH(add, _mm256_add_ps)
STREAMWELL_BOTH(sub, _mm256_sub_ps)
STREAMWELL_BOTH(mul, _mm256_mul_ps)
STREAMWELL_BOTH(div, _mm256_div_ps)
STREAMWELL_BOTH(max, _mm256_max_ps)
STREAMWELL_BOTH(min, _mm256_min_ps)
#undef STREAMWELL_BOTH
inline Register fma(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
inline F32 fma(F32 a, F32 b, F32 c) { return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)}; }
inline F32 round(F32 a) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, nearest), _mm256_round_ps(a.high, nearest)};
}
inline F32 floor(F32 a) { return {_mm256_floor_ps(a.low), _mm256_floor_ps(a.high)}; }
inline F32 to_float(I32 v) { return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)}; }
inline I32 to_int(F32 v) { return {_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high)}; }
inline __m128 halves(__m256 v, __m128 (*op)(__m128, __m128)) {
  return op(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
inline __m128 plus(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
inline __m128 larger(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
inline float fold(F32 v, __m256 (*wide)(__m256, __m256), __m128 (*op)(__m128, __m128)) {
  __m128 x = halves(wide(v.low, v.high), op);
  x = op(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(op(x, _mm_movehdup_ps(x)));
}
inline float sum(F32 v) {
  return fold(v, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); }, plus);
}
inline float largest(F32 v) {
  return fold(v, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); }, larger);
}
inline bool any_above(F32 v, float x) {
  const __m256 limit = _mm256_set1_ps(x);
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(v.low, limit, _CMP_GT_OQ),
                                         _mm256_cmp_ps(v.high, limit, _CMP_GT_OQ)));
}
inline I32 broadcast_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline IntRegister load_int_register(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void store_int_register(void* p, IntRegister v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
inline I32 add_int(I32 a, I32 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline IntRegister shift_left(IntRegister v, int bits) { return _mm256_slli_epi32(v, bits); }
inline I32 shift_left(I32 v, int bits) { return {shift_left(v.low, bits), shift_left(v.high, bits)}; }
inline IntRegister shift_right(IntRegister v, int bits) { return _mm256_srli_epi32(v, bits); }
inline IntRegister mask_bits(IntRegister v, int32_t bits) {
  return _mm256_and_si256(v, _mm256_set1_epi32(bits));
}
inline IntRegister or_bits(IntRegister a, IntRegister b) { return _mm256_or_si256(a, b); }
inline Register as_float(IntRegister v) { return _mm256_castsi256_ps(v); }
inline F32 as_float(I32 v) { return {as_float(v.low), as_float(v.high)}; }
inline F32 reciprocal(F32 v) { return div(broadcast(1.0f), v); }
inline F32 scaled_by_power(F32 v, F32 n) {
  return mul(v, as_float(shift_left(add_int(to_int(n), broadcast_int(127)), 23)));
}
inline F32 first_lanes(int count, F32 a, F32 b) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes);
  const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lanes);
  return {_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(high))};
}
inline IntRegister broadcast_four_bytes(const void* p) {
  int32_t value;
  std::memcpy(&value, p, 4);
  return _mm256_set1_epi32(value);
}
inline IntRegister broadcast_words(int16_t x) { return _mm256_set1_epi16(x); }
inline IntRegister add_words(IntRegister a, IntRegister b) { return _mm256_add_epi16(a, b); }
// Two unsigned bytes of `u` times two signed ones of `s`, in each word; the sum must fit into it.
inline IntRegister dot_bytes(IntRegister u, IntRegister s) { return _mm256_maddubs_epi16(u, s); }
// Two signed words of `a` times two of `b`, in each lane.
inline IntRegister dot_words(IntRegister a, IntRegister b) { return _mm256_madd_epi16(a, b); }
inline IntRegister add_int(IntRegister a, IntRegister b) { return _mm256_add_epi32(a, b); }
// The signed bytes at odd, and at even, places, as words.
inline IntRegister odd_bytes(IntRegister v) { return _mm256_srai_epi16(v, 8); }
inline IntRegister even_bytes(IntRegister v) { return odd_bytes(_mm256_slli_epi16(v, 8)); }
inline Register load_half_register(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline F32 load_half(const uint16_t* p) { return {load_half_register(p), load_half_register(p + 8)}; }
inline F32 load_signed_bytes(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return to_float({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}
inline void store_bytes(uint8_t* p, I32 v) {
  // of eight lanes each, interleaved by fours
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.low, v.high), 0xd8);
  const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
  const __m128i mask = _mm_set1_epi16(0x00ff);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi16(_mm_and_si128(low, mask), _mm_and_si128(high, mask)));
}
// A table of sixteen bytes, and those at the places that bytes below sixteen tell.
inline IntRegister table_of(const uint8_t* bytes) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
inline IntRegister look_up(IntRegister table, IntRegister places) { return _mm256_shuffle_epi8(table, places); }
// Bytes of both in turn: of each sixteen the first eight, or the last.
inline IntRegister first_bytes_in_turn(IntRegister a, IntRegister b) { return _mm256_unpacklo_epi8(a, b); }
inline IntRegister last_bytes_in_turn(IntRegister a, IntRegister b) { return _mm256_unpackhi_epi8(a, b); }
// A place beyond the register changes nothing.
inline IntRegister with_byte(IntRegister v, int place, uint8_t byte) {
  const __m256i places = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                          22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  const __m256i is_there = _mm256_cmpeq_epi8(places, _mm256_set1_epi8(static_cast<char>(place)));
  return _mm256_blendv_epi8(v, _mm256_set1_epi8(static_cast<char>(byte)), is_there);
}
// Of every four lanes the first and the third as words side by side, then the second and the fourth.
inline void store_word_pairs(uint8_t* p, I32 v) {
  for (int part = 0; part < kRegisters; ++part) {
    const __m256i lanes = register_of(v, part);
    const __m256i behind = _mm256_shuffle_epi32(lanes, _MM_SHUFFLE(3, 2, 3, 2));
    const __m256i words = _mm256_or_si256(lanes, _mm256_slli_epi32(behind, 16));
    const __m256i packed = _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p) + part, _mm256_castsi256_si128(packed));
  }
}

}  // namespace streamwell
