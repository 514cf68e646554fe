#include "cp_core/context_parallel/bias_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

// Converts [batch, heads, rows, columns] to packed [batch * rows, heads, columns]; unpack_rows() is the inverse.
at::Tensor pack_rows(const at::Tensor& bias) {
  return bias.transpose(1, 2).flatten(0, 1).contiguous();
}

at::Tensor unpack_rows(const at::Tensor& packed, std::int64_t batch) {
  return packed.unflatten(0, {batch, packed.size(0) / batch}).transpose(1, 2).contiguous();
}

}  // namespace

BiasExchange::BiasExchange(const AttentionProblem& problem, Communicator& group, const Rows& rows)
    : problem_(problem), group_(group), rows_{.copies = {}, .of_a_rank = 0, .heads = rows.heads} {
  if (replicated()) return;
  rows_.copies = row_copies(rows.by_rank, rows.packed);
  rows_.of_a_rank = total_rows(rows.packed) / group.size();
}

bool BiasExchange::of_each_head() const {
  return problem_.bias && cp_pool::of_each_head(*problem_.bias);
}

bool BiasExchange::replicated() const {
  return problem_.layout == Layout::thd || problem_.bias == BiasShape::shape_111s;
}

at::Tensor BiasExchange::scatter(const at::Tensor& bias) const {
  if (replicated()) {
    if (!of_each_head()) return bias;
    const auto rank = static_cast<std::size_t>(group_.rank());
    return bias.narrow(1, CP_MUTATE(a2a_bias_heads, rows_.heads[rank], 0), rows_.heads_of(group_.rank()));
  }
  const at::Tensor rows = pack_rows(bias);
  if (of_each_head()) {
    HeadExchange::Trip trip =
        HeadExchange(group_, {}).scatter({{.of_tokens = rows, .of_heads = {}, .rows = &rows_}}, "a2a bias");
    trip.finish();
    return unpack_rows(trip.of_heads(0), bias.size(0));
  }
  at::Tensor by_rank = at::empty({group_.size() * rows.size(0), 1, rows.size(2)}, rows.options());
  group_.all_gather(by_rank, rows, "a2a bias rows")->wait();
  at::Tensor packed = at::empty_like(by_rank);
  copy_rows(by_rank, packed, rows_.copies);
  return unpack_rows(packed, bias.size(0));
}

at::Tensor BiasExchange::gather(const at::Tensor& dbias) const {
  if (replicated()) {
    if (!of_each_head()) return dbias;
    at::Tensor of_all_heads = at::zeros({dbias.size(0), problem_.heads, dbias.size(2), dbias.size(3)}, dbias.options());
    of_all_heads.narrow(1, rows_.heads[static_cast<std::size_t>(group_.rank())], dbias.size(1)).copy_(dbias);
    return of_all_heads;
  }
  const at::Tensor packed = pack_rows(dbias);
  if (of_each_head()) {
    const at::Tensor own = at::empty({rows_.of_a_rank, problem_.heads, packed.size(2)}, packed.options());
    HeadExchange(group_, {}).gather({{.of_tokens = own, .of_heads = packed, .rows = &rows_}}, "a2a dbias").finish();
    return unpack_rows(own, dbias.size(0));
  }
  at::Tensor by_rank = at::empty_like(packed);
  copy_rows_back(packed, by_rank, rows_.copies);
  at::Tensor own = at::empty({rows_.of_a_rank, 1, packed.size(2)}, packed.options());
  if (CP_MUTATE(a2a_dbias_not_reduced, true, false)) {
    group_.reduce_scatter(own, by_rank, "a2a dbias rows")->wait();
  } else {
    own.copy_(by_rank.narrow(0, group_.rank() * own.size(0), own.size(0)));
  }
  return unpack_rows(own, dbias.size(0));
}

}  // namespace cp_pool
