#include "cp_core/run_case/case_times.h"

#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/file_size_limit.h"
#include "cases/testing/temporary_folder.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::SizeIs;

Case causal_case() {
  Case c = verify::test::small_case();
  c.causal = true;
  return c;
}

// Counts the steps of the whole problem on one rank.
class CountsStepsAlone final : public BuiltinImplementation {
 public:
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override {
    if (setting.c.cp_size == 1) ++steps_alone;
    return BuiltinImplementation::make_step(setting, shards);
  }

  int steps_alone = 0;
};

std::vector<StepTimes> times_of(const Case& c, const PerfOptions& options, std::vector<int>* steps_alone = nullptr) {
  if (steps_alone != nullptr) steps_alone->resize(static_cast<std::size_t>(c.cp_size));
  std::vector<StepTimes> times(static_cast<std::size_t>(c.cp_size));
  const SequenceLengths lengths = resolve_lengths(c);
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    StepTimes& own = times[static_cast<std::size_t>(rank)];
    CountsStepsAlone implementation;
    time_case(implementation, c, lengths, verify::RankView(c, lengths, rank, c.cp_size), groups, options, own);
    time_one_rank(implementation, c, lengths, groups, options, at::kCPU, own);
    if (steps_alone != nullptr) (*steps_alone)[static_cast<std::size_t>(rank)] = implementation.steps_alone;
  });
  return times;
}

TEST(CaseTimes, StandThoughTheTraceCannotBeWritten) {
  const cp_pool::test::TemporaryFolder folder;
  Case c = causal_case();
  c.cp_size = 1;  // there is one profiler per process, and the ranks of a test are threads
  const auto trace_error_of = [&](const std::filesystem::path& trace) {
    const StepTimes times = times_of(c, {.warmup = 0, .iterations = 2, .trace = trace}).front();
    EXPECT_THAT(times.step_ms, SizeIs(2));
    return times.trace_error;
  };
  {
    const cp_pool::test::FileSizeLimit limit(1024);
    EXPECT_EQ(trace_error_of(folder / "case"),
              "cannot write " + (folder / "case.rank0.json").string() + ": File too large");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(trace_error_of(folder / "case"), "");
  EXPECT_THAT(trace_error_of(folder / "case.rank0.json/below"), HasSubstr(": Not a directory"));
}

TEST(CaseTimes, OfOneRankAreMeasuredByRank0) {
  for (const CommType comm : {CommType::p2p, CommType::all_gather, CommType::a2a}) {
    for (const Layout layout : {Layout::bshd, Layout::thd}) {
      Case c = causal_case();
      c.comm = comm;
      c.layout = layout;
      std::vector<int> steps_alone;
      const auto times = times_of(c, {.warmup = 0, .iterations = 2}, &steps_alone);
      for (const StepTimes& rank : times) {
        EXPECT_THAT(rank.step_ms, AllOf(SizeIs(2), Each(Gt(0))));
        EXPECT_EQ(rank.one_rank_reason, "");
      }
      ASSERT_TRUE(times.front().one_rank_ms);
      EXPECT_GT(times.front().one_rank_ms->min, 0);
      EXPECT_EQ(steps_alone.front(), 1 + 2) << "the first step, and those that are timed";
      EXPECT_FALSE(times.back().one_rank_ms);
      EXPECT_EQ(steps_alone.back(), 0);
    }
  }
}

TEST(CaseTimes, OfOneRankThatTakesTooLongAreLeftOut) {
  const auto times = times_of(causal_case(), {.warmup = 0, .iterations = 2, .deadline = Communicator::Clock::now()});
  EXPECT_THAT(times.front().step_ms, SizeIs(2));
  EXPECT_FALSE(times.front().one_rank_ms);
  EXPECT_THAT(times.front().one_rank_reason, HasSubstr("--timeout"));
}

// tests/traffic has the bytes of other communication types.
TEST(CaseTimes, ComeWithTheBytesThatARankSendsInOneStep) {
  Case c = causal_case();
  c.cp_size = 2;
  const std::int64_t keys_and_values = c.batch * c.seqlen_kv / 2 * c.kv_heads * (c.head_dim_qk + c.head_dim_v) * 4;
  for (const bool training : {true, false}) {
    c.training = training;
    for (const StepTimes& rank : times_of(c, {.warmup = 1, .iterations = 2})) {
      EXPECT_EQ(rank.bytes_sent, training ? 2 * keys_and_values : keys_and_values);
    }
  }
}

TEST(CaseTimes, OfAForwardAlone) {
  Case c = causal_case();
  c.training = false;
  EXPECT_THAT(times_of(c, {.warmup = 1, .iterations = 1}).front().step_ms, SizeIs(1));
}

}  // namespace
}  // namespace cp_pool
