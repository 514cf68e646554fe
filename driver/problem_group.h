// Which cases share expected results. A pool keeps those that it has computed (cp_core/verify/expected_cache.h), so
// such cases are better run by one pool, one after another.
#pragma once

#include <string>

#include "cases/case.h"
#include "cases/case_names.h"

namespace cp_pool {

// Returns the same text for all cases of one suite, model and dtype. Most of these differ in layout and communication
// type alone.
inline std::string problem_group(const Case& c) {
  return c.suite + '/' + c.model + '/' + std::string(to_string(c.dtype));
}

}  // namespace cp_pool
