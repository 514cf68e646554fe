#include "cp_core/run_case/repetition.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/plain_attention.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify {
namespace {

using cp_pool::test::PlainAttention;
using cp_pool::test::PlainFault;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using OnResult = decltype(RunOptions::on_result);

struct Tried {
  PlainFault fault = PlainFault::none;
  RepeatPromise promise = {};
  OnResult on_result_of_rank_1 = {};
};

std::vector<RankReport> run_tried(const Tried& tried) {
  const Case c = test::small_case();
  Sharding sharding;
  sharding.padding = PaddingFill::garbage;
  std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    PlainAttention plain(sharding, tried.fault, tried.promise);
    RunOptions options;
    options.keep_judged = true;
    if (rank == 1) options.on_result = tried.on_result_of_rank_1;
    reports[static_cast<std::size_t>(rank)] = run_case(plain, c, groups, options);
  });
  return reports;
}

// Returns "tensor: message" of the checks that failed on any rank.
std::vector<std::string> failures_of(const Tried& tried) {
  std::vector<std::string> failures;
  for (const RankReport& report : run_tried(tried)) {
    for (const Check& check : report.checks) {
      if (!check.ok) failures.push_back(check.tensor + ": " + check.message);
    }
  }
  return failures;
}

RepeatFault repeat_fault_of(const Tried& tried) {
  const auto reports = run_tried(tried);
  for (const RankReport& report : reports) {
    EXPECT_EQ(report.judged->repeat_fault, reports.front().judged->repeat_fault) << "ranks disagree";
  }
  return reports.front().judged->repeat_fault;
}

// A factor on the result of rank 1 in every step but the first.
OnResult changed_when_repeated(std::string_view changed, double factor) {
  return [changed, factor](std::string_view tensor, bool repeated, at::Tensor& result) {
    if (repeated && tensor == changed) result = result.mul(factor);
  };
}

TEST(Repetition, SaysWhichResultIsThatOfAnEarlierStep) {
  const Tried tried{.fault = PlainFault::keeps_dk};
  EXPECT_EQ(repeat_fault_of(tried), RepeatFault::earlier_state);
  EXPECT_THAT(failures_of(tried), Each(AllOf(StartsWith("repeat: state of an earlier step: "),
                                             HasSubstr("rows are as they were before: dk in "))));
  EXPECT_EQ(failures_of(tried).size(), 2U);
}

TEST(Repetition, SeesAnEarlierResultWhereGradientsNeedNotRepeat) {
  const Tried tried{.fault = PlainFault::keeps_dk, .promise = {.bits = false}};
  EXPECT_EQ(repeat_fault_of(tried), RepeatFault::earlier_state);
  EXPECT_THAT(failures_of(tried), Each(AllOf(StartsWith("repeated dk: state of an earlier step: "),
                                             HasSubstr("error beyond the bound in "))));
}

TEST(Repetition, TellsOtherBitsFromADependenceOnTheSign) {
  for (const PlainFault fault : {PlainFault::repeats_other_bits, PlainFault::first_step_has_other_bits}) {
    const Tried tried{.fault = fault};
    EXPECT_EQ(repeat_fault_of(tried), RepeatFault::other_bits) << static_cast<int>(fault);
    EXPECT_THAT(failures_of(tried),
                Each(StartsWith("repeat: does not repeat: the same step again gave other bits: out in ")));
  }
  const Tried tried{.fault = PlainFault::depends_on_sign};
  EXPECT_EQ(repeat_fault_of(tried), RepeatFault::sign);
  EXPECT_THAT(failures_of(tried), Each(AllOf(StartsWith("repeat: depends on the sign: "), HasSubstr("odd=False"))));
  EXPECT_THAT(failures_of(tried), testing::SizeIs(2));
}

// State that was kept cannot be told from a right result then.
TEST(Repetition, IsThatOfTheSameInputsIfTheImplementationIsNotOdd) {
  for (const PlainFault fault : {PlainFault::depends_on_sign, PlainFault::keeps_dk}) {
    EXPECT_THAT(failures_of({.fault = fault, .promise = {.odd = false}}), IsEmpty());
  }
  const Tried drifting{.fault = PlainFault::repeats_other_bits, .promise = {.odd = false}};
  EXPECT_EQ(repeat_fault_of(drifting), RepeatFault::other_bits);
}

TEST(Repetition, ComparesEveryResult) {
  for (const char* tensor : {"out", "lse", "dq", "dk", "dv"}) {
    const Tried tried{.on_result_of_rank_1 = changed_when_repeated(tensor, 1 + 0x1p-20)};
    EXPECT_THAT(failures_of(tried),
                testing::ElementsAre(AllOf(StartsWith("repeat: does not repeat: "), HasSubstr(tensor))));
  }
}

TEST(Repetition, ComparesGradientsWithTheirBoundsIfTheirBitsNeedNotRepeat) {
  for (const char* tensor : {"dq", "dk", "dv"}) {
    const RepeatPromise promise{.bits = false};
    EXPECT_THAT(failures_of({.promise = promise, .on_result_of_rank_1 = changed_when_repeated(tensor, 1 + 0x1p-22)}),
                IsEmpty());
    EXPECT_THAT(failures_of({.promise = promise, .on_result_of_rank_1 = changed_when_repeated(tensor, 1.5)}),
                testing::ElementsAre(AllOf(StartsWith(std::string("repeated ") + tensor + ": does not repeat: "),
                                           HasSubstr("error beyond the bound"))));
  }
  for (const char* tensor : {"out", "lse"}) {
    EXPECT_THAT(
        failures_of({.promise = {.bits = false}, .on_result_of_rank_1 = changed_when_repeated(tensor, 1 + 0x1p-20)}),
        testing::ElementsAre(StartsWith("repeat: does not repeat: ")));
  }
}

TEST(Repetition, DoesNotAccuseAGradientThatIsAsWrongInBothSteps) {
  for (const double other_bits : {1.0, 1 + 0x1p-22}) {
    const OnResult wrong = [other_bits](std::string_view tensor, bool repeated, at::Tensor& result) {
      if (tensor == "dk") result = result.mul(repeated ? 1.5 * other_bits : 1.5);
    };
    const Tried tried{.promise = {.bits = false}, .on_result_of_rank_1 = wrong};
    EXPECT_THAT(failures_of(tried), testing::ElementsAre(StartsWith("dk: error beyond the bound")));
    EXPECT_EQ(repeat_fault_of(tried), RepeatFault::none);
  }
}

TEST(Repetition, SeesAGradientThatIsWrongInTheFirstStepAlone) {
  const OnResult wrong_once = [](std::string_view tensor, bool repeated, at::Tensor& result) {
    if (tensor == "dk" && !repeated) result = result.mul(1.5);
  };
  const Tried tried{.promise = {.bits = false}, .on_result_of_rank_1 = wrong_once};
  EXPECT_THAT(failures_of(tried),
              testing::ElementsAre(StartsWith("dk: error beyond the bound"),
                                   "repeat: does not repeat: the same step again gave other bits: dk is within its "
                                   "bounds this time"));
  EXPECT_EQ(repeat_fault_of(tried), RepeatFault::other_bits);
}

TEST(Repetition, IsRemarkedOnIfOnlyBitsOfGradientsDiffer) {
  const auto remarks_of = [](const RepeatPromise& promise, const OnResult& on_result_of_rank_1) {
    return run_tried({.promise = promise, .on_result_of_rank_1 = on_result_of_rank_1}).at(1).remarks;
  };
  const RepeatPromise promise{.bits = false, .remarks_other_bits = true};
  const OnResult other_bits = changed_when_repeated("dq", 1 + 0x1p-22);
  EXPECT_THAT(remarks_of(promise, other_bits),
              testing::ElementsAre("the repeated step gave gradients with other bits, within their bounds"));
  EXPECT_THAT(remarks_of(promise, changed_when_repeated("dq", 1.5)), IsEmpty());
  EXPECT_THAT(remarks_of(promise, {}), IsEmpty());
  EXPECT_THAT(remarks_of({.bits = false}, other_bits), IsEmpty());
}

TEST(Repetition, LeavesTheHashAndTheJudgedResultsOfTheFirstStep) {
  const auto odd = run_tried({});
  const auto plain = run_tried({.promise = {.odd = false}});
  for (std::size_t rank = 0; rank < odd.size(); ++rank) {
    EXPECT_EQ(odd[rank].output_hash, plain[rank].output_hash);
    EXPECT_TRUE(odd[rank].judged->results.dk.equal(plain[rank].judged->results.dk));
    EXPECT_EQ(odd[rank].judged->repeat_fault, RepeatFault::none);
  }
}

// Each rank's own attention rounds x and -x alike, whatever the communication type, dtype and backend.
TEST(Repetition, OfOurOwnAttentionIsExactlyNegated) {
  for (const CommType comm : kValues<CommType>) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (Case c : test::twin_cases()) {
        c.comm = comm;
        c.dtype = dtype;
        c.cp_size = 4;
        c.heads = c.kv_heads = 4;
        c.layout = Layout::thd;
        c.pad_between_seqs = true;
        c.strided = dtype == DType::bf16;
        EXPECT_EQ(test::fault_of(test::run_on_threads(c)), "") << test::text_of(c);
      }
    }
  }
}

}  // namespace
}  // namespace cp_pool::verify
