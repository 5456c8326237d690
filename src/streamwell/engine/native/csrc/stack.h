// A whole forward pass of a decoder or an encoder: the blocks one after another, in place.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "experts.h"
#include "float_attention.h"
#include "tile_attention.h"

namespace streamwell {

// The norms of a part of a block: of what it reads, of what it gives, and of what that is added to.
struct Norms {
  Norm input, output, sum;
};

struct Layer {
  Linear qkv, out, up, down;  // `up` has the gate beside it, if there is one
  Norms attention, feed_forward;
  Norm query_norm, key_norm;
  const float *cosines, *sines;  // [positions, head_dim / 2], or null
  DistanceBias bias;
  const float* sinks;  // [queries], or null
  Cache cache;
  int64_t window;  // 0 sees all
  // Attention to an encoder's output; without weights there is none.
  Linear cross_query, cross_key_value, cross_out;
  Norms cross;
  Mixture mixture;  // in place of `up` and `down`
};

struct Stack {
  const Layer* layers;
  int64_t num_layers, hidden_size;
  Heads heads;
  int64_t norm_width;  // of norms of queries: that of a head, or of all
  float eps, scale, softcap;
  Norm embedding_norm, final_norm;
  Linear head;  // an encoder has none
  Epilogue activation;
  int32_t is_parallel;     // the feed-forward layer reads what attention reads
  int32_t has_pair_cache;  // `pair_cache.h`
  int32_t has_fast_pairs;  // that are multiplied as they are, not widened
};

// One step. Buffers hold as many rows as the step has.
struct Batch {
  int64_t rows;
  const int64_t* positions;    // [rows]
  const int64_t* slots;        // [rows]: where keys and values go
  const int64_t* cross_slots;  // [rows] of an encoder: where a decoder's go
  Sequences sequences;         // of an encoder with lengths: all rows of an input see it all
  Sequences cross;             // the inputs that a decoder's rows see
  int64_t num_outputs;
  const int64_t* outputs;  // [num_outputs]: rows whose logits are wanted; those of a sequence are
                           // neighbours
  const LayerAdapter* const* adapters;  // [sequences]: by layer, null for those without; or null
  int64_t max_between;                  // of any adapter
  float* x;                // [rows, hidden_size]: embeddings, overwritten
  float* normed;           // [rows, hidden_size]
  float* qkv;              // [rows, (queries + 2 * kv) * head_dim], and a decoder's keys and values
  float* attended;         // [rows, queries * head_dim]
  float* inner;            // [rows, intermediate_size], or a workspace of the layer that narrows those
  float* between;          // [rows, max_between], or null if there are no adapters
  float* logits;           // [num_outputs, vocab_size]
  uint8_t* workspace;
};

// What the adapters of a step add to one of a layer's linear layers.
class Adapted {
 public:
  Adapted(const Stack& stack, const Layer& layer, LowRank LayerAdapter::*part, const float* x,
          int64_t k, const Batch& batch) {
    if (!batch.adapters || !part) return;
    matrices_.assign(batch.rows, nullptr);
    bool any = false;
    for (int64_t s = 0; s < batch.sequences.count; ++s) {
      if (!batch.adapters[s]) continue;
      const LowRank& low_rank = batch.adapters[s][&layer - stack.layers].*part;
      if (!low_rank.between) continue;
      any = true;
      std::fill(matrices_.begin() + batch.sequences.first_rows[s],
                matrices_.begin() + batch.sequences.first_rows[s + 1], &low_rank);
    }
    if (!any) return;
    Shrinking(matrices_, x, k, batch.max_between, batch.between).run();
    additions = {matrices_.data(), batch.between, batch.max_between};
  }

  Additions additions;

 private:
  std::vector<const LowRank*> matrices_;
};

// A linear layer of a block, and what adapters add to it.
inline void project(const Stack& stack, const Layer& layer, Linear Layer::*linear,
                    LowRank LayerAdapter::*part, const float* x, float* y, Epilogue epilogue,
                    const Batch& batch) {
  const Adapted adapted(stack, layer, part, x, (layer.*linear).k, batch);
  multiply(layer.*linear, x, batch.rows, y, epilogue, batch.workspace, adapted.additions);
}

// What a part of a block reads of the residual stream.
inline const float* read_rows(const Stack& stack, Norm norm, const Batch& batch) {
  if (!norm) return batch.x;
  normalize_rows(batch.x, norm, batch.rows, stack.hidden_size, stack.eps, batch.normed);
  return batch.normed;
}

// Adds what a part of a block gives to the residual stream.
inline void add_output(const Stack& stack, const Layer& layer, Linear Layer::*linear,
                       LowRank LayerAdapter::*part, const float* rows, const Norms& norms,
                       const Batch& batch) {
  const int64_t size = stack.hidden_size;
  if (norms.output) {
    project(stack, layer, linear, part, rows, batch.normed, kPlain, batch);
    normalize_rows(batch.normed, norms.output, batch.rows, size, stack.eps, batch.normed);
    add_rows(batch.normed, batch.rows * size, batch.x);
  } else {
    project(stack, layer, linear, part, rows, batch.x, kAdd, batch);
  }
  if (norms.sum) normalize_rows(batch.x, norms.sum, batch.rows, size, stack.eps, batch.x);
}

// Queries go into `qkv`, keys and values into the cache.
template <class Kernel>
void project_rows(const Stack& stack, const Layer& layer, const Batch& batch) {
  const float* input = read_rows(stack, layer.attention.input, batch);
  project(stack, layer, &Layer::qkv, &LayerAdapter::qkv, input, batch.qkv, kPlain, batch);
  place_rows<typename Kernel::CacheKind>(
      batch.qkv,
      {layer.query_norm, layer.key_norm, stack.norm_width, stack.eps, layer.cosines, layer.sines},
      batch.positions, batch.slots, batch.rows, stack.heads, layer.cache);
}

// Into `attended`.
template <class Kernel>
void attend_to_itself(const Stack& stack, const Layer& layer, const Batch& batch) {
  attend<Kernel>({batch.qkv, stack.heads.row_floats(), batch.attended, stack.heads, layer.cache,
                  stack.scale, stack.softcap, layer.bias, layer.window, layer.sinks},
                 batch.sequences);
}

template <class Kernel>
void attend_to_input(const Stack& stack, const Layer& layer, const Batch& batch) {
  const float* input = read_rows(stack, layer.cross.input, batch);
  multiply(layer.cross_query, input, batch.rows, batch.qkv, kPlain, batch.workspace);
  const int64_t query_floats = stack.heads.queries * stack.heads.dim;
  attend<Kernel>({batch.qkv, query_floats, batch.attended, stack.heads, layer.cache, stack.scale,
                  stack.softcap, {}, 0, nullptr},
                 batch.cross);
}

// Whether the first half of the feed-forward layer gives what the second has for packed rows. It then is
// neither written nor read as floats, which is a twentieth of a prompt with tiles.
inline bool passes_pairs(const Layer& layer, const Batch& batch) {
  return multiplies_pairs(layer.up) && multiplies_pairs(layer.down) && !layer.up.rest &&
         layer.down.k % kPanel == 0 && !batch.adapters;
}

// The first half of the feed-forward layer.
inline void widen_rows(const Stack& stack, const Layer& layer, const Batch& batch) {
  const float* input = read_rows(stack, layer.feed_forward.input, batch);
  Epilogue epilogue = stack.activation;
  if (passes_pairs(layer, batch)) epilogue.form = epilogue.form == kGate ? kGatePairs : kStorePairs;
  project(stack, layer, &Layer::up, &LayerAdapter::up, input, batch.inner, epilogue, batch);
}

// The second half. Where there are pairs, the first left them in `inner` as in a workspace.
inline void narrow_rows(const Stack& stack, const Layer& layer, const Batch& batch) {
  const bool has_pairs = passes_pairs(layer, batch);
  Batch with_pairs = batch;
  if (has_pairs) with_pairs.workspace = reinterpret_cast<uint8_t*>(batch.inner);
  add_output(stack, layer, &Layer::down, &LayerAdapter::down, has_pairs ? nullptr : batch.inner,
             layer.feed_forward, with_pairs);
}

inline void mix_rows(const Stack& stack, const Layer& layer, const Batch& batch) {
  const float* input = read_rows(stack, layer.feed_forward.input, batch);
  Mixing(layer.mixture, stack.activation, input, batch.rows, batch.x).run();
}

// What follows when all keys and values are in the cache.
template <class Kernel>
void finish_layer(const Stack& stack, const Layer& layer, const Batch& batch) {
  attend_to_itself<Kernel>(stack, layer, batch);
  if (stack.is_parallel) widen_rows(stack, layer, batch);
  add_output(stack, layer, &Layer::out, &LayerAdapter::out, batch.attended, layer.attention, batch);
  if (layer.cross_query.weights) {
    attend_to_input<Kernel>(stack, layer, batch);
    add_output(stack, layer, &Layer::cross_out, nullptr, batch.attended, layer.cross, batch);
  }
  if (layer.mixture) return mix_rows(stack, layer, batch);
  if (!stack.is_parallel) widen_rows(stack, layer, batch);
  narrow_rows(stack, layer, batch);
}

inline void norm_embeddings(const Stack& stack, const Batch& batch) {
  if (stack.embedding_norm)
    normalize_rows(batch.x, stack.embedding_norm, batch.rows, stack.hidden_size, stack.eps, batch.x);
}

// What is left of a step when the last layer has its keys and values: the rows with outputs.
class Outputs {
 public:
  // Moves those rows to the front of `x` and `qkv`.
  Outputs(const Stack& stack, const Batch& whole) : batch(whole) {
    const Sequences& sequences = whole.sequences;
    int64_t count = 0;
    first_rows_.push_back(0);
    for (int64_t s = 0; s < sequences.count; ++s) {
      const int64_t begin = sequences.first_rows[s], end = sequences.first_rows[s + 1];
      const int64_t first = count < whole.num_outputs ? whole.outputs[count] : end;
      while (count < whole.num_outputs && whole.outputs[count] < end) ++count;
      starts_.push_back(sequences.starts[s] + std::min(first, end) - begin);
      first_rows_.push_back(count);
    }
    for (Sequences* kept : {&batch.sequences, &batch.cross}) {
      kept->first_rows = first_rows_.data();
      kept->starts = starts_.data();
    }
    batch.rows = whole.num_outputs;
    move_rows(batch.x, stack.hidden_size);
    move_rows(batch.qkv, stack.heads.row_floats());
  }

  Batch batch;

 private:
  void move_rows(float* rows, int64_t size) const {
    for (int64_t i = 0; i < batch.num_outputs; ++i)
      if (batch.outputs[i] != i) std::memmove(rows + i * size, rows + batch.outputs[i] * size, size * 4);
  }

  std::vector<int64_t> first_rows_, starts_;
};

// What a decoder's blocks see of an encoder's output, which is in `x`.
template <class Kernel>
void remember(const Stack& decoder, const float* encoded, const Batch& batch) {
  const Heads heads = {0, decoder.heads.kv, decoder.heads.dim};
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    const Layer& layer = decoder.layers[i];
    multiply(layer.cross_key_value, encoded, batch.rows, batch.qkv, kPlain, batch.workspace);
    place_rows<typename Kernel::CacheKind>(batch.qkv, {}, batch.positions, batch.cross_slots,
                                           batch.rows, heads, layer.cache);
  }
}

template <class Kernel>
void encode(const Stack& encoder, const Stack& decoder, const Batch& batch) {
  norm_embeddings(encoder, batch);
  for (int64_t i = 0; i < encoder.num_layers; ++i) {
    project_rows<Kernel>(encoder, encoder.layers[i], batch);
    finish_layer<Kernel>(encoder, encoder.layers[i], batch);
  }
  remember<Kernel>(decoder, read_rows(encoder, encoder.final_norm, batch), batch);
}

inline void encode(const Stack& encoder, const Stack& decoder, const Batch& batch) {
#if defined(__AVX512BF16__)
  if (encoder.has_pair_cache && encoder.has_fast_pairs)
    return encode<PairAttention>(encoder, decoder, batch);
  if (encoder.has_pair_cache) return encode<WidenedAttention>(encoder, decoder, batch);
#endif
  encode<FloatTask>(encoder, decoder, batch);
}

// Of the last layer, rows without outputs need only their keys and values.
template <class Kernel>
void decode(const Stack& stack, const Batch& batch) {
  norm_embeddings(stack, batch);
  const int64_t last = stack.num_layers - 1;
  for (int64_t i = 0; i < last; ++i) {
    project_rows<Kernel>(stack, stack.layers[i], batch);
    finish_layer<Kernel>(stack, stack.layers[i], batch);
  }
  project_rows<Kernel>(stack, stack.layers[last], batch);
  if (!batch.num_outputs) return;
  const Outputs outputs(stack, batch);
  finish_layer<Kernel>(stack, stack.layers[last], outputs.batch);
  multiply(stack.head, read_rows(stack, stack.final_norm, outputs.batch), batch.num_outputs,
           batch.logits, kPlain, batch.workspace);
}

inline void decode(const Stack& stack, const Batch& batch) {
#if defined(__AVX512BF16__)
  if (stack.has_pair_cache && stack.has_fast_pairs) return decode<PairAttention>(stack, batch);
  if (stack.has_pair_cache) return decode<WidenedAttention>(stack, batch);
#endif
  decode<FloatTask>(stack, batch);
}

}  // namespace streamwell
