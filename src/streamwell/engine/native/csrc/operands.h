// What a call of a linear layer multiplies: packed rows with panels of weights, and where their parts lie.
#pragma once

#include "call.h"
#include "coding.h"

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
           step * Scheme::x_bytes * tiles.room(tile);
  }

  // Weights as they lie in memory.
  const uint8_t* block_at(int64_t panel, int64_t step) const {
    if constexpr (is_coded<Scheme>) {
      const int64_t before = linear.panel_bytes - chunk_bytes_of(steps * Scheme::w_bytes / 2);
      return panel_at(panel) + before + step * kStoredBytes<Scheme>;
    } else {
      return panel_at(panel) + step * Scheme::w_bytes;
    }
  }

  // Of coded weights, to `place`, in whole chunks.
  Decoding decoding(int64_t panel, int64_t step, int64_t count, int64_t ahead, uint8_t* place) const {
    constexpr int64_t per_chunk = 2 * kChunkWeights / Scheme::w_bytes;
    return {*reinterpret_cast<const CodedPanel*>(panel_at(panel)), block_at(panel, step), step / per_chunk,
            (count + per_chunk - 1) / per_chunk, ahead, place};
  }

 private:
  const uint8_t* panel_at(int64_t panel) const {
    return static_cast<const uint8_t*>(linear.weights) + panel * linear.panel_bytes;
  }
};

// Panels that a thread has taken from its stretch.
struct Group {
  int64_t begin, end;
  bool is_last;  // of the stretch
};

// Panels of a group, of so many that are left of a stretch: fewer towards its end, so that threads that
// share it end together (guided self-scheduling: Polychronopoulos and Kuck 1987).
inline int64_t shared_out(int64_t panels) { return (panels + 1) / 2; }

// As many tiles of rows meet a block of weights, one after the other.
template <class Scheme>
constexpr int64_t kMaxTiles = 256 / Scheme::max_rows;

}  // namespace streamwell
