#include "driver/core/rank_environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr std::array<std::string_view, 10> kPrefixesForRanks{"CUDA_",  "NCCL_",    "GLOO_",  "OMP_", "MKL_",
                                                             "TORCH_", "CP_POOL_", "PYTHON", "LD_",  "CUBLAS_"};
constexpr std::array<std::string_view, 2> kNamesForRanks{"PATH", "VIRTUAL_ENV"};
constexpr std::array<std::string_view, 11> kSecrets{"TOKEN", "SECRET",     "PASSWORD", "PASSWD",  "PASSPHRASE", "KEY",
                                                    "AUTH",  "CREDENTIAL", "COOKIE",   "PRIVATE", "SIGNATURE"};

}  // namespace

std::string random_tag() {
  std::string tag;
  std::ifstream("/proc/sys/kernel/random/uuid") >> tag;
  return tag;
}

void add_wait_policy(Variables& variables, const ProcessEnvironment* process) {
  constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";
  const auto is_it = [](const auto& variable) { return variable.first == kWaitPolicy; };
  const bool has_it =
      process == nullptr ? std::getenv(kWaitPolicy) != nullptr : std::ranges::any_of(process->environment, is_it);
  if (!has_it) variables.emplace_back(kWaitPolicy, "passive");
}

std::vector<std::string> inherited_variables(const ProcessEnvironment* process) {
  std::vector<std::string> out;
  for (const auto& [name, value] : process != nullptr ? process->environment : own_environment()) {
    if (matters_to_ranks(name)) out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

Variables own_environment() {
  Variables out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::ranges::sort(out);
  return out;
}

Variables with_entries(Variables base, const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string name = entry.substr(0, equals);
    std::erase_if(base, [&](const auto& variable) { return variable.first == name; });
    base.emplace_back(name, entry.substr(std::min(equals + 1, entry.size())));
  }
  std::ranges::sort(base);
  return base;
}

bool matters_to_ranks(std::string_view name) {
  return std::ranges::count(kNamesForRanks, name) > 0 ||
         std::ranges::any_of(kPrefixesForRanks, [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool may_be_secret(std::string_view name, std::string_view value) {
  std::string whole{name};
  std::ranges::transform(whole, whole.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (std::ranges::any_of(kSecrets, [&](std::string_view part) { return whole.find(part) != std::string::npos; })) {
    return true;
  }
  const std::size_t host = value.find("://");
  return host != std::string_view::npos && value.find('@', host) != std::string_view::npos;
}

bool is_of_this_machine(std::string_view name) {
  return name == "PATH" || name == "VIRTUAL_ENV" || name == "CUDA_VISIBLE_DEVICES" || name.starts_with("LD_") ||
         name.starts_with("PYTHON");
}

std::vector<std::string> environment_to_keep() {
  std::vector<std::string> out;
  for (const auto& [name, value] : own_environment()) {
    if (matters_to_ranks(name) && !may_be_secret(name, value)) out.push_back(fmt::format("{}={}", name, value));
  }
  return out;
}

}  // namespace cp_pool
