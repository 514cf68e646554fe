// Every deliberate fault of mutants.def is diagnosed on several cases that it fails.
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"
#include "cp_core/mutation.h"
#include "cp_core/own/own_implementation.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

TEST(Explore, Mutants) {
  const char* const wanted = std::getenv("MUTANT");
  const char* const many = std::getenv("CASES");
  const int most = many ? std::atoi(many) : 3;
  std::vector<Case> cases;
  std::mt19937_64 generator(std::getenv("SEED") ? std::atoi(std::getenv("SEED")) : 7);
  while (cases.size() < 120) {
    Case c = verify::test::random_case(generator);
    c.training = true;
    if (c.cp_size > 1 && skip_reason(c).empty()) cases.push_back(c);
  }
  cases.push_back(verify::test::steep_case());
  cases.push_back(verify::test::high_sink_case());
  cases.push_back(verify::test::one_key_case());
  Case uneven = verify::test::steep_case();
  uneven.input_scale = 3;
  cases.push_back(uneven);
  for (const MutantInfo& info : all_mutants()) {
    if (info.where == MutantWhere::gpu) continue;
    if (wanted && std::string(info.name).find(wanted) == std::string::npos) continue;
    const ScopedMutant on(info.mutant);
    int seen = 0;
    int skip = std::getenv("SKIP") ? std::atoi(std::getenv("SKIP")) : 0;
    for (const Case& c : cases) {
      bool fails = false;
      for (const RankReport& report : verify::test::run_on_threads(c))
        fails = fails || report.outcome == CaseOutcome::fail;
      if (!fails) continue;
      if (skip-- > 0) continue;
      const auto start = std::clock();
      const test::Diagnosed asked = test::diagnosed(c);
      const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      std::cout << fmt::format("{} | {} | {:.0f} ms CPU | {} {} {} ranks {} | {}\n", info.name,
                               test::text_of(asked.diagnosis), ms, to_string(c.comm), to_string(c.layout), c.cp_size,
                               asked.reason, std::getenv("VERBOSE") ? verify::test::text_of(c) : "");
      std::cout << std::flush;
      if (++seen == most) break;
    }
    if (seen == 0) std::cout << info.name << " not killed\n";
  }
}

}  // namespace
}  // namespace cp_pool::diagnosis
