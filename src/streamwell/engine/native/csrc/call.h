// What a call of a linear layer is asked for.
#pragma once

#include "activation.h"
#include "low_rank.h"
#include "schemes.h"

namespace streamwell {

// What becomes of a result: it is stored, added to what is there, or gates the one beside it. As pairs
// it is stored, or gates, where the next layer, which multiplies pairs, has its packed rows.
enum Form : int32_t { kStore = 0, kAccumulate = 1, kGate = 2, kStorePairs = 3, kGatePairs = 4 };

struct Epilogue {
  Form form;
  Activation activation;  // of what is stored, or of the gate
};

constexpr Epilogue kPlain = {kStore, kNone}, kAdd = {kAccumulate, kNone};

// How rows are cut into tiles, as few as possible: of nearly equal height, as vectors want them, or full
// ones and the rest, because a processor's tiles must be told of each change.
struct Tiles {
  int64_t rows, max_rows, count;
  bool are_full;

  Tiles(int64_t rows, int64_t max_rows, bool are_full)
      : rows(rows), max_rows(max_rows), count((rows + max_rows - 1) / max_rows), are_full(are_full) {}

  int64_t first(int64_t tile) const {
    return are_full ? std::min(rows, tile * max_rows) : rows * tile / count;
  }

  int height(int64_t tile) const { return static_cast<int>(first(tile + 1) - first(tile)); }

  // Rows that a tile has room for in memory. A rest beside full tiles has half of theirs or as much: a
  // processor's tiles, which change by turns then, need not be told.
  int room(int64_t tile) const {
    if (!are_full || count == 1) return height(tile);
    const int64_t half = max_rows / 2;
    return static_cast<int>((height(tile) + half - 1) / half * half);
  }

  int64_t of(int64_t row) const {
    return are_full ? row / max_rows : ((row + 1) * count - 1) / rows;
  }
};

struct Call {
  const Linear& linear;
  const float* x;  // [rows, k], or null: the workspace has them packed
  int64_t rows;
  float* y;  // [rows, n], or half of that if one half gates the other; or a workspace of the next layer
  Epilogue epilogue;
  uint8_t* workspace;
  const Additions& additions;
};

// In a workspace, scales of the rows come first.
inline uint8_t* packed_rows(uint8_t* workspace, int64_t rows) {
  return workspace + (rows * 4 + 63) / 64 * 64;
}

// Bytes of workspace that a call over so many rows needs: of floats, where tiles put pairs or bytes. So a rest
// has its room: with 33 rows or more, 15 rows of pairs are less than half.
inline int64_t workspace_bytes(int64_t rows, int64_t k) { return rows * (k + 64) * 4 + 128; }

}  // namespace streamwell
