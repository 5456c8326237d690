// Attention over the paged cache, for decodes and prefill chunks alike.
//
// A task is a few tokens of one sequence and one kv head; all query heads that share it read its
// keys and values together. Softmax goes over tiles of keys with running maximum and sum (Milakov
// and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022,
// "FlashAttention"). Tiles start at fixed positions, so what a token gets does not depend on how
// its prompt was cut or on what else is in the batch.
#pragma once

#include <omp.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "rows.h"

namespace streamwell {

#if defined(__AVX512F__)
constexpr int kQueries = 6;     // rows of a micro-kernel: 6 x 4 sums, four columns, a broadcast
constexpr int kTileVectors = 4; // vectors of keys, or of a head's dimensions, per row
#else
constexpr int kQueries = 3;
constexpr int kTileVectors = 2;
#endif
constexpr int kTileBlocks = 4;
constexpr int kTileKeys = kTileBlocks * kLanes;
constexpr int kTaskRows = 8 * kQueries;

// The sequences of a step. Row `first_rows[s] + i` is the token at `starts[s] + i` of sequence s.
struct Sequences {
  int64_t count;
  const int64_t* first_rows;  // [count + 1]
  const int64_t* starts;      // [count]
  const int32_t* blocks;      // [count, max_blocks]
  int64_t max_blocks;
};

// One task: `tokens` tokens from position `start` of a sequence, and one kv head.
class AttentionTask {
 public:
  AttentionTask(const float* qkv, float* out, Heads heads, const Cache& cache, float scale,
                int64_t window, const int32_t* blocks, int64_t row, int64_t start, int64_t tokens,
                int64_t kv_head, std::vector<float>& scratch)
      : out_(out), heads_(heads), cache_(cache), window_(window), blocks_(blocks), row_(row),
        start_(start), kv_head_(kv_head), group_(heads.queries / heads.kv),
        rows_(tokens * group_) {
    scratch.resize(rows_ * (2 * heads.dim + 2) + kQueries * (kTileKeys + 1));
    queries_ = scratch.data();
    sums_ = queries_ + rows_ * heads.dim;
    maxima_ = sums_ + rows_ * heads.dim;
    totals_ = maxima_ + rows_;
    weights_ = totals_ + rows_;
    corrections_ = weights_ + kQueries * kTileKeys;
    pack_queries(qkv, scale);
    std::fill(sums_, maxima_, 0.0f);
    std::fill(maxima_, totals_, -std::numeric_limits<float>::infinity());
    std::fill(totals_, weights_, 0.0f);
  }

  void run() {
    const int64_t end = start_ + rows_ / group_;
    const int64_t begin = window_ ? std::max<int64_t>(0, start_ - window_ + 1) : 0;
    for (int64_t key = begin / kTileKeys * kTileKeys; key < end; key += kTileKeys)
      for (int64_t first = 0; first < rows_; first += kQueries)
        with_rows(std::min<int64_t>(kQueries, rows_ - first), first, key, end);
    for (int64_t r = 0; r < rows_; ++r) {
      const F32 inverse = broadcast(1.0f / totals_[r]);
      float* out = out_ + ((row_ + r / group_) * heads_.queries + head_of(r)) * heads_.dim;
      for (int64_t d = 0; d < heads_.dim; d += kLanes)
        store(out + d, mul(load(sums_ + r * heads_.dim + d), inverse));
    }
  }

 private:
  int64_t head_of(int64_t r) const { return kv_head_ * group_ + r % group_; }
  int64_t position_of(int64_t r) const { return start_ + r / group_; }

  // Micro-kernels read their rows' queries dimension by dimension.
  void pack_queries(const float* qkv, float scale) {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t tile = r / kQueries * kQueries;
      const int64_t height = std::min<int64_t>(kQueries, rows_ - tile);
      const float* query =
          qkv + (row_ + r / group_) * heads_.row_floats() + head_of(r) * heads_.dim;
      float* out = queries_ + tile * heads_.dim + (r - tile);
      for (int64_t d = 0; d < heads_.dim; ++d) out[d * height] = query[d] * scale;
    }
  }

  template <int R = kQueries>
  void with_rows(int64_t rows, int64_t first, int64_t key, int64_t end) {
    if (rows == R) {
      if (position_of(first + R - 1) >= key) attend<R>(first, key, end);
    } else if constexpr (R > 1) {
      with_rows<R - 1>(rows, first, key, end);
    }
  }

  const float* block_of(const float* cache, int64_t key) const {
    return cache + (blocks_[key / kLanes] * heads_.kv + kv_head_) * heads_.dim * kLanes;
  }

  template <int R>
  void attend(int64_t first, int64_t key, int64_t end) {
    const int64_t num_blocks = (std::min<int64_t>(end, key + kTileKeys) - key + kLanes - 1) / kLanes;
    for (int64_t b = 0; b < num_blocks; b += kTileVectors) {
      if (num_blocks - b >= kTileVectors) {
        score<R, kTileVectors>(first, key + b * kLanes, b);
      } else {
        for (int64_t rest = b; rest < num_blocks; ++rest)
          score<R, 1>(first, key + rest * kLanes, rest);
      }
    }
    for (int r = 0; r < R; ++r) soften(first + r, r, key, num_blocks);
    const int64_t count = std::min<int64_t>(kTileKeys, end - key);
    for (int64_t d = 0; d < heads_.dim; d += kTileVectors * kLanes) {
      if (heads_.dim - d >= kTileVectors * kLanes) {
        gather<R, kTileVectors>(first, key, count, d);
      } else {
        for (int64_t rest = d; rest < heads_.dim; rest += kLanes)
          gather<R, 1>(first, key, count, rest);
      }
    }
  }

  // weights[r, key] = query r times key, for V blocks of keys.
  template <int R, int V>
  void score(int64_t first, int64_t key, int64_t block) {
    const float* keys[V];
    for (int v = 0; v < V; ++v) keys[v] = block_of(cache_.keys, key + v * kLanes);
    const float* query = queries_ + first * heads_.dim;
    F32 sums[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sums[r][v] = zero();
    for (int64_t d = 0; d < heads_.dim; ++d, query += R) {
      F32 columns[V];
      for (int v = 0; v < V; ++v) columns[v] = load(keys[v] + d * kLanes);
      for (int r = 0; r < R; ++r) {
        const F32 value = broadcast(query[r]);
        for (int v = 0; v < V; ++v) sums[r][v] = fma(value, columns[v], sums[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) store(weights_ + r * kTileKeys + (block + v) * kLanes, sums[r][v]);
  }

  // Scores of a row become weights; keys it must not see get none.
  void soften(int64_t row, int r, int64_t key, int64_t num_blocks) {
    const F32 nothing = broadcast(-std::numeric_limits<float>::infinity());
    const int64_t visible = position_of(row) + 1 - key;
    const int64_t hidden = window_ ? position_of(row) + 1 - window_ - key : 0;
    const bool sees_all = visible >= num_blocks * kLanes && hidden <= 0;
    float* weights = weights_ + r * kTileKeys;
    F32 scores[kTileBlocks], peak = nothing;
    for (int64_t b = 0; b < num_blocks; ++b) {
      scores[b] = load(weights + b * kLanes);
      if (!sees_all) scores[b] = only_seen(scores[b], nothing, visible, hidden, b);
      peak = max(peak, scores[b]);
    }
    const float before = maxima_[row], after = std::max(before, largest(peak));
    if (after == -std::numeric_limits<float>::infinity()) {  // it sees none of these keys
      std::fill(weights, weights + num_blocks * kLanes, 0.0f);
      corrections_[r] = 1.0f;
      return;
    }
    F32 total = zero();
    for (int64_t b = 0; b < num_blocks; ++b) {
      F32 weight = exp(sub(scores[b], broadcast(after)));
      // `exp` never gives zero, so what is hidden is hidden once more
      if (!sees_all) weight = only_seen(weight, zero(), visible, hidden, b);
      store(weights + b * kLanes, weight);
      total = add(total, weight);
    }
    const float correction = before == after ? 1.0f : std::exp(before - after);
    corrections_[r] = correction;
    maxima_[row] = after;
    totals_[row] = totals_[row] * correction + sum(total);
  }

  // Block b of a row's keys, with `other` where the row does not see them.
  static F32 only_seen(F32 values, F32 other, int64_t visible, int64_t hidden, int64_t b) {
    const F32 seen = first_lanes(lanes(visible - b * kLanes), values, other);
    return first_lanes(lanes(hidden - b * kLanes), other, seen);
  }

  static int lanes(int64_t count) {
    return static_cast<int>(std::min<int64_t>(kLanes, std::max<int64_t>(0, count)));
  }

  // sums[r, d..] = correction * sums[r, d..] + weights[r] times values, for V vectors of dimensions.
  template <int R, int V>
  void gather(int64_t first, int64_t key, int64_t count, int64_t d) {
    F32 sums[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = mul(load(sums_ + (first + r) * heads_.dim + d + v * kLanes),
                         broadcast(corrections_[r]));
    for (int64_t block = 0; block < count; block += kLanes) {
      const float* value = block_of(cache_.values, key + block) + d;
      const int64_t end = std::min<int64_t>(count, block + kLanes);
      for (int64_t j = block; j < end; ++j, value += heads_.dim) {
        F32 columns[V];
        for (int v = 0; v < V; ++v) columns[v] = load(value + v * kLanes);
        for (int r = 0; r < R; ++r) {
          const F32 weight = broadcast(weights_[r * kTileKeys + j]);
          for (int v = 0; v < V; ++v) sums[r][v] = fma(weight, columns[v], sums[r][v]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        store(sums_ + (first + r) * heads_.dim + d + v * kLanes, sums[r][v]);
  }

  float* out_;
  Heads heads_;
  const Cache& cache_;
  int64_t window_;
  const int32_t* blocks_;
  int64_t row_, start_, kv_head_, group_, rows_;
  float *queries_, *sums_, *maxima_, *totals_, *weights_, *corrections_;
};

// `qkv` is `[rows, (queries + 2 * kv) * dim]`, `out` is `[rows, queries * dim]`; window 0 sees all.
inline void attend(const float* qkv, float* out, Heads heads, const Cache& cache, float scale,
                   int64_t window, const Sequences& sequences) {
  const int64_t tokens_per_task =
      std::max<int64_t>(1, kTaskRows / (heads.queries / heads.kv));
  std::vector<int64_t> firsts(sequences.count + 1, 0);  // each sequence's first task
  for (int64_t s = 0; s < sequences.count; ++s) {
    const int64_t tokens = sequences.first_rows[s + 1] - sequences.first_rows[s];
    firsts[s + 1] = firsts[s] + (tokens + tokens_per_task - 1) / tokens_per_task * heads.kv;
  }
#pragma omp parallel
  {
    std::vector<float> scratch;
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < firsts.back(); ++task) {
      const int64_t s =
          std::upper_bound(firsts.begin(), firsts.end(), task) - firsts.begin() - 1;
      const int64_t kv_head = (task - firsts[s]) % heads.kv;
      const int64_t offset = (task - firsts[s]) / heads.kv * tokens_per_task;
      const int64_t row = sequences.first_rows[s] + offset;
      const int64_t tokens = std::min(tokens_per_task, sequences.first_rows[s + 1] - row);
      AttentionTask(qkv, out, heads, cache, scale, window,
                    sequences.blocks + s * sequences.max_blocks, row, sequences.starts[s] + offset,
                    tokens, kv_head, scratch)
          .run();
    }
  }
}

}  // namespace streamwell
