// Linear attention by the gated delta rule (Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks"),
// token by token: state = decay * state + key * (beta * (value - key' * decay * state)), and what is read
// of it is query' * state.
//
// In chunks it would be products of matrices, and more arithmetic. By tokens a state is read and written
// once for each, from the first cache: columns of it are independent of each other.
#pragma once

#include <algorithm>
#include <cmath>

#include "lines.h"
#include "repeat.h"
#include "simd.h"

namespace streamwell {

struct DeltaRule {
  const float* query;  // [batch, tokens, key_heads, key_dim]
  const float* key;    // the same; both are brought to length one, and queries divided by the root of key_dim
  const float* value;  // [batch, tokens, value_heads, value_dim], value_dim a multiple of 16
  const float* decay;  // [batch, tokens, value_heads], logarithms
  const float* beta;   // the same
  float* state;        // [batch, value_heads, key_dim, value_dim]
  float* out;          // like `value`
  int64_t batch, tokens, key_heads, value_heads, key_dim, value_dim;

  void run() const {
    const bool is_wide = value_dim % (kWide * kLanes) == 0;
    const int64_t blocks = value_dim / kLanes / (is_wide ? kWide : 1);
#pragma omp parallel
    {
      Lines<float> scratch((is_wide ? kWide * kLanes : kLanes) * key_dim + 3 * key_dim);
#pragma omp for
      for (int64_t i = 0; i < batch * value_heads * blocks; ++i) {
        const int64_t row = i / blocks, block = i % blocks;
        if (is_wide) run_columns<kWide>(row / value_heads, row % value_heads, block, scratch.data());
        else run_columns<1>(row / value_heads, row % value_heads, block, scratch.data());
      }
    }
  }

 private:
  static constexpr int kWide = kRegisters > 1 ? 1 : 4;  // registers hold three of so many vectors

  // Some columns of the state of one head of one sequence, over all tokens. What a token adds is put off
  // until the next one reads the state.
  template <int width>
  void run_columns(int64_t sequence, int64_t head, int64_t block, float* scratch) const {
    float* const columns = scratch;
    float *const q = columns + width * kLanes * key_dim, *k = q + key_dim, *last_k = k + key_dim;
    float* const state_columns =
        state + ((sequence * value_heads + head) * key_dim * value_dim) + block * width * kLanes;
    for (int64_t i = 0; i < key_dim; ++i)
      repeat<width>([&](int c) {
        store(columns + (i * width + c) * kLanes, load(state_columns + i * value_dim + c * kLanes));
      });
    const int64_t key_head = head / (value_heads / key_heads);
    const float scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
    F32 delta[width];
    for (F32& lanes : delta) lanes = zero();
    std::fill(last_k, last_k + key_dim, 0.0f);
    for (int64_t token = sequence * tokens; token < (sequence + 1) * tokens; ++token) {
      const int64_t place = (token * key_heads + key_head) * key_dim;
      normalize(query + place, scale, q);
      normalize(key + place, 1.0f, k);
      const int64_t own = token * value_heads + head, first = own * value_dim + block * width * kLanes;
      step<width>(columns, last_k, k, q, std::exp(decay[own]), beta[own], value + first, delta, out + first);
      std::swap(k, last_k);
    }
    for (int64_t i = 0; i < key_dim; ++i)
      repeat<width>([&](int c) {
        const F32 before = load(columns + (i * width + c) * kLanes);
        store(state_columns + i * value_dim + c * kLanes, fma(broadcast(last_k[i]), delta[c], before));
      });
  }

  // One token: `delta` is what the last one adds, and then what this one does.
  template <int width>
  void step(float* columns, const float* last_k, const float* k, const float* q, float kept, float rate,
            const float* values, F32 (&delta)[width], float* result) const {
    F32 known[width], read[width];
    repeat<width>([&](int c) { known[c] = read[c] = zero(); });
    const F32 decayed = broadcast(kept);
    for (int64_t i = 0; i < key_dim; ++i) {
      const F32 last = broadcast(last_k[i]), own = broadcast(k[i]), asked = broadcast(q[i]);
      repeat<width>([&](int c) {
        float* const place = columns + (i * width + c) * kLanes;
        const F32 lanes = mul(decayed, fma(last, delta[c], load(place)));
        store(place, lanes);
        known[c] = fma(own, lanes, known[c]);
        read[c] = fma(asked, lanes, read[c]);
      });
    }
    const F32 match = broadcast(dot(q, k));
    repeat<width>([&](int c) {
      delta[c] = mul(broadcast(rate), sub(load(values + c * kLanes), known[c]));
      store(result + c * kLanes, fma(match, delta[c], read[c]));
    });
  }

  // To length one, and then times a factor.
  void normalize(const float* x, float factor, float* y) const {
    const float by = factor / std::sqrt(dot(x, x) + 1e-6f);
    for (int64_t i = 0; i < key_dim; ++i) y[i] = by * x[i];
  }

  float dot(const float* x, const float* y) const {
    F32 total = zero();
    for (int64_t i = 0; i < key_dim; i += kLanes)
      total = fma(load_some(x + i, key_dim - i), load_some(y + i, key_dim - i), total);
    return sum(total);
  }
};

}  // namespace streamwell
