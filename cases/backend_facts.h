// The facts of an attention backend that the driver needs, too, which does not link LibTorch. Each backend has them in
// cases/backends/NAME.cpp; what it refuses and computes is in cp_core/attention/NAME/. backends.def lists the
// backends.
#pragma once

#include "cases/case.h"

namespace cp_pool {

struct BackendFacts {
  // Whether its kernels round the result of a call to 16 bits. Such a contribution is sent and merged as it is while it
  // is the only one (docs/numerics.md). On CPU ranks math stands for the backend and rounds likewise.
  bool rounds_calls = false;
  // Whether the same backward on a GPU gives the same bits again even if the case does not ask for that
  // (`deterministic`). The forward of every backend does.
  bool repeats_backward = false;
  // Whether a rank on a GPU rehearses a case with it while it starts, because its first use in a process takes long.
  bool rehearsed = false;
};

const BackendFacts& facts_of(Backend backend);

// math_facts() and so on: each in the backend's own file.
#define CP_POOL_BACKEND(identifier, name) BackendFacts identifier##_facts();
#include "cases/backends.def"
#undef CP_POOL_BACKEND

// Whether running the case again must give the same bits. On CPU ranks math stands for every backend.
bool promises_bits(const Case& c, bool on_gpu);

}  // namespace cp_pool
