// What becomes of the sums of a tile: scales, biases and adapters, and then the epilogue of the call.
#pragma once

#include "call.h"

namespace streamwell {

// Results of a tile of rows that are still to be written.
template <class Sum>
struct Pending {
  int64_t panel = 0, first = 0;  // of the rows
  int height = 0, room = 0;      // rows, and those that the tile has room for
  int done = 0;                  // rows that are written
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
      case kStorePairs: if constexpr (Scheme::is_pairs) write_as<kStorePairs>(pending, count); break;
      case kGatePairs: if constexpr (Scheme::is_pairs) write_as<kGatePairs>(pending, count); break;
    }
    pending.done += count;
  }

 private:
  // Beside tiles that are multiplied, every instruction counts: what is the same for all rows is asked
  // before the first. With the questions in each, a prompt of 256 tokens took some 3 % longer.
  template <Form form>
  [[gnu::noinline]] void write_as(const Pending<Sum>& pending, int count) const {
    with_function<form>([&](auto function) STREAMWELL_INLINE {
      if (Scheme::is_tiled && !additions_.matrices) return write_rows<form, false>(pending, count, function);
      write_rows<form, true>(pending, count, function);
    });
  }

  // Calls `body` with what becomes of both halves of a row before they are stored.
  template <Form form, class Body>
  [[gnu::always_inline]] void with_function(const Body& body) const {
    if constexpr (form == kGate || form == kGatePairs) {
      with_gate(epilogue_.activation, [&](auto gated) STREAMWELL_INLINE {
        body([&](F32 (&row)[2]) STREAMWELL_INLINE { row[0] = gated(row[0], row[1]); });
      });
    } else {
      with_activation(epilogue_.activation, [&](auto activated) STREAMWELL_INLINE {
        body([&](F32 (&row)[2]) STREAMWELL_INLINE { for (F32& half : row) half = activated(half); });
      });
    }
  }

  template <Form form, bool has_additions, class Function>
  [[gnu::always_inline]] void write_rows(const Pending<Sum>& pending, int count,
                                         const Function& function) const {
    const auto put = place_of<form>(pending);
    const Linear linear = linear_;  // for all that compilers know, what is stored might be a part of it
    for (int m = pending.done, end = m + count; m < end; ++m) {
      F32 row[2];
      take<form, has_additions>(linear, pending, m, row);
      function(row);
      put(m, row);
    }
  }

  // What stores a row.
  template <Form form>
  [[gnu::always_inline]] auto place_of(const Pending<Sum>& pending) const {
    constexpr bool is_half = form == kGate || form == kGatePairs;
    constexpr int columns = is_half ? kLanes : kPanel;
    const int64_t column = pending.panel * columns;
    if constexpr (form == kStorePairs || form == kGatePairs) {
      // rows of the next layer lie in the same tiles as those of this one, whose scheme it has
      const int64_t words = linear_.n / kPanel * columns / 2;
      uint8_t* tile = packed_rows(reinterpret_cast<uint8_t*>(y_), rows_) + pending.first * words * 4;
      return [=, height = pending.room](int m, const F32 (&row)[2]) STREAMWELL_INLINE {
        for (int side = 0; side < columns / kLanes; ++side) {
          const auto pairs = Scheme::pairs_of(row[side]);
          const int64_t word = (column + side * kLanes) / 2;
          Scheme::Words::template put<kLanes / 2>(tile, word, m, height, &pairs, kLanes / 2);
        }
      };
    } else {
      const int64_t width = is_half ? linear_.n / 2 : linear_.n, room = width - column;
      const int64_t stride = is_half ? width : linear_.width;
      float* y = y_ + pending.first * stride + column;
      return [=](int m, const F32 (&row)[2]) STREAMWELL_INLINE {
        for (int side = 0; side < columns / kLanes; ++side) {
          float* place = y + m * stride + side * kLanes;
          const int64_t left = room - side * kLanes;
          const F32 value = form == kAccumulate ? add(load_some(place, left), row[side]) : row[side];
          store_some(place, value, left);
        }
      };
    }
  }

  // Both halves of a tile's row, complete but for the activation. They are unrolled, which keeps those of
  // a gated layer in registers: through memory, a prompt of 256 tokens took some 3 % longer.
  template <Form form, bool has_additions>
  [[gnu::always_inline]] void take(const Linear& linear, const Pending<Sum>& pending, int m,
                                   F32 (&row)[2]) const {
    const int64_t number = pending.first + m;
    const LowRank* low_rank = has_additions ? additions_.of(number) : nullptr;
    repeat<2>([&](int side) STREAMWELL_INLINE {
      const int64_t first = pending.panel * kPanel + side * kLanes;
      F32 value = Scheme::finish(pending.sums[2 * m + side], linear, first, row_scales_[number]);
      if (linear.bias) value = add(value, load(linear.bias + first));
      if (low_rank) value = additions_.add_to(value, *low_rank, number, first / kLanes);
      if (form == kAccumulate) value = mul(value, broadcast(linear.factor));
      row[side] = value;
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
