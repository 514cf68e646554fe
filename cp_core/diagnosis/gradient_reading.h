// Which queries reached the gradients of each key, and which keys those of each query: the answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/gradient_probe.h"

namespace cp_pool::diagnosis {

struct GradientReading {
  bool wrong = false;
  std::vector<std::string> notes;  // sentences
};

// What a gradient is held against.
struct GradientMeasure {
  const at::Tensor& seen;   // fp64 [q, kv]: how often each query saw each key. Rows with NaN are not judged
  bool is_observed = true;  // that is what the forward saw; else what it should have seen
};

// second: the same gradient with the second choice of g; null if it was not asked. Without it nothing is said of pairs
// that dq or dk lack, since their ds may be 0 for another reason.
GradientReading read_gradient(const Prober& prober, const GradientValues& gradient, const GradientValues* second,
                              const GradientMeasure& measure);

}  // namespace cp_pool::diagnosis
