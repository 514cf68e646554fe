// A worker that misbehaves after the result of a case, while it diagnoses the failure. In every row the outcome and the
// attempts are those of the result, the next case passes, and no process or descriptor is left behind.
#include <algorithm>
#include <csignal>
#include <ostream>
#include <string_view>

#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

constexpr milliseconds kShortTimeout{1000};  // the deadline of a case, which leaves 200 ms to a diagnosis

struct Row {
  std::string model;
  std::string id;         // the id of the diagnosis
  std::string cause;      // part of the cause that the diagnosis names
  std::string retired;    // why the pool was retired; empty if it was not
  bool runs_out = false;  // the diagnosis does not end in its time
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.model;
}

const std::vector<Row> kDiagnosisFaults{
    {"diag_good", "diag_good", "it is diag_good", ""},
    {"diag_twice", "diag_twice", "it is diag_twice", ""},
    {"diag_early", "diag_early", "it is diag_early", ""},
    {"diag_flood", "diag_flood", "it is diag_flood", ""},
    {"diag_chatter", "diag_chatter", "it is diag_chatter", ""},
    {"diag_daemon", "diag_daemon", "it is diag_daemon", ""},
    {"diag_colours", "diag_colours", "\\x1b[31mred and more", ""},
    {"diag_unhealthy", "diag_unhealthy", "it is diag_unhealthy", "unhealthy"},
    {"diag_then_exit", "diag_then_exit", "it is diag_then_exit", "died_after_result"},
    {"diag_unreadable", "unknown", "cannot be read: diagnosis: diagnosis: \"certainty\": \"sure\" is not among", ""},
    {"diag_without_id", "unknown", "the worker's diagnosis has no usable id", ""},
    {"diag_garbage", "unknown", "the diagnosis failed: a line that is no message", "protocol_break"},
    {"diag_long_line", "unknown", "the diagnosis failed: a line of more than 16 MiB", "protocol_break"},
    {"diag_second_result", "unknown", "the diagnosis failed: a result for seq 2", "protocol_break"},
    {"diag_closes_stdout", "unknown", "the diagnosis failed: rank 0 closed its stdout", "protocol_break"},
    {"diag_exit", "unknown", "the diagnosis failed: rank 0 died: exit 3", "died_after_result"},
    {"diag_sigsegv_on_1", "unknown", "the diagnosis failed: rank 1 died: signal 11 (SIGSEGV)", "died_after_result"},
    {"diag_none", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
    {"diag_hang", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
    {"diag_hang_on_1", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
    {"diag_deaf", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
    {"diag_sigstop", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
    {"diag_grandchild", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
    {"diag_late", "unknown", "the diagnosis ran out of its 0.2 s", "timeout", true},
};

RunConfig diagnosing_config() {
  return fake_config({"--options=diagnosis_ms"});
}

// A configuration with a short time for the diagnosis, for rows in which that time runs out.
RunConfig impatient_config() {
  RunConfig config = diagnosing_config();
  config.timeout = kShortTimeout;
  config.diagnosis_grace = milliseconds(200);
  return config;
}

class DiagnosisFault : public testing::TestWithParam<Row> {};

TEST_P(DiagnosisFault, LeavesTheOutcomeAsItWas) {
  const Row& row = GetParam();
  const RunConfig config = row.runs_out ? impatient_config() : diagnosing_config();
  const std::size_t descriptors = open_descriptors();

  const Recorder recorder = run(fake_cases({"pass", row.model, "pass"}), config);

  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "fail", "pass"));
  const CaseFinished& faulty = recorder.finished(1);
  EXPECT_EQ(faulty.reason, "it is " + row.model);
  EXPECT_EQ(faulty.attempts, 1);
  EXPECT_LT(faulty.duration_ms, config.timeout.count()) << "the diagnosis is no part of the case's time";
  ASSERT_TRUE(faulty.diagnosis);
  EXPECT_EQ(faulty.diagnosis->id, row.id);
  EXPECT_EQ(faulty.diagnosis->certainty, row.id == "unknown" ? Certainty::unknown : Certainty::certain);
  // If several ranks end at once, the cause may name either of them first.
  constexpr std::string_view kFailed = "the diagnosis failed: ";
  const bool failed = row.cause.starts_with(kFailed);
  EXPECT_EQ(faulty.diagnosis->cause.starts_with(kFailed), failed) << faulty.diagnosis->cause;
  EXPECT_THAT(faulty.diagnosis->cause, HasSubstr(failed ? row.cause.substr(kFailed.size()) : row.cause));
  EXPECT_THAT(faulty.stderr_tails.at(0).text, HasSubstr("starts " + row.model));
  EXPECT_FALSE(recorder.finished(0).diagnosis);

  if (row.retired.empty()) {
    EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
  } else {
    EXPECT_THAT(recorder.retirements(), ElementsAre(row.retired, "finished"));
    EXPECT_EQ(recorder.all<PoolRetired>().at(0).cases, 2);
  }
  for (const PoolRetired& retired : recorder.all<PoolRetired>()) EXPECT_THAT(retired.leftovers, IsEmpty());
  EXPECT_EQ(std::ranges::count(recorder.all<CaseStarted>(), std::size_t{1}, &CaseStarted::index), 1)
      << "the case that was asked about is not sent again; the next one is, where its pool was dying";
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().exit_code, 100);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

INSTANTIATE_TEST_SUITE_P(Table, DiagnosisFault, testing::ValuesIn(kDiagnosisFaults),
                         [](const auto& info) { return info.param.model; });

TEST(Diagnosis, IsNotWaitedForUnlessItWasAskedFor) {
  RunConfig forbidden = diagnosing_config();
  forbidden.diagnosis = false;
  for (const RunConfig& config : {fake_config(), forbidden}) {
    const Recorder recorder = run(fake_cases({"diag_unasked", "pass"}), config);
    EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "pass"));
    EXPECT_FALSE(recorder.finished(0).diagnosis);
    EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
  }
}

TEST(Diagnosis, IsBounded) {
  const Recorder recorder = run(fake_cases({"diag_huge"}), diagnosing_config());
  ASSERT_TRUE(recorder.finished(0).diagnosis);
  EXPECT_THAT(recorder.finished(0).diagnosis->evidence, SizeIs(64));
  EXPECT_EQ(recorder.finished(0).diagnosis->evidence.at(0).size(), 1024U);
}

// For each failed case, in the order of the events, whether it has a diagnosis.
std::vector<bool> diagnosed_fails(const Recorder& recorder) {
  std::vector<bool> out;
  for (const CaseFinished& finished : recorder.all<CaseFinished>()) {
    if (finished.outcome == CaseOutcome::fail) out.push_back(finished.diagnosis.has_value());
  }
  return out;
}

TEST(Diagnosis, IsMadeOnceOfACaseThatRunsSeveralTimes) {
  std::vector<Item> cases = fake_cases({"diag_good", "diag_good", "diag_good"});
  for (int i = 0; i < 3; ++i) {
    cases[static_cast<std::size_t>(i)].run = i + 1;
    cases[static_cast<std::size_t>(i)].runs = 3;
  }
  const Recorder recorder = run(cases, diagnosing_config());
  EXPECT_THAT(diagnosed_fails(recorder), ElementsAre(true, false, false));
}

// Makes the recorder call the function when a case reports progress in its diagnosis.
void when_diagnosing(Recorder& recorder, const std::function<void()>& then) {
  recorder.on<CaseProgress>([then](const CaseProgress& progress) {
    if (progress.phase == "diagnosis") then();
  });
}

TEST(Diagnosis, IsAPhaseOfItsCaseAndAnInterruptDoesNotWaitForIt) {
  for (const char* model : {"diag_none", "diag_hang"}) {
    Recorder recorder;
    when_diagnosing(recorder, [] { ::raise(SIGINT); });
    const RunFinished finished = run(fake_cases({model, "pass"}), diagnosing_config(), recorder);
    EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "not-run"));
    EXPECT_EQ(recorder.finished(0).diagnosis.value_or(Diagnosis{}).cause,
              "the run was stopped before the diagnosis had ended");
    EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted"));
    EXPECT_EQ(finished.exit_code, 130);
    EXPECT_THAT(processes_left(), IsEmpty());
  }
}

TEST(Diagnosis, DoesNotDelayTheEndOfARunThatStopsAtAFailure) {
  RunConfig config = diagnosing_config();
  config.max_failures = 1;
  config.diagnosis_time = std::chrono::seconds(4);
  config.diagnosis_grace = milliseconds(200);
  Recorder recorder;
  const std::vector<Item> cases{fake_case("until_sigusr1", 1), fake_case("pass", 1), fake_case("until_sigusr1", 2),
                                fake_case("diag_none", 2)};
  const auto let_go_on = [&recorder](int world_size) {
    for (const PoolSpawned& pool : recorder.all<PoolSpawned>()) {
      if (pool.world_size == world_size) ::kill(pool.pids.at(0), SIGUSR1);
    }
  };
  // When both pools run a case, the pool of two ranks may go on to the case that fails. When that case is in its
  // diagnosis, the pool of one rank may finish its case and would be free for the next one.
  recorder.on_each = [&](const Event& event) {
    if (std::holds_alternative<CaseStarted>(event) && recorder.all<CaseStarted>().size() == 2) let_go_on(2);
    const auto* progress = std::get_if<CaseProgress>(&event);
    if (progress != nullptr && progress->phase == "diagnosis") let_go_on(1);
  };
  config.slots = 3;
  run(cases, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "not-run", "pass", "fail"));
  EXPECT_TRUE(recorder.finished(3).diagnosis);
}

TEST(Diagnosis, EndsBeforeAPoolOfItsOwnDoes) {
  RunConfig config = diagnosing_config();
  config.pool_max_cases = 1;
  const Recorder recorder = run(fake_cases({"diag_good", "diag_exit", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "fail", "pass"));
  EXPECT_EQ(recorder.finished(0).diagnosis.value_or(Diagnosis{}).id, "diag_good");
  EXPECT_THAT(recorder.retirements(), ElementsAre("max_cases", "died_after_result", "max_cases"));
}

TEST(Diagnosis, ThatRunsOutOfTimeIsNoTimeoutOfACase) {
  RunConfig config = impatient_config();
  config.max_consecutive_timeouts = 1;
  const Recorder recorder = run(fake_cases({"diag_none", "diag_none", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "fail", "pass"));
}

}  // namespace
}  // namespace cp_pool::driver_test
