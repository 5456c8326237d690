// How weights and activations of each kind lie in memory, and how a tile of them is multiplied.
//
// Weights lie in panels of 32 outputs. A micro-kernel multiplies up to `kRows` rows of activations
// with one panel and keeps the sums in registers. Each output is one chain of sums over k in
// ascending order, whatever rows share the call: a row's result does not depend on its neighbours.
#pragma once

#include <algorithm>
#include <cmath>

#include "simd.h"

namespace streamwell {

constexpr int kPanel = 2 * kLanes;
constexpr int kGroup = 32;  // weights that share a scale in int4

// `kBfloat16` is a storage: weights are widened, and arithmetic is that of floats. `kBfloat16Pairs` is
// multiplied as it is, with activations rounded to bfloat16, where the processor has that.
enum Kind : int32_t {
  kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3, kInt4 = 4, kBfloat16Pairs = 5
};

// Where small numbers are multiplied several at once, a step of k is a word of 32 bits. Tiles of the
// processor are 16 words wide: there a panel has a whole number of them, with zeros at its end.
#if defined(__AMX_TILE__)
constexpr int64_t kWordsUnit = 16;
#else
constexpr int64_t kWordsUnit = 1;
#endif

inline int64_t words_of(int64_t k, int64_t per_word) {
  return (k + per_word * kWordsUnit - 1) / (per_word * kWordsUnit) * kWordsUnit;
}

struct Linear {
  const void* weights;    // see the packers in pack.h
  const float* bias;      // [n], or null
  const float* scales;    // int8: [panels * 32], else null
  const float* offsets;   // int8: [panels * 32], -128 * scale * sum of the column's weights
  int64_t n, k;
  int32_t kind;
  float factor;  // of what is accumulated
};

inline int64_t panels_of(int64_t n) { return (n + kPanel - 1) / kPanel; }

inline int64_t panel_bytes(int32_t kind, int64_t k) {
  switch (kind) {
    case kFloat32: return k * kPanel * 4;
    case kInt8: return words_of(k, 4) * 4 * kPanel;
    case kBfloat16Pairs: return words_of(k, 2) * 4 * kPanel;
    case kInt4: return k / kGroup * (kGroup * kPanel / 2 + kPanel * 2);
    default: return k * kPanel * 2;
  }
}

// A scheme says how weights and activations of one kind lie in memory and are multiplied. A step is
// the least number of ks that are computed together; each step of a panel takes `w_bytes`, and each
// step of one row of activations `x_bytes`. Within a tile all rows of a step lie together. While a
// tile is multiplied, the weights `ahead` bytes further on are fetched from memory, unless that is 0.
// A scheme that `spreads` fetching is told in each of some tiles which share of them to fetch.

// Bytes fetched with each step, from that far ahead of a tile's weights; none if there are no bytes.
struct Ahead {
  int64_t from = 0, bytes = 0;

  // The share of one of so many who fetch over so many steps in turn.
  Ahead share(int64_t index, int64_t count, int64_t steps) const {
    return {from + bytes * steps / count * index, (bytes + count - 1) / count};
  }
};

template <int bytes>
inline void fetch(const uint8_t* p) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T1);
}

// How many steps a row of k has, zeros at its end included.
template <class Scheme>
inline int64_t steps_of(int64_t k) {
  return Scheme::step == 1 || Scheme::step == kGroup ? (k + Scheme::step - 1) / Scheme::step
                                                     : words_of(k, Scheme::step);
}

// Words of a tile's rows side by side, as broadcasts read them. Only `left` words have a place.
struct SideBySide {
  template <int count>
  static void put(uint8_t* tile, int64_t word, int m, int height, const void* words, int64_t left) {
    for (int i = 0; i < count && i < left; ++i)
      std::memcpy(tile + ((word + i) * height + m) * 4, static_cast<const uint8_t*>(words) + 4 * i, 4);
  }
};

template <class Weights>
struct Floats {
  using Sum = F32;
  static constexpr int step = 1, x_bytes = 4, w_bytes = Weights::bytes, max_rows = kRows;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = true;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    auto* out = reinterpret_cast<float*>(tile) + m;
    for (int64_t i = 0; i < k; ++i) out[i * height] = x[i];
  }

  template <int M>
  static void multiply(const uint8_t* tile, const uint8_t* w, int64_t steps, Ahead ahead,
                       F32 (&sums)[M][2]) {
    if constexpr (2 * M * kRegisters <= kSums) {
      multiply_columns<M, kRegisters>(tile, w, 0, steps, ahead, sums);
    } else {  // one part of the columns after the other, while the weights are in the first cache
      for (int64_t i = 0; i < steps; i += kStepsNear) {
        const int64_t count = std::min(kStepsNear, steps - i);
        for (int part = 0; part < kRegisters; ++part)
          multiply_columns<M, 1>(tile, w, part, count, ahead.share(part, kRegisters, count), sums);
        tile += count * x_bytes * M;
        w += count * w_bytes;
        ahead.from += count * (ahead.bytes - w_bytes);
      }
    }
  }

  // Over `Parts` of the registers that sixteen columns take, from one on.
  template <int M, int Parts>
  static void multiply_columns(const uint8_t* tile, const uint8_t* w, int first, int64_t steps,
                               Ahead ahead, F32 (&result)[M][2]) {
    Register sums[M][Parts][2];
    const auto each_sum = [&](auto body) {
      repeat<M * Parts * 2>([&](int i) {
        const int m = i / (Parts * 2), p = i / 2 % Parts, side = i % 2;
        body(sums[m][p][side], register_of(result[m][side], first + p));
      });
    };
    each_sum([](Register& sum, Register& before) { sum = before; });
    const auto* x = reinterpret_cast<const float*>(tile);
    const uint8_t* next = w + ahead.from;
    for (int64_t i = 0; i < steps; ++i, x += M, w += w_bytes) {
      if (ahead.bytes) {
        fetch<64>(next);
        if (w_bytes > 64 && ahead.bytes > 64) fetch<64>(next + 64);
        next += ahead.bytes;
      }
      repeat<Parts>([&](int p) {
        const auto [low, high] = Weights::load(w, first + p);
        const Register a = low, b = high;
        repeat<M>([&](int m) {
          const Register value = broadcast_register(x[m]);
          sums[m][p][0] = fma(value, a, sums[m][p][0]);
          sums[m][p][1] = fma(value, b, sums[m][p][1]);
        });
      });
    }
    each_sum([](Register& sum, Register& after) { after = sum; });
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }

 private:
  static constexpr int64_t kStepsNear = 128;
};

// Weights of a step of k, for the columns that a register of each half of a panel has.
struct Columns {
  Register low, high;
};

constexpr int kRegisterLanes = kLanes / kRegisters;

struct Float32Weights {
  static constexpr int bytes = kPanel * 4;
  static Columns load(const uint8_t* p, int part) {
    const auto* w = reinterpret_cast<const float*>(p) + part * kRegisterLanes;
    return {load_register(w), load_register(w + kLanes)};
  }
};

struct Bfloat16Weights {  // columns i and i + 16 share 32 bits
  static constexpr int bytes = kPanel * 2;
  static Columns load(const uint8_t* p, int part) {
    const IntRegister both = load_int_register(p + part * kRegisterLanes * 4);
    return {low_half(both), high_half(both)};
  }
};

struct Float16Weights {
  static constexpr int bytes = kPanel * 2;
  static Columns load(const uint8_t* p, int part) {
    const auto* w = reinterpret_cast<const uint16_t*>(p) + part * kRegisterLanes;
    return {load_half_register(w), load_half_register(w + kLanes)};
  }
};

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

// Signed 8-bit weights with a scale per output, unsigned 8-bit activations with a scale per row and
// a zero point of 128, as the processor's dot product wants them.
template <class Order>
struct Int8 {
  using Sum = I32;
  static constexpr int step = 4, x_bytes = 4, w_bytes = 4 * kPanel, max_rows = kInt8Rows;
  static constexpr bool pack_whole_rows = true;  // they have a scale each
  static constexpr bool is_tiled = false, spreads = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float* scale) {
    const float largest = largest_magnitude(x, k);
    *scale = largest / 127.0f;
    const F32 inverse = broadcast(largest > 0.0f ? 127.0f / largest : 0.0f);
    for (int64_t i = 0; i < k; i += kLanes) {
      uint8_t bytes[kLanes];
      const I32 values = to_int(mul(load_some(x + i, k - i), inverse));
      store_bytes(bytes, add_int(values, broadcast_int(128)));
      Order::template put<4>(tile, i / step, m, height, bytes, (k - i + step - 1) / step);
    }
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, int64_t ahead,
                       I32 (&result)[M][2]) {
    I32 sums[M][2];  // a copy that lives in registers
    std::memcpy(&sums, &result, sizeof(sums));
    for (int64_t i = 0; i < steps; ++i, x += 4 * M, w += w_bytes) {
      if (ahead) fetch<w_bytes>(w + ahead);
      const I32 low = load_int(w), high = load_int(w + 4 * kLanes);
      for (int m = 0; m < M; ++m) {
        const I32 value = broadcast_four_bytes(x + 4 * m);
        sums[m][0] = dot_bytes(sums[m][0], value, low);
        sums[m][1] = dot_bytes(sums[m][1], value, high);
      }
    }
    std::memcpy(&result, &sums, sizeof(sums));
  }

  static F32 finish(I32 sum, const Linear& linear, int64_t column, float row_scale) {
    const F32 scaled =
        fma(to_float(sum), load(linear.scales + column), load(linear.offsets + column));
    return mul(scaled, broadcast(row_scale));
  }

};

// 4-bit weights in groups of 32 with a scale each (the layout is ours, the arithmetic that of
// llama.cpp's Q4_0 on Q8_0); signed 8-bit activations, a scale per row and group. A group of a
// panel is two halves of four vectors, low and high nibbles four steps of k apart, then the scales.
struct Int4 {
  using Sum = F32;
  static constexpr int step = kGroup, x_bytes = kGroup + 8;
  static constexpr int w_bytes = kGroup * kPanel / 2 + 2 * kPanel, max_rows = kInt4Rows;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    for (int64_t i = 0; i < k; i += step, tile += x_bytes * height) {
      const float largest = largest_magnitude(x + i, step);
      const float scale = largest / 127.0f;
      const F32 inverse = broadcast(largest > 0.0f ? 127.0f / largest : 0.0f);
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
      scales[height + m] = -8.0f * scale * sum(totals);
    }
  }

  template <int M>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, int64_t ahead,
                       F32 (&sums)[M][2]) {
    constexpr int half = 4 * 4 * kLanes;
    for (int64_t i = 0; i < steps; ++i, x += x_bytes * M, w += w_bytes) {
      if (ahead) fetch<w_bytes>(w + ahead);
      const auto* scales = reinterpret_cast<const float*>(x + step * M);
      const auto* weight_scales = reinterpret_cast<const uint16_t*>(w + 2 * half);
      for (int side = 0; side < 2; ++side) {
        I32 dots[M];
        multiply_half<M>(x, w + side * half, dots);
        const F32 weight_scale = load_half(weight_scales + side * kLanes);
        for (int m = 0; m < M; ++m) {
          const F32 dot = fma(to_float(dots[m]), broadcast(scales[m]), broadcast(scales[M + m]));
          sums[m][side] = fma(dot, weight_scale, sums[m][side]);
        }
      }
    }
  }

#if defined(__AVX512F__)
  template <int M>
  static void multiply_half(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
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
  static void multiply_half(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
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
          sum = settled(add_words(sum, dot_bytes_in_words(low, broadcast_register_of_bytes(word))));
          dots[m] = settled(add_words(sum, dot_bytes_in_words(high, broadcast_register_of_bytes(word + 16 * M))));
        });
      }
      repeat<M>([&](int m) {
        register_of(result[m], part) = dot_words(dots[m], broadcast_words(1));
      });
    }
  }
#endif

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }
};

}  // namespace streamwell
