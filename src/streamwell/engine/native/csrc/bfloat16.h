// Linear layers that multiply pairs of bfloat16, where the processor does.
#pragma once

#include "schemes.h"

#if defined(__AVX512BF16__)

namespace streamwell {

// Pairs of bfloat16 on both sides; sums are floats. The hardware takes denormal numbers for zeros.
template <class Order>
struct Bfloat16Pairs {
  using Sum = F32;
  using Words = Order;
  static constexpr int step = 2, x_bytes = 4, w_bytes = 4 * kPanel, max_rows = kRows;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = false;
  static constexpr bool is_pairs = true;

  static __m256bh pairs_of(F32 values) { return _mm512_cvtneps_pbh(values); }

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    const int64_t padded = words_of(k, step) * step;
    for (int64_t i = 0; i < padded; i += kLanes) {
      const F32 values = i < k ? load_some(x + i, k - i) : zero();
      const auto pairs = pairs_of(values);
      Order::template put<8>(tile, i / step, m, height, &pairs, (padded - i) / step);
    }
  }

  template <int M, class Distance>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, Distance ahead,
                       F32 (&sums)[M][2]) {
    for (int64_t i = 0; i < steps; ++i, x += 4 * M, w += w_bytes) {
      ask<w_bytes>(w, ahead);
      multiply_registers<M>(x, load_int(w), load_int(w + 4 * kLanes),
                            [&](int m, int side) STREAMWELL_INLINE -> F32& { return sums[m][side]; });
    }
  }

  // A step with its weights in registers.
  template <int M, class Sums>
  [[gnu::always_inline]] static void multiply_registers(const uint8_t* x, I32 low, I32 high, const Sums& sum_of) {
    repeat<M>([&](int m) STREAMWELL_INLINE {
      const I32 value = broadcast_four_bytes(x + 4 * m);
      sum_of(m, 0) = dot_pairs(sum_of(m, 0), value, low);
      sum_of(m, 1) = dot_pairs(sum_of(m, 1), value, high);
    });
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }
};

}  // namespace streamwell

#endif
