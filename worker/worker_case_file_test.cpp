// Tests of the real worker's --case: a case without a driver.
#include <array>
#include <cstdio>
#include <sys/wait.h>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "worker/testing/worker_fixture.h"

namespace cp_pool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Output and exit code of a run with --case.
struct CaseRun {
  int exit_code = -1;
  std::string output;
};

CaseRun run_case_file(const nlohmann::json& c, const std::string& more = "") {
  const test::TemporaryFolder folder;
  const std::string file = folder / "cp-pool-case.json";
  test::write_file(file, c.dump());
  CaseRun out;
  FILE* const pipe = popen(("'" CP_POOL_WORKER_BINARY "' --case '" + file + "'" + more + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) out.output += buffer.data();
  out.exit_code = WEXITSTATUS(pclose(pipe));
  return out;
}

TEST(WorkerCaseFile, RunsEveryRankAndShowsTheChecks) {
  nlohmann::json c = test::small_case(4);
  c["comm"] = "a2a+p2p";
  const CaseRun run = run_case_file(c);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("rank 3: ok"), HasSubstr("\ndq "), ::testing::EndsWith("\npass\n")));
}

TEST(WorkerCaseFile, RunsTheRanksOfAllGroups) {
  nlohmann::json c = test::small_case(2);
  c["group"] = 2;
  const CaseRun run = run_case_file(c);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("rank 3: ok"), ::testing::EndsWith("\npass\n")));
}

TEST(WorkerCaseFile, ACaseThatDoesNotPassIsAFailure) {
  nlohmann::json c = test::small_case(2);
  // The case needs more memory than there are addresses, so the allocation fails at once.
  c["seqlen_q"] = c["seqlen_kv"] = 1 << 17;
  c["heads"] = c["kv_heads"] = 1 << 16;
  c["head_dim_qk"] = c["head_dim_v"] = 1 << 13;
  const CaseRun run = run_case_file(c);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, AllOf(HasSubstr("\nerror: rank 0: "), HasSubstr("can't allocate memory")));
}

TEST(WorkerCaseFile, HasNoRanksThatCouldBeBroken) {
  const CaseRun run = run_case_file(test::small_case(2), " --inject throw@1:inside");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, HasSubstr("--inject needs a group of ranks and cannot be used with --case"));
  ::setenv("CP_POOL_INJECT", "throw@1:inside", 1);
  const CaseRun by_environment = run_case_file(test::small_case(2));
  ::unsetenv("CP_POOL_INJECT");
  EXPECT_EQ(by_environment.exit_code, 2);
  EXPECT_THAT(by_environment.output, HasSubstr("CP_POOL_INJECT needs a group of ranks and cannot be used with --case"));
}

TEST(WorkerCaseFile, AnImpossibleCaseIsAUsageErrorThatNamesTheFile) {
  nlohmann::json c = test::small_case(2);
  c["heads"] = 0;
  const CaseRun run = run_case_file(c);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, AllOf(HasSubstr("cp-pool-case.json"), HasSubstr("heads")));
}

}  // namespace
}  // namespace cp_pool
