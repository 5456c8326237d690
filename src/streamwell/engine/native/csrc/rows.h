// What a layer does to each row by itself: norm, rotary embedding, writing keys and values.
#pragma once

#include <cmath>

#include "simd.h"

namespace streamwell {

// Below this many rows, waking the other threads costs more than they save.
constexpr int64_t kRowsWorthThreads = 8;

// The cache of one layer, `[blocks, kv_heads]`: the keys of a head at sixteen positions, and after them its
// values, since who reads the ones will read the others, and processors fetch ahead what comes next.
struct Cache {
  float* blocks;
};

struct Heads {
  int64_t queries, kv, dim;
  int64_t row_floats() const { return (queries + 2 * kv) * dim; }
  // Query heads that share a kv head.
  int64_t group() const { return queries / kv; }
};

// Root mean square norm (Zhang and Sennrich 2019), or with biases layer norm (Ba et al. 2016); without
// weights there is none.
struct Norm {
  const float *weight, *bias;
  explicit operator bool() const { return weight; }
};

inline float mean_of(const float* x, int64_t size) {
  F32 total = zero();
  for (int64_t i = 0; i < size; i += kLanes) total = add(total, load_some(x + i, size - i));
  return sum(total) / static_cast<float>(size);
}

// Of `size` floats; `y` may be `x`.
inline void normalize(const float* x, Norm norm, int64_t size, float eps, float* y) {
  const F32 mean = broadcast(norm.bias ? mean_of(x, size) : 0.0f);
  F32 squares = zero();
  for (int64_t i = 0; i < size; i += kLanes) {
    F32 values = sub(load_some(x + i, size - i), mean);
    if (size - i < kLanes) values = first_lanes(static_cast<int>(size - i), values, zero());
    squares = fma(values, values, squares);
  }
  const F32 factor =
      broadcast(1.0f / std::sqrt(sum(squares) / static_cast<float>(size) + eps));
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t count = size - i;
    F32 values = mul(sub(load_some(x + i, count), mean), factor);
    values = mul(values, load_some(norm.weight + i, count));
    if (norm.bias) values = add(values, load_some(norm.bias + i, count));
    store_some(y + i, values, count);
  }
}

inline void normalize_rows(const float* x, Norm norm, int64_t rows, int64_t size, float eps,
                           float* y) {
#pragma omp parallel for if (rows >= kRowsWorthThreads)
  for (int64_t row = 0; row < rows; ++row)
    normalize(x + row * size, norm, size, eps, y + row * size);
}

// Rotary position embedding (Su et al. 2021), first and second halves of a head as pairs.
// `cosines` and `sines` are those of the position, `dim / 2` each.
inline void rotate(float* head, const float* cosines, const float* sines, int64_t dim) {
  const int64_t half = dim / 2;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32 c = load(cosines + i), s = load(sines + i);
    const F32 low = load(head + i), high = load(head + half + i);
    store(head + i, sub(mul(low, c), mul(high, s)));
    store(head + half + i, add(mul(high, c), mul(low, s)));
  }
  for (; i < half; ++i) {
    const float low = head[i], high = head[half + i];
    head[i] = low * cosines[i] - high * sines[i];
    head[half + i] = high * cosines[i] + low * sines[i];
  }
}

inline void add_rows(const float* rows, int64_t size, float* sums) {
#pragma omp parallel for if (size >= (1 << 14))
  for (int64_t i = 0; i < size; ++i) sums[i] += rows[i];
}

// What becomes of queries and keys between projection and attention.
struct Placing {
  Norm query_norm, key_norm;
  int64_t norm_width;  // of a query norm: that of a head, or of all
  float eps;
  const float *cosines, *sines;  // [positions, head_dim / 2], or null
};

inline void normalize_heads(float* queries, const Placing& placing, Heads heads) {
  if (placing.norm_width == heads.dim) {
    for (int64_t h = 0; h < heads.queries + heads.kv; ++h) {
      float* head = queries + h * heads.dim;
      normalize(head, h < heads.queries ? placing.query_norm : placing.key_norm, heads.dim,
                placing.eps, head);
    }
    return;
  }
  float* keys = queries + heads.queries * heads.dim;
  normalize(queries, placing.query_norm, heads.queries * heads.dim, placing.eps, queries);
  normalize(keys, placing.key_norm, heads.kv * heads.dim, placing.eps, keys);
}

// Queries, keys and values of each row as the projection left them, in place: norms and rotation
// where the model has them, and keys and values into the cache.
template <class CacheKind>
void place_rows(float* qkv, const Placing& placing, const int64_t* positions, const int64_t* slots,
                int64_t rows, Heads heads, const Cache& cache) {
  const int64_t half = heads.dim / 2;
  for (int64_t row = 0; row < rows; ++row)
    if (slots[row] % kLanes == 0) CacheKind::open_block(slots[row] / kLanes, heads, cache);
#pragma omp parallel for if (rows >= kRowsWorthThreads)
  for (int64_t row = 0; row < rows; ++row) {
    float* queries = qkv + row * heads.row_floats();
    float* keys = queries + heads.queries * heads.dim;
    if (placing.query_norm) normalize_heads(queries, placing, heads);
    for (int64_t h = 0; placing.cosines && h < heads.queries + heads.kv; ++h)
      rotate(queries + h * heads.dim, placing.cosines + positions[row] * half,
             placing.sines + positions[row] * half, heads.dim);
    CacheKind::write(keys, keys + heads.kv * heads.dim, slots[row], heads, cache);
  }
}

}  // namespace streamwell
