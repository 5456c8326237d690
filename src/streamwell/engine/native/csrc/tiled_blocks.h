// Rows times panels with tiles of the processor, block by block of a panel.
#pragma once

#include "operands.h"
#include "results.h"

namespace streamwell {

template <class Scheme>
class TiledBlocks {
 public:
  // Blocks are whole tiles, and equal but for the last one.
  TiledBlocks(const Operands<Scheme>& operands, Results<Scheme>& results)
      : operands_(operands), tiles_(operands.tiles), results_(results), steps_(operands.steps),
        block_steps_(steps_), near_steps_(steps_) {
    if (is_alone()) return;
    constexpr int64_t most = kBlockBytes / Scheme::w_bytes;
    const int64_t blocks = (steps_ + most - 1) / most;
    block_steps_ = (steps_ / kWordsUnit + blocks - 1) / blocks * kWordsUnit;
    const int64_t tiles = std::min(tiles_.count, kMaxTiles<Scheme>);
    const int64_t near = kRowBytes / (Scheme::max_rows * Scheme::x_bytes * tiles);
    near_steps_ = std::max<int64_t>(1, near / block_steps_) * block_steps_;
  }

  int64_t most_panels() const { return kMaxGroup; }

  // A block of a panel stays in the first cache while all rows pass by. So memory is read without leaps,
  // and the sums of a panel stay near. Only of what is so wide that its rows would not stay in the
  // second cache, a stretch of k meets all panels of a group.
  void multiply(const Group& group, int64_t tile0, int64_t tile1) {
    alignas(64) static thread_local Sum partial[kMaxGroup * kMaxTiles<Scheme> * Scheme::max_rows * 2];
    // the sums of a panel are written while those of the next are computed
    const int64_t tiles = tile1 - tile0, kept = near_steps_ < steps_ ? kMaxGroup : 2;
    Pending<Sum> pending;
    for (int64_t near = 0; near < steps_; near += near_steps_)
      for (int64_t panel = group.begin; panel < group.end; ++panel) {
        Sum* sums = partial + (panel - group.begin) % kept * tiles * 2 * Scheme::max_rows;
        const int64_t end = std::min(near + near_steps_, steps_);
        for (int64_t step = near; step < end; step += block_steps_) {
          const int64_t count = std::min(block_steps_, end - step);
          const uint8_t* next = is_alone() ? operands_.block_at(panel, step) + kBytesAhead
                                           : block_after(group, panel, near, step + count);
          const Ahead ahead = {next, next ? kWordsUnit * Scheme::w_bytes : 0};
          for (int64_t i = 0; i < tiles; ++i)
            multiply_tile(panel, tile0 + i, step, count, ahead.share_lines(i, tiles, count / kWordsUnit),
                          sums + i * 2 * Scheme::max_rows, pending);
        }
      }
    results_.write(pending, pending.left());
  }

 private:
  using Sum = typename Scheme::Sum;
  // Of a panel: beside it, the first cache has room for the sums of a tile. And of all rows, in the
  // second cache.
  static constexpr int64_t kBlockBytes = 28 << 10, kRowBytes = 512 << 10;
  // How far ahead a tile alone asks for weights, by what was fastest: bfloat16 with 1 to 3 KiB, the
  // bytes of int8 with 8.
  static constexpr int64_t kBytesAhead = Scheme::is_pairs ? 1 << 10 : 8 << 10;

  bool is_alone() const { return tiles_.count == 1; }  // which meets no weights twice

  // The weights that are read after those of a panel up to a step, or null.
  const uint8_t* block_after(const Group& group, int64_t panel, int64_t near, int64_t step) const {
    if (step < std::min(near + near_steps_, steps_)) return operands_.block_at(panel, step);
    if (panel + 1 < group.end) return operands_.block_at(panel + 1, near);
    if (step < steps_) return operands_.block_at(group.begin, step);
    return group.is_last ? nullptr : operands_.block_at(group.end, 0);
  }

  // While tiles are multiplied, the results of the tile before are written.
  void multiply_tile(int64_t panel, int64_t tile, int64_t step, int64_t count, Ahead ahead, Sum* sums,
                     Pending<Sum>& pending) {
    const int height = tiles_.height(tile);
    const int some = static_cast<int>((pending.left() * kWordsUnit + count - 1) / count);
    Scheme::accumulate(operands_.tile_at(tile, step), operands_.block_at(panel, step), count, ahead,
                       height, !is_alone(), step == 0, sums,
                       [&] {
                         if (some) results_.write(pending, std::min(some, pending.left()));
                       });
    if (step + count == steps_) pending = {panel, tiles_.first(tile), height, 0, sums};
  }

  const Operands<Scheme>& operands_;
  const Tiles& tiles_;
  Results<Scheme>& results_;
  int64_t steps_, block_steps_, near_steps_;
};

}  // namespace streamwell
