// Puts rounded weights that a GGUF file has into panels, level by level: nothing is rounded anew, but a
// group's scale and minimum where the file has them as products.
//
// The blocks are those of llama.cpp (ggml/src/ggml-common.h), numbered as in the file. A block begins
// with its scale in float16. Of 32 weights: in Q4_1 a minimum follows; then come signed bytes (Q8_0), or
// low nibbles of the first sixteen and high ones of the others. Of 256 (Q4_K): the scale of minimums,
// then twelve bytes with eight scales and minimums of six bits, then the nibbles, low ones of 32 weights
// and high ones of the next 32.
#pragma once

#include "pack.h"

namespace streamwell {

enum SavedType : int32_t { kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ4_K = 12 };

inline int64_t block_bytes(int32_t type) {
  switch (type) {
    case kQ4_0: return 18;
    case kQ4_1: return 20;
    case kQ8_0: return 34;
    default: return 144;
  }
}

inline Kind kind_of(int32_t type) {
  if (type == kQ8_0) return kInt8Groups;
  return type == kQ4_0 ? kInt4 : kInt4Minimum;
}

constexpr int kHalfGroup = kGroup / 2;

// A group of a row: its levels as panels have them too, and what they stand for. Of four bits there are
// half as many bytes: the first half of the levels in low nibbles, and the others in high ones.
struct SavedGroup {
  uint8_t levels[kGroup];
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
  const uint8_t* block = row + group * block_bytes(type);
  SavedGroup found;
  std::memcpy(&found.scale, block, 2);
  if (type == kQ8_0) {
    for (int i = 0; i < kGroup; ++i) found.levels[i] = static_cast<uint8_t>(block[2 + i] ^ 0x80);
    return found;
  }
  const bool has_minimum = type == kQ4_1;
  if (has_minimum) std::memcpy(&found.minimum, block + 2, 2);
  std::memcpy(found.levels, block + (has_minimum ? 4 : 2), kHalfGroup);
  return found;
}

template <class Scheme, class Levels>
void pack_saved_panel(int32_t type, const uint8_t* blocks, int64_t n, int64_t k, int64_t column,
                      uint8_t* panel) {
  const int64_t row_bytes = k / (type == kQ4_K ? 256 : kGroup) * block_bytes(type);
  constexpr int bytes = Scheme::level_bytes / kPanel;  // of a group of a row
  for (int64_t group = 0; group < k / kGroup; ++group, panel += Scheme::w_bytes) {
    std::memset(panel, 0, Scheme::w_bytes);
    for (int c = 0; c < kPanel && column + c < n; ++c) {
      const SavedGroup saved = group_of(type, blocks + (column + c) * row_bytes, group);
      for (int i = 0; i < bytes; i += 4)
        std::memcpy(panel + Levels::place(c, i), saved.levels + i, 4);
      uint8_t* scale = panel + Scheme::level_bytes + 2 * c;
      std::memcpy(scale, &saved.scale, 2);
      if (std::is_same_v<Scheme, Int4Minimum>) std::memcpy(scale + 2 * kPanel, &saved.minimum, 2);
    }
  }
}

inline void pack_saved(int32_t type, const uint8_t* blocks, int64_t n, int64_t k, uint8_t* out) {
  const Kind kind = kind_of(type);
  const auto pack_panel = kind == kInt4          ? pack_saved_panel<Int4, FourBits>
                          : kind == kInt4Minimum ? pack_saved_panel<Int4Minimum, FourBits>
                                                 : pack_saved_panel<Int8Groups, EightBits>;
#pragma omp parallel for schedule(static)
  for (int64_t panel = 0; panel < panels_of(n); ++panel)
    pack_panel(type, blocks, n, k, panel * kPanel, out + panel * panel_bytes(kind, k));
}

}  // namespace streamwell
