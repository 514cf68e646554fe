// Many cases, one in twenty of them a fault drawn at random, over pools of three world sizes. Longer by hand:
// CP_POOL_SOAK_CASES=5000 CP_POOL_SOAK_SEED=7 driver_soak_test
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using testing::Contains;
using testing::IsEmpty;

// What each kind may end as.
const std::map<std::string, std::set<std::string>> kFine{{"pass", {"pass"}}, {"skip", {"skip"}}, {"fail", {"fail"}}};
const std::map<std::string, std::set<std::string>> kFaulty{
    {"sigsegv", {"crash"}},
    {"sigkill", {"crash"}},
    {"exit0", {"crash"}},
    {"exit3", {"crash"}},
    {"hang", {"timeout"}},
    {"setsid_grandchild_then_exit", {"crash"}},
    {"garbage_after_sentinel", {"crash"}},
    {"half_result_then_exit", {"crash"}},
    {"wrong_seq", {"crash"}},
    {"closes_stdout", {"crash"}},
    {"closes_stdin", {"pass"}},
    {"two_results", {"pass"}},
    {"garbage_when_idle", {"pass"}},
    {"result_then_death", {"pass"}},
    {"fail_then_exit", {"fail", "crash"}},
    {"error_then_exit", {"error", "crash"}},
    {"die_before_started", {"crash"}},
    {"unhealthy", {"error"}},
    {"refuse", {"error"}},
    {"no_fence", {"error"}},
    {"invalid_utf8", {"error"}},
    {"daemon", {"pass"}},
    {"chatter_stdout", {"pass"}},
};

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::string draw(std::mt19937& random, const std::map<std::string, std::set<std::string>>& kinds) {
  return std::next(kinds.begin(), static_cast<std::ptrdiff_t>(random() % kinds.size()))->first;
}

std::int64_t resident_kib() {
  std::int64_t kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) kib = std::atoll(line.c_str() + 6);
  }
  return kib;
}

TEST(Soak, KeepsExactBooksAndLeavesNothingBehind) {
  const int count = from_environment("CP_POOL_SOAK_CASES", 400);
  const int seed = from_environment("CP_POOL_SOAK_SEED", 1234);
  RecordProperty("seed", seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<NamedCase> cases;
  for (int i = 0; i < count; ++i) {
    const bool faulty = random() % 20 == 0;
    cases.push_back(fake_case(draw(random, faulty ? kFaulty : kFine), 1 << (random() % 3)));
  }
  RunConfig config = fake_config();
  config.timeout = std::chrono::seconds(2);
  config.max_busy_ranks = 7;
  config.pool_max_cases = 40;
  const std::size_t descriptors = open_descriptors();
  const std::int64_t before = resident_kib();
  Recorder recorder;

  const RunFinished finished = run(cases, config, recorder);

  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.expanded, cases.size());
  const std::vector<std::string> outcomes = recorder.outcomes();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string& kind = cases[i].c.model;
    EXPECT_THAT(kFine.contains(kind) ? kFine.at(kind) : kFaulty.at(kind), Contains(outcomes[i]))
        << "case " << i << " " << kind << ": " << recorder.finished(i).reason;
  }
  for (const PoolRetired& retired : recorder.all<PoolRetired>()) EXPECT_THAT(retired.leftovers, IsEmpty());
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
  RecordProperty("grown_kib", std::to_string(resident_kib() - before));
}

}  // namespace
}  // namespace cp_pool::driver_test
