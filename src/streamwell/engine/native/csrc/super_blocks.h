// Weights in super-blocks of 256 inputs, whose groups have small whole numbers for scales.
//
// The layout is ours, the weights are those of llama.cpp's Q4_K, Q5_K and Q6_K, and the activations
// those of `groups.h`. Of a super-block a panel has two halves of 16 outputs. A half begins with what
// scales, and then minimums, are multiples of, in float16 for each output; then come the bytes of the
// scales, part by part of the groups, and of the minimums; then the levels, group by group.
#pragma once

#include "groups.h"

namespace streamwell {

constexpr int kSuperBlock = 256, kSuperGroups = kSuperBlock / kGroup;

// Each of the `parts` of a group has a scale of its own.
template <class Levels, int parts, bool has_minimum>
struct SuperBlocks {
  using Sum = F32;
  using Rows = GroupedRows<parts>;
  static constexpr int step = kSuperBlock, x_bytes = kSuperGroups * Rows::bytes;
  static constexpr int num_scales = kSuperGroups * parts;
  static constexpr int scales_at = 2 * 2 * kLanes;
  static constexpr int minimums_at = scales_at + num_scales * kLanes;
  static constexpr int levels_at = minimums_at + (has_minimum ? kSuperGroups * kLanes : 0);
  static constexpr int side_bytes = levels_at + kSuperGroups * half_bytes<Levels>;
  static constexpr int w_bytes = 2 * side_bytes;
  static constexpr int max_rows = std::min(kGroupRows, 11);  // whose sums live in registers, too
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = false, is_pairs = false;
  static_assert(levels_at % 64 == 0 && side_bytes % 64 == 0);

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    Rows::pack(x, k, tile, m, height, has_minimum ? 1.0f : -zero_level<Levels>);
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, int64_t ahead,
                       F32 (&sums)[M][2]) {
    for (int64_t i = 0; i < steps; ++i, x += x_bytes * M)
      for (int side = 0; side < 2; ++side, w += side_bytes) {
        F32 totals[M];  // lives in registers
        for (int m = 0; m < M; ++m) totals[m] = sums[m][side];
        multiply_side<M>(x, w, ahead, totals);
        for (int m = 0; m < M; ++m) sums[m][side] = totals[m];
      }
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }

  // The half that an output of a panel is in, and its number there.
  template <class Byte>
  static Byte* side_of(Byte* super_block, int* c) {
    Byte* side = super_block + *c / kLanes * side_bytes;
    *c %= kLanes;
    return side;
  }

  static void put_units(uint8_t* side, int c, uint16_t scale, uint16_t minimum) {
    std::memcpy(side + 2 * c, &scale, 2);
    std::memcpy(side + 2 * (kLanes + c), &minimum, 2);
  }

  static void put_levels(uint8_t* side, int g, int c, const uint8_t* words) {
    place_words<Levels>(side + levels_at + g * half_bytes<Levels>, c, words);
  }

  // The weights of one of a panel's outputs in one of its groups.
  static void unpack_group(const uint8_t* panel, int c, int64_t group, float* out) {
    const uint8_t* side = side_of(panel + group / kSuperGroups * w_bytes, &c);
    const auto g = static_cast<int>(group % kSuperGroups);
    const auto* small = reinterpret_cast<const int8_t*>(side + c);
    uint8_t words[4 * Levels::words];
    take_words<Levels>(side + levels_at + g * half_bytes<Levels>, c, words);
    const uint8_t* unit = side + 2 * c;
    const float minimum =
        has_minimum ? half_at(unit + 2 * kLanes) * small[minimums_at + g * kLanes] : 0.0f;
    const int none = has_minimum ? 0 : zero_level<Levels>;
    for (int i = 0; i < kGroup; ++i) {
      const int part = g * parts + i * parts / kGroup;
      const float scale = half_at(unit) * small[scales_at + part * kLanes];
      out[i] = static_cast<float>(Levels::level(words, i) - none) * scale + minimum;
    }
  }

 private:
  template <int M>
  [[gnu::always_inline]] static void multiply_side(const uint8_t* x, const uint8_t* w,
                                                   int64_t ahead, F32 (&totals)[M]) {
    const auto* units = reinterpret_cast<const uint16_t*>(w);
    ask<levels_at>(w, ahead);
    for (int g = 0; g < kSuperGroups; ++g, x += Rows::bytes * M) {
      const uint8_t* levels = w + levels_at + g * half_bytes<Levels>;
      ask<half_bytes<Levels>>(levels, ahead);
      const auto* scales = reinterpret_cast<const float*>(x + kGroup * M);
      repeat<parts>([&](int part) STREAMWELL_INLINE {
        constexpr int words = kGroupWords / parts;
        I32 dots[M];
        const uint8_t* row_words = x;  // hidden, or each address is computed before it is needed
        asm("" : "+r"(row_words));
        if (part == 0) dot<Levels, M, 0, words>(row_words, levels, dots);
        if (part > 0) dot<Levels, M, kGroupWords - words, words>(row_words, levels, dots);
        const F32 scale =
            mul(load_half(units), load_signed_bytes(w + scales_at + (g * parts + part) * kLanes));
        if constexpr (has_minimum) {
          const F32 minimum =
              mul(load_half(units + kLanes), load_signed_bytes(w + minimums_at + g * kLanes));
          for (int m = 0; m < M; ++m) {
            const F32 product = mul(to_float(dots[m]), broadcast(scales[m]));
            totals[m] = fma(product, scale, totals[m]);
            totals[m] = fma(broadcast(scales[M + m]), minimum, totals[m]);
          }
        } else {
          for (int m = 0; m < M; ++m) {
            const F32 product = fma(to_float(dots[m]), broadcast(scales[m]),
                                    broadcast(scales[(1 + part) * M + m]));
            totals[m] = fma(product, scale, totals[m]);
          }
        }
      });
    }
  }
};

using Int4K = SuperBlocks<FourBits, 1, true>;
using Int5K = SuperBlocks<FiveBits, 1, true>;
using Int6K = SuperBlocks<SixBits, 2, false>;

}  // namespace streamwell
