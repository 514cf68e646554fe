#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {
namespace {

class Sums {
 public:
  Sums(const SimulatedStep& model, const Backward& backward, bool absolute)
      : model_(model),
        dense_(*model.dense),
        backward_(backward),
        absolute_(absolute),
        operands_(dense_, model.backward, absolute),
        exchanged_(operands_.exchanged_pairs()),
        counted_(dense_.q_rows.copy.logical_not().to(at::kDouble).unsqueeze(1)) {}

  void fill(WholeResults& results) const {
    const at::Tensor ds = scaled_ds();
    results.dq = dq();
    const at::Tensor of_k = weighted(ds, model_.weight_dk).mul(counted_);
    const at::Tensor of_v = weighted(backward_.p, model_.weight_dv).mul(counted_);
    results.dk = to_keys(of_k, operands_.q(), dk_head());
    results.dv = to_keys(of_v, operands_.dout(), model_.dkv_head);
    if (exchanged_.defined()) {
      // Where K and V are exchanged, V is used as K and gets the gradient of K, and the other way round.
      results.dv.add_(landed(of_k.masked_fill(exchanged_.logical_not(), 0.0), operands_.q(), model_.dkv_head));
      results.dk.add_(landed(of_v.masked_fill(exchanged_.logical_not(), 0.0), operands_.dout(), model_.dkv_head));
    }
    for (const auto member : {&WholeResults::dk, &WholeResults::dv}) {
      results.*member = (results.*member).index_select(0, dense_.kv_rows.original);
    }
    if (dense_.problem.has_dbias()) results.dbias = dbias();
    if (dense_.problem.has_dsink()) results.dsink = dsink();
  }

  [[nodiscard]] at::Tensor dq() const {
    const at::Tensor ds = weighted(scaled_ds(), model_.weight_dq);
    return to_heads(operands_.times_k(ds), model_.dq_head, dense_.c().heads);
  }

  [[nodiscard]] std::pair<at::Tensor, at::Tensor> dk_dv_of(const at::Tensor& keys) const {
    const auto of_keys = [&](const at::Tensor& of_pairs, const at::Tensor& weight, const at::Tensor& queries,
                             const std::vector<std::int64_t>& heads) {
      const at::Tensor columns = dense_.kv_rows.original.index_select(0, keys);
      const at::Tensor some = of_pairs.index_select(2, columns).mul(counted_);
      const bool by_key = weight.defined() && weight.size(1) > 1;
      return to_heads(
          at::bmm(weighted(some, by_key ? weight.index_select(1, columns) : weight).transpose(1, 2), queries), heads,
          dense_.c().kv_heads);
    };
    return {of_keys(scaled_ds(), model_.weight_dk, operands_.q(), dk_head()),
            of_keys(backward_.p, model_.weight_dv, operands_.dout(), model_.dkv_head)};
  }

 private:
  // The gradients of the scores before they were scaled.
  [[nodiscard]] at::Tensor scaled_ds() const {
    const at::Tensor scaled = backward_.ds.mul(absolute_ ? std::abs(model_.backward.scale) : model_.backward.scale);
    return backward_.slope.defined() ? scaled.mul_(backward_.slope) : scaled;
  }
  static at::Tensor weighted(const at::Tensor& of_pairs, const at::Tensor& weight) {
    return weight.defined() ? of_pairs.mul(weight) : of_pairs;
  }

  // Adds up [computed heads, rows, dim] to [rows, heads, dim], each computed head at its head in `heads`, where `count`
  // drops it.
  static at::Tensor to_heads(const at::Tensor& computed, const std::vector<std::int64_t>& heads, std::int64_t count) {
    at::Tensor sums = at::zeros({count + 1, computed.size(1), computed.size(2)}, computed.options());
    sums.index_add_(0, index_tensor(heads), computed);
    return sums.narrow(0, 0, count).transpose(0, 1).contiguous();
  }

  [[nodiscard]] const std::vector<std::int64_t>& dk_head() const {
    return model_.dk_head.empty() ? model_.dkv_head : model_.dk_head;
  }

  [[nodiscard]] at::Tensor to_keys(const at::Tensor& of_pairs, const at::Tensor& queries,
                                   const std::vector<std::int64_t>& heads) const {
    return landed(exchanged_.defined() ? of_pairs.masked_fill(exchanged_, 0.0) : of_pairs, queries, heads);
  }
  [[nodiscard]] at::Tensor landed(const at::Tensor& of_pairs, const at::Tensor& queries,
                                  const std::vector<std::int64_t>& heads) const {
    const std::int64_t kv_heads = dense_.c().kv_heads;
    if (!model_.landing.defined()) {
      return to_heads(at::bmm(of_pairs.transpose(1, 2), queries), heads, kv_heads);
    }
    at::Tensor sums = at::zeros({dense_.kv_rows.count(), kv_heads, queries.size(2)}, queries.options());
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      const auto [first, count] = queries_of(rank);
      const at::Tensor part = to_heads(
          at::bmm(of_pairs.narrow(1, first, count).transpose(1, 2), queries.narrow(1, first, count)), heads, kv_heads);
      const at::Tensor target = model_.landing.select(0, rank);
      const at::Tensor kept = target.ge(0).nonzero().flatten();
      sums.index_add_(0, target.index_select(0, kept), part.index_select(0, kept));
    }
    return sums;
  }

  [[nodiscard]] std::pair<std::int64_t, std::int64_t> queries_of(int rank) const {
    const auto& first = dense_.q_rows.first;
    const auto r = static_cast<std::size_t>(rank);
    return {first[r], first[r + 1] - first[r]};
  }

  // Returns the rows of all ranks: [rows, (batch or 1) * (heads or 1), largest valid length].
  [[nodiscard]] at::Tensor dbias() const {
    const std::int64_t heads = dense_.c().heads;
    at::Tensor ds = weighted(backward_.ds, model_.weight_dbias);
    if (dense_.c().layout == Layout::thd) ds = ds.mul(counted_);  // in the other layouts, a copy has a row of its own
    std::vector<at::Tensor> of_ranks;  // [heads, batch or 1, rows, columns]: the contribution of each rank's queries
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      const auto [first, count] = queries_of(rank);
      at::Tensor sums = at::zeros({heads, dense_.bias.numel() / dense_.bias.size(1)}, ds.options());
      sums.index_add_(1, model_.backward.bias_index.narrow(0, first, count).flatten(),
                      ds.narrow(1, first, count).flatten(1));
      of_ranks.push_back(sums.view({heads, dense_.bias.size(0), dense_.bias.size(2), dense_.bias.size(3)}));
    }
    std::vector<at::Tensor> received;
    received.reserve(static_cast<std::size_t>(dense_.ranks));
    for (int rank = 0; rank < dense_.ranks; ++rank) received.push_back(received_dbias(of_ranks, rank));
    return at::cat(received).narrow(2, 0, std::ranges::max(dense_.lengths().valid_kv));
  }

  [[nodiscard]] at::Tensor received_dbias(const std::vector<at::Tensor>& of_ranks, int rank) const {
    const bool whole = dense_.c().layout == Layout::thd;
    at::Tensor sum = at::zeros(of_ranks.front().sizes(), of_ranks.front().options());
    for (int from = 0; from < dense_.ranks; ++from) {
      const bool counts = from == rank || model_.dbias_of_all_ranks;
      const double share = whole ? model_.shares_dbias[rank][from].item<double>() : (counts ? 1 : 0);
      if (share != 0) sum.add_(of_ranks[static_cast<std::size_t>(from)], share);
    }
    if (dense_.bias.size(1) == 1) {
      sum = sum.mul(model_.dbias_heads.select(0, rank).view({-1, 1, 1, 1})).sum(0, /*keepdim=*/true);
    } else if (!model_.dbias_lands_at_own_head) {
      at::Tensor by_head = at::zeros(sum.sizes(), sum.options());
      sum = by_head.index_add_(0, index_tensor(model_.backward.bias_head), sum);
    }
    at::Tensor rows = verify::bias_by_row(sum.transpose(0, 1));
    if (whole) return rows;
    const auto [first, count] = queries_of(rank);
    return rows.index_select(0, dense_.q_rows.position.narrow(0, first, count / dense_.c().batch));
  }

  // [ranks, heads, 1]
  [[nodiscard]] at::Tensor dsink() const {
    if (!backward_.dsink.defined()) {
      return at::zeros({dense_.ranks, dense_.c().heads, 1}, at::TensorOptions().dtype(at::kDouble));
    }
    std::vector<at::Tensor> of_ranks;
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      const auto [first, count] = queries_of(rank);
      of_ranks.push_back(backward_.dsink.mul(counted_.squeeze(1)).narrow(1, first, count).sum(1));
    }
    at::Tensor by_rank = at::stack(of_ranks);
    at::Tensor landed = at::zeros(by_rank.sizes(), by_rank.options());
    landed.index_add_(1, index_tensor(model_.backward.sink_head), by_rank);
    return at::matmul(model_.shares_dsink, landed).unsqueeze(-1);
  }

  const SimulatedStep& model_;
  const DenseProblem& dense_;
  const Backward& backward_;
  bool absolute_;
  Operands operands_;
  at::Tensor exchanged_;
  at::Tensor counted_;  // fp64 [q rows, 1]: 0 for copies of replicated queries, else 1
};

}  // namespace

void sum_gradients(const SimulatedStep& model, const Backward& backward, bool absolute, WholeResults& results) {
  Sums(model, backward, absolute).fill(results);
}

at::Tensor sum_dq(const SimulatedStep& model, const Backward& backward) {
  return Sums(model, backward, /*absolute=*/false).dq();
}

std::pair<at::Tensor, at::Tensor> sum_dk_dv(const SimulatedStep& model, const Backward& backward,
                                            const at::Tensor& keys) {
  return Sums(model, backward, /*absolute=*/false).dk_dv_of(keys);
}

void sum_by(const SimulatedStep& model, const Backward& backward, bool absolute, WholeResults& results) {
  if (model.sums) {
    model.sums(model, backward, absolute, results);
  } else {
    sum_gradients(model, backward, absolute, results);
  }
  if (model.returned_gradients) model.returned_gradients(*model.dense, results);
}

}  // namespace cp_pool::diagnosis
