// What a runner of tests, such as Bazel or one of GoogleTest programs, says to every test program by environment
// variables (docs/ci.md).
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

struct TestVariable {
  std::string key;    // of the option that it sets
  std::string value;  // of the option
  std::string variable;
};

// TEST_TOTAL_SHARDS and TEST_SHARD_INDEX, or those of GTEST_: --shard. XML_OUTPUT_FILE: --junit. Throws CommandError
// (usage) for a part that there cannot be.
std::vector<TestVariable> test_variables();

// Whether they ask for a shard.
bool shard_of_runner();

// TESTBRIDGE_TEST_ONLY narrows what is selected: keywords that hold only where both do.
std::string narrowed_by_test_filter(const std::string& keywords);

// Says to the runner that shards are obeyed, if it asks: the files TEST_SHARD_STATUS_FILE and GTEST_SHARD_STATUS_FILE.
// Throws CommandError (cannot_write).
void tell_shards_are_obeyed();

}  // namespace cp_pool
