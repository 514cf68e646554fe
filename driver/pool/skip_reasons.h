// The answers of an adapter that is asked which cases it would skip (python/cp_pool/worker.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// Returns the reason in each line {"skip": ".."}, empty for a case that would run. Other lines are passed over: the
// adapter's file may print, too.
std::vector<std::string> skip_reasons_in(std::string_view lines);

}  // namespace cp_pool
