#include "driver/cli/config/test_environment.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "cases/error_reason.h"
#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

std::string variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// Throws CommandError (usage).
std::size_t number_of(const std::string& name, const std::string& text) {
  if (const auto number = parse_number<std::size_t>(text)) return *number;
  throw CommandError(ExitCode::usage, "{}: '{}' is no whole number", name, text);
}

// Reads the shard from the variables with the prefix "TEST" or "GTEST". Throws CommandError (usage).
std::optional<OptionSetting> shard_of(const std::string& prefix) {
  const std::string total_name = prefix + "_TOTAL_SHARDS";
  const std::string index_name = prefix + "_SHARD_INDEX";
  const std::string total_text = variable(total_name);
  const std::string index_text = variable(index_name);
  if (total_text.empty()) return std::nullopt;
  const std::size_t total = number_of(total_name, total_text);
  if (total <= 1) return std::nullopt;
  if (index_text.empty()) {
    throw CommandError(ExitCode::usage, "{} is {}, and {} is not set", total_name, total, index_name);
  }
  const std::size_t index = number_of(index_name, index_text);
  if (index >= total) {
    throw CommandError(ExitCode::usage, "{}: {} is not below {} ({})", index_name, index, total, total_name);
  }
  return OptionSetting{.values = {fmt::format("{}/{}", index + 1, total)}, .place = total_name};
}

}  // namespace

std::map<std::string, OptionSetting> test_variables() {
  std::map<std::string, OptionSetting> out;
  for (const char* prefix : {"TEST", "GTEST"}) {
    if (const auto shard = shard_of(prefix)) out.try_emplace("shard", *shard);
  }
  if (const std::string file = variable("XML_OUTPUT_FILE"); !file.empty()) {
    out["junit"] = {.values = {file}, .place = "XML_OUTPUT_FILE"};
  }
  return out;
}

bool shard_of_runner() {
  return shard_of("TEST") || shard_of("GTEST");
}

std::string with_test_filter(const std::string& keywords) {
  const std::string filter = variable("TESTBRIDGE_TEST_ONLY");
  if (filter.empty()) return keywords;
  return keywords.empty() ? filter : fmt::format("({}) and ({})", keywords, filter);
}

void acknowledge_shards() {
  for (const char* name : {"TEST_SHARD_STATUS_FILE", "GTEST_SHARD_STATUS_FILE"}) {
    const std::string file = variable(name);
    if (file.empty() || std::ofstream(file, std::ios::app)) continue;
    const std::error_code error(errno, std::generic_category());
    throw CommandError(ExitCode::cannot_write, "cannot write {}: {}", file, error_reason(error, file));
  }
}

}  // namespace cp_pool
