// What becomes of the sums of a tile: scales, biases and adapters, and then the epilogue of the call.
#pragma once

#include "call.h"

namespace streamwell {

// Rows of a tile's results that are still to be written.
template <class Sum>
struct Pending {
  int64_t panel = 0, row = 0;
  int height = 0;
  const Sum* sums = nullptr;
};

template <class Scheme>
class Results {
 public:
  using Sum = typename Scheme::Sum;

  // `row_scales` are those of rows that are whole numbers.
  Results(const Call& call, const float* row_scales)
      : linear_(call.linear), y_(call.y), epilogue_(call.epilogue), additions_(call.additions),
        row_scales_(row_scales) {}

  // Writes the first rows of what is pending.
  void write(Pending<Sum>& pending, int count) const {
    if (epilogue_.form == kGate) {
      write_as<kGate>(pending, count);
    } else if (epilogue_.form == kAccumulate) {
      write_as<kAccumulate>(pending, count);
    } else {
      write_as<kStore>(pending, count);
    }
    pending.row += count;
    pending.height -= count;
    pending.sums += 2 * count;
  }

 private:
  template <Form form>
  [[gnu::noinline]] void write_as(const Pending<Sum>& pending, int count) const {
    const int64_t column = pending.panel * kPanel;
    const int64_t stride = form == kGate ? linear_.n / 2 : linear_.width;
    float* y = y_ + pending.row * stride + (form == kGate ? column / 2 : column);
    for (int m = 0; m < count; ++m, y += stride) {
      F32 values[2];
      take<form>(pending, m, values);
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

  // Both halves of a row, complete but for the activation. They are unrolled, which keeps those of a gated
  // layer in registers: through memory, a prompt of 256 tokens took some 3 % longer.
  template <Form form>
  [[gnu::always_inline]] void take(const Pending<Sum>& pending, int m, F32 (&values)[2]) const {
    const int64_t row = pending.row + m;
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
  float* y_;
  Epilogue epilogue_;
  const Additions& additions_;
  const float* row_scales_;
};

}  // namespace streamwell
