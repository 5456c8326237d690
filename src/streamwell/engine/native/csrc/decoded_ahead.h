// Coded weights for a tile of rows that meets them once, decoded shortly before.
#pragma once

#include "operands.h"

namespace streamwell {

// Decodes the panels of a group one after the other into a small ring, which does not leave the first cache,
// in pieces of sixteen steps. A thread has one ring: it works for one of these at a time.
template <class Scheme>
class DecodedAhead {
 public:
  DecodedAhead(const Operands<Scheme>& operands, const Group& group)
      : operands_(operands), group_(group), panel_(group.begin), decoding_(decoding_of(panel_)) {
    alignas(64) static thread_local uint8_t bytes[kPieces * kPieceBytes];
    bytes_ = bytes;
    for (int64_t i = 0; i < kPieces - 1; ++i) decode_some();
  }

  Ring ring() const { return {bytes_, bytes_ + kPieces * kPieceBytes}; }

  // Where a panel of the group begins.
  const uint8_t* place_of(int64_t panel) const {
    return piece((panel - group_.begin) * (operands_.steps / kWordsUnit));
  }

  // Decodes one piece more, if any is left, in the place of the one that was multiplied last.
  void decode_some() {
    if (!decoding_.left()) {
      if (++panel_ >= group_.end) return;
      decoding_ = decoding_of(panel_);
    }
    decoding_.go_on(kUnitChunks<Scheme>, piece(num_decoded_++));
  }

 private:
  static constexpr int64_t kPieces = 4, kPieceBytes = kWordsUnit * Scheme::w_bytes;

  uint8_t* piece(int64_t number) const { return bytes_ + number % kPieces * kPieceBytes; }

  Decoding decoding_of(int64_t panel) const {
    return operands_.decoding({panel, 0, operands_.steps}, kCodedBytesAhead, nullptr);
  }

  const Operands<Scheme>& operands_;
  const Group group_;
  int64_t panel_;  // that is decoded
  Decoding decoding_;
  uint8_t* bytes_;
  int64_t num_decoded_ = 0;  // pieces
};

}  // namespace streamwell
