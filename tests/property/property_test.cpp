// Every random case passes on ranks that are threads of this process: the attention is right, and the checks raise no
// false alarm.
//   CP_POOL_PROPERTY_CASES  the number of random cases (default 2000)
//   CP_POOL_PROPERTY_SEED   the seed of the generator
// A case that fails is printed together with a smaller case that fails alike. `cp-pool submit FILE` runs either case on
// processes.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/parse_number.h"
#include "cases/search/random_case.h"
#include "cases/search/testing/shrink_case.h"
#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::property {
namespace {

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  if (const auto number = parse_number<std::uint64_t>(text)) return *number;
  throw std::invalid_argument(fmt::format("{}={} is not a number", name, text));
}

struct Failure {
  std::string kind;  // the check that failed, "skip" or "exception"; empty if the case passes on every rank
  std::string text;
};

Failure failure_of(const Case& c) {
  try {
    const auto reports = verify::test::run_on_threads(c);
    for (const RankReport& report : reports) {
      if (report.outcome == CaseOutcome::skip) return {"skip", report.reason};
      const auto failed = std::ranges::find(report.checks, false, &Check::ok);
      if (failed != report.checks.end()) return {failed->tensor, verify::test::fault_of(reports)};
    }
    return {};
  } catch (const std::exception& error) {
    return {"exception", error.what()};
  }
}

// The text of a failure, with the smallest case of the same kind: one that fails in another way could have another
// cause.
std::string describe_failure(const Case& c, const Failure& failure) {
  const auto fails_alike = [&failure](const Case& simpler) { return failure_of(simpler).kind == failure.kind; };
  const Case smallest = search::test::shrink(c, fails_alike);
  return fmt::format("{}\n{}\nthe smallest that fails alike: {}\n{}", failure.text, to_json(c).dump(),
                     failure_of(smallest).text, to_json(smallest).dump());
}

TEST(Property, NoRandomCaseIsSkipped) {
  std::mt19937_64 generator(3);
  for (int i = 0; i < 20'000; ++i) {
    const Case c = search::random_case(generator);
    ASSERT_EQ(skip_reason(c), "") << to_json(c).dump();
  }
}

TEST(Property, EveryRandomCasePasses) {
  const std::uint64_t cases = number_from_environment("CP_POOL_PROPERTY_CASES", 2000);
  const std::uint64_t seed = number_from_environment("CP_POOL_PROPERTY_SEED", 20261121);
  std::mt19937_64 generator(seed);
  for (std::uint64_t i = 1; i <= cases; ++i) {
    const Case c = search::random_case(generator);
    const Failure failure = failure_of(c);
    ASSERT_EQ(failure.kind, "") << fmt::format("case {} of seed {}: {}", i, seed, describe_failure(c, failure));
  }
}

}  // namespace
}  // namespace cp_pool::property
