// Rows times panels in vectors, block by block of a panel.
#pragma once

#include <type_traits>

#include "coded_tile.h"
#include "operands.h"
#include "processor.h"
#include "results.h"

namespace streamwell {

template <class Scheme>
class VectorBlocks {
 public:
  VectorBlocks(const Operands<Scheme>& operands, Results<Scheme>& results)
      : operands_(operands), tiles_(operands.tiles), results_(results), steps_(operands.steps) {
    const int64_t bytes = has_few_tiles() ? kNearBytes : kBlockBytes;
    block_steps_ = is_single() ? steps_ : std::max<int64_t>(kWordsUnit, bytes / Scheme::w_bytes);
  }

  // Panels of the next group of a stretch.
  int64_t group_size(int64_t left) const { return has_few_tiles() ? 1 : std::min(kMostPanels, shared_out(left)); }

  // A tile of rows goes through all panels of the group while it is near; the first of them fetches
  // the weights that come next.
  void multiply(const Group& group, int64_t tile0, int64_t tile1) {
    alignas(64) static thread_local Sum partial[kMostPanels * kMaxTiles<Scheme> * Scheme::max_rows * 2];
    for (int64_t step = 0; step < steps_; step += block_steps_) {
      const int64_t count = std::min(block_steps_, steps_ - step);
      Sum* sums = partial;
      for (int64_t tile = tile0; tile < tile1; ++tile)
        for (int64_t panel = group.begin; panel < group.end; ++panel) {
          const Block block = {panel, step, count};
          const auto ahead = ahead_of(group, block, tile - tile0, tile1 - tile0);
          with_height(tiles_.height(tile), [&](auto height) STREAMWELL_INLINE {
            constexpr int M = decltype(height)::value;
            if (is_coded<Scheme> && tile == tile0) return decode_and_multiply<M>(group, block, tile, ahead, sums);
            multiply_tile<M>(group, block, tile, ahead, sums);
          });
          // sums that are complete at once need no place of their own
          if (count < steps_) sums += 2 * Scheme::max_rows;
        }
    }
  }

 private:
  using Sum = typename Scheme::Sum;
  using Distance = std::conditional_t<Scheme::spreads, Ahead, int64_t>;
  // Of a panel: a group of them stays in the second cache, with the rows that they meet.
  static constexpr int64_t kBlockBytes = 58 << 10;
  static constexpr int64_t kMostPanels = kRegisters > 1 ? 2 : 8;  // second caches are small where registers are
  // Panels are fetched ahead of their use: a processor that computes does not see far enough by itself.
  // Zen 4 does with one row, and with up to four of a scheme that asks only once, unless weights are coded; Emerald
  // Rapids never does, nor Zen 3, but for one row of float32, which is a twentieth slower for being told.
  static constexpr int64_t kFewRows = kRegisters > 1 || is_coded<Scheme> ? 0 : Scheme::spreads ? 4 : 1;
  static constexpr int64_t kBytesAhead = 8 << 10;
  static constexpr int64_t kFetchingTiles = kRegisters > 1 ? 4 : 1;
  // So few tiles meet a block while it is in the first cache, and memory is read without leaps.
  static constexpr int64_t kFewTiles = 3;

  bool is_single() const { return tiles_.count == 1; }  // which uses no panel twice

  bool fetches_by_itself() const { return tiles_.rows <= kFewRows && !is_intel(); }

  bool has_few_tiles() const {
    return Scheme::spreads && kRegisters > 1 && tiles_.count <= kFewTiles;
  }

  // Calls `body` with a tile's height as a constant.
  template <int M = Scheme::max_rows, class Body>
  static void with_height(int height, const Body& body) {
    if (height == M) {
      body(std::integral_constant<int, M>());
    } else if constexpr (M > 1) {
      with_height<M - 1>(height, body);
    }
  }

  // What a tile of a block fetches. Memory works while a processor waits for none of it, so that
  // several tiles share what one alone would have to wait for.
  Distance ahead_of(const Group& group, const Block& block, int64_t index, int64_t tiles) const {
    const int64_t sharing = Scheme::spreads ? std::min<int64_t>(tiles, kFetchingTiles) : 1;
    const int64_t from = index < sharing ? bytes_ahead(group, block) : 0;
    if constexpr (Scheme::spreads) {
      const Ahead whole = {operands_.block_at(block) + from, kStoredBytes<Scheme>};
      return from ? whole.share(index, sharing, block.count) : Ahead();
    } else {
      return from;
    }
  }

  // Bytes from a block to the one that is read after it, or none.
  int64_t bytes_ahead(const Group& group, const Block& block) const {
    if (is_single()) return fetches_by_itself() ? 0 : kBytesAhead;
    const int64_t end = block.step + block.count;
    const uint8_t* here = operands_.block_at(block);
    if (block.panel + 1 < group.end) return operands_.block_at({block.panel + 1, block.step, 0}) - here;
    if (end < steps_) return operands_.block_at({group.begin, end, 0}) - here;
    return group.is_last ? 0 : operands_.block_at({group.end, 0, 0}) - here;
  }

  // Where coded weights of a block are, as they are multiplied, once its first tile has met them.
  static uint8_t* decoded_at(const Group& group, const Block& block) {
    return decoded_ + (block.panel - group.begin) * kBlockBytes;
  }

  template <int M>
  void multiply_tile(const Group& group, const Block& block, int64_t tile, Distance ahead, Sum* partial) {
    const uint8_t* weights =
        is_coded<Scheme> ? decoded_at(group, block) : operands_.block_at(block);
    Sum sums[M][2];
    take<M>(sums, block, partial);
    Scheme::template multiply<M>(operands_.tile_at(tile, block.step), weights, block.count, ahead, sums);
    put<M>(sums, block, tile, partial);
  }

  // The first tile that meets a block of coded weights, which leaves them decoded to the others.
  template <int M>
  [[gnu::noinline]] void decode_and_multiply(const Group& group, const Block& block, int64_t tile,
                                             Distance ahead, Sum* partial) {
    if constexpr (is_coded<Scheme>) {
      uint8_t* place = decoded_at(group, block);
      Sum sums[M][2];
      take<M>(sums, block, partial);
      if (is_single()) {
        streamwell::decode_and_multiply<false>(operands_, block, tile, ahead, place, sums);
      } else {
        streamwell::decode_and_multiply<true>(operands_, block, tile, ahead, place, sums);
      }
      put<M>(sums, block, tile, partial);
    }
  }

  // Sums of the steps before a block.
  template <int M>
  [[gnu::always_inline]] static void take(Sum (&sums)[M][2], const Block& block, const Sum* partial) {
    repeat<M, 2>([&](int m, int s) STREAMWELL_INLINE { sums[m][s] = block.step ? partial[2 * m + s] : Sum{}; });
  }

  // Sums go where those of the next block begin, or become results.
  template <int M>
  [[gnu::always_inline]] void put(Sum (&sums)[M][2], const Block& block, int64_t tile, Sum* partial) {
    repeat<M, 2>([&](int m, int s) STREAMWELL_INLINE { partial[2 * m + s] = sums[m][s]; });
    if (block.step + block.count < steps_) return;
    Pending<Sum> pending = {block.panel, tiles_.first(tile), M, M, 0, partial};
    results_.write(pending, M);
  }

  // Coded weights as they are multiplied.
  alignas(64) static inline thread_local uint8_t decoded_[is_coded<Scheme> ? kMostPanels * kBlockBytes : 1];

  const Operands<Scheme>& operands_;
  const Tiles& tiles_;
  Results<Scheme>& results_;
  int64_t steps_, block_steps_;
};

}  // namespace streamwell
