// A whole forward pass of a decoder: the blocks one after another, in place.
#pragma once

#include "linear.h"
#include "tile_attention.h"

namespace streamwell {

struct Layer {
  Linear qkv, out, gate_up, down;
  const float *norm_in, *norm_mid;        // of what attention and the feed-forward layer read, or null
  const float *norm_attended, *norm_out;  // of what they give, or null
  const float *query_norm, *key_norm;     // or null
  const float *cosines, *sines;           // [positions, head_dim / 2]
  Cache cache;
  int64_t window;  // 0 sees all
};

struct Decoder {
  const Layer* layers;
  int64_t num_layers, hidden_size;
  Heads heads;
  int64_t norm_width;  // of norms of queries: that of a head, or of all
  float eps, scale, softcap;
  const float* final_norm;
  Linear head;
  int32_t gate;            // an epilogue
  int32_t has_pair_cache;  // `tile_attention.h`
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

// What a layer reads of the residual stream.
inline const float* read_rows(const Decoder& decoder, const float* norm, const Batch& batch) {
  if (!norm) return batch.x;
  normalize_rows(batch.x, norm, batch.rows, decoder.hidden_size, decoder.eps, batch.normed);
  return batch.normed;
}

// Adds what a layer gives to the residual stream.
inline void add_output(const Decoder& decoder, const Linear& linear, const float* rows,
                       const float* norm, const Batch& batch) {
  if (!norm) return multiply(linear, rows, batch.rows, batch.x, kAccumulate, batch.workspace);
  const int64_t size = decoder.hidden_size;
  multiply(linear, rows, batch.rows, batch.normed, kStore, batch.workspace);
  normalize_rows(batch.normed, norm, batch.rows, size, decoder.eps, batch.normed);
  add_rows(batch.normed, batch.rows * size, batch.x);
}

template <class Kernel>
void forward(const Decoder& decoder, const Layer& layer, const Batch& batch) {
  const int64_t rows = batch.rows;
  const float* input = read_rows(decoder, layer.norm_in, batch);
  multiply(layer.qkv, input, rows, batch.qkv, kStore, batch.workspace);
  place_rows<typename Kernel::CacheKind>(
      batch.qkv,
      {layer.query_norm, layer.key_norm, decoder.norm_width, decoder.eps, layer.cosines,
       layer.sines},
      batch.positions, batch.slots, rows, decoder.heads, layer.cache);
  attend<Kernel>({batch.qkv, batch.attended, decoder.heads, layer.cache, decoder.scale,
                  decoder.softcap, layer.window},
                 batch.sequences);
  add_output(decoder, layer.out, batch.attended, layer.norm_attended, batch);
  input = read_rows(decoder, layer.norm_mid, batch);
  multiply(layer.gate_up, input, rows, batch.gated, static_cast<Epilogue>(decoder.gate),
           batch.workspace);
  add_output(decoder, layer.down, batch.gated, layer.norm_out, batch);
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
