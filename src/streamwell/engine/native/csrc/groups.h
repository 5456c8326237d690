// Weights in groups of 32 with a scale each, and perhaps a minimum.
//
// The layout is ours, the arithmetic that of llama.cpp's Q4_0 and Q8_0 on Q8_0, or of Q4_1 on Q8_1:
// activations are signed bytes with a scale per row and group. Of a group a panel has two halves of 16
// outputs each, then the scales, then the minimums. Either a level in the middle weighs nothing, or a
// level of zero weighs the minimum.
#pragma once

#include "levels.h"

namespace streamwell {

// A row's share of a tile: of each group its bytes; then, after those of the others, what gives them
// their size back, and then the sums of `Sums` equal parts of them, `factor` times.
template <int Sums>
struct GroupedRows {
  static constexpr int bytes = kGroup + 4 + 4 * Sums;  // of a row and group

  static void pack(const float* x, int64_t k, uint8_t* tile, int m, int height, float factor) {
    for (int64_t i = 0; i < k; i += kGroup, tile += bytes * height) {
      auto* scales = reinterpret_cast<float*>(tile + kGroup * height);
      const F32 inverse = broadcast(inverse_scale(x + i, kGroup, scales + m));
      F32 totals[Sums];
      for (F32& total : totals) total = zero();
      for (int j = 0; j < kGroup; j += kLanes) {
        uint8_t packed[kLanes];
        const I32 values = to_int(mul(load(x + i + j), inverse));
        store_bytes(packed, values);
        F32& total = totals[j * Sums / kGroup];
        total = add(total, to_float(values));
        SideBySide::put<kLanes / 4>(tile, j / 4, m, height, packed, kLanes / 4);
      }
      for (int part = 0; part < Sums; ++part)
        scales[(1 + part) * height + m] = factor * scales[m] * sum(totals[part]);
    }
  }
};

template <class Levels, bool has_minimum>
struct Groups {
  using Sum = F32;
  using LevelType = Levels;
  using Rows = GroupedRows<1>;
  static constexpr int step = kGroup, x_bytes = Rows::bytes;
  static constexpr int level_bytes = 2 * half_bytes<Levels>;
  static constexpr int w_bytes = level_bytes + (has_minimum ? 4 : 2) * kPanel;
  static constexpr int max_rows = kGroupRows;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = false, is_pairs = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    Rows::pack(x, k, tile, m, height, has_minimum ? 1.0f : -zero_level<Levels>);
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, int64_t ahead,
                       F32 (&sums)[M][2]) {
    for (int64_t i = 0; i < steps; ++i, x += x_bytes * M, w += w_bytes) {
      ask<w_bytes>(w, ahead);
      const float* scales = reinterpret_cast<const float*>(x + step * M);
      const auto* weight_scales = reinterpret_cast<const uint16_t*>(w + level_bytes);
      for (int side = 0; side < 2; ++side) {
        // hidden, or all scales and addresses are at hand for both sides, in more registers than there are
        if constexpr (kRegisters == 1) asm("" : "+r"(scales));
        if constexpr (M > 4) asm("" : "+r"(x));
        I32 dots[M];
        dot<Levels, M>(x, w + side * half_bytes<Levels>, dots);
        const F32 weight_scale = load_half(weight_scales + side * kLanes);
        if constexpr (has_minimum) {
          const F32 minimum = load_half(weight_scales + kPanel + side * kLanes);
          for (int m = 0; m < M; ++m) {
            const F32 product = mul(to_float(dots[m]), broadcast(scales[m]));
            const F32 sum = fma(product, weight_scale, sums[m][side]);
            sums[m][side] = fma(broadcast(scales[M + m]), minimum, sum);
          }
        } else {
          for (int m = 0; m < M; ++m) {
            const F32 product =
                fma(to_float(dots[m]), broadcast(scales[m]), broadcast(scales[M + m]));
            sums[m][side] = fma(product, weight_scale, sums[m][side]);
          }
        }
      }
    }
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }

  // The weights of one of a panel's outputs in one of its groups.
  static void unpack_group(const uint8_t* panel, int c, int64_t group, float* out) {
    panel += group * w_bytes;
    uint8_t words[4 * Levels::words];
    take_words<Levels>(panel, c, words);
    const uint8_t* scale = panel + level_bytes + 2 * c;
    const float minimum = has_minimum ? half_at(scale + 2 * kPanel) : 0.0f;
    const int none = has_minimum ? 0 : zero_level<Levels>;
    for (int i = 0; i < kGroup; ++i)
      out[i] = static_cast<float>(Levels::level(words, i) - none) * half_at(scale) + minimum;
  }
};

using Int4 = Groups<FourBits, false>;
using Int4Minimum = Groups<FourBits, true>;
using Mxfp4 = Groups<SmallFloats, false>;
using Int8Groups = Groups<EightBits, false>;

}  // namespace streamwell
