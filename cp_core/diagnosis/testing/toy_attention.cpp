#include "cp_core/diagnosis/testing/toy_attention.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "cp_core/diagnosis/wrong_pairs.h"

namespace cp_pool::diagnosis::test {
namespace {

at::Tensor places_of(const std::vector<verify::LocalRow>& rows) {
  std::vector<std::int64_t> places;
  places.reserve(rows.size());
  for (const verify::LocalRow& row : rows) places.push_back(row.canonical);
  return at::tensor(places, at::kLong);
}

class ToyStep final : public Step {
 public:
  ToyStep(const StepSetting& setting, const verify::Shards& shards, const verify::Sharding& sharding,
          const ToySight& sight, bool second)
      : setting_(setting),
        shards_(shards),
        sight_(sight),
        grid_(make_grid(setting.c, setting.lengths, sharding, setting.groups.cp->size())),
        second_(second) {}

  void forward(verify::Results& results) override {
    const at::NoGradGuard no_grad;
    const at::Tensor q = own(setting_.view.q, shards_.q);
    const at::Tensor k = gathered(own(setting_.view.kv, shards_.k), "k");
    const at::Tensor v = gathered(own(setting_.view.kv, shards_.v), "v");
    const at::Tensor weights = at::matmul(q, by_query_head(k).transpose(1, 2)).mul(scale()).exp().mul(times());
    const at::Tensor sum = weights.sum(2, /*keepdim=*/true);
    const at::Tensor p = weights.div(sum).nan_to_num(0.0);
    at::Tensor out = at::matmul(sight_.in_out.defined() ? p.mul(of_own(sight_.in_out)) : p, by_query_head(v));
    if (!sight_.repeats && second_) out = out.mul(1 + 0x1p-6);
    results.out = in_layout(with_garbage(out, setting_.view.q));
    if (!sight_.gives_lse) return;
    results.lse =
        with_garbage(sum.log().mul(sight_.lse_factor), setting_.view.q).squeeze(2).to(at::kFloat).contiguous();
  }

  void backward(verify::Results& /*results*/) override {}

 private:
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(setting_.groups.cp->rank()); }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(setting_.c.head_dim_qk)); }

  // Returns the shard as fp64 [heads, rows, dim].
  static at::Tensor own(const verify::RankRows& rows, const at::Tensor& shard) {
    return rows.packed(shard).to(at::kDouble).transpose(0, 1).contiguous();
  }

  [[nodiscard]] at::Tensor in_layout(const at::Tensor& by_head) const {
    const Case& c = setting_.c;
    at::Tensor packed = by_head.transpose(0, 1).to(verify::scalar_type_of(c.dtype)).contiguous();
    if (c.layout == Layout::thd) return packed;
    const at::Tensor bshd = packed.view({c.batch, -1, packed.size(1), packed.size(2)});
    return c.layout == Layout::bshd ? bshd : bshd.transpose(0, 1).contiguous();
  }

  // If nothing is promised about padding rows, fills them with numbers that differ in every head and every step.
  [[nodiscard]] at::Tensor with_garbage(const at::Tensor& by_head, const verify::RankRows& rows) const {
    if (setting_.view.sharding.judges_padding || rows.padding_rows().numel() == 0) return by_head;
    thread_local double number = 0;
    at::Tensor whole = by_head.clone();
    for (std::int64_t h = 0; h < whole.size(0); ++h) {
      whole.select(0, h).index_fill_(0, rows.padding_rows(), number);
      number += 0.375;
    }
    return whole;
  }

  [[nodiscard]] at::Tensor by_query_head(const at::Tensor& keys) const {
    return keys.repeat_interleave(setting_.c.heads / setting_.c.kv_heads, /*dim=*/0);
  }

  // Selects this rank's queries from a matrix of the grid: [rows, kv].
  [[nodiscard]] at::Tensor of_own(const at::Tensor& matrix) const {
    return matrix.index_select(0, places_of(grid_.q.by_rank[rank()]));
  }
  [[nodiscard]] at::Tensor times() const {
    std::vector<at::Tensor> heads;
    heads.reserve(static_cast<std::size_t>(setting_.c.heads));
    for (std::int64_t h = 0; h < setting_.c.heads; ++h) {
      heads.push_back(of_own(sight_.times[static_cast<std::size_t>(h) % sight_.times.size()]));
    }
    return at::stack(heads);
  }

  // Gathers [heads, rows, dim] from all ranks, in grid order.
  [[nodiscard]] at::Tensor gathered(const at::Tensor& rows, const char* what) const {
    at::Tensor all = at::zeros({rows.size(0), grid_.kv.size(), rows.size(2)}, at::kDouble);
    all.index_copy_(1, places_of(grid_.kv.by_rank[rank()]), rows);
    setting_.groups.cp->all_reduce(all, ReduceOp::sum, what)->wait();
    return all;
  }

  StepSetting setting_;
  const verify::Shards& shards_;
  const ToySight& sight_;
  ProbeGrid grid_;
  bool second_;
};

}  // namespace

std::unique_ptr<Step> ToyAttention::make_step(const StepSetting& setting, const verify::Shards& shards) {
  return std::make_unique<ToyStep>(setting, shards, sharding_, sight_, steps_++ % 2 == 1);
}

}  // namespace cp_pool::diagnosis::test
