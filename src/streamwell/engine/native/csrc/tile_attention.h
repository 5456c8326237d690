// Attention in bfloat16 with tile registers, over a cache of pairs.
//
// A block holds 16 positions: keys as `[kv_heads, key_dim / 2, 16, 2]`, neighbouring dimensions side
// by side and zeros up to a multiple of 32 dimensions; values as `[kv_heads, 8, head_dim, 2]`,
// neighbouring positions side by side. So both are what the processor multiplies, where they lie.
// Softmax and sums are float32.
#pragma once

#include "attention.h"
#include "tiles.h"

namespace streamwell {

// Dimensions of a key in a cache of pairs.
inline int64_t key_dim_of(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }

#if defined(__AMX_TILE__)

// How rows are written into a cache of pairs.
struct PairCache {
  // Tiles are read up to their ends, times zero where nothing was written: what another sequence left
  // there may not be finite.
  static void open_block(int64_t block, Heads heads, const Cache& cache) {
    const int64_t key_bytes = heads.kv * key_dim_of(heads.dim) * kLanes * 2;
    std::memset(keys_of(cache, block * heads.kv, heads.dim), 0, key_bytes);
    std::memset(values_of(cache, block * heads.kv, heads.dim), 0, heads.kv * heads.dim * kLanes * 2);
  }

  static void write(const float* key, const float* value, int64_t slot, Heads heads,
                    const Cache& cache) {
    const int64_t block = slot / kLanes, place = slot % kLanes;
    for (int64_t h = 0; h < heads.kv; ++h, key += heads.dim, value += heads.dim) {
      uint16_t* keys = keys_of(cache, block * heads.kv + h, heads.dim) + place * 2;
      uint16_t* values = values_of(cache, block * heads.kv + h, heads.dim);
      values += place / 2 * heads.dim * 2 + place % 2;
      for (int64_t d = 0; d < heads.dim; d += kLanes) {
        uint16_t narrow[kLanes];
        store_pairs(narrow, load(key + d));
        for (int i = 0; i < kLanes; ++i) keys[(d + i) / 2 * kLanes * 2 + i % 2] = narrow[i];
        store_pairs(narrow, load(value + d));
        for (int i = 0; i < kLanes; ++i) values[(d + i) * 2] = narrow[i];
      }
    }
  }

  static uint16_t* keys_of(const Cache& cache, int64_t head, int64_t dim) {
    return reinterpret_cast<uint16_t*>(cache.keys) + head * key_dim_of(dim) * kLanes;
  }

  static uint16_t* values_of(const Cache& cache, int64_t head, int64_t dim) {
    return reinterpret_cast<uint16_t*>(cache.values) + head * dim * kLanes;
  }

  static void store_pairs(uint16_t* out, F32 values) {
    const __m256bh narrow = _mm512_cvtneps_pbh(values);
    std::memcpy(out, &narrow, sizeof(narrow));
  }
};

// A task whose rows are taken sixteen at a time: registers 0 to 3 gather, 4 has queries, 6 keys, 5
// weights and 7 values.
class TileTask {
 public:
  using CacheKind = PairCache;
  static constexpr int64_t max_rows = 4 * kTileRows;

  TileTask(const Attention& attention, const Task& task, Scratch& scratch)
      : attention_(attention), task_(task), heads_(attention.heads),
        rows_(task.tokens * heads_.group()), key_dim_(key_dim_of(heads_.dim)),
        seen_(scratch.seen) {
    const int64_t padded = (rows_ + kTileRows - 1) / kTileRows * kTileRows;
    scratch.floats.resize(padded * (heads_.dim + key_dim_ / 2) + kTileRows * kTileKeys * 3 / 2);
    sums_ = scratch.floats.data();
    scores_ = sums_ + padded * heads_.dim;
    weights_ = reinterpret_cast<uint16_t*>(scores_ + kTileRows * kTileKeys);
    queries_ = weights_ + kTileRows * kTileKeys;
    pack_queries();
  }

  void run() {
    const Gathered gathered(attention_, task_, sums_, seen_);
    const int64_t end = task_.end();
    for (int64_t key = attention_.first_key(task_.start); key < end; key += kTileKeys)
      for (int64_t first = 0; first < rows_; first += kTileRows) {
        const int64_t count = std::min<int64_t>(kTileRows, rows_ - first);
        if (last_seen(first + count - 1) >= key) attend(first, count, key, end);
      }
    gathered.write();
  }

  static void leave() { release_tiles(); }

 private:
  int64_t last_seen(int64_t r) const { return task_.last_seen(r, heads_.group()); }

  // 32 dimensions of sixteen rows lie together.
  void pack_queries() {
    const F32 scale = broadcast(attention_.scale);
    for (int64_t r = 0; r < rows_; ++r) {
      const float* query = attention_.queries + task_.offset_of(r, heads_.group(),
                                                                attention_.query_floats, heads_.dim);
      uint16_t* out = queries_ + r / kTileRows * kTileRows * key_dim_ + r % kTileRows * 32;
      for (int64_t d = 0; d < key_dim_; d += kLanes) {
        const F32 values = d < heads_.dim ? mul(load(query + d), scale) : zero();
        PairCache::store_pairs(out + d / 32 * kTileRows * 32 + d % 32, values);
      }
    }
  }

  void attend(int64_t first, int64_t count, int64_t key, int64_t end) {
    const int64_t num_blocks = (std::min<int64_t>(end, key + kTileKeys) - key + kLanes - 1) / kLanes;
    const int height = static_cast<int>(count);
    const TileShape rows = {height, 16}, keys = {kTileRows, 16}, values = {kTileRows / 2, 16};
    // linear layers have the numbers up to 32
    set_tile_shapes(100 + height, {rows, rows, rows, rows, rows, {height, 8}, keys, values});
    score(first, key, num_blocks);
    for (int64_t r = 0; r < count; ++r) soften_row(first + r, r, key, num_blocks);
    int64_t d = 0;
    for (; d + 4 * kLanes <= heads_.dim; d += 4 * kLanes) gather<4>(first, key, num_blocks, d);
    for (; d < heads_.dim; d += kLanes) gather<1>(first, key, num_blocks, d);
  }

  int64_t head_at(int64_t key) const {
    return task_.blocks[key / kLanes] * heads_.kv + task_.kv_head;
  }

  // scores[r, key] = query r times key; what comes after the last block is the last block again.
  void score(int64_t first, int64_t key, int64_t num_blocks) {
    const uint16_t* keys[kTileBlocks];
    for (int64_t b = 0; b < kTileBlocks; ++b)
      keys[b] = PairCache::keys_of(attention_.cache,
                                   head_at(key + std::min(b, num_blocks - 1) * kLanes), heads_.dim);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const uint16_t* query = queries_ + first * key_dim_;
    for (int64_t d = 0; d < key_dim_; d += 32, query += kTileRows * 32) {
      _tile_loadd(4, query, kTileBytes);
      _tile_loadd(6, keys[0] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(6, keys[1] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(1, 4, 6);
      _tile_loadd(6, keys[2] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(6, keys[3] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(3, 4, 6);
    }
    constexpr int stride = kTileKeys * 4;
    _tile_stored(0, scores_, stride);
    _tile_stored(1, scores_ + kLanes, stride);
    _tile_stored(2, scores_ + 2 * kLanes, stride);
    _tile_stored(3, scores_ + 3 * kLanes, stride);
  }

  void soften_row(int64_t row, int64_t r, int64_t key, int64_t num_blocks) {
    float* scores = scores_ + r * kTileKeys;
    const Sight sight(last_seen(row), attention_.window, key);
    const Shaping shaping = shaping_of(attention_, task_, row, key);
    const float correction = soften(scores, num_blocks, shaping, sight, seen_[row]);
    for (int64_t b = 0; b < num_blocks; ++b)
      PairCache::store_pairs(weights_ + r * kTileKeys + b * kLanes, load(scores + b * kLanes));
    if (correction == 1.0f) return;
    float* sums = sums_ + row * heads_.dim;
    for (int64_t d = 0; d < heads_.dim; d += kLanes)
      store(sums + d, mul(load(sums + d), broadcast(correction)));
  }

  // sums[r, d..] += weights[r] times values, for so many registers of dimensions.
  template <int registers>
  void gather(int64_t first, int64_t key, int64_t num_blocks, int64_t d) {
    float* sums = sums_ + first * heads_.dim + d;
    const int64_t stride = heads_.dim * 4;
    _tile_loadd(0, sums, stride);
    if constexpr (registers == 4) {
      _tile_loadd(1, sums + kLanes, stride);
      _tile_loadd(2, sums + 2 * kLanes, stride);
      _tile_loadd(3, sums + 3 * kLanes, stride);
    }
    for (int64_t b = 0; b < num_blocks; ++b) {
      const uint16_t* values =
          PairCache::values_of(attention_.cache, head_at(key + b * kLanes), heads_.dim) + d * 2;
      _tile_loadd(5, weights_ + b * kLanes, kTileKeys * 2);
      _tile_loadd(7, values, stride);
      _tile_dpbf16ps(0, 5, 7);
      if constexpr (registers == 4) {
        _tile_loadd(7, values + 2 * kLanes, stride);
        _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(7, values + 4 * kLanes, stride);
        _tile_dpbf16ps(2, 5, 7);
        _tile_loadd(7, values + 6 * kLanes, stride);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, sums, stride);
    if constexpr (registers == 4) {
      _tile_stored(1, sums + kLanes, stride);
      _tile_stored(2, sums + 2 * kLanes, stride);
      _tile_stored(3, sums + 3 * kLanes, stride);
    }
  }

  const Attention& attention_;
  const Task& task_;
  const Heads& heads_;
  int64_t rows_, key_dim_;
  std::vector<Seen>& seen_;
  float *sums_, *scores_;
  uint16_t *weights_, *queries_;
};

#endif

}  // namespace streamwell
