// Derives the diagnosis from the observations: which mistakes explain all of them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/observation.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {

// The observations of the failing case. Steps that could not be run are missing.
struct Observed {
  Observation the_case;
  std::vector<std::string> failed_checks;
  RepeatFault repeat_fault = RepeatFault::none;
  // The case run again, in fp32 if the implementation supports it and fails in it.
  std::optional<Observation> again = {};
  bool right_in_fp32 = false;  // fp32 gave correct results, so `again` and all that follows have the dtype of the case
  std::optional<Observation> other_seed = {};  // `again` with another seed
  std::vector<ResultsByRank> repeated = {};    // results of further runs of the case of `again`
  std::optional<Observation> probe = {};       // the mask probe
  bool shrunk = false;                         // the observations are of a smaller case than the one that failed
  bool takes_windows = true;                   // Symptoms::takes_windows
};

// seen may be null.
Diagnosis explanation_of(const Observed& observed, const SeenKeys* seen, const Settings& settings);

// Returns a duration for --diagnosis-time that is at least this long: "30s".
std::string rounded_up(std::chrono::duration<double> time);

// Returns the diagnosis that the case fails for the one mistake of settings.known that explains the case and another
// seed; nullopt if none or several do.
std::optional<Diagnosis> confirmation_of(const Observed& observed, const Settings& settings);

}  // namespace cp_pool::diagnosis
