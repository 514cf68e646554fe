#include "cp_core/context_parallel/head_exchange.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

HeadExchange::Pending start(Communicator& group, at::Tensor sent, std::string_view what) {
  at::Tensor received = at::empty_like(sent);
#ifdef CP_POOL_MUTANTS
  // Memory used before may hold the very numbers that a skipped wait leaves out.
  received.zero_();
#endif
  Communicator::WorkPtr work = group.all_to_all(received, sent, what);
  return {std::move(sent), std::move(received), std::move(work)};
}

}  // namespace

const at::Tensor& HeadExchange::Pending::wait() {
  if (CP_MUTATE(a2a_wait_skipped, true, false)) work_->wait();
  return received_;
}

HeadExchange::Pending HeadExchange::start_scatter(const at::Tensor& rows, std::string_view what) const {
  const std::int64_t ranks = group_.size();
  const std::int64_t block = rows.size(1) / ranks;
  const at::Tensor by_rank = CP_MUTATE(a2a_heads_interleaved, rows.unflatten(1, {ranks, block}).transpose(0, 1),
                                       rows.unflatten(1, {block, ranks}).permute({2, 0, 1, 3}));
  return start(group_, CP_MUTATE(a2a_head_order, by_rank, by_rank.flip(0)).contiguous(), what);
}

at::Tensor HeadExchange::finish_scatter(Pending pending) const {
  const at::Tensor received = pending.wait().flatten(0, 1);
  at::Tensor rows = at::empty_like(received);
  copy_rows(received, rows, copies_);
  return rows;
}

HeadExchange::Pending HeadExchange::start_gather(const at::Tensor& rows, std::string_view what) const {
  at::Tensor by_rank = at::empty_like(rows);
  copy_rows_back(rows, by_rank, copies_);
  return start(group_, by_rank.unflatten(0, {group_.size(), rows.size(0) / group_.size()}), what);
}

at::Tensor HeadExchange::finish_gather(Pending pending) {
  return pending.wait().transpose(0, 1).flatten(1, 2);
}

}  // namespace cp_pool
