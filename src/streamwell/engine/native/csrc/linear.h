// Linear layers over packed weights: y[row, n] = epilogue(sum over k of x[row, k] * w[n, k]).
//
// Panels and tiles of rows are walked so that what is used again stays in a cache (Goto and van de Geijn
// 2008, "Anatomy of high-performance matrix multiplication"; they are named as there), by vectors and by
// tiles of the processor each in its own way.
#pragma once

#include <omp.h>

#include <atomic>
#include <type_traits>
#include <vector>

#include "floats.h"
#include "super_blocks.h"
#include "tiled_blocks.h"
#include "tiles.h"
#include "vector_blocks.h"

namespace streamwell {

// One call: packs the rows, then goes through the panels.
template <class Scheme>
class Multiplication {
 public:
  explicit Multiplication(const Call& call)
      : linear_(call.linear), x_(call.x), row_scales_(reinterpret_cast<float*>(call.workspace)),
        operands_(call), tiles_(operands_.tiles), panels_(panels_of(linear_.n)),
        results_(call, row_scales_), blocks_(operands_, results_) {}

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

  void run_stretch(int64_t begin, int64_t end, Taken& taken) {
    constexpr int64_t at_once = kMaxTiles<Scheme>;
    int64_t first = taken.panels.load(std::memory_order_relaxed);
    while (begin + first < end) {
      const int64_t size = blocks_.group_size(end - begin - first);
      if (!taken.panels.compare_exchange_weak(first, first + size, std::memory_order_relaxed)) continue;
      const Group group = {begin + first, begin + first + size, begin + first + size == end};
      for (int64_t tile = 0; tile < tiles_.count; tile += at_once)
        blocks_.multiply(group, tile, std::min(tile + at_once, tiles_.count));
      first += size;
    }
  }

  // Rows are packed in parts: whole ones, or chunks of k of a whole tile, so that the lines that a
  // tile's rows share are still at hand for the next row.
  static constexpr int64_t kChunk = std::max(256, Scheme::step);

  int64_t chunks() const { return (linear_.k + kChunk - 1) / kChunk; }

  int64_t parts() const {
    if (!x_) return 0;
    return Scheme::pack_whole_rows ? tiles_.rows : tiles_.count * chunks();
  }

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
    uint8_t* place = operands_.tile_at(tile, first / Scheme::step);
    Scheme::pack_row(x_ + row * linear_.k + first, count, place, m, tiles_.room(tile),
                     row_scales_ + row);
  }

  const Linear& linear_;
  const float* x_;
  float* row_scales_;
  Operands<Scheme> operands_;
  const Tiles& tiles_;
  int64_t panels_;
  Results<Scheme> results_;
  std::conditional_t<Scheme::is_tiled, TiledBlocks<Scheme>, VectorBlocks<Scheme>> blocks_;
};

inline void multiply(const Linear& linear, const float* x, int64_t rows, float* y,
                     Epilogue epilogue, uint8_t* workspace, const Additions& additions = {}) {
  if (!rows) return;
  const Call call = {linear, x, rows, y, epilogue, workspace, additions};
  if (linear.rest)
    multiply(*linear.rest, x, rows, y + linear.n, epilogue, workspace, additions.from(linear.n));
  switch (linear.kind) {  // what needs pairs is asked for only where `sw_has_bfloat16`
    case kFloat32: return Multiplication<Floats<Float32Weights>>(call).run();
    case kBfloat16: return Multiplication<Floats<Bfloat16Weights>>(call).run();
    case kCodedBfloat16: return Multiplication<Coded<Floats<Bfloat16Weights>>>(call).run();
    case kFloat16: return Multiplication<Floats<Float16Weights>>(call).run();
    case kInt8: return Multiplication<Int8Scheme>(call).run();
    case kInt4: return Multiplication<Int4>(call).run();
    case kInt4Minimum: return Multiplication<Int4Minimum>(call).run();
    case kMxfp4: return Multiplication<Mxfp4>(call).run();
    case kInt8Groups: return Multiplication<Int8Groups>(call).run();
    case kInt4K: return Multiplication<Int4K>(call).run();
    case kInt5K: return Multiplication<Int5K>(call).run();
    case kInt6K: return Multiplication<Int6K>(call).run();
#if defined(__AVX512BF16__)
    case kBfloat16Pairs: return Multiplication<Bfloat16Scheme>(call).run();
    case kCodedPairs: return Multiplication<Coded<Bfloat16Scheme>>(call).run();
#endif
  }
}

}  // namespace streamwell
