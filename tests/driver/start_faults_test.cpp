// Workers that do not start: how often the driver tries to start them, and the outcome of the cases that wait for them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

struct BadStart {
  std::string name;
  std::vector<std::string> command;  // options of the fake worker, or a whole command if the first word is no option
  std::size_t tries;
  std::string reason;
  bool never_ready = false;
  bool speaks = false;  // though it is never ready
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const BadStart& bad, std::ostream* out) {
  *out << bad.name;
}

const std::vector<BadStart> kBadStarts{
    {"exit_1", {"--start=exit_1"}, 3, "rank 0 died: exit 1"},
    {"exit_1_in_rank_1", {"--start=exit_1", "--start-rank=1"}, 3, "rank 1 died: exit 1"},
    {"sigsegv", {"--start=sigsegv"}, 3, "signal 11 (SIGSEGV)"},
    {"garbage", {"--start=garbage"}, 3, "a line that is no message"},
    {"result_before_ready", {"--start=result_before_ready"}, 3, "a result for seq 1 before the worker was ready"},
    {"wrong_world_size", {"--start=wrong_world_size"}, 3, "has 3 ranks, not the 2"},
    {"never_ready", {"--start=never_ready"}, 3, "not ready within", true},
    {"never_ready_in_rank_1", {"--start=never_ready", "--start-rank=1"}, 3, "not ready within", true},
    {"ready_without_prefix",
     {"--start=ready_without_prefix"},
     3,
     R"(is no message (those begin with "[CP_POOL_RESP] "): {"event": "ready"})",
     true,
     true},
    {"ignores_sigterm", {"--start=ignore_sigterm"}, 3, "not ready within", true},
    {"wrong_version", {"--start=wrong_version"}, 1, "this worker speaks 2..3 only"},
    {"ready_with_another_protocol", {"--start=protocol_2"}, 1, "speaks protocol version 2"},
    {"exit_127", {"--start=exit_127"}, 1, "exit 127"},
    {"no_device", {"--start=no_device"}, 1, "exit 69"},
    {"missing_binary", {"/nowhere/cp-pool-worker"}, 1, "cannot run \"/nowhere/cp-pool-worker\": No such file"},
    {"missing_in_path", {"./no-such-worker"}, 1, "No such file"},
    {"not_executable", {"/etc/passwd"}, 1, "Permission denied"},
};

class StartFault : public testing::TestWithParam<BadStart> {};

TEST_P(StartFault, MakesTheCasesOfItsKeyInfra) {
  const BadStart& bad = GetParam();
  RunConfig config = fake_config(bad.command);
  if (!bad.command.front().starts_with("--")) config.worker_command = bad.command;
  if (bad.never_ready) config.start_timeout = milliseconds(300);
  // Time for a rank that speaks, and for a fork server to start.
  const bool waits = bad.speaks || !config.fork_server.empty();
  if (bad.never_ready && waits) config.start_timeout += 5 * time_of_a_pass(fake_config());
  const std::size_t descriptors = open_descriptors();

  const Recorder recorder = run(fake_cases({"pass", "pass"}), config);

  EXPECT_THAT(recorder.outcomes(), ElementsAre("infra", "infra"));
  EXPECT_THAT(recorder.finished(0).reason, HasSubstr(bad.reason));
  EXPECT_THAT(recorder.finished(1).reason, HasSubstr(bad.reason));
  EXPECT_EQ(recorder.finished(0).attempts, 0) << "it was never sent";
  EXPECT_THAT(recorder.retirements(), SizeIs(bad.tries));
  EXPECT_THAT(recorder.retirements(), Each("start_failed"));
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(bad.tries));
  EXPECT_EQ(recorder.end().exit_code, 96);
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

INSTANTIATE_TEST_SUITE_P(Table, StartFault, testing::ValuesIn(kBadStarts),
                         [](const auto& info) { return info.param.name; });

TEST(StartFaultText, HasTheLastWordsOfTheRankThatSaidAnything) {
  for (const int rank : {0, 1}) {
    const Recorder recorder =
        run(fake_cases({"pass"}), fake_config({"--start=exit_1", fmt::format("--start-rank={}", rank)}));
    EXPECT_THAT(recorder.finished(0).reason,
                HasSubstr(fmt::format("last words of rank {}: no license for this machine", rank)));
    EXPECT_EQ(recorder.finished(0).stderr_tails.at(static_cast<std::size_t>(rank)).text,
              "no license for this machine\n");
  }
}

TEST(Start, WithFewerDevicesThanRanksSkipsTheCasesOfThatWorldSizeOnly) {
  // Only the pool of two ranks has a rank 1.
  const auto config = fake_config({"--start=too_few_devices", "--start-rank=1"});
  const Recorder recorder = run({fake_case("pass", 2), fake_case("pass", 1), fake_case("pass", 2)}, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("skip", "pass", "skip"));
  EXPECT_THAT(recorder.finished(0).reason, EndsWith("fewer devices than the 2 that its ranks need, one each"));
  EXPECT_EQ(recorder.end().exit_code, 0);
  EXPECT_TRUE(recorder.end().ledger_exact);
}

TEST(Start, SucceedsAtTheThirdTryWithoutChargingACase) {
  const TemporaryPath starts("starts");
  const auto config = fake_config({"--start=exit_1", "--bad-starts=2", "--starts=" + starts.get().string()});
  const Recorder recorder = run(fake_cases({"pass", "fail"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "fail"));
  EXPECT_EQ(recorder.finished(0).attempts, 1);
  EXPECT_THAT(recorder.retirements(), ElementsAre("start_failed", "start_failed", "finished"));
  EXPECT_EQ(recorder.end().exit_code, 100);
}

// A configuration of the fake worker on one rank that fails at the starts with these numbers ("1|2"), with a line on
// stderr.
RunConfig config_with_bad_starts(const TemporaryPath& starts, const std::string& numbers) {
  RunConfig config = fake_config();
  config.slots = 1;  // one pool after another
  const std::string fake = config.worker_command.front();
  const std::string script = R"(printf . >> "$1"; case $(($(wc -c < "$1"))) in )" + numbers +
                             R"() echo no license >&2; exit 1;; esac; exec "$0")";
  config.worker_command = {"sh", "-c", script, fake, starts.get().string()};
  return config;
}

TEST(Start, ThatSucceedsForgetsTheFailuresBefore) {
  const TemporaryPath starts("starts");
  const Recorder recorder =
      run({fake_case("exit3", 1), fake_case("pass", 1)}, config_with_bad_starts(starts, "1|2|4|5"));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass"));
  EXPECT_THAT(recorder.retirements(),
              ElementsAre("start_failed", "start_failed", "crash", "start_failed", "start_failed", "finished"));
}

TEST(Start, ThatFailedOnceIsNotWhatALaterGivingUpShows) {
  const TemporaryPath starts("starts");
  RunConfig config = config_with_bad_starts(starts, "1");
  config.max_consecutive_timeouts = 1;
  std::vector<Item> cases = fake_cases({"hang", "pass"}, 1);
  cases[0].timeout = milliseconds(300);
  const Recorder recorder = run(cases, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "infra"));
  EXPECT_THAT(recorder.finished(1).reason, HasSubstr("timed out"));
  EXPECT_THAT(recorder.finished(1).stderr_tails, IsEmpty());
}

TEST(Start, OfAnotherWorldSizeIsUntouchedByAKeyThatHasBeenGivenUp) {
  // Only the pool of two ranks has a rank 1.
  const auto config = fake_config({"--start=exit_1", "--start-rank=1"});
  const Recorder recorder = run({fake_case("pass", 2), fake_case("pass", 1), fake_case("pass", 2)}, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("infra", "pass", "infra"));
}

}  // namespace
}  // namespace cp_pool::driver_test
