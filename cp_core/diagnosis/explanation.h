// From observations to an answer: which mistakes explain all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/observation.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {

// What was seen of the failing case. Observations that could not be made are null.
struct Observed {
  Observation the_case;
  std::optional<Observation> sharp;       // in fp32
  std::optional<Observation> other_seed;  // of `sharp`, or of the case where there is none
  std::optional<Observation> probe;       // the mask probe of the case
};

// seen may be null.
Diagnosis explanation_of(const Observed& observed, const SeenKeys* seen, const Settings& settings);

}  // namespace cp_pool::diagnosis
