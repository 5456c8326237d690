// Loops that are unrolled while compilers decide what lives in registers.
//
// They keep arrays there whose indices they know early; those of loops they know late.
#pragma once

#include <utility>

namespace streamwell {

// For what `repeat` calls, where compilers would make functions of it: what is large, or called often.
#define STREAMWELL_INLINE __attribute__((always_inline))

// Calls `body` with 0, 1, ... as constants.
template <class Body, int... indices>
[[gnu::always_inline]] inline void repeat(Body body, std::integer_sequence<int, indices...>) {
  (body(indices), ...);
}
template <int count, class Body>
[[gnu::always_inline]] inline void repeat(Body body) {
  repeat(body, std::make_integer_sequence<int, count>());
}

// The same with every row and column.
template <int rows, int columns, class Body>
[[gnu::always_inline]] inline void repeat(Body body) {
  repeat<rows * columns>([&](int i) STREAMWELL_INLINE { body(i / columns, i % columns); });
}

}  // namespace streamwell
