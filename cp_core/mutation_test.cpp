#include "cp_core/mutation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/dense_attention.h"

namespace cp_pool::test {
namespace {

constexpr double kTolerance = 1e-4;

AttentionProblem problem_of(CommType comm, Layout layout, const Mask& mask) {
  AttentionProblem problem;
  problem.comm = comm;
  problem.layout = layout;
  set_mask(problem, mask);
  problem.heads = 8;
  problem.kv_heads = 4;
  problem.head_dim_qk = 8;
  problem.head_dim_v = 4;
  const bool thd = layout == Layout::thd;
  problem.lengths = {.valid_q = thd ? std::vector<std::int64_t>{37, 3, 64} : std::vector<std::int64_t>{64, 64},
                     .padded_q = thd ? std::vector<std::int64_t>{40, 8, 64} : std::vector<std::int64_t>{64, 64},
                     .valid_kv = {},
                     .padded_kv = {}};
  problem.lengths.valid_kv = problem.lengths.valid_q;
  problem.lengths.padded_kv = problem.lengths.padded_q;
  return problem;
}

void set_kv_lengths(AttentionProblem& problem, std::int64_t length) {
  std::ranges::fill(problem.lengths.valid_kv, length);
  std::ranges::fill(problem.lengths.padded_kv, length);
}

// A few problems that together show every mutant which is not excluded below.
std::vector<AttentionProblem> problems() {
  std::vector<AttentionProblem> all;
  for (const CommType comm : kValues<CommType>) {
    for (const Layout layout : {Layout::bshd, Layout::thd}) {
      AttentionProblem plain = problem_of(comm, layout, {.right = 0});
      plain.max_logit = true;
      all.push_back(plain);
      all.push_back(problem_of(comm, layout, {.left = 6, .right = 3}));
      all.push_back(problem_of(comm, layout, {.left = 4, .right = 2, .chunk = 12}));

      AttentionProblem unequal = problem_of(comm, layout, {.right = 0});
      unequal.softmax = SoftmaxType::learnable;
      for (std::int64_t& length : unequal.lengths.valid_kv) length += 16;
      for (std::int64_t& length : unequal.lengths.padded_kv) length += 16;
      all.push_back(unequal);

      AttentionProblem few_keys = problem_of(comm, layout, {.right = 0});
      few_keys.softmax = SoftmaxType::off_by_one;
      set_kv_lengths(few_keys, 16);  // most queries see no key
      all.push_back(few_keys);

      // Keys reach past the diagonal, so that a rank's two chunks of queries do not merge into one tile.
      all.push_back(problem_of(comm, layout, {.right = 1}));
      AttentionProblem fewer_keys = problem_of(comm, layout, {.right = 2});
      set_kv_lengths(fewer_keys, 56);
      all.push_back(fewer_keys);

      for (const BiasShape bias : {BiasShape::shape_bhss, BiasShape::shape_11ss}) {
        AttentionProblem biased = problem_of(comm, layout, {.right = 0});
        biased.bias = bias;
        all.push_back(biased);
      }
    }
  }
  AttentionProblem equal_dims = problem_of(CommType::p2p, Layout::bshd, {.right = 0});
  equal_dims.head_dim_v = equal_dims.head_dim_qk;  // K and V have the same shape
  all.push_back(equal_dims);
  for (const std::int64_t kv_heads : {6, 2}) {  // more than the ranks and no multiple of them, and fewer
    AttentionProblem uneven = problem_of(CommType::a2a, Layout::bshd, {.right = 0});
    uneven.heads = 2 * kv_heads;
    uneven.kv_heads = kv_heads;
    all.push_back(uneven);
  }
  return all;
}

struct Sample {
  AttentionProblem problem;
  WholeInputs inputs;
  WholeResults expected;
};

bool differs(const Sample& sample, const AttentionProblem& problem) {
  return !differences(problem, sample.expected, run_on_ranks(problem, sample.inputs, 4), kTolerance).empty();
}

class Mutants : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    samples_ = new std::vector<Sample>;
    for (const AttentionProblem& problem : problems()) add(problem);
    AttentionProblem negative = problem_of(CommType::p2p, Layout::thd, {});
    negative.max_logit = true;
    add(negative);
    Sample& last = samples_->back();
    last.inputs.q = last.inputs.q.abs();
    last.inputs.k = last.inputs.k.abs().neg();
    last.expected = dense_attention(negative, last.inputs);
  }
  static void TearDownTestSuite() { delete samples_; }

  static void add(const AttentionProblem& problem) {
    Sample sample{.problem = problem, .inputs = make_inputs(problem, at::kFloat, 3), .expected = {}};
    sample.expected = dense_attention(problem, sample.inputs);
    samples_->push_back(std::move(sample));
  }

  // The index of the first sample in which the mutant that is on shows; -1 if it shows in none.
  static int first_difference() {
    for (std::size_t i = 0; i < samples_->size(); ++i) {
      if (differs((*samples_)[i], (*samples_)[i].problem)) return static_cast<int>(i);
    }
    return -1;
  }

  static inline std::vector<Sample>* samples_ = nullptr;  // NOLINT(readability-identifier-naming)
};

TEST_F(Mutants, ShowNothingWhileNoneIsOn) {
  EXPECT_EQ(first_difference(), -1);
}

TEST_F(Mutants, ChangeTheResultEachByItself) {
  for (const MutantInfo& info : all_mutants()) {
    if (info.where == MutantWhere::gpu) continue;
    // These change the result by far less than the tolerance.
    if (info.mutant == Mutant::repeat_drifts || info.mutant == Mutant::repeat_drifts_backward ||
        info.mutant == Mutant::last_head_inexact || info.mutant == Mutant::unseen_key_gradient) {
      continue;
    }
    // These need two calls of one shape with different inputs.
    if (info.name.starts_with("kept_")) continue;
    // These need 16-bit dtypes, where backends return results rounded call by call. run_case/mutants_test.cpp has them,
    // and the mutants excluded below.
    if (info.mutant == Mutant::some_rows_in_place || info.mutant == Mutant::head_groups_repeated ||
        info.mutant == Mutant::later_calls_dropped || info.mutant == Mutant::saved_of_first_group ||
        info.mutant == Mutant::fp16_dq_in_bf16) {
      continue;
    }
    // These need scores far from 0, or a sink that is larger than all scores.
    if (info.mutant == Mutant::softmax_max_not_subtracted || info.mutant == Mutant::backward_lse_divided ||
        info.mutant == Mutant::merge_max_not_subtracted || info.mutant == Mutant::merge_small_part_dropped ||
        info.name.starts_with("softmax_max_from_") || info.mutant == Mutant::max_logit_of_sink) {
      continue;
    }
    // These need an odd ring, a chunk that is all padding, lengths that the number of ranks does not divide, or inputs
    // that are slices of larger tensors.
    if (info.mutant == Mutant::odd_ring_order || info.mutant == Mutant::padding_chunk_nan ||
        info.mutant == Mutant::lengths_rounded_down || info.mutant == Mutant::strides_ignored) {
      continue;
    }
    // These need a mask of slices, a softcap, or inner groups of more than two ranks.
    if (info.name.starts_with("slice_") || info.name.starts_with("softcap_")) continue;
    if (info.mutant == Mutant::inner_rows_by_pair) continue;
    // These need several groups of ranks, or replicated tokens, which are exchanged before and after the attention.
    if (info.mutant == Mutant::group_ranks_consecutive || info.mutant == Mutant::replicated_keys_twice ||
        info.mutant == Mutant::replicated_keys_dropped || info.mutant == Mutant::replicated_gradients_not_summed ||
        info.mutant == Mutant::replicated_out_of_one_rank || info.mutant == Mutant::part_of_last_rank_lost ||
        info.mutant == Mutant::part_empty_lse_zero || info.mutant == Mutant::part_keys_from_zero) {
      continue;
    }
    const ScopedMutant on(info.mutant);
    EXPECT_NE(first_difference(), -1) << info.name << ": " << info.description;
  }
}

TEST_F(Mutants, AreOnOneAtATime) {
  const ScopedMutant on(Mutant::mask_offset);
  EXPECT_TRUE(mutant_is_on(Mutant::mask_offset));
  EXPECT_THROW(ScopedMutant{Mutant::ring_order}, std::logic_error);
}

}  // namespace
}  // namespace cp_pool::test
