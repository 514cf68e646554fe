#include "worker/rank_messages.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "cases/enum_names.h"
#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

TEST(RankMessages, CommandsComeBackAsTheyWereSent) {
  const RunCommand sent{
      .seq = 5,
      .id = "a",
      .case_json = {{"heads", 3}},
      .call = {},
      .timeout_ms = 70,
      .options = {
          .dump_dir = "/d", .reference_cache = false, .perf = protocol::PerfRequest{.warmup = 3, .iterations = 9}}};
  const auto got = std::get<RunCommand>(decode<ComputeCommand>(encode(ComputeCommand{sent})));
  EXPECT_EQ(got.seq, 5);
  EXPECT_EQ(got.case_json, sent.case_json);
  EXPECT_EQ(got.options.dump_dir, "/d");
  EXPECT_FALSE(got.options.reference_cache);
  ASSERT_TRUE(got.options.perf);
  EXPECT_EQ(got.options.perf->iterations, 9);
  const auto begin = std::get<BeginCommand>(decode<ComputeCommand>(encode(ComputeCommand{BeginCommand{4, false}})));
  EXPECT_EQ(begin.seq, 4);
  EXPECT_FALSE(begin.go);
  const auto leave =
      std::get<LeaveCommand>(decode<ComputeCommand>(encode(ComputeCommand{LeaveCommand{4, false, "rank 1"}})));
  EXPECT_EQ(leave.seq, 4);
  EXPECT_FALSE(leave.go);
  EXPECT_EQ(leave.difference, "rank 1");
  EXPECT_EQ(std::get<RebuildCommand>(decode<ComputeCommand>(encode(ComputeCommand{RebuildCommand{3}}))).generation, 3);
  EXPECT_TRUE(std::holds_alternative<ExitCommand>(decode<ComputeCommand>(encode(ComputeCommand{ExitCommand{}}))));
  EXPECT_EQ(std::get<AbortCommand>(decode<ControlCommand>(encode(ControlCommand{AbortCommand{4}}))).generation, 4);
  const PrepareCommand hint{.case_json = {{"heads", 3}}};
  EXPECT_EQ(std::get<PrepareCommand>(decode<ControlCommand>(encode(ControlCommand{hint}))).case_json, hint.case_json);
}

TEST(RankMessages, ArrivalsKeepWhatHasBegunInEachGroup) {
  const CaseArrived sent{3, 9, {{"", 0, 4}, {" of its inner group", 2, 1}}};
  const auto got = std::get<CaseArrived>(decode<RankMessage>(encode(RankMessage{sent})));
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.seq, 9);
  ASSERT_EQ(got.begun.size(), 2U);
  EXPECT_EQ(got.begun[1].group, " of its inner group");
  EXPECT_EQ(got.begun[1].first_rank, 2);
  EXPECT_EQ(got.begun[1].operations, 1);
}

TEST(RankMessages, OutcomesKeepNonFiniteNumbersAndForeignBytes) {
  CaseDone sent;
  sent.seq = 9;
  sent.outcome.rank = 1;
  sent.outcome.verdict = CaseOutcome::fail;
  sent.outcome.failure = Failure{FailureKind::timeout, FailurePhase::barrier, "s", "bad \xff byte"};
  Check check;
  check.tensor = "dq";
  check.max_abs = std::nan("");
  check.bound = std::numeric_limits<double>::infinity();
  check.worst_index = {1, 2};
  sent.outcome.checks.push_back(check);
  StepTimes& perf = sent.outcome.perf.emplace();
  perf.step_ms = {0.5, 2};
  perf.bytes_sent = 5;
  perf.one_rank_ms = {.median = 3, .min = 2, .max = 4};
  perf.one_rank_reason = "r";
  sent.outcome.lost_outputs = {{"trace", "bad \xff name"}};
  const auto got = std::get<CaseDone>(decode<RankMessage>(encode(RankMessage{sent})));
  EXPECT_EQ(got.seq, 9);
  EXPECT_EQ(got.outcome.lost_outputs.at(0).output, "trace");
  EXPECT_EQ(got.outcome.lost_outputs.at(0).message, "bad \xff name");
  EXPECT_EQ(got.outcome.verdict, CaseOutcome::fail);
  EXPECT_EQ(got.outcome.failure->kind, FailureKind::timeout);
  EXPECT_EQ(got.outcome.failure->phase, FailurePhase::barrier);
  EXPECT_EQ(got.outcome.failure->text, "bad \xff byte");
  EXPECT_TRUE(std::isnan(got.outcome.checks.at(0).max_abs));
  EXPECT_EQ(got.outcome.checks.at(0).bound, check.bound);
  EXPECT_EQ(got.outcome.checks.at(0).worst_index, check.worst_index);
  ASSERT_TRUE(got.outcome.perf);
  EXPECT_EQ(got.outcome.perf->step_ms, sent.outcome.perf->step_ms);
  ASSERT_TRUE(got.outcome.perf->one_rank_ms);
  EXPECT_EQ(got.outcome.perf->one_rank_ms->median, 3);
  EXPECT_EQ(got.outcome.perf->one_rank_ms->min, 2);
  EXPECT_EQ(got.outcome.perf->one_rank_ms->max, 4);
  EXPECT_EQ(got.outcome.perf->one_rank_reason, "r");
  EXPECT_EQ(got.outcome.perf->bytes_sent, 5);
}

TEST(RankMessages, AProbeComesBackWithWhereTheRankStands) {
  const Probed sent{5, {1, "forward", 2.5, "all_to_all on group cp: bad \xff byte", 1.5}};
  const auto got = std::get<Probed>(decode<RankMessage>(encode(RankMessage{sent})));
  EXPECT_EQ(got.token, 5);
  EXPECT_EQ(got.where.rank, 1);
  EXPECT_EQ(got.where.phase, "forward");
  EXPECT_EQ(got.where.ms, 2.5);
  EXPECT_EQ(got.where.operation, sent.where.operation);
  EXPECT_EQ(got.where.operation_ms, 1.5);
}

TEST(RankMessages, AnOutcomeMayHaveNeitherVerdictNorFailure) {
  const auto got = std::get<CaseDone>(decode<RankMessage>(encode(RankMessage{CaseDone{}})));
  EXPECT_FALSE(got.outcome.verdict.has_value());
  EXPECT_FALSE(got.outcome.failure.has_value());
}

TEST(RankMessages, DiagnosesComeBackAsTheyWereSent) {
  const auto asked =
      std::get<DiagnoseCommand>(decode<ComputeCommand>(encode(ComputeCommand{DiagnoseCommand{9, 5000}})));
  EXPECT_EQ(asked.seq, 9);
  EXPECT_EQ(asked.limit_ms, 5000);
  DiagnosisDone sent;
  sent.seq = 9;
  sent.outcome.rank = 1;
  auto got = std::get<DiagnosisDone>(decode<RankMessage>(encode(RankMessage{sent})));
  EXPECT_EQ(got.seq, 9);
  EXPECT_EQ(got.outcome.rank, 1);
  EXPECT_FALSE(got.diagnosis);
  sent.diagnosis.emplace().cause = "it is late";
  got = std::get<DiagnosisDone>(decode<RankMessage>(encode(RankMessage{sent})));
  ASSERT_TRUE(got.diagnosis);
  EXPECT_EQ(got.diagnosis->cause, "it is late");
  CaseDone done;
  done.outcome.can_diagnose = true;
  EXPECT_TRUE(std::get<CaseDone>(decode<RankMessage>(encode(RankMessage{done}))).outcome.can_diagnose);
}

TEST(FailureKind, HasTheNamesThatPythonUses) {
  std::string names;
  for (const std::string& name : all_names<FailureKind>()) names += (names.empty() ? "\"" : ", \"") + name + '"';
  EXPECT_THAT(test::read_file(CP_POOL_SOURCE_DIR "/python/cp_pool/errors.py"),
              ::testing::HasSubstr("\nKind = Literal[" + names + "]\n"));
}

}  // namespace
}  // namespace cp_pool
