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
  // fp64 [rows of q, rows of kv], sequence by sequence, valid rows and then padding: how often the query saw the key.
  // NaN where that could not be observed, and in padding queries of which the implementation promises nothing. Not
  // whole: a weight, where 1 is that of a key seen once.
  at::Tensor times;
  at::Tensor expected;        // the same of the definition: 0 and 1
  bool whole_numbers = true;  // every weight that was observed is one, and out holds nothing but values of keys
  bool wrong = false;         // times differs from expected
  bool heads_differ = false;  // not all heads saw what `times` has, or one read another key-value head than it should
  bool gradients_wrong = false;  // dq, dk or dv have other pairs than those that met, or in another measure
  // How many rows each sequence has in times: the padded lengths, unless the implementation declares other padding.
  std::vector<std::int64_t> q_lengths;
  std::vector<std::int64_t> kv_lengths;
  // On rank 0 alone:
  WrongPairs pairs;                    // where times differs from expected
  std::optional<MaskPicture> picture;  // if it does somewhere
  std::vector<std::string> notes;      // what could not be observed, what else was seen (heads that differ, dq, dk, dv)
};

// Collective over groups.cp; but for what rank 0 alone has, the same on every rank. The failing case is asked again:
// with q = 0, without a bias, with a vanilla softmax; with as few heads as the implementation declares for its mask
// probe, and with its own heads if nothing is wrong with few. Begins no step that would pass settings.deadline. Of a
// case with more than 4096 rows of keys nothing is asked.
SeenKeys find_seen_keys(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                        const Settings& settings);

}  // namespace cp_pool::diagnosis
