// One run of the implementation under test whose results all ranks know: the failing case as it was judged, or a
// repetition of it with another seed or dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/wrong_pairs.h"
#include "cp_core/run_case/implementation.h"
#include "cp_core/run_case/judged_case.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/ownership.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::diagnosis {

// By rank; fp64 on the CPU, [rows, heads, dim], as the rank returned them. The rows of out, lse and dq are the rank's q
// rows in packed order, those of dk and dv its kv rows, padding included (verify::RankRows). dbias is as
// verify::bias_by_row arranges the rank's. A result that some rank did not return, or returned in a wrong shape, is
// undefined for all ranks.
using ResultsByRank = std::vector<verify::Results>;

// Returns the rows of all ranks; undefined if a rank did not return this result.
at::Tensor joined_rows(const ResultsByRank& results, at::Tensor verify::Results::* member);

// Whether two results are equal element by element, or both undefined. NaN equals NaN.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

// Whether the rows of this result are queries, or keys; whether the forward returns it.
inline bool is_of_queries(at::Tensor verify::Results::* member) {
  return member == &verify::Results::out || member == &verify::Results::lse || member == &verify::Results::dq;
}
inline bool is_of_forward(at::Tensor verify::Results::* member) {
  return member == &verify::Results::out || member == &verify::Results::lse || member == &verify::Results::max_logit;
}
inline bool is_of_keys(at::Tensor verify::Results::* member) {
  return member == &verify::Results::dk || member == &verify::Results::dv;
}

struct SizedCase {
  Case c;
  SequenceLengths lengths;
};

struct Observation {
  Case c;
  SequenceLengths lengths;
  verify::Sharding sharding;
  verify::CanonicalInputs inputs = {};  // on the CPU
  std::shared_ptr<const verify::Expected> expected = {};
  ResultsByRank results = {};
};

// The observations of the failing case. Steps that could not be run are missing.
struct Observed {
  SizedCase of;  // with fixed lengths
  Observation the_case;
  std::vector<std::string> failed_checks;
  RepeatFault repeat_fault = RepeatFault::none;
  // The case run again, in fp32 if the implementation supports it and fails in it.
  std::optional<Observation> again = {};
  // That another dtype gave correct results, so that `again` and all that follows have that of the case. Else empty.
  std::string right_otherwise = {};
  std::optional<Observation> other_seed = {};  // `again` with another seed
  std::vector<ResultsByRank> repeated = {};    // results of further runs of the case of `again`
  std::optional<Observation> probe = {};       // the mask probe
  std::string smaller = {};   // the observations are of this case, which is smaller than the one that failed
  bool takes_windows = true;  // Symptoms::takes_windows
};

struct Repetition {
  bool same_bits = true;
  std::string says;  // "the same step gave different results in 1 of 3 runs"
};

// Compares all observed runs that have the same case and seed.
Repetition repetition_of(const Observed& observed);

// Runs the implementation under test again. All methods are collective over groups.cp and return the same on every
// rank.
class Questions {
 public:
  Questions(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups, const Settings& settings)
      : implementation_(implementation), judged_(judged), groups_(groups), settings_(settings) {}

  // Returns the results that were judged. Runs nothing.
  Observation the_case();
  // Runs a step of the changed case, or of its mask probe, with these lengths, whatever its seed. nullopt: the
  // implementation skips that case.
  std::optional<Observation> variant(const Case& changed, const SequenceLengths& lengths, bool is_probe = false);
  // Runs a forward of the changed case with these inputs, whose rows are those of the grid.
  ResultsByRank forward(const SizedCase& changed, const ProbeGrid& grid, const verify::CanonicalInputs& inputs);
  // Whether the implementation takes the changed case.
  [[nodiscard]] bool takes(const Case& changed) { return implementation_.skip_reason(changed, judged_.device).empty(); }
  // Returns the names of the checks that failed on any rank, including those of the mask probe and of the repetition.
  std::vector<std::string> failed_checks();

  // Whether a step of the changed case would end before the deadline, by rank 0's clock and judging by how long the
  // steps of the judged case took: a step whose shapes are new may take as long as the first of these.
  bool has_time_for(const Case& changed);
  // Returns rank 0's argument on every rank.
  bool agreed(bool of_rank_0);

  // Says what is asked next. Not collective, like all below.
  void begin(std::string_view phase) const {
    if (settings_.on_phase) settings_.on_phase(phase);
  }
  [[nodiscard]] const JudgedCase& judged() const { return judged_; }
  [[nodiscard]] bool only_own_dtype() const { return settings_.own_dtype; }
  [[nodiscard]] int ranks() const { return groups_.cp->size(); }
  [[nodiscard]] bool is_rank_0() const { return groups_.cp->rank() == 0; }
  [[nodiscard]] std::int64_t probe_heads(const Case& c) { return implementation_.probe_heads(c); }
  // The sharding of the changed case.
  [[nodiscard]] verify::Sharding sharding_of(const Case& changed, const SequenceLengths& lengths);

 private:
  // Collective; the same on every rank.
  ResultsByRank gather(const Case& c, const verify::Ownership& owners, const verify::Results& own);

  Implementation& implementation_;
  const JudgedCase& judged_;
  const CpGroups& groups_;
  const Settings& settings_;
  std::vector<Case> run_before_;  // whose shapes are not new, apart from the judged case; without seeds
};

// --- Smaller cases with the same features, which can be simulated many times ---

// Whether the case is small enough as it is.
bool is_small(const Case& c, const SequenceLengths& lengths);

// Returns the case with shorter sequences, windows and chunks shortened by the same factor, and fewer heads in as many
// blocks. nullopt: no such case is valid.
std::optional<SizedCase> smaller_case(const Case& c, const SequenceLengths& lengths);

}  // namespace cp_pool::diagnosis
