// The real program while another run of it has the same outputs.
#include <thread>

#include <fmt/format.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class OutputLock : public CommandLine {
 protected:
  // Returns the words of a run of three cases whose second hangs. The events file e shows when it does.
  [[nodiscard]] Words hanging(const Words& more = {}) const {
    return with(program_words("model=pass* | model=hang", {"--order", "reverse", "--events", path("e")}), more);
  }
  void wait_for_the_hang() const {
    while (!has_text(path("e"), "\"case_started\",\"index\":0")) std::this_thread::yield();
  }
};

TEST_F(OutputLock, ASecondRunOfTheSameOutputNamesTheFirst) {
  const Program first{hanging({"--run-dir", path("logs"), "--dump", path("tensors")})};
  wait_for_the_hang();
  const std::string before = read_file(path("e"));
  for (const auto& [option, name] : std::vector<std::pair<std::string, std::string>>{
           {"--events", "e"}, {"--run-dir", "logs"}, {"--dump", "tensors"}}) {
    const Finished second = run("model=pass", {option, path(name)});
    EXPECT_EQ(second.exit_code, 73) << option;
    EXPECT_THAT(second.err,
                is_one_error(fmt::format("cannot write {}: another run, process {}, ", path(name), first.pid())));
  }
  EXPECT_EQ(read_file(path("e")), before);
  EXPECT_TRUE(std::filesystem::exists(path("logs/pools/cpu-1-gen1/rank0.stderr.log")));
}

TEST_F(OutputLock, AReportOfARunThatGoesOnSaysSo) {
  const Program first{hanging()};
  wait_for_the_hang();
  const Finished report = call({"report", path("e"), "--junit", path("j")});
  EXPECT_EQ(report.exit_code, 100);
  const std::string process = fmt::format("process {}", first.pid());
  EXPECT_THAT(report.err,
              AllOf(StartsWith("cp-pool: warning: the run of "), HasSubstr("is still going on (" + process + ")")));
  EXPECT_THAT(report.last_line(), StartsWith("3 expanded = 0 pass + 0 fail + 3 not-run"));
  EXPECT_THAT(read_file(path("j")), HasSubstr(process));
  EXPECT_THAT(run("model=pass*", {"--rerun-failed", path("e")}).err,
              HasSubstr("is still going on (" + process + "): its unfinished cases count as not run"));
}

TEST_F(OutputLock, ARunDirHoldsTheLogsOfItsLastRunAlone) {
  ASSERT_EQ(run("model=pass*", {"--isolate", "--run-dir", path("logs")}).exit_code, 0);
  ASSERT_TRUE(std::filesystem::exists(path("logs/pools/cpu-1-gen2")));
  write_file(path("logs/notes"), "mine");
  ASSERT_EQ(run("model=pass_2", {"--run-dir", path("logs")}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("logs/pools/cpu-1-gen2")));
  EXPECT_THAT(read_file(path("logs/pools/cpu-1-gen1/rank0.stderr.log")),
              AllOf(HasSubstr("demo/pass_2/"), Not(HasSubstr("demo/pass/"))));
  EXPECT_EQ(read_file(path("logs/notes")), "mine");
  write_file(path("file"), "");
  EXPECT_EQ(run("model=pass", {"--run-dir", path("logs"), "--junit", path("file/j")}).exit_code, 73);
  EXPECT_TRUE(std::filesystem::exists(path("logs/pools/cpu-1-gen1/rank0.stderr.log"))) << "nothing ran";
}

TEST_F(OutputLock, AFolderOfOutputsMayHoldAFolderOfAnyName) {
  std::filesystem::create_directories(path("out/cp-pool"));
  EXPECT_EQ(run("model=pass", {"--run-dir", path("out"), "--dump", path("out")}).exit_code, 0);
}

}  // namespace
}  // namespace cp_pool::test
