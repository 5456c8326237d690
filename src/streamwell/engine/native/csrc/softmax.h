// Softmax over tiles of keys with a running maximum and sum (Milakov and Gimelshein 2018, "Online
// normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention").
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "repeat.h"
#include "simd.h"

namespace streamwell {

constexpr int kTileBlocks = 4;
constexpr int kTileKeys = kTileBlocks * kLanes;

constexpr float kLog2OfE = 1.44269504f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a row has seen so far: the largest score, and the totals of weights, one per lane, which are added
// up at the end.
struct Seen {
  float maximum = -kInfinity;
  float totals[kLanes] = {};

  float total() const { return sum(load(totals)); }
};

// An infinite score becomes the cap.
inline F32 capped(F32 score, float cap) {
  const F32 power = exp(mul(score, broadcast(2.0f / cap)));
  const F32 tanh = sub(broadcast(1.0f), div(broadcast(2.0f), add(power, broadcast(1.0f))));
  return mul(tanh, broadcast(cap));
}

// What happens to scores x before softmax.
struct Shaping {
  float softcap;      // they become softcap * tanh(x / softcap), unless that is 0
  const float* bias;  // added to those of a tile, or null
};

// Which keys of a tile a row sees: those from `hidden` up to `visible`.
struct Sight {
  int64_t hidden, visible;

  // `last` is the last key it sees of all, `window` 0 sees all before; the tile starts at `key`.
  Sight(int64_t last, int64_t window, int64_t key)
      : hidden(window ? last + 1 - window - key : 0), visible(last + 1 - key) {}

  // Block b of the row's keys, with `other` where the row does not see them.
  F32 only_seen(F32 values, F32 other, int64_t b) const {
    const F32 seen = first_lanes(lanes(visible - b * kLanes), values, other);
    return first_lanes(lanes(hidden - b * kLanes), other, seen);
  }

 private:
  static int lanes(int64_t count) {
    return static_cast<int>(std::min<int64_t>(kLanes, std::max<int64_t>(0, count)));
  }
};

// Scores of a row that sees all keys of a tile, as they are.
struct WholeTile {
  static constexpr int64_t num_blocks = kTileBlocks;
  static F32 score(F32 raw, int64_t) { return raw; }
  static F32 only_seen(F32 weight, int64_t) { return weight; }
};

// Scores of any row.
struct ShapedTile {
  int64_t num_blocks;
  Shaping shaping;
  Sight sight;

  F32 score(F32 raw, int64_t b) const {
    if (shaping.softcap != 0.0f) raw = capped(raw, shaping.softcap);
    if (shaping.bias) raw = add(raw, load(shaping.bias + b * kLanes));
    return sight.only_seen(raw, broadcast(-kInfinity), b);
  }
  // What `score` has hidden got a weight all the same, since no power of two is zero.
  F32 only_seen(F32 weight, int64_t b) const { return sight.only_seen(weight, zero(), b); }
};

// Scores of a row become weights, which `put` is given block by block; keys it must not see get none.
// Returns what earlier sums of the row are to be multiplied by.
template <class Tile, class Put>
[[gnu::always_inline]] inline float soften(const float* row, const Tile& tile, Seen& seen, const Put& put) {
  const auto each_block = [&](auto body) STREAMWELL_INLINE {
    repeat<kTileBlocks>([&](int b) STREAMWELL_INLINE { if (b < tile.num_blocks) body(b); });
  };
  F32 scores[kTileBlocks], peak = broadcast(-kInfinity);
  each_block([&](int b) STREAMWELL_INLINE {
    scores[b] = tile.score(load(row + b * kLanes), b);
    peak = max(scores[b], peak);  // of those that are numbers: the second argument wins
  });
  const float before = seen.maximum;
  // a new maximum is rare after the first tiles, and to find it among lanes is slow
  if (any_above(peak, before)) seen.maximum = largest(peak);
  if (seen.maximum == -kInfinity) {  // it sees none of these keys, or nothing that is above that
    each_block([&](int b) STREAMWELL_INLINE { put(b, max(zero(), scores[b])); });
    return 1.0f;
  }
  const F32 unit = broadcast(kLog2OfE), maximum = broadcast(seen.maximum);
  F32 total = zero();
  each_block([&](int b) STREAMWELL_INLINE {
    const F32 weight = tile.only_seen(power_of_two(mul(sub(scores[b], maximum), unit)), b);
    put(b, weight);
    total = add(total, weight);
  });
  const float correction = before == seen.maximum ? 1.0f : std::exp(before - seen.maximum);
  store(seen.totals, fma(load(seen.totals), broadcast(correction), total));
  return correction;
}

}  // namespace streamwell
