// The environment variables that a test runner, such as Bazel or one for GoogleTest programs, sets for every test
// program (docs/ci.md).
#pragma once

#include <map>

#include "driver/cli/option_kinds.h"

namespace cp_pool {

// Returns the options that the variables set, by key. TEST_TOTAL_SHARDS and TEST_SHARD_INDEX set --shard, and so do the
// same with GTEST_; XML_OUTPUT_FILE sets --junit. Throws CommandError (usage) for an impossible shard.
std::map<std::string, OptionSetting> test_variables();

// True if the variables ask for a shard.
bool shard_of_runner();

// Returns keywords that select a case only if both `keywords` and TESTBRIDGE_TEST_ONLY do.
std::string with_test_filter(const std::string& keywords);

// Tells the test runner that shards are obeyed, if it asks, by creating the files TEST_SHARD_STATUS_FILE and
// GTEST_SHARD_STATUS_FILE. Throws CommandError (cannot_write).
void acknowledge_shards();

}  // namespace cp_pool
