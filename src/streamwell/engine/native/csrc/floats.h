// Weights that are floats, or are widened to such while they are multiplied.
#pragma once

#include "schemes.h"

namespace streamwell {

// Weights of a step of k, for the columns that a register of each half of a panel has.
struct Columns {
  Register low, high;
};

template <class Weights>
struct Floats {
  using Sum = F32;
  static constexpr int step = 1, x_bytes = 4, w_bytes = Weights::bytes, max_rows = kRows;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = true;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    auto* out = reinterpret_cast<float*>(tile) + m;
    for (int64_t i = 0; i < k; ++i) out[i * height] = x[i];
  }

  template <int M>
  static void multiply(const uint8_t* tile, const uint8_t* w, int64_t steps, Ahead ahead,
                       F32 (&sums)[M][2]) {
    if constexpr (2 * M * kRegisters <= kSums) {
      multiply_columns<M, kRegisters>(tile, w, 0, steps, ahead, sums);
    } else {  // one part of the columns after the other, while the weights are in the first cache
      for (int64_t i = 0; i < steps; i += kStepsNear) {
        const int64_t count = std::min(kStepsNear, steps - i);
        for (int part = 0; part < kRegisters; ++part)
          multiply_columns<M, 1>(tile, w, part, count, ahead.share(part, kRegisters, count), sums);
        tile += count * x_bytes * M;
        w += count * w_bytes;
        ahead.from += count * (ahead.bytes - w_bytes);
      }
    }
  }

  // Over `Parts` of the registers that sixteen columns take, from one on.
  template <int M, int Parts>
  static void multiply_columns(const uint8_t* tile, const uint8_t* w, int first, int64_t steps,
                               Ahead ahead, F32 (&result)[M][2]) {
    Register sums[M][Parts][2];
    const auto each_sum = [&](auto body) {
      repeat<M * Parts * 2>([&](int i) {
        const int m = i / (Parts * 2), p = i / 2 % Parts, side = i % 2;
        body(sums[m][p][side], register_of(result[m][side], first + p));
      });
    };
    each_sum([](Register& sum, Register& before) { sum = before; });
    const auto* x = reinterpret_cast<const float*>(tile);
    const uint8_t* next = w + ahead.from;
    for (int64_t i = 0; i < steps; ++i, x += M, w += w_bytes) {
      ahead.fetch(next);
      repeat<Parts>([&](int p) {
        const Columns columns = Weights::load(w, first + p);
        repeat<M>([&](int m) {
          const Register value = broadcast_register(x[m]);
          sums[m][p][0] = fma(value, columns.low, sums[m][p][0]);
          sums[m][p][1] = fma(value, columns.high, sums[m][p][1]);
        });
      });
    }
    each_sum([](Register& sum, Register& after) { after = sum; });
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }

 private:
  static constexpr int64_t kStepsNear = 128;
};

struct Float32Weights {
  static constexpr int bytes = kPanel * 4;
  static Columns load(const uint8_t* p, int part) {
    const auto* w = reinterpret_cast<const float*>(p) + part * kRegisterLanes;
    return {load_register(w), load_register(w + kLanes)};
  }
};

struct Bfloat16Weights {  // columns i and i + 16 share 32 bits
  static constexpr int bytes = kPanel * 2;
  static Columns load(const uint8_t* p, int part) {
    const IntRegister both = load_int_register(p + part * kRegisterLanes * 4);
    return {low_half(both), high_half(both)};
  }
};

struct Float16Weights {
  static constexpr int bytes = kPanel * 2;
  static Columns load(const uint8_t* p, int part) {
    const auto* w = reinterpret_cast<const uint16_t*>(p) + part * kRegisterLanes;
    return {load_half_register(w), load_half_register(w + kLanes)};
  }
};

}  // namespace streamwell
