// Linear layers over packed weights: y[row, n] = epilogue(sum over k of x[row, k] * w[n, k]).
//
// Panels and tiles are walked so that what is used again stays in a cache (Goto and van de Geijn
// 2008, "Anatomy of high-performance matrix multiplication"; they are named as there).
#pragma once

#include <omp.h>

#include "activation.h"
#include "schemes.h"
#include "tiles.h"

namespace streamwell {

// What becomes of a result: it is stored, added to what is there, or gates the one beside it.
enum Form : int32_t { kStore = 0, kAccumulate = 1, kGate = 2 };

struct Epilogue {
  Form form;
  Activation activation;  // of what is stored, or of the gate
};

constexpr Epilogue kPlain = {kStore, kNone}, kAdd = {kAccumulate, kNone};

// How rows are cut into tiles: as few as possible, of nearly equal height.
struct Tiles {
  int64_t rows, count;
  Tiles(int64_t rows, int64_t max_rows) : rows(rows), count((rows + max_rows - 1) / max_rows) {}
  int64_t first(int64_t tile) const { return rows * tile / count; }
  int height(int64_t tile) const { return static_cast<int>(first(tile + 1) - first(tile)); }
  int64_t of(int64_t row) const { return ((row + 1) * count - 1) / rows; }
};

// One call: packs the rows, then goes through the panels.
template <class Scheme>
class Multiplication {
 public:
  Multiplication(const Linear& linear, const float* x, int64_t rows, float* y, Epilogue epilogue,
                 uint8_t* workspace)
      : linear_(linear), x_(x), y_(y), epilogue_(epilogue),
        tiles_(rows, Scheme::max_rows), steps_(steps_of<Scheme>(linear.k)),
        panels_(panels_of(linear.n)),
        row_scales_(reinterpret_cast<float*>(workspace)),
        packed_(workspace + (rows * 4 + 63) / 64 * 64) {
    block_steps_ = std::max<int64_t>(kWordsUnit, kBlockBytes / Scheme::w_bytes);
    const int64_t threads = omp_get_max_threads();
    const int64_t shares = (panels_ + kMaxGroup * threads - 1) / (kMaxGroup * threads);
    group_ = (panels_ + shares * threads - 1) / (shares * threads);
  }

  void run() {
#pragma omp parallel
    {
#pragma omp for schedule(static)
      for (int64_t part = 0; part < parts(); ++part) pack(part);
#pragma omp for schedule(dynamic)
      for (int64_t panel = 0; panel < panels_; panel += group_) {
        for (int64_t tile = 0; tile < tiles_.count; tile += kMaxTiles) {
          multiply_block(panel, std::min(panel + group_, panels_), tile,
                         std::min(tile + kMaxTiles, tiles_.count));
        }
      }
      if constexpr (Scheme::is_tiled) release_tiles();
    }
  }

 private:
  using Sum = typename Scheme::Sum;
  static constexpr int64_t kBlockBytes = 58 << 10;  // of a panel: it stays in the second cache
  static constexpr int64_t kMaxTiles = 256 / Scheme::max_rows;
  static constexpr int64_t kMaxGroup = 8;

  // Rows are packed in parts: whole ones, or chunks of k of a whole tile, so that the lines that a
  // tile's rows share are still at hand for the next row.
  static constexpr int64_t kChunk = 128;

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

  void multiply_block(int64_t panel0, int64_t panel1, int64_t tile0, int64_t tile1) {
    alignas(64) static thread_local Sum partial[kMaxGroup * kMaxTiles * Scheme::max_rows * 2];
    for (int64_t step = 0; step < steps_; step += block_steps_) {
      const int64_t count = std::min(block_steps_, steps_ - step);
      Sum* sums = partial;
      for (int64_t panel = panel0; panel < panel1; ++panel) {
        for (int64_t tile = tile0; tile < tile1; ++tile, sums += 2 * Scheme::max_rows) {
          if constexpr (Scheme::is_tiled) {
            multiply_with_tiles(panel, tile, step, count, sums);
          } else {
            with_height(tiles_.height(tile), panel, tile, step, count, sums);
          }
        }
      }
    }
  }

  template <int M = Scheme::max_rows>
  void with_height(int height, int64_t panel, int64_t tile, int64_t step, int64_t count,
                   Sum* partial) {
    if (height == M) {
      multiply_tile<M>(panel, tile, step, count, partial);
    } else if constexpr (M > 1) {
      with_height<M - 1>(height, panel, tile, step, count, partial);
    }
  }

  // Bytes to the next panel's block, if it is not what the caches have already.
  int64_t ahead(int64_t tile) const {
    return tile + 1 == tiles_.count ? steps_ * Scheme::w_bytes : 0;
  }

  const uint8_t* block_at(int64_t panel, int64_t step) const {
    return static_cast<const uint8_t*>(linear_.weights) + (panel * steps_ + step) * Scheme::w_bytes;
  }

  void multiply_with_tiles(int64_t panel, int64_t tile, int64_t step, int64_t count, Sum* partial) {
    const int height = tiles_.height(tile);
    Scheme::accumulate(tile_at(tile, step), block_at(panel, step), count, ahead(tile), height,
                       step == 0, partial);
    if (step + count < steps_) return;
    for (int m = 0; m < height; ++m) finish_row(panel, tiles_.first(tile) + m, partial + 2 * m);
  }

  template <int M>
  void multiply_tile(int64_t panel, int64_t tile, int64_t step, int64_t count, Sum* partial) {
    Sum sums[M][2];
    for (int m = 0; m < M; ++m) {
      sums[m][0] = step ? partial[2 * m] : Sum{};
      sums[m][1] = step ? partial[2 * m + 1] : Sum{};
    }
    Scheme::template multiply<M>(tile_at(tile, step), block_at(panel, step), count, ahead(tile),
                                 sums);
    if (step + count < steps_) {
      for (int m = 0; m < M; ++m) {
        partial[2 * m] = sums[m][0];
        partial[2 * m + 1] = sums[m][1];
      }
      return;
    }
    for (int m = 0; m < M; ++m) finish_row(panel, tiles_.first(tile) + m, sums[m]);
  }

  void finish_row(int64_t panel, int64_t row, const Sum* sums) {
    const int64_t column = panel * kPanel;
    F32 values[2];
    for (int side = 0; side < 2; ++side) {
      const int64_t first = column + side * kLanes;
      values[side] = Scheme::finish(sums[side], linear_, first, row_scales_[row]);
      if (linear_.bias) values[side] = add(values[side], load(linear_.bias + first));
      if (is_added()) values[side] = mul(values[side], broadcast(linear_.factor));
    }
    if (epilogue_.form == kGate) {
      const F32 gated = mul(activate(values[0], epilogue_.activation), values[1]);
      write(y_ + row * (linear_.n / 2) + column / 2, gated, kLanes);
      return;
    }
    for (int side = 0; side < 2; ++side) {
      const int64_t first = column + side * kLanes;
      const F32 value = activate(values[side], epilogue_.activation);
      write(y_ + row * linear_.n + first, value, linear_.n - first);
    }
  }

  void write(float* y, F32 value, int64_t room) {
    store_some(y, is_added() ? add(load_some(y, room), value) : value, room);
  }

  bool is_added() const { return epilogue_.form == kAccumulate; }

  const Linear& linear_;
  const float* x_;
  float* y_;
  Epilogue epilogue_;
  Tiles tiles_;
  int64_t steps_, panels_, block_steps_, group_;
  float* row_scales_;
  uint8_t* packed_;
};

// Bytes of workspace that a call over so many rows needs.
inline int64_t workspace_bytes(int64_t rows, int64_t k) { return rows * (k + 64) * 4 + 128; }

inline void multiply(const Linear& linear, const float* x, int64_t rows, float* y,
                     Epilogue epilogue, uint8_t* workspace) {
  switch (linear.kind) {
    case kFloat32:
      return Multiplication<Floats<Float32Weights>>(linear, x, rows, y, epilogue, workspace).run();
    case kBfloat16:
      return Multiplication<Floats<Bfloat16Weights>>(linear, x, rows, y, epilogue, workspace).run();
    case kFloat16:
      return Multiplication<Floats<Float16Weights>>(linear, x, rows, y, epilogue, workspace).run();
    case kInt8:
      return Multiplication<Int8Scheme>(linear, x, rows, y, epilogue, workspace).run();
    case kInt4:
      return Multiplication<Int4>(linear, x, rows, y, epilogue, workspace).run();
    case kBfloat16Pairs:
#if defined(__AVX512BF16__)
      return Multiplication<Bfloat16Scheme>(linear, x, rows, y, epilogue, workspace).run();
#else
      return;  // `sw_has_bfloat16` says so
#endif
  }
}

}  // namespace streamwell
