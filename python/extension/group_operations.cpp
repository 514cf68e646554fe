#include "python/extension/group_operations.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace cp_pool {
namespace {

// What the operators of c10d are called in Python. peer: whether their first number is a rank. gives: which of their
// arguments has the tensors that this rank gives, or receives if it gives none; -1: they mean nothing.
struct Operator {
  std::string_view name;
  std::string_view in_python;
  int gives = 0;
  bool peer = false;
};
constexpr std::array kOperators{
    Operator{"_allgather_base_", "all_gather_into_tensor", 1},
    Operator{"_reduce_scatter_base_", "reduce_scatter_tensor"},
    Operator{"allgather_", "all_gather", 1},
    Operator{"allgather_coalesced_", "all_gather_coalesced", 1},
    Operator{"allgather_into_tensor_coalesced_", "all_gather_into_tensor", 1},
    Operator{"allreduce_", "all_reduce"},
    Operator{"allreduce_coalesced_", "all_reduce_coalesced"},
    Operator{"alltoall_", "all_to_all", 1},
    Operator{"alltoall_base_", "all_to_all_single", 1},
    Operator{"barrier", "barrier", -1},
    Operator{"broadcast_", "broadcast", 0, true},
    Operator{"gather_", "gather", 1, true},
    Operator{"monitored_barrier_", "monitored_barrier", -1},
    Operator{"recv_", "recv", 0, true},
    Operator{"recv_any_source_", "recv"},
    Operator{"reduce_", "reduce", 0, true},
    Operator{"reduce_scatter_", "reduce_scatter"},
    Operator{"reduce_scatter_tensor_coalesced_", "reduce_scatter_tensor"},
    Operator{"scatter_", "scatter", 0, true},
    Operator{"send", "send", 0, true},
};

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function);

struct Watch {
  std::mutex mutex;
  std::vector<GroupOperation> begun;
  std::size_t most = 0;
  const at::CallbackHandle callback =
      at::addGlobalCallback(at::RecordFunctionCallback(&note).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
};

Watch& operation_watch() {
  static Watch watch;
  return watch;
}

void set_group(GroupOperation& operation, c10d::ProcessGroup& group) {
  operation.group = group.getGroupName();
  operation.members.resize(static_cast<std::size_t>(group.getSize()));
  std::iota(operation.members.begin(), operation.members.end(), 0);
  try {
    const auto& listed = group.getDefaultBackend()->getBackendOptions()->global_ranks_in_group;
    if (!listed.empty()) operation.members.assign(listed.begin(), listed.end());  // that of all ranks has no list
  } catch (const c10::Error&) {                                                   // a backend without options
    operation.members.clear();
  }
}

void set_tensors(GroupOperation& operation, const c10::IValue& given) {
  const std::vector<at::Tensor> tensors = given.isTensor() ? std::vector{given.toTensor()} : given.toTensorVector();
  if (tensors.empty()) return;
  for (const at::Tensor& tensor : tensors) operation.bytes += static_cast<std::int64_t>(tensor.nbytes());
  operation.tensor =
      fmt::format("{} [{}]", c10::getDtypeNames(tensors[0].scalar_type()).first, fmt::join(tensors[0].sizes(), ", "));
  if (tensors.size() > 1) operation.tensor += fmt::format(" and {} more tensors", tensors.size() - 1);
}

GroupOperation described(std::string_view name, c10::ArrayRef<const c10::IValue> arguments) {
  GroupOperation out;
  out.name = name;
  if (!name.starts_with("c10d::")) return out;
  name.remove_prefix(6);
  const auto* const known = std::ranges::find(kOperators, name, &Operator::name);
  if (known == kOperators.end()) return out;
  out.name = known->in_python;
  if (known->gives >= 0 && arguments.size() > 1) set_tensors(out, arguments[known->gives]);
  const auto* const group = std::ranges::find_if(arguments, &c10::IValue::isCustomClass);
  if (group == arguments.end()) return out;
  set_group(out, *group->toCustomClass<c10d::ProcessGroup>());
  const auto* const number = std::find_if(group, arguments.end(), [](const c10::IValue& one) { return one.isInt(); });
  if (!known->peer || number == arguments.end()) return out;
  const auto rank = static_cast<std::size_t>(number->toInt());
  if (rank < out.members.size()) out.peer = out.members[rank];
  return out;
}

thread_local int operators_under_way = 0;

// Lives as long as a call of an operator.
struct UnderWay : at::ObserverContext {
  UnderWay() { ++operators_under_way; }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  ~UnderWay() override { --operators_under_way; }
};

// Is called at the begin of every operator of torch. An operation on a group is an operator of c10d, whoever calls it;
// symm_mem has kernels that read the memory of other ranks.
std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (!name.starts_with("c10d::") && !name.starts_with("symm_mem::")) return nullptr;
  // A TorchDispatchMode, such as that of --delays, is called first, and calls the operator again.
  if (operators_under_way > 0) return nullptr;
  auto under_way = std::make_unique<UnderWay>();
  GroupOperation operation = described(name, function.inputs());
  Watch& watch = operation_watch();
  const std::lock_guard lock(watch.mutex);
  if (watch.begun.size() < watch.most) watch.begun.push_back(std::move(operation));
  if (watch.begun.size() >= watch.most) at::disableCallback(watch.callback);
  return under_way;
}

}  // namespace

void watch_group_operations(std::size_t most) {
  Watch& watch = operation_watch();
  const std::lock_guard lock(watch.mutex);
  watch.begun.clear();
  watch.most = most;
  at::reenableCallback(watch.callback);
}

std::optional<std::vector<GroupOperation>> group_operations() {
  Watch& watch = operation_watch();
  const std::lock_guard lock(watch.mutex);
  if (watch.begun.size() >= watch.most) return {};
  return watch.begun;
}

std::string first_group_operation() {
  Watch& watch = operation_watch();
  const std::lock_guard lock(watch.mutex);
  return watch.begun.empty() ? "" : watch.begun.front().name;
}

}  // namespace cp_pool
