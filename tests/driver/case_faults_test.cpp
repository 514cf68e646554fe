// A table of faults that a rank can have in the middle of a case. For each row the test checks that the case has its
// outcome within its deadline, that its stderr tail belongs to that case, that the next case passes, that no process
// and no file descriptor is left, and that the ledger is exact.
#include <ostream>

#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

// The deadline of cases that hang. The other kinds must end without a deadline.
constexpr milliseconds kTimeout{1000};

struct Fault {
  std::string model;
  std::string outcome;
  std::string retired;  // why the pool was retired; empty if it was not
  std::string reason;   // part of the reason of the case
  bool hangs = false;   // the case ends at its deadline
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.model;
}

const std::vector<Fault> kFaults{
    {"sigsegv", "crash", "crash", "rank 0 died: signal 11 (SIGSEGV)"},
    {"sigsegv@1", "crash", "crash", "rank 1 died: signal 11 (SIGSEGV)"},
    {"sigabrt", "crash", "crash", "signal 6 (SIGABRT)"},
    {"sigabrt@1", "crash", "crash", "signal 6 (SIGABRT)"},
    {"sigkill", "crash", "crash", "signal 9 (SIGKILL)"},
    {"sigkill@1", "crash", "crash", "signal 9 (SIGKILL)"},
    {"exit0", "crash", "crash", "rank 0 died: exit 0"},
    {"exit0@1", "crash", "crash", "rank 1 died: exit 0"},
    {"exit3", "crash", "crash", "exit 3"},
    {"exit3@1", "crash", "crash", "exit 3"},
    {"half_result_then_exit", "crash", "crash", "exit 3"},
    {"progress_then_exit", "crash", "crash", " (in backward)"},
    {"setsid_grandchild_then_exit", "crash", "crash", "exit 3"},
    {"setsid_grandchild_then_exit@1", "crash", "crash", "exit 3"},
    {"result_then_death", "pass", "died_after_result", ""},
    {"fail_then_exit", "fail", "died_after_result", "it is fail_then_exit"},
    {"closes_stdin", "pass", "stdin_broken", ""},
    {"two_results", "pass", "protocol_break", ""},
    {"garbage_when_idle", "pass", "protocol_break", ""},
    {"hang", "timeout", "timeout", "no result within 1000 ms", true},
    {"hang@1", "timeout", "timeout", "no result within 1000 ms", true},
    {"sigstop@1", "timeout", "timeout", "no result within", true},
    {"sigstop", "timeout", "timeout", "no result within", true},
    {"progress_then_hang", "timeout", "timeout", "the last phase was backward", true},
    {"pass_when_late", "timeout", "timeout", "no result within 1000 ms", true},
    {"half_line", "timeout", "timeout", "no result within", true},
    {"half_stderr_line@1", "timeout", "timeout", "no result within", true},
    {"ignore_sigterm", "timeout", "timeout", "no result within", true},
    {"ignore_sigterm@1", "timeout", "timeout", "no result within", true},
    {"setsid_grandchild", "timeout", "timeout", "no result within", true},
    {"setsid_grandchild@1", "timeout", "timeout", "no result within", true},
    {"bare_grandchild@1", "timeout", "timeout", "no result within", true},
    {"garbage_after_sentinel", "crash", "protocol_break", "a line that is no message"},
    {"deep_json", "crash", "protocol_break", "nested more than 64 deep"},
    {"long_line", "crash", "protocol_break", "a line of more than 16 MiB"},
    {"wrong_seq", "crash", "protocol_break", "which is not outstanding"},
    {"cancelled", "crash", "protocol_break", "a result \"cancelled\", though nothing was cancelled"},
    {"pass_of_wrong_numbers", "error", "protocol_break", "a result \"pass\", though dq of rank 1 is not ok"},
    {"pass_of_failed_rank", "error", "protocol_break", "a result \"pass\", though rank 1 is not ok"},
    {"pass_that_lacks_a_rank", "error", "protocol_break", "a result \"pass\" whose ranks lack rank 1 of 2"},
    {"pass_beyond_bound", "error", "protocol_break", "though dq of rank 1 has error 0.5 > bound 0.25"},
    {"pass_of_nan", "error", "protocol_break", "though dq of rank 1 has error nan"},
    {"pass_within_bound", "pass", "", ""},
    {"rank_too_many", "crash", "protocol_break", "a result of rank 2, of 2 ranks"},
    {"check_of_rank_too_many", "crash", "protocol_break", "a check of rank 2, of 2 ranks"},
    {"rank_twice", "crash", "protocol_break", "a result with rank 1 twice"},
    {"closes_stdout", "crash", "protocol_break", "rank 0 closed its stdout"},
    {"unhealthy", "error", "unhealthy", "the communicator cannot be rebuilt"},
    {"invalid_utf8", "error", "", "it is invalid_utf8"},
    {"no_fence", "error", "", "it is no_fence"},
    {"refuse", "error", "", "no such case here"},
    {"fail", "fail", "", "it is fail"},
    {"error", "error", "", "it is error"},
    {"timeout", "timeout", "", "it is timeout"},
    {"chatter_stderr", "fail", "", "it is chatter_stderr"},
    {"closes_stderr@1", "pass", "", ""},
    {"chatter_stdout", "pass", "", ""},
    {"daemon@1", "pass", "", ""},
};

class CaseFault : public testing::TestWithParam<Fault> {};

int faulty_rank(const Fault& fault) {
  return fault.model.ends_with("@1") ? 1 : 0;
}

void expect_tail_of_this_case(const Fault& fault, const CaseFinished& faulty) {
  ASSERT_EQ(faulty.stderr_tails.size(), 2U);
  const StderrTail& tail = faulty.stderr_tails[static_cast<std::size_t>(faulty_rank(fault))];
  EXPECT_EQ(tail.rank, faulty_rank(fault));
  EXPECT_LE(tail.text.size(), 4096U);
  EXPECT_THAT(tail.text, testing::Not(HasSubstr("seq 1")));
  // A refused case writes nothing, and a flood pushes the first lines out of the tail.
  if (fault.model == "refuse" || fault.model == "chatter_stderr") return;
  EXPECT_THAT(tail.text, HasSubstr("starts " + fault.model + " seq 2"));
}

TEST_P(CaseFault, HasItsOutcomeAndHurtsNoOtherCase) {
  const Fault& fault = GetParam();
  RunConfig config = fake_config();
  if (fault.hangs) config.timeout = kTimeout;
  const std::size_t descriptors = open_descriptors();

  const Recorder recorder = run(fake_cases({"pass", fault.model, "pass"}), config);

  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", fault.outcome, "pass"));
  const CaseFinished& faulty = recorder.finished(1);
  EXPECT_THAT(faulty.reason, HasSubstr(fault.reason));
  if (fault.hangs) {
    EXPECT_GE(faulty.duration_ms, kTimeout.count());
  }
  EXPECT_LT(faulty.duration_ms, 30'000) << "a case that does not hang has this time limit";

  if (fault.outcome != "pass") expect_tail_of_this_case(fault, faulty);

  if (fault.retired.empty()) {
    EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
    EXPECT_EQ(recorder.finished(2).pool->generation, 1);
  } else {
    EXPECT_THAT(recorder.retirements(), ElementsAre(fault.retired, "finished"));
    EXPECT_EQ(recorder.finished(2).pool->generation, 2);
  }
  for (const PoolRetired& retired : recorder.all<PoolRetired>()) EXPECT_THAT(retired.leftovers, IsEmpty());
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().expanded, 3U);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

std::string test_name(const testing::TestParamInfo<Fault>& info) {
  std::string name = info.param.model;
  if (const std::size_t at = name.find('@'); at != std::string::npos) name.replace(at, 1, "_rank");
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, CaseFault, testing::ValuesIn(kFaults), test_name);

}  // namespace
}  // namespace cp_pool::driver_test
