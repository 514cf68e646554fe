// Finds out which keys each query really saw. It runs forwards whose inputs make this readable from the results
// (one-hot V in blocks, q = 0).
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
  // fp64 [rows of q, rows of kv], sequence by sequence, in each the valid rows and then padding: how often the query
  // saw the key. NaN where that could not be observed, and in padding queries if the implementation promises nothing
  // about them. A number that is not whole is a weight, relative to that of a key seen once.
  at::Tensor times;
  at::Tensor expected;        // what `times` should be by the definition: 0 and 1
  bool whole_numbers = true;  // all observed times are whole numbers, and out holds nothing but values of keys
  bool wrong = false;         // times differs from expected
  bool heads_differ = false;  // some heads saw other keys than `times` says
  // The number of rows of each sequence in `times`: the padded lengths, unless the implementation declares other
  // padding.
  std::vector<std::int64_t> q_lengths;
  std::vector<std::int64_t> kv_lengths;
  // The rest is filled on rank 0 only:
  WrongPairs pairs;                    // where times differs from expected
  std::optional<MaskPicture> picture;  // set if times differ from expected somewhere
  std::vector<std::string> notes;      // sentences: what else was seen
};

// Collective over groups.cp; the same on every rank except for the members that only rank 0 fills. Runs the failing
// case again with q = 0, no bias and a vanilla softmax: first with as few heads as the implementation declares for its
// mask probe, then, if nothing is wrong with few, with its own heads. Begins no step that would pass settings.deadline.
// A case with more than 4096 rows of queries or keys is not run.
SeenKeys find_seen_keys(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                        const Settings& settings);

}  // namespace cp_pool::diagnosis
