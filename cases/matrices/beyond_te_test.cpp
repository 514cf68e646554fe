// Checks that the matrix beyond-te covers all that Transformer Engine refuses under context parallelism.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

constexpr CommType kAllComms[] = {CommType::p2p, CommType::all_gather, CommType::a2a, CommType::a2a_p2p};
constexpr Layout kAllLayouts[] = {Layout::bshd, Layout::sbhd, Layout::thd};

class BeyondTe : public testing::Test {
 protected:
  using Predicate = std::function<bool(const Case&)>;

  [[nodiscard]] bool any(const Predicate& predicate) const {
    return std::ranges::any_of(cases_, [&](const MatrixCase& entry) { return predicate(entry.c); });
  }

  void expect_for_every_layout(CommType comm, const Predicate& predicate, const std::string& what) const {
    for (const Layout layout : kAllLayouts) {
      EXPECT_TRUE(any([&](const Case& c) { return c.comm == comm && c.layout == layout && predicate(c); }))
          << what << " with " << to_string(comm) << " " << to_string(layout);
    }
  }

  std::vector<MatrixCase> cases_ = expand(std::vector{load_matrix(CP_POOL_MATRICES "/beyond-te.json")}, "small");
};

bool has_window(const Case& c) {
  return c.window[0] >= 0 || c.window[1] > 0;
}

TEST_F(BeyondTe, HasAtLeast150SmallCasesThatCanRun) {
  EXPECT_GE(cases_.size(), 150U);
  for (const MatrixCase& entry : cases_) {
    EXPECT_LE(std::max(entry.c.seqlen_q, entry.c.seqlen_kv), 64) << entry.id;
  }
}

TEST_F(BeyondTe, HasWindowsInRings) {
  for (const CommType comm : {CommType::p2p, CommType::a2a_p2p}) {
    expect_for_every_layout(comm, [](const Case& c) { return has_window(c) && c.causal; }, "causal window");
    expect_for_every_layout(comm, [](const Case& c) { return has_window(c) && !c.causal; }, "window");
  }
}

TEST_F(BeyondTe, HasEveryBiasShapeOutsideOfP2pAndWithThd) {
  for (const BiasShape shape : {BiasShape::shape_1hss, BiasShape::shape_bhss, BiasShape::shape_b1ss,
                                BiasShape::shape_11ss, BiasShape::shape_111s}) {
    const auto has_shape = [shape](const Case& c) { return c.bias == shape && c.training; };
    for (const CommType comm : {CommType::all_gather, CommType::a2a, CommType::a2a_p2p}) {
      expect_for_every_layout(comm, has_shape, std::string(to_string(shape)));
    }
    for (const bool padded : {false, true}) {
      EXPECT_TRUE(any([&](const Case& c) {
        return c.comm == CommType::p2p && c.layout == Layout::thd && c.pad_between_seqs == padded && has_shape(c);
      })) << to_string(shape);
    }
  }
}

TEST_F(BeyondTe, HasEverySoftmaxInEveryComm) {
  for (const SoftmaxType softmax : {SoftmaxType::off_by_one, SoftmaxType::learnable}) {
    for (const CommType comm : kAllComms) {
      expect_for_every_layout(
          comm, [softmax](const Case& c) { return c.softmax == softmax; }, std::string(to_string(softmax)));
    }
  }
}

TEST_F(BeyondTe, HasThdOverPairsAndRings) {
  for (const bool padded : {false, true}) {
    for (const bool causal : {false, true}) {
      EXPECT_TRUE(any([&](const Case& c) {
        return c.comm == CommType::a2a_p2p && c.layout == Layout::thd && c.pad_between_seqs == padded &&
               c.causal == causal && !c.bias && !has_window(c);
      })) << padded
          << " " << causal;
    }
  }
}

TEST_F(BeyondTe, HasInnerGroupsOfFourWithABias) {
  EXPECT_TRUE(any([](const Case& c) { return c.inner == 4 && c.bias && c.training; }));
}

TEST_F(BeyondTe, HasMlaOnFlashOutsideOfP2p) {
  const auto mla = [](const Case& c) { return c.backend == Backend::flash && c.head_dim_qk != c.head_dim_v; };
  for (const CommType comm : {CommType::all_gather, CommType::a2a, CommType::a2a_p2p}) {
    expect_for_every_layout(comm, mla, "MLA");
  }
}

TEST_F(BeyondTe, HasPaddingBetweenSequencesOnFlash) {
  for (const CommType comm : kAllComms) {
    EXPECT_TRUE(any([comm](const Case& c) {
      const SequenceLengths lengths = resolve_lengths(c);
      return c.comm == comm && c.backend == Backend::flash && lengths.valid_q != lengths.padded_q;
    })) << to_string(comm);
  }
}

TEST_F(BeyondTe, HasBottomRightMasksBothWays) {
  for (const CommType comm : kAllComms) {
    for (const bool causal : {false, true}) {
      expect_for_every_layout(
          comm, [causal](const Case& c) { return c.causal == causal && c.seqlen_q < c.seqlen_kv; }, "more keys");
      expect_for_every_layout(
          comm, [causal](const Case& c) { return c.causal == causal && c.seqlen_q > c.seqlen_kv; }, "more queries");
    }
  }
}

TEST_F(BeyondTe, HasManySequencesAndCausalBesideAWindowToTheRight) {
  for (const CommType comm : kAllComms) {
    EXPECT_TRUE(any([comm](const Case& c) { return c.comm == comm && c.seqlens && c.seqlens->size() >= 12; }))
        << to_string(comm);
    EXPECT_TRUE(any([comm](const Case& c) { return c.comm == comm && c.causal && c.window[1] > 0; }))
        << to_string(comm);
  }
}

TEST_F(BeyondTe, HasNumbersOfRanksThatAreNoPowersOf2) {
  for (const CommType comm : kAllComms) {
    for (const int ranks : {3, 5, 6, 7}) {
      if (comm == CommType::a2a_p2p && ranks != 6) continue;
      expect_for_every_layout(
          comm, [ranks](const Case& c) { return c.cp_size == ranks; }, std::to_string(ranks) + " ranks");
    }
  }
}

TEST_F(BeyondTe, HasSteepScoresPartsFarApartAndSinksAboveAllEverywhere) {
  for (const CommType comm : kAllComms) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      expect_for_every_layout(
          comm, [dtype](const Case& c) { return c.input_scale >= 10 && c.dtype == dtype; }, "scores around +-100");
    }
    expect_for_every_layout(comm, [](const Case& c) { return c.input_scale == 3; }, "parts some 10 apart in lse");
    expect_for_every_layout(
        comm, [](const Case& c) { return c.input_scale < 0.5 && c.softmax == SoftmaxType::learnable && c.max_logit; },
        "a sink above all scores");
  }
}

TEST_F(BeyondTe, HasScoresFarBelow0Everywhere) {
  for (const CommType comm : kAllComms) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      expect_for_every_layout(
          comm, [dtype](const Case& c) { return c.score_offset == -100 && c.training && c.dtype == dtype; },
          "scores around -100");
    }
    expect_for_every_layout(comm, [](const Case& c) { return c.score_offset == -65536; }, "scores around -65536");
  }
}

TEST_F(BeyondTe, HasReplicatedTokensEverywhere) {
  for (const CommType comm : kAllComms) {
    for (const bool causal : {false, true}) {
      expect_for_every_layout(
          comm, [causal](const Case& c) { return c.replicated > 0 && c.causal == causal; }, "replicated tokens");
    }
    expect_for_every_layout(comm, [](const Case& c) { return c.replicated > 0 && c.bias; }, "replicated with a bias");
    expect_for_every_layout(comm, [](const Case& c) { return c.replicated == c.seqlen_kv; }, "replicated keys alone");
  }
}

TEST_F(BeyondTe, HasGroupsOfRanksEverywhere) {
  for (const CommType comm : kAllComms) {
    expect_for_every_layout(comm, [](const Case& c) { return c.group > 1 && c.cp_size > 1; }, "groups of ranks");
  }
  EXPECT_TRUE(any([](const Case& c) { return c.group > 1 && c.cp_size > 2 && !c.seqlens && c.layout == Layout::thd; }));
}

TEST_F(BeyondTe, HasMaxLogitChunksSlicesAndSoftcapsEverywhere) {
  for (const CommType comm : kAllComms) {
    expect_for_every_layout(comm, [](const Case& c) { return !c.mask.empty(); }, "slices");
    expect_for_every_layout(comm, [](const Case& c) { return c.softcap > 0; }, "softcap");
    expect_for_every_layout(comm, [](const Case& c) { return c.max_logit; }, "max_logit");
    expect_for_every_layout(comm, [](const Case& c) { return c.chunk > 0; }, "chunk");
  }
}

}  // namespace
}  // namespace cp_pool
