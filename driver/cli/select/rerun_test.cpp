#include "driver/cli/select/rerun.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

SelectedCase some_case() {
  SelectedCase selected;
  selected.matrix_case.id = "te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad";
  selected.matrix_case.size = "small";
  selected.matrix = "te-flash";
  return selected;
}

TEST(Rerun, IsTheCommandThatRunsTheCaseAlone) {
  EXPECT_EQ(rerun_of_run("build/release/bin/cp-pool", some_case(), {}),
            "build/release/bin/cp-pool run --matrix te-flash --size small "
            "--filter te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad");
}

TEST(Rerun, KeepsTheWorkerAndQuotesWhatAShellWouldSplit) {
  ExecutionOptions options;
  options.rerun_arguments = {"--worker", "python3 'my worker.py'"};
  EXPECT_EQ(rerun_of_file("cp-pool", "a case.json", {}, options),
            R"(cp-pool submit 'a case.json' --worker 'python3 '\''my worker.py'\''')");
}

TEST(Rerun, OfAllFailuresReadsTheEventsFile) {
  const SelectionOptions selection{.matrices = {"te-flash", "my matrix.json"}, .filters = {"x"}, .size = "full"};
  ExecutionOptions options;
  EXPECT_EQ(rerun_of_failed("cp-pool", selection, options), std::nullopt);
  options.events = "/dev/null";
  EXPECT_EQ(rerun_of_failed("cp-pool", selection, options), std::nullopt);
  options.events = "new.jsonl";
  options.rerun_arguments = {"--device", "cuda"};
  EXPECT_EQ(rerun_of_failed("cp-pool", selection, options),
            "cp-pool run --matrix te-flash 'my matrix.json' --size full --rerun-failed new.jsonl --device cuda");
}

TEST(Rerun, OfAllFailuresOfAStreamReadsTheCasesThere) {
  ExecutionOptions options;
  EXPECT_EQ(rerun_of_failed_stream("cp-pool", options), std::nullopt);
  options.events = "new.jsonl";
  options.rerun_arguments = {"--timeout", "2m"};
  EXPECT_EQ(rerun_of_failed_stream("cp-pool", options), "cp-pool submit --rerun-failed new.jsonl --timeout 2m");
}

TEST(Rerun, KeepsTheEditsOfASubmittedCase) {
  EXPECT_EQ(rerun_of_id("cp-pool", some_case(), {"comm=a2a", "window=64,0"}, {}),
            "cp-pool submit te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad --matrix te-flash --size small --set comm=a2a "
            "--set window=64,0");
}

TEST(Rerun, OfACaseFromStdinCarriesTheCase) {
  EXPECT_EQ(rerun_of_json("cp-pool", R"({"heads":4})", {}), R"(printf '%s\n' '{"heads":4}' | cp-pool submit -)");
}

}  // namespace
}  // namespace cp_pool
