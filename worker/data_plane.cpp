#include "worker/data_plane.h"

#include <string>
#include <utility>

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "cp_core/comm/gloo/gloo_communicator.h"
#include "cp_core/comm/wrapped_communicator.h"
#include "cp_core/cuda/cuda_part.h"
#include "worker/lifeline.h"
#include "worker/pending_operation.h"
#include "worker/protocol/host_resources.h"
#include "worker/tcp.h"

namespace cp_pool {

namespace {

std::string own_address(const protocol::RankEnvironment& environment) {
  if (environment.master_addr == "127.0.0.1" || environment.master_addr == "localhost") return "127.0.0.1";
  // The address is one of the network on which this host reaches rank 0's host. A host name may resolve to another
  // network.
  if (Lifeline::current() != nullptr) {
    if (std::string towards = address_towards(environment.master_addr); !towards.empty()) return towards;
  }
  const std::string name = protocol::host_name();
  return name.empty() ? "127.0.0.1" : name;
}

void prove(const CpGroups& groups, const at::Device& device, int generation, std::chrono::milliseconds limit) {
  const int size = groups.cp->size();
  groups.cp->set_deadline(Communicator::Clock::now() + limit);
  at::Tensor sum = at::full({1}, groups.cp->rank() + 1, at::TensorOptions(device).dtype(at::kLong));
  groups.cp->all_reduce(sum, ReduceOp::sum, fmt::format("proof of generation {}", generation))->wait();
  groups.cp->synchronize("proof of the connection");
  const std::int64_t expected = std::int64_t{size} * (size + 1) / 2;
  const auto got = sum.item<std::int64_t>();
  if (got != expected) {
    throw CommError(CommError::Kind::failed, fmt::format("rank {}: proof of generation {}: all-reduce gave {}, not {}",
                                                         groups.cp->rank(), generation, got, expected));
  }
}

class ObservedWork final : public Work {
 public:
  ObservedWork(std::unique_ptr<Work> work, std::string description)
      : work_(std::move(work)), description_(std::move(description)) {}

  void wait() override {
    const PendingOperationGuard guard(description_);
    work_->wait();
  }

 private:
  std::unique_ptr<Work> work_;
  std::string description_;
};

class ObservedCommunicator final : public WrappedCommunicator {
 public:
  ObservedCommunicator(std::shared_ptr<Communicator> target, std::string name, std::function<void()> before_operation)
      : WrappedCommunicator(std::move(target)),
        name_(std::move(name)),
        before_operation_(std::move(before_operation)) {}

  void synchronize(std::string_view what) override {
    const PendingOperationGuard guard(describe("synchronize on", what));
    target().synchronize(what);
  }

  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    before_operation_();
    const PendingOperationGuard guard(describe("barrier on", "after the case"));
    target().checked_barrier(tag, limit);
  }

 private:
  CpGroups divide(const Division& division) override;

  WorkPtr carry_out(const Operation& operation, const std::function<WorkPtr()>& start) override {
    std::string description = describe(operation.name, operation.what);
    const PendingOperationGuard guard(description);
    before_operation_();
    return std::make_unique<ObservedWork>(start(), std::move(description));
  }

  [[nodiscard]] std::string describe(std::string_view operation, std::string_view what) const {
    return fmt::format("{} group {}: {}", operation, name_, what);
  }

  std::string name_;
  std::function<void()> before_operation_;
};

CpGroups ObservedCommunicator::divide(const Division& division) {
  const std::size_t groups = groups_of(division).size();
  const std::string of = groups == 1 ? "" : fmt::format(" of group {} of {}", group_of_rank(division, rank()), groups);
  return observe(target().divided(division), before_operation_, of);
}

}  // namespace

std::string generation_prefix(int generation) {
  return fmt::format("gen/{}/", generation);
}

CpGroups connect_groups(const protocol::RankEnvironment& environment, const at::Device& device,
                        const c10::intrusive_ptr<c10d::Store>& store, int generation, std::chrono::milliseconds limit,
                        const ConnectOptions& options) {
  const std::string prefix = generation_prefix(generation);
  GlooOptions gloo{.host = own_address(environment),
                   .interface = protocol::process_variable("GLOO_SOCKET_IFNAME"),
                   .connect_timeout = limit};
  if (gloo.interface && gloo.interface->empty()) gloo.interface.reset();
  CpGroups groups = device.is_cuda() ? cuda_part<GpuGroups>().make(store, prefix, environment.rank,
                                                                   environment.world_size, limit, options.shares_gpu)
                                     : make_gloo_groups(store, prefix, environment.rank, environment.world_size, gloo);
  if (options.on_connected) options.on_connected();
  prove(groups, device, generation, limit);
  return groups;
}

CpGroups observe(const CpGroups& groups, const std::function<void()>& before_operation, const std::string& of) {
  const auto wrapped = [&](const std::shared_ptr<Communicator>& target,
                           const char* name) -> std::shared_ptr<Communicator> {
    if (!target) return nullptr;
    return std::make_shared<ObservedCommunicator>(target, name + of, before_operation);
  };
  return {wrapped(groups.cp, "cp"), wrapped(groups.inner, "inner"), wrapped(groups.outer, "outer")};
}

}  // namespace cp_pool
