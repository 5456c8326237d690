// What adapters add to linear layers, row by row: up * (down * x), of low rank (Hu et al. 2021).
#pragma once

#include <algorithm>
#include <vector>

#include "rows.h"

namespace streamwell {

// Of one adapter to one layer, or to several that are computed as one; without matrices nothing. Each
// of those has values of its own between the two matrices, `rank` of them.
struct LowRank {
  // Where sixteen outputs, half a panel, have theirs.
  struct Half {
    int32_t block;  // in `up`; -1: nothing is added to them
    int32_t first;  // among the values between
  };
  const float* down;  // [between, k]
  const float* up;    // [blocks, rank, 16]
  const Half* halves;
  int64_t rank, between;
};

// What one adapter adds to one block of a decoder.
struct LayerAdapter {
  LowRank qkv, out, up, down;
};

// What is added to the results of one call.
struct Additions {
  const LowRank* const* matrices = nullptr;  // [rows], null for those without an adapter; or null
  const float* between = nullptr;            // [rows, stride]
  int64_t stride = 0;
  int64_t first = 0;  // half panel that the results begin with

  // Whether anything is added to a row.
  const LowRank* of(int64_t row) const { return matrices ? matrices[row] : nullptr; }

  // Those to the results from one column on, with which a panel begins.
  Additions from(int64_t column) const {
    return {matrices, between, stride, first + column / kLanes};
  }

  // To half a panel of a row's results.
  F32 add_to(F32 results, const LowRank& low_rank, int64_t row, int64_t half) const {
    const LowRank::Half& place = low_rank.halves[first + half];
    if (place.block < 0) return results;
    const float* up = low_rank.up + place.block * low_rank.rank * kLanes;
    const float* values = between + row * stride + place.first;
    for (int64_t i = 0; i < low_rank.rank; ++i)
      results = fma(broadcast(values[i]), load(up + i * kLanes), results);
    return results;
  }
};

// Dot products of some rows of `x` with some of `down`; each is summed up in the same order whatever
// the numbers.
template <int rows, int count>
inline void dot_rows(const float* x, const float* down, int64_t k, int64_t stride, float* out) {
  F32 sums[rows][count];
  for (auto& row : sums)
    for (F32& one : row) one = zero();
  const auto add_lanes = [&](int64_t i, auto load_lanes) {
    F32 values[count];
    repeat<count>([&](int c) { values[c] = load_lanes(down + c * k + i); });
    repeat<rows>([&](int r) {
      const F32 own = load_lanes(x + r * k + i);
      repeat<count>([&](int c) { sums[r][c] = fma(own, values[c], sums[r][c]); });
    });
  };
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) add_lanes(i, [](const float* p) { return load(p); });
  if (whole < k) add_lanes(whole, [&](const float* p) { return load_some(p, k - whole); });
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < count; ++c) out[r * stride + c] = sum(sums[r][c]);
}

// The values between the matrices, of each row for itself. Rows that have an adapter in common read
// it together.
class Shrinking {
 public:
  Shrinking(const std::vector<const LowRank*>& matrices, const float* x, int64_t k, int64_t stride,
            float* between)
      : matrices_(matrices), x_(x), k_(k), stride_(stride), between_(between) {
    for (const LowRank* each : matrices_)
      if (each) most_ = std::max(most_, each->between);
  }

  void run() const {
    const int64_t count = static_cast<int64_t>(matrices_.size());
    const int64_t groups = (count + kRowsAtOnce - 1) / kRowsAtOnce;
    const int64_t parts = (most_ + kPart - 1) / kPart;
#pragma omp parallel for
    for (int64_t i = 0; i < groups * parts; ++i) {
      const int64_t row = i / parts * kRowsAtOnce;
      shrink(row, std::min(count, row + kRowsAtOnce), i % parts * kPart);
    }
  }

 private:
  static constexpr int kRowsAtOnce = kRegisters > 1 ? 2 : 4, kColumnsAtOnce = 4;
  static constexpr int64_t kPart = 8;  // of the values, a multiple of those at once

  void shrink(int64_t row, int64_t end, int64_t first) const {
    const LowRank* shared = matrices_[row];
    for (int64_t i = row; i < end; ++i)
      if (matrices_[i] != shared) shared = nullptr;
    if (shared && end - row == kRowsAtOnce) return shrink_part<kRowsAtOnce>(*shared, row, first);
    for (; row < end; ++row)
      if (matrices_[row]) shrink_part<1>(*matrices_[row], row, first);
  }

  template <int rows>
  void shrink_part(const LowRank& low_rank, int64_t row, int64_t first) const {
    const int64_t end = std::min(low_rank.between, first + kPart);
    int64_t i = first;
    for (; i + kColumnsAtOnce <= end; i += kColumnsAtOnce) dot<rows, kColumnsAtOnce>(low_rank, row, i);
    for (; i < end; ++i) dot<rows, 1>(low_rank, row, i);
  }

  template <int rows, int count>
  void dot(const LowRank& low_rank, int64_t row, int64_t i) const {
    dot_rows<rows, count>(x_ + row * k_, low_rank.down + i * k_, k_, stride_,
                          between_ + row * stride_ + i);
  }

  const std::vector<const LowRank*>& matrices_;
  const float* x_;
  int64_t k_, stride_, most_ = 0;
  float* between_;
};

}  // namespace streamwell
