// An AttentionBackend is a FastBackend, too.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

inline FastBackend& fast_of(AttentionBackend& backend) {
  return backend;
}

}  // namespace cp_pool
