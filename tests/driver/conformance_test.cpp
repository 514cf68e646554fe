// cp-pool conformance on a worker that keeps every rule, and on workers that break one rule each: exactly the finding
// of that rule is negative.
#include "driver/conformance/conformance.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using conformance::Finding;
using std::chrono::milliseconds;
using namespace ::testing;
using testing::Field;

struct Verdicts {
  std::vector<Finding> findings;
  conformance::Tally tally;

  [[nodiscard]] std::vector<std::string> rules(Compliance verdict) const {
    std::vector<std::string> out;
    for (const Finding& finding : findings) {
      if (finding.verdict == verdict) out.push_back(finding.rule);
    }
    return out;
  }
  // All findings, one per line, for the message of a failed test.
  [[nodiscard]] std::string all_texts() const {
    std::string out;
    for (const Finding& finding : findings) {
      out += fmt::format("{} {}: {}\n", name_of(finding.verdict), finding.rule, finding.text);
    }
    return out;
  }
  [[nodiscard]] std::string text_of(const std::string& rule) const {
    const auto found = std::ranges::find(findings, rule, &Finding::rule);
    return found == findings.end() ? "no such line" : fmt::format("{} (hint: {})", found->text, found->hint);
  }
};

Verdicts verdicts_on(std::vector<std::string> command, milliseconds limit = std::chrono::seconds(20),
                     milliseconds start_limit = std::chrono::seconds(20)) {
  Verdicts out;
  RunConfig config;
  config.worker_command = std::move(command);
  config.device = "cpu";
  config.timeout = limit;
  config.start_timeout = start_limit;
  conformance::Conformance rules(config, 2, [&](const Finding& finding) { out.findings.push_back(finding); });
  out.tally = rules.run();
  return out;
}

Verdicts verdicts_on_breaker_of(const std::string& rule, milliseconds limit = std::chrono::seconds(20)) {
  // Every other worker has to start, so only the one that does not has a short limit for it.
  const milliseconds start_limit = rule == "ready" ? limit : milliseconds(20'000);
  return verdicts_on({CP_POOL_CONFORMANCE_WORKER, "--break=" + rule}, limit, start_limit);
}

TEST(Conformance, FindsNothingWrongWithAWorkerThatKeepsToEveryRule) {
  const std::size_t descriptors = open_descriptors();
  const Verdicts verdicts = verdicts_on({CP_POOL_CONFORMANCE_WORKER});
  EXPECT_THAT(verdicts.findings, Each(Field(&Finding::verdict, Compliance::ok)))
      << ::testing::PrintToString(verdicts.rules(Compliance::broken));
  EXPECT_THAT(verdicts.findings, Each(Field(&Finding::hint, IsEmpty())));
  EXPECT_THAT(verdicts.rules(Compliance::ok),
              ElementsAre("ready", "ping", "case", "figures", "fences", "impossible case", "unknown function",
                          "unknown fields", "unknown op", "deep line", "long line", "stacks", "stdout", "shutdown",
                          "end of stdin", "ping under load", "cancel", "throw of rank 0", "throw of rank 1",
                          "kill of rank 0", "kill of rank 1"));
  EXPECT_EQ(verdicts.tally.rules.at(Compliance::ok), 21);
  EXPECT_TRUE(verdicts.tally.started);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

struct Break {
  std::string rule;                // the value of the worker's option --break
  std::vector<std::string> lines;  // the rules whose findings have this verdict
  std::string text;                // part of the first finding
  bool waits = false;              // the run waits for an answer that never comes
  Compliance verdict = Compliance::broken;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const Break& row, std::ostream* out) {
  *out << row.rule;
}

const std::vector<Break> kBreaks{
    {"ready", {"ready"}, "not ready within 1000 ms", true},
    {"start", {"ready"}, ": no license for this machine"},  // of either rank: which ends first is open
    {"version", {"ready"}, "protocol version 2"},
    {"world_size", {"ready"}, "3 ranks, not the 2 that were started"},
    {"json", {"ready"}, "a line that is no message"},
    {"ready_once", {"ready"}, "ready twice"},
    {"result_of_a_case", {"ready"}, "a result for seq 1 before the worker was ready"},
    {"set_apart", {"stdout"}, "fd 1 of rank 0 is the pipe of the protocol"},
    {"line_of_its_own", {"stdout"}, "a line that is no message came between the answers: half a line"},
    {"started", {"case"}, "a result without started before it"},
    {"started_first", {"case"}, "started after the result"},
    {"seq", {"case"}, "where seq 3 was asked for"},
    {"one_result", {"case"}, "a second result"},
    {"nan", {"case"}, "write the strings \"nan\", \"inf\", \"-inf\""},
    {"reason", {"case"}, "a skip without a reason"},
    {"rank_of_the_group", {"case"}, "a result of rank 2, of 2 ranks"},
    {"bound", {"figures"}, "out of rank 1 has error 2 > bound 1"},
    {"ranks", {"figures"}, "lack rank 1 of 2"},
    {"checks", {"figures"}, "without a check of ranks 0, 1"},
    {"promise", {"figures"}, "but no promise of them", false, Compliance::absent},
    {"fences", {"fences"}, "stderr of rank 0, 1", false, Compliance::absent},
    {"fence_of_every_rank", {"fences"}, "stderr of rank 1"},
    {"skip", {"impossible case"}, "\"comm\":\"by_carrier_pigeon\" is a pass"},
    {"unknown_function", {"unknown function"}, "a call of an unknown function is a pass"},
    {"unknown_fields", {"unknown fields"}, "unknown field x_conformance"},
    {"unknown_op", {"unknown op"}, "no protocol_error"},
    {"unknown_op_dies", {"unknown op"}, "rank 0 died: exit 6"},
    {"pong", {"ping"}, "no pong", true},
    {"seq_of_pong", {"ping"}, "no pong", true},
    {"pong_under_load", {"ping under load"}, "no pong while a rank hung", true},
    {"deep_lines", {"deep line"}, "too deep"},
    {"long_lines", {"long line"}, "rank 0 died: exit 5"},
    {"stacks", {"stacks"}, "signal 12 (SIGUSR2)", false, Compliance::absent},
    {"shutdown", {"shutdown"}, "rank 0, 1 still lives", true},
    {"end_of_stdin", {"end of stdin"}, "rank 0, 1 still lives", true},
    {"no_process_is_left", {"shutdown"}, "the ranks have ended, and process"},
    {"cancel", {"cancel"}, "no result, though capabilities.requests lists cancel", true},
    {"refusal_of_cancel", {"cancel"}, "a protocol_error with the seq of the case"},
    {"one_result_of_cancel", {"cancel"}, "a second result"},
    {"offer", {"cancel"}, "cancel is ignored, and not offered", false, Compliance::absent},
    {"report_of_throw", {"throw of rank 0", "throw of rank 1"}, "no result within 1000 ms", true},
    {"name_in_throw", {"throw of rank 0", "throw of rank 1"}, "does not name rank 0"},
    {"outcome_of_throw", {"throw of rank 0", "throw of rank 1"}, "told as timeout"},
    {"death", {"kill of rank 0", "kill of rank 1"}, "the process of rank 0 lives on", true},
    {"obeys_faults",
     {"ping under load", "cancel", "throw of rank 0", "throw of rank 1", "kill of rank 0", "kill of rank 1"},
     "",
     false,
     Compliance::untested},
};

class BrokenRule : public testing::TestWithParam<Break> {};

TEST_P(BrokenRule, IsNamedByItsLine) {
  const Break& row = GetParam();
  const Verdicts verdicts =
      verdicts_on_breaker_of(row.rule, row.waits ? std::chrono::seconds(1) : std::chrono::seconds(20));
  if (row.waits) {  // the time limit is short, so on a slow machine other answers may be late, too
    EXPECT_THAT(verdicts.rules(row.verdict), testing::IsSupersetOf(row.lines));
  } else {
    EXPECT_EQ(verdicts.rules(row.verdict), row.lines) << verdicts.all_texts();
  }
  EXPECT_THAT(verdicts.text_of(row.lines.front()), HasSubstr(row.text));
  if (row.verdict != Compliance::broken) {
    EXPECT_THAT(verdicts.rules(Compliance::broken), IsEmpty());
  }
  for (const Finding& finding : verdicts.findings) {
    EXPECT_EQ(finding.hint.empty(), finding.verdict == Compliance::ok) << finding.rule;
  }
  EXPECT_THAT(processes_left(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Table, BrokenRule, testing::ValuesIn(kBreaks),
                         [](const testing::TestParamInfo<Break>& info) { return info.param.rule; });

TEST(Conformance, OfAWorkerThatIsMissingSaysSoAndNoMore) {
  const Verdicts verdicts = verdicts_on({"/no/such/worker"});
  ASSERT_EQ(verdicts.findings.size(), 1U);
  EXPECT_THAT(verdicts.text_of("ready"), HasSubstr("/no/such/worker"));
  EXPECT_FALSE(verdicts.tally.started);
}

}  // namespace
}  // namespace cp_pool::driver_test
