#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"
#include "cases/case_json.h"

namespace cp_pool {
namespace {

using testing::HasSubstr;

Case valid_case() {
  Case c;
  c.seqlen_q = c.seqlen_kv = 64;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 16;
  return c;
}

Case valid_thd_case() {
  Case c = valid_case();
  c.layout = Layout::thd;
  return c;
}

// Returns "field: message" for the problem of the case after `change`; empty if the case is valid.
std::string problem_of(Case c, const std::function<void(Case&)>& change) {
  change(c);
  const auto problem = find_problem(c);
  return problem ? problem->field + ": " + problem->message : "";
}
std::string problem_of(const std::function<void(Case&)>& change) {
  return problem_of(valid_case(), change);
}
std::string thd_problem_of(const std::function<void(Case&)>& change) {
  return problem_of(valid_thd_case(), change);
}

void set(Case& /*c*/) {}
template <typename Field, typename Value, typename... More>
void set(Case& c, Field Case::* field, const Value& value, const More&... more) {
  c.*field = value;
  set(c, more...);
}
// The same for a case with these fields: problem_with(&Case::heads, 3, &Case::kv_heads, 3).
template <typename... Fields>
std::string problem_with(const Fields&... fields) {
  return problem_of([&](Case& c) { set(c, fields...); });
}
template <typename... Fields>
std::string thd_problem_with(const Fields&... fields) {
  return thd_problem_of([&](Case& c) { set(c, fields...); });
}

TEST(CaseValidity, AcceptsOrdinaryCases) {
  EXPECT_EQ(problem_of([](Case&) {}), "");
  EXPECT_EQ(thd_problem_of([](Case&) {}), "");
  EXPECT_EQ(thd_problem_of([](Case& c) { c.pad_between_seqs = true; }), "");
}

TEST(CaseValidity, NamesAreWhatIdsAndFiltersCanSpell) {
  EXPECT_EQ(problem_of([](Case& c) { c.model = "cp_1.0-b"; }), "");
  EXPECT_THAT(problem_of([](Case& c) { c.suite = ""; }), HasSubstr("suite: \"\" is not a name"));
  for (const char* name : {"a/b", "a b", "a*", "-a", "a&b", "ä", "a=b", "a+b"}) {
    EXPECT_THAT(problem_of([name](Case& c) { c.model = name; }), HasSubstr("is not a name")) << name;
  }
}

TEST(CaseValidity, SizesArePositiveAndBounded) {
  EXPECT_EQ(problem_of([](Case& c) { c.batch = 0; }), "batch: 0 is not within 1..2147483647");
  EXPECT_EQ(problem_of([](Case& c) { c.seqlen_q = -4; }), "seqlen_q: -4 is not within 1..2147483647");
  EXPECT_EQ(problem_of([](Case& c) { c.seqlen_kv = 0; }), "seqlen_kv: 0 is not within 1..2147483647");
  EXPECT_EQ(problem_of([](Case& c) { c.heads = 65537; }), "heads: 65537 is not within 1..65536");
  EXPECT_EQ(problem_of([](Case& c) { c.kv_heads = 0; }), "kv_heads: 0 is not within 1..65536");
  EXPECT_EQ(problem_of([](Case& c) { c.head_dim_qk = 0; }), "head_dim_qk: 0 is not within 1..32768");
  EXPECT_EQ(problem_of([](Case& c) { c.head_dim_v = 32769; }), "head_dim_v: 32769 is not within 1..32768");
  EXPECT_EQ(problem_of([](Case& c) { c.seqlen_q = std::numeric_limits<std::int64_t>::max(); }),
            "seqlen_q: 9223372036854775807 is not within 1..2147483647");
}

TEST(CaseValidity, TokenOffsetsFitIntoInt32) {
  EXPECT_EQ(problem_of([](Case& c) { c.batch = 33554431; }), "");  // 64 * 33554431 = 2^31 - 64
  EXPECT_EQ(problem_of([](Case& c) { c.batch = 33554432; }),
            "seqlen_q: 33554432 sequences of 64 tokens are more than 2147483647 tokens");
  EXPECT_THAT(thd_problem_with(&Case::pad_between_seqs, true, &Case::batch, 1, &Case::seqlen_kv,
                               std::numeric_limits<std::int32_t>::max()),
              HasSubstr("seqlen_kv: 1 sequences of 2147483648 tokens"));
}

TEST(CaseValidity, CpSizeIsFrom1To64) {
  EXPECT_EQ(problem_of([](Case& c) { c.cp_size = 1; }), "");
  EXPECT_EQ(problem_with(&Case::cp_size, 64, &Case::seqlen_q, 128, &Case::seqlen_kv, 128), "");
  EXPECT_EQ(problem_of([](Case& c) { c.cp_size = 0; }), "cp_size: 0 is not within 1..64");
  EXPECT_EQ(problem_of([](Case& c) { c.cp_size = 65; }), "cp_size: 65 is not within 1..64");
}

TEST(CaseValidity, GroupsHaveUpTo64RanksTogether) {
  EXPECT_EQ(problem_of([](Case& c) { c.group = 32; }), "");
  EXPECT_EQ(problem_of([](Case& c) { c.group = 33; }),
            "group: 33 groups of 2 ranks are 66 ranks, and there are at most 64");
  EXPECT_EQ(problem_of([](Case& c) { c.group = 0; }), "group: 0 is not within 1..64");
}

TEST(CaseValidity, ListedGroupsHaveEveryRankOnce) {
  const auto problem_with = [](std::vector<std::vector<int>> ranks) {
    return problem_of([&](Case& c) {
      c.group = 2;
      c.group_ranks = std::move(ranks);
    });
  };
  EXPECT_EQ(problem_with({{2, 3}, {0, 1}}), "");
  EXPECT_EQ(problem_with({{0, 1, 2, 3}}), "group_ranks: 1 lists of ranks for a group of 2");
  EXPECT_EQ(problem_with({{0, 1, 2}, {3}}), "group_ranks[0]: 3 ranks for a cp_size of 2");
  EXPECT_EQ(problem_with({{0, 1}, {}}), "group_ranks[1]: a group has at least one rank");
  EXPECT_EQ(problem_with({{1, 2}, {0}}), "");
  EXPECT_EQ(problem_with({{0, 1}, {2, 3, 4}}),
            "group_ranks: group 1: seqlen_q: the length 64 of every sequence is not a multiple of 2 * cp_size (6)");
  EXPECT_EQ(problem_with({{0, 1}, {3, 2}}), "group_ranks[1]: the ranks of a group ascend");
  EXPECT_EQ(problem_with({{0, 1}, {1, 2}}), "group_ranks[1]: rank 1 is listed twice");
  EXPECT_EQ(problem_with({{0, 1}, {2, 4}}), "group_ranks[1]: 4 is not within 0..3");
}

TEST(CaseValidity, EveryGroupMayHaveLengthsOfItsOwn) {
  const auto problem_with = [](std::vector<std::vector<std::int64_t>> lengths) {
    return thd_problem_of([&](Case& c) {
      c.group = 2;
      c.seqlens = {16, 8};
      c.group_lengths = std::move(lengths);
    });
  };
  EXPECT_EQ(problem_with({{16, 8}, {24}}), "");
  EXPECT_EQ(problem_with({{16, 8}}), "group_lengths: 1 lists of lengths for a group of 2");
  EXPECT_EQ(problem_with({{8, 8}, {24}}), "group_lengths[0]: differs from seqlens");
  EXPECT_EQ(problem_with({{16, 8}, {}}), "group_lengths: group 1: batch: 0 is not within 1..2147483647");
}

TEST(CaseValidity, HeadsAreAMultipleOfKvHeads) {
  EXPECT_EQ(problem_of([](Case& c) { c.kv_heads = 3; }), "kv_heads: heads (8) is not a multiple of kv_heads (3)");
}

TEST(CaseValidity, HeadsNeedNotDivideByCpSizeForA2a) {
  EXPECT_EQ(problem_with(&Case::comm, CommType::a2a, &Case::heads, 3, &Case::kv_heads, 3), "");
}

TEST(CaseValidity, PairsNeedAnEvenWorldOfAtLeast4) {
  const auto with_size = [](int cp_size) {
    return problem_of([cp_size](Case& c) {
      c.comm = CommType::a2a_p2p;
      c.cp_size = cp_size;
      c.seqlen_q = c.seqlen_kv = std::int64_t{2} * cp_size;
    });
  };
  for (const int good : {4, 6, 8, 64}) EXPECT_EQ(with_size(good), "") << good;
  for (const int bad : {1, 2, 3, 5, 63}) EXPECT_THAT(with_size(bad), HasSubstr("cp_size: ")) << bad;
}

TEST(CaseValidity, InnerGroupsHave2Or4Or8RanksAndARing) {
  const auto with_inner = [](int inner, int cp_size, CommType comm = CommType::a2a_p2p) {
    return problem_of([=](Case& c) {
      c.comm = comm;
      c.inner = inner;
      c.cp_size = cp_size;
      c.seqlen_q = c.seqlen_kv = std::int64_t{2} * cp_size;
    });
  };
  EXPECT_EQ(with_inner(4, 8), "");
  EXPECT_EQ(with_inner(4, 12), "");
  EXPECT_EQ(with_inner(8, 16), "");
  EXPECT_EQ(with_inner(3, 6), "inner: 3 is not 2, nor 4 or 8 with comm a2a+p2p");
  EXPECT_EQ(with_inner(4, 8, CommType::a2a), "inner: 4 is not 2, nor 4 or 8 with comm a2a+p2p");
  for (const int bad : {4, 6, 10}) EXPECT_THAT(with_inner(4, bad), HasSubstr("cp_size: ")) << bad;
}

TEST(CaseValidity, InputsAreScaledWithinReason) {
  for (const double good : {0.001, 0.125, 1.0, 30.0}) {
    EXPECT_EQ(problem_of([good](Case& c) { c.input_scale = good; }), "") << good;
  }
  EXPECT_EQ(problem_of([](Case& c) { c.input_scale = 0; }), "input_scale: 0 is not within 0.001..30");
  EXPECT_EQ(problem_of([](Case& c) { c.input_scale = -10; }), "input_scale: -10 is not within 0.001..30");
  EXPECT_EQ(problem_of([](Case& c) { c.input_scale = 30.5; }), "input_scale: 30.5 is not within 0.001..30");
  EXPECT_EQ(problem_of([](Case& c) { c.input_scale = std::numeric_limits<double>::quiet_NaN(); }),
            "input_scale: nan is not within 0.001..30");
}

TEST(CaseValidity, ScoresAreMovedAsFarAsTheDtypeHolds) {
  const auto moved = [](double offset, DType dtype, bool training) {
    return problem_of([=](Case& c) {
      c.score_offset = offset;
      c.dtype = dtype;
      c.training = training;
    });
  };
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const bool training : {true, false}) {
      for (const double good : {-256.0, -100.0, -1.0, 0.0, 1.0, 100.0, 256.0}) {
        EXPECT_EQ(moved(good, dtype, training), "") << good;
      }
      const bool takes_more = dtype == DType::fp32 && !training;
      const std::string limit = ", the limit for 16 bits and for training";
      EXPECT_EQ(moved(-65536, dtype, training),
                takes_more ? "" : "score_offset: -65536 is neither 0 nor 1..256 above or below it" + limit);
      EXPECT_EQ(moved(256.5, dtype, training),
                takes_more ? "" : "score_offset: 256.5 is neither 0 nor 1..256 above or below it" + limit);
    }
  }
  const auto of_forward = [&](double offset) { return moved(offset, DType::fp32, /*training=*/false); };
  EXPECT_EQ(of_forward(65536), "");
  EXPECT_EQ(of_forward(-65537), "score_offset: -65537 is neither 0 nor 1..65536 above or below it");
  EXPECT_EQ(of_forward(0.5), "score_offset: 0.5 is neither 0 nor 1..65536 above or below it");
  EXPECT_EQ(of_forward(std::numeric_limits<double>::quiet_NaN()),
            "score_offset: nan is neither 0 nor 1..65536 above or below it");
}

TEST(CaseValidity, MovedScoresNeedADimensionOfTheirOwn) {
  const auto moved = [](std::int64_t head_dim) {
    return problem_of([head_dim](Case& c) {
      c.score_offset = -100;
      c.head_dim_qk = head_dim;
    });
  };
  EXPECT_EQ(moved(2), "");
  EXPECT_EQ(moved(1), "score_offset: -100 takes the last dimension of q and k, and a head_dim_qk of 1 has no other");
}

TEST(CaseValidity, WindowsAreInfiniteOrLengths) {
  EXPECT_EQ(problem_of([](Case& c) { c.window = {0, 0}; }), "");
  EXPECT_EQ(problem_with(&Case::window, std::array<std::int64_t, 2>{512, 512}, &Case::causal, true), "");
  EXPECT_EQ(problem_of([](Case& c) { c.window = {-2, 0}; }), "window[0]: -2 is not within -1..2147483647");
  EXPECT_EQ(problem_of([](Case& c) { c.window = {0, -2}; }), "window[1]: -2 is not within -1..2147483647");
  EXPECT_EQ(problem_of([](Case& c) { c.chunk = -1; }), "chunk: -1 is not within 0..2147483647");
}

TEST(CaseValidity, SlicesAreWithinTheSequencesAndShowAPairOnce) {
  const auto problem = [](std::vector<MaskSlice> slices) {
    return problem_of([&slices](Case& c) { c.mask = std::move(slices); });
  };
  const MaskSlice causal{.queries = {0, 64}, .keys = {0, 64}, .type = SliceType::causal};
  EXPECT_EQ(problem({causal}), "");
  EXPECT_EQ(problem({causal, {.queries = {0, 63}, .keys = {1, 64}, .type = SliceType::inverse_causal}}), "")
      << "one below the diagonal, one above it";
  EXPECT_EQ(problem({causal, {.queries = {0, 64}, .keys = {0, 64}, .type = SliceType::inverse_causal}}),
            "mask[1]: overlaps mask[0]: both show key 0 to query 0");
  EXPECT_EQ(problem({{.queries = {0, 8}, .keys = {0, 8}},
                     {.queries = {8, 16}, .keys = {0, 8}},
                     {.queries = {4, 12}, .keys = {7, 9}}}),
            "mask[2]: overlaps mask[0]: both show key 7 to query 4");
  EXPECT_EQ(problem({{.queries = {0, 65}, .keys = {0, 8}}}),
            "mask[0]: [0, 65) is no range of queries within 64 positions");
  EXPECT_EQ(problem({{.queries = {0, 8}, .keys = {8, 8}}}), "mask[0]: [8, 8) is no range of keys within 64 positions");
  EXPECT_EQ(problem_of([&](Case& c) {
              c.mask = {causal};
              c.chunk = 8;
            }),
            "mask: stands in place of causal, window and chunk, and the case has one of them, too");
}

TEST(CaseValidity, ASoftcapIsPositive) {
  EXPECT_EQ(problem_of([](Case& c) { c.softcap = 50; }), "");
  EXPECT_EQ(problem_of([](Case& c) { c.softcap = -1; }), "softcap: -1 is neither 0 nor within 0.001..10000");
  EXPECT_EQ(problem_of([](Case& c) { c.softcap = std::numeric_limits<double>::quiet_NaN(); }),
            "softcap: nan is neither 0 nor within 0.001..10000");
  EXPECT_EQ(problem_with(&Case::softcap, 50, &Case::score_offset, -100),
            "softcap: it takes away what score_offset adds to scores; a case has one of them at most");
}

TEST(CaseValidity, Fp8NeedsInputsOf16BitsAndScoresThatItCanHold) {
  const auto fp8_problem = [](const std::function<void(Case&)>& change) {
    return problem_of([&](Case& c) {
      c.fp8.emplace();
      change(c);
    });
  };
  EXPECT_EQ(fp8_problem([](Case&) {}), "");
  EXPECT_EQ(fp8_problem([](Case& c) { c.fp8->forward = false; }),
            "fp8.forward: false: a case in FP8 has its forward in FP8");
  EXPECT_EQ(fp8_problem([](Case& c) { c.dtype = DType::fp32; }),
            "fp8: the dtype of a case in FP8 is bf16 or fp16, not fp32");
  EXPECT_EQ(fp8_problem([](Case& c) { c.input_scale = 3; }), "fp8: an input_scale of 3 is too large for it");
  EXPECT_EQ(fp8_problem([](Case& c) { c.score_offset = -100; }), "fp8: a score_offset is too large for it");
}

TEST(CaseValidity, SequencesOfBshdAndSbhdDivideByTwiceTheRanksUnlessTheyArePadded) {
  EXPECT_EQ(problem_with(&Case::seqlen_q, 1, &Case::pad_between_seqs, true), "");
  EXPECT_EQ(problem_of([](Case& c) { c.seqlen_q = 66; }),
            "seqlen_q: the length 66 of every sequence is not a multiple of 2 * cp_size (4)");
  EXPECT_EQ(problem_with(&Case::layout, Layout::sbhd, &Case::seqlen_kv, 66),
            "seqlen_kv: the length 66 of every sequence is not a multiple of 2 * cp_size (4)");
}

TEST(CaseValidity, ReplicatedTokensAreOfEverySequence) {
  for (const std::int64_t good : {0, 4, 64}) {
    EXPECT_EQ(problem_of([good](Case& c) { c.replicated = good; }), "") << good;
  }
  EXPECT_EQ(problem_of([](Case& c) { c.replicated = -1; }),
            "replicated: -1 is not within 0..64 (the upper limit is seqlen_q)");
  EXPECT_EQ(problem_with(&Case::replicated, 40, &Case::seqlen_kv, 32),
            "replicated: 40 is not within 0..32 (the upper limit is seqlen_kv)");
}

TEST(CaseValidity, WhatIsNotReplicatedDividesByTwiceTheRanks) {
  EXPECT_EQ(problem_with(&Case::replicated, 5, &Case::seqlen_q, 69, &Case::seqlen_kv, 69), "");
  EXPECT_EQ(
      problem_of([](Case& c) { c.replicated = 5; }),
      "seqlen_q: the length 64 of every sequence without its 5 replicated tokens is not a multiple of 2 * cp_size "
      "(4)");
  const auto replicated_pack = [](std::vector<std::int64_t> seqlens) {
    return thd_problem_of([&seqlens](Case& c) {
      c.replicated = 5;
      c.seqlens = std::move(seqlens);
    });
  };
  EXPECT_EQ(replicated_pack({13, 3}), "") << "a sequence that is shorter is replicated as a whole";
  EXPECT_EQ(replicated_pack({13, 8}),
            "seqlens[1]: the length 8 of sequence 1 without its 5 replicated tokens is not a multiple of 2 * cp_size "
            "(4), and without pad_between_seqs it cannot be padded");
}

TEST(CaseValidity, QueriesThatEveryRankHasMayBeOfAnyNumber) {
  const auto decode = [](Case& c) {
    c.all_queries = true;
    c.seqlen_q = 1;
  };
  EXPECT_EQ(problem_of(decode), "");
  EXPECT_EQ(problem_of([&](Case& c) {
              decode(c);
              c.replicated = 4;
              c.seqlen_kv = 68;
            }),
            "")
      << "replicated counts keys";
  EXPECT_EQ(problem_of([&](Case& c) {
              decode(c);
              c.seqlen_kv = 66;
            }),
            "seqlen_kv: the length 66 of every sequence is not a multiple of 2 * cp_size (4)");
  EXPECT_EQ(thd_problem_with(&Case::all_queries, true, &Case::seqlens, std::vector<std::int64_t>{13, 8}),
            "seqlens[0]: the length 13 of sequence 0 is not a multiple of 2 * cp_size (4), and without "
            "pad_between_seqs it cannot be padded")
      << "they are the lengths of keys, too";
}

TEST(CaseValidity, OnlyThdHasLengthsOfSequences) {
  for (const Layout layout : {Layout::bshd, Layout::sbhd}) {
    const auto problem_with = [layout](const std::function<void(Case&)>& change) {
      Case c = valid_case();
      c.layout = layout;
      return problem_of(c, change);
    };
    const std::string tail = ": only allowed with layout thd, not " + std::string(to_string(layout));
    EXPECT_EQ(problem_with([](Case& c) { c.seqlens = {4, 4}; }), "seqlens" + tail);
    EXPECT_EQ(problem_with([](Case& c) { c.seqlens_kv = {4, 4}; }), "seqlens_kv" + tail);
  }
}

TEST(CaseValidity, ThereIsOneExplicitLengthPerSequence) {
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlens = {0, 64}; }), "");
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlens = {4}; }), "seqlens: 1 lengths for a batch of 2");
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlens_kv = {4, 4, 4}; }), "seqlens_kv: 3 lengths for a batch of 2");
}

TEST(CaseValidity, ExplicitLengthsLieBetween0AndTheLargest) {
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlens = {4, -4}; }), "seqlens[1]: the length -4 is negative");
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlens = {68, 4}; }),
            "seqlens[0]: the length 68 is larger than seqlen_q (64)");
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlens_kv = {4, 68}; }),
            "seqlens_kv[1]: the length 68 is larger than seqlen_kv (64)");
}

TEST(CaseValidity, WithoutPaddingExplicitLengthsDivideByTwiceTheRanks) {
  const auto odd_length = [](Case& c) { c.seqlens = {4, 5}; };
  EXPECT_EQ(thd_problem_of(odd_length),
            "seqlens[1]: the length 5 of sequence 1 is not a multiple of 2 * cp_size (4), and without pad_between_seqs "
            "it cannot be padded");
  EXPECT_EQ(thd_problem_of([&](Case& c) {
              odd_length(c);
              c.pad_between_seqs = true;
            }),
            "");
}

TEST(CaseValidity, WithoutPaddingTheLargestDrawnLengthDividesByTwiceTheRanks) {
  EXPECT_EQ(thd_problem_of([](Case& c) { c.seqlen_q = c.seqlen_kv = 66; }),
            "seqlen_q: the length 66 of every sequence is not a multiple of 2 * cp_size (4)");
  EXPECT_EQ(
      thd_problem_with(&Case::seqlen_q, 66, &Case::seqlen_kv, 66, &Case::seqlens, std::vector<std::int64_t>{4, 8}), "");
  EXPECT_EQ(
      thd_problem_with(&Case::seqlen_kv, 66, &Case::seqlens, std::vector<std::int64_t>{4, 8}),
      "seqlen_kv: the length 66 of every sequence is not a multiple of 2 * cp_size (4)");  // its lengths are drawn
  EXPECT_EQ(thd_problem_with(&Case::seqlen_q, 66, &Case::seqlen_kv, 66, &Case::pad_between_seqs, true), "");
}

TEST(CaseValidity, ValidateThrowsWithSourceAndPath) {
  Case c = valid_case();
  EXPECT_NO_THROW(validate(c, "here"));
  c.window[0] = -7;
  try {
    validate(c, "here");
    FAIL();
  } catch (const CaseError& e) {
    EXPECT_STREQ(e.what(), "here: $.window[0]: -7 is not within -1..2147483647");
  }
}

}  // namespace
}  // namespace cp_pool
