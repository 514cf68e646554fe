// Every deliberate fault of mutants.def must be caught by run_case on at least one of a fixed list of cases.
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/mutation.h"
#include "cp_core/verify/test_support.h"

namespace cp_pool::verify {
namespace {

std::vector<Case> witness_cases() {
  std::vector<Case> cases;
  std::mt19937_64 generator(7);
  while (cases.size() < 120) {
    Case c = test::random_case(generator);
    c.training = true;
    if (c.cp_size > 1 && skip_reason(c).empty()) cases.push_back(c);
  }
  return cases;
}

TEST(Verification, CatchesEveryMutant) {
  const auto cases = witness_cases();
  for (const Case& c : cases) ASSERT_EQ(test::fault_of(test::run_on_threads(c)), "") << test::text_of(c);

  for (const MutantInfo& info : all_mutants()) {
    const ScopedMutant on(info.mutant);
    std::string fault;
    std::size_t tried = 0;
    while (fault.empty() && tried < cases.size()) fault = test::fault_of(test::run_on_threads(cases[tried++]));
    EXPECT_NE(fault, "") << info.name << " survived " << tried << " cases: " << info.description;
    if (!fault.empty()) fmt::print("{:32} killed by case {:3}: {}\n", info.name, tried, fault);
  }
}

}  // namespace
}  // namespace cp_pool::verify
