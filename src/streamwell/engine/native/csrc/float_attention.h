// Attention in float32 over a cache of floats.
//
// A block holds 16 positions: the keys of a head as `[head_dim, 16]`, positions side by side as scores need
// them; its values as `[16, head_dim]`.
#pragma once

#include <cstring>

#include "attention.h"

namespace streamwell {

// How rows are written into a cache of floats.
struct FloatCache {
  // Before the first position of a block is written.
  static void open_block(int64_t, Heads, const Cache&) {}

  static void write(const float* key, const float* value, int64_t slot, Heads heads,
                    const Cache& cache) {
    const int64_t block = slot / kLanes, place = slot % kLanes;
    for (int64_t h = 0; h < heads.kv; ++h) {
      float* keys = keys_of(cache, block * heads.kv + h, heads.dim) + place;
      for (int64_t d = 0; d < heads.dim; ++d) keys[d * kLanes] = key[h * heads.dim + d];
      float* values = values_of(cache, block * heads.kv + h, heads.dim);
      std::memcpy(values + place * heads.dim, value + h * heads.dim, heads.dim * 4);
    }
  }

  // Of a head of a block, by its place among all.
  static float* keys_of(const Cache& cache, int64_t head, int64_t dim) {
    return cache.blocks + head * 2 * dim * kLanes;
  }
  static float* values_of(const Cache& cache, int64_t head, int64_t dim) {
    return keys_of(cache, head, dim) + dim * kLanes;
  }
};

// A task in float32.
class FloatTask {
 public:
  using CacheKind = FloatCache;
  static constexpr int64_t max_rows = 8 * kQueries;

  FloatTask(const Attention& attention, const Task& task, Scratch& scratch)
      : attention_(attention), task_(task), heads_(attention.heads),
        rows_(task.tokens * heads_.group()), seen_(scratch.seen) {
    scratch.floats.resize(rows_ * 2 * heads_.dim + kQueries * (kTileKeys + 1));
    queries_ = scratch.floats.data();
    sums_ = queries_ + rows_ * heads_.dim;
    weights_ = sums_ + rows_ * heads_.dim;
    corrections_ = weights_ + kQueries * kTileKeys;
    pack_queries();
  }

  void run() {
    const Gathered gathered(attention_, task_, sums_, seen_);
    const int64_t end = task_.end();
    for (int64_t key = attention_.first_key(task_.start); key < end; key += kTileKeys)
      for (int64_t first = 0; first < rows_; first += kQueries)
        with_rows(std::min<int64_t>(kQueries, rows_ - first), first, key, end);
    gathered.write();
  }

  // A thread has done its last task.
  static void leave() {}

 private:
  int64_t last_seen(int64_t r) const { return task_.last_seen(r, heads_.group()); }
  const float* keys_of(int64_t block) const {
    return FloatCache::keys_of(attention_.cache, task_.place_of(block, heads_.kv), heads_.dim);
  }
  const float* values_of(int64_t block) const {
    return FloatCache::values_of(attention_.cache, task_.place_of(block, heads_.kv), heads_.dim);
  }

  // Micro-kernels read their rows' queries dimension by dimension.
  void pack_queries() {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t tile = r / kQueries * kQueries;
      const int64_t height = std::min<int64_t>(kQueries, rows_ - tile);
      const float* query = attention_.queries + task_.offset_of(r, heads_.group(),
                                                                attention_.query_floats, heads_.dim);
      float* out = queries_ + tile * heads_.dim + (r - tile);
      for (int64_t d = 0; d < heads_.dim; ++d) out[d * height] = query[d] * attention_.scale;
    }
  }

  template <int R = kQueries>
  void with_rows(int64_t rows, int64_t first, int64_t key, int64_t end) {
    if (rows == R) {
      if (last_seen(first + R - 1) >= key) attend<R>(first, key, end);
    } else if constexpr (R > 1) {
      with_rows<R - 1>(rows, first, key, end);
    }
  }

  template <int R>
  void attend(int64_t first, int64_t key, int64_t end) {
    const int64_t num_blocks = (std::min<int64_t>(end, key + kTileKeys) - key + kLanes - 1) / kLanes;
    for (int64_t b = 0; b < num_blocks; b += kTileVectors) {
      if (num_blocks - b >= kTileVectors) {
        score<R, kTileVectors>(first, key + b * kLanes, b);
      } else {
        for (int64_t rest = b; rest < num_blocks; ++rest)
          score<R, 1>(first, key + rest * kLanes, rest);
      }
    }
    const bool sees_all = is_whole(attention_, task_, first, first + R - 1, key);
    for (int r = 0; r < R; ++r) {
      float* row = weights_ + r * kTileKeys;
      Seen& seen = seen_[first + r];
      const auto put = [&](int64_t b, F32 weights) STREAMWELL_INLINE { store(row + b * kLanes, weights); };
      corrections_[r] = sees_all ? soften(row, WholeTile(), seen, put)
                                 : soften(row, tile_of(attention_, task_, first + r, key, num_blocks), seen, put);
    }
    const int64_t count = std::min<int64_t>(kTileKeys, end - key);
    for (int64_t d = 0; d < heads_.dim; d += kTileVectors * kLanes) {
      if (heads_.dim - d >= kTileVectors * kLanes) {
        gather<R, kTileVectors>(first, key, count, d);
      } else {
        for (int64_t rest = d; rest < heads_.dim; rest += kLanes)
          gather<R, 1>(first, key, count, rest);
      }
    }
  }

  // weights[r, key] = query r times key, for V blocks of keys.
  template <int R, int V>
  void score(int64_t first, int64_t key, int64_t block) {
    const float* keys[V];
    for (int v = 0; v < V; ++v) keys[v] = keys_of(key / kLanes + v);
    const float* query = queries_ + first * heads_.dim;
    F32 sums[R][V];
    repeat<R, V>([&](int r, int v) STREAMWELL_INLINE { sums[r][v] = zero(); });
    for (int64_t d = 0; d < heads_.dim; ++d, query += R) {
      F32 columns[V];
      repeat<V>([&](int v) { columns[v] = load(keys[v] + d * kLanes); });
      repeat<R>([&](int r) {
        const F32 value = broadcast(query[r]);
        repeat<V>([&](int v) { sums[r][v] = fma(value, columns[v], sums[r][v]); });
      });
    }
    repeat<R, V>([&](int r, int v) STREAMWELL_INLINE {
      store(weights_ + r * kTileKeys + (block + v) * kLanes, sums[r][v]);
    });
  }

  // sums[r, d..] = correction * sums[r, d..] + weights[r] times values, for V vectors of dimensions.
  template <int R, int V>
  void gather(int64_t first, int64_t key, int64_t count, int64_t d) {
    F32 sums[R][V];
    repeat<R, V>([&](int r, int v) STREAMWELL_INLINE {
      sums[r][v] = mul(load(sums_ + (first + r) * heads_.dim + d + v * kLanes),
                       broadcast(corrections_[r]));
    });
    for (int64_t block = 0; block < count; block += kLanes) {
      const float* value = values_of((key + block) / kLanes) + d;
      const int64_t end = std::min<int64_t>(count, block + kLanes);
      for (int64_t j = block; j < end; ++j, value += heads_.dim) {
        F32 columns[V];
        repeat<V>([&](int v) { columns[v] = load(value + v * kLanes); });
        repeat<R>([&](int r) {
          const F32 weight = broadcast(weights_[r * kTileKeys + j]);
          repeat<V>([&](int v) { sums[r][v] = fma(weight, columns[v], sums[r][v]); });
        });
      }
    }
    repeat<R, V>([&](int r, int v) STREAMWELL_INLINE {
      store(sums_ + (first + r) * heads_.dim + d + v * kLanes, sums[r][v]);
    });
  }

  const Attention& attention_;
  const Task& task_;
  const Heads& heads_;
  int64_t rows_;
  Lines<Seen>& seen_;
  float *queries_, *sums_, *weights_, *corrections_;
};

}  // namespace streamwell
