// The first tile of rows that meets a block of coded weights, which it decodes.
//
// Where registers have room beside its sums, weights are decoded there and multiplied at once: what decodes them
// waits for other things than what multiplies.
#pragma once

#include <limits>

#include "operands.h"

namespace streamwell {

// A panel's weights without a code, one after the other.
class Exceptions {
 public:
  // Those from a weight of the panel on.
  Exceptions(const CodedPanel& panel, int64_t first_weight)
      : next_(panel.exceptions_from(first_weight)), end_(panel.exceptions() + panel.num_exceptions) {
    look();
  }

  // A register's part of the upper bytes of half a chunk, with those put back that have no code. Lower bytes need
  // nothing: they lie in the chunk in any case.
  [[gnu::always_inline]] IntRegister put_back(IntRegister upper, int part, int64_t end_of_half) {
    while (__builtin_expect(place_ < end_of_half, false)) {
      const int place = place_in_chunk(static_cast<int>(place_ % kChunkWeights)) % kHalfChunk;
      upper = with_byte(upper, place - part * kRegisterBytes, static_cast<uint8_t>(next_->bits >> 8));
      ++next_;
      look();
    }
    return upper;
  }

 private:
  void look() { place_ = next_ < end_ ? next_->place : std::numeric_limits<int64_t>::max(); }

  const Exception *next_, *end_;
  int64_t place_;
};

// Whether a tile of so many rows has its sums in registers, those of all columns.
template <int M>
constexpr bool fits_registers = 2 * M * kRegisters <= kSums;

// sums += a tile's rows times whole chunks of a block. What is `ahead` is asked for meanwhile. Where weights are
// kept, they go to `place`.
template <bool is_kept, class Scheme, int M, class Sum>
[[gnu::always_inline]] inline void multiply_chunks(const Operands<Scheme>& operands, const Block& block,
                                                   int64_t tile, Ahead ahead, uint8_t* place,
                                                   Sum (&result)[M][2]) {
  constexpr int64_t per_chunk = Operands<Scheme>::steps_of_chunk;
  constexpr int64_t half_bytes = per_chunk / 2 * M * Scheme::x_bytes;  // of rows
  const CodedPanel& panel = operands.coded_panel(block.panel);
  const IntRegister table = table_of(panel.upper_bytes);
  const uint8_t *chunk = operands.block_at(block), *x = operands.tile_at(tile, block.step);
  const int64_t distance = ahead.from ? ahead.from - chunk : 0;
  int64_t weight = block.step / per_chunk * kChunkWeights;
  static_assert(kRegisters <= 2);
  Exceptions exceptions[] = {{panel, weight}, {panel, weight}};  // of each part
  Sums<Sum, M, kRegisters> sums;
  sums.load(result, 0);
  for (int64_t i = 0; i < block.count / per_chunk; ++i, chunk += kChunkBytes, weight += kChunkWeights) {
    if constexpr (kRegisters == 1) {
      ask<kChunkBytes>(chunk, distance);
    } else {
      repeat<per_chunk>([&](int) STREAMWELL_INLINE { ahead.fetch(); });
    }
    repeat<kRegisters>([&](int part) STREAMWELL_INLINE {
      const uint8_t* low = chunk + part * kRegisterBytes;
      const IntRegister codes = load_int_register(low + kChunkWeights);
      repeat<2>([&](int half) STREAMWELL_INLINE {
        const IntRegister coded = upper_bytes_of(codes, half, table);
        const IntRegister upper = exceptions[part].put_back(coded, part, weight + (half + 1) * kHalfChunk);
        const IntRegister lower = load_int_register(low + half * kHalfChunk);
        const IntRegister some = first_bytes_in_turn(lower, upper), others = last_bytes_in_turn(lower, upper);
        if constexpr (is_kept) {
          uint8_t* to = place + half * kChunkWeights + part * kRegisterBytes;
          store_int_register(to, some);
          store_int_register(to + kHalfChunk, others);
        }
        const auto sum_of = [&](int m, int side) STREAMWELL_INLINE -> auto& { return sums.at[m][part][side]; };
        Scheme::template multiply_registers<M>(x + half * half_bytes, some, others, sum_of);
      });
    });
    if constexpr (is_kept) place += 2 * kChunkWeights;
    x += 2 * half_bytes;
  }
  sums.store(result, 0);
}

// The same piece by piece, each of which is decoded, then multiplied. Memory works while it is multiplied: asked
// with what is decoded, it would rest meanwhile.
template <bool is_kept, class Scheme, int M, class Sum>
[[gnu::always_inline]] inline void multiply_pieces(const Operands<Scheme>& operands, const Block& block,
                                                   int64_t tile, Ahead ahead, uint8_t* place,
                                                   Sum (&sums)[M][2]) {
  constexpr int64_t most = kNearBytes / Scheme::w_bytes;
  for (int64_t i = 0; i < block.count; i += most) {
    const Block piece = {block.panel, block.step + i, std::min(most, block.count - i)};
    operands.decoding(piece, 0, place).finish();
    Scheme::template multiply<M>(operands.tile_at(tile, piece.step), place, piece.count, ahead, sums);
    if (ahead.bytes) ahead.from += piece.count * ahead.bytes;
    if (is_kept) place += kNearBytes;
  }
}

// sums += a tile's rows times a block. If the weights are to be kept, they are decoded to `place`, at a multiple of
// 64 bytes, where some are in any case.
template <bool is_kept, class Scheme, int M, class Sum>
[[gnu::always_inline]] inline void decode_and_multiply(const Operands<Scheme>& operands, const Block& block,
                                                       int64_t tile, Ahead ahead, uint8_t* place,
                                                       Sum (&sums)[M][2]) {
  if constexpr (fits_registers<M>) {
    const int64_t rest = block.count % Operands<Scheme>::steps_of_chunk, whole = block.count - rest;
    multiply_chunks<is_kept>(operands, {block.panel, block.step, whole}, tile, ahead, place, sums);
    const Block last = {block.panel, block.step + whole, rest};
    if (is_kept) place += whole * Scheme::w_bytes;
    if (rest) multiply_pieces<is_kept>(operands, last, tile, {}, place, sums);
  } else {
    multiply_pieces<is_kept>(operands, block, tile, ahead, place, sums);
  }
}

}  // namespace streamwell
