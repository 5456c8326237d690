// Puts rounded weights that a GGUF file has into panels, level by level: nothing is rounded anew.
//
// The blocks are those of llama.cpp (ggml/src/ggml-common.h), numbered as in the file. Of 32 weights: a
// scale in float16, in Q4_1 a minimum, then signed bytes (Q8_0), or low nibbles of the first sixteen and
// high ones of the others. Of 256 weights, Q4_K and Q5_K: a scale of scales, one of minimums, twelve
// bytes with eight of each in six bits, in Q5_K the fifth bits, then nibbles, low ones of 32 weights and
// high ones of the next 32. Q6_K: nibbles, low ones of 64 weights and high ones of the next 64; two bits
// more of each; a signed byte for each sixteen weights; and what those are multiples of. MXFP4: a byte with
// the power of two that is the scale of 32 weights, and nibbles as in Q4_0.
#pragma once

#include "pack.h"

namespace streamwell {

enum SavedType : int32_t { kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kMXFP4 = 39 };

constexpr int kHalfGroup = kGroup / 2;

// Two nibbles to a byte: the first half of a group, and the second.
inline void put_nibbles(const uint8_t* bytes, int shift, uint8_t* words) {
  for (int i = 0; i < kHalfGroup; ++i)
    words[i] = static_cast<uint8_t>((bytes[i] >> shift & 15) |
                                    (bytes[i + kHalfGroup] >> shift & 15) << 4);
}

// How a block goes to one of a panel's outputs in `step`, its part of the panel. Here of 32 weights.
template <class Panel, int bytes>
struct SavedGroup {
  using Scheme = Panel;
  static constexpr int block_bytes = bytes;

  static void put(const uint8_t* block, int c, uint8_t* step) {
    constexpr int size = Scheme::level_bytes / kPanel, halves = bytes - size;
    uint8_t words[size];
    for (int i = 0; i < size; ++i)  // signed ones become unsigned
      words[i] = static_cast<uint8_t>(block[halves + i] ^ (size == kGroup ? 0x80 : 0));
    place_words<typename Scheme::LevelType>(step, c, words);
    for (int i = 0; i < halves; i += 2)
      std::memcpy(step + Scheme::level_bytes + kPanel * i + 2 * c, block + i, 2);
  }
};

struct SavedMxfp4 {
  using Scheme = Mxfp4;
  static constexpr int block_bytes = 17;

  static void put(const uint8_t* block, int c, uint8_t* step) {
    place_words<SmallFloats>(step, c, block + 1);
    const float scale = block[0] == 255 ? NAN : std::ldexp(0.5f, block[0] - 127);  // levels are twice as large
    const uint16_t stored = _cvtss_sh(scale, 0);  // as it is, between 2^-24 and 2^15
    std::memcpy(step + Scheme::level_bytes + 2 * c, &stored, 2);
  }
};

// Q4_K and Q5_K.
template <class Panel>
struct SavedSuperBlock {
  using Scheme = Panel;
  static constexpr bool has_fifth = std::is_same_v<Scheme, Int5K>;
  static constexpr int block_bytes = has_fifth ? 176 : 144;

  static void put(const uint8_t* block, int c, uint8_t* step) {
    uint8_t* side = Scheme::side_of(step, &c);
    const uint8_t *packed = block + 4, *fifth = block + 16;
    const uint8_t* nibbles = fifth + (has_fifth ? kGroup : 0);
    Scheme::put_units(side, c, half_bits_at(block), half_bits_at(block + 2) ^ 0x8000);
    for (int g = 0; g < kSuperGroups; ++g) {
      int scale = packed[g] & 63, minimum = packed[g + 4] & 63;
      if (g >= 4) {
        scale = (packed[g + 4] & 15) | (packed[g - 4] >> 6 << 4);
        minimum = (packed[g + 4] >> 4) | (packed[g] >> 6 << 4);
      }
      side[Scheme::scales_at + g * kLanes + c] = static_cast<uint8_t>(scale);
      side[Scheme::minimums_at + g * kLanes + c] = static_cast<uint8_t>(minimum);
      uint8_t words[20] = {};
      put_nibbles(nibbles + g / 2 * kGroup, g % 2 * 4, words);
      for (int i = 0; has_fifth && i < kGroup; ++i)
        words[16 + i % 4] |= static_cast<uint8_t>((fifth[i] >> g & 1) << i / 4);
      Scheme::put_levels(side, g, c, words);
    }
  }
};

struct SavedQ6K {
  using Scheme = Int6K;
  static constexpr int block_bytes = 210;

  static void put(const uint8_t* block, int c, uint8_t* step) {
    uint8_t* side = Int6K::side_of(step, &c);
    const uint8_t* scales = block + 192;
    Int6K::put_units(side, c, half_bits_at(block + 208), 0);
    for (int i = 0; i < Int6K::num_scales; ++i) side[Int6K::scales_at + i * kLanes + c] = scales[i];
    for (int g = 0; g < kSuperGroups; ++g) {
      const int quarter = g % 4;
      const uint8_t* high = block + 128 + g / 4 * kGroup;
      uint8_t words[24] = {};
      put_nibbles(block + g / 4 * 64 + quarter % 2 * kGroup, quarter / 2 * 4, words);
      for (int i = 0; i < kGroup; ++i)
        words[16 + i / 16 * 4 + i % 4] |=
            static_cast<uint8_t>((high[i] >> 2 * quarter & 3) << i / 4 % 4 * 2);
      Int6K::put_levels(side, g, c, words);
    }
  }
};

template <class Saved>
void pack_blocks(const uint8_t* blocks, int64_t n, int64_t k, uint8_t* out) {
  using Scheme = typename Saved::Scheme;
  const int64_t steps = k / Scheme::step;
#pragma omp parallel for schedule(static)
  for (int64_t panel = 0; panel < panels_of(n); ++panel)
    for (int64_t i = 0; i < steps; ++i) {
      uint8_t* step = out + (panel * steps + i) * Scheme::w_bytes;
      std::memset(step, 0, Scheme::w_bytes);
      for (int c = 0; c < kPanel && panel * kPanel + c < n; ++c)
        Saved::put(blocks + ((panel * kPanel + c) * steps + i) * Saved::block_bytes, c, step);
    }
}

inline void pack_saved(int32_t type, const uint8_t* blocks, int64_t n, int64_t k, uint8_t* out) {
  switch (type) {
    case kQ4_0: return pack_blocks<SavedGroup<Int4, 18>>(blocks, n, k, out);
    case kQ4_1: return pack_blocks<SavedGroup<Int4Minimum, 20>>(blocks, n, k, out);
    case kMXFP4: return pack_blocks<SavedMxfp4>(blocks, n, k, out);
    case kQ8_0: return pack_blocks<SavedGroup<Int8Groups, 34>>(blocks, n, k, out);
    case kQ4_K: return pack_blocks<SavedSuperBlock<Int4K>>(blocks, n, k, out);
    case kQ5_K: return pack_blocks<SavedSuperBlock<Int5K>>(blocks, n, k, out);
    case kQ6_K: return pack_blocks<SavedQ6K>(blocks, n, k, out);
  }
}

}  // namespace streamwell
