// What stands between the two projections of a feed-forward layer.
#pragma once

#include "simd.h"

namespace streamwell {

enum Activation : int32_t { kNone = 0, kSilu = 1, kGeluTanh = 2, kGelu = 3, kRelu = 4, kClampedSwiglu = 5 };

[[gnu::always_inline]] inline F32 silu(F32 x, F32 argument) {
  return mul(x, reciprocal(add(broadcast(1.0f), exp(sub(zero(), argument)))));
}

// GELU's approximation by tanh (Hendrycks and Gimpel 2016), which is SiLU with another argument.
[[gnu::always_inline]] inline F32 gelu_tanh(F32 x) {
  const F32 cubic = fma(mul(mul(x, x), broadcast(0.044715f)), x, x);
  return silu(x, mul(cubic, broadcast(1.5957691216f)));  // twice the root of 2 / pi
}

// What is not a number comes out as it is: the second argument of `max` wins.
[[gnu::always_inline]] inline F32 relu(F32 x) { return max(zero(), x); }

// GELU itself: ReLU less |x| times the tail of the normal distribution beyond |x|, after Abramowitz
// and Stegun 1964, 7.1.26, whose error is at most 1.5e-7.
[[gnu::always_inline]] inline F32 gelu(F32 x) {
  const F32 size = max(sub(zero(), x), x);
  const F32 z = mul(size, broadcast(0.70710678f));
  const F32 one = broadcast(1.0f), t = div(one, fma(z, broadcast(0.3275911f), one));
  F32 p = broadcast(1.061405429f);
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) {
    p = fma(p, t, broadcast(c));
  }
  const F32 tail = mul(mul(p, t), exp(sub(zero(), mul(z, z))));
  return sub(relu(x), mul(mul(size, broadcast(0.5f)), tail));
}

// Calls `body` with what an activation does: it is asked for once, and not with each value.
template <class Body>
[[gnu::always_inline]] inline void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case kSilu: return body([](F32 x) STREAMWELL_INLINE { return silu(x, x); });
    case kGeluTanh: return body([](F32 x) STREAMWELL_INLINE { return gelu_tanh(x); });
    case kGelu: return body([](F32 x) STREAMWELL_INLINE { return gelu(x); });
    case kRelu: return body([](F32 x) STREAMWELL_INLINE { return relu(x); });
    default: return body([](F32 x) STREAMWELL_INLINE { return x; });
  }
}

inline F32 activate(F32 x, Activation activation) {
  with_activation(activation, [&](auto activated) STREAMWELL_INLINE { x = activated(x); });
  return x;
}

// SwiGLU (Shazeer 2020) as GPT-OSS has it: both halves are bounded, and one is added to one. What is not
// a number comes out as it is.
[[gnu::always_inline]] inline F32 clamped_swiglu(F32 gate, F32 up) {
  const F32 limit = broadcast(7.0f);
  gate = min(limit, gate);
  up = max(broadcast(-7.0f), min(limit, up));
  return mul(silu(gate, mul(gate, broadcast(1.702f))), add(up, broadcast(1.0f)));
}

// The same of a gate and what it multiplies.
template <class Body>
[[gnu::always_inline]] inline void with_gate(Activation activation, const Body& body) {
  if (activation == kClampedSwiglu)
    return body([](F32 gate, F32 up) STREAMWELL_INLINE { return clamped_swiglu(gate, up); });
  with_activation(activation, [&](auto activated) STREAMWELL_INLINE {
    body([&](F32 gate, F32 up) STREAMWELL_INLINE { return mul(activated(gate), up); });
  });
}

}  // namespace streamwell
