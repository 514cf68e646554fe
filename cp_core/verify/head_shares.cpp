#include "cp_core/verify/head_shares.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace cp_pool::verify {
namespace {

CanonicalProblem share_of(const CanonicalProblem& problem, const HeadShare& share) {
  CanonicalProblem result = problem;
  result.kv_heads = share.count;
  result.heads = share.count * (problem.heads / problem.kv_heads);
  result.whole_heads = problem.heads;
  return result;
}

CanonicalInputs share_of(const CanonicalProblem& problem, const CanonicalInputs& inputs, const HeadShare& share) {
  const std::int64_t group = problem.heads / problem.kv_heads;
  const auto part = [&](const at::Tensor& tensor, std::int64_t dim, std::int64_t per_kv_head) {
    if (!tensor.defined()) return tensor;
    return tensor.narrow(dim, share.first * per_kv_head, share.count * per_kv_head).contiguous();
  };
  return {.q = part(inputs.q, 1, group),
          .k = part(inputs.k, 1, 1),
          .v = part(inputs.v, 1, 1),
          .dout = part(inputs.dout, 1, group),
          .bias = problem.bias && problem.bias_of_each_head() ? part(inputs.bias, 1, group) : inputs.bias,
          .sink = part(inputs.sink, 0, group)};
}

// A tensor of which each rank has its own heads: [rows, batches * heads, ...].
struct Split {
  at::Tensor* tensor;
  std::int64_t batches;
  std::int64_t heads_a_kv_head;
};

// Gathers tensors from the ranks' shares. All values are sent as fp64.
class Joiner {
 public:
  Joiner(Communicator& cp, std::int64_t kv_heads) : cp_(cp) {
    for (int rank = 0; rank < cp.size(); ++rank) shares_.push_back(head_share(kv_heads, cp.size(), rank));
    for (const HeadShare& share : shares_) most_ = std::max(most_, share.count);
  }

  void add(at::Tensor& tensor, std::int64_t batches, std::int64_t heads_a_kv_head) {
    const Split split{.tensor = &tensor, .batches = batches, .heads_a_kv_head = heads_a_kv_head};
    splits_.push_back(split);
    const std::int64_t elements = elements_a_kv_head(split) * most_;
    elements_ += elements;
    if (elements_ >= kEnoughElements) join();
  }

  // Gathers the tensors that were added. Small tensors share a message.
  void join() {
    if (splits_.empty()) return;
    const auto options = splits_.front().tensor->options().dtype(at::kDouble);
    const std::int64_t own_count = shares_[static_cast<std::size_t>(cp_.rank())].count;
    const at::Tensor own = at::zeros({elements_}, options);
    std::int64_t offset = 0;
    for (const Split& split : splits_) {
      const at::Tensor by_head = heads_first(split, own_count);
      own.narrow(0, offset, by_head.numel()).view(by_head.sizes()).copy_(by_head);
      offset += elements_a_kv_head(split) * most_;
    }
    at::Tensor all = at::empty({cp_.size(), elements_}, options);
    cp_.all_gather(all, own, "expected results")->wait();
    offset = 0;
    for (const Split& split : splits_) {
      take(split, all, offset);
      offset += elements_a_kv_head(split) * most_;
    }
    splits_.clear();
    elements_ = 0;
  }

 private:
  static constexpr std::int64_t kEnoughElements = std::int64_t{1} << 23U;  // 64 MiB

  // Returns a view [rows, batches, heads, elements per head].
  static at::Tensor by_batch(const Split& split, std::int64_t kv_heads) {
    const at::Tensor& t = *split.tensor;
    return t.view({t.size(0), split.batches, kv_heads * split.heads_a_kv_head, t.dim() == 3 ? t.size(2) : 1});
  }
  static at::Tensor heads_first(const Split& split, std::int64_t kv_heads) {
    return by_batch(split, kv_heads).permute({2, 0, 1, 3});
  }
  static std::int64_t elements_a_kv_head(const Split& split) {
    const at::Tensor& t = *split.tensor;
    return t.size(0) * split.batches * split.heads_a_kv_head * (t.dim() == 3 ? t.size(2) : 1);
  }

  void take(const Split& split, const at::Tensor& all, std::int64_t offset) const {
    at::Tensor& t = *split.tensor;
    const std::int64_t columns = t.dim() == 3 ? t.size(2) : 1;
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < cp_.size(); ++rank) {
      const std::int64_t heads = shares_[static_cast<std::size_t>(rank)].count * split.heads_a_kv_head;
      const std::int64_t elements = heads * t.size(0) * split.batches * columns;
      parts.push_back(all.select(0, rank).narrow(0, offset, elements).view({heads, t.size(0), split.batches, columns}));
    }
    const at::Tensor whole = at::cat(parts).permute({1, 2, 0, 3}).contiguous();
    const std::int64_t matrices = whole.size(1) * whole.size(2);
    const at::ScalarType dtype = t.scalar_type();
    t = t.dim() == 3 ? whole.view({whole.size(0), matrices, columns}) : whole.view({whole.size(0), matrices});
    t = t.to(dtype);
  }

  Communicator& cp_;
  std::vector<HeadShare> shares_;
  std::int64_t most_ = 0;  // kv heads of the largest share
  std::vector<Split> splits_;
  std::int64_t elements_ = 0;  // how many elements each rank sends
};

// Sets the ceilings, which depend on the whole problem and on the rounding of all elements of a tensor.
void decide_ceilings(Expected& expected, const CanonicalProblem& problem, Communicator& cp) {
  std::vector<double> roundings;
  roundings.reserve(expected.tensors.size());
  for (const ExpectedTensor& tensor : expected.tensors) roundings.push_back(tensor.rounding);
  const auto count = static_cast<std::int64_t>(roundings.size());
  at::Tensor largest = at::empty({count}, at::kDouble);
  std::ranges::copy(roundings, largest.mutable_data_ptr<double>());
  largest = largest.to(expected.tensors.front().value.device());
  cp.all_reduce(largest, ReduceOp::max, "rounding of expected results")->wait();
  cp.synchronize("expected results");
  largest = largest.cpu();
  for (std::size_t i = 0; i < roundings.size(); ++i) {
    if (expected.tensors[i].ceiling_asked > 0) expected.tensors[i].ceiling_asked = fixed_tolerance(problem);
    expected.tensors[i].rounding = largest.const_data_ptr<double>()[i];
  }
}

}  // namespace

HeadShare head_share(std::int64_t kv_heads, int ranks, int rank) {
  const std::int64_t first = kv_heads * rank / ranks;
  return {.first = first, .count = kv_heads * (rank + 1) / ranks - first};
}

Expected compute_expected_together(const CanonicalProblem& problem, const CanonicalInputs& inputs, Communicator& cp) {
  if (cp.size() == 1) return compute_expected(problem, inputs);
  const HeadShare share = head_share(problem.kv_heads, cp.size(), cp.rank());
  const auto sum_shares = [&cp](at::Tensor& tensor) {
    cp.all_reduce(tensor, ReduceOp::sum, "expected gradient of the bias")->wait();
  };
  Expected expected = compute_expected(share_of(problem, share), share_of(problem, inputs, share), sum_shares);
  Joiner joiner(cp, problem.kv_heads);
  for (ExpectedTensor& tensor : expected.tensors) {
    const bool bias = tensor.name == "dbias";
    if (bias && problem.has_shared_dbias()) continue;  // is summed over all heads already
    const bool keys = tensor.name.ends_with("dk") || tensor.name == "dv";
    const std::int64_t batches = bias ? bias_extents(problem)[0] : 1;
    const std::int64_t heads = keys ? 1 : problem.heads / problem.kv_heads;
    for (at::Tensor* part : {&tensor.value, &tensor.baseline_error, &tensor.bound, &tensor.untouched}) {
      if (part->defined()) joiner.add(*part, batches, heads);
    }
  }
  joiner.join();
  decide_ceilings(expected, problem, cp);
  return expected;
}

}  // namespace cp_pool::verify
