// What becomes of the sums of a tile: scales, biases and adapters, and then the epilogue of the call.
#pragma once

#include "call.h"

namespace streamwell {

// Results of a tile of rows that are still to be written.
template <class Sum>
struct Pending {
  int64_t panel = 0, first = 0;  // of the rows
  int height = 0, done = 0;      // rows in all, and those that are written
  const Sum* sums = nullptr;

  int left() const { return height - done; }
};

template <class Scheme>
class Results {
 public:
  using Sum = typename Scheme::Sum;

  // `row_scales` are those of rows that are whole numbers.
  Results(const Call& call, const float* row_scales)
      : linear_(call.linear), rows_(call.rows), y_(call.y), epilogue_(call.epilogue),
        additions_(call.additions), row_scales_(row_scales) {}

  // Writes the next rows of what is pending.
  void write(Pending<Sum>& pending, int count) const {
    switch (epilogue_.form) {
      case kStore: write_as<kStore>(pending, count); break;
      case kAccumulate: write_as<kAccumulate>(pending, count); break;
      case kGate: write_as<kGate>(pending, count); break;
      case kStorePairs: write_pairs<kStorePairs>(pending, count); break;
      case kGatePairs: write_pairs<kGatePairs>(pending, count); break;
    }
    pending.done += count;
  }

 private:
  template <Form form>
  [[gnu::noinline]] void write_as(const Pending<Sum>& pending, int count) const {
    const int64_t column = pending.panel * kPanel, row = pending.first + pending.done;
    const int64_t stride = form == kGate ? linear_.n / 2 : linear_.width;
    float* y = y_ + row * stride + (form == kGate ? column / 2 : column);
    for (int m = 0; m < count; ++m, y += stride) {
      F32 values[2];
      take<form>(pending, pending.done + m, values);
      if (form == kGate) {
        store(y, gated(values[0], values[1], epilogue_.activation));
        continue;
      }
      for (int side = 0; side < 2; ++side) {
        const int64_t room = linear_.n - column - side * kLanes;
        F32 value = activate(values[side], epilogue_.activation);
        if (form == kAccumulate) value = add(load_some(y + side * kLanes, room), value);
        store_some(y + side * kLanes, value, room);
      }
    }
  }

  // Rows of the next layer lie in the same tiles as those of this one, whose scheme it has.
  template <Form form>
  [[gnu::noinline]] void write_pairs(const Pending<Sum>& pending, int count) const {
    if constexpr (Scheme::is_pairs) {
      constexpr int columns = form == kGatePairs ? kLanes : kPanel;
      const int64_t words = linear_.n / kPanel * columns / 2, word = pending.panel * columns / 2;
      uint8_t* tile = packed_rows(reinterpret_cast<uint8_t*>(y_), rows_) + pending.first * words * 4;
      for (int m = pending.done; m < pending.done + count; ++m) {
        F32 values[2];
        take<form>(pending, m, values);
        if (form == kGatePairs) {
          put(tile, word, m, pending.height, gated(values[0], values[1], epilogue_.activation));
          continue;
        }
        for (int side = 0; side < 2; ++side)
          put(tile, word + side * kLanes / 2, m, pending.height,
              activate(values[side], epilogue_.activation));
      }
    }
  }

  static void put(uint8_t* tile, int64_t word, int m, int height, F32 values) {
    const auto pairs = Scheme::pairs_of(values);
    Scheme::Words::template put<kLanes / 2>(tile, word, m, height, &pairs, kLanes / 2);
  }

  // Both halves of a tile's row, complete but for the activation. They are unrolled, which keeps those of
  // a gated layer in registers: through memory, a prompt of 256 tokens took some 3 % longer.
  template <Form form>
  [[gnu::always_inline]] void take(const Pending<Sum>& pending, int m, F32 (&values)[2]) const {
    const int64_t row = pending.first + m;
    const LowRank* low_rank = additions_.of(row);
    repeat<2>([&](int side) STREAMWELL_INLINE {
      const int64_t first = pending.panel * kPanel + side * kLanes;
      F32 value = Scheme::finish(pending.sums[2 * m + side], linear_, first, row_scales_[row]);
      if (linear_.bias) value = add(value, load(linear_.bias + first));
      if (low_rank) value = additions_.add_to(value, *low_rank, row, first / kLanes);
      if (form == kAccumulate) value = mul(value, broadcast(linear_.factor));
      values[side] = value;
    });
  }

  const Linear& linear_;
  int64_t rows_;
  float* y_;
  Epilogue epilogue_;
  const Additions& additions_;
  const float* row_scales_;
};

}  // namespace streamwell
