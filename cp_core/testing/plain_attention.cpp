#include "cp_core/testing/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace cp_pool::test {
namespace {

using verify::LocalRow;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

at::Tensor column(const std::vector<LocalRow>& rows, std::int64_t LocalRow::* member) {
  std::vector<std::int64_t> values;
  values.reserve(rows.size());
  for (const LocalRow& row : rows) values.push_back(row.*member);
  return at::tensor(values, at::kLong);
}

// Returns for each row the length of its sequence.
at::Tensor lengths_of(const at::Tensor& sequences, const std::vector<std::int64_t>& lengths) {
  return at::tensor(lengths, at::kLong).index_select(0, sequences);
}

class PlainStep final : public Step {
 public:
  // number: of the step, from 0. last_dk: of the step before; receives that of this step.
  PlainStep(const StepSetting& setting, const verify::Shards& shards, verify::Ownership owners, PlainFault fault,
            int number, at::Tensor& last_dk)
      : setting_(setting),
        shards_(shards),
        owners_(std::move(owners)),
        fault_(fault),
        number_(number),
        last_dk_(last_dk) {}

  void forward(verify::Results& results) override {
    const at::NoGradGuard no_grad;
    const Case& c = setting_.c;
    q_ = by_head(setting_.view.q, shards_.q);
    k_ = gathered(by_head(setting_.view.kv, shards_.k), "k");
    v_ = gathered(by_head(setting_.view.kv, shards_.v), "v");
    const std::int64_t group = c.heads / c.kv_heads;
    const at::Tensor heads = at::arange(c.heads, at::kLong);
    kv_head_ = fault_ == PlainFault::heads_interleaved ? heads.remainder(c.kv_heads)
                                                       : heads.div(group, /*rounding_mode=*/"floor");
    const double scale = fault_ == PlainFault::unscaled ? 1 : 1 / std::sqrt(static_cast<double>(c.head_dim_qk));
    at::Tensor scores = at::matmul(q_.mul(scale), k_.index_select(0, kv_head_).transpose(1, 2));
    scores = at::where(visible(), scores, kMinusInfinity);
    at::Tensor lse = logsumexp(scores);
    p_ = scores.sub(lse.unsqueeze(-1)).exp().nan_to_num(0.0);
    at::Tensor out = at::matmul(p_, v_.index_select(0, kv_head_));
    if (fault_ == PlainFault::repeats_other_bits && number_ % 2 == 1) out = out.mul(1 + 0x1p-20);
    if (fault_ == PlainFault::first_step_has_other_bits && number_ == 0) out = out.mul(1 + 0x1p-20);
    if (fault_ == PlainFault::depends_on_sign) out = at::where(out.gt(0), out.mul(1 + 0x1p-23), out);
    out_ = out;
    if (fault_ == PlainFault::lse_in_base_2) lse = lse.div(std::log(2.0));
    results.out = in_layout(out);
    results.lse = lse.contiguous();
  }

  void backward(verify::Results& results) override {
    const at::NoGradGuard no_grad;
    const Case& c = setting_.c;
    const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim_qk));
    const at::Tensor dout = by_head(setting_.view.q, shards_.dout);
    const at::Tensor delta = dout.mul(out_).sum(-1, /*keepdim=*/true);
    const at::Tensor ds = at::matmul(dout, v_.index_select(0, kv_head_).transpose(1, 2)).sub(delta).mul(p_);
    results.dq = in_layout(at::matmul(ds, k_.index_select(0, kv_head_)).mul(scale));
    const at::Tensor counted = counted_queries();
    results.dk = in_layout(summed(at::matmul(ds.mul(counted).transpose(1, 2), q_).mul(scale), "dk"));
    results.dv = in_layout(summed(at::matmul(p_.transpose(1, 2), dout.mul(counted)), "dv"));
    std::swap(last_dk_, results.dk);
    if (fault_ != PlainFault::keeps_dk || !results.dk.defined()) results.dk = last_dk_;
  }

 private:
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(setting_.groups.cp->rank()); }

  // Returns the shard as fp32 [heads, rows, dim].
  static at::Tensor by_head(const verify::RankRows& rows, const at::Tensor& shard) {
    return rows.packed(shard).to(at::kFloat).transpose(0, 1).contiguous();
  }

  [[nodiscard]] at::Tensor logsumexp(const at::Tensor& scores) const {
    if (fault_ != PlainFault::maximum_from_minus_5e4) return scores.logsumexp({-1});
    const at::Tensor largest = scores.amax(-1, /*keepdim=*/true).clamp_min_(-5e4);
    return scores.sub(largest).exp().sum(-1).log().add_(largest.squeeze(-1));
  }

  [[nodiscard]] at::Tensor in_layout(const at::Tensor& by_head) const {
    const Case& c = setting_.c;
    at::Tensor packed = by_head.transpose(0, 1).to(verify::scalar_type_of(c.dtype)).contiguous();
    if (c.layout == Layout::thd) return packed;
    const at::Tensor bshd = packed.view({c.batch, -1, packed.size(1), packed.size(2)});
    return c.layout == Layout::bshd ? bshd : bshd.transpose(0, 1).contiguous();
  }

  // The rows of all ranks, rank by rank.
  [[nodiscard]] std::vector<LocalRow> all_key_rows() const {
    std::vector<LocalRow> all;
    for (const auto& rows : owners_.kv) all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }

  [[nodiscard]] bool is_replicated_key(const LocalRow& row) const {
    return row.canonical >= 0 && row.position < setting_.lengths.replicated_kv;
  }

  // bool, one per key row of all ranks: whether the row counts. Of the copies of a replicated row, only rank 0's
  // counts.
  [[nodiscard]] at::Tensor counted_keys() const {
    std::vector<std::int64_t> counted;
    for (std::size_t r = 0; r < owners_.kv.size(); ++r) {
      for (const LocalRow& row : owners_.kv[r]) counted.push_back(r == 0 || !is_replicated_key(row) ? 1 : 0);
    }
    return at::tensor(counted, at::kLong).ne(0);
  }

  // fp32 [rows, 1]: 1 for each query whose contribution to dk and dv this rank adds, else 0.
  [[nodiscard]] at::Tensor counted_queries() const {
    std::vector<double> counted;
    for (const LocalRow& row : setting_.view.q.rows()) {
      const bool is_copy = rank() > 0 && row.canonical >= 0 && row.position < setting_.lengths.replicated_q;
      counted.push_back(is_copy ? 0 : 1);
    }
    at::Tensor out = at::tensor(counted, at::kDouble).to(at::kFloat).unsqueeze(1);
    return fault_ == PlainFault::replicated_loss_of_every_rank ? out.fill_(1) : out;
  }

  // The indices of this rank's keys among the key rows of all ranks.
  [[nodiscard]] at::Tensor own_keys() const {
    std::int64_t first = 0;
    for (std::size_t r = 0; r < rank(); ++r) first += static_cast<std::int64_t>(owners_.kv[r].size());
    std::vector<std::int64_t> places;
    for (const LocalRow& row : owners_.kv[rank()]) {
      const auto at_rank_0 = std::ranges::find(owners_.kv[0], row);
      places.push_back(is_replicated_key(row) ? at_rank_0 - owners_.kv[0].begin() : first);
      ++first;
    }
    return at::tensor(places, at::kLong);
  }

  // bool [rows, all key rows]: whether the query sees the key.
  [[nodiscard]] at::Tensor visible() const {
    const Case& c = setting_.c;
    const std::vector<LocalRow> keys = all_key_rows();
    const std::vector<LocalRow>& queries = setting_.view.q.rows();
    const at::Tensor q_sequence = column(queries, &LocalRow::sequence).unsqueeze(1);
    const at::Tensor k_sequence = column(keys, &LocalRow::sequence).unsqueeze(0);
    at::Tensor i = column(queries, &LocalRow::position).unsqueeze(1);
    const at::Tensor j = column(keys, &LocalRow::position).unsqueeze(0);
    if (fault_ != PlainFault::diagonal_top_left) {
      i = i.add(lengths_of(q_sequence.flatten(), setting_.lengths.valid_kv).unsqueeze(1))
              .sub(lengths_of(q_sequence.flatten(), setting_.lengths.valid_q).unsqueeze(1));
    }
    at::Tensor seen = i.eq(i).logical_and(j.eq(j));
    if (fault_ != PlainFault::replicated_keys_of_every_rank) seen = seen.logical_and(counted_keys().unsqueeze(0));
    if (fault_ != PlainFault::sequences_see_others) seen = seen.logical_and(q_sequence.eq(k_sequence));
    if (fault_ != PlainFault::reads_padding) {
      seen = seen.logical_and(column(keys, &LocalRow::canonical).ge(0).unsqueeze(0));
    }
    seen = seen.logical_and(column(queries, &LocalRow::canonical).ge(0).unsqueeze(1));
    if (c.causal) seen = seen.logical_and(j.le(i));
    const std::int64_t more = fault_ == PlainFault::window_one_too_wide ? 1 : 0;
    if (c.window[0] >= 0) seen = seen.logical_and(i.sub(j).le(c.window[0] + more));
    if (c.window[1] >= 0) seen = seen.logical_and(j.sub(i).le(c.window[1]));
    return seen;
  }

  // Gathers [heads, rows, dim] from every rank as [heads, all rows, dim].
  [[nodiscard]] at::Tensor gathered(const at::Tensor& own, const char* what) const {
    Communicator& cp = *setting_.groups.cp;
    std::int64_t most = 0;
    for (const auto& rows : owners_.kv) most = std::max(most, static_cast<std::int64_t>(rows.size()));
    at::Tensor sent = at::zeros({most, own.size(0), own.size(2)});
    sent.narrow(0, 0, own.size(1)).copy_(own.transpose(0, 1));
    at::Tensor all = at::zeros({most * cp.size(), own.size(0), own.size(2)});
    cp.all_gather(all, sent, what)->wait();
    std::vector<std::int64_t> kept;
    for (std::size_t r = 0; r < owners_.kv.size(); ++r) {
      for (std::size_t i = 0; i < owners_.kv[r].size(); ++i) {
        kept.push_back(static_cast<std::int64_t>(r) * most + static_cast<std::int64_t>(i));
      }
    }
    return all.index_select(0, at::tensor(kept, at::kLong)).transpose(0, 1);
  }

  // Sums [heads, all key rows, dim] over ranks and over the query heads of each key-value head. Returns this rank's
  // rows.
  [[nodiscard]] at::Tensor summed(const at::Tensor& all, const char* what) const {
    at::Tensor by_kv_head = at::zeros({setting_.c.kv_heads, all.size(1), all.size(2)}).index_add(0, kv_head_, all);
    const at::Tensor own = by_kv_head.index_select(1, own_keys());
    if (fault_ != PlainFault::keys_not_summed) {
      setting_.groups.cp->all_reduce(by_kv_head, ReduceOp::sum, what)->wait();
    }
    at::Tensor of_all = by_kv_head.index_select(1, own_keys());
    if (fault_ != PlainFault::replicated_gradients_of_a_rank) return of_all;
    std::vector<std::int64_t> everybodys;
    for (const LocalRow& row : owners_.kv[rank()]) everybodys.push_back(is_replicated_key(row) ? 1 : 0);
    return at::where(at::tensor(everybodys, at::kLong).ne(0).view({1, -1, 1}), own, of_all);
  }

  StepSetting setting_;
  const verify::Shards& shards_;
  verify::Ownership owners_;
  PlainFault fault_;
  int number_;
  at::Tensor& last_dk_;
  at::Tensor q_, k_, v_, p_, out_, kv_head_;
};

}  // namespace

std::string PlainAttention::skip_reason(const Case& c, const at::Device& /*device*/) {
  if (c.bias || c.softmax != SoftmaxType::vanilla || c.chunk > 0 || c.max_logit || !c.mask.empty() || c.softcap != 0) {
    return "it has plain masks only";
  }
  return {};
}

std::unique_ptr<Step> PlainAttention::make_step(const StepSetting& setting, const verify::Shards& shards) {
  const verify::Ownership owners =
      verify::ownership_of(sharding_, setting.c.layout, setting.lengths, setting.groups.cp->size());
  return std::make_unique<PlainStep>(setting, shards, owners, fault_, steps_++, last_dk_);
}

}  // namespace cp_pool::test
