#include "cp_core/attention/cudnn/cudnn_plan_cache.h"

#include <cstddef>
#include <future>
#include <mutex>
#include <utility>

#include <c10/cuda/CUDAFunctions.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cudnn/plan_store.h"
#include "cp_core/attention/cudnn/stored_plans.h"
#include "cp_core/lru_cache.h"

namespace cp_pool {
namespace {

using PlanPtr = std::shared_ptr<const CudnnPlan>;

// A plan takes some hundred KiB of host memory. A full matrix has a few hundred of them.
constexpr std::size_t kMostPlans = 1024;

struct Key {
  int device = 0;
  CudnnGraph graph;

  auto operator<=>(const Key&) const = default;
};

class Cache {
 public:
  PlanPtr get(const Key& key) {
    std::promise<PlanPtr> promise;
    std::shared_future<PlanPtr> plan;
    bool found = false;
    {
      const std::lock_guard lock(mutex_);
      const auto* entry = entries_.find(key);
      found = entry != nullptr;
      if (found) {
        plan = *entry;
      } else {
        plan = promise.get_future().share();
        entries_.keep(key, plan, /*weight=*/1);
      }
    }
    if (!found) build(key, promise);
    return plan.get();
  }

  bool knows(const Key& key) {
    const std::lock_guard lock(mutex_);
    return entries_.contains(key);
  }

 private:
  void build(const Key& key, std::promise<PlanPtr>& promise) {
    try {
      promise.set_value(plans_.get(key.graph));
    } catch (const BackendUnsupported&) {
      promise.set_exception(std::current_exception());
    } catch (...) {
      // Any other error is not remembered: the next try may succeed.
      promise.set_exception(std::current_exception());
      const std::lock_guard lock(mutex_);
      entries_.forget(key);
    }
  }

  StoredPlans plans_{{.build = build_cudnn_plan, .load = load_cudnn_plan, .environment = cudnn_plan_environment},
                     plan_store_folder()};
  std::mutex mutex_;
  // An entry may be dropped at any time: callers that use a plan, or wait for it, hold a reference of their own.
  LruCache<Key, std::shared_future<PlanPtr>> entries_{kMostPlans};
};

Cache& cache() {
  // Never destroyed: cuDNN may be gone before static objects are.
  static auto* cache = new Cache();
  return *cache;
}

}  // namespace

std::shared_ptr<const CudnnPlan> cudnn_plan(const CudnnGraph& graph) {
  return cache().get({.device = c10::cuda::current_device(), .graph = graph});
}

bool cudnn_plan_is_known(const CudnnGraph& graph) {
  return cache().knows({.device = c10::cuda::current_device(), .graph = graph});
}

}  // namespace cp_pool
