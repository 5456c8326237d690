// Weights in bfloat16 whose upper bytes are coded: the same bits in three quarters of the bytes.
//
// The upper byte of a bfloat16 is its sign and seven bits of its exponent. Weights of a layer are of similar
// size, so nearly all of a panel have one of sixteen upper bytes, and four bits say which. (DFloat11, Zhang
// et al. 2025, gives frequent exponents shorter codes; codes of one length are what vectors decode.) The few
// others are listed.
//
// A panel begins with its sixteen bytes and its list, for which all panels of a layer have as much room. Its
// weights follow, in the order in which they are multiplied, in chunks of 128: their lower bytes, then
// their codes.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "schemes.h"

namespace streamwell {

constexpr int kChunkWeights = 128, kChunkBytes = kChunkWeights * 3 / 2;
constexpr int kHalfChunk = kChunkWeights / 2, kNumCodes = 16;
constexpr int kRegisterBytes = 64 / kRegisters;

struct Exception {
  uint32_t place;  // in its panel
  uint16_t bits;
};

struct alignas(64) CodedPanel {
  uint8_t upper_bytes[kNumCodes];
  int64_t num_exceptions;

  const Exception* exceptions() const { return reinterpret_cast<const Exception*>(this + 1); }
  Exception* exceptions() { return reinterpret_cast<Exception*>(this + 1); }

  const Exception* exceptions_from(int64_t place) const {
    return std::lower_bound(exceptions(), exceptions() + num_exceptions, place,
                            [](const Exception& a, int64_t place) { return a.place < place; });
  }
};

inline int64_t chunk_bytes_of(int64_t weights) {
  return (weights + kChunkWeights - 1) / kChunkWeights * kChunkBytes;
}

inline int64_t coded_panel_bytes(int64_t weights, int64_t exceptions) {
  const int64_t listed = exceptions * static_cast<int64_t>(sizeof(Exception));
  return static_cast<int64_t>(sizeof(CodedPanel)) + (listed + 63) / 64 * 64 + chunk_bytes_of(weights);
}

// Which weight of a chunk has its lower byte at a place. Vectors put sixteen of them, which lie together,
// beside their upper bytes in two halves: the first eight, and the last.
inline int weight_at(int place) {
  const int in_half = place % kHalfChunk, part = in_half / 8 % 2;
  return place / kHalfChunk * kHalfChunk + part * 32 + in_half / 16 * 8 + in_half % 8;
}

// The other way round.
inline int place_in_chunk(int weight) {
  const int in_half = weight % kHalfChunk, in_part = in_half % 32;
  return weight / kHalfChunk * kHalfChunk + in_part / 8 * 16 + in_half / 32 * 8 + in_part % 8;
}

// How many of a panel's weights have each upper byte.
class UpperBytes {
 public:
  void add_zeros(int64_t count) { counts_[0][0] += count; }

  // Neighbours are counted in different places: often alike, they would wait for each other.
  void add(const uint16_t* weights, int64_t count) {
    for (int64_t i = 0; i < count; ++i) ++counts_[i % kPlaces][weights[i] >> 8];
  }

  int64_t operator[](int byte) const {
    int64_t count = 0;
    for (int i = 0; i < kPlaces; ++i) count += counts_[i][byte];
    return count;
  }

 private:
  static constexpr int kPlaces = 4;
  int64_t counts_[kPlaces][256] = {};
};

// The sixteen upper bytes that most of a panel's weights have, and the codes of those.
class Codes {
 public:
  explicit Codes(const UpperBytes& bytes) {
    int64_t counts[256];
    for (int i = 0; i < 256; ++i) counts[i] = bytes[i];
    int order[256];
    std::iota(order, order + 256, 0);
    std::partial_sort(order, order + kNumCodes, order + 256, [&](int a, int b) {
      return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
    });
    std::fill(codes_, codes_ + 256, kNone);
    for (int i = 0; i < kNumCodes; ++i) {
      upper_bytes_[i] = static_cast<uint8_t>(order[i]);
      codes_[order[i]] = static_cast<uint8_t>(i);
    }
    for (int i = 0; i < 256; ++i) num_exceptions_ += codes_[i] == kNone ? counts[i] : 0;
  }

  int64_t num_exceptions() const { return num_exceptions_; }

  // Writes whole chunks of weights as a panel of so many bytes.
  void encode(const std::vector<uint16_t>& weights, uint8_t* place, int64_t bytes) const {
    auto* panel = reinterpret_cast<CodedPanel*>(place);
    std::memcpy(panel->upper_bytes, upper_bytes_, kNumCodes);
    panel->num_exceptions = num_exceptions_;
    Exception* exceptions = panel->exceptions();
    const auto count = static_cast<uint32_t>(weights.size());
    for (uint32_t i = 0; i < count; ++i)
      if (codes_[weights[i] >> 8] == kNone) *exceptions++ = {i, weights[i]};
    uint8_t* chunk = place + bytes - chunk_bytes_of(count);
    for (uint32_t i = 0; i < count; i += kChunkWeights, chunk += kChunkBytes)
      encode_chunk(weights.data() + i, chunk);
  }

 private:
  static constexpr uint8_t kNone = 16;  // whose code is any

  void encode_chunk(const uint16_t* weights, uint8_t* chunk) const {
    for (int i = 0; i < kHalfChunk; ++i) {
      const uint16_t first = weights[weight_at(i)], second = weights[weight_at(i + kHalfChunk)];
      chunk[i] = static_cast<uint8_t>(first);
      chunk[i + kHalfChunk] = static_cast<uint8_t>(second);
      chunk[i + kChunkWeights] =
          static_cast<uint8_t>((codes_[first >> 8] & 15) | codes_[second >> 8] << 4);
    }
  }

  uint8_t upper_bytes_[kNumCodes], codes_[256];
  int64_t num_exceptions_ = 0;
};

// Weights of a panel one by one, at places that ascend.
class CodedWeights {
 public:
  CodedWeights(const CodedPanel& panel, const uint8_t* chunks)
      : panel_(panel), chunks_(chunks), exception_(panel.exceptions()),
        no_exception_(exception_ + panel.num_exceptions) {}

  uint16_t at(int64_t place) {
    while (exception_ < no_exception_ && exception_->place < place) ++exception_;
    if (exception_ < no_exception_ && exception_->place == place) return exception_->bits;
    const uint8_t* chunk = chunks_ + place / kChunkWeights * kChunkBytes;
    const int byte = place_in_chunk(static_cast<int>(place % kChunkWeights));
    const int code = chunk[kChunkWeights + byte % kHalfChunk] >> (byte / kHalfChunk * 4) & 15;
    return static_cast<uint16_t>(panel_.upper_bytes[code] << 8 | chunk[byte]);
  }

 private:
  const CodedPanel& panel_;
  const uint8_t* chunks_;
  const Exception *exception_, *no_exception_;
};

// Upper bytes by the codes of one half of a chunk.
[[gnu::always_inline]] inline IntRegister upper_bytes_of(IntRegister codes, int half, IntRegister table) {
  return look_up(table, mask_bits(half ? shift_right(codes, 4) : codes, 0x0f0f0f0f));
}

// Turns chunks of a panel back into weights, some at a time.
class Decoding {
 public:
  Decoding() = default;

  // `count` chunks from `chunk` on, which is number `first` of the panel, to `out`, at a multiple of 64 bytes.
  // What lies `ahead` bytes further on is asked for, unless that is 0.
  Decoding(const CodedPanel& panel, const uint8_t* chunk, int64_t first, int64_t count, int64_t ahead,
           uint8_t* out)
      : upper_bytes_(panel.upper_bytes), chunk_(chunk), place_(first * kChunkWeights), left_(count),
        ahead_(ahead), out_(out), exception_(panel.exceptions_from(place_)),
        no_exception_(panel.exceptions() + panel.num_exceptions) {}

  int64_t left() const { return left_; }

  // The next chunks, if as many are left.
  void go_on(int64_t count) {
    count = std::min(count, left_);
    if (!count) return;
    // for all that compilers know, what is stored might be a part of this
    const IntRegister upper_bytes = table_of(upper_bytes_);
    const uint8_t* chunk = chunk_;
    uint8_t* out = out_;
    const int64_t ahead = ahead_, end = place_ + count * kChunkWeights;
    for (int64_t i = 0; i < count; ++i, chunk += kChunkBytes, out += 2 * kChunkWeights)
      decode_chunk(upper_bytes, chunk, ahead, out);
    for (; exception_ < no_exception_ && exception_->place < end; ++exception_)
      std::memcpy(out_ + (exception_->place - place_) * 2, &exception_->bits, 2);
    place_ = end;
    left_ -= count;
    chunk_ += count * kChunkBytes;
    out_ += count * 2 * kChunkWeights;
  }

  // The same to another place, at a multiple of 64 bytes.
  void go_on(int64_t count, uint8_t* out) {
    out_ = out;
    go_on(count);
  }

  void finish() { go_on(left_); }

 private:
  [[gnu::always_inline]] static void decode_chunk(IntRegister upper_bytes, const uint8_t* chunk, int64_t ahead,
                                                  uint8_t* out) {
    constexpr int size = 64 / kRegisters;
    if (ahead) fetch<kChunkBytes>(chunk + ahead);
    repeat<kRegisters>([&](int part) STREAMWELL_INLINE {
      const uint8_t* low = chunk + part * size;
      const IntRegister codes = load_int_register(low + kChunkWeights);
      repeat<2>([&](int half) STREAMWELL_INLINE {
        const IntRegister upper = upper_bytes_of(codes, half, upper_bytes);
        const IntRegister lower = load_int_register(low + half * kHalfChunk);
        uint8_t* to = out + half * kChunkWeights + part * size;
        store_int_register(to, first_bytes_in_turn(lower, upper));
        store_int_register(to + kHalfChunk, last_bytes_in_turn(lower, upper));
      });
    });
  }

  const uint8_t *upper_bytes_ = nullptr, *chunk_ = nullptr;
  int64_t place_ = 0, left_ = 0, ahead_ = 0;
  uint8_t* out_ = nullptr;
  const Exception *exception_ = nullptr, *no_exception_ = nullptr;
};

// A scheme whose weights are coded.
template <class Scheme>
struct Coded : Scheme {
  static constexpr bool spreads = true;
};
template <class Scheme>
constexpr bool is_coded = false;
template <class Scheme>
constexpr bool is_coded<Coded<Scheme>> = true;

// Chunks of sixteen steps of a panel.
template <class Scheme>
constexpr int64_t kUnitChunks = kWordsUnit * Scheme::w_bytes / (2 * kChunkWeights);

// How far ahead tiles ask for coded weights while they decode others, by what was fastest.
constexpr int64_t kCodedBytesAhead = 4 << 10;

// Bytes of a step of a panel in memory.
template <class Scheme>
constexpr int kStoredBytes = is_coded<Scheme> ? Scheme::w_bytes * 3 / 4 : Scheme::w_bytes;

}  // namespace streamwell
