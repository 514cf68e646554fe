// One run of what is under test whose results all ranks know: the failing case as it was judged, or the same again with
// another seed or dtype.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/whole_results.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/judged_case.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::diagnosis {

struct Observation {
  Case c;
  SequenceLengths lengths;
  verify::Sharding sharding;
  verify::CanonicalInputs inputs = {};  // on the CPU
  std::shared_ptr<const verify::Expected> expected = {};
  ResultsByRank results = {};
  bool is_probe = false;  // the mask probe of a case: its inputs make the mask readable (verify/mask_probe.h)
};

// Asks what is under test again. All methods are collective over groups.cp and give the same on every rank.
class Questions {
 public:
  Questions(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups, const Settings& settings)
      : implementation_(implementation), judged_(judged), groups_(groups), settings_(settings) {}

  // The judged results.
  Observation the_case();
  // Takes a step of the case as `change` makes it. Its lengths stay, whatever its seed. nullopt: it would be skipped.
  std::optional<Observation> variant(const Case& changed, const SequenceLengths& lengths);
  // Takes a step of the mask probe of such a case.
  std::optional<Observation> probe(const Case& changed, const SequenceLengths& lengths);
  // Names of the checks that failed on any rank, those of the mask probe and of the repetition included.
  std::vector<std::string> failed_checks();

  // Whether rank 0's clock leaves so much time before the deadline.
  bool has_time(std::chrono::milliseconds needed);
  // Rank 0's answer, on every rank.
  bool agreed(bool of_rank_0);

 private:
  std::optional<Observation> take(const Case& c, const SequenceLengths& lengths, bool is_probe);

  Implementation& implementation_;
  const JudgedCase& judged_;
  const CpGroups& groups_;
  const Settings& settings_;
};

}  // namespace cp_pool::diagnosis
