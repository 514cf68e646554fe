// Tests that the matrix quick covers what its description promises.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_names.h"
#include "cases/comm_facts.h"
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

std::string mask_label(const Case& c) {
  const bool left = c.window[0] >= 0;
  const bool right = c.window[1] >= 0 && !c.causal;
  if (left) return right ? "both" : "left";
  return c.causal ? "causal" : "none";
}

// The value of a case in each dimension. Every pair of values of two dimensions has to occur in some case.
std::vector<std::string> traits(const Case& c) {
  return {fmt::format("mask {}", mask_label(c)),
          fmt::format("comm {}", to_string(c.comm)),
          fmt::format("layout {}{}", to_string(c.layout), c.pad_between_seqs ? " padded" : ""),
          fmt::format("dtype {}", to_string(c.dtype)),
          c.heads == c.kv_heads ? "heads MHA" : "heads GQA",
          c.head_dim_qk == c.head_dim_v ? "head_dim one" : "head_dim MLA",
          c.replicated > 0 ? "tokens replicated" : "tokens cut"};
}

TEST(Quick, IsSmall) {
  const auto cases = quick();
  std::map<CommType, int> of_type;
  for (const MatrixCase& entry : cases) {
    EXPECT_LE(++of_type[entry.c.comm], 33) << entry.id;  // each feature adds one case to each type
    EXPECT_LE(std::max(entry.c.seqlen_q, entry.c.seqlen_kv), 128) << entry.id;
    EXPECT_LE(entry.c.heads, 16) << entry.id;
    EXPECT_LE(entry.c.batch, 8) << entry.id;
  }
}

TEST(Quick, MeetsEveryPairOfMaskCommLayoutDtypeHeadsAndReplication) {
  std::vector<std::string> comms;
  for (const auto& [type, name] : kNames<CommType>) comms.push_back(fmt::format("comm {}", name));
  const std::vector<std::vector<std::string>> values{{"mask causal", "mask none", "mask left", "mask both"},
                                                     comms,
                                                     {"layout bshd", "layout sbhd", "layout thd", "layout thd padded"},
                                                     {"dtype fp32", "dtype bf16", "dtype fp16"},
                                                     {"heads MHA", "heads GQA"},
                                                     {"head_dim one", "head_dim MLA"},
                                                     {"tokens replicated", "tokens cut"}};
  std::set<std::pair<std::string, std::string>> met;
  for (const MatrixCase& entry : quick()) {
    const std::vector<std::string> has = traits(entry.c);
    for (const std::string& a : has) {
      for (const std::string& b : has) met.emplace(a, b);
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) {
      for (const std::string& a : values[i]) {
        for (const std::string& b : values[j]) EXPECT_TRUE(met.contains({a, b})) << a << " never meets " << b;
      }
    }
  }
}

TEST(Quick, MeetsEveryCommWithEveryWorldSizeItHas) {
  for (int cp_size = 1; cp_size <= 8; ++cp_size) {
    for (const CommType comm : kValues<CommType>) {
      if (!facts_of(comm).takes_size(cp_size)) continue;
      EXPECT_TRUE(holds_for_one([&](const Case& c) { return c.comm == comm && c.cp_size == cp_size; }))
          << to_string(comm) << " " << cp_size;
    }
  }
}

TEST(Quick, MeetsEveryCommWithTheHardLengths) {
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([&](const Case& c) { return c.comm == comm && !c.training; })) << to_string(comm);
    EXPECT_TRUE(holds_for_one([&](const Case& c) {
      return c.comm == comm && std::ranges::count(resolve_lengths(c).valid_q, 0) > 0;
    })) << to_string(comm);
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
  }
}

TEST(Quick, TouchesEveryKind) {
  for (const BiasShape shape : {BiasShape::shape_1hss, BiasShape::shape_bhss, BiasShape::shape_b1ss,
                                BiasShape::shape_11ss, BiasShape::shape_111s}) {
    EXPECT_TRUE(holds_for_one([shape](const Case& c) { return c.bias == shape && c.training; })) << to_string(shape);
  }
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.bias && c.layout == Layout::thd; }));
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.softmax == SoftmaxType::off_by_one; }));
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.chunk > 0; }));
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.causal && c.seqlen_q < c.seqlen_kv; }));
  EXPECT_TRUE(holds_for_one([](const Case& c) { return c.seqlens_kv.has_value(); }));
  for (const CommType comm : kValues<CommType>) {
    const auto comm_has = [comm](const std::function<bool(const Case&)>& predicate) {
      return holds_for_one([&](const Case& c) { return c.comm == comm && predicate(c); });
    };
    EXPECT_TRUE(comm_has([](const Case& c) { return c.bias.has_value(); })) << to_string(comm);
    EXPECT_TRUE(comm_has([](const Case& c) { return c.softmax == SoftmaxType::learnable; })) << to_string(comm);
    EXPECT_TRUE(comm_has([](const Case& c) { return c.max_logit; })) << to_string(comm);
    // The mask is aligned bottom-right, so queries before the first key see no key.
    EXPECT_TRUE(comm_has([](const Case& c) { return c.causal && c.seqlen_q > c.seqlen_kv; })) << to_string(comm);
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

// Strided inputs with every communication type, layout and dtype.
TEST(Quick, MeetsEveryCommLayoutAndDtypeWithStridedInputs) {
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([comm](const Case& c) { return c.strided && c.comm == comm; })) << to_string(comm);
  }
  for (const Layout layout : kValues<Layout>) {
    EXPECT_TRUE(holds_for_one([layout](const Case& c) { return c.strided && c.layout == layout; }));
  }
  for (const DType dtype : kValues<DType>) {
    EXPECT_TRUE(holds_for_one([dtype](const Case& c) { return c.strided && c.dtype == dtype; }));
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

TEST(Quick, MeetsEveryCommWithTwoGroupsOfRanks) {
  for (const CommType comm : kValues<CommType>) {
    EXPECT_TRUE(holds_for_one([comm](const Case& c) { return c.group == 2 && c.cp_size > 1 && c.comm == comm; }))
        << to_string(comm);
  }
}

// A case whose heads do not divide over the ranks would be skipped by every worker.
TEST(Quick, HasHeadsForEveryRank) {
  for (const MatrixCase& entry : quick()) {
    EXPECT_EQ(heads_do_not_divide(entry.c), "") << entry.id;
  }
}

TEST(Quick, DrawnLengthsNeedPadding) {
  EXPECT_TRUE(holds_for_one([](const Case& c) {
    const SequenceLengths lengths = resolve_lengths(c);
    return c.layout == Layout::thd && !c.seqlens && lengths.valid_q != lengths.padded_q;
  }));
}

}  // namespace
}  // namespace cp_pool
