// Which cases share expected results: a pool keeps those that it has computed (cp_core/verify/expected_cache.h), so
// that such cases are better run by one pool, one after another.
#pragma once

#include <string>

#include "cases/case.h"
#include "cases/case_names.h"

namespace cp_pool {

// The same text for cases of one suite, model and dtype, most of which differ in layout and communication alone.
inline std::string problem_group(const Case& c) {
  return c.suite + '/' + c.model + '/' + std::string(to_string(c.dtype));
}

}  // namespace cp_pool
