// For tests: the error text of an action that should fail.
#pragma once

#include <string>
#include <utility>

#include "cases/case_error.h"

namespace cp_pool::test {

// Returns the message of the Error that the action throws; "no error" if it throws none.
template <typename Error = CaseError, typename Action>
std::string error_text(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace cp_pool::test
