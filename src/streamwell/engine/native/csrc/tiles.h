// Intel's tile registers (AMX): sixteen rows of sixteen words, multiplied in one instruction.
//
// A tile of up to 32 rows of activations times a panel of 32 outputs takes all eight registers: four
// of sums, two of activations, two of weights. The sums of an output are one chain over k whatever
// rows share the call, as everywhere here.
#pragma once

#include "bfloat16.h"
#include "bytes.h"

#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#endif

namespace streamwell {

#if defined(__AMX_TILE__)

constexpr int kTileRows = 16, kTileBytes = 64;

// Linux gives tile registers to those processes only that ask for them.
inline bool request_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

// What the processor is told of its registers (palette 1).
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The shape of each register, by its number.
struct TileShape {
  int rows, words;
};

// Which shapes a thread has set, by a number that tells them from others.
inline thread_local int current_tile_shapes = 0;

inline void set_tile_shapes(int number, const std::array<TileShape, 8>& shapes) {
  if (number == current_tile_shapes) return;
  current_tile_shapes = number;
  TileConfiguration configuration;
  for (int i = 0; i < 8; ++i) {
    configuration.rows[i] = static_cast<uint8_t>(shapes[i].rows);
    configuration.row_bytes[i] = static_cast<uint16_t>(shapes[i].rows ? shapes[i].words * 4 : 0);
  }
  // some compilers think that less of it is read
  asm volatile("" : : "r"(&configuration) : "memory");
  _tile_loadconfig(&configuration);
}

// A thread is done with its tiles. Other code may set other shapes before it comes back.
inline void release_tiles() {
  _tile_release();
  current_tile_shapes = 0;
}

// Sixteen words of a row side by side, row below row; there is a place for all of them.
struct RowByRow {
  template <int count>
  static void put(uint8_t* tile, int64_t word, int m, int height, const void* words, int64_t) {
    std::memcpy(tile + (word / 16 * height + m) * kTileBytes + word % 16 * 4, words, count * 4);
  }
};

// A scheme of words, with tile registers in place of vectors.
template <class Scheme, bool is_integer>
struct Tiled : Scheme {
  using Sum = typename Scheme::Sum;
  static constexpr int max_rows = 2 * kTileRows;
  static constexpr bool is_tiled = true;

  // sums[m][side] += tile times block, for both halves of a panel and all of the `height` rows that the tile
  // has room for. Rows that pass by leave the first cache to the block; those of a tile alone do not, and its
  // blocks are whole panels. `meanwhile` is called with every 16 steps: the rest of the processor is idle
  // while tiles are multiplied.
  template <class Meanwhile>
  static void accumulate(const uint8_t* x, const uint8_t* w, int64_t steps, Ahead ahead, int height,
                         bool passes_by, bool is_first, Sum* sums, const Meanwhile& meanwhile) {
    set_shapes(height);
    const auto high = passes_by ? multiply<true, true, false, Meanwhile> : multiply<true, false, false, Meanwhile>;
    const auto low = passes_by ? multiply<false, true, false, Meanwhile> : multiply<false, false, false, Meanwhile>;
    (height > kTileRows ? high : low)(x, w, steps, ahead, height, is_first, sums, {}, meanwhile);
  }

  // sums = a tile alone, of so many rows, times a panel whose weights are in a ring, from `w` on.
  template <class Meanwhile>
  static void multiply_from(Ring ring, const uint8_t* w, const uint8_t* x, int64_t steps, int height,
                            Sum* sums, const Meanwhile& meanwhile) {
    set_shapes(height);
    const auto high = multiply<true, false, true, Meanwhile>, low = multiply<false, false, true, Meanwhile>;
    (height > kTileRows ? high : low)(x, w, steps, {}, height, true, sums, ring, meanwhile);
  }

 private:
  // Of half a tile's rows, a whole one's shapes do as well, whose other half is not used.
  static void set_shapes(int height) {
    if (height == kTileRows) height = max_rows;
    const int top = std::min(height, kTileRows), bottom = height - top;
    const TileShape high = {top, 16}, low = {bottom, 16}, weights = {kTileRows, 16};
    set_tile_shapes(height, {high, high, low, low, high, low, weights, weights});
  }

  template <bool is_high, bool passes_by, bool is_ring, class Meanwhile>
  static void multiply(const uint8_t* x, const uint8_t* w, int64_t steps, Ahead ahead, int height,
                       bool is_first, Sum* sums, Ring ring, const Meanwhile& meanwhile) {
    constexpr int stride = 2 * kTileBytes;
    auto* top = reinterpret_cast<uint8_t*>(sums);
    uint8_t* bottom = top + kTileRows * stride;
    if (is_first) {
      _tile_zero(0);
      _tile_zero(1);
      if constexpr (is_high) {
        _tile_zero(2);
        _tile_zero(3);
      }
    } else if constexpr (passes_by) {
      _tile_loadd(0, top, stride);
      _tile_loadd(1, top + kTileBytes, stride);
      if constexpr (is_high) {
        _tile_loadd(2, bottom, stride);
        _tile_loadd(3, bottom + kTileBytes, stride);
      }
    }
    for (int64_t i = 0; i < steps; i += 16, x += height * kTileBytes, w += 16 * stride) {
      if constexpr (is_ring) w = ring.wrapped(w);
      ahead.fetch_lines();
      load_top<passes_by>(x);
      _tile_loadd(6, w, stride);
      _tile_loadd(7, w + kTileBytes, stride);
      multiply_top();
      if constexpr (is_high) {
        load_bottom<passes_by>(x + kTileRows * kTileBytes);
        multiply_bottom();
      }
      meanwhile();
    }
    _tile_stored(0, top, stride);
    _tile_stored(1, top + kTileBytes, stride);
    if constexpr (is_high) {
      _tile_stored(2, bottom, stride);
      _tile_stored(3, bottom + kTileBytes, stride);
    }
  }

  // The names of registers are part of an instruction: they can only be written out.
  template <bool passes_by>
  static void load_top(const uint8_t* x) {
    if constexpr (passes_by) {
      _tile_stream_loadd(4, x, kTileBytes);
    } else {
      _tile_loadd(4, x, kTileBytes);
    }
  }

  template <bool passes_by>
  static void load_bottom(const uint8_t* x) {
    if constexpr (passes_by) {
      _tile_stream_loadd(5, x, kTileBytes);
    } else {
      _tile_loadd(5, x, kTileBytes);
    }
  }

  static void multiply_top() {
    if constexpr (is_integer) {
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 4, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
  }

  static void multiply_bottom() {
    if constexpr (is_integer) {
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    } else {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
};

using Int8Scheme = Tiled<Int8<RowByRow>, true>;
using Bfloat16Scheme = Tiled<Bfloat16Pairs<RowByRow>, false>;

#else

inline void release_tiles() {}

using Int8Scheme = Int8<SideBySide>;
#if defined(__AVX512BF16__)
using Bfloat16Scheme = Bfloat16Pairs<SideBySide>;
#endif

#endif

}  // namespace streamwell
