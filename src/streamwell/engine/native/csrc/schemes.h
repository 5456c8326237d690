// How weights and activations of each kind lie in memory, and how a tile of them is multiplied.
//
// Weights lie in panels of 32 outputs. A micro-kernel multiplies a few rows of activations
// with one panel and keeps the sums in registers. Each output is one chain of sums over k in
// ascending order, whatever rows share the call: a row's result does not depend on its neighbours.
#pragma once

#include <algorithm>
#include <type_traits>

#include "simd.h"

namespace streamwell {

constexpr int kPanel = 2 * kLanes;
constexpr int kGroup = 32;  // weights that share a scale, or activations

// `kBfloat16` is a storage: weights are widened, and arithmetic is that of floats. `kBfloat16Pairs` is
// multiplied as it is, with activations rounded to bfloat16, where the processor has that. The coded ones
// are these two in three quarters of the bytes (`coding.h`). Whole numbers
// have scales: one per output in `kInt8`; one per 32 inputs of it in the others, or in `kInt6K` 16, which
// are whole numbers themselves in those that end in K.
enum Kind : int32_t {
  kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3, kInt4 = 4, kBfloat16Pairs = 5, kInt4Minimum = 6,
  kInt8Groups = 7, kInt4K = 8, kInt5K = 9, kInt6K = 10, kMxfp4 = 11,
  kCodedPairs = 12, kCodedBfloat16 = 13
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
  int64_t panel_bytes;  // of coded weights with room for a list (coding.h)
  int32_t kind;
  float factor;   // of what is accumulated
  int64_t width;  // of a row of results: `n`, or more if others lie beside them
  const Linear* rest;  // of the same input, with results after these; or null
};

inline bool multiplies_pairs(const Linear& linear) {
  return linear.kind == kBfloat16Pairs || linear.kind == kCodedPairs;
}

inline int64_t panels_of(int64_t n) { return (n + kPanel - 1) / kPanel; }

// A scheme says how weights and activations of one kind lie in memory and are multiplied. A step is
// the least number of ks that are computed together; each step of a panel takes `w_bytes`, and each
// step of one row of activations `x_bytes`. Within a tile all rows of a step lie together. While a
// tile is multiplied, the weights `ahead` bytes further on are fetched from memory, unless that is 0;
// a scheme that `spreads` fetching, or `is_tiled`, is told which lines are its share.

// Inlined, because compilers leave out calls of what has no effect that they know of.
template <int bytes>
[[gnu::always_inline]] inline void fetch(const uint8_t* p) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T1);
}

// Asks for the weights `ahead` bytes further on, unless that is 0, and once more for those that are
// multiplied soon: it looks as if a Zen 4 dropped some of the first requests.
template <int bytes>
[[gnu::always_inline]] inline void ask(const uint8_t* w, int64_t ahead) {
  constexpr int64_t soon = 4 << 10;
  if (!ahead) return;
  fetch<bytes>(w + ahead);
  fetch<bytes>(w + soon);
}

// What to fetch while a tile is multiplied: so many bytes with each step, or none.
struct Ahead {
  const uint8_t* from = nullptr;
  int64_t bytes = 0;

  // The share of one of so many that fetch in turn, over so many steps each.
  Ahead share(int64_t index, int64_t count, int64_t steps) const {
    return {from + bytes * steps / count * index, (bytes + count - 1) / count};
  }

  // As `share`, in whole lines.
  Ahead share_lines(int64_t index, int64_t count, int64_t steps) const {
    const int64_t each = (bytes / 64 + count - 1) / count * 64;
    return {from + each * steps * index, each};
  }

  // A step's lines, two at most.
  void fetch() {
    if (!bytes) return;
    streamwell::fetch<64>(from);
    if (bytes > 64) streamwell::fetch<64>(from + 64);
    from += bytes;
  }

  // As many as it takes.
  void fetch_lines() {
    for (int64_t line = 0; line < bytes; line += 64) streamwell::fetch<64>(from + line);
    from += bytes;
  }
};

// Memory that is used again from its beginning on when its end is reached.
struct Ring {
  const uint8_t *begin = nullptr, *end = nullptr;

  const uint8_t* wrapped(const uint8_t* place) const { return place == end ? begin : place; }
};

// For what is told which lines are its share.
template <int>
[[gnu::always_inline]] inline void ask(const uint8_t*, Ahead& ahead) {
  ahead.fetch();
}

// How many steps a row of k has, zeros at its end included.
template <class Scheme>
inline int64_t steps_of(int64_t k) {
  return Scheme::step == 1 || Scheme::step >= kGroup ? (k + Scheme::step - 1) / Scheme::step
                                                     : words_of(k, Scheme::step);
}

// Words of a tile's rows side by side, as broadcasts read them. Only `left` words have a place.
struct SideBySide {
  template <int count>
  static void put(uint8_t* tile, int64_t word, int m, int height, const void* words, int64_t left) {
    uint8_t* place = tile + (word * height + m) * 4;
    const auto* from = static_cast<const uint8_t*>(words);
    if (left < count) {
      for (int i = 0; i < left; ++i, place += 4 * height) std::memcpy(place, from + 4 * i, 4);
      return;
    }
    repeat<count>([&](int i) {  // without a question for each of them
      std::memcpy(place, from + 4 * i, 4);
      place += 4 * height;
    });
  }
};

constexpr int kRegisterLanes = kLanes / kRegisters;
// Weights that stay in the first cache while they meet some rows.
constexpr int64_t kNearBytes = 8 << 10;

// Sums of a tile for `Parts` of the registers that sixteen columns take, on their way through `result`.
template <class Sixteen, int M, int Parts>
struct Sums {
  using One = std::remove_reference_t<decltype(register_of(std::declval<Sixteen&>(), 0))>;
  One at[M][Parts][2];

  [[gnu::always_inline]] void load(Sixteen (&result)[M][2], int first) {
    each([&](One& sum, int m, int p, int side) { sum = register_of(result[m][side], first + p); });
  }

  [[gnu::always_inline]] void store(Sixteen (&result)[M][2], int first) {
    each([&](One& sum, int m, int p, int side) { register_of(result[m][side], first + p) = sum; });
  }

 private:
  template <class Body>
  [[gnu::always_inline]] void each(Body body) {
    repeat<M * Parts * 2>([&](int i) {
      const int m = i / (Parts * 2), p = i / 2 % Parts, side = i % 2;
      body(at[m][p][side], m, p, side);
    });
  }
};

// A tile times a panel with all of its columns at once, where their sums fit into the registers; else
// with one part of them after the other, over so few steps that the weights are still near.
template <class Scheme, int M, class Result>
inline void multiply_parts(const uint8_t* tile, const uint8_t* w, int64_t steps, Ahead ahead,
                           Result& sums) {
  if constexpr (2 * M * kRegisters <= Scheme::sums) {
    Scheme::template multiply_columns<M, kRegisters>(tile, w, 0, steps, ahead, sums);
  } else {
    constexpr int64_t most = kNearBytes / Scheme::w_bytes;
    for (int64_t i = 0; i < steps; i += most) {
      const int64_t count = std::min(most, steps - i);
      for (int part = 0; part < kRegisters; ++part)
        Scheme::template multiply_columns<M, 1>(tile, w, part, count,
                                                ahead.share(part, kRegisters, count), sums);
      tile += count * Scheme::x_bytes * M;
      w += count * Scheme::w_bytes;
      ahead.from += count * ahead.bytes;
    }
  }
}

}  // namespace streamwell
