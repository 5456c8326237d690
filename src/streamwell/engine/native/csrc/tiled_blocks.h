// Rows times panels with tiles of the processor, block by block of a panel.
#pragma once

#include "decoded_ahead.h"
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
    const int64_t most = (decodes_before() ? kSmallBlockBytes : kBlockBytes) / Scheme::w_bytes;
    const int64_t blocks = (steps_ + most - 1) / most;
    block_steps_ = (steps_ / kWordsUnit + blocks - 1) / blocks * kWordsUnit;
    const int64_t tiles = std::min(tiles_.count, kMaxTiles<Scheme>);
    const int64_t near = kRowBytes / (Scheme::max_rows * Scheme::x_bytes * tiles);
    near_steps_ = std::max<int64_t>(1, near / block_steps_) * block_steps_;
  }

  // Panels of the next group of a stretch: not too few where rows do not stay in the second cache, since
  // then each group reads all of them anew.
  int64_t group_size(int64_t left) const {
    const int64_t least = 2 * near_steps_ < steps_ ? kMostPanels / 2 : 1;
    return std::min({kMostPanels, std::max(least, shared_out(left)), left});
  }

  // A block of a panel stays in the first cache while all rows pass by. So memory is read without leaps,
  // and the sums of a panel stay near. Only of what is so wide that its rows would not stay in the
  // second cache, a stretch of k meets all panels of a group.
  void multiply(const Group& group, int64_t tile0, int64_t tile1) {
    if constexpr (is_coded<Scheme>)
      if (is_alone()) return multiply_alone(group);
    alignas(64) static thread_local Sum partial[kMostPanels * kMaxTiles<Scheme> * Scheme::max_rows * 2];
    // the sums of a panel are written while those of the next are computed
    const int64_t tiles = tile1 - tile0, kept = near_steps_ < steps_ ? kMostPanels : 2;
    Pending<Sum> pending;
    Block next = block_of(group.begin, 0);
    Decoding decoding = decoding_of(next, 0);
    for (int i = 0; next.count; ++i) {
      const Block block = next;
      next = after(block, group);
      const uint8_t* weights = weights_of(block, i, decoding);
      if (decodes_before()) decoding = decoding_of(next, i + 1);
      const int64_t chunks = decodes_before() ? shared(decoding.left(), tiles * block.count) : kUnitChunks<Scheme>;
      const Ahead ahead = ahead_of(block, next, group);
      Sum* sums = partial + (block.panel - group.begin) % kept * tiles * 2 * Scheme::max_rows;
      for (int64_t tile = 0; tile < tiles; ++tile)
        multiply_tile(weights, block, tile0 + tile, ahead.share_lines(tile, tiles, block.count / kWordsUnit),
                      sums + tile * 2 * Scheme::max_rows, pending, [&] { decoding.go_on(chunks); });
      if (!decodes_before()) decoding = decoding_of(next, 0);
    }
    results_.write(pending, pending.left());
  }

 private:
  using Sum = typename Scheme::Sum;
  // Of a panel: beside it, the first cache has room for the sums of a tile. And of all rows, in the
  // second cache.
  static constexpr int64_t kBlockBytes = 28 << 10, kRowBytes = 512 << 10;
  // Of a group: the sums of 256 rows have room beside those.
  static constexpr int64_t kMostPanels = 16;
  // Of coded weights that few tiles meet: two blocks have room, one that is multiplied and one that is decoded.
  static constexpr int64_t kFewTiles = 4, kSmallBlockBytes = 8 << 10;
  // How far ahead a tile alone asks for weights, by what was fastest: bfloat16 with 1 to 3 KiB, the bytes of
  // int8 with 8.
  static constexpr int64_t kBytesAhead = Scheme::is_pairs ? 1 << 10 : 8 << 10;

  bool is_alone() const { return tiles_.count == 1; }  // which meets no weights twice

  // Coded weights are decoded while tiles are multiplied: with those of the block before, or, if many tiles
  // meet a block, while the first of them does.
  bool decodes_before() const { return is_coded<Scheme> && tiles_.count <= kFewTiles; }

  // What is multiplied after a block, nothing at the end of a group.
  Block after(const Block& block, const Group& group) const {
    const int64_t near = block.step / near_steps_ * near_steps_, step = block.step + block.count;
    if (step < std::min(near + near_steps_, steps_)) return block_of(block.panel, step);
    if (block.panel + 1 < group.end) return block_of(block.panel + 1, near);
    if (step < steps_) return block_of(group.begin, step);
    return {group.end, 0, 0};
  }

  Block block_of(int64_t panel, int64_t step) const {
    const int64_t end = std::min(step / near_steps_ * near_steps_ + near_steps_, steps_);
    return {panel, step, std::min(block_steps_, end - step)};
  }

  // Where the weights of a block are, or get in time.
  const uint8_t* weights_of(const Block& block, int i, Decoding& decoding) const {
    if (!is_coded<Scheme>) return operands_.block_at(block);
    decoding.go_on(decodes_before() ? decoding.left() : kUnitChunks<Scheme>);
    return place_of(i);
  }

  uint8_t* place_of(int i) const {
    alignas(64) static thread_local uint8_t places[kBlockBytes];
    return decodes_before() ? places + i % 2 * kSmallBlockBytes : places;
  }

  // What is read from memory while a block is multiplied.
  Ahead ahead_of(const Block& block, const Block& next, const Group& group) const {
    if (decodes_before() || (!next.count && group.is_last)) return {};
    const uint8_t* after = operands_.block_at(next);
    if (is_alone()) after = operands_.block_at(block) + kBytesAhead;
    return {after, kWordsUnit * kStoredBytes<Scheme>};
  }

  Decoding decoding_of(const Block& block, int i) const {
    const int64_t ahead = decodes_before() ? kCodedBytesAhead : 0;
    if constexpr (is_coded<Scheme>)
      if (block.count) return operands_.decoding(block, ahead, place_of(i));
    return {};
  }

  // How many of `count` go with each sixteen of so many steps.
  static int64_t shared(int64_t count, int64_t steps) { return (count * kWordsUnit + steps - 1) / steps; }

  // While tiles are multiplied, the results of the tile before are written, and `meanwhile` decodes.
  template <class Meanwhile>
  void multiply_tile(const uint8_t* weights, const Block& block, int64_t tile, Ahead ahead, Sum* sums,
                     Pending<Sum>& pending, const Meanwhile& meanwhile) {
    const int room = tiles_.room(tile);
    const int some = static_cast<int>(shared(pending.left(), block.count));
    Scheme::accumulate(operands_.tile_at(tile, block.step), weights, block.count, ahead,
                       room, !is_alone(), block.step == 0, sums,
                       [&] {
                         if (some) results_.write(pending, std::min(some, pending.left()));
                         if constexpr (is_coded<Scheme>) meanwhile();
                       });
    if (block.step + block.count == steps_)
      pending = {block.panel, tiles_.first(tile), tiles_.height(tile), room, 0, sums};
  }

  // A tile alone meets coded weights once. They are decoded shortly before.
  void multiply_alone(const Group& group) {
    alignas(64) static thread_local Sum partial[2][Scheme::max_rows * 2];
    const int height = tiles_.height(0);  // for which a tile alone has room
    Pending<Sum> pending;
    DecodedAhead<Scheme> decoded(operands_, group);
    for (int64_t panel = group.begin; panel < group.end; ++panel) {
      Sum* sums = partial[panel % 2];
      const int some = static_cast<int>(shared(pending.left(), steps_));
      Scheme::multiply_from(decoded.ring(), decoded.place_of(panel), operands_.tile_at(0, 0), steps_, height,
                            sums, [&] {
                              if (some) results_.write(pending, std::min(some, pending.left()));
                              decoded.decode_some();
                            });
      pending = {panel, 0, height, height, 0, sums};
    }
    results_.write(pending, pending.left());
  }

  const Operands<Scheme>& operands_;
  const Tiles& tiles_;
  Results<Scheme>& results_;
  int64_t steps_, block_steps_, near_steps_;
};

}  // namespace streamwell
