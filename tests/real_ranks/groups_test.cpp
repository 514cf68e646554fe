// A case with several groups of ranks through the whole program: its events, times, traces and dumps.
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/driver/harness.h"
#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using driver_test::TemporaryPath;
using nlohmann::json;

constexpr const char* kTwoGroups =
    R"({"suite":"adhoc","model":"two","comm":"p2p","cp_size":2,"group":2,"layout":"thd","dtype":"fp32","batch":3,)"
    R"("pad_between_seqs":true,"seqlen_q":16,"seqlen_kv":16,"heads":2,"kv_heads":2,"head_dim_qk":8,"head_dim_v":8,)"
    R"("id":"two"})";

std::set<std::string> files_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) names.insert(file.path().filename());
  return names;
}

TEST(GroupsOfRanks, AreTimedTracedAndDumpedEach) {
  const TemporaryPath folder("groups");
  const auto dump = folder.get() / "dump";
  const auto traces = folder.get() / "trace";
  DriverRun run({"submit", "-", "--device", "cpu", "--dump", dump, "--mode", "perf", "--warmup", "1", "--iterations",
                 "2", "--trace", traces});
  run.write_line(kTwoGroups);
  run.close_stdin();
  EXPECT_EQ(run.wait(), 0) << run.output();
  const json finished = of_type(run.events(), "case_finished").at(0);
  EXPECT_EQ(finished.at("outcome"), "pass") << finished.dump(1);
  EXPECT_EQ(finished.at("ranks").size(), 4U);
  EXPECT_EQ(finished.at("perf").at("ranks").size(), 4U);
  EXPECT_GT(finished.at("perf").at("one_rank_ms").at("median"), 0);
  EXPECT_THAT(files_in(dump), ::testing::ElementsAre("two.group1.safetensors", "two.safetensors"));
  EXPECT_THAT(files_in(traces),
              ::testing::ElementsAre("two.alone.json", "two.group1.alone.json", "two.group1.rank0.json",
                                     "two.group1.rank1.json", "two.rank0.json", "two.rank1.json"));
  const std::string check = fmt::format("'{0}/.venv/bin/python' '{0}/tools/check_dump.py' '{1}' > /dev/null",
                                        CP_POOL_SOURCE_DIR, dump.string());
  EXPECT_EQ(std::system(check.c_str()), 0) << "each dump has the inputs that its results are of";
}

}  // namespace
}  // namespace cp_pool::test
