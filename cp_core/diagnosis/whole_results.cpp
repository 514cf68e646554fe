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

// Returns a rank's result as [rows, heads, dim]; undefined if it is missing or has a wrong shape.
at::Tensor in_rows(const Case& c, const verify::Ownership& owners, int rank, at::Tensor Results::* member,
                   const at::Tensor& result) {
  if (!result.defined()) return {};
  const at::Tensor given = result.detach().to(at::kDouble);
  if (member == &Results::dbias) return given.dim() == 4 ? verify::bias_by_row(given) : at::Tensor();
  const bool keys = is_of_keys(member);
  const verify::RankRows rows(c.layout, c.batch, (keys ? owners.kv : owners.q).at(static_cast<std::size_t>(rank)),
                              verify::PaddingFill::zeros);
  if (member == &Results::lse || member == &Results::max_logit || member == &Results::dsink) {
    const at::Tensor matrix = given.dim() == 1 ? given.unsqueeze(1) : given;  // [heads, rows]
    const bool fits = matrix.dim() == 2 && matrix.size(0) == c.heads &&
                      matrix.size(1) == (member == &Results::lse ? rows.count() : 1);
    return fits ? matrix.t().unsqueeze(-1) : at::Tensor();
  }
  const bool of_v = member == &Results::out || member == &Results::dv;
  const bool fits = rows.fits(given) && given.size(-2) == (keys ? c.kv_heads : c.heads) &&
                    given.size(-1) == (of_v ? c.head_dim_v : c.head_dim_qk);
  return fits ? rows.packed(given) : at::Tensor();
}

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
  ResultsByRank by_rank(static_cast<std::size_t>(cp.size()));
  for (const auto& [name, member] : verify::kResults) {
    const at::Tensor given = in_rows(c, owners, cp.rank(), member, results.*member);
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
