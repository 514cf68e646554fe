// From observations to an answer: which mistakes explain all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/observation.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {

// What was seen of the failing case. Steps that could not be taken are missing.
struct Observed {
  Observation the_case;
  std::vector<std::string> failed_checks;
  // The case again, in fp32 where what is under test takes it; then with another seed; then twice as the first time.
  std::optional<Observation> again = {};
  bool right_in_fp32 = false;  // in fp32 nothing was wrong: the others have the dtype of the case
  std::optional<Observation> other_seed = {};
  std::vector<ResultsByRank> repeated = {};
  std::optional<Observation> probe = {};  // the mask probe
  bool shrunk = false;                    // all of it is of a smaller case than the one that failed
};

// seen may be null.
Diagnosis explanation_of(const Observed& observed, const SeenKeys* seen, const Settings& settings);

}  // namespace cp_pool::diagnosis
