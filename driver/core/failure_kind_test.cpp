#include "driver/core/failure_kind.h"

#include <fmt/format.h>
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

std::string how(const CaseFinished& event) {
  return failure_signature(event).how;
}

std::string of_checks(std::vector<Check> checks) {
  CaseFinished event = ended(CaseOutcome::fail, "something is wrong");
  event.checks = std::move(checks);
  return how(event);
}

TEST(FailureSignature, OfAWrongAnswerIsTheFirstTensorWhateverTheRank) {
  EXPECT_EQ(of_checks({check(0, "out", true), check(0, "dq", false), check(1, "out", true), check(1, "dq", true)}),
            "fail of dq");
  EXPECT_EQ(of_checks({check(0, "out", true), check(0, "dq", false), check(1, "out", false), check(1, "dq", true)}),
            "fail of out");
  EXPECT_EQ(how(ended(CaseOutcome::fail, "3.5 times as slow as the baseline")), "fail: times as slow as the baseline");
}

TEST(FailureSignature, OfAnErrorIsItsFirstLineWithoutNumbers) {
  const std::string one = how(ended(CaseOutcome::error, "rank 1: shape [2, 16] at 0x7fa3b0 is wrong\nstack 1"));
  EXPECT_EQ(one, how(ended(CaseOutcome::error, "rank 3: shape [4, 8] at 0xffee12 is wrong\nstack 2")));
  EXPECT_NE(one, how(ended(CaseOutcome::error, "rank 1: stride [2, 16] at 0x7fa3b0 is wrong")));
  EXPECT_EQ(how(ended(CaseOutcome::error, "")), "error");
}

TEST(FailureSignature, OfACrashIsHowTheFirstRankDiedAndWhere) {
  EXPECT_EQ(how(ended(CaseOutcome::crash, "rank 1 died: signal 11 (SIGSEGV); rank 0 died: exit 1 (in forward)")),
            "crash: signal 11 (SIGSEGV) (in forward)");
  EXPECT_EQ(how(ended(CaseOutcome::crash, "rank 0 died: signal 11 (SIGSEGV) (in forward)")),
            "crash: signal 11 (SIGSEGV) (in forward)");
  EXPECT_EQ(how(ended(CaseOutcome::crash, "rank 0 died: exit 3")), "crash: exit 3");
  EXPECT_EQ(how(ended(CaseOutcome::crash, "a result for seq 17, which is not outstanding")),
            "crash: a result for seq, which is not outstanding");
}

TEST(FailureSignature, OfATimeoutIsWhereItHungWhateverTheDeadline) {
  EXPECT_EQ(how(ended(CaseOutcome::timeout, "no result within 90000 ms (--timeout); the last phase was forward")),
            "timeout: the last phase was forward");
  EXPECT_EQ(how(ended(CaseOutcome::timeout, "no result within 2000 ms (its own deadline)")), "timeout");
  EXPECT_EQ(how(ended(CaseOutcome::timeout, "rank 1: waited 900 ms for K and V of rank 0")),
            "timeout: rank: waited ms for K and V of rank");
}

TEST(FailureSignature, OfNoFailureIsEmpty) {
  for (const CaseOutcome outcome : {CaseOutcome::pass, CaseOutcome::skip, CaseOutcome::infra, CaseOutcome::cancelled}) {
    EXPECT_EQ(how(ended(outcome, "a reason")), "");
  }
}

CaseFinished wrong(const std::string& message, int rank = 0) {
  CaseFinished event = ended(CaseOutcome::fail, fmt::format("rank {}: out: {}", rank, message));
  event.id = message;
  event.checks = {check(0, "out", rank != 0), check(1, "out", rank != 1)};
  event.checks[static_cast<std::size_t>(rank)].message = message;
  return event;
}

Diagnosis cause(const std::string& id, Certainty certainty = Certainty::certain) {
  Diagnosis out;
  out.id = id;
  out.certainty = certainty;
  return out;
}

TEST(FailureSignature, IsTheSameWhateverTheFiguresAndTheRankThatSpokeFirst) {
  const FailureSignature one =
      failure_signature(wrong("error beyond the bound in 5 of 512 rows; the worst needs 31 x baseline"));
  EXPECT_EQ(one,
            failure_signature(wrong("error beyond the bound in 80 of 96 rows; the worst needs 4.5 x baseline", 1)));
  EXPECT_NE(one, failure_signature(wrong("NaN in 3 rows")));
}

TEST(FailureSignature, OfAnotherCauseIsAnother) {
  CaseFinished event = wrong("NaN in 3 rows");
  event.diagnosis = cause("no_mask");
  const FailureSignature named = failure_signature(event);
  EXPECT_EQ(named, (FailureSignature{.how = "fail of out", .origin = "no_mask"}));
  event.checks[0].message = "error beyond the bound in 5 of 512 rows";
  EXPECT_EQ(named, failure_signature(event)) << "a cause says more than the check";
  event.diagnosis = cause("whole_keys");
  EXPECT_NE(named, failure_signature(event));
  event.diagnosis = cause("unknown", Certainty::unknown);
  EXPECT_EQ(failure_signature(event), failure_signature(wrong("error beyond the bound in 5 of 512 rows")));
}

TEST(FailureSignature, OfAnErrorThrownElsewhereIsAnother) {
  const auto thrown = [](const std::string& function) {
    CaseFinished event = ended(CaseOutcome::error, "rank 1: cannot map");
    event.ranks = {{{}, 1, false, false, "cannot map\nthrown from:\n  #0 " + function + "(int) in /w/x\n"}};
    return failure_signature(event);
  };
  EXPECT_EQ(thrown("send"), thrown("send"));
  EXPECT_NE(thrown("send"), thrown("receive"));
}

TEST(FailureSignature, OfATimeoutIsWhereTheRanksStoodWhateverTheirNumbers) {
  const auto hung = [](const std::string& last_of_0, const std::string& last_of_1) {
    CaseFinished event = ended(CaseOutcome::timeout, "no result within 5000 ms");
    event.stderr_tails = {{.rank = 0, .text = "poll\n" + last_of_0 + '\n', .fenced = true},
                          {.rank = 1, .text = last_of_1 + '\n', .fenced = true}};
    return failure_signature(event);
  };
  EXPECT_EQ(hung("rank 0: in exchange", "rank 1: in barrier"), hung("rank 0: in barrier", "rank 1: in exchange"));
  EXPECT_NE(hung("rank 0: in exchange", "rank 1: in barrier"), hung("rank 0: in barrier", "rank 1: in barrier"));
}

TEST(FailureSignature, OfAnUnexpectedPassIsItsExpectation) {
  CaseFinished event = ended(CaseOutcome::pass, "");
  EXPECT_EQ(how(event), "");
  event.expected = Expected{.outcome = CaseOutcome::fail, .reason = "bug 7", .strict = true};
  EXPECT_EQ(how(event), "pass, expected to fail: bug 7");
}

TEST(FailureKinds, AreNumberedInTheOrderOfTheirFirstFailures) {
  FailureKinds kinds;
  EXPECT_EQ(kinds.add(wrong("NaN in 3 rows")), 0U);
  EXPECT_EQ(kinds.add(wrong("error beyond the bound in 5 of 512 rows")), 1U);
  EXPECT_EQ(kinds.add(wrong("NaN in 4 rows", 1)), 0U);
}

// With --repeat only the first failure of a case is diagnosed.
TEST(FailureKinds, OfACaseThatFailsAgainUndiagnosedAreOne) {
  FailureKinds kinds;
  CaseFinished event = wrong("NaN in 3 rows");
  event.diagnosis = cause("no_mask");
  EXPECT_EQ(kinds.add(event), 0U);
  event.diagnosis.reset();
  EXPECT_EQ(kinds.add(event), 0U);
  event.id = "another case";
  EXPECT_EQ(kinds.add(event), 1U) << "nothing says that the cause is the same";
}

TEST(FailureKinds, NameTheFirstOfTheirKind) {
  FailureKinds kinds;
  const auto error = [](const std::string& id, const std::string& reason) {
    return test::finished(0, id, CaseOutcome::error, reason);
  };
  EXPECT_EQ(kinds.first_like(error("a", "rank 1: cannot map 0x7fa0")), "");
  EXPECT_EQ(kinds.first_like(error("b", "rank 0: cannot map 0x12")), "a");
  EXPECT_EQ(kinds.first_like(error("c", "rank 1: cannot unmap 0x12")), "");
  EXPECT_EQ(kinds.first_like(error("d", "rank 1: cannot unmap 0x7fa0")), "c");
}

}  // namespace
}  // namespace cp_pool
