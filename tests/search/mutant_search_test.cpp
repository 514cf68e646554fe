// cp-pool search on real ranks with one deliberate fault. tools/search_mutants does this for all faults.
#include "driver/cli/testing/started_program.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using nlohmann::json;
using test::events_in;
using test::Finished;
using test::run_to_end;
using test::TemporaryFolder;

TEST(MutantSearch, EndsAtACaseThatHasNothingButWhatTheFaultNeeds) {
  const TemporaryFolder folder;
  const test::ScopedVariable mutant("CP_POOL_TEST_MUTANT", "chunk_ignored");
  const std::string events = (folder / "events.jsonl").string();
  const Finished done = run_to_end({CP_POOL_PROGRAM, "search", "--worker", CP_POOL_MUTANT_WORKER, "--seed", "1",
                                    "--filter", "cp_size<=2", "--found", "off", "--events", events});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  const std::vector<json> found = events_in(events, "search_found");
  ASSERT_EQ(found.size(), 1U) << done.out;
  const json& smallest = found[0]["case"];
  EXPECT_EQ(found[0]["failed"], found[0]["asked"]);
  EXPECT_GT(smallest["chunk"], 0) << smallest;
  EXPECT_EQ(smallest["cp_size"], 1) << smallest;
  EXPECT_EQ(smallest["heads"], 1) << smallest;
  EXPECT_EQ(smallest["layout"], "bshd") << smallest;
  EXPECT_EQ(smallest["causal"], false) << smallest;
  EXPECT_EQ(smallest["training"], false) << smallest;
  EXPECT_LE(smallest["seqlen_q"], 4) << smallest;
  for (const json& finished : events_in(events, "case_finished")) {
    if (finished["case"]["chunk"] == 0) {
      EXPECT_EQ(finished["outcome"], "pass") << finished["case"];
    }
  }
}

}  // namespace
}  // namespace cp_pool
