// Weights and activations that are small whole numbers with scales.
//
// Sums over them are exact, so that all processors come to the same bits, each in its own way.
#pragma once

#include <cmath>

#include "schemes.h"

namespace streamwell {

// Not a number if any of them is not finite: a poisoned row must not come out looking sound.
inline float largest_magnitude(const float* x, int64_t k) {
  F32 peak = zero(), poison = zero();
  for (int64_t i = 0; i < k; i += kLanes) {
    const F32 values = load_some(x + i, k - i);
    peak = max(peak, max(values, sub(zero(), values)));
    poison = fma(values, zero(), poison);
  }
  return largest(peak) + sum(poison);
}

// What 8-bit activations are multiplied by, and what gives them their size back.
inline float inverse_scale(const float* x, int64_t k, float* scale) {
  const float largest = largest_magnitude(x, k);
  *scale = largest / 127.0f;
  const float inverse = 127.0f / largest;
  return std::isfinite(inverse) ? inverse : 0.0f;  // of what is next to nothing, nothing is left
}

inline uint16_t half_bits_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return bits;
}

inline float half_at(const uint8_t* bytes) { return _cvtsh_ss(half_bits_at(bytes)); }

inline F32 scaled(I32 sum, const Linear& linear, int64_t column, float row_scale) {
  const F32 result =
      fma(to_float(sum), load(linear.scales + column), load(linear.offsets + column));
  return mul(result, broadcast(row_scale));
}

// Signed 8-bit weights with a scale per output, unsigned 8-bit activations with a scale per row and
// a zero point of 128.
#if defined(__AVX512VNNI__)
// As the processor's dot product wants them.
template <class Order>
struct Int8 {
  using Sum = I32;
  static constexpr int step = 4, x_bytes = 4, w_bytes = 4 * kPanel, max_rows = kRows;
  static constexpr bool pack_whole_rows = true;  // they have a scale each
  static constexpr bool is_tiled = false, spreads = false, is_pairs = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float* scale) {
    const F32 inverse = broadcast(inverse_scale(x, k, scale));
    for (int64_t i = 0; i < k; i += kLanes) {
      uint8_t bytes[kLanes];
      const I32 values = to_int(mul(load_some(x + i, k - i), inverse));
      store_bytes(bytes, add_int(values, broadcast_int(128)));
      Order::template put<4>(tile, i / step, m, height, bytes, (k - i + step - 1) / step);
    }
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, int64_t ahead,
                       I32 (&sums)[M][2]) {
    for (int64_t i = 0; i < steps; ++i, x += 4 * M, w += w_bytes) {
      ask<w_bytes>(w, ahead);
      const I32 low = load_int(w), high = load_int(w + 4 * kLanes);
      repeat<M>([&](int m) {
        const I32 value = broadcast_four_bytes(x + 4 * m);
        sums[m][0] = dot_bytes(sums[m][0], value, low);
        sums[m][1] = dot_bytes(sums[m][1], value, high);
      });
    }
  }

  static F32 finish(I32 sum, const Linear& linear, int64_t column, float row_scale) {
    return scaled(sum, linear, column, row_scale);
  }
};
#else
// Where the processor adds no products of bytes up in 32 bits: weights become words while they are
// multiplied, and activations lie as such, the first and third of four before the others.
template <class>
struct Int8 {
  using Sum = I32;
  static constexpr int step = 4, x_bytes = 8, w_bytes = 4 * kPanel;
  static constexpr int max_rows = kRegisters > 1 ? 4 : 12, sums = 2 * max_rows;
  static constexpr bool pack_whole_rows = true, is_tiled = false, spreads = true, is_pairs = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float* scale) {
    const F32 inverse = broadcast(inverse_scale(x, k, scale));
    for (int64_t i = 0; i < k; i += kLanes) {
      uint8_t words[2 * kLanes];
      const I32 values = to_int(mul(load_some(x + i, k - i), inverse));
      store_word_pairs(words, add_int(values, broadcast_int(128)));
      for (int64_t j = 0; j < kLanes / step && i + j * step < k; ++j)
        std::memcpy(tile + ((i / step + j) * height + m) * x_bytes, words + j * x_bytes, x_bytes);
    }
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, Ahead ahead,
                       I32 (&result)[M][2]) {
    multiply_parts<Int8, M>(x, w, steps, ahead, result);
  }

  template <int M, int Parts>
  static void multiply_columns(const uint8_t* x, const uint8_t* w, int first, int64_t steps,
                               Ahead ahead, I32 (&result)[M][2]) {
    Sums<I32, M, Parts> sums;
    sums.load(result, first);
    for (int64_t i = 0; i < steps; ++i, x += x_bytes * M, w += w_bytes) {
      ahead.fetch();
      repeat<Parts>([&](int p) {
        const uint8_t* columns = w + 4 * (first + p) * kRegisterLanes;
        const IntRegister low = load_int_register(columns);
        const IntRegister high = load_int_register(columns + 4 * kLanes);
        const IntRegister even[2] = {even_bytes(low), even_bytes(high)};
        const IntRegister odd[2] = {odd_bytes(low), odd_bytes(high)};
        repeat<M>([&](int m) {
          const IntRegister a = broadcast_four_bytes(x + m * x_bytes);
          const IntRegister b = broadcast_four_bytes(x + m * x_bytes + 4);
          repeat<2>([&](int side) {
            IntRegister sum = sums.at[m][p][side];
            sum = settled(add_int(sum, dot_words(a, even[side])));
            sums.at[m][p][side] = settled(add_int(sum, dot_words(b, odd[side])));
          });
        });
      });
    }
    sums.store(result, first);
  }

  static F32 finish(I32 sum, const Linear& linear, int64_t column, float row_scale) {
    return scaled(sum, linear, column, row_scale);
  }
};
#endif

}  // namespace streamwell
