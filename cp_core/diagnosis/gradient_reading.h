// Interprets the answers to gradient_probe.h: which pairs each gradient lacks, counts too often or gets wrong.
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

// The pairs that a gradient is compared with.
struct GradientMeasure {
  const at::Tensor& seen;   // fp64 [q, kv]: how often each query saw each key; rows with NaN are not judged
  bool is_observed = true;  // `seen` was observed of the forward; else it is what the definition says
};

// second: the same gradient with the second choice of g; null if it was not asked for. Without it, no pair is reported
// as missing from dq or dk, since its ds may be 0 for another reason.
GradientReading read_gradient(const Prober& prober, const GradientValues& gradient, const GradientValues* second,
                              const GradientMeasure& measure);

}  // namespace cp_pool::diagnosis
