#include "cp_core/context_parallel/context_parallel.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/comm_facts.h"
#include "cp_core/attention/math/math_backend.h"
#include "cp_core/testing/dense_attention.h"
#include "cp_core/testing/local_communicator.h"

namespace cp_pool::test {
namespace {

using testing::IsEmpty;

std::int64_t round_up(std::int64_t length, std::int64_t multiple) {
  return (length + multiple - 1) / multiple * multiple;
}

std::vector<std::int64_t> padded(std::vector<std::int64_t> lengths, int ranks) {
  for (std::int64_t& length : lengths) length = round_up(length, 2 * static_cast<std::int64_t>(ranks));
  return lengths;
}

// The largest length up to `most` that can be cut into two chunks for each rank.
std::int64_t divisible(std::int64_t most, int ranks) {
  return most - most % (std::int64_t{2} * ranks);
}

AttentionProblem small_problem(CommType comm, Layout layout, int ranks, int inner = kPair) {
  AttentionProblem problem;
  problem.comm = comm;
  problem.inner = inner;
  problem.layout = layout;
  const int sharing = facts_of(comm).head_ranks({ranks, inner});
  problem.heads = problem.kv_heads = 8 % sharing == 0 ? 8 : 2 * sharing;
  problem.head_dim_qk = 8;
  problem.head_dim_v = 8;
  const bool thd = layout == Layout::thd;
  const std::int64_t length = divisible(64, ranks);
  problem.lengths.valid_q = thd ? std::vector<std::int64_t>{37, 0, 3, 64} : std::vector<std::int64_t>{length, length};
  problem.lengths.padded_q = padded(problem.lengths.valid_q, ranks);
  problem.lengths.valid_kv = problem.lengths.valid_q;
  problem.lengths.padded_kv = problem.lengths.padded_q;
  return problem;
}

struct Axis {
  CommType comm = CommType::p2p;
  Layout layout = Layout::bshd;
  int ranks = 1;
  int inner = kPair;
};

std::string name_of(const Axis& axis) {
  std::string comm(to_string(axis.comm));
  std::ranges::replace(comm, '+', '_');
  return fmt::format("{}_{}_cp{}{}", comm, to_string(axis.layout), axis.ranks,
                     axis.inner == kPair ? "" : fmt::format("_inner{}", axis.inner));
}

std::vector<Axis> all_axes() {
  std::vector<Axis> axes;
  for (const CommType comm : kValues<CommType>) {
    for (const Layout layout : {Layout::bshd, Layout::sbhd, Layout::thd}) {
      for (const int ranks : {1, 2, 3, 4, 6, 8}) {
        if (ranks > 1 && !facts_of(comm).takes_size({ranks})) continue;
        if (layout == Layout::sbhd && ranks % 3 == 0) continue;
        axes.push_back({.comm = comm, .layout = layout, .ranks = ranks});
      }
    }
  }
  for (const auto& [ranks, inner] : {RankCounts{8, 4}, RankCounts{12, 4}, RankCounts{16, 8}}) {
    axes.push_back({.comm = CommType::a2a_p2p, .layout = Layout::bshd, .ranks = ranks, .inner = inner});
    axes.push_back({.comm = CommType::a2a_p2p, .layout = Layout::thd, .ranks = ranks, .inner = inner});
  }
  return axes;
}

void expect_dense_results_on(int ranks, const AttentionProblem& problem, at::ScalarType dtype, double tolerance) {
  const WholeInputs inputs = make_inputs(problem, dtype, 7);
  const std::vector<RankResults> results = run_on_ranks(problem, inputs, ranks);
  EXPECT_THAT(differences(problem, dense_attention(problem, inputs), results, tolerance), IsEmpty());
}

// Computes as the math backend does, and has remarks.
class RemarkingBackend final : public AttentionBackend {
 public:
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override {
    math_.forward(group, operands, partial);
    said_.emplace_back("forward tiles ran as math");
  }
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, PendingSums& pending) override {
    math_.backward(group, operands, backward_operands, pending);
    said_.emplace_back("backward tiles ran as math");
  }
  [[nodiscard]] std::vector<std::string> remarks() const override { return said_; }

 private:
  MathBackend math_;
  std::vector<std::string> said_;
};

TEST(ContextParallelResults, SayWhatTheBackendRemarks) {
  AttentionProblem problem = small_problem(CommType::p2p, Layout::bshd, 1);
  RemarkingBackend backend;
  const auto results = run_on_ranks(problem, make_inputs(problem, at::kFloat, 7), 1,
                                    {.backend_of = [&](int) -> AttentionBackend& { return backend; }});
  EXPECT_THAT(results.front().forward.remarks, testing::ElementsAre("forward tiles ran as math"));
  EXPECT_THAT(results.front().gradients.remarks, testing::Contains("backward tiles ran as math"));
}

class ContextParallel : public testing::TestWithParam<Axis> {
 protected:
  static AttentionProblem problem() {
    return small_problem(GetParam().comm, GetParam().layout, GetParam().ranks, GetParam().inner);
  }

  // Sequences with more keys than queries, or with fewer.
  static AttentionProblem unequal_problem(const Mask& mask, bool longer_keys) {
    AttentionProblem unequal = problem();
    set_mask(unequal, mask);
    SequenceLengths& lengths = unequal.lengths;
    const std::int64_t length = divisible(112, GetParam().ranks);
    lengths.valid_kv = unequal.layout == Layout::thd ? std::vector<std::int64_t>{70, 5, 0, 21}
                                                     : std::vector<std::int64_t>{length, length};
    lengths.padded_kv = padded(lengths.valid_kv, GetParam().ranks);
    if (!longer_keys) {
      std::swap(lengths.valid_q, lengths.valid_kv);
      std::swap(lengths.padded_q, lengths.padded_kv);
    }
    return unequal;
  }

  static void expect_dense_results(const AttentionProblem& problem, at::ScalarType dtype = at::kFloat,
                                   double tolerance = 2e-5) {
    expect_dense_results_on(GetParam().ranks, problem, dtype, tolerance);
  }
};

TEST_P(ContextParallel, EqualsDenseAttentionForEveryMask) {
  for (const Mask& mask : {Mask{}, Mask{.right = 0}, Mask{.left = 5, .right = 0}, Mask{.left = 5, .right = 9},
                           Mask{.left = 0, .right = 0}, Mask{.right = 3}, Mask{.left = 100, .right = 2}}) {
    SCOPED_TRACE(fmt::format("window {},{}", mask.left, mask.right));
    AttentionProblem causal = problem();
    set_mask(causal, mask);
    expect_dense_results(causal);
  }
}

TEST_P(ContextParallel, ServesGroupedHeadsAndUnequalHeadDimensions) {
  AttentionProblem gqa = problem();
  gqa.causal = true;
  gqa.heads = 2 * gqa.kv_heads;
  gqa.head_dim_qk = 12;
  gqa.head_dim_v = 4;
  expect_dense_results(gqa);
}

// Heads for each rank, and others: one head, fewer than ranks, and shares that cut a group of query heads.
constexpr std::array kUnevenHeads{std::pair{1, 1}, std::pair{3, 1},  std::pair{4, 2},
                                  std::pair{6, 3}, std::pair{10, 2}, std::pair{9, 9}};

TEST_P(ContextParallel, SplitsAnyHeads) {
  if (facts_of(GetParam().comm).head_ranks({GetParam().ranks, GetParam().inner}) == 1) return;  // heads are not split
  for (const auto& [heads, kv_heads] : kUnevenHeads) {
    SCOPED_TRACE(fmt::format("{} heads, {} kv_heads", heads, kv_heads));
    AttentionProblem uneven = problem();
    uneven.heads = heads;
    uneven.kv_heads = kv_heads;
    uneven.causal = true;
    uneven.head_dim_v = 4;
    uneven.softmax = SoftmaxType::learnable;
    uneven.max_logit = true;
    expect_dense_results(uneven);
    for (const BiasShape bias : {BiasShape::shape_bhss, BiasShape::shape_11ss, BiasShape::shape_111s}) {
      uneven.bias = bias;
      expect_dense_results(uneven);
    }
    uneven.bias.reset();
    uneven.softmax = SoftmaxType::vanilla;
    uneven.max_logit = false;
    uneven.backend = Backend::cudnn;
    expect_dense_results(uneven, at::kBFloat16, 2e-2);
  }
}

TEST_P(ContextParallel, RoundsOnceInLowPrecision) {
  AttentionProblem causal = problem();
  causal.causal = true;
  expect_dense_results(causal, at::kBFloat16, 2e-2);
  expect_dense_results(causal, at::kHalf, 4e-3);
}

// On the CPU the math backend stands in for cuDNN and returns its results call by call, rounded to 16 bits.
TEST_P(ContextParallel, TakesWhatKernelsRoundAsItIs) {
  for (const Mask& mask : {Mask{}, Mask{.right = 0}, Mask{.left = 5, .right = 0}, Mask{.left = 5, .right = 9},
                           Mask{.left = 5, .right = 2, .chunk = 8}}) {
    for (const SoftmaxType softmax : {SoftmaxType::vanilla, SoftmaxType::learnable}) {
      SCOPED_TRACE(fmt::format("window {},{} chunk {}", mask.left, mask.right, mask.chunk));
      AttentionProblem called = problem();
      called.backend = Backend::cudnn;
      set_mask(called, mask);
      called.softmax = softmax;
      called.heads = 2 * called.kv_heads;
      called.head_dim_v = 4;
      expect_dense_results(called, at::kBFloat16, 3e-2);
      expect_dense_results(called, at::kHalf, 4e-3);
    }
  }
}

TEST_P(ContextParallel, CutsAttentionIntoChunks) {
  // A rank's chunk has 32 positions with one rank and 4 with eight.
  for (const std::int64_t chunk : {3, 8, 24, 200}) {
    for (const Mask& mask : {Mask{.right = 0, .chunk = chunk}, Mask{.left = 5, .right = 2, .chunk = chunk}}) {
      SCOPED_TRACE(fmt::format("chunk {} window {},{}", chunk, mask.left, mask.right));
      AttentionProblem chunked = problem();
      set_mask(chunked, mask);
      expect_dense_results(chunked);
    }
  }
}

TEST_P(ContextParallel, AlignsUnequalLengthsAtTheBottomRight) {
  for (const bool longer_keys : {true, false}) {
    for (const Mask& mask :
         {Mask{}, Mask{.right = 0}, Mask{.left = 7, .right = 3}, Mask{.left = 7, .right = 0, .chunk = 9}}) {
      SCOPED_TRACE(
          fmt::format("longer {} window {},{} chunk {}", longer_keys ? "kv" : "q", mask.left, mask.right, mask.chunk));
      expect_dense_results(unequal_problem(mask, longer_keys));
    }
  }
}

// The rows of the queries belong to the sink and the bias, and these are not as many as those of the keys.
TEST_P(ContextParallel, JoinsASinkAndABiasToUnequalLengths) {
  for (const bool longer_keys : {true, false}) {
    SCOPED_TRACE(longer_keys);
    AttentionProblem with_sink = unequal_problem({.right = 0}, longer_keys);
    with_sink.softmax = SoftmaxType::learnable;
    expect_dense_results(with_sink);
    AttentionProblem biased = unequal_problem({.right = 0}, longer_keys);
    biased.bias = BiasShape::shape_bhss;
    expect_dense_results(biased);
  }
}

TEST_P(ContextParallel, JoinsASinkOnce) {
  for (const SoftmaxType softmax : {SoftmaxType::off_by_one, SoftmaxType::learnable}) {
    AttentionProblem with_sink = problem();
    set_mask(with_sink, {.left = 9, .right = 0});
    with_sink.softmax = softmax;
    expect_dense_results(with_sink);
  }
}

TEST_P(ContextParallel, ReportsTheLargestLogitOfEachHead) {
  AttentionProblem with_max_logit = problem();
  with_max_logit.causal = true;
  with_max_logit.max_logit = true;
  expect_dense_results(with_max_logit);
}

TEST_P(ContextParallel, AddsABiasOfEveryShape) {
  for (const BiasShape bias : {BiasShape::shape_1hss, BiasShape::shape_bhss, BiasShape::shape_b1ss,
                               BiasShape::shape_11ss, BiasShape::shape_111s}) {
    SCOPED_TRACE(to_string(bias));
    AttentionProblem biased = problem();
    biased.bias = bias;
    biased.max_logit = true;
    expect_dense_results(biased);
    set_mask(biased, {.left = 20, .right = 0});
    expect_dense_results(biased);
  }
}

// The backward only reads the tensors that the forward keeps for it.
TEST_P(ContextParallel, CanRunTheBackwardAgain) {
  AttentionProblem causal = problem();
  causal.backend = Backend::cudnn;
  causal.causal = true;
  causal.heads = 2 * causal.kv_heads;
  const WholeInputs inputs = make_inputs(causal, at::kBFloat16, 7);
  const std::vector<RankResults> results = run_on_ranks(causal, inputs, GetParam().ranks, {.backwards = 2});
  EXPECT_THAT(differences(causal, dense_attention(causal, inputs), results, 2e-2), IsEmpty());
}

// --- Windows ---------------------------------------------------------------------------------------------------------

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const auto bytes = [](const at::Tensor& tensor) { return tensor.contiguous().view({-1}).view(at::kByte); };
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() && bytes(a).equal(bytes(b));
}

// The names of the tensors whose bits differ.
std::vector<std::string> unlike(const RankResults& a, const RankResults& b) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, const at::Tensor& of_a, const at::Tensor& of_b) {
    if (!same_bits(of_a, of_b)) names.emplace_back(name);
  };
  compare("out", a.forward.out, b.forward.out);
  compare("lse", a.forward.lse, b.forward.lse);
  compare("max_logit", a.forward.max_logit, b.forward.max_logit);
  compare("dq", a.gradients.dq, b.gradients.dq);
  compare("dk", a.gradients.dk, b.gradients.dk);
  compare("dv", a.gradients.dv, b.gradients.dv);
  compare("dbias", a.gradients.dbias, b.gradients.dbias);
  compare("dsink", a.gradients.dsink, b.gradients.dsink);
  return names;
}

class ContextParallelWindows : public ContextParallel {
 protected:
  static void expect_same_bits(const AttentionProblem& problem, at::ScalarType dtype) {
    const WholeInputs inputs = make_inputs(problem, dtype, 7);
    const std::vector<RankResults> without = run_on_ranks(problem, inputs, GetParam().ranks);
    const std::vector<RankResults> with = run_on_ranks(problem, inputs, GetParam().ranks, {.windows = true});
    for (std::size_t rank = 0; rank < with.size(); ++rank) {
      EXPECT_THAT(unlike(with[rank], without[rank]), IsEmpty()) << "rank " << rank;
    }
  }
};

TEST_P(ContextParallelWindows, GiveTheSameBits) {
  AttentionProblem gqa = problem();
  gqa.causal = true;
  gqa.heads = 2 * gqa.kv_heads;
  gqa.head_dim_qk = 12;
  gqa.head_dim_v = 4;
  gqa.max_logit = true;
  gqa.softmax = SoftmaxType::learnable;
  expect_same_bits(gqa, at::kFloat);
  AttentionProblem called = gqa;  // is computed in groups of heads, and sends gradients call by call
  called.backend = Backend::cudnn;
  set_mask(called, {.left = 5, .right = 9});
  expect_same_bits(called, at::kBFloat16);
  AttentionProblem biased = problem();
  biased.bias = BiasShape::shape_1hss;
  expect_same_bits(biased, at::kFloat);
  for (const auto& [heads, kv_heads] : kUnevenHeads) {
    biased.heads = heads;
    biased.kv_heads = kv_heads;
    expect_same_bits(biased, at::kFloat);
  }
}

// A rank whose peers are missing names the operation that it waits for.
TEST_P(ContextParallelWindows, AreWhatKeysAndHeadsTravelThrough) {
  const AttentionProblem unpadded = small_problem(GetParam().comm, Layout::bshd, GetParam().ranks, GetParam().inner);
  const CpGroups groups = make_local_groups(GetParam().ranks, {.windows = true}).front();
  for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
    if (group) group->set_deadline(Communicator::Clock::now());
  }
  const at::Tensor shard = at::zeros(
      {2, unpadded.lengths.padded_q.front() / GetParam().ranks, unpadded.heads, unpadded.head_dim_qk}, at::kFloat);
  try {
    (void)context_parallel_forward(unpadded, groups, {.q = shard, .k = shard, .v = shard, .bias = {}, .sink = {}});
    FAIL() << "no CommError";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("put_all"));
  }
}

TEST(ContextParallelBackward, TakesWhatTheForwardReturned) {
  const AttentionProblem problem = small_problem(CommType::p2p, Layout::bshd, 1);
  MathBackend backend;
  const CpGroups groups = make_local_groups(1).front();
  EXPECT_THROW(
      (void)context_parallel_backward(problem, groups, AttentionInputs{}, AttentionForward{}, at::Tensor(), &backend),
      std::invalid_argument);
}

TEST(ContextParallelThd, WorksWithoutAnyToken) {
  for (const CommType comm : kValues<CommType>) {
    SCOPED_TRACE(to_string(comm));
    AttentionProblem empty = small_problem(comm, Layout::thd, 4);
    empty.softmax = SoftmaxType::learnable;
    empty.max_logit = true;
    empty.lengths = {.valid_q = {0, 0}, .padded_q = {0, 0}, .valid_kv = {0, 0}, .padded_kv = {0, 0}};
    expect_dense_results_on(4, empty, at::kFloat, 0.0);
  }
}

// There are more pieces than are worth a message each, so they are sent together and put in order afterwards.
TEST(ContextParallelThd, ServesManySequences) {
  for (const CommType comm : kValues<CommType>) {
    SCOPED_TRACE(to_string(comm));
    AttentionProblem many = small_problem(comm, Layout::thd, 4);
    many.causal = true;
    many.lengths.valid_q = {9, 16, 1, 24, 8, 13, 30, 5, 16, 2, 11, 17};
    many.lengths.padded_q = padded(many.lengths.valid_q, 4);
    many.lengths.valid_kv = many.lengths.valid_q;
    many.lengths.padded_kv = many.lengths.padded_q;
    expect_dense_results_on(4, many, at::kFloat, 2e-5);
    many.backend = Backend::cudnn;
    expect_dense_results_on(4, many, at::kBFloat16, 3e-2);
  }
}

std::vector<Axis> axes_of_windows() {
  std::vector<Axis> axes = all_axes();
  constexpr std::array kUseThem{CommType::all_gather, CommType::a2a, CommType::a2a_p2p};
  std::erase_if(axes, [&](const Axis& axis) {
    return axis.ranks == 1 || std::ranges::find(kUseThem, axis.comm) == kUseThem.end();
  });
  return axes;
}

INSTANTIATE_TEST_SUITE_P(, ContextParallelWindows, testing::ValuesIn(axes_of_windows()),
                         [](const auto& info) { return name_of(info.param); });
INSTANTIATE_TEST_SUITE_P(, ContextParallel, testing::ValuesIn(all_axes()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace cp_pool::test
