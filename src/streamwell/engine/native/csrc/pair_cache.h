// A cache of pairs of bfloat16, and how rows are written into it.
//
// A block holds 16 positions: the keys of a head as `[key_dim / 2, 16, 2]`, neighbouring dimensions side
// by side and zeros up to a multiple of 32 dimensions; its values as `[8, head_dim, 2]`,
// neighbouring positions side by side. So both are what the processor multiplies, where they lie, if
// it does that fast.
#pragma once

#include <cstring>

#include "rows.h"

namespace streamwell {

// Dimensions of a key in a cache of pairs.
inline int64_t key_dim_of(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }

#if defined(__AVX512BF16__)

// How rows are written into a cache of pairs.
struct PairCache {
  // Blocks are read up to their ends, times zero where nothing was written: what another sequence left
  // there may not be finite.
  static void open_block(int64_t block, Heads heads, const Cache& cache) {
    uint16_t* first = keys_of(cache, block * heads.kv, heads.dim);
    std::memset(first, 0, heads.kv * head_numbers(heads.dim) * 2);
  }

  // Into a block that was opened: what keys are padded with stays as it is.
  static void write(const float* key, const float* value, int64_t slot, Heads heads,
                    const Cache& cache) {
    const int64_t block = slot / kLanes, place = slot % kLanes;
    for (int64_t h = 0; h < heads.kv; ++h, key += heads.dim, value += heads.dim) {
      uint16_t* keys = keys_of(cache, block * heads.kv + h, heads.dim) + place * 2;
      uint16_t* values = values_of(cache, block * heads.kv + h, heads.dim) + place / 2 * heads.dim * 2;
      for (int64_t d = 0; d < heads.dim; d += kLanes) {
        uint16_t narrow[kLanes];
        store_pairs(narrow, load(key + d));
        for (int i = 0; i < kLanes; i += 2) std::memcpy(keys + (d + i) * kLanes, narrow + i, 4);
        store_every_other(values + d * 2, place % 2, load(value + d));
      }
    }
  }

  // Of a head of a block, by its place among all.
  static uint16_t* keys_of(const Cache& cache, int64_t head, int64_t dim) {
    return reinterpret_cast<uint16_t*>(cache.blocks) + head * head_numbers(dim);
  }
  static uint16_t* values_of(const Cache& cache, int64_t head, int64_t dim) {
    return keys_of(cache, head, dim) + key_dim_of(dim) * kLanes;
  }

  static void store_pairs(uint16_t* out, F32 values) {
    const __m256bh narrow = _mm512_cvtneps_pbh(values);
    std::memcpy(out, &narrow, sizeof(narrow));
  }

 private:
  // Sixteen numbers to the words at even, or at odd, places.
  static void store_every_other(uint16_t* out, bool is_odd, F32 values) {
    const __m512i words = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(values));
    if (is_odd)
      _mm512_mask_storeu_epi16(out, 0xaaaaaaaa, _mm512_slli_epi32(words, 16));
    else
      _mm512_mask_storeu_epi16(out, 0x55555555, words);
  }

  // Those of a head in a block.
  static int64_t head_numbers(int64_t dim) { return (key_dim_of(dim) + dim) * kLanes; }
};

#endif

}  // namespace streamwell
