// Coded weights for a tile of rows that meets them once, decoded shortly before.
#pragma once

#include "operands.h"

namespace streamwell {

// How far ahead coded weights are asked for with what is decoded, by what was fastest.
constexpr int64_t kCodedBytesAhead = 4 << 10;

// Of a group of panels, one after the other, to a few places by turns, each for sixteen steps: they do not
// leave the first cache.
template <class Scheme>
class DecodedAhead {
 public:
  DecodedAhead(const Operands<Scheme>& operands, const Group& group)
      : operands_(operands), group_(group), panel_(group.begin), decoding_(decoding_of(panel_)) {
    alignas(64) static thread_local uint8_t bytes[kPlaces * kPlaceBytes];
    bytes_ = bytes;
    for (int64_t i = 0; i < kPlaces - 1; ++i) decode_some();
  }

  Places places() const { return {bytes_, bytes_ + kPlaces * kPlaceBytes}; }

  // Where a panel of the group begins.
  const uint8_t* place_of(int64_t panel) const {
    return bytes_ + (panel - group_.begin) * (operands_.steps / kWordsUnit) % kPlaces * kPlaceBytes;
  }

  // Decodes sixteen steps more, if any are left.
  void decode_some() {
    if (!decoding_.left()) {
      if (++panel_ >= group_.end) return;
      decoding_ = decoding_of(panel_);
    }
    decoding_.go_on(kPlaceBytes / (2 * kChunkWeights), bytes_ + num_decoded_++ % kPlaces * kPlaceBytes);
  }

 private:
  static constexpr int64_t kPlaces = 4;  // a power of two
  static constexpr int64_t kPlaceBytes = kWordsUnit * Scheme::w_bytes;

  Decoding decoding_of(int64_t panel) const {
    return operands_.decoding(panel, 0, operands_.steps, kCodedBytesAhead, nullptr);
  }

  const Operands<Scheme>& operands_;
  const Group group_;
  int64_t panel_;
  Decoding decoding_;
  uint8_t* bytes_;
  int64_t num_decoded_ = 0;
};

}  // namespace streamwell
