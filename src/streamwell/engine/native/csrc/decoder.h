// A whole forward pass of a pre-norm decoder: the blocks one after another, in place.
#pragma once

#include "linear.h"
#include "tile_attention.h"

namespace streamwell {

struct Layer {
  Linear qkv, out, gate_up, down;
  const float *norm_in, *norm_mid;
  const float *query_norm, *key_norm;  // [head_dim], or null
  Cache cache;
  int64_t window;  // 0 sees all
};

struct Decoder {
  const Layer* layers;
  int64_t num_layers, hidden_size;
  Heads heads;
  float eps, scale;
  const float* final_norm;
  Linear head;
  const float *cosines, *sines;  // [positions, head_dim / 2]
  int32_t has_pair_cache;        // `tile_attention.h`
};

// One step. Buffers hold as many rows as the step has.
struct Batch {
  int64_t rows;
  const int64_t* positions;  // [rows]
  const int64_t* slots;      // [rows]
  Sequences sequences;
  int64_t num_outputs;
  const int64_t* outputs;  // [num_outputs]: rows whose logits are wanted
  float* x;                // [rows, hidden_size]: embeddings, overwritten
  float* normed;           // [rows, hidden_size]
  float* qkv;              // [rows, (queries + 2 * kv) * head_dim]
  float* attended;         // [rows, queries * head_dim]
  float* gated;            // [rows, intermediate_size]
  float* logits;           // [num_outputs, vocab_size]
  uint8_t* workspace;
};

template <class Kernel>
void forward(const Decoder& decoder, const Layer& layer, const Batch& batch) {
  const int64_t rows = batch.rows, size = decoder.hidden_size;
  normalize_rows(batch.x, layer.norm_in, rows, size, decoder.eps, batch.normed);
  multiply(layer.qkv, batch.normed, rows, batch.qkv, kStore, batch.workspace);
  place_rows<typename Kernel::CacheKind>(
      batch.qkv, layer.query_norm, layer.key_norm, decoder.eps, decoder.cosines, decoder.sines,
      batch.positions, batch.slots, rows, decoder.heads, layer.cache);
  attend<Kernel>(
      {batch.qkv, batch.attended, decoder.heads, layer.cache, decoder.scale, layer.window},
      batch.sequences);
  multiply(layer.out, batch.attended, rows, batch.x, kAccumulate, batch.workspace);
  normalize_rows(batch.x, layer.norm_mid, rows, size, decoder.eps, batch.normed);
  multiply(layer.gate_up, batch.normed, rows, batch.gated, kGatedSilu, batch.workspace);
  multiply(layer.down, batch.gated, rows, batch.x, kAccumulate, batch.workspace);
}

inline void forward(const Decoder& decoder, const Batch& batch) {
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
#if defined(__AMX_TILE__)
    if (decoder.has_pair_cache) {
      forward<TileTask>(decoder, decoder.layers[i], batch);
      continue;
    }
#endif
    forward<FloatTask>(decoder, decoder.layers[i], batch);
  }
  const int64_t size = decoder.hidden_size;
  for (int64_t i = 0; i < batch.num_outputs; ++i)
    normalize(batch.x + batch.outputs[i] * size, decoder.final_norm, size, decoder.eps,
              batch.normed + i * size);
  if (batch.num_outputs)
    multiply(decoder.head, batch.normed, batch.num_outputs, batch.logits, kStore, batch.workspace);
}

}  // namespace streamwell
