// The first tile of rows that meets a block of coded weights, which it decodes.
//
// With 32 registers weights are decoded there, and multiplied at once: what decodes them waits for other things
// than what multiplies. Where there are 16, the sums fill them.
#pragma once

#include <limits>

#include "operands.h"

namespace streamwell {

#if defined(__AVX512F__)

// A panel's weights without a code, one after the other.
class Exceptions {
 public:
  Exceptions(const CodedPanel& panel, int64_t first_weight)
      : next_(panel.exceptions_from(first_weight)), end_(panel.exceptions() + panel.num_exceptions) {
    look();
  }

  // The upper bytes of the half of a chunk that begins with a weight, which those without a code have back.
  [[gnu::always_inline]] IntRegister put_back(IntRegister upper, int64_t first_weight) {
    while (__builtin_expect(place_ < first_weight + kHalfChunk, false)) {
      const int place = place_in_chunk(static_cast<int>(place_ % kChunkWeights)) % kHalfChunk;
      upper = with_byte(upper, place, static_cast<uint8_t>(next_->bits >> 8));
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

// sums += a tile's rows times whole chunks of a block. Memory is asked for what comes `ahead` bytes after a chunk,
// unless that is 0. Where weights are kept, they go to `place`.
template <bool is_kept, class Scheme, int M, class Sum>
[[gnu::always_inline]] inline void multiply_chunks(const Operands<Scheme>& operands, const Block& block,
                                                   int64_t tile, int64_t ahead, uint8_t* place,
                                                   Sum (&sums)[M][2]) {
  constexpr int64_t per_chunk = Operands<Scheme>::steps_of_chunk, row_bytes = M * Scheme::x_bytes;
  const CodedPanel& panel = operands.coded_panel(block.panel);
  const IntRegister table = table_of(panel.upper_bytes);
  const uint8_t *chunk = operands.block_at(block), *x = operands.tile_at(tile, block.step);
  const int64_t first = block.step / per_chunk * kChunkWeights;
  Exceptions exceptions(panel, first);
  for (int64_t i = 0; i < block.count / per_chunk; ++i, chunk += kChunkBytes) {
    ask<kChunkBytes>(chunk, ahead);
    const IntRegister codes = load_int_register(chunk + kChunkWeights);
    repeat<2>([&](int half) STREAMWELL_INLINE {
      const int64_t weight = first + i * kChunkWeights + half * kHalfChunk;
      const IntRegister upper = exceptions.put_back(upper_bytes_of(codes, half, table), weight);
      const IntRegister lower = load_int_register(chunk + half * kHalfChunk);
      const IntRegister some = first_bytes_in_turn(lower, upper), others = last_bytes_in_turn(lower, upper);
      if constexpr (is_kept) {
        store_int_register(place, some);
        store_int_register(place + kHalfChunk, others);
        place += 2 * kHalfChunk;
      }
      Scheme::template multiply_registers<M>(x, some, others, sums);
      x += per_chunk / 2 * row_bytes;
    });
  }
}

// sums += a tile's rows times a block. What is `ahead` is asked for meanwhile. If the weights are to be kept, they
// are decoded to `place`, at a multiple of 64 bytes, where some are in any case.
template <bool is_kept, class Scheme, int M, class Sum>
[[gnu::always_inline]] inline void decode_and_multiply(const Operands<Scheme>& operands, const Block& block,
                                                       int64_t tile, Ahead ahead, uint8_t* place,
                                                       Sum (&sums)[M][2]) {
  const int64_t distance = ahead.from ? ahead.from - operands.block_at(block) : 0;
  multiply_chunks<is_kept>(operands, block, tile, distance, place, sums);
  const int64_t rest = block.count % Operands<Scheme>::steps_of_chunk, whole = block.count - rest;
  if (!rest) return;
  if (is_kept) place += whole * Scheme::w_bytes;
  const Block last = {block.panel, block.step + whole, rest};
  operands.decoding(last, 0, place).finish();
  Scheme::template multiply<M>(operands.tile_at(tile, last.step), place, rest, Ahead(), sums);
}

#else

// The same piece by piece, each of which is decoded, then multiplied. Memory works while it is multiplied: asked
// with what is decoded, it would rest meanwhile.
template <bool is_kept, class Scheme, int M, class Sum>
[[gnu::always_inline]] inline void decode_and_multiply(const Operands<Scheme>& operands, const Block& block,
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

#endif

}  // namespace streamwell
