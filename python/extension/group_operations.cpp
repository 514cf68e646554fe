#include "python/extension/group_operations.h"

#include <memory>
#include <mutex>
#include <string_view>

#include <ATen/record_function.h>

namespace cp_pool {
namespace {

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function);

struct Watch {
  std::mutex mutex;
  std::string first;
  const at::CallbackHandle callback =
      at::addGlobalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}));
};

Watch& the_watch() {
  static Watch watch;
  return watch;
}

// Is called at the begin of every operator of torch. An operation on a group is an operator of c10d, whoever calls it;
// symm_mem has kernels that read the memory of other ranks.
std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (!name.starts_with("c10d::") && !name.starts_with("symm_mem::")) return nullptr;
  Watch& watch = the_watch();
  const std::lock_guard lock(watch.mutex);
  if (watch.first.empty()) watch.first = name;
  at::disableCallback(watch.callback);
  return nullptr;
}

}  // namespace

void watch_group_operations() {
  Watch& watch = the_watch();
  const std::lock_guard lock(watch.mutex);
  watch.first.clear();
  at::reenableCallback(watch.callback);
}

std::string first_group_operation() {
  Watch& watch = the_watch();
  const std::lock_guard lock(watch.mutex);
  return watch.first;
}

}  // namespace cp_pool
