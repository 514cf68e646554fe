// Tests the streams of GPU ranks: nothing waits for the device, and no result depends on the order in which work
// happens to run.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/allclose.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/comm_facts.h"
#include "cp_core/context_parallel/a2a.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/gpu_step.h"
#include "cp_core/verify/output_hash.h"

namespace cp_pool::test {
namespace {

using std::chrono::seconds;
using verify::Results;

constexpr auto kCommTypes = kValues<CommType>;
constexpr std::array kBackends{Backend::flash, Backend::cudnn};
constexpr seconds kLongEnough{240};

std::string letters_of(std::string_view name) {
  std::string letters(name);
  std::ranges::replace(letters, '+', '_');
  return letters;
}

// Runs `body` on as many ranks as the type gets on this machine, or skips the test.
void on_ranks_of(CommType comm, const std::function<void(const GpuRank&, const CpGroups&)>& body) {
  const int ranks = gpu_ranks_for(comm);
  require_gpus(1, count_gpus());
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  on_gpu_ranks(ranks, [&body](const GpuRank& rank) {
    const at::NoGradGuard no_grad;
    const CpGroups groups = rank.connect();
    groups.cp->set_deadline(Communicator::Clock::now() + kLongEnough);
    body(rank, groups);
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

// A case with everything that a step may have to exchange: padding, GQA, sinks, max_logit.
Case full_case(CommType comm, Backend backend, int ranks) {
  Case c = gpu_thd_case(comm, backend, ranks, {1021, 517, 40, 2040});
  c.softmax = SoftmaxType::learnable;
  c.max_logit = true;
  return c;
}

// A case of plain causal attention with sequences of one length, which cuDNN computes in one call.
Case plain_case(CommType comm, int ranks) {
  Case c = full_case(comm, Backend::cudnn, ranks);
  c.layout = Layout::bshd;
  c.seqlens.reset();
  c.pad_between_seqs = false;
  c.softmax = SoftmaxType::vanilla;
  c.max_logit = false;
  return c;
}

// --- Graphs ----------------------------------------------------------------------------------------------------------

class GpuGraphs : public testing::TestWithParam<std::tuple<CommType, Backend>> {};

void capture_and_replay(const GpuStep& step, const CpGroups& groups, int rank) {
  constexpr int kReplays = 20;
  c10::cuda::device_synchronize();  // the inputs were made on another stream
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  (void)step.hash();  // connects the ranks, builds plans, loads kernels, gives libraries their workspaces
  const std::string eager = step.hash();
  c10::cuda::device_synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  const Results results = step.run();
  graph.capture_end();
  for (int i = 0; i < kReplays; ++i) {
    for (const auto& [name, result] : verify::kResults) {
      if ((results.*result).defined()) (results.*result).fill_(-1);
    }
    graph.replay();
    groups.cp->synchronize("replay");
    EXPECT_EQ(verify::hash_of(results), eager) << "rank " << rank << ", replay " << i;
  }
}

TEST_P(GpuGraphs, OfForwardAndBackwardGiveTheBitsOfTheEagerRun) {
  const auto [comm, backend] = GetParam();
  on_ranks_of(comm, [comm = comm, backend = backend](const GpuRank& rank, const CpGroups& groups) {
    const GpuStep step(full_case(comm, backend, rank.size), rank, groups);
    capture_and_replay(step, groups, rank.rank);
  });
}

// A case with enough heads for groups in a2a if the step is replayed, but too few if it is not. In all_gather the step
// with a rank's own K and V is computed in two groups of heads.
Case case_of_groups(CommType comm, int ranks) {
  Case c = plain_case(comm, ranks);
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 4096;
  c.heads = 8 * ranks;
  c.kv_heads = 4 * ranks;
  return c;
}

TEST(GpuReplayedGroups, GiveTheBitsOfTheEagerRun) {
  on_ranks_of(CommType::a2a, [](const GpuRank& rank, const CpGroups& groups) {
    const Case c = case_of_groups(CommType::a2a, rank.size);
    const GpuStep step(c, rank, groups, /*replayed=*/true);
    const auto head_groups = [](const AttentionForward& forward) {
      return dynamic_cast<const SavedHeads&>(*forward.saved).head_groups.size();
    };
    EXPECT_EQ(head_groups(step.forward()), 2U);
    EXPECT_EQ(head_groups(GpuStep(c, rank, groups).forward()), 1U);
    capture_and_replay(step, groups, rank.rank);
  });
}

TEST(GpuGraphsOfAllGather, WithTwoGroupsOfOwnHeadsGiveTheBitsOfTheEagerRun) {
  on_ranks_of(CommType::all_gather, [](const GpuRank& rank, const CpGroups& groups) {
    const GpuStep step(case_of_groups(CommType::all_gather, rank.size), rank, groups);
    capture_and_replay(step, groups, rank.rank);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, GpuGraphs,
                         testing::Combine(testing::ValuesIn(kCommTypes), testing::ValuesIn(kBackends)),
                         [](const auto& info) {
                           return letters_of(to_string(std::get<0>(info.param))) + "_" +
                                  letters_of(to_string(std::get<1>(info.param)));
                         });

// --- Delays ----------------------------------------------------------------------------------------------------------

class GpuDelays : public testing::TestWithParam<CommType> {};

struct Repeats {
  int count = 0;
  std::uint64_t most_microseconds = 0;
  bool replayed = false;  // AttentionProblem::replayed
};

// Every repeat has different delays, on both streams and before and after every exchange.
void repeat_under_delays(const Case& c, const GpuRank& rank, const CpGroups& groups, const Repeats& repeats) {
  const GpuStep step(c, rank, groups, repeats.replayed);
  (void)step.hash();
  const std::string expected = step.hash();
  const auto start = Communicator::Clock::now();
  std::vector<int> different;
  for (int i = 1; i <= repeats.count; ++i) {
    cuda_device().set_stream_delays(
        {.seed = static_cast<std::uint64_t>(i), .most_microseconds = repeats.most_microseconds});
    if (step.hash() != expected) different.push_back(i);
  }
  cuda_device().set_stream_delays({});
  const std::chrono::duration<double, std::milli> took = Communicator::Clock::now() - start;
  EXPECT_TRUE(different.empty()) << "rank " << rank.rank << ", " << to_string(c.backend) << ": " << different.size()
                                 << " of " << repeats.count << " repeats give other bits, the first with seed "
                                 << different.front();
  if (rank.rank == 0) {
    fmt::print("[ figures  ] {} ranks, {}, {}, sequences of up to {}: {} repeats, {:.2f} ms each\n", rank.size,
               to_string(c.comm), to_string(c.backend), c.seqlen_q, repeats.count, took.count() / repeats.count);
  }
}

TEST_P(GpuDelays, ChangeNoBit) {
  on_ranks_of(GetParam(), [](const GpuRank& rank, const CpGroups& groups) {
    const int count = rank.shares ? 40 : 200;  // ranks that share a GPU take turns: 50 to 240 ms a repeat, 10 otherwise
    for (const Backend backend : kBackends) {
      const Case c = full_case(GetParam(), backend, rank.size);
      repeat_under_delays(c, rank, groups, {.count = count, .most_microseconds = 300});
    }
  });
}

TEST_P(GpuDelays, ChangeNoBitOfLongPacks) {
  on_ranks_of(GetParam(), [](const GpuRank& rank, const CpGroups& groups) {
    const std::vector<std::vector<std::int64_t>> packs{
        {24576}, {28672}, {30720}, {32768}, {24576, 28672, 30720, 32768}, {16000, 30, 8200, 4096, 2050}};
    for (const Backend backend : kBackends) {
      for (const std::vector<std::int64_t>& pack : packs) {
        Case c = gpu_thd_case(GetParam(), backend, rank.size, pack);
        c.heads = c.kv_heads = 4;
        repeat_under_delays(c, rank, groups, {.count = 10, .most_microseconds = 2000});
      }
    }
  });
}

// There are enough rows for cuDNN to compute heads in groups, while the next group arrives and the last one is sent
// back.
TEST_P(GpuDelays, ChangeNoBitOfHeadsInGroups) {
  on_ranks_of(GetParam(), [](const GpuRank& rank, const CpGroups& groups) {
    Case c = plain_case(GetParam(), rank.size);
    c.batch = 1;
    c.seqlen_q = c.seqlen_kv = 8192 * rank.size;
    c.heads = c.kv_heads = 8 * rank.size;
    repeat_under_delays(c, rank, groups, {.count = 10, .most_microseconds = 2000});
  });
}

TEST(GpuReplayedGroups, ChangeNoBitUnderDelays) {
  on_ranks_of(CommType::a2a, [](const GpuRank& rank, const CpGroups& groups) {
    repeat_under_delays(case_of_groups(CommType::a2a, rank.size), rank, groups,
                        {.count = 50, .most_microseconds = 500, .replayed = true});
  });
}

INSTANTIATE_TEST_SUITE_P(Types, GpuDelays, testing::ValuesIn(kCommTypes),
                         [](const auto& info) { return letters_of(to_string(info.param)); });

// --- Types -----------------------------------------------------------------------------------------------------------

// The most by which two results may differ that are each within Transformer Engine's tolerance for bf16.
constexpr double kTwiceTolerance = 2 * 2.5e-2;

double tolerance_of(std::string_view tensor) {
  return tensor == "lse" || tensor == "max_logit" ? 1e-4 : kTwiceTolerance;
}

void expect_close(const Results& actual, const Results& expected, const std::string& what) {
  for (const auto& [name, result] : verify::kResults) {
    if (name == "dbias") continue;  // the cases have no bias
    ASSERT_TRUE((actual.*result).defined() && (expected.*result).defined()) << what << ": " << name;
    const at::Tensor a = (actual.*result).to(at::kFloat);
    const at::Tensor b = (expected.*result).to(at::kFloat);
    const double largest = a.sub(b).nan_to_num(0, 0, 0).abs().max().item<double>();
    if (name == "dsink") {
      // dsink is a sum of thousands of terms, so its error is relative to the largest value.
      EXPECT_LE(largest, kTwiceTolerance * (1 + b.abs().max().item<double>())) << what << ": dsink";
      continue;
    }
    EXPECT_TRUE(at::allclose(a, b, tolerance_of(name), tolerance_of(name)))
        << what << ": " << name << " differs by up to " << largest;
  }
}

TEST(GpuTypes, AgreeWithTheReferenceAndWithEachOther) {
  on_ranks_of(CommType::p2p, [](const GpuRank& rank, const CpGroups& groups) {
    for (const Backend backend : kBackends) {
      std::optional<Results> of_p2p;
      for (const CommType comm : kCommTypes) {
        if (!facts_of(comm).takes_size({rank.size})) continue;
        const std::string what = fmt::format("rank {}, {}, {}", rank.rank, to_string(backend), to_string(comm));
        const GpuStep step(full_case(comm, backend, rank.size), rank, groups);
        const Results results = step.run();
        groups.cp->synchronize(what);
        for (const Check& check : step.check(results)) {
          EXPECT_TRUE(check.ok) << what << ": " << check.tensor << ": " << check.message << " (error " << check.error
                                << ", bound " << check.bound << ")";
        }
        if (!of_p2p) of_p2p = results;
        expect_close(results, *of_p2p, what);
      }
    }
  });
}

}  // namespace
}  // namespace cp_pool::test
