// What a call of a linear layer multiplies: packed rows with panels of weights, and where their parts lie.
#pragma once

#include "call.h"

namespace streamwell {

template <class Scheme>
struct Operands {
  const Linear& linear;
  Tiles tiles;  // of the rows
  int64_t steps;
  uint8_t* packed;  // rows

  explicit Operands(const Call& call)
      : linear(call.linear), tiles(call.rows, Scheme::max_rows, Scheme::is_tiled), steps(steps_of<Scheme>(linear.k)),
        packed(packed_rows(call.workspace, call.rows)) {}

  uint8_t* tile_at(int64_t tile, int64_t step) const {
    return packed + tiles.first(tile) * steps * Scheme::x_bytes +
           step * Scheme::x_bytes * tiles.height(tile);
  }

  const uint8_t* block_at(int64_t panel, int64_t step) const {
    return static_cast<const uint8_t*>(linear.weights) + (panel * steps + step) * Scheme::w_bytes;
  }
};

// Panels that a thread has taken from its stretch.
struct Group {
  int64_t begin, end;
  bool is_last;  // of the stretch
};

// As many tiles of rows meet a block of weights, one after the other.
template <class Scheme>
constexpr int64_t kMaxTiles = 256 / Scheme::max_rows;

constexpr int64_t kMaxGroup = kRegisters > 1 ? 2 : 8;  // second caches are small where registers are

}  // namespace streamwell
