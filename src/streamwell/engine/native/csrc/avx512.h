// The words of `simd.h` over AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace streamwell {

constexpr int kLanes = 16;

constexpr int kRows = 14, kSums = 28;  // two weights and a broadcast fill the 32 registers

using F32 = __m512;
using I32 = __m512i;

using Register = F32;
using IntRegister = I32;
constexpr int kRegisters = 1;  // of sixteen lanes
inline Register& register_of(F32& v, int) { return v; }
inline IntRegister& register_of(I32& v, int) { return v; }

inline F32 zero() { return _mm512_setzero_ps(); }
inline F32 broadcast(float x) { return _mm512_set1_ps(x); }
inline F32 load(const float* p) { return _mm512_loadu_ps(p); }
inline Register broadcast_register(float x) { return broadcast(x); }
inline Register load_register(const float* p) { return load(p); }
inline void store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
// Assembler, because the compiler would go through an integer register, or load many of these ahead
// and spill them; a broadcast from memory costs a load and nothing else.
inline I32 broadcast_four_bytes(const void* p) {
  I32 v;
  asm volatile("vpbroadcastd %1, %0" : "=v"(v) : "m"(*static_cast<const uint8_t(*)[4]>(p)));
  return v;
}
inline F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
inline F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
inline F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
inline F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
inline F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32 round(F32 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
inline F32 floor(F32 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF); }
inline F32 to_float(I32 v) { return _mm512_cvtepi32_ps(v); }
inline I32 to_int(F32 v) { return _mm512_cvtps_epi32(v); }
// Times two to the power of whole numbers.
inline F32 scaled_by_power(F32 v, F32 n) { return _mm512_scalef_ps(v, n); }
// 1 / v by one step of Newton, in a third of a division's time; neither zero nor infinity may be v.
inline F32 reciprocal(F32 v) {
  const F32 guess = _mm512_rcp14_ps(v);
  return mul(guess, _mm512_fnmadd_ps(v, guess, broadcast(2.0f)));
}
inline bool any_above(F32 v, float x) { return _mm512_cmp_ps_mask(v, broadcast(x), _CMP_GT_OQ) != 0; }
inline float sum(F32 v) { return _mm512_reduce_add_ps(v); }
inline float largest(F32 v) { return _mm512_reduce_max_ps(v); }
inline I32 zero_int() { return _mm512_setzero_si512(); }
inline I32 broadcast_int(int32_t x) { return _mm512_set1_epi32(x); }
inline I32 load_int(const void* p) { return _mm512_loadu_si512(p); }
inline IntRegister load_int_register(const void* p) { return load_int(p); }
inline void store_int_register(void* p, IntRegister v) { _mm512_storeu_si512(p, v); }
inline I32 add_int(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
inline I32 shift_left(I32 v, int bits) { return _mm512_slli_epi32(v, bits); }
inline I32 shift_right(I32 v, int bits) { return _mm512_srli_epi32(v, bits); }
inline I32 mask_bits(I32 v, int32_t bits) { return _mm512_and_si512(v, _mm512_set1_epi32(bits)); }
inline I32 or_bits(I32 a, I32 b) { return _mm512_or_si512(a, b); }
inline F32 as_float(I32 v) { return _mm512_castsi512_ps(v); }
// Lanes below `count` from `a`, the others from `b`.
inline F32 first_lanes(int count, F32 a, F32 b) {
  const __mmask16 mask = static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
  return _mm512_mask_blend_ps(mask, b, a);
}
inline F32 load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Register load_half_register(const uint16_t* p) { return load_half(p); }
inline F32 load_signed_bytes(const void* p) {
  return to_float(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
inline void store_bytes(uint8_t* p, I32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}
#if defined(__AVX512VNNI__)
// sums[i] += dot product of four unsigned bytes of `u` and four signed bytes of `s`.
inline I32 dot_bytes(I32 sums, I32 u, I32 s) { return _mm512_dpbusd_epi32(sums, u, s); }
#endif
// Two unsigned bytes of `u` times two signed ones of `s`, in each word; the sum must fit into it.
inline IntRegister dot_bytes(IntRegister u, IntRegister s) { return _mm512_maddubs_epi16(u, s); }
// Two signed words of `a` times two of `b`, in each lane.
inline IntRegister dot_words(IntRegister a, IntRegister b) { return _mm512_madd_epi16(a, b); }
inline IntRegister broadcast_words(int16_t x) { return _mm512_set1_epi16(x); }
inline IntRegister add_words(IntRegister a, IntRegister b) { return _mm512_add_epi16(a, b); }
// The signed bytes at odd, and at even, places, as words.
inline IntRegister odd_bytes(IntRegister v) { return _mm512_srai_epi16(v, 8); }
inline IntRegister even_bytes(IntRegister v) { return odd_bytes(_mm512_slli_epi16(v, 8)); }
// A table of sixteen bytes, and those at the places that bytes below sixteen tell.
inline IntRegister table_of(const uint8_t* bytes) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
inline IntRegister look_up(IntRegister table, IntRegister places) { return _mm512_shuffle_epi8(table, places); }
// Bytes of both in turn: of each sixteen the first eight, or the last.
inline IntRegister first_bytes_in_turn(IntRegister a, IntRegister b) { return _mm512_unpacklo_epi8(a, b); }
inline IntRegister last_bytes_in_turn(IntRegister a, IntRegister b) { return _mm512_unpackhi_epi8(a, b); }
inline IntRegister with_byte(IntRegister v, int place, uint8_t byte) {
  return _mm512_mask_set1_epi8(v, uint64_t{1} << place, static_cast<char>(byte));
}
// Of every four lanes the first and the third as words side by side, then the second and the fourth.
inline void store_word_pairs(uint8_t* p, I32 v) {
  const I32 behind = _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(_MM_SHUFFLE(3, 2, 3, 2)));
  const I32 words = or_bits(v, shift_left(behind, 16));
  const I32 order = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
  const I32 packed = _mm512_permutexvar_epi64(order, words);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(packed));
}

#if defined(__AVX512BF16__)
// sums[i] += dot product of two bfloat16 of `a` and two of `b`.
inline F32 dot_pairs(F32 sums, I32 a, I32 b) {
  return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
}
#endif

}  // namespace streamwell
