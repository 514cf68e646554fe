// Compares the traffic that `cp-pool explain` predicts with the bytes that the library gives to its communicators.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cases/case_id.h"
#include "cases/case_json.h"
#include "cases/lengths.h"
#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/comm/wrapped_communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/run_case/case_times.h"
#include "cp_core/testing/ranks_on_threads.h"
#include "driver/core/case_shape.h"

namespace cp_pool {
namespace {

// The bytes that each rank sends in the forward and in the backward, as counted.
std::vector<Traffic> measured(const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  std::vector<Traffic> traffic(static_cast<std::size_t>(c.cp_size));
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    const at::NoGradGuard no_grad;
    std::int64_t sent = 0;
    const CpGroups counted = count_sent(groups, sent);
    const verify::RankView view(c, lengths, rank, c.cp_size);
    const verify::Shards shards =
        verify::make_shards(c, verify::make_inputs(verify::canonical_problem(c, lengths)), view);
    const AttentionProblem problem = make_problem(c, lengths);

    Traffic& own = traffic[static_cast<std::size_t>(rank)];
    const AttentionForward forward = context_parallel_forward(problem, counted, attention_inputs(shards));
    own.forward = std::exchange(sent, 0);
    if (!c.training) return;
    static_cast<void>(context_parallel_backward(problem, counted, attention_inputs(shards), forward, shards.dout));
    own.backward = sent;
  });
  return traffic;
}

void expect_traffic(const Case& c) {
  SCOPED_TRACE(to_json(c).dump());
  validate(c, "test");
  const Traffic expected = traffic_of(c, resolve_lengths(c));
  for (const Traffic& rank : measured(c)) {
    EXPECT_EQ(rank.forward, expected.forward);
    EXPECT_EQ(rank.backward, expected.backward);
  }
  if (c.cp_size > 1) {
    EXPECT_GT(expected.forward, 0);
  }
}

Case base_case(CommType comm) {
  Case c;
  c.suite = "traffic";
  c.model = "m";
  c.comm = comm;
  c.cp_size = 4;
  c.dtype = DType::fp32;
  c.batch = 2;
  c.seqlen_q = 32;
  c.seqlen_kv = 32;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim_qk = 8;
  c.head_dim_v = 16;
  return c;
}

class ExpectedTraffic : public ::testing::TestWithParam<CommType> {};

TEST_P(ExpectedTraffic, IsWhatEachRankSends) {
  expect_traffic(base_case(GetParam()));
}

TEST_P(ExpectedTraffic, FollowsTheNumberOfRanks) {
  for (const int ranks : {1, 2, 8}) {
    Case c = base_case(GetParam());
    c.cp_size = ranks;
    c.kv_heads = 8;
    if (!find_problem(c)) expect_traffic(c);  // a2a+p2p starts at 4
  }
}

TEST_P(ExpectedTraffic, FollowsDtypeLengthsAndLayout) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Case c = base_case(GetParam());
    c.dtype = dtype;
    c.layout = Layout::sbhd;
    c.seqlen_kv = 64;
    expect_traffic(c);
  }
}

TEST_P(ExpectedTraffic, CountsPaddingAndWhateverTheMaskHides) {
  Case c = base_case(GetParam());
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {5, 0};
  c.seqlen_q = c.seqlen_kv = 32;
  c.causal = true;
  c.window = {3, 0};
  expect_traffic(c);
}

// Forward and backward of the rank that sends most.
TEST_P(ExpectedTraffic, IsThatOfTheBusiestRankWhereHeadsAreUneven) {
  for (const auto& [heads, kv_heads] : {std::pair{6, 3}, std::pair{6, 1}, std::pair{3, 3}}) {
    Case c = base_case(GetParam());
    c.heads = heads;
    c.kv_heads = kv_heads;
    c.dtype = DType::bf16;
    SCOPED_TRACE(to_json(c).dump());
    std::int64_t most = 0;
    for (const Traffic& rank : measured(c)) most = std::max(most, rank.forward + rank.backward);
    const Traffic expected = traffic_of(c, resolve_lengths(c));
    EXPECT_EQ(expected.forward + expected.backward, most);
  }
}

TEST_P(ExpectedTraffic, HasNoBackwardWithoutTraining) {
  Case c = base_case(GetParam());
  c.training = false;
  expect_traffic(c);
}

void expect_timed_steps_report(const Case& c) {
  SCOPED_TRACE(to_json(c).dump());
  const SequenceLengths lengths = resolve_lengths(c);
  const Traffic expected = traffic_of(c, lengths);
  run_ranks(c.cp_size, [&](const CpGroups& groups, int) {
    StepTimes times;
    BuiltinImplementation own;
    time_case(own, c, lengths, verify::RankView(c, lengths, groups.cp->rank(), c.cp_size), groups,
              {.warmup = 0, .iterations = 1}, times);
    EXPECT_EQ(times.bytes_sent, expected.forward + expected.backward);
  });
}

TEST_P(ExpectedTraffic, IsWhatTimedStepsReport) {
  expect_timed_steps_report(base_case(GetParam()));
}

TEST_P(ExpectedTraffic, CountsWhatReplicatedTokensCost) {
  Case c = base_case(GetParam());
  c.replicated = 5;
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {29, 3};
  c.seqlens_kv = {17, 32};
  c.seqlen_q = c.seqlen_kv = 32;
  expect_timed_steps_report(c);
  c.training = false;
  expect_timed_steps_report(c);
}

// On CPU the math backend stands in for cuDNN. It rounds each contribution to a gradient to 16 bits, as cuDNN does, so
// contributions travel in 16 bits.
TEST(Traffic, IsLessThanExpectedWhereGradientsTravelIn16Bits) {
  for (const CommType comm : {CommType::p2p, CommType::all_gather}) {
    Case c = base_case(comm);
    c.cp_size = 2;
    c.dtype = DType::bf16;
    c.backend = Backend::cudnn;
    c.causal = true;
    SCOPED_TRACE(to_string(comm));
    const Traffic expected = traffic_of(c, resolve_lengths(c));
    for (const Traffic& rank : measured(c)) {
      EXPECT_EQ(rank.forward, expected.forward);
      EXPECT_LT(rank.backward, expected.backward);
      // With two ranks the only message of a rank is its contribution.
      if (comm == CommType::p2p) {
        EXPECT_LE(rank.backward, expected.backward / 2);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CommTypes, ExpectedTraffic, ::testing::ValuesIn(kValues<CommType>), [](const auto& info) {
  std::string name{to_string(info.param)};
  std::erase(name, '+');
  return name;
});

}  // namespace
}  // namespace cp_pool
