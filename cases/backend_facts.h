// The facts of an attention backend that both the driver and the worker need. They stand apart from the kernels,
// because the driver does not link LibTorch: the cases that a backend
// refuses and its computation are in cp_core/attention/NAME/. backends.def lists the backends.
#pragma once

#include "cases/case.h"

namespace cp_pool {

struct BackendFacts {
  // Whether the backend's kernels round the result of each call to 16 bits. On CPU ranks the math backend computes in
  // place of this backend: it rounds in the same way, and returns the results of its calls (FastBackend), so that a
  // result which is the only contribution to a row is sent and merged in 16 bits (docs/numerics.md). On GPU ranks the
  // backend itself decides whether it returns them; flash adds them to fp32 sums instead.
  bool rounds_calls = false;
  // Whether repeating a backward on a GPU gives the same bits even if the case does not set `deterministic`. Repeating
  // a forward gives the same bits with every backend.
  bool repeats_backward = false;
  // Whether a rank on a GPU rehearses a small case with this backend while it starts, because the first use of the
  // backend in a process takes long.
  bool rehearsed = false;
};

const BackendFacts& facts_of(Backend backend);

// Whether running the case again must give the same bits. On CPU ranks the math backend computes for every backend.
bool promises_bits(const Case& c, bool on_gpu);

}  // namespace cp_pool
