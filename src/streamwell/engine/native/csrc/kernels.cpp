// The C interface of the native helper: plain pointers and integers, nothing of PyTorch or Python.
//
// OpenMP is left undefined when this is linked: PyTorch's own, loaded already, serves both, so that
// there is one pool of threads.
#include <sched.h>

#include "delta_rule.h"
#include "saved_blocks.h"
#include "short_conv.h"
#include "stack.h"
#include "state_scan.h"

using namespace streamwell;

extern "C" {

// Whether this variant multiplies pairs of bfloat16; with tiles, asks the system for them.
int32_t sw_has_bfloat16() {
#if defined(__AMX_TILE__)
  return request_tiles();
#elif defined(__AVX512BF16__)
  return 1;
#else
  return 0;
#endif
}

// Whether layers are multiplied faster as pairs of bfloat16 than widened to floats. Without tiles,
// Intel's cores start a product of pairs in every other cycle, and two of floats in each (measured on
// Emerald Rapids).
int32_t sw_has_fast_pairs() {
#if defined(__AMX_TILE__)
  return 1;
#elif defined(__AVX512BF16__)
  return !is_intel();
#else
  return 0;
#endif
}

// Numbers per head and position of keys in a cache of pairs; 0 where this variant has none.
int64_t sw_pair_key_dim(int64_t head_dim) {
#if defined(__AVX512BF16__)
  return key_dim_of(head_dim);
#else
  return head_dim * 0;
#endif
}

// Bytes of a panel, of 32 outputs; of a coded kind, as many as these weights ask for.
int64_t sw_panel_bytes(int32_t kind, int64_t k) { return panel_bytes(kind, k); }
int64_t sw_coded_panel_bytes(int32_t kind, const void* source, int32_t source_kind, int64_t n, int64_t k) {
  return coded_bytes({source, source_kind, n, k}, kind);
}

void sw_pack(int32_t kind, const void* source, int32_t source_kind, int64_t n, int64_t k,
             int64_t panel_bytes, void* out, float* scales, float* offsets) {
  pack({source, source_kind, n, k}, kind, panel_bytes, static_cast<uint8_t*>(out), scales, offsets);
}

// The same of rounded weights in the blocks of a GGUF file.
void sw_pack_saved(int32_t type, const void* blocks, int64_t n, int64_t k, void* out) {
  pack_saved(type, static_cast<const uint8_t*>(blocks), n, k, static_cast<uint8_t*>(out));
}

int64_t sw_workspace_bytes(int64_t rows, int64_t k) { return workspace_bytes(rows, k); }

void sw_linear(const Linear* linear, const float* x, int64_t rows, float* y, int32_t form,
               int32_t activation, void* workspace) {
  const Epilogue epilogue = {static_cast<Form>(form), static_cast<Activation>(activation)};
  multiply(*linear, x, rows, y, epilogue, static_cast<uint8_t*>(workspace));
}

void sw_unpack_rows(const Linear* linear, const int64_t* rows, int64_t count, float* out) {
  unpack_rows(*linear, rows, count, out);
}

void sw_short_conv(const ShortConv* conv) { conv->run(); }

void sw_state_scan(const StateScan* scan) { scan->run(); }

void sw_delta_rule(const DeltaRule* rule) { rule->run(); }

// Each compute thread stays on a processor of its own.
void sw_pin_threads(const int32_t* processors, int32_t count) {
#pragma omp parallel num_threads(count)
  {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processors[omp_get_thread_num()], &set);
    sched_setaffinity(0, sizeof(set), &set);
  }
}

// The logits of a step.
void sw_decode(const Stack* decoder, const Batch* batch) { decode(*decoder, *batch); }

// Inputs through an encoder: what a decoder's blocks see of them goes into their caches.
void sw_encode(const Stack* encoder, const Stack* decoder, const Batch* batch) {
  encode(*encoder, *decoder, *batch);
}

}
