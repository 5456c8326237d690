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
  static constexpr int sums = kSums;
  static constexpr bool pack_whole_rows = false, is_tiled = false, spreads = true, is_pairs = false;

  static void pack_row(const float* x, int64_t k, uint8_t* tile, int m, int height, float*) {
    auto* out = reinterpret_cast<float*>(tile) + m;
    for (int64_t i = 0; i < k; ++i) out[i * height] = x[i];
  }

  template <int M>
  static void multiply(const uint8_t* tile, const uint8_t* w, int64_t steps, Ahead ahead,
                       F32 (&result)[M][2]) {
    multiply_parts<Floats, M>(tile, w, steps, ahead, result);
  }

  template <int M, int Parts>
  static void multiply_columns(const uint8_t* tile, const uint8_t* w, int first, int64_t steps,
                               Ahead ahead, F32 (&result)[M][2]) {
    Sums<F32, M, Parts> sums;
    sums.load(result, first);
    const auto* x = reinterpret_cast<const float*>(tile);
    for (int64_t i = 0; i < steps; ++i, x += M, w += w_bytes) {
      ahead.fetch();
      repeat<Parts>([&](int p) {
        const Columns columns = Weights::load(w, first + p);
        const auto sum_of = [&](int m, int side) STREAMWELL_INLINE -> Register& { return sums.at[m][p][side]; };
        add_products<M>(x, columns, sum_of);
      });
    }
    sums.store(result, first);
  }

  // Two steps with their weights in registers.
  template <int M, class Sums>
  [[gnu::always_inline]] static void multiply_registers(const uint8_t* tile, IntRegister first,
                                                        IntRegister second, const Sums& sum_of) {
    const auto* x = reinterpret_cast<const float*>(tile);
    add_products<M>(x, Weights::columns_of(first), sum_of);
    add_products<M>(x + M, Weights::columns_of(second), sum_of);
  }

  static F32 finish(F32 sum, const Linear&, int64_t, float) { return sum; }

 private:
  template <int M, class Sums>
  [[gnu::always_inline]] static void add_products(const float* x, const Columns& columns, const Sums& sum_of) {
    repeat<M>([&](int m) STREAMWELL_INLINE {
      const Register value = broadcast_register(x[m]);
      sum_of(m, 0) = fma(value, columns.low, sum_of(m, 0));
      sum_of(m, 1) = fma(value, columns.high, sum_of(m, 1));
    });
  }
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
    return columns_of(load_int_register(p + part * kRegisterLanes * 4));
  }
  static Columns columns_of(IntRegister both) { return {low_half(both), high_half(both)}; }
};

struct Float16Weights {
  static constexpr int bytes = kPanel * 2;
  static Columns load(const uint8_t* p, int part) {
    const auto* w = reinterpret_cast<const uint16_t*>(p) + part * kRegisterLanes;
    return {load_half_register(w), load_half_register(w + kLanes)};
  }
};

}  // namespace streamwell
