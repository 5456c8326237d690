// Attention over the paged cache, for decodes and prefill chunks alike.
//
// A task is a few tokens of one sequence and one kv head; all query heads that share it read its
// keys and values together. Tiles of keys start at fixed positions, so what a token gets does not
// depend on how its prompt was cut or on what else is in the batch.
#pragma once

#include <omp.h>

#include <algorithm>

#include "lines.h"
#include "rows.h"
#include "softmax.h"

namespace streamwell {

#if defined(__AVX512F__)
constexpr int kQueries = 6;     // rows of a micro-kernel: 6 x 4 sums, four columns, a broadcast
constexpr int kTileVectors = 4; // vectors of keys, or of a head's dimensions, per row
#else
constexpr int kQueries = 3;
constexpr int kTileVectors = 2;
#endif

// The sequences of a step, and the keys they see. Row `first_rows[s] + i` is the token at
// `starts[s] + i` of sequence s.
struct Sequences {
  int64_t count;
  const int64_t* first_rows;  // [count + 1]
  const int64_t* starts;      // [count]
  const int64_t* lengths;     // [count]: all rows see so many keys; null: each those up to itself
  const int32_t* blocks;      // [count, max_blocks]
  int64_t max_blocks;
};

// What is added to scores by how far a key is from its query (Raffel et al. 2020): for head h and a
// key `d` places after the query, table[h * stride + origin + d]. Tiles of keys are read to their
// ends, so after the last distance come as many floats as two tiles have keys.
struct DistanceBias {
  const float* table;  // or null
  int64_t stride, origin;
};

// What attention of one layer reads and writes.
struct Attention {
  const float* queries;  // [rows, query_floats], of which the first queries * dim are read
  int64_t query_floats;
  float* out;  // [rows, queries * dim]
  Heads heads;
  const Cache& cache;
  float scale, softcap;
  DistanceBias bias;
  int64_t window;      // 0 sees all
  const float* sinks;  // [queries]: a score more for each row, of a key without a value; or null

  // Where the tile of keys starts that the token at `position` reads first.
  int64_t first_key(int64_t position) const {
    const int64_t first = window ? std::max<int64_t>(0, position - window + 1) : 0;
    return first / kTileKeys * kTileKeys;
  }
};

// `tokens` tokens of a sequence and one kv head: the query heads that share it give a row each.
struct Task {
  const int32_t* blocks;
  int64_t row, start, tokens, kv_head;
  int64_t length;  // keys that all rows see, or negative: each sees those up to itself

  // Keys that any row sees.
  int64_t end() const { return length < 0 ? start + tokens : length; }

  // The last key that a row sees.
  int64_t last_seen(int64_t r, int64_t group) const {
    return length < 0 ? start + r / group : length - 1;
  }

  int64_t head_of(int64_t r, int64_t group) const { return kv_head * group + r % group; }

  // Where its keys and values are, among all heads of the cache, in one of the sequence's blocks.
  int64_t place_of(int64_t block, int64_t num_heads) const { return blocks[block] * num_heads + kv_head; }

  // The query, or the place for what comes out, of a row.
  int64_t offset_of(int64_t r, int64_t group, int64_t row_floats, int64_t dim) const {
    return (row + r / group) * row_floats + head_of(r, group) * dim;
  }
};

// A row's scores of the tile that starts at `key`, of which so many blocks are read.
inline ShapedTile tile_of(const Attention& attention, const Task& task, int64_t r, int64_t key,
                          int64_t num_blocks) {
  const int64_t group = attention.heads.group(), last = task.last_seen(r, group);
  const DistanceBias& bias = attention.bias;
  const float* distances = nullptr;
  if (bias.table) {
    const int64_t head = task.head_of(r, group), position = task.start + r / group;
    distances = bias.table + head * bias.stride + bias.origin + key - position;
  }
  return {num_blocks, {attention.softcap, distances}, Sight(last, attention.window, key)};
}

// Whether the tile that starts at `key` is a `WholeTile` to all rows from `first` to `last`. They are in the
// order of positions: no row sees less of its end than the first, or of its beginning than the last.
inline bool is_whole(const Attention& attention, const Task& task, int64_t first, int64_t last,
                     int64_t key) {
  const int64_t group = attention.heads.group();
  const Sight oldest(task.last_seen(first, group), attention.window, key);
  const Sight newest(task.last_seen(last, group), attention.window, key);
  const bool is_plain = attention.softcap == 0.0f && !attention.bias.table;
  return is_plain && oldest.visible >= kTileKeys && newest.hidden <= 0;
}

// What every row of a task has gathered so far: sums over values, to be divided by its total.
class Gathered {
 public:
  Gathered(const Attention& attention, const Task& task, float* sums, Lines<Seen>& seen)
      : attention_(attention), task_(task), sums_(sums), seen_(seen) {
    const int64_t group = attention.heads.group(), rows = task.tokens * group;
    std::fill(sums, sums + rows * attention.heads.dim, 0.0f);
    seen.assign(rows, Seen());
    if (!attention.sinks) return;
    for (int64_t r = 0; r < rows; ++r)  // a sink's own weight is in the first lane
      seen[r] = {attention.sinks[task.head_of(r, group)], {1.0f}};
  }

  void write() const {
    const Heads& heads = attention_.heads;
    for (size_t r = 0; r < seen_.size(); ++r) {
      const F32 inverse = broadcast(1.0f / seen_[r].total());
      float* out = attention_.out + task_.offset_of(r, heads.group(), heads.queries * heads.dim,
                                                    heads.dim);
      for (int64_t d = 0; d < heads.dim; d += kLanes)
        store(out + d, mul(load(sums_ + r * heads.dim + d), inverse));
    }
  }

 private:
  const Attention& attention_;
  const Task& task_;
  float* sums_;
  Lines<Seen>& seen_;
};

// Memory that a thread uses for one task after another.
struct Scratch {
  Lines<float> floats;
  Lines<Seen> seen;
};

// All sequences of a step; a thread takes one task after another.
template <class Kernel>
void attend(const Attention& attention, const Sequences& sequences) {
  const Heads& heads = attention.heads;
  const int64_t tokens_per_task = std::max<int64_t>(1, Kernel::max_rows / heads.group());
  std::vector<int64_t> firsts(sequences.count + 1, 0);  // each sequence's first task
  for (int64_t s = 0; s < sequences.count; ++s) {
    const int64_t tokens = sequences.first_rows[s + 1] - sequences.first_rows[s];
    firsts[s + 1] = firsts[s] + (tokens + tokens_per_task - 1) / tokens_per_task * heads.kv;
  }
#pragma omp parallel
  {
    Scratch scratch;
#pragma omp for schedule(dynamic)
    for (int64_t index = 0; index < firsts.back(); ++index) {
      const int64_t s = std::upper_bound(firsts.begin(), firsts.end(), index) - firsts.begin() - 1;
      const int64_t offset = (index - firsts[s]) / heads.kv * tokens_per_task;
      const int64_t row = sequences.first_rows[s] + offset;
      const Task task = {sequences.blocks + s * sequences.max_blocks, row,
                         sequences.starts[s] + offset,
                         std::min(tokens_per_task, sequences.first_rows[s + 1] - row),
                         (index - firsts[s]) % heads.kv,
                         sequences.lengths ? sequences.lengths[s] : -1};
      Kernel(attention, task, scratch).run();
    }
    Kernel::leave();
  }
}

}  // namespace streamwell
