// Tests run_case with a small implementation that is not ours: it passes under every sharding convention, and fails
// with each of its faults.
#include "cp_core/run_case/implementation.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/plain_attention.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify {
namespace {

using cp_pool::test::PlainAttention;
using cp_pool::test::PlainFault;
using testing::HasSubstr;

Sharding declared(const char* convention) {
  Sharding sharding;
  sharding.rows = parse_convention(convention).value();
  sharding.padding = PaddingFill::garbage;
  sharding.judges_padding = false;
  return sharding;
}

// Sequences with different query and key lengths and padding between them, causal and with a window.
Case masked_pack() {
  Case c = test::small_case();
  c.layout = Layout::thd;
  c.cp_size = 4;
  c.batch = 3;
  c.seqlen_q = 32;
  c.seqlen_kv = 48;
  c.heads = 4;
  c.kv_heads = 2;
  c.seqlens = {29, 17, 32};
  c.seqlens_kv = {40, 48, 33};
  c.pad_between_seqs = true;
  c.causal = true;
  c.window = {9, 0};
  return c;
}

// Lists rows explicitly: rank r of n has every n-th valid row, from the last to the first, and rank 1 also has two rows
// of padding.
Sharding listed(const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  const auto deal = [&](const std::vector<std::int64_t>& valid) {
    std::int64_t total = 0;
    for (const std::int64_t length : valid) total += length;
    RowsByRank by_rank;
    for (int rank = 0; rank < c.cp_size; ++rank) {
      std::vector<std::int64_t> rows;
      for (std::int64_t row = total - 1; row >= 0; --row) {
        if (row % c.cp_size == rank) rows.push_back(row);
      }
      if (rank == 1) rows.insert(rows.end(), {-1, -1});
      by_rank.push_back(local_rows(rows, valid));
    }
    return by_rank;
  };
  Sharding sharding = declared("dual_chunk");
  sharding.rows = Ownership{.q = deal(lengths.valid_q), .kv = deal(lengths.valid_kv)};
  return sharding;
}

std::vector<RankReport> reports_of(const Case& c, const Sharding& sharding, PlainFault fault = PlainFault::none) {
  std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
  run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
    PlainAttention plain(sharding, fault);
    reports[static_cast<std::size_t>(rank)] = run_case(plain, c, groups, {});
  });
  return reports;
}

bool fails(const Case& c, const Sharding& sharding, PlainFault fault) {
  return std::ranges::any_of(reports_of(c, sharding, fault),
                             [](const RankReport& report) { return report.outcome == CaseOutcome::fail; });
}

TEST(Seam, AnotherImplementationPassesUnderEveryConvention) {
  for (const char* convention : {"dual_chunk", "dual_chunk_pack", "contiguous", "contiguous_pack", "striped",
                                 "striped:2", "dual_chunk_ulysses:2", "dual_chunk_ulysses:2:outer"}) {
    EXPECT_EQ(test::fault_of(reports_of(masked_pack(), declared(convention))), "") << convention;
  }
}

TEST(Seam, AnotherImplementationPassesInEveryLayout) {
  for (const Layout layout : {Layout::bshd, Layout::sbhd}) {
    Case c = test::small_case();
    c.layout = layout;
    c.causal = true;
    for (const char* convention : {"dual_chunk", "contiguous", "striped:2"}) {
      EXPECT_EQ(test::fault_of(reports_of(c, declared(convention))), "") << convention;
    }
  }
}

TEST(Seam, RowsMayBeListedOneByOne) {
  const Case c = masked_pack();
  const auto reports = reports_of(c, listed(c));
  EXPECT_EQ(test::fault_of(reports), "");
  for (const RankReport& report : reports) EXPECT_EQ(report.outcome, CaseOutcome::pass);
}

TEST(Seam, RowsThatHaveNoOwnerAreRefusedBeforeAnythingRuns) {
  const Case c = masked_pack();
  Sharding sharding = listed(c);
  std::get<Ownership>(sharding.rows).kv[2].pop_back();
  try {
    (void)reports_of(c, sharding);
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no rank owns row 2 of kv (sequence 0, position 2)"));
  }
}

TEST(Seam, AConventionThatDoesNotDivideTheLengthsIsASkip) {
  for (const RankReport& report : reports_of(masked_pack(), declared("striped:64"))) {
    EXPECT_EQ(report.outcome, CaseOutcome::skip);
    EXPECT_THAT(report.reason, HasSubstr("striped:64"));
  }
}

TEST(Seam, SeesCommonFaultsOfAnotherImplementation) {
  for (const PlainFault fault :
       {PlainFault::diagonal_top_left, PlainFault::window_one_too_wide, PlainFault::sequences_see_others,
        PlainFault::reads_padding, PlainFault::unscaled, PlainFault::lse_in_base_2, PlainFault::keys_not_summed,
        PlainFault::heads_interleaved, PlainFault::repeats_other_bits}) {
    Case c = masked_pack();
    // With these lengths, the causal mask hides nearly all keys of other sequences and of padding.
    if (fault == PlainFault::reads_padding || fault == PlainFault::sequences_see_others) c.causal = false;
    if (fault == PlainFault::reads_padding || fault == PlainFault::sequences_see_others) c.window = {-1, -1};
    EXPECT_TRUE(fails(c, declared("dual_chunk"), fault)) << static_cast<int>(fault);
  }
}

TEST(Seam, SeesARunningMaximumThatStartsTooHighInLowScoresAlone) {
  Case c = masked_pack();
  c.training = false;
  const auto low_fails = [&c](double offset, PlainFault fault) {
    c.score_offset = offset;
    return fails(c, declared("dual_chunk"), fault);
  };
  EXPECT_FALSE(low_fails(-65536, PlainFault::none));
  EXPECT_TRUE(low_fails(-65536, PlainFault::maximum_from_minus_5e4));
  EXPECT_FALSE(low_fails(0, PlainFault::maximum_from_minus_5e4));
  c.input_scale = 30;
  EXPECT_FALSE(low_fails(0, PlainFault::maximum_from_minus_5e4));
}

// Every rank holds the first 5 tokens of each sequence; one sequence is shorter than that.
Case replicated_pack() {
  Case c = masked_pack();
  c.seqlens = {29, 4, 32};
  c.replicated = 5;
  c.window = {-1, -1};
  return c;
}

TEST(Seam, ReplicatedTokensPassUnderEveryConvention) {
  Case c = replicated_pack();
  for (const char* convention : {"dual_chunk", "dual_chunk_pack", "contiguous", "contiguous_pack", "striped",
                                 "striped:2", "dual_chunk_ulysses:2", "dual_chunk_ulysses:2:outer"}) {
    EXPECT_EQ(test::fault_of(reports_of(c, declared(convention))), "") << convention;
  }
  for (const Layout layout : {Layout::bshd, Layout::sbhd}) {
    c = test::small_case();
    c.layout = layout;
    c.replicated = 5;
    c.seqlen_q = c.seqlen_kv = 21;
    EXPECT_EQ(test::fault_of(reports_of(c, declared("contiguous"))), "");
  }
}

TEST(Seam, QueriesThatEveryRankHasPassUnderEveryConventionOfKeys) {
  for (const std::int64_t replicated : {0, 5}) {
    Case c = replicated_pack();
    c.replicated = replicated;
    c.all_queries = true;
    c.seqlens = {3, 1, 0};
    c.seqlens_kv = {29, 4, 32};
    for (const char* convention : {"dual_chunk", "contiguous", "striped:2", "paged", "paged:3"}) {
      EXPECT_EQ(test::fault_of(reports_of(c, declared(convention))), "") << convention;
    }
  }
}

TEST(Seam, SeesCommonFaultsWithReplicatedTokens) {
  for (const PlainFault fault : {PlainFault::replicated_keys_of_every_rank, PlainFault::replicated_loss_of_every_rank,
                                 PlainFault::replicated_gradients_of_a_rank}) {
    EXPECT_TRUE(fails(replicated_pack(), declared("dual_chunk"), fault)) << static_cast<int>(fault);
  }
}

// Each rank's copy of a replicated row is judged, so the rank with the wrong copy is named.
TEST(Seam, AWrongCopyOfAReplicatedRowIsThatOfItsRank) {
  const Case c = replicated_pack();
  for (const char* tensor : {"out", "lse", "dq", "dk", "dv"}) {
    std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
    run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
      PlainAttention plain(declared("dual_chunk"));
      RunOptions options;
      options.on_result = [&](std::string_view name, bool /*repeated*/, at::Tensor& result) {
        if (name == tensor && rank == 2) result.select(name == "lse" ? 1 : 0, 1).add_(0.5);
      };
      reports[static_cast<std::size_t>(rank)] = run_case(plain, c, groups, options);
    });
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      EXPECT_EQ(reports[rank].outcome, rank == 2 ? CaseOutcome::fail : CaseOutcome::pass) << tensor << " " << rank;
    }
    const Check& wrong = *std::ranges::find(reports[2].checks, false, &Check::ok);
    EXPECT_EQ(wrong.tensor, tensor);
    EXPECT_THAT(wrong.worst_index, testing::ElementsAre(0, 1, testing::_));
  }
}

TEST(Seam, InterleavedHeadsAreRightWhereTheyAreDeclared) {
  Sharding sharding = declared("dual_chunk");
  sharding.heads = HeadOrder::interleaved;
  EXPECT_EQ(test::fault_of(reports_of(masked_pack(), sharding, PlainFault::heads_interleaved)), "");
  EXPECT_TRUE(fails(masked_pack(), sharding, PlainFault::none));
}

// The message of a failed row says how far beyond the bound it is. A wider bound lets it pass, and is reported.
TEST(Seam, AFailingRowSaysHowMuchItNeedsAndAWiderBoundIsReported) {
  Case c = test::small_case();
  c.seqlen_q = c.seqlen_kv = 64;
  c.dtype = DType::bf16;
  Sharding sharding = declared("dual_chunk");
  sharding.bound_factor = 0.001;
  const auto strict = reports_of(c, sharding);
  EXPECT_EQ(strict.front().bound_factor, 0.001);
  EXPECT_THAT(test::fault_of(strict), testing::ContainsRegex("the worst needs [0-9.e+-]+ x baseline, allowed 0.002"));
  sharding.bound_factor = 3;
  const auto wide = reports_of(c, sharding);
  EXPECT_EQ(test::fault_of(wide), "");
  EXPECT_EQ(wide.front().bound_factor, 3);
}

// Padding rows of results may hold anything unless the implementation promises their values.
TEST(Seam, PaddingOfResultsIsJudgedIfItIsPromised) {
  Case c = masked_pack();
  c.causal = false;
  c.window = {-1, -1};
  Sharding sharding = declared("dual_chunk");
  sharding.judges_padding = true;
  EXPECT_EQ(test::fault_of(reports_of(c, sharding)), "") << "the plain implementation gives zeros there";
}

}  // namespace
}  // namespace cp_pool::verify
