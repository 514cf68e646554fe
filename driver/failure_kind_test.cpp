#include "driver/failure_kind.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

CaseFinished ended(CaseOutcome outcome, std::string reason) {
  CaseFinished event;
  event.outcome = outcome;
  event.reason = std::move(reason);
  return event;
}

Check check(int rank, const char* tensor, bool ok) {
  Check out;
  out.rank = rank;
  out.tensor = tensor;
  out.ok = ok;
  return out;
}

std::string of_checks(std::vector<Check> checks) {
  CaseFinished event = ended(CaseOutcome::fail, "something is wrong");
  event.checks = std::move(checks);
  return failure_kind(event);
}

TEST(FailureKind, OfAWrongAnswerIsTheFirstTensorWhateverTheRank) {
  EXPECT_EQ(of_checks({check(0, "out", true), check(0, "dq", false), check(1, "out", true), check(1, "dq", true)}),
            "fail of dq");
  EXPECT_EQ(of_checks({check(0, "out", true), check(0, "dq", false), check(1, "out", false), check(1, "dq", true)}),
            "fail of out");
  EXPECT_EQ(failure_kind(ended(CaseOutcome::fail, "3.5 times as slow as the baseline")),
            "fail: times as slow as the baseline");
}

TEST(FailureKind, OfAnErrorIsItsFirstLineWithoutNumbers) {
  const std::string one =
      failure_kind(ended(CaseOutcome::error, "rank 1: shape [2, 16] at 0x7fa3b0 is wrong\nstack 1"));
  EXPECT_EQ(one, failure_kind(ended(CaseOutcome::error, "rank 3: shape [4, 8] at 0xffee12 is wrong\nstack 2")));
  EXPECT_NE(one, failure_kind(ended(CaseOutcome::error, "rank 1: stride [2, 16] at 0x7fa3b0 is wrong")));
  EXPECT_EQ(failure_kind(ended(CaseOutcome::error, "")), "error");
}

TEST(FailureKind, OfACrashIsHowTheFirstRankDiedAndWhere) {
  EXPECT_EQ(
      failure_kind(ended(CaseOutcome::crash, "rank 1 died: signal 11 (SIGSEGV); rank 0 died: exit 1 (in forward)")),
      "crash: signal 11 (SIGSEGV) (in forward)");
  EXPECT_EQ(failure_kind(ended(CaseOutcome::crash, "rank 0 died: signal 11 (SIGSEGV) (in forward)")),
            "crash: signal 11 (SIGSEGV) (in forward)");
  EXPECT_EQ(failure_kind(ended(CaseOutcome::crash, "rank 0 died: exit 3")), "crash: exit 3");
  EXPECT_EQ(failure_kind(ended(CaseOutcome::crash, "a result for seq 17, which is not outstanding")),
            "crash: a result for seq, which is not outstanding");
}

TEST(FailureKind, OfATimeoutIsWhereItHungWhateverTheDeadline) {
  EXPECT_EQ(
      failure_kind(ended(CaseOutcome::timeout, "no result within 90000 ms (--timeout); the last phase was forward")),
      "timeout: the last phase was forward");
  EXPECT_EQ(failure_kind(ended(CaseOutcome::timeout, "no result within 2000 ms (its own deadline)")), "timeout");
  EXPECT_EQ(failure_kind(ended(CaseOutcome::timeout, "rank 1: waited 900 ms for K and V of rank 0")),
            "timeout: rank: waited ms for K and V of rank");
}

TEST(FailureKind, OfNoFailureIsEmpty) {
  for (const CaseOutcome outcome : {CaseOutcome::pass, CaseOutcome::skip, CaseOutcome::infra, CaseOutcome::cancelled}) {
    EXPECT_EQ(failure_kind(ended(outcome, "a reason")), "");
  }
}

}  // namespace
}  // namespace cp_pool
