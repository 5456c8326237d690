// Puts the `[n, k]` weights of a linear layer into panels, as `schemes.h` reads them.
#pragma once

#include <type_traits>
#include <vector>

#include "coding.h"
#include "super_blocks.h"

namespace streamwell {

// What a coded kind is when it is multiplied; other kinds are what they are.
inline int32_t plain_kind(int32_t kind) {
  return kind == kCodedPairs ? kBfloat16Pairs : kind == kCodedBfloat16 ? kBfloat16 : kind;
}

// Bytes of a panel of any kind but coded ones.
inline int64_t panel_bytes(int32_t kind, int64_t k) {
  switch (kind) {
    case kFloat32: return k * kPanel * 4;
    case kInt8: return words_of(k, 4) * 4 * kPanel;
    case kBfloat16Pairs: return words_of(k, 2) * 4 * kPanel;
    case kInt4: return k / Int4::step * Int4::w_bytes;
    case kInt4Minimum: return k / Int4Minimum::step * Int4Minimum::w_bytes;
    case kMxfp4: return k / Mxfp4::step * Mxfp4::w_bytes;
    case kInt8Groups: return k / Int8Groups::step * Int8Groups::w_bytes;
    case kInt4K: return k / Int4K::step * Int4K::w_bytes;
    case kInt5K: return k / Int5K::step * Int5K::w_bytes;
    case kInt6K: return k / Int6K::step * Int6K::w_bytes;
    default: return k * kPanel * 2;
  }
}

// Where a panel of 16-bit weights has that of input `i` and output `c`.
inline int64_t place_of(int32_t kind, int64_t i, int c) {
  if (kind == kFloat16) return i * kPanel + c;
  return kind == kBfloat16 ? i * kPanel + c % kLanes * 2 + c / kLanes : (i / 2 * kPanel + c) * 2 + i % 2;
}

inline float widen(uint16_t bfloat16) {
  const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// A row of the source as floats, whatever it is stored as; zeros where there is no such row.
inline void read_row(const void* source, int32_t kind, int64_t n, int64_t k, int64_t row,
                     float* out) {
  if (row >= n) {
    std::fill(out, out + k, 0.0f);
  } else if (kind == kFloat32) {
    std::memcpy(out, static_cast<const float*>(source) + row * k, k * 4);
  } else if (kind == kBfloat16) {
    const auto* bits = static_cast<const uint16_t*>(source) + row * k;
    for (int64_t i = 0; i < k; ++i) out[i] = widen(bits[i]);
  } else {
    const auto* bits = static_cast<const uint16_t*>(source) + row * k;
    for (int64_t i = 0; i < k; ++i) out[i] = _cvtsh_ss(bits[i]);
  }
}

inline void pack_float32(const float* rows, int64_t k, uint8_t* panel) {
  auto* out = reinterpret_cast<float*>(panel);
  for (int64_t i = 0; i < k; ++i)
    for (int c = 0; c < kPanel; ++c) out[i * kPanel + c] = rows[c * k + i];
}

// The source has 16 bits already, so nothing is rounded here.
inline void pack_16_bits(const uint16_t* source, int32_t kind, int64_t n, int64_t k,
                         int64_t column, uint8_t* panel) {
  auto* out = reinterpret_cast<uint16_t*>(panel);
  for (int c = 0; c < kPanel; ++c) {
    const int64_t place = place_of(kind, 0, c);
    const bool exists = column + c < n;
    for (int64_t i = 0; i < k; ++i)
      out[i * kPanel + place] = exists ? source[(column + c) * k + i] : 0;
  }
}

inline uint16_t to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);  // still not a number
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to nearest, ties to even
}

inline void pack_bfloat16_pairs(const float* rows, int64_t k, uint8_t* panel) {
  auto* out = reinterpret_cast<uint16_t*>(panel);
  std::memset(panel, 0, panel_bytes(kBfloat16Pairs, k));
  for (int c = 0; c < kPanel; ++c)
    for (int64_t i = 0; i < k; ++i)
      out[place_of(kBfloat16Pairs, i, c)] = to_bfloat16(rows[c * k + i]);
}

inline void pack_int8(const float* rows, int64_t k, int64_t column, uint8_t* panel, float* scales,
                      float* offsets) {
  std::memset(panel, 0, panel_bytes(kInt8, k));
  for (int c = 0; c < kPanel; ++c) {
    const float largest = largest_magnitude(rows + c * k, k);
    const float scale = std::max(largest / 127.0f, 1e-30f);
    int64_t total = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int value = static_cast<int>(std::nearbyintf(rows[c * k + i] / scale));
      panel[(i / 4 * kPanel + c) * 4 + i % 4] = static_cast<uint8_t>(value);
      total += value;
    }
    scales[column + c] = scale;
    offsets[column + c] = -128.0f * scale * static_cast<float>(total);
  }
}

// The weight of largest magnitude in a group, or what is not a number if any of them is not finite.
inline float extreme_of(const float* weights) {
  float extreme = 0.0f, poison = 0.0f;
  for (int i = 0; i < kGroup; ++i) poison += weights[i] * 0.0f;
  for (int i = 0; i < kGroup; ++i)
    if (std::fabs(weights[i]) > std::fabs(extreme)) extreme = weights[i];
  return extreme + poison;
}

// Levels of one output in a group, as multiples of a scale, which is rounded to float16.
template <class Scheme, class Levels, class Put>
void pack_group(const float* weights, float scale, int c, uint8_t* group, const Put& put) {
  const uint16_t stored = _cvtss_sh(scale, 0);
  const float rounded = _cvtsh_ss(stored);
  const float divisor = rounded != 0.0f ? rounded : 1.0f;
  std::memcpy(group + Scheme::level_bytes + 2 * c, &stored, 2);
  uint8_t words[4 * Levels::words] = {};
  for (int i = 0; i < kGroup; ++i) {
    const int level = static_cast<int>(std::nearbyintf(weights[i] / divisor)) + zero_level<Levels>;
    put(words, i, std::min(Levels::largest, std::max(0, level)));
  }
  place_words<Levels>(group, c, words);
}

// The value of largest magnitude becomes -8, so that all 16 levels are used (as in Q4_0).
inline void pack_int4(const float* rows, int64_t k, uint8_t* panel) {
  const auto put = [](uint8_t* words, int i, int level) {
    words[i % 16] |= static_cast<uint8_t>(level << (i / 16 * 4));
  };
  for (int64_t first = 0; first < k; first += kGroup, panel += Int4::w_bytes)
    for (int c = 0; c < kPanel; ++c) {
      const float* weights = rows + c * k + first;
      pack_group<Int4, FourBits>(weights, extreme_of(weights) / -8.0f, c, panel, put);
    }
}

// As Q8_0.
inline void pack_int8_groups(const float* rows, int64_t k, uint8_t* panel) {
  const auto put = [](uint8_t* words, int i, int level) { words[i] = static_cast<uint8_t>(level); };
  for (int64_t first = 0; first < k; first += kGroup, panel += Int8Groups::w_bytes)
    for (int c = 0; c < kPanel; ++c) {
      const float* weights = rows + c * k + first;
      const float scale = std::fabs(extreme_of(weights)) / 127.0f;
      pack_group<Int8Groups, EightBits>(weights, scale, c, panel, put);
    }
}

// The weights `[n, k]` of a layer as they are before they are packed.
struct Unpacked {
  const void* weights;
  int32_t kind;
  int64_t n, k;
};

// `rows` has room for those of a panel.
inline void pack_panel(const Unpacked& source, int32_t kind, int64_t panel, float* rows, uint8_t* target,
                       float* scales, float* offsets) {
  const int64_t column = panel * kPanel, k = source.k;
  if (kind == kBfloat16 || kind == kFloat16)
    return pack_16_bits(static_cast<const uint16_t*>(source.weights), kind, source.n, k, column, target);
  for (int c = 0; c < kPanel; ++c)
    read_row(source.weights, source.kind, source.n, k, column + c, rows + c * k);
  if (kind == kFloat32) pack_float32(rows, k, target);
  if (kind == kBfloat16Pairs) pack_bfloat16_pairs(rows, k, target);
  if (kind == kInt8) pack_int8(rows, k, column, target, scales, offsets);
  if (kind == kInt4) pack_int4(rows, k, target);
  if (kind == kInt8Groups) pack_int8_groups(rows, k, target);
}

// Weights of a panel of a coded kind, in whole chunks, with zeros at its end.
inline int64_t weights_of(int32_t kind, int64_t k) {
  const int64_t weights = panel_bytes(plain_kind(kind), k) / 2;
  return (weights + kChunkWeights - 1) / kChunkWeights * kChunkWeights;
}

// Calls `body` with the number of each panel, and a thread's room for its rows.
template <class Body>
void each_panel(const Unpacked& source, const Body& body) {
#pragma omp parallel
  {
    std::vector<float> rows(kPanel * source.k);
#pragma omp for schedule(static)
    for (int64_t panel = 0; panel < panels_of(source.n); ++panel) body(panel, rows.data());
  }
}

// How many weights of a panel will have no code, without packing it.
inline int64_t count_exceptions(const Unpacked& source, int32_t kind, int64_t panel, float* row) {
  const int64_t first = panel * kPanel, last = std::min(first + kPanel, source.n), k = source.k;
  UpperBytes bytes;
  bytes.add_zeros(weights_of(kind, k) - (last - first) * k);
  std::vector<uint16_t> rounded(source.kind == kBfloat16 ? 0 : k);
  for (int64_t n = first; n < last; ++n) {
    const auto* weights = static_cast<const uint16_t*>(source.weights) + n * k;
    if (source.kind != kBfloat16) {
      read_row(source.weights, source.kind, source.n, k, n, row);
      std::transform(row, row + k, rounded.begin(), to_bfloat16);
      weights = rounded.data();
    }
    bytes.add(weights, k);
  }
  return Codes(bytes).num_exceptions();
}

// Bytes of a panel with room for the longest list of exceptions.
inline int64_t coded_bytes(const Unpacked& source, int32_t kind) {
  std::vector<int64_t> counts(panels_of(source.n) + 1);  // of no outputs, too, there is a longest one
  each_panel(source, [&](int64_t panel, float* rows) {
    counts[panel] = count_exceptions(source, kind, panel, rows);
  });
  return coded_panel_bytes(weights_of(kind, source.k), *std::max_element(counts.begin(), counts.end()));
}

inline void pack(const Unpacked& source, int32_t kind, int64_t bytes, uint8_t* out, float* scales,
                 float* offsets) {
  each_panel(source, [&](int64_t panel, float* rows) {
    uint8_t* target = out + panel * bytes;
    if (kind == plain_kind(kind)) return pack_panel(source, kind, panel, rows, target, scales, offsets);
    std::vector<uint16_t> weights(weights_of(kind, source.k));
    auto* plain = reinterpret_cast<uint8_t*>(weights.data());
    pack_panel(source, plain_kind(kind), panel, rows, plain, scales, offsets);
    UpperBytes upper_bytes;
    upper_bytes.add(weights.data(), static_cast<int64_t>(weights.size()));
    Codes(upper_bytes).encode(weights, target, bytes);
  });
}

template <class Scheme>
void unpack_groups(const uint8_t* panel, int c, int64_t k, float* out) {
  for (int64_t group = 0; group < k / kGroup; ++group)
    Scheme::unpack_group(panel, c, group, out + group * kGroup);
}

inline void unpack_coded(const Linear& linear, const uint8_t* panel, int c, float* out) {
  const int64_t bytes = chunk_bytes_of(weights_of(linear.kind, linear.k));
  CodedWeights weights(*reinterpret_cast<const CodedPanel*>(panel), panel + linear.panel_bytes - bytes);
  for (int64_t i = 0; i < linear.k; ++i)
    out[i] = widen(weights.at(place_of(plain_kind(linear.kind), i, c)));
}

// The weights of output column `n` as floats: the token's embedding, where the head is tied to it.
inline void unpack_row(const Linear& linear, int64_t n, float* out) {
  const auto* panel = static_cast<const uint8_t*>(linear.weights) + n / kPanel * linear.panel_bytes;
  const int c = static_cast<int>(n % kPanel);
  switch (linear.kind) {
    case kInt4: return unpack_groups<Int4>(panel, c, linear.k, out);
    case kInt4Minimum: return unpack_groups<Int4Minimum>(panel, c, linear.k, out);
    case kMxfp4: return unpack_groups<Mxfp4>(panel, c, linear.k, out);
    case kInt8Groups: return unpack_groups<Int8Groups>(panel, c, linear.k, out);
    case kInt4K: return unpack_groups<Int4K>(panel, c, linear.k, out);
    case kInt5K: return unpack_groups<Int5K>(panel, c, linear.k, out);
    case kInt6K: return unpack_groups<Int6K>(panel, c, linear.k, out);
    case kCodedPairs:
    case kCodedBfloat16: return unpack_coded(linear, panel, c, out);
  }
  const auto* floats = reinterpret_cast<const float*>(panel);
  const auto* halves = reinterpret_cast<const uint16_t*>(panel);
  const auto* bytes = reinterpret_cast<const int8_t*>(panel);
  for (int64_t i = 0; i < linear.k; ++i) {
    switch (linear.kind) {
      case kFloat32:
        out[i] = floats[i * kPanel + c];
        break;
      case kBfloat16:
      case kBfloat16Pairs:
        out[i] = widen(halves[place_of(linear.kind, i, c)]);
        break;
      case kFloat16:
        out[i] = _cvtsh_ss(halves[place_of(kFloat16, i, c)]);
        break;
      default:
        out[i] = linear.scales[n] * static_cast<float>(bytes[(i / 4 * kPanel + c) * 4 + i % 4]);
    }
  }
}

inline void unpack_rows(const Linear& linear, const int64_t* rows, int64_t count, float* out) {
#pragma omp parallel for if (count > 8)
  for (int64_t i = 0; i < count; ++i) unpack_row(linear, rows[i], out + i * linear.k);
}

}  // namespace streamwell
