// Sixteen floats (or sixteen int32) at a time, over AVX-512 or over pairs of AVX2 registers.
//
// Everything above this file is written once in these terms, or, where all registers are wanted, in
// those of single registers. `kRows` is how many rows of activations a micro-kernel keeps next to
// `kSums` sums in registers.
#pragma once

#if defined(__AVX512F__)
#include "avx512.h"
#else
#include "avx2.h"
#endif

#include "repeat.h"

namespace streamwell {

// Has a sum made up now: compilers put additions off, and run out of registers for what waits.
inline IntRegister settled(IntRegister sum) {
  asm("" : "+v"(sum));
  return sum;
}

// The bfloat16 numbers in the lower, and in the upper, halves of all lanes.
template <class Integers>
inline auto low_half(Integers both) {
  return as_float(shift_left(both, 16));
}
template <class Integers>
inline auto high_half(Integers both) {
  return as_float(mask_bits(both, static_cast<int32_t>(0xffff0000)));
}

// The first `count` values, zeros after them.
inline F32 load_some(const float* p, int64_t count) {
  if (count >= kLanes) return load(p);
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
}

inline void store_some(float* p, F32 v, int64_t count) {
  if (count >= kLanes) return store(p, v);
  float lanes[kLanes];
  store(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// e^x to about two units in the last place; Cody-Waite reduction and a polynomial of degree 6. What is
// not a number stays so: the second argument of `max` and `min` wins.
[[gnu::always_inline]] inline F32 exp(F32 x) {
  x = min(broadcast(88.3f), max(broadcast(-87.3f), x));
  const F32 n = round(mul(x, broadcast(1.44269504f)));
  F32 r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  F32 p = broadcast(1.3888889e-3f);
  for (float c : {8.3333333e-3f, 4.1666667e-2f, 1.6666667e-1f, 0.5f, 1.0f, 1.0f}) {
    p = fma(p, r, broadcast(c));
  }
  return scaled_by_power(p, n);
}

// 2^x to about three units in the last place, for x below 128; a polynomial for the fraction of x. Below 2^-100
// it gets no smaller: processors are slow where numbers, or products of such, lose bits at the lower end of
// their range. What is not a number stays so.
[[gnu::always_inline]] inline F32 power_of_two(F32 x) {
  x = max(broadcast(-100.0f), x);
  const F32 whole = floor(x), r = sub(x, whole);
  F32 p = broadcast(1.877576675e-3f);
  for (float c : {8.989340091e-3f, 5.582631805e-2f, 0.240153617f, 0.6931530732f, 1.0f}) {
    p = fma(p, r, broadcast(c));
  }
  return scaled_by_power(p, whole);
}

}  // namespace streamwell
