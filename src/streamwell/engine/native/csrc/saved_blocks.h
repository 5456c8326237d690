// Puts 4-bit weights that a GGUF file has into panels, level by level: nothing is rounded anew, but a
// group's scale and minimum where the file has them as products.
//
// The blocks are those of llama.cpp (ggml/src/ggml-common.h), numbered as in the file. A block begins
// with its scale in float16. Of 32 weights: in Q4_1 a minimum follows, then low nibbles of the first
// sixteen and high ones of the others. Of 256 (Q4_K): the scale of minimums, then twelve bytes with
// eight scales and minimums of six bits, then the nibbles, low ones of 32 weights and high ones of the
// next 32.
#pragma once

#include "pack.h"

namespace streamwell {

enum SavedType : int32_t { kQ4_0 = 2, kQ4_1 = 3, kQ4_K = 12 };

inline int64_t saved_bytes(int32_t type, int64_t k) {
  if (type == kQ4_K) return k / 256 * 144;
  return k / kGroup * (type == kQ4_1 ? 20 : 18);
}

constexpr int kHalfGroup = kGroup / 2;

// A group of a row: its levels, the first half in low nibbles and the others in high ones, as panels
// have them too, and what they stand for.
struct SavedGroup {
  uint8_t levels[kHalfGroup];
  uint16_t scale, minimum;  // float16
};

inline SavedGroup group_of_k(const uint8_t* row, int64_t group) {
  const uint8_t* block = row + group / 8 * 144;
  const uint8_t* packed = block + 4;
  const int j = static_cast<int>(group % 8);
  int scale = packed[j] & 63, minimum = packed[j + 4] & 63;
  if (j >= 4) {
    scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4);
    minimum = (packed[j + 4] >> 4) | (packed[j] >> 6 << 4);
  }
  SavedGroup found;
  const uint8_t* nibbles = block + 16 + j / 2 * kGroup;
  const int shift = j % 2 * 4;
  for (int i = 0; i < kHalfGroup; ++i)
    found.levels[i] = static_cast<uint8_t>((nibbles[i] >> shift & 15) |
                                           (nibbles[i + kHalfGroup] >> shift & 15) << 4);
  found.scale = _cvtss_sh(half_at(block) * static_cast<float>(scale), 0);
  found.minimum = _cvtss_sh(-half_at(block + 2) * static_cast<float>(minimum), 0);
  return found;
}

inline SavedGroup group_of(int32_t type, const uint8_t* row, int64_t group) {
  if (type == kQ4_K) return group_of_k(row, group);
  const bool has_minimum = type == kQ4_1;
  const uint8_t* block = row + group * (has_minimum ? 20 : 18);
  SavedGroup found;
  std::memcpy(&found.scale, block, 2);
  if (has_minimum) std::memcpy(&found.minimum, block + 2, 2);
  std::memcpy(found.levels, block + (has_minimum ? 4 : 2), kHalfGroup);
  return found;
}

inline void pack_saved_panel(int32_t type, const uint8_t* blocks, int64_t n, int64_t k,
                             int64_t column, uint8_t* panel) {
  const int64_t row_bytes = saved_bytes(type, k);
  const int64_t group_bytes = type == kQ4_0 ? Int4::w_bytes : Int4Minimum::w_bytes;
  for (int64_t group = 0; group < k / kGroup; ++group, panel += group_bytes) {
    std::memset(panel, 0, group_bytes);
    for (int c = 0; c < kPanel && column + c < n; ++c) {
      const SavedGroup saved = group_of(type, blocks + (column + c) * row_bytes, group);
      for (int i = 0; i < kHalfGroup; i += 4)
        std::memcpy(panel + level_byte(c, i), saved.levels + i, 4);
      uint8_t* scale = panel + kLevelsBytes + 2 * c;
      std::memcpy(scale, &saved.scale, 2);
      if (type != kQ4_0) std::memcpy(scale + 2 * kPanel, &saved.minimum, 2);
    }
  }
}

// Q4_0 becomes `kInt4`, the others become `kInt4Minimum`.
inline void pack_saved(int32_t type, const uint8_t* blocks, int64_t n, int64_t k, uint8_t* out) {
  const int64_t bytes = panel_bytes(type == kQ4_0 ? kInt4 : kInt4Minimum, k);
#pragma omp parallel for schedule(static)
  for (int64_t panel = 0; panel < panels_of(n); ++panel)
    pack_saved_panel(type, blocks, n, k, panel * kPanel, out + panel * bytes);
}

}  // namespace streamwell
