// Rows times panels in vectors, block by block of a panel.
#pragma once

#include <type_traits>

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
          const auto ahead = ahead_of(group, panel, step, count, tile - tile0, tile1 - tile0);
          const uint8_t* weights = weights_of(group, panel, step, count, tile == tile0);
          with_height(tiles_.height(tile), weights, panel, tile, step, count, ahead, sums);
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
  // With one row Zen 4 does, and with up to four of a scheme that asks only once; Emerald Rapids never
  // does, nor Zen 3, but for one row of float32, which is a twentieth slower for being told.
  static constexpr int64_t kFewRows = kRegisters > 1 ? 0 : Scheme::spreads ? 4 : 1;
  static constexpr int64_t kBytesAhead = 8 << 10;
  static constexpr int64_t kFetchingTiles = kRegisters > 1 ? 4 : 1;
  // So few tiles meet a block while it is in the first cache, and memory is read without leaps.
  static constexpr int64_t kFewTiles = 3;

  bool is_single() const { return tiles_.count == 1; }  // which uses no panel twice

  bool fetches_by_itself() const { return tiles_.rows <= kFewRows && !is_intel(); }

  bool has_few_tiles() const {
    return Scheme::spreads && kRegisters > 1 && tiles_.count <= kFewTiles;
  }

  template <int M = Scheme::max_rows>
  void with_height(int height, const uint8_t* weights, int64_t panel, int64_t tile, int64_t step, int64_t count,
                   Distance ahead, Sum* partial) {
    if (height == M && is_coded<Scheme> && is_single()) {
      decode_and_multiply<M>(panel, partial);
    } else if (height == M) {
      multiply_tile<M>(weights, panel, tile, step, count, ahead, partial);
    } else if constexpr (M > 1) {
      with_height<M - 1>(height, weights, panel, tile, step, count, ahead, partial);
    }
  }

  // What a tile of a block fetches. Memory works while a processor waits for none of it, so that
  // several tiles share what one alone would have to wait for.
  Distance ahead_of(const Group& group, int64_t panel, int64_t step, int64_t count, int64_t index,
                    int64_t tiles) const {
    const int64_t sharing = Scheme::spreads ? std::min<int64_t>(tiles, kFetchingTiles) : 1;
    const int64_t from = index < sharing ? bytes_ahead(group, panel, step, count) : 0;
    if constexpr (Scheme::spreads) {
      const Ahead whole = {operands_.block_at(panel, step) + from, kStoredBytes<Scheme>};
      return from ? whole.share(index, sharing, count) : Ahead();
    } else {
      return from;
    }
  }

  // Bytes from a block to the one that is read after it, or none.
  int64_t bytes_ahead(const Group& group, int64_t panel, int64_t step, int64_t count) const {
    if (is_single()) return fetches_by_itself() ? 0 : kBytesAhead;
    const uint8_t* here = operands_.block_at(panel, step);
    if (panel + 1 < group.end) return operands_.block_at(panel + 1, step) - here;
    if (step + count < steps_) return operands_.block_at(group.begin, step + count) - here;
    return group.is_last ? 0 : operands_.block_at(group.end, 0) - here;
  }

  // Where the weights of a block are. Coded ones are decoded before their first tile, but for a single one,
  // which has a panel at once.
  const uint8_t* weights_of(const Group& group, int64_t panel, int64_t step, int64_t count,
                            bool is_first) const {
    if constexpr (is_coded<Scheme>) {
      uint8_t* place = decoded_ + (panel - group.begin) * kBlockBytes;
      if (is_first && !is_single()) operands_.decoding(panel, step, count, 0, place).finish();
      return place;
    } else {
      return operands_.block_at(panel, step);
    }
  }

  template <int M>
  void multiply_tile(const uint8_t* weights, int64_t panel, int64_t tile, int64_t step, int64_t count,
                     Distance ahead, Sum* partial) {
    Sum sums[M][2];
    repeat<M, 2>([&](int m, int s) STREAMWELL_INLINE { sums[m][s] = step ? partial[2 * m + s] : Sum{}; });
    Scheme::template multiply<M>(operands_.tile_at(tile, step), weights, count, ahead, sums);
    put<M>(sums, panel, tile, step + count, partial);
  }

  // A single tile and a whole panel of coded weights, piece by piece, each of which stays in the first cache.
  // Memory works while pieces are multiplied: asked with what is decoded, it would rest meanwhile.
  template <int M>
  [[gnu::noinline]] void decode_and_multiply(int64_t panel, Sum* partial) {
    if constexpr (is_coded<Scheme>) {
      constexpr int64_t near = kNearBytes / Scheme::w_bytes;
      Sum sums[M][2] = {};
      for (int64_t step = 0; step < steps_; step += near) {
        const int64_t count = std::min(near, steps_ - step);
        operands_.decoding(panel, step, count, 0, decoded_).finish();
        const Ahead next = {operands_.block_at(panel, step) + kBytesAhead, kStoredBytes<Scheme>};
        Scheme::template multiply<M>(operands_.tile_at(0, step), decoded_, count, next, sums);
      }
      put<M>(sums, panel, 0, steps_, partial);
    }
  }

  // Sums of the steps before `end` go where those of the next ones begin, or become results.
  template <int M>
  [[gnu::always_inline]] void put(Sum (&sums)[M][2], int64_t panel, int64_t tile, int64_t end, Sum* partial) {
    repeat<M, 2>([&](int m, int s) STREAMWELL_INLINE { partial[2 * m + s] = sums[m][s]; });
    if (end < steps_) return;
    Pending<Sum> pending = {panel, tiles_.first(tile), M, M, 0, partial};
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
