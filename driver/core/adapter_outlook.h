// The answers of an adapter that is asked what it would make of cases (python/cp_pool/worker.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/fields.h"

namespace cp_pool {

// What an adapter would make of a case.
struct AdapterOutlook {
  std::string skip = {};  // why it would skip the case, as a sentence; empty if the case would run
  // RankMeasurements::pairs of each rank; empty if the case would be skipped, or if nobody asked for them
  std::vector<std::int64_t> pairs = {};

  static constexpr auto fields() {
    return FieldList{required<&AdapterOutlook::skip>(), optional<&AdapterOutlook::pairs>()};
  }
};

// Returns the answer in each line {"skip": "..", "pairs": [..]}. Other lines are passed over: the adapter's file may
// print, too.
std::vector<AdapterOutlook> parse_outlooks(std::string_view lines);

}  // namespace cp_pool
