// What a call of a linear layer multiplies: packed rows with panels of weights, and where their parts lie.
#pragma once

#include "call.h"
#include "coding.h"

namespace streamwell {

// Some steps of a panel.
struct Block {
  int64_t panel, step, count;
};

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
  const uint8_t* block_at(const Block& block) const {
    if constexpr (is_coded<Scheme>) {
      const int64_t before = linear.panel_bytes - chunk_bytes_of(steps * Scheme::w_bytes / 2);
      return panel_at(block.panel) + before + block.step * kStoredBytes<Scheme>;
    } else {
      return panel_at(block.panel) + block.step * Scheme::w_bytes;
    }
  }

  static constexpr int64_t steps_of_chunk = 2 * kChunkWeights / Scheme::w_bytes;

  const CodedPanel& coded_panel(int64_t panel) const {
    return *reinterpret_cast<const CodedPanel*>(panel_at(panel));
  }

  // Of coded weights, to `place`, in whole chunks.
  Decoding decoding(const Block& block, int64_t ahead, uint8_t* place) const {
    const int64_t chunks = (block.count + steps_of_chunk - 1) / steps_of_chunk;
    return {coded_panel(block.panel), block_at(block), block.step / steps_of_chunk, chunks, ahead, place};
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
