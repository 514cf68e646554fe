// Which keys each query really saw, and which queries reached the gradients of each key: read off the results of steps
// whose inputs make the answer readable (one-hot V in blocks, q = 0).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/diagnosis.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/judged_case.h"

namespace cp_pool::diagnosis {

struct SeenKeys {
  // Why nothing could be observed, as a sentence; empty if something could.
  std::string why_not;
  // fp64 [padded tokens of q, padded tokens of kv], sequence by sequence: how often the query saw the key. NaN in rows
  // that could not be observed. Not whole: a weight, which a fault of merging leaves.
  at::Tensor times;
  at::Tensor expected;        // the same of the definition: 0 and 1
  bool whole_numbers = true;  // every weight is one
  bool wrong = false;         // times differs from expected
  WrongPairs pairs;           // where it does
  std::optional<MaskPicture> picture;
  std::vector<std::string> notes;  // what could not be observed, what else was seen (heads that differ, dk, dv, dq)
};

// Collective over groups.cp; the same on every rank.
SeenKeys find_seen_keys(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                        const Settings& settings);

}  // namespace cp_pool::diagnosis
