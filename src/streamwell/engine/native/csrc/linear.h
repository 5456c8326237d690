// Linear layers over packed weights: y[row, n] = epilogue(sum over k of x[row, k] * w[n, k]).
//
// Panels and tiles are walked so that what is used again stays in a cache (Goto and van de Geijn
// 2008, "Anatomy of high-performance matrix multiplication"; they are named as there).
#pragma once

#include <omp.h>

#include <atomic>
#include <type_traits>
#include <vector>

#include "floats.h"
#include "processor.h"
#include "results.h"
#include "super_blocks.h"
#include "tiles.h"

namespace streamwell {

// One call: packs the rows, then goes through the panels.
template <class Scheme>
class Multiplication {
 public:
  explicit Multiplication(const Call& call)
      : linear_(call.linear), x_(call.x), tiles_(call.rows, Scheme::max_rows),
        is_single_(!Scheme::is_tiled && tiles_.count == 1), steps_(steps_of<Scheme>(linear_.k)),
        panels_(panels_of(linear_.n)), row_scales_(reinterpret_cast<float*>(call.workspace)),
        packed_(call.workspace + (call.rows * 4 + 63) / 64 * 64), results_(call, row_scales_) {
    const int64_t bytes = has_few_tiles() ? kNearBytes : kBlockBytes;
    block_steps_ = is_single_ ? steps_ : std::max<int64_t>(kWordsUnit, bytes / Scheme::w_bytes);
  }

  // A thread has a stretch of panels of its own and takes them from its beginning on, group by group:
  // memory is read fastest where it is read without leaps. Who is done takes groups of the others'.
  void run() {
    if (omp_in_parallel()) return run_alone();
    std::vector<Taken> taken(omp_get_max_threads());
#pragma omp parallel
    {
#pragma omp for schedule(static)
      for (int64_t part = 0; part < parts(); ++part) pack(part);
      const int threads = omp_get_num_threads(), own = omp_get_thread_num();
      for (int i = 0; i < threads; ++i) {
        const int64_t stretch = (own + i) % threads;
        run_stretch(panels_ * stretch / threads, panels_ * (stretch + 1) / threads, taken[stretch]);
      }
      if constexpr (Scheme::is_tiled) release_tiles();
    }
  }

 private:
  void run_alone() {
    Taken taken;
    for (int64_t part = 0; part < parts(); ++part) pack(part);
    run_stretch(0, panels_, taken);
    if constexpr (Scheme::is_tiled) release_tiles();
  }

  // How many panels of a stretch are taken. Each count has a line of the cache to itself: else a
  // thread that takes some of its own would wait for what the other threads have done.
  struct alignas(64) Taken {
    std::atomic<int64_t> panels = 0;
  };

  struct Group {
    int64_t begin, end;  // its panels
    bool is_last;        // of its stretch
  };

  // Groups get smaller towards the end of a stretch, so that threads that share it end together
  // (guided self-scheduling: Polychronopoulos and Kuck 1987).
  void run_stretch(int64_t begin, int64_t end, Taken& taken) {
    const int64_t most = has_few_tiles() ? 1 : kMaxGroup;
    int64_t first = taken.panels.load(std::memory_order_relaxed);
    while (begin + first < end) {
      const int64_t size = std::min(most, (end - begin - first + 1) / 2);
      if (!taken.panels.compare_exchange_weak(first, first + size, std::memory_order_relaxed)) continue;
      const Group group = {begin + first, begin + first + size, begin + first + size == end};
      for (int64_t tile = 0; tile < tiles_.count; tile += kMaxTiles)
        multiply_block(group, tile, std::min(tile + kMaxTiles, tiles_.count));
      first += size;
    }
  }

  using Sum = typename Scheme::Sum;
  using Distance = std::conditional_t<Scheme::spreads, Ahead, int64_t>;
  // Of a panel: a group of them stays in the second cache, with the rows that they meet.
  static constexpr int64_t kBlockBytes = (Scheme::is_tiled ? 96 : 58) << 10;
  static constexpr int64_t kMaxTiles = 256 / Scheme::max_rows;
  static constexpr int64_t kMaxGroup = kRegisters > 1 ? 2 : 8;  // second caches are small where registers are
  // Panels are fetched ahead of their use: a processor that computes does not see far enough by itself.
  // With one row Zen 4 does, and with up to four of a scheme that asks only once; Emerald Rapids never
  // does, nor Zen 3, but for one row of float32, which is a twentieth slower for being told.
  static constexpr int64_t kFewRows = kRegisters > 1 ? 0 : Scheme::spreads ? 4 : 1;
  static constexpr int64_t kBytesAhead = 8 << 10;
  static constexpr int64_t kFetchingTiles = kRegisters > 1 ? 4 : 1;
  // So few tiles meet a block while it is in the first cache, and memory is read without leaps.
  static constexpr int64_t kFewTiles = 3;

  bool fetches_by_itself() const { return tiles_.rows <= kFewRows && !is_intel(); }

  bool has_few_tiles() const {
    return Scheme::spreads && kRegisters > 1 && tiles_.count <= kFewTiles;
  }

  // Rows are packed in parts: whole ones, or chunks of k of a whole tile, so that the lines that a
  // tile's rows share are still at hand for the next row.
  static constexpr int64_t kChunk = std::max(256, Scheme::step);

  int64_t chunks() const { return (linear_.k + kChunk - 1) / kChunk; }

  int64_t parts() const { return Scheme::pack_whole_rows ? tiles_.rows : tiles_.count * chunks(); }

  void pack(int64_t part) {
    if constexpr (Scheme::pack_whole_rows) {
      const int64_t tile = tiles_.of(part), m = part - tiles_.first(tile);
      pack(tile, static_cast<int>(m), 0, linear_.k);
    } else {
      const int64_t tile = part / chunks(), first = part % chunks() * kChunk;
      for (int m = 0; m < tiles_.height(tile); ++m)
        pack(tile, m, first, std::min(kChunk, linear_.k - first));
    }
  }

  void pack(int64_t tile, int m, int64_t first, int64_t count) {
    const int64_t row = tiles_.first(tile) + m;
    Scheme::pack_row(x_ + row * linear_.k + first, count, tile_at(tile, first / Scheme::step), m,
                     tiles_.height(tile), row_scales_ + row);
  }

  uint8_t* tile_at(int64_t tile, int64_t step) const {
    return packed_ + tiles_.first(tile) * steps_ * Scheme::x_bytes +
           step * Scheme::x_bytes * tiles_.height(tile);
  }

  // A tile of rows goes through all panels of the group while it is near; the first of them fetches
  // the weights that come next.
  void multiply_block(const Group& group, int64_t tile0, int64_t tile1) {
    alignas(64) static thread_local Sum partial[kMaxGroup * kMaxTiles * Scheme::max_rows * 2];
    Pending<Sum> pending;
    for (int64_t step = 0; step < steps_; step += block_steps_) {
      const int64_t count = std::min(block_steps_, steps_ - step);
      int64_t place = 0;
      // sums that are complete at once need no place of their own, but for those being written
      const auto sums = [&] {
        const int64_t at = count < steps_ ? place : place % 2;
        ++place;
        return partial + at * 2 * Scheme::max_rows;
      };
      for (int64_t tile = tile0; tile < tile1; ++tile)
        for (int64_t panel = group.begin; panel < group.end; ++panel) {
          const auto ahead = ahead_of(group, panel, step, count, tile - tile0, tile1 - tile0);
          if constexpr (Scheme::is_tiled) {
            multiply_with_tiles(panel, tile, step, count, ahead, sums(), pending);
          } else {
            with_height(tiles_.height(tile), panel, tile, step, count, ahead, sums());
          }
        }
    }
    results_.write(pending, pending.height);
  }

  template <int M = Scheme::max_rows>
  void with_height(int height, int64_t panel, int64_t tile, int64_t step, int64_t count,
                   Distance ahead, Sum* partial) {
    if (height == M) {
      multiply_tile<M>(panel, tile, step, count, ahead, partial);
    } else if constexpr (M > 1) {
      with_height<M - 1>(height, panel, tile, step, count, ahead, partial);
    }
  }

  // What a tile of a block fetches. Memory works while a processor waits for none of it, so that
  // several tiles share what one alone would have to wait for.
  Distance ahead_of(const Group& group, int64_t panel, int64_t step, int64_t count, int64_t index,
                    int64_t tiles) const {
    const int64_t sharing = Scheme::spreads ? std::min<int64_t>(tiles, kFetchingTiles) : 1;
    const int64_t from = index < sharing ? bytes_ahead(group, panel, step, count) : 0;
    if constexpr (Scheme::spreads) {
      const Ahead whole = {block_at(panel, step) + from, Scheme::w_bytes};
      return from ? whole.share(index, sharing, count) : Ahead();
    } else {
      return from;
    }
  }

  // Bytes from a block to the one that is read after it, or none.
  int64_t bytes_ahead(const Group& group, int64_t panel, int64_t step, int64_t count) const {
    if (is_single_) return fetches_by_itself() ? 0 : kBytesAhead;
    if (panel + 1 < group.end) return steps_ * Scheme::w_bytes;
    const uint8_t* here = block_at(panel, step);
    if (step + count < steps_) return block_at(group.begin, step + count) - here;
    return group.is_last ? 0 : block_at(group.end, 0) - here;
  }

  const uint8_t* block_at(int64_t panel, int64_t step) const {
    return static_cast<const uint8_t*>(linear_.weights) + (panel * steps_ + step) * Scheme::w_bytes;
  }

  // While the processor's tiles are at work, the results of the tile before are written.
  void multiply_with_tiles(int64_t panel, int64_t tile, int64_t step, int64_t count, int64_t ahead,
                           Sum* sums, Pending<Sum>& pending) {
    const int height = tiles_.height(tile);
    const int some = static_cast<int>((pending.height * kWordsUnit + count - 1) / count);
    Scheme::accumulate(tile_at(tile, step), block_at(panel, step), count, ahead, height, step == 0,
                       sums, [&] { results_.write(pending, std::min(some, pending.height)); });
    if (step + count == steps_) pending = {panel, tiles_.first(tile), height, sums};
  }

  template <int M>
  void multiply_tile(int64_t panel, int64_t tile, int64_t step, int64_t count, Distance ahead,
                     Sum* partial) {
    Sum sums[M][2];
    repeat<M, 2>([&](int m, int s) STREAMWELL_INLINE { sums[m][s] = step ? partial[2 * m + s] : Sum{}; });
    Scheme::template multiply<M>(tile_at(tile, step), block_at(panel, step), count, ahead, sums);
    repeat<M, 2>([&](int m, int s) STREAMWELL_INLINE { partial[2 * m + s] = sums[m][s]; });
    if (step + count < steps_) return;
    Pending<Sum> pending = {panel, tiles_.first(tile), M, partial};
    results_.write(pending, M);
  }

  const Linear& linear_;
  const float* x_;
  Tiles tiles_;
  bool is_single_;  // one tile of rows, which uses no panel twice
  int64_t steps_, panels_, block_steps_;
  float* row_scales_;
  uint8_t* packed_;
  Results<Scheme> results_;
};

inline void multiply(const Linear& linear, const float* x, int64_t rows, float* y,
                     Epilogue epilogue, uint8_t* workspace, const Additions& additions = {}) {
  const Call call = {linear, x, rows, y, epilogue, workspace, additions};
  if (linear.rest)
    multiply(*linear.rest, x, rows, y + linear.n, epilogue, workspace, additions.from(linear.n));
  switch (linear.kind) {
    case kFloat32: return Multiplication<Floats<Float32Weights>>(call).run();
    case kBfloat16: return Multiplication<Floats<Bfloat16Weights>>(call).run();
    case kFloat16: return Multiplication<Floats<Float16Weights>>(call).run();
    case kInt8: return Multiplication<Int8Scheme>(call).run();
    case kInt4: return Multiplication<Int4>(call).run();
    case kInt4Minimum: return Multiplication<Int4Minimum>(call).run();
    case kMxfp4: return Multiplication<Mxfp4>(call).run();
    case kInt8Groups: return Multiplication<Int8Groups>(call).run();
    case kInt4K: return Multiplication<Int4K>(call).run();
    case kInt5K: return Multiplication<Int5K>(call).run();
    case kInt6K: return Multiplication<Int6K>(call).run();
    case kBfloat16Pairs:
#if defined(__AVX512BF16__)
      return Multiplication<Bfloat16Scheme>(call).run();
#else
      return;  // `sw_has_bfloat16` says so
#endif
  }
}

}  // namespace streamwell
