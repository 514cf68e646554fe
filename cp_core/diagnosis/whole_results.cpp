#include "cp_core/diagnosis/whole_results.h"

#include <cstddef>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "cp_core/verify/rows.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// Returns this rank's results as [rows, heads, dim]; undefined where a result is missing or has a wrong shape.
class OwnResults {
 public:
  OwnResults(const Case& c, const verify::Ownership& owners, const Results& results, int rank)
      : c_(c),
        q_(c.layout, c.batch, owners.q.at(static_cast<std::size_t>(rank)), verify::PaddingFill::zeros),
        kv_(c.layout, c.batch, owners.kv.at(static_cast<std::size_t>(rank)), verify::PaddingFill::zeros),
        results_(results) {}

  [[nodiscard]] at::Tensor get(at::Tensor Results::* member) const {
    const at::Tensor& given = results_.*member;
    if (!given.defined()) return {};
    const at::Tensor shaped = in_rows(member, given.detach().to(at::kDouble));
    return shaped.defined() ? shaped.contiguous() : shaped;
  }

 private:
  [[nodiscard]] at::Tensor in_rows(at::Tensor Results::* member, const at::Tensor& given) const {
    if (member == &Results::dbias) return given.dim() == 4 ? verify::bias_by_row(given) : at::Tensor();
    if (member == &Results::lse) return by_head(given, q_.count());
    if (member == &Results::max_logit || member == &Results::dsink) return by_head(given, 1);
    const bool keys = is_of_keys(member);
    const verify::RankRows& rows = keys ? kv_ : q_;
    const bool of_v = member == &Results::out || member == &Results::dv;
    if (!rows.fits(given) || given.size(-2) != (keys ? c_.kv_heads : c_.heads)) return {};
    return given.size(-1) == (of_v ? c_.head_dim_v : c_.head_dim_qk) ? rows.packed(given) : at::Tensor();
  }

  // given: [heads, rows], or [heads] for one row.
  [[nodiscard]] at::Tensor by_head(const at::Tensor& given, std::int64_t rows) const {
    const at::Tensor matrix = given.dim() == 1 ? given.unsqueeze(1) : given;
    if (matrix.dim() != 2 || matrix.size(0) != c_.heads || matrix.size(1) != rows) return {};
    return matrix.t().unsqueeze(-1);
  }

  const Case& c_;
  verify::RankRows q_;
  verify::RankRows kv_;
  const Results& results_;
};

at::Device device_of(const Results& results) {
  for (const auto& [name, member] : verify::kResults) {
    if ((results.*member).defined()) return (results.*member).device();
  }
  return at::kCPU;
}

// Returns what each rank gave: [ranks, ...].
at::Tensor gather(Communicator& cp, const at::Tensor& own, const char* what) {
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), cp.size());
  at::Tensor all = at::empty(sizes, own.options());
  cp.all_gather(all, own, what)->wait();
  cp.synchronize(what);
  return all.cpu();
}

}  // namespace

ResultsByRank gather_results(const Case& c, const verify::Ownership& owners, const Results& results, Communicator& cp) {
  const at::Device device = device_of(results);
  const OwnResults own(c, owners, results, cp.rank());
  ResultsByRank by_rank(static_cast<std::size_t>(cp.size()));
  for (const auto& [name, member] : verify::kResults) {
    const at::Tensor given = own.get(member);
    // Ranks may have different numbers of rows, and no result.
    const at::Tensor shape = given.defined() ? at::tensor(given.sizes()) : at::zeros({3}, at::kLong);
    const at::Tensor shapes = gather(cp, shape.to(device), "shapes of results");
    if (!shapes.select(1, 1).ne(0).all().item<bool>()) continue;  // by the number of heads, as there may be no rows
    const at::Tensor counts = shapes.prod(1);
    const auto most = counts.max().item<std::int64_t>();
    at::Tensor sent = at::zeros({most}, at::TensorOptions(device).dtype(at::kDouble));
    sent.narrow(0, 0, given.numel()).copy_(given.flatten());
    const at::Tensor all = gather(cp, sent, "results");
    for (int rank = 0; rank < cp.size(); ++rank) {
      const auto* const size = shapes[rank].const_data_ptr<std::int64_t>();
      by_rank[static_cast<std::size_t>(rank)].*member =
          all[rank].narrow(0, 0, counts[rank].item<std::int64_t>()).view({size[0], size[1], size[2]}).clone();
    }
  }
  return by_rank;
}

at::Tensor joined_rows(const ResultsByRank& results, at::Tensor Results::* member) {
  std::vector<at::Tensor> parts;
  for (const Results& of_rank : results) {
    if (!(of_rank.*member).defined()) return {};
    parts.push_back(of_rank.*member);
  }
  return at::cat(parts);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!a.sizes().equals(b.sizes())) return false;
  return a.eq(b).logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

}  // namespace cp_pool::diagnosis
