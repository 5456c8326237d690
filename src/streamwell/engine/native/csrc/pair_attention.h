// Attention in bfloat16 over a cache of pairs. Softmax and sums are float32.
#pragma once

#include <type_traits>

#include "attention.h"
#include "bfloat16.h"
#include "pair_cache.h"

namespace streamwell {

#if defined(__AVX512BF16__)

// The keys, or the values, of a tile. While they are read, what lies at the same places of other blocks
// is fetched: blocks are short and lie anywhere, so no processor foresees which comes next.
struct Blocks {
  const uint16_t *at[kTileBlocks], *ahead[kTileBlocks];

  template <int bytes>
  [[gnu::always_inline]] void fetch(int64_t b, int64_t place) const {
    streamwell::fetch<bytes>(reinterpret_cast<const uint8_t*>(ahead[b] + place));
  }
};

// A task whose rows are taken `Products::rows` at a time. `Products` multiply so many queries, or their
// weights, with a tile of keys, or the values of one. `height` says how many rows a product computes: after
// the task's last one there is room for those that nobody reads.
template <class Products>
class PairTask {
 public:
  using CacheKind = PairCache;
  static constexpr int64_t max_rows = Products::rows_per_task;

  PairTask(const Attention& attention, const Task& task, Scratch& scratch)
      : attention_(attention), task_(task), heads_(attention.heads),
        rows_(task.tokens * heads_.group()), key_dim_(key_dim_of(heads_.dim)),
        seen_(scratch.seen) {
    const int64_t padded = (rows_ + kRowsPerProduct - 1) / kRowsPerProduct * kRowsPerProduct;
    const int64_t floats = padded * heads_.dim + kPlaces * kTileKeys;
    const int64_t numbers = padded * key_dim_ + kPlaces * kTileKeys;
    scratch.floats.resize(floats + numbers * sizeof(Number) / sizeof(float));
    sums_ = scratch.floats.data();
    scores_ = sums_ + padded * heads_.dim;
    weights_ = reinterpret_cast<Number*>(scores_ + kPlaces * kTileKeys);
    queries_ = weights_ + kPlaces * kTileKeys;
    if constexpr (Products::fetches) fetch_first_keys();
    pack_queries();
  }

  void run() {
    const Gathered gathered(attention_, task_, sums_, seen_);
    const int64_t end = task_.end();
    for (int64_t key = attention_.first_key(task_.start); key < end; key += kTileKeys)
      attend(key, end);
    gathered.write();
  }

  static void leave() { Products::leave(); }

 private:
  using Number = typename Products::Number;
  // Scores and weights of the rows of two products have places, by turns.
  static constexpr int64_t kRowsPerProduct = Products::rows, kPlaces = 2 * kRowsPerProduct;

  int64_t place_of(int64_t block) const { return task_.place_of(block, heads_.kv); }

  static void put(uint16_t* out, F32 values) { PairCache::store_pairs(out, values); }
  static void put(float* out, F32 values) { store(out, values); }

  // Those of later tiles are fetched by the tiles before them.
  void fetch_first_keys() const {
    const int64_t first = attention_.first_key(task_.start);
    const int64_t end = std::min(task_.end(), first + kTileKeys);
    for (int64_t key = first; key < end; key += kLanes) {
      const uint16_t* keys = PairCache::keys_of(attention_.cache, place_of(key / kLanes), heads_.dim);
      for (int64_t d = 0; d < key_dim_; d += 2)
        fetch<64>(reinterpret_cast<const uint8_t*>(keys + d * kLanes));
    }
  }

  // 32 dimensions of the rows that are taken at once lie together.
  void pack_queries() {
    const F32 scale = broadcast(attention_.scale);
    for (int64_t r = 0; r < rows_; ++r) {
      const float* query = attention_.queries + task_.offset_of(r, heads_.group(),
                                                                attention_.query_floats, heads_.dim);
      Number* out = queries_ + r / kRowsPerProduct * kRowsPerProduct * key_dim_ + r % kRowsPerProduct * 32;
      for (int64_t d = 0; d < key_dim_; d += kLanes) {
        const F32 values = d < heads_.dim ? mul(load(query + d), scale) : zero();
        put(out + d / 32 * kRowsPerProduct * 32 + d % 32, values);
      }
    }
  }

  void attend(int64_t key, int64_t end) {
    const int64_t num_blocks = (std::min<int64_t>(end, key + kTileKeys) - key + kLanes - 1) / kLanes;
    Blocks keys, values;
    const int64_t last = (end - 1) / kLanes;
    for (int64_t b = 0; b < kTileBlocks; ++b) {  // after the last block comes the last block again
      const int64_t block = key / kLanes + b, place = place_of(std::min(block, last));
      keys.at[b] = PairCache::keys_of(attention_.cache, place, heads_.dim);
      values.at[b] = keys.ahead[b] = PairCache::values_of(attention_.cache, place, heads_.dim);
      values.ahead[b] = PairCache::keys_of(
          attention_.cache, place_of(std::min(block + kTileBlocks, last)), heads_.dim);
    }
    const auto score = [&](int64_t r) {
      Products::score(Products::height(rows_, rows_ - r), queries_ + r * key_dim_, keys, key_dim_,
                      scores_ + place_of_row(r));
    };
    const auto gather = [&](int64_t r) {
      Products::gather(Products::height(rows_, rows_ - r), weights_ + place_of_row(r), values, num_blocks,
                       heads_.dim, sums_ + r * heads_.dim);
    };
    // what tiles store, and what is stored for tiles, is not read at once: a processor would wait
    score(0);
    int64_t r = 0;
    for (; r < rows_; r += kRowsPerProduct) {
      if (r + kRowsPerProduct < rows_) score(r + kRowsPerProduct);
      soften_rows(r, std::min(rows_, r + kRowsPerProduct), key, num_blocks);
      if (r) gather(r - kRowsPerProduct);
    }
    gather(r - kRowsPerProduct);
  }

  void soften_rows(int64_t begin, int64_t end, int64_t key, int64_t num_blocks) {
    if (is_whole(attention_, task_, begin, end - 1, key))
      for (int64_t r = begin; r < end; ++r) soften_row(r, WholeTile());
    else
      for (int64_t r = begin; r < end; ++r)
        soften_row(r, tile_of(attention_, task_, r, key, num_blocks));
  }

  static int64_t place_of_row(int64_t r) { return r % kPlaces * kTileKeys; }

  template <class Tile>
  [[gnu::always_inline]] void soften_row(int64_t r, const Tile& tile) {
    Number* weights = weights_ + place_of_row(r);
    const float correction = soften(scores_ + place_of_row(r), tile, seen_[r], [&](int64_t b, F32 values)
                                    STREAMWELL_INLINE { put(weights + b * kLanes, values); });
    if (correction == 1.0f) return;
    float* sums = sums_ + r * heads_.dim;
    for (int64_t d = 0; d < heads_.dim; d += kLanes)
      store(sums + d, mul(load(sums + d), broadcast(correction)));
  }

  const Attention& attention_;
  const Task& task_;
  const Heads& heads_;
  int64_t rows_, key_dim_;
  Lines<Seen>& seen_;
  float *sums_, *scores_;
  Number *weights_, *queries_;
};

// A few rows of queries times a tile of keys, and their weights times its values, in vectors: all of
// them pairs of bfloat16, or the rows floats, and what comes from the cache widened to such.
template <class RowNumber>
struct VectorProducts {
  using Number = RowNumber;
  static constexpr int64_t rows = kQueries, rows_per_task = 8 * kQueries;
  static constexpr bool fetches = true;

  static int height(int64_t, int64_t left) { return static_cast<int>(std::min(rows, left)); }

  // scores[r, key] = query r times key; scores are `[rows, kTileKeys]`.
  template <int R = kQueries>
  static void score(int height, const Number* queries, const Blocks& keys, int64_t key_dim,
                    float* scores) {
    if constexpr (R > 1)
      if (height < R) return score<R - 1>(height, queries, keys, key_dim, scores);
    F32 sums[R][kTileBlocks] = {};
    for (int64_t d = 0; d < key_dim; d += 2) {
      const uint16_t* columns[kTileBlocks];
      for (int b = 0; b < kTileBlocks; ++b) {
        columns[b] = keys.at[b] + d * kLanes;
        keys.fetch<64>(b, d * kLanes);
      }
      multiply(queries + d / 32 * kQueries * 32 + d % 32, 32, columns, sums);
    }
    repeat<R, kTileBlocks>([&](int r, int b) STREAMWELL_INLINE {
      store(scores + r * kTileKeys + b * kLanes, sums[r][b]);
    });
  }

  // sums[r] += weights[r] times values; sums are `[rows, dim]`.
  template <int R = kQueries>
  static void gather(int height, const Number* weights, const Blocks& values, int64_t num_blocks,
                     int64_t dim, float* sums) {
    if constexpr (R > 1)
      if (height < R) return gather<R - 1>(height, weights, values, num_blocks, dim, sums);
    int64_t d = 0;
    for (; d + kTileVectors * kLanes <= dim; d += kTileVectors * kLanes)
      gather_some<R, kTileVectors>(weights, values, num_blocks, dim, d, sums);
    for (; d < dim; d += kLanes) gather_some<R, 1>(weights, values, num_blocks, dim, d, sums);
  }

  static void leave() {}

 private:
  // sums[r][v] += two numbers of row r times those of column v, for all sixteen lanes.
  template <int R, int V>
  [[gnu::always_inline]] static void multiply(const Number* row, int64_t stride,
                                              const uint16_t* const (&columns)[V],
                                              F32 (&sums)[R][V]) {
    if constexpr (std::is_same_v<Number, float>) {
      for (int side = 0; side < 2; ++side) {
        F32 wide[V];
        repeat<V>([&](int v) {
          const I32 both = load_int(columns[v]);
          wide[v] = side ? high_half(both) : low_half(both);
        });
        repeat<R>([&](int r) {
          const F32 value = broadcast(row[r * stride + side]);
          repeat<V>([&](int v) { sums[r][v] = fma(value, wide[v], sums[r][v]); });
        });
      }
    } else {
      I32 pairs[V];
      repeat<V>([&](int v) { pairs[v] = load_int(columns[v]); });
      repeat<R>([&](int r) {
        const I32 pair = broadcast_four_bytes(row + r * stride);
        repeat<V>([&](int v) { sums[r][v] = dot_pairs(sums[r][v], pair, pairs[v]); });
      });
    }
  }

  // The same as `gather` for V vectors of dimensions from d on.
  template <int R, int V>
  static void gather_some(const Number* weights, const Blocks& values, int64_t num_blocks,
                          int64_t dim, int64_t d, float* result) {
    F32 sums[R][V];
    repeat<R, V>([&](int r, int v) STREAMWELL_INLINE {
      sums[r][v] = load(result + r * dim + d + v * kLanes);
    });
    for (int64_t key = 0; key < num_blocks * kLanes; key += 2) {
      const int64_t block = key / kLanes, place = (key % kLanes / 2 * dim + d) * 2;
      const uint16_t* columns[V];
      for (int v = 0; v < V; ++v) columns[v] = values.at[block] + place + v * kLanes * 2;
      values.fetch<V * 64>(block, place);
      multiply(weights + key, kTileKeys, columns, sums);
    }
    repeat<R, V>([&](int r, int v) STREAMWELL_INLINE {
      store(result + r * dim + d + v * kLanes, sums[r][v]);
    });
  }
};

#endif

}  // namespace streamwell
