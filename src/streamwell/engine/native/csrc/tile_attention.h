// Attention over a cache of pairs with tile registers: 0 to 3 have sums, 4 queries, 6 keys, 5 weights
// and 7 values.
#pragma once

#include "pair_attention.h"
#include "tiles.h"

namespace streamwell {

#if defined(__AMX_TILE__)

// As `VectorProducts`, for sixteen rows.
class TileProducts {
 public:
  using Number = uint16_t;
  static constexpr int64_t rows = kTileRows, rows_per_task = 4 * rows;
  static constexpr bool fetches = false;

  // All products of a task have one height: to set another shape takes longer than to multiply some rows
  // for nobody.
  static int height(int64_t task_rows, int64_t) { return static_cast<int>(std::min(rows, task_rows)); }

  static void score(int height, const uint16_t* queries, const Blocks& keys, int64_t key_dim,
                    float* scores) {
    settle_memory();
    set_shapes(height);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < key_dim; d += 32, queries += kTileRows * 32) {
      _tile_loadd(4, queries, kTileBytes);
      _tile_loadd(6, keys.at[0] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(6, keys.at[1] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(1, 4, 6);
      _tile_loadd(6, keys.at[2] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(6, keys.at[3] + d * kLanes, kTileBytes);
      _tile_dpbf16ps(3, 4, 6);
    }
    constexpr int stride = kTileKeys * 4;
    _tile_stored(0, scores, stride);
    _tile_stored(1, scores + kLanes, stride);
    _tile_stored(2, scores + 2 * kLanes, stride);
    _tile_stored(3, scores + 3 * kLanes, stride);
  }

  static void gather(int height, const uint16_t* weights, const Blocks& values, int64_t num_blocks,
                     int64_t dim, float* sums) {
    settle_memory();
    set_shapes(height);
    int64_t d = 0;
    for (; d + 4 * kLanes <= dim; d += 4 * kLanes)
      gather_some<4>(weights, values, num_blocks, dim, d, sums);
    for (; d < dim; d += kLanes) gather_some<1>(weights, values, num_blocks, dim, d, sums);
  }

  static void leave() { release_tiles(); }

 private:
  // Compilers do not know that a tile that is loaded reads memory.
  static void settle_memory() { asm volatile("" : : : "memory"); }

  static void set_shapes(int height) {
    const TileShape rows = {height, 16}, keys = {kTileRows, 16}, values = {kTileRows / 2, 16};
    // linear layers have the numbers up to 32
    set_tile_shapes(100 + height, {rows, rows, rows, rows, rows, {height, 8}, keys, values});
  }

  // For so many registers of dimensions from d on.
  template <int registers>
  static void gather_some(const uint16_t* weights, const Blocks& values, int64_t num_blocks,
                          int64_t dim, int64_t d, float* result) {
    float* sums = result + d;
    const int64_t stride = dim * 4;
    _tile_loadd(0, sums, stride);
    if constexpr (registers == 4) {
      _tile_loadd(1, sums + kLanes, stride);
      _tile_loadd(2, sums + 2 * kLanes, stride);
      _tile_loadd(3, sums + 3 * kLanes, stride);
    }
    for (int64_t b = 0; b < num_blocks; ++b) {
      const uint16_t* value = values.at[b] + d * 2;
      _tile_loadd(5, weights + b * kLanes, kTileKeys * 2);
      _tile_loadd(7, value, stride);
      _tile_dpbf16ps(0, 5, 7);
      if constexpr (registers == 4) {
        _tile_loadd(7, value + 2 * kLanes, stride);
        _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(7, value + 4 * kLanes, stride);
        _tile_dpbf16ps(2, 5, 7);
        _tile_loadd(7, value + 6 * kLanes, stride);
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
};

using PairAttention = PairTask<TileProducts>;
using WidenedAttention = PairAttention;  // tiles are always faster

#elif defined(__AVX512BF16__)

using PairAttention = PairTask<VectorProducts<uint16_t>>;
using WidenedAttention = PairTask<VectorProducts<float>>;

#endif

}  // namespace streamwell
