// Tests that quick has the cases in which several features meet. quick_pairs_test.cpp has those in which two meet.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "cases/lengths.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

std::vector<MatrixCase> quick() {
  return expand(std::vector{load_matrix(CP_POOL_MATRICES "/quick.json")}, "small");
}

bool holds_for_one(const std::function<bool(const Case&)>& predicate) {
  const auto cases = quick();
  return std::ranges::any_of(cases, [&predicate](const MatrixCase& entry) { return predicate(entry.c); });
}

TEST(Quick, IsSmall) {
  const auto cases = quick();
  EXPECT_LE(cases.size(), 200U);
  for (const MatrixCase& entry : cases) {
    EXPECT_LE(std::max(entry.c.seqlen_q, entry.c.seqlen_kv), 128) << entry.id;
    EXPECT_LE(entry.c.heads, 16) << entry.id;
    EXPECT_LE(entry.c.batch, 8) << entry.id;
  }
}

TEST(Quick, MeetsEveryCommWithEveryWorldSizeItHas) {
  for (int cp_size = 1; cp_size <= 8; ++cp_size) {
    for (const CommType comm : kValues<CommType>) {
      if (!facts_of(comm).takes_size({cp_size})) continue;
      EXPECT_TRUE(holds_for_one([&](const Case& c) { return c.comm == comm && c.cp_size == cp_size; }))
          << to_string(comm) << " " << cp_size;
    }
  }
}

TEST(Quick, MeetsEveryCommWithTheHardLengths) {
  for (const CommType comm : kValues<CommType>) {
    // Rank 0 owns the first and the last chunk.
    EXPECT_TRUE(holds_for_one([&](const Case& c) {
      const SequenceLengths lengths = resolve_lengths(c);
      bool last_chunks_are_padding = c.comm == comm && c.cp_size > 1;
      for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
        const std::int64_t chunk = lengths.padded_q[b] / (std::int64_t{2} * c.cp_size);
        last_chunks_are_padding = last_chunks_are_padding && lengths.valid_q[b] <= lengths.padded_q[b] - chunk;
      }
      return last_chunks_are_padding;
    })) << to_string(comm);
    // The mask is aligned bottom-right, so queries before the first key see no key.
    EXPECT_TRUE(holds_for_one([comm](const Case& c) { return c.comm == comm && c.causal && c.seqlen_q > c.seqlen_kv; }))
        << to_string(comm);
  }
}

TEST(Quick, HasAGradientOfEveryShapeOfBias) {
  for (const BiasShape shape : kValues<BiasShape>) {
    EXPECT_TRUE(holds_for_one([shape](const Case& c) { return c.bias == shape && c.training; })) << to_string(shape);
  }
}

// What an implementation keeps of an earlier call of the same shape is then wrong: lse, max_logit, dbias and dsink.
TEST(Quick, HasTwoSeedsOfOneShapeForEveryComm) {
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([comm](const Case& c) {
      if (c.comm != comm || !c.training || !c.bias || c.bias == BiasShape::shape_111s) return false;
      if (c.softmax != SoftmaxType::learnable || !c.max_logit) return false;
      return holds_for_one([&c](const Case& other) {
        Case same = other;
        same.seed = c.seed;
        return other.seed != c.seed && same == c && resolve_lengths(other) == resolve_lengths(c);
      });
    })) << to_string(comm);
  }
}

TEST(Quick, MeetsEveryCommWithSteepScoresAndASinkAboveAll) {
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([comm](const Case& c) { return c.comm == comm && c.input_scale >= 10; }))
        << to_string(comm);
    EXPECT_TRUE(holds_for_one([comm](const Case& c) {
      return c.comm == comm && c.input_scale < 0.5 && c.softmax == SoftmaxType::learnable && c.max_logit;
    })) << to_string(comm);
  }
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    EXPECT_TRUE(holds_for_one([dtype](const Case& c) { return c.dtype == dtype && c.input_scale >= 10; }))
        << to_string(dtype);
  }
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.comm == CommType::p2p && c.input_scale == 3; }));
}

TEST(Quick, HasHeadsAndLengthsThatDoNotDivide) {
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.inner == 4 && has_uneven_heads(c); }));
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.inner == 4 && !has_uneven_heads(c); }));
  for (const CommType comm : {CommType::a2a, CommType::a2a_p2p}) {
    const auto meets = [comm](const std::function<bool(const Case&)>& predicate) {
      return holds_for_one([&](const Case& c) { return c.comm == comm && predicate(c); });
    };
    EXPECT_TRUE(meets([](const Case& c) { return c.kv_heads > head_ranks(c) && has_uneven_heads(c); }));
    EXPECT_TRUE(meets([](const Case& c) { return c.kv_heads < head_ranks(c) && c.heads >= head_ranks(c); }));
    EXPECT_TRUE(meets([](const Case& c) { return c.heads < head_ranks(c); }));
  }
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([comm](const Case& c) {
      return c.comm == comm && c.layout != Layout::thd && c.pad_between_seqs &&
             c.seqlen_q % dual_chunks(c.cp_size) != 0;
    })) << to_string(comm);
  }
}

TEST(Quick, MeetsEveryCommWithScoresFarBelowZero) {
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([comm](const Case& c) { return c.comm == comm && c.score_offset == -100 && c.training; }))
        << to_string(comm);
    EXPECT_TRUE(holds_for_one([comm](const Case& c) { return c.comm == comm && c.score_offset == -65536; }))
        << to_string(comm);
  }
}

// Tensors other than q, k and v that have rows for replicated tokens, and sequences that are shorter than `replicated`.
TEST(Quick, ReplicatesTokensOfEveryKindOfTensor) {
  const auto replicated = [](const std::function<bool(const Case&)>& predicate) {
    return holds_for_one([&](const Case& c) { return c.replicated > 0 && predicate(c); });
  };
  EXPECT_TRUE(replicated([](const Case& c) { return c.bias && c.layout != Layout::thd && c.training; }));
  EXPECT_TRUE(replicated([](const Case& c) { return c.bias && c.layout == Layout::thd && c.training; }));
  EXPECT_TRUE(replicated([](const Case& c) { return c.softmax == SoftmaxType::learnable && c.max_logit; }));
  EXPECT_TRUE(replicated([](const Case& c) { return c.seqlen_q != c.seqlen_kv; }));
  EXPECT_TRUE(replicated([](const Case& c) { return std::ranges::min(resolve_lengths(c).valid_q) < c.replicated; }));
}

}  // namespace
}  // namespace cp_pool
