#include "cp_core/comm/communicator.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include <ATen/ops/full.h>

#include "cases/comm_facts.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

class SeveralWorks final : public Work {
 public:
  explicit SeveralWorks(std::vector<Communicator::WorkPtr> works) : works_(std::move(works)) {}
  void wait() override {
    for (const Communicator::WorkPtr& work : works_) work->wait();
    works_.clear();
  }

 private:
  std::vector<Communicator::WorkPtr> works_;
};

}  // namespace

GroupRanks group_ranks(int rank, int size, const Division& division) {
  std::vector<int> cp;
  for (int other = 0; other < size; ++other) {
    if (group_of_rank(division, other) == group_of_rank(division, rank)) cp.push_back(other);
  }
  const int members = static_cast<int>(cp.size());
  if (CP_MUTATE(group_ranks_consecutive, false, true)) std::iota(cp.begin(), cp.end(), rank / members * members);
  GroupRanks out{.cp = cp, .inner = {}, .outer = {}};
  const int inner = inner_ranks({.all = members, .inner = division.inner});
  if (inner == 0) return out;
  const int place = static_cast<int>(std::ranges::find(cp, rank) - cp.begin());
  for (int i = 0; i < members; ++i) {
    const int world_rank = cp[static_cast<std::size_t>(i)];
    if (i / inner == place / inner) out.inner.push_back(world_rank);
    if (i % inner == place % inner) out.outer.push_back(world_rank);
  }
  return out;
}

CpGroups Communicator::divided(const Division& division) {
  const auto found = divided_.find(division);
  return found != divided_.end() ? found->second : divided_.emplace(division, divide(division)).first->second;
}

std::vector<at::Tensor> Communicator::of_peer(std::span<const Message> messages, int peer) {
  std::vector<at::Tensor> tensors;
  for (const Message& message : messages) {
    if (message.peer == peer) tensors.push_back(message.tensor);
  }
  return tensors;
}

// The implementation for CPU ranks: one exchange for each distance between ranks, so that each rank has as many.
Communicator::WorkPtr Communicator::exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                                                 std::string_view what) {
  std::vector<WorkPtr> works;
  for (int distance = 1; distance < size(); ++distance) {
    const int to = (rank() + distance) % size();
    const int from = (rank() + size() - distance) % size();
    works.push_back(exchange_many(of_peer(sends, to), to, of_peer(receives, from), from, what));
  }
  return std::make_unique<SeveralWorks>(std::move(works));
}

int largest_anywhere(int here, Communicator& group, const at::Device& device, const char* what) {
  at::Tensor largest = at::full({1}, here, at::TensorOptions(device).dtype(at::kInt));
  group.all_reduce(largest, ReduceOp::max, what)->wait();
  group.synchronize(what);
  return largest.item<int>();
}

bool anywhere(bool here, Communicator& group, const at::Device& device, const char* what) {
  return largest_anywhere(here ? 1 : 0, group, device, what) != 0;
}

}  // namespace cp_pool
