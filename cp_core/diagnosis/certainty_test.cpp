// Tests how sure a diagnosis is, and what it says if it did not find the cause.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"
#include "cp_core/diagnosis/testing/simulated_attention.h"
#include "cp_core/mutation.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using test::SimulatedAttention;
using testing::Contains;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;
using verify::Results;

// `<` for `<=`: queries do not see their own keys. An unlimited right window of -1 that is taken for one of that width
// gives the same numbers.
TEST(Certainty, OnlyWhatTakesWindowsCanReadMinusOneLiterally) {
  Case c = verify::test::small_case();
  c.causal = true;
  const Observation of = test::unanswered(c, resolve_lengths(c), test::simulated_sharding(), c.cp_size);
  const Hypotheses library = all_hypotheses(DenseProblem(of), {});
  const auto number =
      std::ranges::find(library, "a causal query does not see its own key", &Hypothesis::says) - library.begin();
  for (const bool takes_windows : {true, false}) {
    const Diagnosis answer = test::diagnosed_on_threads(c, [&] {
                               return std::make_unique<SimulatedAttention>(
                                   std::vector<std::string>{}, static_cast<int>(number), Attempt{}, takes_windows);
                             }).diagnosis;
    EXPECT_EQ(answer.certainty, takes_windows ? Certainty::likely : Certainty::certain) << test::text_of(answer);
    EXPECT_EQ(answer.id, takes_windows ? "window_minus_one_literal" : "window_right_off_by_one");
    const bool names_both = std::ranges::find(answer.others, "window_right_off_by_one") != answer.others.end();
    EXPECT_EQ(names_both, takes_windows) << test::text_of(answer);
  }
}

// A window to the right whose left side of -1 is taken for a width: the last query sees no key, and its softmax is NaN.
TEST(Certainty, AMistakeInTheMaskMayMakeRowsWithoutKeysNan) {
  Case c = verify::test::small_case();
  c.window = {-1, 5};
  const Observation of = test::unanswered(c, resolve_lengths(c), test::simulated_sharding(), c.cp_size);
  const Hypotheses library = all_hypotheses(DenseProblem(of), {});
  const auto number = std::ranges::find(library, "window_minus_one_literal", &Hypothesis::id) - library.begin();
  const Diagnosis answer =
      test::diagnosed_on_threads(c, [&] {
        return std::make_unique<SimulatedAttention>(std::vector<std::string>{}, static_cast<int>(number),
                                                    Attempt{.nan_without_keys = true});
      }).diagnosis;
  EXPECT_EQ(answer.certainty, Certainty::certain) << test::text_of(answer);
  EXPECT_EQ(answer.id, "window_minus_one_literal");
}

TEST(Certainty, OfContiguousRowsNoChunksAreExchanged) {
  Case c = verify::test::small_case();
  c.causal = true;
  for (const bool two_chunks : {true, false}) {
    verify::Sharding sharding;
    sharding.rows = verify::parse_convention(two_chunks ? "dual_chunk" : "contiguous").value();
    const Observation of = test::unanswered(c, resolve_lengths(c), sharding, c.cp_size);
    for (const std::string_view id : {"chunks_exchanged", "chunks_not_mirrored"}) {
      EXPECT_EQ(std::ranges::count(row_hypotheses(DenseProblem(of), {}), id, &Hypothesis::id), two_chunks ? 1 : 0)
          << id;
    }
  }
}

// With a stripe of one chunk, rank r of a single sequence has the chunks r and n + r.
TEST(Certainty, MistakesThatTakeRowsForTheSameRowsAreAllNamed) {
  const ScopedMutant on(Mutant::dual_chunk_mirror);
  Case c = verify::test::small_case();
  c.causal = true;
  const Diagnosis answer = test::diagnosed(c).diagnosis;
  EXPECT_EQ(answer.certainty, Certainty::likely) << test::text_of(answer);
  EXPECT_EQ(answer.id, "chunks_not_mirrored");
  EXPECT_THAT(answer.others, Contains("sharding_striped"));
}

// Diagnoses small_case with a mutant and these mistakes known. Counts the questions.
Diagnosis diagnosed_knowing(std::vector<KnownMistake> known, Mutant mutant, std::vector<std::string>* asked = nullptr) {
  const ScopedMutant on(mutant);
  Settings settings;
  settings.known = std::move(known);
  std::mutex mutex;
  settings.on_phase = [&](std::string_view question) {
    const std::lock_guard lock(mutex);
    if (asked != nullptr) asked->emplace_back(question);
  };
  return test::diagnosed(verify::test::small_case(), settings).diagnosis;
}

TEST(Certainty, AKnownMistakeIsConfirmedWithoutFurtherQuestions) {
  std::vector<std::string> asked;
  const Diagnosis same = diagnosed_knowing(
      {{.ids = {"scale_missing"}, .case_id = "first"}, {.ids = {"delta_missing"}, .case_id = "quick/a"}},
      Mutant::delta_missing, &asked);
  EXPECT_EQ(same.certainty, Certainty::certain) << test::text_of(same);
  EXPECT_EQ(same.id, "delta_missing");
  EXPECT_THAT(same.evidence, testing::ElementsAre(StartsWith("this mistake was found in quick/a. ")));
  EXPECT_THAT(asked, testing::Each("known mistakes"));
  const Diagnosis alone = diagnosed_knowing({}, Mutant::delta_missing);
  EXPECT_EQ(same.cause, alone.cause);
  EXPECT_EQ(same.explains, alone.explains);
  EXPECT_THAT(alone.evidence, Not(Contains(StartsWith("this mistake was found in "))));
}

TEST(Certainty, AnotherMistakeThanTheKnownOneIsDiagnosedAsEver) {
  const Diagnosis other = diagnosed_knowing({{.ids = {"scale_missing"}, .case_id = "first"}}, Mutant::delta_missing);
  EXPECT_EQ(other.id, "delta_missing") << test::text_of(other);
  EXPECT_EQ(other.certainty, Certainty::certain);
  EXPECT_THAT(other.evidence, Not(Contains(StartsWith("this mistake was found in "))));
}

TEST(Certainty, ALikelyMistakeIsConfirmedAsLikely) {
  const Diagnosis same = diagnosed_knowing(
      {{.certainty = Certainty::likely, .ids = {"delta_missing"}, .case_id = "quick/a"}}, Mutant::delta_missing);
  EXPECT_EQ(same.certainty, Certainty::likely) << test::text_of(same);
  EXPECT_EQ(same.id, "delta_missing");
  EXPECT_THAT(same.evidence, testing::ElementsAre(StartsWith("this mistake was found in quick/a. ")));
}

TEST(Certainty, AMistakeOfSeveralLikelyOnesIsLookedForAgainWhereTheOthersDoNotFit) {
  const Diagnosis told_apart = diagnosed_knowing(
      {{.certainty = Certainty::likely, .ids = {"scale_missing", "delta_missing"}, .case_id = "quick/a"}},
      Mutant::delta_missing);
  EXPECT_EQ(told_apart.certainty, Certainty::certain) << test::text_of(told_apart);
  EXPECT_EQ(told_apart.id, "delta_missing");
  EXPECT_THAT(told_apart.evidence, Not(Contains(StartsWith("this mistake was found in "))));
}

TEST(Certainty, KnownMistakesThatFitEquallyAreAllNamed) {
  const ScopedMutant on(Mutant::dual_chunk_mirror);
  Case c = verify::test::small_case();
  c.causal = true;
  Settings settings;
  settings.known = {{.ids = {"chunks_not_mirrored"}, .case_id = "quick/a"},
                    {.ids = {"sharding_striped"}, .case_id = "quick/b"}};
  const Diagnosis both = test::diagnosed(c, settings).diagnosis;
  EXPECT_EQ(both.certainty, Certainty::likely) << test::text_of(both);
  EXPECT_EQ(both.id, "chunks_not_mirrored");
  EXPECT_THAT(both.others, testing::ElementsAre("sharding_striped"));
}

TEST(Certainty, TheKeysThatALargeCaseSawAreThoseOfTheSmallerCaseThatFails) {
  const ScopedMutant on(Mutant::causal_ignored);
  Case c = verify::test::small_case();
  c.seqlen_q = c.seqlen_kv = 1200;
  c.causal = true;
  const Diagnosis answer = test::diagnosed(c).diagnosis;
  EXPECT_EQ(answer.id, "causal_ignored") << test::text_of(answer);
  EXPECT_THAT(answer.evidence, Contains(HasSubstr("seen on the smaller case suite/a_case --set seqlen_q=")));
  const std::int64_t excess = answer.pairs.value_or(WrongPairs{}).excess_pairs;
  EXPECT_GT(excess, 0);
  EXPECT_LT(excess, 192 * 192);
}

TEST(Certainty, ASearchThatDidNotEndSaysSo) {
  const ScopedMutant on(Mutant::delta_missing);
  Settings settings;
  settings.limit = std::chrono::seconds(5);
  settings.deadline = std::chrono::steady_clock::now();
  const Diagnosis cut = test::diagnosed(verify::test::small_case(), settings).diagnosis;
  EXPECT_EQ(cut.certainty, Certainty::unknown);
  EXPECT_THAT(cut.cause, MatchesRegex("not found in 5 s: 0 of [0-9]+ hypotheses tried; --diagnosis-time 60s; dq.*"));
}

// Our own attention, with a change of the results of each rank.
class Changed : public Implementation {
 public:
  using Change = std::function<void(const verify::RankView&, const verify::Shards&, Results&)>;
  explicit Changed(Change change) : change_(std::move(change)) {}

  std::string skip_reason(const Case& c, const at::Device& device) override { return own_.skip_reason(c, device); }
  std::string backend(const Case& c, const at::Device& device) override { return own_.backend(c, device); }
  verify::Sharding sharding(const Case& c, const SequenceLengths& lengths) override {
    return own_.sharding(c, lengths);
  }
  bool repeats_bits(const Case& c, const at::Device& device) override { return own_.repeats_bits(c, device); }
  std::int64_t probe_heads(const Case& c) override { return own_.probe_heads(c); }
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override {
    return std::make_unique<ChangedStep>(own_.make_step(setting, shards), setting.view, shards, change_);
  }

 private:
  class ChangedStep final : public Step {
   public:
    ChangedStep(std::unique_ptr<Step> step, const verify::RankView& view, const verify::Shards& shards,
                const Change& change)
        : step_(std::move(step)), view_(view), shards_(shards), change_(change) {}

    void forward(Results& results) override {
      step_->forward(results);
      change_(view_, shards_, results);
    }
    void backward(Results& results) override { step_->backward(results); }

   private:
    std::unique_ptr<Step> step_;
    const verify::RankView& view_;
    const verify::Shards& shards_;
    const Change& change_;
  };

  BuiltinImplementation own_;
  Change change_;
};

test::Diagnosed with_change(const Case& c, const Changed::Change& change) {
  return test::diagnosed_on_threads(c, [&] { return std::make_unique<Changed>(change); });
}

Case case_of_one_rank() {
  Case c = verify::test::small_case();
  c.batch = 1;
  c.cp_size = 1;
  c.training = false;
  return c;
}

TEST(Certainty, ASearchThatEndedWithoutACauseSaysSo) {
  const test::Diagnosed answer = with_change(
      case_of_one_rank(),
      [](const verify::RankView&, const verify::Shards&, Results& results) { results.out.select(1, 3).mul_(0.75); });
  ASSERT_TRUE(answer.failed);
  EXPECT_THAT(answer.diagnosis.cause,
              MatchesRegex("none of [0-9]+ known mistakes explains the failure: out is wrong.*"));
}

// Padding is read with weight 0: the results are right if padding holds numbers, and NaN if it holds NaN.
TEST(Certainty, KeysThatOnlyNanShowsAreNotSeen) {
  Case c = case_of_one_rank();
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {{5}};
  const test::Diagnosed answer =
      with_change(c, [](const verify::RankView& view, const verify::Shards& shards, Results& results) {
        if (!shards.k.isnan().any().item<bool>()) return;
        for (std::size_t i = 0; i < view.q.rows().size(); ++i) {
          if (view.q.rows()[i].canonical < 0) continue;
          const auto row = static_cast<std::int64_t>(i);
          results.out.select(0, row).fill_(std::numeric_limits<double>::quiet_NaN());
          results.lse.select(1, row).fill_(std::numeric_limits<double>::quiet_NaN());
        }
      });
  ASSERT_TRUE(answer.failed);
  EXPECT_EQ(answer.diagnosis.certainty, Certainty::unknown) << test::text_of(answer.diagnosis);
  EXPECT_THAT(test::text_of(answer.diagnosis), HasSubstr("padding is read, with weight 0"));
}

// Our own attention with half as much again of out, which counts the steps of all ranks.
class CountingSteps final : public Changed {
 public:
  explicit CountingSteps(std::atomic<int>& steps)
      : Changed([&steps](const verify::RankView&, const verify::Shards&, Results& results) {
          ++steps;
          results.out.mul_(1.5);  // in place, since the backward returns it again
        }) {}
};

// How many steps of a diagnosis each rank has run if steps of the case took so long, and its evidence.
std::pair<int, std::vector<std::string>> asked_of(std::chrono::minutes first_step, std::chrono::minutes repeated_step) {
  const Case c = verify::test::small_case();
  std::atomic<int> steps = 0;
  Settings settings;
  settings.limit = std::chrono::minutes(50);
  settings.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(30);
  const Diagnosis answer = test::diagnosed_on_threads(
                               c, [&] { return std::make_unique<CountingSteps>(steps); }, settings,
                               [&](JudgedCase& judged) {
                                 judged.first_step = first_step;
                                 judged.repeated_step = repeated_step;
                                 steps = 0;
                               })
                               .diagnosis;
  return {steps / c.cp_size, answer.evidence};
}

TEST(Certainty, NoStepIsBegunThatWouldNotEndInTime) {
  const auto [none, evidence] = asked_of(std::chrono::minutes(40), std::chrono::minutes(35));
  EXPECT_EQ(none, 0);
  EXPECT_THAT(evidence, Contains("a step of this case took 2400.0 s at first and 2100.0 s again, so not every question "
                                 "could be asked in 3000 s; --diagnosis-time 24000s"));
  EXPECT_GT(asked_of(std::chrono::minutes(40), std::chrono::minutes(0)).first, 0) << "shapes that have run are fast";
  EXPECT_THAT(asked_of(std::chrono::minutes(0), std::chrono::minutes(0)).second,
              testing::Not(Contains(testing::HasSubstr("--diagnosis-time"))));
}

}  // namespace
}  // namespace cp_pool::diagnosis
