#include "driver/cli/retry_options.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_outcome.h"
#include "cases/did_you_mean.h"

namespace cp_pool {
namespace {

bool may_be_retried(CaseOutcome outcome) {
  return is_failure(outcome) || outcome == CaseOutcome::infra;
}

std::vector<std::string> names_to_retry_on() {
  std::vector<std::string> names;
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    if (may_be_retried(outcome)) names.emplace_back(name);
  }
  return names;
}

std::string wrong_with_outcomes(const std::string& list) {
  const std::vector<std::string> names = names_to_retry_on();
  for (const std::string& part : split(list, ',')) {
    const auto outcome = parse_name<CaseOutcome>(part);
    if (outcome && may_be_retried(*outcome)) continue;
    return fmt::format("'{}' is none of {}{}", part, fmt::join(names, ", "), did_you_mean(part, names));
  }
  return "";
}

}  // namespace

void add_flaky(CLI::App& command, RunConfig& config) {
  const auto wrong_with_flaky = [](const std::string& text) {
    return text == "fail" || text == "pass" ? "" : fmt::format("'{}' is neither fail nor pass", text);
  };
  add_text(command, "--flaky", "WHAT", [&config](const std::string& text) { config.flaky_fails = text == "fail"; },
           "How a case that passed on a later try counts for the exit code: fail or pass",
           {.check = wrong_with_flaky, .default_text = "pass"});
}

void add_retries(CLI::App& command, RunConfig& config) {
  add_count(command, "--retries", config.retries.most, "Run a case that does not pass again, up to N times");
  add_text(command, "--retry-on", "OUTCOMES",
           [&config](const std::string& text) {
             config.retries.on.clear();
             for (const std::string& part : split(text, ',')) config.retries.on.insert(*parse_name<CaseOutcome>(part));
           },
           "The outcomes after which --retries runs a case again, separated by commas",
           {.check = wrong_with_outcomes, .default_text = "crash,timeout,infra,error"});
  add_flaky(command, config);
  add_flag(
      command, "--triage", config.triage,
      "After the last case run failures again, to tell whether they are real, leaked, flaky or caused by the machine");
  add_path(command, "--capsules", config.capsules, "DIR", PathUse::folder,
           "Keep each failure in a folder, from which cp-pool replay runs it again, here or elsewhere");
}

}  // namespace cp_pool
