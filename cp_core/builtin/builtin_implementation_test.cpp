#include "cp_core/builtin/builtin_implementation.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify {
namespace {

Case causal_case(CommType comm, Layout layout) {
  Case c = test::small_case();
  c.comm = comm;
  c.layout = layout;
  c.cp_size = 4;
  c.heads = c.kv_heads = 4;
  c.seqlen_q = c.seqlen_kv = 32;
  if (layout == Layout::thd) c.seqlens = {32, 16};
  c.causal = true;
  return c;
}

std::vector<RankReport> reports_of(const Case& c, const char* cut) {
  std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    BuiltinImplementation own(parse_convention(cut).value());
    reports[static_cast<std::size_t>(rank)] = run_case(own, c, groups, {});
  });
  return reports;
}

// The bug of slime#1871, LCA#53 and torchtitan#3681: data is sharded by one convention, and attention expects another.
TEST(BuiltinImplementation, InputsCutTheWrongWayAreSeen) {
  for (const CommType comm : {CommType::p2p, CommType::all_gather, CommType::a2a}) {
    for (const Layout layout : {Layout::bshd, Layout::thd}) {
      const Case c = causal_case(comm, layout);
      for (const char* cut : {"contiguous", "contiguous_pack", "striped", "striped:2", "dual_chunk_ulysses:2"}) {
        const auto reports = reports_of(c, cut);
        EXPECT_TRUE(
            std::ranges::any_of(reports, [](const RankReport& report) { return report.outcome == CaseOutcome::fail; }))
            << cut << " " << test::text_of(c);
      }
      EXPECT_EQ(test::fault_of(reports_of(c, "dual_chunk")), "") << test::text_of(c);
    }
  }
}

TEST(BuiltinImplementation, PackCutWhereSequencesShouldBeIsSeen) {
  const Case c = causal_case(CommType::p2p, Layout::thd);
  const auto reports = reports_of(c, "dual_chunk_pack");
  EXPECT_TRUE(
      std::ranges::any_of(reports, [](const RankReport& report) { return report.outcome == CaseOutcome::fail; }));
}

// Every rank holds the first 5 tokens of each sequence. In thd one sequence is shorter than that, and one is empty.
Case replicated_case(CommType comm, Layout layout) {
  Case c = causal_case(comm, layout);
  c.kv_heads = 4;
  c.heads = 8;
  c.head_dim_v = 4;
  c.replicated = 5;
  c.seqlen_q = 5 + 32;
  c.seqlen_kv = 5 + 16;
  c.softmax = SoftmaxType::learnable;
  c.max_logit = true;
  c.window = {7, 0};
  if (layout == Layout::thd) {
    c.pad_between_seqs = true;
    c.batch = 4;
    c.seqlens = {37, 3, 0, 30};
    c.seqlens_kv = {9, 21, 4, 0};
  }
  return c;
}

TEST(BuiltinImplementation, TakesReplicatedTokensInEveryLayoutAndCommunicationType) {
  for (const CommType comm : kValues<CommType>) {
    for (const Layout layout : kValues<Layout>) {
      Case c = replicated_case(comm, layout);
      for (const auto bias : {std::optional<BiasShape>{}, std::optional{BiasShape::shape_bhss},
                              std::optional{BiasShape::shape_11ss}, std::optional{BiasShape::shape_111s}}) {
        c.bias = bias;
        c.strided = bias.has_value();
        for (const RankReport& report : reports_of(c, "dual_chunk")) {
          EXPECT_EQ(report.outcome, CaseOutcome::pass) << report.reason << " " << test::text_of(c);
        }
      }
    }
  }
}

TEST(BuiltinImplementation, TakesQueriesThatEveryRankHasInEveryLayoutAndCommunicationType) {
  std::size_t tried = 1;
  for (const CommType comm : kValues<CommType>) {
    for (const Layout layout : kValues<Layout>) {
      for (const std::int64_t replicated : {0, 5}) {
        for (const bool training : {true, false}) {
          Case c = replicated_case(comm, layout);
          c.all_queries = true;
          c.replicated = replicated;
          c.seqlen_kv = replicated + 16;
          c.seqlen_q = layout == Layout::thd ? 37 : 3;
          if (layout == Layout::thd) c.seqlens_kv = {9, 16, 4, 0};
          c.bias = BiasShape::shape_bhss;
          c.softmax = kValues<SoftmaxType>[tried++ % kValues<SoftmaxType>.size()];
          c.training = training;
          EXPECT_EQ(test::fault_of(reports_of(c, "dual_chunk")), "") << test::text_of(c);
        }
      }
    }
  }
}

// Every rank holds whole sequences, or all of their keys, so that nothing is left to shard.
TEST(BuiltinImplementation, TakesSequencesThatAreReplicatedAsAWhole) {
  Case c = replicated_case(CommType::p2p, Layout::bshd);
  c.replicated = c.seqlen_kv;
  EXPECT_EQ(test::fault_of(reports_of(c, "dual_chunk")), "") << test::text_of(c);
  c.seqlen_q = c.seqlen_kv;
  EXPECT_EQ(test::fault_of(reports_of(c, "dual_chunk")), "") << test::text_of(c);
}

}  // namespace
}  // namespace cp_pool::verify
