// When a worker is told to prepare for the case that comes next.
#include <gmock/gmock.h>

#include "driver/testing/attention.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string stderr_log(const TemporaryPath& run_dir, const std::string& pool) {
  return test::read_file(run_dir.get() / "pools" / pool / "rank0.stderr.log");
}

TEST(Prepare, FollowsTheCaseBeforeForAWorkerThatOffersIt) {
  const TemporaryPath folder("logs");
  RunConfig config = fake_config({"--offers=prepare"});
  config.run_dir = folder.get();
  Item last = fake_case("fail", 2);
  test::attention(last.payload).batch = 1;
  test::attention(last.payload).seqlen_q = 32;
  const Recorder recorder = run({fake_case("skip", 2), fake_case("pass", 1), last}, config);
  // On the pool of two ranks the next case is the third of the list; after it nothing is known to come.
  EXPECT_THAT(stderr_log(folder, "cpu-2-gen1"),
              testing::MatchesRegex("rank 0 starts skip seq 1\n.*prepares fail seq 2 lengths .32.\n"
                                    "rank 0 starts fail seq 3\n.*\n"));
  EXPECT_THAT(stderr_log(folder, "cpu-2-gen1"), testing::Not(HasSubstr("prepares skip")));
  EXPECT_THAT(stderr_log(folder, "cpu-1-gen1"), testing::Not(HasSubstr("prepares")));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("skip", "pass", "fail"));
}

TEST(Prepare, IsNotSentToAPoolThatWillNotRunTheNextCase) {
  const TemporaryPath folder("logs");
  RunConfig config = fake_config({"--offers=prepare"});
  config.run_dir = folder.get();
  config.pool_max_cases = 1;
  const Recorder recorder = run(fake_cases({"pass", "pass"}), config);
  EXPECT_THAT(stderr_log(folder, "cpu-2-gen1"), testing::Not(HasSubstr("prepares")));
}

}  // namespace
}  // namespace cp_pool::driver_test
