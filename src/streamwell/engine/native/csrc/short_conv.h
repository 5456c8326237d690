// Causal convolutions of each channel by itself, over a few tokens, as layers with a state begin with.
#pragma once

#include <algorithm>
#include <cstring>

#include "activation.h"

namespace streamwell {

struct ShortConv {
  const float* x;       // [batch, tokens, channels]
  const float* weight;  // [taps, channels], that of the latest token last
  const float* bias;    // [channels], or null
  float* state;         // [batch, taps, channels], the latest tokens, which come before the first; or null: zeros
  float* y;             // like `x`
  int64_t batch, tokens, channels, taps;
  int32_t activation;

  void run() const {
#pragma omp parallel for
    for (int64_t row = 0; row < batch * tokens; ++row) run_token(row / tokens, row % tokens);
    if (state)
      for (int64_t sequence = 0; sequence < batch; ++sequence) keep(sequence);
  }

 private:
  // Where a token of a sequence is, also one from before the first; null where there was none.
  const float* at(int64_t sequence, int64_t token) const {
    if (token >= 0) return x + (sequence * tokens + token) * channels;
    return state ? state + (sequence * taps + taps + token) * channels : nullptr;
  }

  void run_token(int64_t sequence, int64_t token) const {
    float* const result = y + (sequence * tokens + token) * channels;
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int64_t count = channels - c;
      F32 total = bias ? load_some(bias + c, count) : zero();
      for (int64_t tap = 0; tap < taps; ++tap)
        if (const float* const seen = at(sequence, token - taps + 1 + tap))
          total = fma(load_some(weight + tap * channels + c, count), load_some(seen + c, count), total);
      store_some(result + c, activate(total, static_cast<Activation>(activation)), count);
    }
  }

  // The latest tokens, for the next call: the oldest first, since some may move to an older place.
  void keep(int64_t sequence) const {
    for (int64_t tap = 0; tap < taps; ++tap)
      std::memmove(state + (sequence * taps + tap) * channels, at(sequence, tokens - taps + tap),
                   channels * sizeof(float));
  }
};

}  // namespace streamwell
