// The error with which a function ends, in tests.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "driver/core/exit_code.h"

namespace cp_pool::test {

// Returns the text of the CommandError, which has this code; "no error" if there is none.
inline std::string command_error(ExitCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const CommandError& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
  return "no error";
}

}  // namespace cp_pool::test
