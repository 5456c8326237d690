// Weights that are small whole numbers, in groups of 32 with a scale each, and perhaps a minimum.
//
// The layout is ours, the arithmetic that of llama.cpp's Q4_0 and Q8_0 on Q8_0, or of Q4_1 on Q8_1:
// activations are signed bytes with a scale per row and group. Of a group a panel has two halves of 16
// outputs each, then the scales, then the minimums. Levels are unsigned: one of `zero` weighs nothing,
// or a level of zero weighs the minimum.
#pragma once

#include "bytes.h"

namespace streamwell {

template <class Levels, bool has_minimum>
struct Groups {
  using Sum = F32;
  static constexpr int step = kGroup, x_bytes = kGroup + 8;
  static constexpr int level_bytes = 2 * Levels::half;
  static constexpr int w_bytes = level_bytes + (has_minimum ? 4 : 2) * kPanel;
  static constexpr int max_rows = kRegisters > 1 ? 8 : kRows;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    for (int64_t i = 0; i < k; i += step, tile += x_bytes * height) {
      float scale;
      const F32 inverse = broadcast(inverse_scale(x + i, step, &scale));
      F32 totals = zero();
      for (int j = 0; j < step; j += kLanes) {
        uint8_t bytes[kLanes];
        const I32 values = to_int(mul(load(x + i + j), inverse));
        store_bytes(bytes, values);
        totals = add(totals, to_float(values));
        for (int b = 0; b < kLanes; b += 4)
          std::memcpy(tile + ((j + b) / 4 * height + m) * 4, bytes + b, 4);
      }
      auto* scales = reinterpret_cast<float*>(tile + step * height);
      scales[m] = scale;
      scales[height + m] = (has_minimum ? 1.0f : -Levels::zero) * scale * sum(totals);
    }
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, int64_t ahead,
                       F32 (&sums)[M][2]) {
    for (int64_t i = 0; i < steps; ++i, x += x_bytes * M, w += w_bytes) {
      if (ahead) fetch<w_bytes>(w + ahead);
      const float* scales = reinterpret_cast<const float*>(x + step * M);
      const auto* weight_scales = reinterpret_cast<const uint16_t*>(w + level_bytes);
      for (int side = 0; side < 2; ++side) {
        // compilers would have all scales at hand for both sides, and run out of large registers
        if constexpr (kRegisters == 1) asm("" : "+r"(scales));
        I32 dots[M];
        Levels::template multiply<M>(x, w + side * Levels::half, dots);
        const F32 weight_scale = load_half(weight_scales + side * kLanes);
        if constexpr (has_minimum) {
          const F32 minimum = load_half(weight_scales + kPanel + side * kLanes);
          for (int m = 0; m < M; ++m) {
            const F32 dot = mul(to_float(dots[m]), broadcast(scales[m]));
            sums[m][side] = fma(dot, weight_scale, sums[m][side]);
            sums[m][side] = fma(broadcast(scales[M + m]), minimum, sums[m][side]);
          }
        } else {
          for (int m = 0; m < M; ++m) {
            const F32 dot = fma(to_float(dots[m]), broadcast(scales[m]), broadcast(scales[M + m]));
            sums[m][side] = fma(dot, weight_scale, sums[m][side]);
          }
        }
      }
    }
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }
};

// Four bits: a half has four vectors, low and high nibbles four steps of k apart.
struct FourBits {
  static constexpr int half = 4 * 4 * kLanes;
  static constexpr float zero = 8.0f;

  // Levels of one of a panel's outputs, from one byte on; the sixteen after them are high nibbles.
  static int place(int c, int i) {
    return c / kLanes * half + (i / 4 % 4 * kLanes + c % kLanes) * 4 + i % 4;
  }

  static int level_at(const uint8_t* group, int c, int i) {
    return group[place(c, i)] >> (i / 16 * 4) & 15;
  }

#if defined(__AVX512F__)
  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
    I32 dots[M];  // lives in registers
    for (int m = 0; m < M; ++m) dots[m] = zero_int();
    for (int j = 0; j < 4; ++j, x += 4 * M, w += 4 * kLanes) {
      const I32 both = load_int(w);
      const I32 low = mask_bits(both, 0x0f0f0f0f);
      const I32 high = mask_bits(shift_right(both, 4), 0x0f0f0f0f);
      for (int m = 0; m < M; ++m) {
        dots[m] = dot_bytes(dots[m], low, broadcast_four_bytes(x + 4 * m));
        dots[m] = dot_bytes(dots[m], high, broadcast_four_bytes(x + 4 * m + 16 * M));
      }
    }
    std::memcpy(&result, &dots, sizeof(dots));
  }
#else
  // A nibble times a byte is small enough for sixteen of them to be added up in 16 bits.
  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
    static_assert(kGroup / 2 * 15 * 127 < 1 << 15);
    for (int part = 0; part < kRegisters; ++part) {
      IntRegister dots[M];
      repeat<M>([&](int m) { dots[m] = IntRegister{}; });
      for (int j = 0; j < 4; ++j) {
        const IntRegister both = load_int_register(w + 4 * (j * kLanes + part * kRegisterLanes));
        const IntRegister low = mask_bits(both, 0x0f0f0f0f);
        const IntRegister high = mask_bits(shift_right(both, 4), 0x0f0f0f0f);
        repeat<M>([&](int m) {
          const uint8_t* word = x + 4 * (j * M + m);
          IntRegister sum = dots[m];
          sum = settled(add_words(sum, dot_bytes(low, broadcast_four_bytes(word))));
          word += 16 * M;
          dots[m] = settled(add_words(sum, dot_bytes(high, broadcast_four_bytes(word))));
        });
      }
      repeat<M>([&](int m) {
        register_of(result[m], part) = dot_words(dots[m], broadcast_words(1));
      });
    }
  }
#endif
};

// Eight bits: a half has eight vectors.
struct EightBits {
  static constexpr int half = 8 * 4 * kLanes;
  static constexpr float zero = 128.0f;

  static int place(int c, int i) {
    return c / kLanes * half + (i / 4 * kLanes + c % kLanes) * 4 + i % 4;
  }

  static int level_at(const uint8_t* group, int c, int i) { return group[place(c, i)]; }

#if defined(__AVX512F__)
  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
    I32 dots[M];  // lives in registers
    for (int m = 0; m < M; ++m) dots[m] = zero_int();
    for (int j = 0; j < 8; ++j, x += 4 * M, w += 4 * kLanes) {
      const I32 levels = load_int(w);
      for (int m = 0; m < M; ++m)
        dots[m] = dot_bytes(dots[m], levels, broadcast_four_bytes(x + 4 * m));
    }
    std::memcpy(&result, &dots, sizeof(dots));
  }
#else
  // Nibble by nibble, for the same reason: all low ones, then all high ones.
  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
    for (int part = 0; part < kRegisters; ++part) {
      IntRegister low[M], high[M];
      add_nibbles<M>(x, w + 4 * part * kRegisterLanes, 0, low);
      add_nibbles<M>(x, w + 4 * part * kRegisterLanes, 4, high);
      repeat<M>([&](int m) {
        const IntRegister sum = dot_words(low[m], broadcast_words(1));
        register_of(result[m], part) = add_int(sum, dot_words(high[m], broadcast_words(16)));
      });
    }
  }

 private:
  template <int M>
  static void add_nibbles(const uint8_t* x, const uint8_t* w, int shift, IntRegister (&sums)[M]) {
    repeat<M>([&](int m) { sums[m] = IntRegister{}; });
    for (int j = 0; j < 8; ++j) {
      const IntRegister both = load_int_register(w + 4 * j * kLanes);
      const IntRegister nibbles = mask_bits(shift_right(both, shift), 0x0f0f0f0f);
      repeat<M>([&](int m) {
        const IntRegister word = broadcast_four_bytes(x + 4 * (j * M + m));
        sums[m] = settled(add_words(sums[m], dot_bytes(nibbles, word)));
      });
    }
  }
#endif
};

using Int4 = Groups<FourBits, false>;
using Int4Minimum = Groups<FourBits, true>;
using Int8Groups = Groups<EightBits, false>;

}  // namespace streamwell
