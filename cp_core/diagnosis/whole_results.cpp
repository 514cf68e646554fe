#include "cp_core/diagnosis/whole_results.h"

#include <algorithm>
#include <cstddef>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
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

at::Tensor gather(Communicator& cp, const at::Tensor& own, const char* what) {
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), cp.size());
  at::Tensor all = at::empty(sizes, own.options());
  cp.all_gather(all, own, what)->wait();
  cp.synchronize(what);
  return all.cpu();
}

// The sizes of each of a rank's results, since ranks may have different numbers of rows. 0 where a result is missing.
at::Tensor sizes_of(const std::vector<at::Tensor>& own) {
  constexpr std::int64_t kDimensions = 3;
  at::Tensor sizes = at::zeros({static_cast<std::int64_t>(own.size()), kDimensions}, at::kLong);
  auto cells = sizes.accessor<std::int64_t, 2>();
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::int64_t d = 0; d < kDimensions && own[i].defined(); ++d) {
      cells[static_cast<std::int64_t>(i)][d] = own[i].size(d);
    }
  }
  return sizes;
}

}  // namespace

ResultsByRank gather_results(const Case& c, const verify::Ownership& owners, const Results& results, Communicator& cp) {
  const at::Device device = device_of(results);
  const OwnResults own(c, owners, results, cp.rank());
  std::vector<at::Tensor> given;
  given.reserve(verify::kResults.size());
  for (const auto& [name, member] : verify::kResults) given.push_back(own.get(member));
  const at::Tensor sizes = gather(cp, sizes_of(given).to(device), "shapes of results");
  const auto size = sizes.accessor<std::int64_t, 3>();
  const auto elements = [&size](int rank, std::size_t i) {
    const auto of = size[rank][static_cast<std::int64_t>(i)];
    return of[0] * of[1] * of[2];
  };
  ResultsByRank by_rank(static_cast<std::size_t>(cp.size()));
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::int64_t most = 0;
    bool everywhere = true;  // by the number of heads, since a rank without rows returns an empty tensor
    for (int rank = 0; rank < cp.size(); ++rank) {
      most = std::max(most, elements(rank, i));
      everywhere = everywhere && size[rank][static_cast<std::int64_t>(i)][1] > 0;
    }
    if (!everywhere) continue;
    at::Tensor sent = at::zeros({most}, at::TensorOptions(device).dtype(at::kDouble));
    sent.narrow(0, 0, given[i].numel()).copy_(given[i].reshape({-1}));
    const at::Tensor all = gather(cp, sent, "results");
    for (int rank = 0; rank < cp.size(); ++rank) {
      const auto of = size[rank][static_cast<std::int64_t>(i)];
      by_rank[static_cast<std::size_t>(rank)].*verify::kResults[i].second =
          all.select(0, rank).narrow(0, 0, elements(rank, i)).view({of[0], of[1], of[2]}).clone();
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
