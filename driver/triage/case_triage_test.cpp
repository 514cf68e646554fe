#include "driver/triage/case_triage.h"

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using namespace ::testing;

using Ids = std::vector<std::string>;
constexpr CaseOutcome kFail = CaseOutcome::fail;
constexpr CaseOutcome kPass = CaseOutcome::pass;

CaseEnd ended(CaseOutcome outcome, std::string machine = "") {
  return {.outcome = outcome, .reason = outcome == kPass ? "" : "because", .machine = std::move(machine)};
}

Ids history(std::size_t count) {
  Ids out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(fmt::format("c{}", i));
  return out;
}

// A simulated machine with workers: run() says how the case ends after others on a fresh pool.
struct World {
  std::function<CaseEnd(const Ids& before)> run;
  std::vector<Ids> replays = {};

  Verdict triage(const Ids& cases_before, CaseEnd first = ended(kFail)) {
    CaseTriage triage(std::move(first), cases_before);
    while (const auto before = triage.next()) {
      Ids ids;
      for (const std::size_t place : *before) ids.push_back(cases_before.at(place));
      replays.push_back(ids);
      if (replays.size() > 100) throw std::runtime_error("it goes on for ever");
      triage.ended(run(ids));
    }
    return triage.verdict();
  }
};

// A world whose replays end as listed, whatever is run.
World ends(std::vector<CaseEnd> list) {
  return {.run = [list = std::move(list), at = std::size_t{0}](const Ids&) mutable { return list.at(at++); }};
}

std::string told(const Verdict& verdict) {
  return fmt::format("{} {} of {}", name_of(verdict.kind), verdict.k, verdict.n);
}

bool has(const Ids& ids, const std::string& id) {
  return std::ranges::find(ids, id) != ids.end();
}

TEST(CaseTriage, WhatFailsAloneIsReal) {
  World world{.run = [](const Ids&) { return ended(kFail); }};
  const Verdict verdict = world.triage(history(5));
  EXPECT_EQ(told(verdict), "REAL 2 of 2");
  EXPECT_THAT(world.replays, ElementsAre(IsEmpty(), IsEmpty())) << "a third could not change it";
}

TEST(CaseTriage, WhatFailsAloneTwiceOfThreeIsReal) {
  EXPECT_EQ(told(ends({ended(kFail), ended(kPass), ended(kFail)}).triage(history(5))), "REAL 2 of 3");
}

TEST(CaseTriage, WhatFailsAloneOnceOfThreeIsFlaky) {
  EXPECT_EQ(told(ends({ended(kPass), ended(kPass), ended(kFail)}).triage(history(5))), "FLAKY 1 of 3");
}

TEST(CaseTriage, WhatNeverFailsAgainIsFlaky) {
  World world{.run = [](const Ids&) { return ended(kPass); }};
  const Verdict verdict = world.triage(history(5));
  EXPECT_EQ(told(verdict), "FLAKY 0 of 4");
  EXPECT_EQ(world.replays.back(), history(5)) << "as it was sent";
  World alone{.run = [](const Ids&) { return ended(kPass); }};
  EXPECT_EQ(alone.triage({}).kind, VerdictKind::flaky);
  EXPECT_EQ(alone.replays.size(), 3U);
}

// At every position of the culprit.
TEST(CaseTriage, WhatFailsAfterOneCaseIsALeakOfIt) {
  for (std::size_t length = 1; length <= 20; ++length) {
    for (std::size_t place = 0; place < length; ++place) {
      const std::string culprit = history(length).at(place);
      World world{.run = [&](const Ids& before) { return ended(has(before, culprit) ? kFail : kPass); }};
      const Verdict verdict = world.triage(history(length));
      EXPECT_EQ(told(verdict), "STATE_LEAK 2 of 2") << place << " of " << length;
      EXPECT_EQ(verdict.culprit, culprit);
      EXPECT_EQ(std::ranges::count(world.replays, Ids{culprit}), 2);
      EXPECT_LE(world.replays.size(), 11U);
    }
  }
}

TEST(CaseTriage, OfSeveralCulpritsTheLastIsNamed) {
  World world{.run = [](const Ids& before) { return ended(has(before, "c1") || has(before, "c4") ? kFail : kPass); }};
  EXPECT_EQ(world.triage(history(8)).culprit, "c4");
}

TEST(CaseTriage, WhatNeedsSeveralCasesNeedsAWarmPool) {
  World two{.run = [](const Ids& before) { return ended(has(before, "c2") && has(before, "c5") ? kFail : kPass); }};
  const Verdict verdict = two.triage(history(8));
  EXPECT_EQ(told(verdict), "WARM_ONLY 3 of 3");
  EXPECT_FALSE(verdict.culprit);
  EXPECT_THAT(
      verdict.evidence,
      Contains(HasSubstr("after the last 6 of these cases, the case failed; after the last 5, the case passed")));
  World third{.run = [](const Ids& before) { return ended(before.size() == 2 ? kFail : kPass); }};
  EXPECT_EQ(third.triage(history(2)).kind, VerdictKind::warm_only);
}

TEST(CaseTriage, WhatContradictsItselfIsUnknown) {
  const CaseEnd pass = ended(kPass);
  const CaseEnd fail = ended(kFail);
  const CaseEnd crash = ended(CaseOutcome::crash);
  const auto kind_of = [](std::vector<CaseEnd> list, std::size_t length) {
    return ends(std::move(list)).triage(history(length)).kind;
  };
  // The case fails alone, but with another outcome.
  EXPECT_EQ(kind_of({crash, crash}, 0), VerdictKind::unknown);
  EXPECT_EQ(kind_of({crash, pass, pass}, 3), VerdictKind::unknown);
  EXPECT_EQ(kind_of({crash, fail, pass}, 3), VerdictKind::unknown);
  // The case fails after its history, but with another outcome.
  EXPECT_EQ(kind_of({pass, pass, pass, crash}, 3), VerdictKind::unknown);
  // The case fails once of two replays after the suspect.
  EXPECT_EQ(kind_of({pass, pass, pass, fail, pass}, 1), VerdictKind::unknown);
  EXPECT_EQ(kind_of({pass, pass, pass, fail, pass, fail, pass}, 2), VerdictKind::unknown);
  // The case does not fail again after the short end of the history.
  EXPECT_EQ(kind_of({pass, pass, pass, fail, pass, pass, pass}, 2), VerdictKind::unknown);
  EXPECT_EQ(kind_of({pass, pass, pass, fail, pass, pass, fail, pass}, 2), VerdictKind::unknown);
}

TEST(CaseTriage, WhatCannotBeJudgedAgainIsUnknown) {
  const CaseEnd infra = ended(CaseOutcome::infra);
  EXPECT_EQ(ends({infra, infra}).triage(history(3)).kind, VerdictKind::unknown);
  EXPECT_EQ(ends({ended(CaseOutcome::skip), infra}).triage({}).kind, VerdictKind::unknown);
  EXPECT_EQ(ends({infra, ended(kFail), ended(kFail)}).triage({}).kind, VerdictKind::real) << "one more replay";
  EXPECT_EQ(ends({ended(kPass), ended(kPass), ended(kPass), infra}).triage(history(3)).kind, VerdictKind::unknown)
      << "its pool died before";
}

TEST(CaseTriage, WhatTheMachineDidIsItsOwn) {
  const CaseEnd killed = ended(CaseOutcome::crash, "memory ran out");
  const CaseEnd crash = ended(CaseOutcome::crash);
  const CaseEnd pass = ended(kPass);
  const Verdict once = ends({pass, pass, pass}).triage(history(3), killed);
  EXPECT_EQ(once.kind, VerdictKind::infra);
  EXPECT_EQ(once.n, 3);
  EXPECT_THAT(once.evidence, Contains(HasSubstr("memory ran out")));
  const Verdict again = ends({killed, killed}).triage(history(3), killed);
  EXPECT_EQ(again.kind, VerdictKind::infra);
  EXPECT_EQ(again.k, 2);
  EXPECT_EQ(ends({crash, crash}).triage({}, killed).kind, VerdictKind::real) << "it crashes with memory enough";
  EXPECT_EQ(ends({crash, pass, pass}).triage({}, killed).kind, VerdictKind::unknown);
  EXPECT_EQ(ends({killed, killed}).triage({}, ended(kFail)).kind, VerdictKind::unknown)
      << "the machine spoils the replays of a failure that it had no part in";
}

TEST(CaseTriage, SaysWhatItSawSoFar) {
  CaseTriage triage(ended(kFail), history(3));
  for (int i = 0; i < 3; ++i) triage.ended(ended(kPass));
  EXPECT_EQ(triage.verdict().kind, VerdictKind::not_triaged);
  EXPECT_THAT(triage.verdict().evidence,
              ElementsAre("alone on a fresh pool, the case failed in the same way in 0 of 3 replays"));
}

// A case that fails at random rarely gets another verdict, and no sequence of results makes the triage go on for ever.
TEST(CaseTriage, IsRarelyMisledByACaseThatFailsOneTimeInThree) {
  std::mt19937 random(7);
  int misled = 0;
  constexpr int kTimes = 2000;
  for (int i = 0; i < kTimes; ++i) {
    World world{.run = [&](const Ids&) { return ended(random() % 3 == 0 ? kFail : kPass); }};
    const VerdictKind kind = world.triage(history(12)).kind;
    if (kind == VerdictKind::state_leak || kind == VerdictKind::warm_only) ++misled;
    EXPECT_LE(world.replays.size(), 12U);
  }
  EXPECT_LT(misled, kTimes / 40);
}

CaseFinished crash(std::string reason) {
  CaseFinished event;
  event.outcome = CaseOutcome::crash;
  event.reason = std::move(reason);
  return event;
}

TEST(MachineSign, IsWhatTheDriverSaidOfMemoryAndClocks) {
  EXPECT_EQ(machine_sign(crash("rank 1 died: signal 9; meanwhile the kernel killed a process as memory ran out")),
            "memory ran out, and the kernel killed a process (\"rank 1 died: signal 9; meanwhile the kernel killed a "
            "process as memory ran out\")");
  EXPECT_THAT(machine_sign(crash("no result within 90 ms; the machine slept for 12.0 s meanwhile")),
              StartsWith("the machine slept"));
  EXPECT_THAT(machine_sign(crash("x; the machine's clock was set by +3600.0 s meanwhile")),
              StartsWith("the clock was set"));
}

TEST(MachineSign, IsWhatCudaSaysOfADevice) {
  CaseFinished event = crash("an error");
  event.ranks = {
      {{}, 1, /*ok=*/false, /*aborted=*/false, "first\nCUDA error: uncorrectable ECC error encountered\nlast"}};
  EXPECT_EQ(machine_sign(event), "a device failed (\"CUDA error: uncorrectable ECC error encountered\")");
  CaseFinished told = crash("an error");
  told.stderr_tails = {{.rank = 0, .text = "NVRM: GPU has fallen off the bus.\n", .fenced = true}};
  EXPECT_THAT(machine_sign(told), HasSubstr("fallen off the bus"));
}

TEST(MachineSign, IsNotWhatACaseDoesItself) {
  EXPECT_EQ(machine_sign(crash("rank 1 died: signal 9 (SIGKILL)")), "");
  EXPECT_EQ(machine_sign(crash("CUDA error: out of memory")), "");
  EXPECT_EQ(machine_sign(crash("CUDA error: an illegal memory access was encountered")), "");
  EXPECT_EQ(machine_sign(crash("CUDA error: device-side assert triggered")), "");
  CaseFinished wrong = crash("dq is wrong");
  wrong.outcome = CaseOutcome::fail;
  wrong.stderr_tails = {{.rank = 0, .text = "cache: No space left on device\n", .fenced = true}};
  EXPECT_EQ(machine_sign(wrong), "") << "a wrong answer is not excused by what a rank wrote";
  CaseFinished passed = crash("uncorrectable ECC error");
  passed.outcome = CaseOutcome::pass;
  EXPECT_EQ(machine_sign(passed), "");
}

using std::chrono::milliseconds;
using testing::ElementsAre;

FailureToTriage failure(const std::string& kind, double ms) {
  FailureToTriage out;
  out.end.outcome = CaseOutcome::fail;
  out.kind = kind;
  out.ms = ms;
  return out;
}

const CaseEnd kFails{.outcome = CaseOutcome::fail};

// The indices of the failures in the order in which they are replayed, if all of them are real.
std::vector<std::size_t> order_of(TriagePlan& plan) {
  std::vector<std::size_t> out;
  while (const auto replay = plan.next(milliseconds(0))) {
    if (out.empty() || out.back() != replay->failure) out.push_back(replay->failure);
    plan.ended(kFails);
  }
  return out;
}

TEST(TriagePlan, BeginsWithTheCheapestOfEachKind) {
  TriagePlan plan({failure("slow", 900), failure("a", 30), failure("a", 10), failure("b", 20), failure("a", 25)}, {});
  EXPECT_THAT(order_of(plan), ElementsAre(2, 3, 0, 4, 1));
  std::vector<std::size_t> decided;
  for (const auto& [number, verdict] : plan.take_verdicts()) {
    EXPECT_EQ(verdict.kind, VerdictKind::real);
    decided.push_back(number);
  }
  EXPECT_THAT(decided, ElementsAre(2, 3, 0, 4, 1));
  EXPECT_TRUE(plan.take_verdicts().empty()) << "each is told once";
}

TEST(TriagePlan, EndsWithItsReplays) {
  TriagePlan plan({failure("a", 1), failure("b", 2), failure("c", 3)}, {.replays = 3});
  order_of(plan);
  EXPECT_EQ(plan.replays(), 3);
  const auto verdicts = plan.take_verdicts();
  ASSERT_EQ(verdicts.size(), 3U);
  EXPECT_EQ(verdicts[0].second.kind, VerdictKind::real);
  EXPECT_EQ(verdicts[1].second.kind, VerdictKind::not_triaged);
  EXPECT_THAT(verdicts[1].second.evidence, ElementsAre("the limit of 3 replays in a run was reached"));
  EXPECT_EQ(verdicts[2].second.kind, VerdictKind::not_triaged);
}

TEST(TriagePlan, EndsWithItsTime) {
  TriagePlan plan({failure("a", 1), failure("b", 2)}, {.time = milliseconds(5000)});
  EXPECT_TRUE(plan.next(milliseconds(4999)));
  plan.ended(kFails);
  EXPECT_FALSE(plan.next(milliseconds(5000)));
  const auto verdicts = plan.take_verdicts();
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_THAT(verdicts[0].second.evidence, ElementsAre("the time limit of 5 s for a triage was reached"));
  EXPECT_EQ(verdicts[0].second.kind, VerdictKind::not_triaged);
}

TEST(TriagePlan, GivesAVerdictOnTheLastReplayThatThereIs) {
  TriagePlan plan({failure("a", 1)}, {.replays = 2});
  order_of(plan);
  EXPECT_EQ(plan.take_verdicts().at(0).second.kind, VerdictKind::real);
}

TEST(TriagePlan, LeavesOutWhatReplaysTellNothingOf) {
  FailureToTriage unfit = failure("a", 1);
  unfit.unfit = "its bits differ";
  TriagePlan plan({unfit, failure("b", 2)}, {});
  EXPECT_THAT(order_of(plan), ElementsAre(1));
  const auto verdicts = plan.take_verdicts();
  EXPECT_EQ(verdicts.at(0).second.kind, VerdictKind::not_triaged);
  EXPECT_THAT(verdicts.at(0).second.evidence, ElementsAre("its bits differ"));
}

TEST(TriagePlan, CanBeStopped) {
  TriagePlan plan({failure("a", 1), failure("b", 2)}, {});
  EXPECT_TRUE(plan.next(milliseconds(0)));
  plan.stop("the run was stopped");
  EXPECT_FALSE(plan.next(milliseconds(0)));
  const auto verdicts = plan.take_verdicts();
  ASSERT_EQ(verdicts.size(), 2U);
  for (const auto& [number, verdict] : verdicts) EXPECT_THAT(verdict.evidence, ElementsAre("the run was stopped"));
}

}  // namespace
}  // namespace cp_pool
