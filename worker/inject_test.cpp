// Tests of requested faults that change or delay answers (wrong, flaky, slow), and of faults from the environment.
#include <gmock/gmock.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool::test {
namespace {

using protocol::ResultEvent;
using namespace ::testing;

WorkerGroup::Config asking_by_environment(const std::string& faults) {
  return {.environment = {{"CP_POOL_INJECT", faults}}};
}

TEST(WorkerInject, ObeysItsEnvironment) {
  ReadyGroup group(asking_by_environment("wrong=dv@1:inside:bad throw@0:before:worse"));
  const auto bad = group.run("bad");
  EXPECT_EQ(bad.outcome, CaseOutcome::fail);
  EXPECT_THAT(bad.reason, StartsWith("rank 1: dv: "));
  EXPECT_TRUE(bad.healthy);
  EXPECT_EQ(group.run("good").outcome, CaseOutcome::pass);
  // The last case, because on a busy machine the pool may not be back in time after it.
  EXPECT_EQ(group.run("worse").outcome, CaseOutcome::error);
}

TEST(WorkerInject, NamesTheVariableThatItCannotRead) {
  WorkerGroup group(asking_by_environment("throw@1:inside wrong@1:after"));
  EXPECT_EQ(group.wait_for_exit(0), "exit 2");
  EXPECT_THAT(group.read_stderr(0), StartsWith("cp-pool-worker: CP_POOL_INJECT \"wrong@1:after\": wrong changes"));
}

TEST(WorkerInject, AWrongTensorThatTheCaseDoesNotHaveIsNamedAndDoesNothing) {
  ReadyGroup group({.arguments = {"--inject", "wrong=dbias@1:inside", "--inject", "wrong=dq@0:inside:forward"}});
  EXPECT_EQ(group.run("plain").outcome, CaseOutcome::pass);
  EXPECT_EQ(group.run("forward", {{"training", false}}).outcome, CaseOutcome::pass);
  EXPECT_THAT(group.read_stderr(1), HasSubstr("rank 1: injected fault wrong=dbias: this case has no dbias"));
  EXPECT_THAT(group.read_stderr(0), HasSubstr("rank 0: injected fault wrong=dq: this case has no dq"));
}

TEST(WorkerInject, ASlowCaseTakesItsTimeAndPasses) {
  for (const char* phase : {"before", "inside", "after", "result"}) {
    ReadyGroup group({.arguments = {"--inject", std::string("slow=60@1:") + phase}});
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(group.run("one").outcome, CaseOutcome::pass) << phase;
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(60)) << phase;
  }
}

// The result and diagnosis of a case that is wrong on rank 1, and the outcome of the case after it.
struct Asked {
  ResultEvent result;
  protocol::DiagnosisEvent diagnosis;
  std::string next;
};
Asked ask_why(const std::string& fault, std::int64_t diagnosis_ms = 20'000) {
  ReadyGroup group({.arguments = {"--inject", "wrong=dv@1:inside:bad", "--inject", fault}});
  protocol::RunRequest request;
  request.seq = 100;
  request.id = "bad";
  request.case_json = small_case(2);
  request.timeout_ms = 20000;
  request.options.diagnosis_ms = diagnosis_ms;
  group.send(request);
  Asked asked;
  asked.result = group.next<ResultEvent>();
  asked.diagnosis = group.next<protocol::DiagnosisEvent>();
  if (asked.diagnosis.healthy) asked.next = to_string(group.run("good").outcome);
  return asked;
}

TEST(WorkerDiagnosis, FollowsTheResultOfAFail) {
  const Asked asked = ask_why("throw@1:diagnosis:other");
  EXPECT_EQ(asked.result.outcome, CaseOutcome::fail);
  EXPECT_TRUE(asked.result.diagnosing);
  EXPECT_EQ(asked.diagnosis.seq, 100);
  EXPECT_THAT(asked.diagnosis.diagnosis.cause, testing::Not(StartsWith("the diagnosis failed")));
  EXPECT_GT(asked.diagnosis.diagnosis.ms, 0);
  EXPECT_EQ(asked.next, "pass");
}

TEST(WorkerDiagnosis, ThatThrowsOnARankIsUnknownAndThePoolGoesOn) {
  for (const char* rank : {"0", "1"}) {
    Asked asked;
    for (int i = 0; i < kTriesToRecover && asked.next.empty(); ++i) {
      asked = ask_why(std::string("throw@") + rank + ":diagnosis");
    }
    EXPECT_EQ(asked.result.outcome, CaseOutcome::fail);
    EXPECT_TRUE(asked.result.healthy);
    EXPECT_EQ(asked.diagnosis.diagnosis.certainty, Certainty::unknown);
    EXPECT_THAT(asked.diagnosis.diagnosis.cause,
                AllOf(StartsWith(std::string("the diagnosis failed: rank ") + rank), HasSubstr("injected fault")));
    EXPECT_EQ(asked.next, "pass");
  }
}

TEST(WorkerDiagnosis, InWhichARankHangsEndsByItselfAndAsksForANewPool) {
  const Asked asked = ask_why("hang@1:diagnosis", 500);
  EXPECT_FALSE(asked.diagnosis.healthy);
  EXPECT_THAT(asked.diagnosis.diagnosis.cause,
              AllOf(StartsWith("the diagnosis failed: rank 0: "), HasSubstr("not every rank came back")));
}

}  // namespace
}  // namespace cp_pool::test
