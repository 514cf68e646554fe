// Every deliberate fault of mutants.def is diagnosed on several cases that it fails.
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/mutation.h"
#include "cp_core/own/own_implementation.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/ranks_on_threads.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool::diagnosis {
namespace {

struct Asked {
  bool failed = false;
  std::string reason;
  Diagnosis diagnosis;
};

Asked ask(const Case& c, bool diagnosed = true) {
  std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
  Asked asked;
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    OwnImplementation own;
    RunOptions options;
    options.keep_judged = true;
    RankReport& report = reports[static_cast<std::size_t>(rank)];
    report = run_case(own, c, groups, options);
  });
  for (const RankReport& report : reports) {
    if (report.outcome == CaseOutcome::fail) {
      if (!asked.failed) asked.reason = report.reason;
      asked.failed = true;
    }
  }
  if (!asked.failed || !diagnosed) return asked;
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    OwnImplementation own;
    const at::NoGradGuard no_grad;
    const Diagnosis found = diagnose(own, *reports[static_cast<std::size_t>(rank)].judged, groups, {});
    if (rank == 0) asked.diagnosis = found;
  });
  return asked;
}

TEST(Explore, Mutants) {
  const char* const wanted = std::getenv("MUTANT");
  const char* const many = std::getenv("CASES");
  const int most = many ? std::atoi(many) : 3;
  std::vector<Case> cases;
  std::mt19937_64 generator(std::getenv("SEED") ? std::atoi(std::getenv("SEED")) : 7);
  while (cases.size() < 150) {
    Case c = verify::test::random_case(generator);
    c.training = true;
    if (c.cp_size > 1 && skip_reason(c).empty()) cases.push_back(c);
  }
  for (const MutantInfo& info : all_mutants()) {
    if (info.where == MutantWhere::gpu) continue;
    if (wanted && std::string(info.name).find(wanted) == std::string::npos) continue;
    const ScopedMutant on(info.mutant);
    int seen = 0;
    int skip = std::getenv("SKIP") ? std::atoi(std::getenv("SKIP")) : 0;
    for (const Case& c : cases) {
      if (skip > 0) {
        if (ask(c, false).failed) --skip;
        continue;
      }
      const auto start = std::chrono::steady_clock::now();
      const Asked asked = ask(c);
      if (!asked.failed) continue;
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      const Diagnosis& d = asked.diagnosis;
      std::cout << fmt::format("{} | {} | {} | {} | others {} | {} | {:.0f} ms | {}\n", info.name, to_string(d.certainty), d.id, d.cause,
                               fmt::join(d.others, " "), asked.reason, ms, std::getenv("VERBOSE") ? verify::test::text_of(c) : "");
      for (const std::string& e : d.evidence) std::cout << "     " << e << "\n";
      std::cout << std::flush;
      if (++seen == most) break;
    }
    if (seen == 0) std::cout << info.name << " not killed\n";
  }
}

}  // namespace
}  // namespace cp_pool::diagnosis
