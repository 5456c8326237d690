// Weights that are small whole numbers, in groups of 32 inputs, as panels have them.
//
// Of a group each output has some words of 32 bits. Those of sixteen outputs lie side by side: one
// vector of first words, one of second words, and so on. `at` takes the levels of inputs 4j to 4j + 3
// out of them. Levels are unsigned.
#pragma once

#include "bytes.h"

namespace streamwell {

constexpr int kVectorBytes = 4 * kLanes;
constexpr int kGroupWords = kGroup / 4;

// The first half of a group in low nibbles, the other one in high nibbles.
struct FourBits {
  static constexpr int words = 4, largest = 15;

  static IntRegister at(const uint8_t* w, int j) {
    const IntRegister both = load_int_register(w + j % 4 * kVectorBytes);
    return mask_bits(shift_right(both, j / 4 * 4), 0x0f0f0f0f);
  }

  // Of one output's words.
  static int level(const uint8_t* words, int i) {
    return words[i % 16] >> (i / 16 * 4) & 15;
  }
};

// Four bits as above, which are a sign, two bits of an exponent and one of a fraction (E2M1: Open Compute
// Project 2023, "Microscaling Formats"). Levels are twice what they stand for, and twelve more.
struct SmallFloats {
  static constexpr int words = 4, largest = 24;
  static constexpr uint8_t levels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

  static IntRegister at(const uint8_t* w, int j) { return look_up(table_of(levels), FourBits::at(w, j)); }

  static int level(const uint8_t* words, int i) { return levels[FourBits::level(words, i)]; }
};

// Four bits as above; then a word with the highest bits, bit j for inputs 4j to 4j + 3.
struct FiveBits {
  static constexpr int words = 5, largest = 31;

  static IntRegister at(const uint8_t* w, int j) {
    const IntRegister high = load_int_register(w + 4 * kVectorBytes);
    const IntRegister moved = j < 4 ? shift_left(high, 4 - j) : shift_right(high, j - 4);
    return or_bits(FourBits::at(w, j), mask_bits(moved, 0x10101010));
  }

  static int level(const uint8_t* words, int i) {
    return FourBits::level(words, i) | (words[16 + i % 4] >> i / 4 & 1) << 4;
  }
};

// Four bits as above; then a word with two bits more for each half of the group, those of four inputs
// after those of the four before.
struct SixBits {
  static constexpr int words = 6, largest = 63;

  static IntRegister at(const uint8_t* w, int j) {
    const IntRegister high = load_int_register(w + (4 + j / 4) * kVectorBytes);
    const int shift = j % 4 * 2 - 4;
    const IntRegister moved = shift < 0 ? shift_left(high, -shift) : shift_right(high, shift);
    return or_bits(FourBits::at(w, j), mask_bits(moved, 0x30303030));
  }

  static int level(const uint8_t* words, int i) {
    const int high = words[16 + i / 16 * 4 + i % 4] >> (i / 4 % 4 * 2) & 3;
    return FourBits::level(words, i) | high << 4;
  }
};

struct EightBits {
  static constexpr int words = 8, largest = 255;

  static IntRegister at(const uint8_t* w, int j) { return load_int_register(w + j * kVectorBytes); }

  static int level(const uint8_t* words, int i) { return words[i]; }
};

// Bytes of a group for sixteen outputs, and its level that weighs nothing if there is no minimum.
template <class Levels>
constexpr int half_bytes = Levels::words * kVectorBytes;
template <class Levels>
constexpr int zero_level = (Levels::largest + 1) / 2;

// The words of one of a panel's outputs, to and from a group of it.
template <class Levels>
inline void place_words(uint8_t* group, int c, const uint8_t* words) {
  uint8_t* first = group + c / kLanes * half_bytes<Levels> + c % kLanes * 4;
  for (int i = 0; i < Levels::words; ++i) std::memcpy(first + i * kVectorBytes, words + 4 * i, 4);
}

template <class Levels>
inline void take_words(const uint8_t* group, int c, uint8_t* words) {
  const uint8_t* first = group + c / kLanes * half_bytes<Levels> + c % kLanes * 4;
  for (int i = 0; i < Levels::words; ++i) std::memcpy(words + 4 * i, first + i * kVectorBytes, 4);
}

// Products of sixteen outputs' levels with `M` rows of bytes, added up over `count` words of each row
// from the `first` one on. More rows than `kGroupRows` need more registers than there are.
#if defined(__AVX512VNNI__)
constexpr int kGroupRows = kRows;

template <class Levels, int M, int first = 0, int count = kGroupWords>
[[gnu::always_inline]] inline void dot(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
  I32 dots[M];  // lives in registers
  for (int m = 0; m < M; ++m) dots[m] = zero_int();
  repeat<count / 2>([&](int i) STREAMWELL_INLINE {
    const uint8_t* words = x + 4 * (first + i) * M;
    I32 low = Levels::at(w, first + i), high = Levels::at(w, first + i + count / 2);
    asm volatile("" : "+v"(low), "+v"(high));  // compilers would have many of them at once
    for (int m = 0; m < M; ++m) {
      dots[m] = dot_bytes(dots[m], low, broadcast_four_bytes(words + 4 * m));
      dots[m] = dot_bytes(dots[m], high, broadcast_four_bytes(words + 4 * (m + count / 2 * M)));
    }
  });
  std::memcpy(&result, &dots, sizeof(dots));
}
#else
constexpr int kGroupRows = kRegisters > 1 ? 8 : 11;

// Half of each of eight bits.
template <int shift>
struct Nibbles {
  static constexpr int largest = 15;

  static IntRegister at(const uint8_t* w, int j) {
    return mask_bits(shift_right(EightBits::at(w, j), shift), 0x0f0f0f0f);
  }
};

// As many products are added up in 16 bits as fit there.
template <class Levels, int M, int first, int count>
[[gnu::always_inline]] inline void dot_in_words(const uint8_t* x, const uint8_t* w,
                                                I32 (&result)[M]) {
  constexpr int fitting = ((1 << 15) - 1) / (2 * 127 * Levels::largest);
  constexpr int pairs = (fitting < count ? fitting : count) / 2;
  for (int part = 0; part < kRegisters; ++part) {
    const uint8_t* columns = w + 4 * part * kRegisterLanes;
    repeat<count / 2 / pairs>([&](int chunk) STREAMWELL_INLINE {
      // hidden, or all addresses are computed once for all parts, and fill the stack
      if constexpr (M > 4) asm("" : "+r"(x));
      IntRegister dots[M];
      repeat<M>([&](int m) STREAMWELL_INLINE { dots[m] = IntRegister{}; });
      repeat<pairs>([&](int i) STREAMWELL_INLINE {
        const int j = first + chunk * pairs + i;
        const IntRegister low = Levels::at(columns, j), high = Levels::at(columns, j + count / 2);
        repeat<M>([&](int m) STREAMWELL_INLINE {
          const uint8_t* word = x + 4 * (j * M + m);
          const IntRegister sum =
              settled(add_words(dots[m], dot_bytes(low, broadcast_four_bytes(word))));
          word += 4 * count / 2 * M;
          dots[m] = settled(add_words(sum, dot_bytes(high, broadcast_four_bytes(word))));
        });
      });
      repeat<M>([&](int m) STREAMWELL_INLINE {
        IntRegister& sum = register_of(result[m], part);
        const IntRegister more = dot_words(dots[m], broadcast_words(1));
        sum = chunk ? add_int(sum, more) : more;
      });
    });
  }
}

template <class Levels, int M, int first = 0, int count = kGroupWords>
[[gnu::always_inline]] inline void dot(const uint8_t* x, const uint8_t* w, I32 (&result)[M]) {
  if constexpr (std::is_same_v<Levels, EightBits>) {
    I32 high[M];  // eight bits are too many for that: their nibbles go one after the other
    dot_in_words<Nibbles<0>, M, first, count>(x, w, result);
    dot_in_words<Nibbles<4>, M, first, count>(x, w, high);
    for (int m = 0; m < M; ++m) result[m] = add_int(result[m], shift_left(high[m], 4));
  } else {
    dot_in_words<Levels, M, first, count>(x, w, result);
  }
}
#endif

}  // namespace streamwell
