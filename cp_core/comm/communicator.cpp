#include "cp_core/comm/communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "cases/comm_facts.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

std::int64_t total_bytes(std::span<const at::Tensor> tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

at::Tensor packed(std::span<const at::Tensor> tensors) {
  at::Tensor bytes = at::empty({total_bytes(tensors)}, at::TensorOptions(at::kByte));
  auto* target = static_cast<std::byte*>(bytes.mutable_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "contiguous tensors of the CPU expected");
    if (tensor.nbytes() > 0) std::memcpy(target, tensor.const_data_ptr(), tensor.nbytes());
    target += tensor.nbytes();
  }
  return bytes;
}

// One message, which wait() unpacks into several tensors.
class PackedWork final : public Work {
 public:
  PackedWork(Communicator::WorkPtr work, at::Tensor sent, at::Tensor received, std::vector<at::Tensor> targets)
      : work_(std::move(work)), sent_(std::move(sent)), received_(std::move(received)), targets_(std::move(targets)) {}

  void wait() override {
    work_->wait();
    const auto* source = static_cast<const std::byte*>(received_.const_data_ptr());
    for (const at::Tensor& target : targets_) {
      if (target.nbytes() > 0) std::memcpy(target.mutable_data_ptr(), source, target.nbytes());
      source += target.nbytes();
    }
    targets_.clear();
  }

 private:
  Communicator::WorkPtr work_;
  at::Tensor sent_;
  at::Tensor received_;
  std::vector<at::Tensor> targets_;
};

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

CpGroups Communicator::divided(const Division& /*division*/) {
  return {};
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

// The implementation for CPU ranks, which packs the tensors into one message.
Communicator::WorkPtr Communicator::exchange_many(std::span<const at::Tensor> sends, int to,
                                                  std::span<const at::Tensor> receives, int from,
                                                  std::string_view what) {
  if (sends.size() == 1 && receives.size() == 1) {
    at::Tensor received = receives.front();
    return exchange(sends.front(), to, received, from, what);
  }
  at::Tensor sent = packed(sends);
  at::Tensor received = at::empty({total_bytes(receives)}, at::TensorOptions(at::kByte));
  WorkPtr work = exchange(sent, to, received, from, what);
  return std::make_unique<PackedWork>(std::move(work), std::move(sent), std::move(received),
                                      std::vector<at::Tensor>(receives.begin(), receives.end()));
}

}  // namespace cp_pool
