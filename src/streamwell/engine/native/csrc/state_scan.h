// The recurrence of Mamba-2's layers (Dao and Gu 2024, "Transformers are SSMs"), token by token:
// state = exp(step * rate) * state + step * x * b', and what is read of it is state * c + skip * x.
//
// As with the delta rule, by tokens a state is read and written once for each, from the first cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "repeat.h"
#include "simd.h"

namespace streamwell {

struct StateScan {
  const float* x;      // [batch, tokens, heads, head_dim]
  const float* steps;  // [batch, tokens, heads]; a bias is added to them, they are brought above zero, or not
  const float* bias;   // [heads], or null
  const float* rates;  // [heads], below zero
  const float* b;      // [batch, tokens, groups, state_dim], a multiple of 16
  const float* c;      // the same
  const float* skips;  // [heads], or null
  float* state;        // [batch, heads, head_dim, state_dim]
  float* out;          // like `x`
  int64_t batch, tokens, heads, groups, head_dim, state_dim;
  int32_t has_softplus;
  float shortest, longest;  // step

  void run() const {
    std::vector<float> sizes(batch * tokens * heads);
#pragma omp parallel for
    for (int64_t i = 0; i < batch * tokens * heads; ++i) sizes[i] = size_of(i);
    const int64_t blocks = (head_dim + kRowsAtOnce - 1) / kRowsAtOnce;
#pragma omp parallel for
    for (int64_t i = 0; i < batch * heads * blocks; ++i)
      run_rows(i / blocks / heads, i / blocks % heads, i % blocks * kRowsAtOnce, sizes.data());
  }

 private:
  static constexpr int64_t kRowsAtOnce = 16;

  // Of a step. One by one: PyTorch's vectors have other bits than what is left over at their end.
  float size_of(int64_t i) const {
    float size = steps[i] + (bias ? bias[i % heads] : 0.0f);
    if (has_softplus && size <= 20.0f) size = std::log1p(std::exp(size));
    return std::min(std::max(size, shortest), longest);  // what is not a number stays so
  }

  // Some rows of the state of one head of one sequence, over all tokens.
  void run_rows(int64_t sequence, int64_t head, int64_t first, const float* sizes) const {
    const int64_t count = std::min(kRowsAtOnce, head_dim - first);
    float* const rows = state + ((sequence * heads + head) * head_dim + first) * state_dim;
    const int64_t group = head / (heads / groups);
    for (int64_t token = sequence * tokens; token < (sequence + 1) * tokens; ++token) {
      const int64_t own = token * heads + head, place = (token * groups + group) * state_dim;
      const float kept = std::exp(sizes[own] * rates[head]);
      for (int64_t i = 0; i < count; ++i) {
        const float value = x[own * head_dim + first + i];
        const float read = step_row(rows + i * state_dim, kept, sizes[own] * value, b + place, c + place);
        out[own * head_dim + first + i] = skips ? read + skips[head] * value : read;
      }
    }
  }

  // One token in one row; two sums, since additions wait for each other.
  float step_row(float* row, float kept, float added, const float* b, const float* c) const {
    const F32 by = broadcast(kept), with = broadcast(added);
    F32 reads[2] = {zero(), zero()};
    const auto add = [&](int64_t n, F32& read) {
      const F32 lanes = fma(with, load(b + n), mul(by, load(row + n)));
      store(row + n, lanes);
      read = fma(load(c + n), lanes, read);
    };
    int64_t n = 0;
    for (; n + 2 * kLanes <= state_dim; n += 2 * kLanes) {
      add(n, reads[0]);
      add(n + kLanes, reads[1]);
    }
    if (n < state_dim) add(n, reads[0]);
    return sum(streamwell::add(reads[0], reads[1]));
  }
};

}  // namespace streamwell
